// The origin private file system. In a worker it uses synchronous handles: reads in the middle of the
// engine's work, writes in place. A page has neither: it uses streams, and models in memory.
import type { Source } from '../engine/types.js';
import { TernError, toTernError } from '../errors.js';
import { retryStalled, sleep } from '../platform.js';
import { BytesSource, type LockOptions, type Storage, type StoredFile } from './storage.js';

const FOLDER = 'tern';

// The parts of the web's types that TypeScript's library for pages lacks.
interface SyncHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}
interface FileHandle extends FileSystemFileHandle {
  createSyncAccessHandle?(options?: { mode: string }): Promise<SyncHandle>;
}
interface Folder extends FileSystemDirectoryHandle {
  keys(): AsyncIterableIterator<string>;
}
declare const FileReaderSync: (new () => { readAsArrayBuffer(blob: Blob): ArrayBuffer }) | undefined;

export const canReadBlobs = (): boolean => typeof FileReaderSync !== 'undefined';

// A File or Blob in a worker: it is not loaded into memory.
export class BlobSource implements Source {
  readonly size: number;
  #reader = new FileReaderSync!();
  constructor(readonly name: string, private blob: Blob) {
    this.size = blob.size;
  }
  read(at: number, into: Uint8Array): number {
    try {
      const bytes = new Uint8Array(this.#reader.readAsArrayBuffer(this.blob.slice(at, at + into.length)));
      into.set(bytes);
      return bytes.length;
    } catch (cause) {
      throw new TernError('io', `${this.name}: cannot be read; did it change since it was chosen?`, { cause });
    }
  }
}

export async function blobSource(name: string, blob: Blob, onRead?: (bytes: number) => void): Promise<Source> {
  if (canReadBlobs()) return new BlobSource(name, blob);
  const bytes = new Uint8Array(blob.size);
  for (let at = 0, end = 0; at < blob.size; at = end) {
    end = Math.min(at + (16 << 20), blob.size);
    bytes.set(new Uint8Array(await blob.slice(at, end).arrayBuffer()), at);
    onRead?.(end - at);
  }
  return new BytesSource(name, bytes);
}

class SyncFile implements StoredFile {
  constructor(private name: string, private handle: SyncHandle) {}
  size = (): number => this.handle.getSize();
  read = async (at: number, into: Uint8Array): Promise<number> => this.handle.read(into, { at });
  async write(at: number, bytes: Uint8Array): Promise<void> {
    const n = this.handle.write(bytes, { at });
    if (n < bytes.length) throw new TernError('quota', `${this.name}: the disk is full`);
  }
  truncate = async (size: number): Promise<void> => this.handle.truncate(size);
  async flush(end: boolean): Promise<boolean> {
    if (end) this.handle.flush();
    return true;
  }
  close = async (): Promise<void> => this.handle.close();
}

// A writable stream's bytes are in the file only once it is closed, and opening it again copies the
// file; so it is closed whenever half as much as before has been added, which copies each byte twice
// at most and loses a third at most.
class StreamFile implements StoredFile {
  #stream: FileSystemWritableFileStream | undefined;
  #pending = 0;
  constructor(private handle: FileSystemFileHandle, private bytes: number) {}

  size = (): number => this.bytes;
  async read(at: number, into: Uint8Array<ArrayBuffer>): Promise<number> {
    await this.flush(true);
    const part = (await this.handle.getFile()).slice(at, at + into.length);
    into.set(new Uint8Array(await part.arrayBuffer()));
    return part.size;
  }
  async write(at: number, data: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#stream ??= await this.handle.createWritable({ keepExistingData: true });
    await this.#stream.write({ type: 'write', position: at, data });
    this.bytes = Math.max(this.bytes, at + data.length);
    this.#pending += data.length;
  }
  async truncate(size: number): Promise<void> {
    this.#stream ??= await this.handle.createWritable({ keepExistingData: true });
    await this.#stream.truncate(size);
    this.bytes = Math.min(this.bytes, size);
  }
  async flush(end: boolean): Promise<boolean> {
    if (!end && this.#pending < Math.max(16 << 20, (this.bytes - this.#pending) / 2)) return false;
    const stream = this.#stream;
    this.#stream = undefined;
    this.#pending = 0;
    await stream?.close();
    return true;
  }
  async close(): Promise<void> {
    await this.flush(true);
  }
}

class HandleSource implements Source {
  readonly size: number;
  constructor(readonly name: string, private handle: SyncHandle) {
    this.size = handle.getSize();
  }
  read = (at: number, into: Uint8Array): number => this.handle.read(into, { at });
  close = (): void => this.handle.close();
}

class Opfs implements Storage {
  readonly kind = 'opfs';
  constructor(private folder: Folder, private sync: boolean) {}

  async names(): Promise<string[]> {
    const names: string[] = [];
    for await (const name of this.folder.keys()) names.push(name);
    return names;
  }

  async #find(name: string, create = false): Promise<FileHandle | undefined> {
    try {
      return await retryStalled(() => this.folder.getFileHandle(name, { create }));
    } catch (error) {
      if ((error as Error).name === 'NotFoundError') return undefined;
      throw toTernError(error);
    }
  }

