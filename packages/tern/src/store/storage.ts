// A flat folder of files that outlive the page, and a substitute where there is none. The
// store uses only this interface; opfs.ts and folder.ts implement it.
import type { Source } from '../engine/types.js';
import { TernError } from '../errors.js';

export interface StoredFile {
  size(): number; // bytes written
  read(at: number, into: Uint8Array<ArrayBuffer>): Promise<number>;
  write(at: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>; // at most at the end of what is written
  truncate(size: number): Promise<void>;
  reserve?(size: number): void; // that many bytes will be written
  // Returns whether what was written now outlives the page. Without `end` it may be postponed until worthwhile.
  flush(end: boolean): Promise<boolean>;
  close(): Promise<void>;
}

export interface LockOptions {
  shared?: boolean;
  ifFree?: boolean; // undefined instead of waiting
  signal?: AbortSignal | undefined;
  onWait?: () => void; // another holder has it
}

export interface Storage {
  readonly kind: 'opfs' | 'folder' | 'memory';
  names(): Promise<string[]>;
  open(name: string): Promise<StoredFile>; // for writing; created if needed. 'busy': in use elsewhere
  size(name: string): Promise<number>; // 0: there is none
  source(name: string, as: string, onRead?: (bytes: number) => void): Promise<Source>;
  // Small files. A text is replaced as a whole or not at all.
  readText(name: string): Promise<string | undefined>;
  writeText(name: string, text: string): Promise<void>;
  remove(name: string): Promise<void>;
  estimate(): Promise<{ usage: number; quota: number } | undefined>;
  // A lock among all users of this storage; returns a function that releases it.
  lock(name: string, options: LockOptions): Promise<(() => void) | undefined>;
}

export class BytesSource implements Source {
  constructor(readonly name: string, private bytes: Uint8Array | undefined) {}
  get size(): number {
    return this.bytes?.length ?? 0;
  }
  read(at: number, into: Uint8Array): number {
    const part = this.bytes!.subarray(at, at + into.length);
    into.set(part);
    return part.length;
  }
  close(): void {
    this.bytes = undefined;
  }
}

// In memory, for one page and one load: for sites without storage, or if none is wanted.
export class MemoryStorage implements Storage {
  readonly kind = 'memory';
  #files = new Map<string, MemoryFile>();
  #texts = new Map<string, string>();

  names = async (): Promise<string[]> => [...this.#files.keys(), ...this.#texts.keys()];
  size = async (name: string): Promise<number> => this.#files.get(name)?.size() ?? 0;
  readText = async (name: string): Promise<string | undefined> => this.#texts.get(name);
  estimate = async (): Promise<undefined> => undefined;
  lock = async (): Promise<() => void> => () => undefined;

  async open(name: string): Promise<StoredFile> {
    const file = this.#files.get(name) ?? new MemoryFile();
    this.#files.set(name, file);
    return file;
  }
  async source(name: string, as: string): Promise<Source> {
    return new BytesSource(as, this.#files.get(name)!.bytes());
  }
  async writeText(name: string, text: string): Promise<void> {
    this.#texts.set(name, text);
  }
  async remove(name: string): Promise<void> {
    this.#files.delete(name);
    this.#texts.delete(name);
  }
}

class MemoryFile implements StoredFile {
  #bytes = new Uint8Array(0);
  #size = 0;

  size(): number {
    return this.#size;
  }
  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#size);
  }
  async read(at: number, into: Uint8Array): Promise<number> {
    const part = this.bytes().subarray(at, at + into.length);
    into.set(part);
    return part.length;
  }
  async write(at: number, bytes: Uint8Array): Promise<void> {
    const end = at + bytes.length;
    if (end > this.#bytes.length) this.reserve(Math.max(end, this.#bytes.length * 1.5));
    this.#bytes.set(bytes, at);
    this.#size = Math.max(this.#size, end);
  }
  reserve(size: number): void {
    try {
      const more = new Uint8Array(Math.ceil(size));
      more.set(this.bytes());
      this.#bytes = more;
    } catch (cause) {
      throw new TernError('memory', `no memory for ${Math.ceil(size)} bytes of a model`, { cause });
    }
  }
  async truncate(size: number): Promise<void> {
    this.#size = Math.min(this.#size, size);
  }
  flush = async (): Promise<boolean> => true;
  async close(): Promise<void> {}
}
