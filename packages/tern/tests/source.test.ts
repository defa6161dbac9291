// What a source consists of: addresses, the hub, Files, paths.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, before, beforeEach, test } from 'node:test';
import type { ModelSource } from '../src/api.js';
import { TernError } from '../src/errors.js';
import { choose, hubId, parseHub } from '../src/hub.js';
import { openSource, remoteId, type OpenContext, type SourceOptions } from '../src/source.js';
import { FileServer, model, tensors } from './server.js';

const weights = model(1000);
const sha256 = createHash('sha256').update(weights).digest('hex');
const repo = (files: string[], extra: object = {}) => JSON.stringify({
  sha: 'c0ffee', siblings: files.map(rfilename => ({ rfilename, size: 1000, ...extra })),
});
let server: FileServer;
let folder: string;
const notes: string[] = [];

before(async () => {
  server = await FileServer.start({
    '/api/models/own/gguf/revision/main?blobs=true': '',
    '/api/models/own/gguf/revision/main': repo(['README.md', 'a-Q4_K_M.gguf', 'mmproj-f16.gguf', 'a-i2_s.gguf', 'a.imatrix.gguf'],
      { lfs: { sha256, size: 1000 } }),
    '/own/gguf/resolve/c0ffee/a-i2_s.gguf': weights,
    '/own/gguf/resolve/c0ffee/a-Q4_K_M.gguf': weights,
    '/api/models/own/split/revision/v1': repo(['q/m-00001-of-00002.gguf', 'q/m-00002-of-00002.gguf']),
    '/own/split/resolve/c0ffee/q/m-00001-of-00002.gguf': 'GGUF one',
    '/own/split/resolve/c0ffee/q/m-00002-of-00002.gguf': 'GGUF two',
    '/api/models/own/hf/revision/main': repo(['config.json', 'model.safetensors', 'tokenizer.json', 'pytorch_model.bin',
      'onnx/model.onnx']),
    '/own/hf/resolve/c0ffee/config.json': '{}',
    '/own/hf/resolve/c0ffee/model.safetensors': tensors('weights'),
    '/own/hf/resolve/c0ffee/tokenizer.json': '{}',
    '/dir/config.json': '{}',
    '/dir/tokenizer.json': '{}',
    '/dir/model.safetensors.index.json': JSON.stringify({
      weight_map: { a: 'model-00001-of-00002.safetensors', b: 'model-00002-of-00002.safetensors',
        c: 'model-00001-of-00002.safetensors' } }),
    '/dir/model-00001-of-00002.safetensors': tensors('first'),
    '/dir/model-00002-of-00002.safetensors': tensors('second'),
    '/m-00001-of-00002.gguf': 'GGUF one',
    '/m-00002-of-00002.gguf': 'GGUF two',
    '/api/models/own/portal/revision/main': '<!doctype html>',
    '/any name?x=1': '',
    '/some model': 'GGUF bytes',
  });
  folder = mkdtempSync(join(tmpdir(), 'tern-source-'));
});
after(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});
beforeEach(() => {
  server.reset();
  notes.length = 0;
});

async function open(source: ModelSource, options: SourceOptions = {}, more: Partial<OpenContext> = {}) {
  const { sources, release, ...opened } = await openSource(source, { hub: { baseUrl: server.base }, ...options }, {
    tell: () => undefined, onNote: note => notes.push(note), signal: new AbortController().signal, backoffMs: 1, ...more,
  });
  const texts = Object.fromEntries(sources.map(each => {
    const bytes = new Uint8Array(each.size);
    each.read(0, bytes);
    each.close?.();
    return [each.name, new TextDecoder().decode(bytes)];
  }));
  release();
  return { ...opened, texts };
}
// As browsers' fetch. Seen to fail with `fetch` itself in Wire.
const native = globalThis.fetch;
globalThis.fetch = function (this: unknown, ...request: Parameters<typeof fetch>) {
  if (this !== undefined && this !== globalThis) throw new TypeError('Illegal invocation');
  return native(...request);
};

