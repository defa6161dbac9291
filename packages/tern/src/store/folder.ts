// A folder of Node's as storage, and Node's files as sources.
import type { Source } from '../engine/types.js';
import { TernError, toTernError } from '../errors.js';
import { builtin, fs, node, path, sleep } from '../platform.js';
import type { LockOptions, Storage, StoredFile } from './storage.js';

const code = (error: unknown): string | undefined => (error as { code?: string }).code;

function failed(name: string, cause: unknown): TernError {
  const full = code(cause) === 'ENOSPC' || code(cause) === 'EDQUOT';
  return new TernError(full ? 'quota' : 'io', `${name}: ${full ? 'the disk is full' : (cause as Error).message}`,
    { cause });
}

export class FdSource implements Source {
  readonly size: number;
  #fd: number | undefined;
  constructor(readonly name: string, file: string) {
    try {
      this.#fd = fs().openSync(file, 'r');
      this.size = fs().fstatSync(this.#fd).size;
    } catch (cause) {
      throw failed(file, cause);
    }
  }
  read(at: number, into: Uint8Array): number {
    let n = 0;
    for (let got = 1; n < into.length && got > 0; n += got)
      got = fs().readSync(this.#fd!, into, n, into.length - n, at + n);
    return n;
  }
  close(): void {
    if (this.#fd !== undefined) fs().closeSync(this.#fd);
    this.#fd = undefined;
  }
}

class FolderFile implements StoredFile {
  #fd: number;
  constructor(private name: string, file: string) {
    let fd: number;
    try {
      fd = fs().openSync(file, 'r+');
    } catch {
      fd = fs().openSync(file, 'w+');
    }
    this.#fd = fd;
  }
  size = (): number => fs().fstatSync(this.#fd).size;
  read = async (at: number, into: Uint8Array): Promise<number> =>
    fs().readSync(this.#fd, into, 0, into.length, at);
  async write(at: number, bytes: Uint8Array): Promise<void> {
    try {
      for (let n = 0; n < bytes.length;)
        n += fs().writeSync(this.#fd, bytes, n, bytes.length - n, at + n);
    } catch (cause) {
      throw failed(this.name, cause);
    }
  }
  truncate = async (size: number): Promise<void> => fs().ftruncateSync(this.#fd, size);
  async flush(end: boolean): Promise<boolean> {
    if (end) fs().fsyncSync(this.#fd);
    return true;
  }
  close = async (): Promise<void> => fs().closeSync(this.#fd);
}

export class FolderStorage implements Storage {
  readonly kind = 'folder';
  constructor(private folder: string) {
    try {
      fs().mkdirSync(folder, { recursive: true });
    } catch (cause) {
      throw failed(folder, cause);
    }
  }
  #path = (name: string): string => path().join(this.folder, name);

  names = async (): Promise<string[]> => fs().readdirSync(this.folder);
  open = async (name: string): Promise<StoredFile> => new FolderFile(name, this.#path(name));
  source = async (name: string, as: string): Promise<Source> => new FdSource(as, this.#path(name));
  estimate = async (): Promise<undefined> => undefined;
  remove = async (name: string): Promise<void> => fs().rmSync(this.#path(name), { force: true });

  async size(name: string): Promise<number> {
    try {
      return fs().statSync(this.#path(name)).size;
    } catch {
      return 0;
    }
  }
  async readText(name: string): Promise<string | undefined> {
    try {
      return fs().readFileSync(this.#path(name), 'utf8');
    } catch {
      return undefined;
    }
  }
  async writeText(name: string, text: string): Promise<void> {
    const other = this.#path(`${name}.${node().pid}~`);
    try {
      fs().writeFileSync(other, text);
      fs().renameSync(other, this.#path(name));
    } catch (cause) {
      throw failed(name, cause);
    }
  }

  // A file with the id of the process that holds it; the lock of a process that has ended is taken over.
  // Shared locks hold nothing: here a deleted file stays readable for those who have it open.
  async lock(name: string, options: LockOptions): Promise<(() => void) | undefined> {
    if (options.shared) return () => undefined;
    const file = this.#path(`${name.replace(/[^\w-]/g, '-')}.lock`);
    for (let waits = 0; ; waits++) {
      if (take(file)) return () => fs().rmSync(file, { force: true });
      if (options.ifFree) return undefined;
      if (waits === 0) options.onWait?.();
      await sleep(100, options.signal);
      if (options.signal?.aborted) throw toTernError(options.signal.reason);
    }
  }
}

function take(file: string): boolean {
  try {
    fs().writeFileSync(file, String(node().pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (code(error) !== 'EEXIST') throw failed(file, error);
  }
  try {
    node().kill(Number(fs().readFileSync(file, 'utf8')), 0);
  } catch (error) {
    if (code(error) === 'ESRCH') fs().rmSync(file, { force: true });
  }
  return false;
}

export function userCacheFolder(): string {
  const { env, platform } = node();
  const home = builtin<{ homedir(): string }>('node:os').homedir();
  const { join } = path();
  const base = platform === 'win32' ? env.LOCALAPPDATA || join(home, 'AppData', 'Local')
    : platform === 'darwin' ? join(home, 'Library', 'Caches')
      : env.XDG_CACHE_HOME || join(home, '.cache');
  return join(base, 'tern', 'models');
}
