// The system that the module sees: sources as files, a clock, random numbers. As much of WASI
// (snapshot preview1) as the library calls; everything else returns "not supported".
import type { Source, StateStore } from './types.js';

const OK = 0, BAD_FD = 8, EXISTS = 20, INVALID = 28, IO = 29, IS_FOLDER = 31, MISSING = 44, NO_SYSTEM = 52, READ_ONLY = 69;
const FOLDER = 3, REGULAR = 4; // types of files
const CREATE = 1, MUST_CREATE = 4; // of path_open
const PREOPENED = 3; // the root's descriptor
const SCRATCH = 1 << 20;
export const STATE_FOLDER = 'state';

interface File {
  source?: Source;
  state?: { name: string; bytes: Uint8Array }; // a small file, kept by a StateStore
}
interface Open extends File { at: number; path: string }

export class Files {
  readonly #files = new Map<string, Source>();
  readonly #open = new Map<number, Open>();
  #scratch: Uint8Array | undefined;
  failure: unknown; // the last error that a source threw

  constructor(readonly memory: () => WebAssembly.Memory, readonly state: StateStore | undefined) {}

  // Files appear as FOLDER/name.
  add(folder: string, sources: readonly Source[]): void {
    for (const source of sources) this.#files.set(`${folder}/${plain(source.name)}`, source);
  }
  remove(folder: string): void {
    for (const [path, source] of this.#files) {
      if (!path.startsWith(folder + '/')) continue;
      this.#files.delete(path);
      source.close?.();
    }
  }

