// Writes and reads a file in the browser's private file system, as models are kept there: the handles for
// that exist in workers only.
// Such a handle and a worker's world, which TypeScript has only in place of the page's.
interface SyncHandle {
  write(from: Uint8Array, at: { at: number }): number;
  read(into: Uint8Array, at: { at: number }): number;
  getSize(): number;
  flush(): void;
  close(): void;
}
declare const self: {
  addEventListener(type: 'message', call: (event: MessageEvent<number>) => void): void;
  postMessage(data: unknown): void;
};

const CHUNK = 4 << 20;
const NAME = 'tern-diagnose.tmp';

async function measure(bytes: number): Promise<{ write: number; read: number; right: boolean }> {
  const root = await navigator.storage.getDirectory();
  const file = await root.getFileHandle(NAME, { create: true });
  const handle = await (
    file as unknown as { createSyncAccessHandle(): Promise<SyncHandle> }
  ).createSyncAccessHandle();
  try {
    const chunk = new Uint8Array(CHUNK);
    for (let i = 0; i < CHUNK; i += 4099) chunk[i] = i;
    const from = performance.now();
    for (let at = 0; at < bytes; at += CHUNK) handle.write(chunk, { at });
    handle.flush();
    const written = performance.now();
    const back = new Uint8Array(CHUNK);
    let right = handle.getSize() === bytes;
    for (let at = 0; at < bytes; at += CHUNK) {
      right &&= handle.read(back, { at }) === CHUNK;
      for (let i = 0; i < CHUNK && right; i += 4099) right = back[i] === chunk[i];
    }
    return {
      write: bytes / ((written - from) / 1000),
      read: bytes / ((performance.now() - written) / 1000),
      right,
    };
  } finally {
    handle.close();
    await root.removeEntry(NAME);
  }
}

self.addEventListener('message', (event: MessageEvent<number>) => {
  measure(event.data).then(
    (result) => self.postMessage(result),
    (error: unknown) => self.postMessage({ error: (error as Error).message }),
  );
});

export {};
