// What a worker of this browser can do: what the tests of the engine build on.
const simd = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0];
const hasSimd = WebAssembly.validate(new Uint8Array([...simd, 65, 0, 253, 15, 253, 98, 11]));
const hasRelaxed = WebAssembly.validate(
  new Uint8Array([
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253,
    15, 65, 2, 253, 15, 253, 128, 2, 11,
  ]),
);

async function opfs() {
  try {
    const folder = await navigator.storage.getDirectory();
    const file = await folder.getFileHandle('probe', { create: true });
    const handle = await file.createSyncAccessHandle();
    handle.write(new Uint8Array([1, 2, 3]), { at: 0 });
    handle.flush();
    const size = handle.getSize();
    handle.close();
    await folder.removeEntry('probe');
    return size === 3 ? 'sync' : `size ${size}`;
  } catch (e) {
    return String(e);
  }
}

async function adapter() {
  if (!navigator.gpu) return 'no navigator.gpu';
  const found = await navigator.gpu.requestAdapter();
  return found ? `${found.info.vendor} ${found.info.architecture}` : 'no adapter';
}

self.onmessage = async () => {
  const report = {
    simd: hasSimd,
    relaxed: hasRelaxed,
    isolated: self.crossOriginIsolated,
    shared: typeof SharedArrayBuffer !== 'undefined',
    jspi: typeof WebAssembly.Suspending === 'function',
    opfs: await opfs(),
    adapter: await adapter().catch(String),
  };
  self.postMessage(report);
};