  #bytes(): Uint8Array { return new Uint8Array(this.memory().buffer); }
  #view(): DataView { return new DataView(this.memory().buffer); }
  #text(at: number, n: number): string {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(this.#bytes().slice(at >>> 0, (at >>> 0) + n));
  }

  #find(path: string): File | undefined {
    const source = this.#files.get(path);
    if (source) return { source };
    if (!this.state || !path.startsWith(STATE_FOLDER + '/')) return undefined;
    const name = path.slice(STATE_FOLDER.length + 1);
    const bytes = this.state.read(name);
    return bytes && { state: { name, bytes } };
  }
  #isFolder(path: string): boolean {
    if (path === '' || path === STATE_FOLDER) return true;
    for (const name of this.#files.keys()) if (name.startsWith(path + '/')) return true;
    return false;
  }
  #size(f: File): number { return f.source ? f.source.size : f.state!.bytes.length; }

  // Reads ranges of a file into the module's memory. Sources only see memory that is not shared.
  #read(f: File, at: number, to: number, n: number): number {
    const wanted = Math.max(0, Math.min(n, this.#size(f) - at));
    if (f.state) {
      this.#bytes().set(f.state.bytes.subarray(at, at + wanted), to);
      return wanted;
    }
    const { buffer } = this.memory();
    if (buffer instanceof ArrayBuffer) return this.#fill(f.source!, at, new Uint8Array(buffer, to, wanted));
    this.#scratch ??= new Uint8Array(SCRATCH);
    let done = 0;
    while (done < wanted) {
      const piece = this.#scratch.subarray(0, Math.min(SCRATCH, wanted - done));
      const got = this.#fill(f.source!, at + done, piece);
      new Uint8Array(buffer, to + done, got).set(piece.subarray(0, got));
      done += got;
      if (got < piece.length) break;
    }
    return done;
  }
  #fill(source: Source, at: number, into: Uint8Array): number {
    let done = 0;
    while (done < into.length) {
      const got = source.read(at + done, into.subarray(done));
      if (!(got > 0)) break;
      done += got;
    }
    return done;
  }
  // Iterates over an array of (pointer, bytes). each returns how many bytes it moved.
  #vectors(list: number, n: number, total: number, each: (at: number, bytes: number) => number): number {
    let sum = 0;
    try {
      for (let i = 0; i < n; i++) {
        const view = this.#view(), at = view.getUint32(list + 8 * i, true), bytes = view.getUint32(list + 8 * i + 4, true);
        const moved = each(at, bytes);
        sum += moved;
        if (moved < bytes) break;
      }
    } catch (error) {
      this.failure = error;
      return IO;
    }
    this.#view().setUint32(total, sum, true);
    return OK;
  }

  #write(f: Open, at: number, from: number, n: number): number {
    const state = f.state!;
    if (at + n > state.bytes.length) state.bytes = grown(state.bytes, at + n);
    state.bytes.set(this.#bytes().subarray(from, from + n), at);
    return n;
  }

  #stat(at: number, type: number, size: number): number {
    const view = this.#view();
    for (let i = 0; i < 64; i += 8) view.setBigUint64(at + i, 0n, true);
    view.setUint8(at + 16, type);
    view.setBigUint64(at + 24, 1n, true); // links
    view.setBigUint64(at + 32, BigInt(size), true);
    return OK;
  }

  #openPath(path: string, flags: number, to: number): number {
    let found = this.#find(path);
    const create = (flags & CREATE) !== 0 && path.startsWith(STATE_FOLDER + '/') && this.state !== undefined;
    if (found && flags & MUST_CREATE) return EXISTS;
    if (!found && this.#isFolder(path)) return IS_FOLDER;
    if (!found && create) found = { state: { name: path.slice(STATE_FOLDER.length + 1), bytes: new Uint8Array() } };
    if (!found) return MISSING;
    let fd = PREOPENED + 1;
    while (this.#open.has(fd)) fd++;
    this.#open.set(fd, { ...found, at: 0, path });
    this.#view().setUint32(to, fd, true);
    return OK;
  }

  // Calls it with an open file; returns its result, or the error that there is none.
  #with(fd: number, use: (f: Open) => number): number {
    const f = this.#open.get(fd);
    return f ? use(f) : BAD_FD;
  }

  readonly imports: Record<string, (...args: never[]) => number | void> = {
    clock_time_get: (id: number, _precision: bigint, to: number) => {
      const ms = id === 0 ? Date.now() : performance.now();
      this.#view().setBigUint64(to, BigInt(Math.round(ms * 1e6)), true);
      return OK;
    },
    random_get: (to: number, n: number) => {
      this.#bytes().set(crypto.getRandomValues(new Uint8Array(n)), to >>> 0);
      return OK;
    },
    poll_oneoff: (_in: number, _out: number, _n: number, to: number) => { // nothing sleeps here
      this.#view().setUint32(to, 1, true);
      return OK;
    },
    proc_exit: (code: number) => { throw new Error(`the module ended itself (${code})`); },
    fd_prestat_get: (fd: number, to: number) => {
      if (fd !== PREOPENED) return BAD_FD;
      this.#view().setUint32(to, 0, true);
      this.#view().setUint32(to + 4, 1, true);
      return OK;
    },
    fd_prestat_dir_name: (fd: number, to: number, n: number) => {
      if (fd !== PREOPENED || n < 1) return INVALID;
      this.#bytes()[to] = 47; // "/"
      return OK;
    },
    path_open: (_fd: number, _look: number, path: number, n: number, flags: number, _rights: bigint, _inherited: bigint,
      _fdFlags: number, to: number) => this.#openPath(plain(this.#text(path, n)), flags, to),
    path_filestat_get: (_fd: number, _flags: number, path: number, n: number, to: number) => {
      const name = plain(this.#text(path, n)), f = this.#find(name);
      if (f) return this.#stat(to, REGULAR, this.#size(f));
      return this.#isFolder(name) ? this.#stat(to, FOLDER, 0) : MISSING;
    },
    path_create_directory: (_fd: number, path: number, n: number) =>
      this.#isFolder(plain(this.#text(path, n))) ? EXISTS : READ_ONLY,
    fd_filestat_get: (fd: number, to: number) => this.#with(fd, (f) => this.#stat(to, REGULAR, this.#size(f))),
    fd_fdstat_get: (fd: number, to: number) => {
      const file = this.#open.has(fd);
      if (!file && fd !== PREOPENED) return BAD_FD;
      const view = this.#view();
      view.setUint8(to, file ? REGULAR : FOLDER);
      view.setUint16(to + 2, 0, true);
      view.setBigUint64(to + 8, 0xffffffffffffffffn, true); // rights
      view.setBigUint64(to + 16, 0xffffffffffffffffn, true);
      return OK;
    },
    fd_seek: (fd: number, offset: bigint, from: number, to: number) => this.#with(fd, (f) => {
      const at = Number(offset) + (from === 0 ? 0 : from === 1 ? f.at : this.#size(f));
      if (!(at >= 0)) return INVALID;
      f.at = at;
      this.#view().setBigUint64(to, BigInt(at), true);
      return OK;
    }),
    fd_read: (fd: number, list: number, n: number, total: number) => this.#with(fd, (f) =>
      this.#vectors(list, n, total, (at, bytes) => {
        const got = this.#read(f, f.at, at, bytes);
        f.at += got;
        return got;
      })),
    fd_pread: (fd: number, list: number, n: number, offset: bigint, total: number) => this.#with(fd, (f) => {
      let from = Number(offset);
      return this.#vectors(list, n, total, (at, bytes) => {
        const got = this.#read(f, from, at, bytes);
        from += got;
        return got;
      });
    }),
    fd_write: (fd: number, list: number, n: number, total: number) => this.#with(fd, (f) => !f.state ? READ_ONLY :
      this.#vectors(list, n, total, (at, bytes) => {
        f.at += this.#write(f, f.at, at, bytes);
        return bytes;
      })),
    fd_pwrite: (fd: number, list: number, n: number, offset: bigint, total: number) => this.#with(fd, (f) => {
      let to = Number(offset);
      return !f.state ? READ_ONLY : this.#vectors(list, n, total, (at, bytes) => {
        to += this.#write(f, to, at, bytes);
        return bytes;
      });
    }),
    fd_filestat_set_size: (fd: number, size: bigint) => this.#with(fd, (f) => {
      if (!f.state) return READ_ONLY;
      f.state.bytes = grown(f.state.bytes.subarray(0, Number(size)), Number(size));
      return OK;
    }),
    fd_sync: (fd: number) => this.#with(fd, (f) => this.#store(f)),
    fd_close: (fd: number) => this.#with(fd, (f) => {
      this.#open.delete(fd);
      return this.#store(f);
    }),
  };

  #store(f: Open): number {
    if (!f.state) return OK;
    try {
      this.state!.write(f.state.name, f.state.bytes);
      return OK;
    } catch (error) {
      this.failure = error;
      return IO;
    }
  }

  // Everything that a module of this kind imports.
  importsOf(module: WebAssembly.Module): WebAssembly.ModuleImports {
    const all: WebAssembly.ModuleImports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module))
      if (from === 'wasi_snapshot_preview1')
        all[name] = (this.imports[name] as (() => number) | undefined) ?? (() => NO_SYSTEM);
    return all;
  }
}

function grown(bytes: Uint8Array, n: number): Uint8Array {
  const all = new Uint8Array(n);
  all.set(bytes);
  return all;
}

// "./a//b/" and "/a/b" are "a/b".
function plain(path: string): string {
  return path.split('/').filter((part) => part !== '' && part !== '.').join('/');
}
