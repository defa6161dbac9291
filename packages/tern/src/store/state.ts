// The few bytes that the engine keeps between visits, such as the GPU driver's limits. They must be stored
// before the next step, which may end the process: with a synchronous handle in a worker, in localStorage
// in a page. If another tab holds the handle, or nothing can be stored, each visit finds them out
// again.
import type { StateStore } from '../engine/types.js';

const NAME = 'tern-state';

interface Handle {
  read(into: Uint8Array, options: { at: number }): number;
  write(bytes: Uint8Array, options: { at: number }): number;
  getSize(): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

export async function openState(): Promise<(StateStore & { close(): void }) | undefined> {
  try {
    const handle = await openHandle();
    if (handle) return store(() => readHandle(handle), text => writeHandle(handle, text), () => handle.close());
    const local = (globalThis as { localStorage?: globalThis.Storage }).localStorage;
    return local && store(() => local.getItem(NAME) ?? '', text => local.setItem(NAME, text), () => undefined);
  } catch {
    return undefined;
  }
}

function store(read: () => string, write: (text: string) => void, close: () => void): StateStore & { close(): void } {
  let all: Record<string, number[]> = {};
  try {
    all = JSON.parse(read()) as Record<string, number[]>;
  } catch {
    // Nothing yet, or the remains of a killed process.
  }
  return {
    read: name => all[name] && Uint8Array.from(all[name]),
    write: (name, bytes) => {
      all[name] = Array.from(bytes);
      write(JSON.stringify(all));
    },
    close,
  };
}

async function openHandle(): Promise<Handle | undefined> {
  const File = (globalThis as { FileSystemFileHandle?: { prototype: object } }).FileSystemFileHandle;
  if (!File || !('createSyncAccessHandle' in File.prototype) || 'document' in globalThis) return undefined;
  const root = await navigator.storage.getDirectory();
  const file = await root.getFileHandle(NAME, { create: true });
  return (file as unknown as { createSyncAccessHandle(): Promise<Handle> }).createSyncAccessHandle();
}

function readHandle(handle: Handle): string {
  const bytes = new Uint8Array(handle.getSize());
  handle.read(bytes, { at: 0 });
  return new TextDecoder().decode(bytes);
}

function writeHandle(handle: Handle, text: string): void {
  const bytes = new TextEncoder().encode(text);
  handle.write(bytes, { at: 0 });
  handle.truncate(bytes.length);
  handle.flush();
}