const rejects = (promise: Promise<unknown>, code: string, words: RegExp) => assert.rejects(promise, (error: TernError) =>
  error.code === code && words.test(error.message) || assert.fail(`${error.code}: ${error.message}`));

test('names on the hub, and addresses of its pages', () => {
  const cases: [string, string][] = [
    ['hf:a/b', 'hf:a/b'], ['hf:a/b@main', 'hf:a/b'], ['hf:a/b/', 'hf:a/b'], ['hf:a/b/c/d.gguf@v1', 'hf:a/b/c/d.gguf@v1'],
    ['hf:a/b@refs/pr/3', 'hf:a/b@refs/pr/3'],
    ['https://huggingface.co/a/b', 'hf:a/b'], ['https://huggingface.co/a/b/tree/v1', 'hf:a/b@v1'],
    ['https://huggingface.co/a/b/blob/main/c/d.gguf', 'hf:a/b/c/d.gguf'],
    // Seen to fail: a plain address like any other, so that the file was stored twice.
    ['https://huggingface.co/a/b/resolve/main/d.gguf', 'hf:a/b/d.gguf'],
    ['https://huggingface.co/a/b/resolve/v1/c/d%20e.gguf?download=true', 'hf:a/b/c/d e.gguf@v1'],
    ['https://hf.co/a/b/resolve/refs%2Fpr%2F3/d.gguf#x', 'hf:a/b/d.gguf@refs/pr/3'], ['https://www.huggingface.co/a/b', 'hf:a/b'],
  ];
  for (const [source, id] of cases) assert.equal(hubId(parseHub(source)!), id);
  const picture = 'https://huggingface.co/a/b/resolve/main/model'; // any address may be that of a GGUF file
  assert.equal(remoteId(picture), picture);
  assert.throws(() => parseHub('hf:onlyname'), { code: 'argument' });
});

test('of several GGUF files the ternary one', async () => {
  const opened = await open('hf:own/gguf', { cache: { folder: join(folder, 'cache') } });
  assert.deepEqual(opened.files, [{ name: 'a-i2_s.gguf', size: 1000 }]); // seen to fail without `types`
  assert.equal(opened.path, 'a-i2_s.gguf');
  assert.equal(opened.id, 'hf:own/gguf');
  assert.equal(opened.storage, 'folder');
  server.reset({ status: [500] });
  await open('hf:own/gguf', { cache: { folder: join(folder, 'cache') } });
  assert.deepEqual(server.requests, []); // neither the hub nor the file
  server.reset();
  await open('hf:own/gguf/a-Q4_K_M.gguf');
  assert.match(notes[0]!, /kept in memory only: in Node a folder is used only with the option cache/);
});

test('a token goes to the hub and with the files', async () => {
  await open('hf:own/gguf', { hub: { baseUrl: server.base, token: 'secret' } });
  assert.deepEqual(server.requests.map(request => request.authorization), ['Bearer secret', 'Bearer secret']);
});