  async open(name: string): Promise<StoredFile> {
    const handle = (await this.#find(name, true))!;
    if (!this.sync) return new StreamFile(handle, (await handle.getFile()).size);
    try {
      return new SyncFile(name, await handle.createSyncAccessHandle!());
    } catch (cause) {
      const { code, message } = toTernError(cause);
      throw new TernError(code, code === 'busy'
        ? 'another tab uses the stored model, which would have to be written; close it there first'
        : message, { cause });
    }
  }

  async #file(name: string): Promise<File | undefined> {
    const handle = await this.#find(name);
    return handle && retryStalled(() => handle.getFile());
  }

  async size(name: string): Promise<number> {
    return (await this.#file(name))?.size ?? 0;
  }

  // Several tabs read one file at the same time: where handles are exclusive (all but Chromium), all
  // but the first one read it as a Blob.
  async source(name: string, as: string, onRead?: (bytes: number) => void): Promise<Source> {
    const handle = await this.#find(name);
    if (!handle) throw new TernError('io', `${as}: the stored file is gone; was the site's data deleted?`);
    if (this.sync) {
      try {
        return new HandleSource(as, await inTime(handle.createSyncAccessHandle!({ mode: 'read-only' })));
      } catch {
        // Taken.
      }
    }
    return blobSource(as, await retryStalled(() => handle.getFile()), onRead);
  }

  async readText(name: string): Promise<string | undefined> {
    for (let tries = 0; ; tries++) {
      try {
        const file = await this.#file(name);
        const text = file && await retryStalled(() => file.text());
        return text?.split('\n', 1)[0];
      } catch (error) { // replaced while it was read
        if ((error as Error).name !== 'NotReadableError' || tries === 5) throw error;
        await sleep(10);
      }
    }
  }

  // A stream replaces the file in one step. Without streams the new text is one line, written over the
  // old one, and what is left of that is cut off afterwards: a reader takes the first line.
  async writeText(name: string, text: string): Promise<void> {
    const handle = (await this.#find(name, true))!;
    if (typeof handle.createWritable === 'function') {
      const stream = await handle.createWritable();
      await stream.write(`${text}\n`);
      await stream.close();
      return;
    }
    const access = await handle.createSyncAccessHandle!();
    const bytes = new TextEncoder().encode(`${text}\n`);
    const n = access.write(bytes, { at: 0 });
    access.truncate(n);
    access.close();
    if (n < bytes.length) throw new TernError('quota', `${name}: the disk is full`);
  }

  async remove(name: string): Promise<void> {
    try {
      await this.folder.removeEntry(name);
    } catch (cause) {
      if ((cause as Error).name === 'NotFoundError') return;
      throw new TernError('busy', 'the model is in use, in this page or in another tab; close it first', { cause });
    }
  }

  async estimate(): Promise<{ usage: number; quota: number } | undefined> {
    const { usage, quota } = (await navigator.storage.estimate?.()) ?? {};
    return quota === undefined ? undefined : { usage: usage ?? 0, quota };
  }

  lock = webLock;
}

// A handle that arrives too late is closed.
async function inTime(opening: Promise<SyncHandle>): Promise<SyncHandle> {
  let late = false;
  const limit = new Promise<never>((_, reject) => setTimeout(() => {
    late = true;
    reject(new Error('late'));
  }, 2000));
  void opening.then(handle => late && handle.close(), () => undefined);
  return Promise.race([opening, limit]);
}

export function webLock(name: string, options: LockOptions): Promise<(() => void) | undefined> {
  const locks = navigator.locks as LockManager | undefined;
  if (!locks) return Promise.resolve(() => undefined);
  const mode: LockMode = options.shared ? 'shared' : 'exclusive';
  return new Promise((resolve, reject) => {
    const hold = () => new Promise<void>(release => resolve(release));
    void locks.request(name, { mode, ifAvailable: true }, lock => {
      if (lock) return hold();
      if (options.ifFree) return resolve(undefined);
      options.onWait?.();
      const { signal } = options;
      void locks.request(name, signal ? { mode, signal } : { mode }, hold).catch(e => reject(toTernError(e)));
      return undefined;
    }).catch(e => reject(toTernError(e)));
  });
}

// The storage, or a sentence on why there is none.
export async function openOpfs(): Promise<Storage | string> {
  const FileHandle = (globalThis as { FileSystemFileHandle?: { prototype: object } }).FileSystemFileHandle;
  const storage = (globalThis.navigator as Navigator | undefined)?.storage;
  if (!storage?.getDirectory || !FileHandle) return 'this browser has no storage for large files (OPFS)';
  const sync = 'createSyncAccessHandle' in FileHandle.prototype && canReadBlobs();
  if (!sync && !('createWritable' in FileHandle.prototype))
    return 'outside of a worker this browser cannot write large files';
  try {
    const root = await retryStalled(() => storage.getDirectory());
    return new Opfs(await retryStalled(() => root.getDirectoryHandle(FOLDER, { create: true })) as Folder, sync);
  } catch (error) {
    return `the browser refuses to store files (${(error as Error).message || (error as Error).name}); `
      + 'is this a private window?';
  }
}
