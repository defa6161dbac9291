// The server of the pages: ranges, headers, and no way out of its folder.
import assert from 'node:assert/strict';
import { mkdtemp, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { createServer, parseRange } from '../serve.mjs';

let folder, server, port;

before(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'tern-serve-'));
  await mkdir(path.join(folder, 'site/sub'), { recursive: true });
  await writeFile(path.join(folder, 'secret.txt'), 'secret');
  await mkdir(path.join(folder, 'site-beside'));
  await writeFile(path.join(folder, 'site-beside/secret.txt'), 'secret');
  await writeFile(path.join(folder, 'site/index.html'), '<!doctype html>home');
  await writeFile(path.join(folder, 'site/sub/index.html'), '<!doctype html>sub');
  await writeFile(path.join(folder, 'site/model.gguf'), '0123456789');
  await writeFile(path.join(folder, 'site/empty.js'), '');
  await writeFile(path.join(folder, 'site/a b%.txt'), 'odd');
  await symlink(path.join(folder, 'secret.txt'), path.join(folder, 'site/link.txt'));
  await symlink(path.join(folder, 'site-beside'), path.join(folder, 'site/beside'));
  server = await createServer({ root: path.join(folder, 'site') });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = server.address().port;
});
after(async () => {
  server.close();
  await rm(folder, { recursive: true });
});

// fetch() tidies paths up before it sends them; this sends what it is given.
function raw(target, method = 'GET', headers = '') {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1');
    let text = '';
    socket.on('data', (data) => (text += data));
    socket.on('end', () => resolve(text));
    socket.on('error', reject);
    socket.write(`${method} ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${headers}\r\n`);
  });
}
const get = (name, headers) => fetch(`http://127.0.0.1:${port}${name}`, { headers, redirect: 'manual' });

// Seen to fail without the comparison of real paths.
test('nothing outside of the folder is served', async () => {
  const ways = [
    '/../secret.txt',
    '/%2e%2e/secret.txt',
    '/sub/../../secret.txt',
    '/..%2fsecret.txt',
    '/%2e%2e%2fsecret.txt',
    '/..%5csecret.txt',
    '/sub/..%5c..%5csecret.txt',
    '/link.txt',
    '/beside/secret.txt',
    '/../site-beside/secret.txt',
    '//../secret.txt',
    '/index.html%00/../../secret.txt',
    '/%',
    '/%ff',
    'secret.txt',
    `${folder}/secret.txt`,
    '*',
  ];
  for (const way of ways) {
    const text = await raw(way);
    assert.match(text, /^HTTP\/1.1 4\d\d /, way);
    assert.doesNotMatch(text, /secret/, way);
  }
});

// Seen to fail with the slashes of the redirect kept as they came.
test('folders lead to their page, and a redirect stays on the site', async () => {
  assert.equal(await (await get('/')).text(), '<!doctype html>home');
  assert.equal(await (await get('/sub/?a=../..')).text(), '<!doctype html>sub');
  assert.equal((await get('/sub')).headers.get('location'), '/sub/');
  assert.match(await raw('//sub'), /\r\nLocation: \/sub\/\r\n/); // not //sub/, another site
  assert.equal((await get('/nothing')).status, 404);
  assert.equal(await (await get('/a%20b%25.txt')).text(), 'odd');
  assert.match(await raw('/', 'POST', 'Content-Length: 0\r\n'), /^HTTP\/1.1 405 /);
});

// Seen to fail with a Content-Length one too small, and with 200 in place of 206.
test('ranges', async () => {
  for (const [range, status, body, content] of [
    ['bytes=0-3', 206, '0123', 'bytes 0-3/10'],
    ['bytes=4-', 206, '456789', 'bytes 4-9/10'],
    ['bytes=-3', 206, '789', 'bytes 7-9/10'],
    ['bytes=-30', 206, '0123456789', 'bytes 0-9/10'],
    ['bytes=8-99', 206, '89', 'bytes 8-9/10'],
    ['bytes=10-', 416, '', 'bytes */10'],
    ['bytes=-0', 416, '', 'bytes */10'],
    ['bytes=3-1', 200, '0123456789', null],
    ['lines=0-3', 200, '0123456789', null],
    ['bytes=0-1,3-4', 200, '0123456789', null],
  ]) {
    const response = await get('/model.gguf', { range });
    assert.deepEqual(
      [response.status, await response.text(), response.headers.get('content-range')],
      [status, body, content],
      range,
    );
  }
  const etag = (await get('/model.gguf')).headers.get('etag');
  assert.equal((await get('/model.gguf', { range: 'bytes=0-3', 'if-range': etag })).status, 206);
  assert.equal((await get('/model.gguf', { range: 'bytes=0-3', 'if-range': '"old"' })).status, 200);
  assert.equal((await get('/model.gguf', { 'if-none-match': etag })).status, 304);
  assert.match(await raw('/model.gguf', 'HEAD'), /\r\nContent-Length: 10\r\n[\s\S]*\r\n\r\n$/);
  assert.equal((await get('/empty.js')).status, 200);
  assert.equal(parseRange('bytes=-5', 0), false);
});

// Seen to fail with the isolation headers sent in spite of isolation: false.
test('headers', async () => {
  const headers = (await get('/')).headers;
  assert.equal(headers.get('cross-origin-opener-policy'), 'same-origin');
  assert.equal(headers.get('cross-origin-embedder-policy'), 'require-corp');
  assert.equal(headers.get('cross-origin-resource-policy'), 'same-origin');
  assert.equal(headers.get('content-type'), 'text/html; charset=utf-8');
  const policy = headers.get('content-security-policy');
  assert.match(policy, /script-src 'self' 'wasm-unsafe-eval';/);
  // Images that were attached are data: addresses; nothing else may be.
  assert.match(policy, /img-src 'self' data:;/);
  assert.doesNotMatch(policy.replace(/img-src [^;]*;/, ''), /'unsafe-inline'|'unsafe-eval'|blob:|data:/);
  assert.equal((await get('/nothing')).headers.get('x-content-type-options'), 'nosniff');

  const open = await createServer({ root: path.join(folder, 'site'), isolation: false, cors: true });
  await new Promise((resolve) => open.listen(0, '127.0.0.1', resolve));
  const other = (await fetch(`http://127.0.0.1:${open.address().port}/`)).headers;
  open.close();
  assert.equal(other.get('cross-origin-embedder-policy'), null);
  assert.equal(other.get('cross-origin-resource-policy'), 'cross-origin');
  assert.equal(other.get('access-control-allow-origin'), '*');
});