test('split sets, in a folder of the hub and at an address', async () => {
  const hub = await open('hf:own/split/q@v1');
  assert.deepEqual(hub.texts, { 'q/m-00001-of-00002.gguf': 'GGUF one', 'q/m-00002-of-00002.gguf': 'GGUF two' });
  assert.equal(hub.path, 'q/m-00001-of-00002.gguf');
  const url = await open(`${server.base}/m-00001-of-00002.gguf?a=b`);
  assert.deepEqual(Object.keys(url.texts), ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf']);
  assert.ok(server.requests.some(request => request.url === '/m-00002-of-00002.gguf?a=b'));
});

test('a folder with safetensors, on the hub and at an address', async () => {
  const hub = await open('hf:own/hf');
  assert.equal(hub.path, '');
  assert.deepEqual(Object.keys(hub.texts), ['config.json', 'model.safetensors', 'tokenizer.json']);
  const { texts, path } = await open(`${server.base}/dir/`);
  assert.equal(path, '');
  assert.deepEqual(texts['model-00002-of-00002.safetensors'], tensors('second'));
  assert.equal(Object.keys(texts).length, 5);
});

test('any other address is a GGUF file', async () => {
  const { texts } = await open(new URL(`${server.base}/some%20model?x=1`));
  assert.deepEqual(texts, { 'model.gguf': 'GGUF bytes' });
});

test('what cannot be had, in words', async () => {
  await rejects(open('hf:own/none'), 'argument', /hf:own\/none: 127\.0\.0\.1:\d+ has no such repository or revision.*404/);
  await rejects(open('hf:own/gguf/b.gguf'), 'argument', /hf:own\/gguf has no file b\.gguf/);
  await rejects(open('hf:own/hf', { hub: { baseUrl: 'http://127.0.0.1:9' } }), 'network', /127\.0\.0\.1:9 cannot be reached/);
  await rejects(open('hf:own/portal'), 'network', /127\.0\.0\.1:\d+ answers with something that is not JSON/); // seen to fail: 'trap'
  await rejects(open(`${server.base}/no.gguf`), 'network', /the server answers 404/);
  await rejects(open(`${server.base}/empty/`), 'argument', /neither a GGUF file nor model\.safetensors/);
  const one = ['mmproj-x.gguf', 'x.imatrix.gguf', 'x.gguf', 'x-00002-of-00002.gguf'].map(name => ({ name }));
  assert.equal(choose(one, '', 'it').path, 'x.gguf'); // seen to fail without isModel
  assert.throws(() => choose(['x-a.gguf', 'x-b.gguf'].map(name => ({ name })), '', 'it'), /2 GGUF files, name one: x-a/);
  // An adapter's, unless there is the model, too: seen to fail without that, and with the model's files alone.
  const adapter = ['adapter_config.json', 'adapter_model.safetensors', 'tokenizer.json'].map(name => ({ name }));
  assert.deepEqual(choose(adapter, '', 'it').files.map(({ name }) => name), ['adapter_config.json', 'adapter_model.safetensors']);
  const both = [...adapter, { name: 'config.json' }, { name: 'model.safetensors' }];
  assert.deepEqual(choose(both, '', 'it').files.map(({ name }) => name), ['tokenizer.json', 'config.json', 'model.safetensors']);
});

test('bytes, Blobs, Files of a folder', async () => {
  const gguf = new Blob(['GGUF']);
  assert.deepEqual((await open(new TextEncoder().encode('GGUF'))).texts, { 'model.gguf': 'GGUF' });
  assert.deepEqual((await open(new TextEncoder().encode('GGUF').buffer)).texts, { 'model.gguf': 'GGUF' });
  assert.deepEqual((await open(gguf)).texts, { 'model.gguf': 'GGUF' });
  const file = (name: string, inside = '') => Object.assign(new Blob([name]), { name, webkitRelativePath: inside && `m/${inside}` });
  const files = [file('config.json', 'config.json'), file('model.safetensors', 'model.safetensors'), file('x.txt', 'x.txt')];
  const opened = await open(files as unknown as File[]);
  assert.deepEqual(Object.keys(opened.texts), ['config.json', 'model.safetensors']);
  assert.equal(opened.path, '');
  await rejects(open([] as File[]), 'argument', /a model is given as/);
});

test('paths of Node', async () => {
  const model = join(folder, 'model');
  mkdirSync(model);
  for (const name of ['config.json', 'model.safetensors', 'notes.txt']) writeFileSync(join(model, name), name);
  for (const name of ['s-00001-of-00002.gguf', 's-00002-of-00002.gguf']) writeFileSync(join(folder, name), name);
  assert.deepEqual(Object.keys((await open(model)).texts), ['config.json', 'model.safetensors']);
  const set = await open(pathToFileURL(join(folder, 's-00001-of-00002.gguf')));
  assert.deepEqual(Object.keys(set.texts), ['s-00001-of-00002.gguf', 's-00002-of-00002.gguf']);
  assert.equal(set.storage, 'file');
  await rejects(open(join(folder, 'none.gguf')), 'io', /none\.gguf: ENOENT/);
});
