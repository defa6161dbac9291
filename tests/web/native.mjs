// The native engine of the same build, asked through its command line: what browsers are compared
// with.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(fileURLToPath(import.meta.url), '../../..');
export const build = path.resolve(root, process.env.TERN_BUILD ?? 'build');
export const stories = path.join(root, 'models/stories.gguf');

const swiftshader = '/usr/lib/chromium/vk_swiftshader_icd.json';
export const webgpuLibrary =
  process.env.TERN_WEBGPU_LIB ?? path.join(build, 'webgpu/libwebgpu_wrapper.so');

// Standard output of a command of `tern`. webgpu: with the library that `make webgpu-native`
// fetches, on Chromium's SwiftShader.
export function tern(args, { webgpu = false } = {}) {
  const env = { ...process.env, TERN_DEVICE: 'cpu' }; // unless the arguments name a device
  if (webgpu) env.TERN_WEBGPU_LIB = webgpuLibrary;
  if (webgpu && existsSync(swiftshader)) env.VK_DRIVER_FILES ??= swiftshader;
  return new Promise((done, fail) => {
    const options = { cwd: root, env, encoding: 'buffer', maxBuffer: 1 << 30 };
    execFile(path.join(build, 'tern'), args, options, (error, stdout, stderr) => {
      if (error) fail(new Error(`tern ${args.join(' ')}: ${stderr.toString() || error.message}`));
      else done(stdout);
    });
  });
}

// { text, ids, ... } of `tern run --json`, greedy.
export async function greedy(model, prompt, n, options = {}) {
  const device = options.webgpu ? ['--device', 'webgpu'] : ['-t', String(options.threads ?? 1)];
  const args = ['run', '-m', model, '-p', prompt, '-n', String(n), '--temp', '0', '--json'];
  return JSON.parse(
    (await tern([...args, ...device, ...(options.args ?? [])], options)).toString(),
  );
}

// Scores of every next token of `ids`: Float32Array of ids.length rows.
export async function logits(model, ids) {
  const folder = await mkdtemp(path.join(tmpdir(), 'tern-web-'));
  try {
    const [input, output] = [path.join(folder, 'ids'), path.join(folder, 'logits')];
    await writeFile(input, Int32Array.from(ids));
    await tern([
      'logits',
      '-m',
      model,
      '--ids',
      input,
      '-o',
      output,
      '--kv-type',
      'f32',
      '-t',
      '1',
    ]);
    return asArray(Float32Array, await readFile(output));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

// The tensors of a safetensors file that are wanted, as typed arrays by name.
export async function tensors(file, ...names) {
  const bytes = await readFile(file);
  const length = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
  const types = { F32: Float32Array, I32: Int32Array };
  const values = names.map((name) => {
    const {
      dtype,
      data_offsets: [from, to],
    } = header[name];
    return [name, asArray(types[dtype], bytes.subarray(8 + length + from, 8 + length + to))];
  });
  return Object.fromEntries(values);
}

// A copy, since a file's bytes need not be aligned.
function asArray(Type, bytes) {
  return new Type(Uint8Array.from(bytes).buffer);
}
