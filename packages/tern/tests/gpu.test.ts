// The kernels' texts: loaded when there is a GPU, and put in the place of their names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gpu, type Shaders } from '../src/engine/gpu.js';
import { TernError } from '../src/engine/error.js';

const shaders: Shaders = { prelude: 'fn a() {}\n', rows: 'fn rows() {\n}\n' };
const codes: string[] = [];
const device = { lost: new Promise(() => undefined), createShaderModule: ({ code }: { code: string }) => codes.push(code), destroy: () => undefined };
const adapter = { features: new Set(), limits: {}, info: {}, requestDevice: async () => device };
const memory = new WebAssembly.Memory({ initial: 1 });
const gpuWith = (found: unknown, load: () => Promise<Shaders>): Gpu =>
  new Gpu(() => memory, { requestAdapter: async () => found } as unknown as GPU, load);

// Seen to fail: with texts loaded before there is an adapter; with lines that keep their names.
test('texts of kernels are loaded once, when there is a GPU', async () => {
  let loads = 0;
  const load = async () => {
    loads++;
    return shaders;
  };
  assert.equal(await gpuWith(null, load).prepare(), 'WebGPU found no GPU here');
  assert.equal(loads, 0);
  const gpu = gpuWith(adapter, load);
  assert.equal(await gpu.prepare(), null);
  assert.equal(await gpu.prepare(), null);
  const { imports } = gpu as unknown as { imports: Record<string, (...args: number[]) => number> };
  const code = 'enable f16;\n#prelude\n#rows\n';
  new Uint8Array(memory.buffer).set(new TextEncoder().encode(code));
  imports['module']!(imports['device']!(imports['take_adapter']!()), 0, code.length);
  assert.deepEqual(codes, ['enable f16;\nfn a() {}\nfn rows() {\n}\n']);
  assert.equal(loads, 1);
});

test('without the texts there is no GPU, and a sentence says why', async () => {
  const gpu = gpuWith(adapter, async () => { throw new TernError('network', 'https://a/tern-shaders.json: 404 Not Found'); });
  assert.equal(await gpu.prepare(), 'https://a/tern-shaders.json: 404 Not Found');
});
