// The test server's ranges and faults, asked from Node: a fault that does not happen would make the
// tests of downloads say nothing.
import { test } from './harness.mjs';

const bytes = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 7) % 251);
const roots = { '/': (path) => (path === '/file.bin' ? bytes : undefined) };

async function read(url, headers = {}) {
  const answer = await fetch(url, { headers });
  const body = new Uint8Array(await answer.arrayBuffer());
  return { status: answer.status, body, headers: answer.headers };
}
const same = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)) === 0;

test('server: ranges and entity tags', {}, async (t) => {
  const server = await t.serve({ roots });
  const url = `${server.url}/file.bin`;
  const whole = await read(url);
  t.check(whole.status === 200 && same(whole.body, bytes), 'the whole file');
  const etag = whole.headers.get('etag');
  const part = await read(url, { Range: 'bytes=1000-70999', 'If-Range': etag });
  t.check(part.status === 206 && same(part.body, bytes.subarray(1000, 71000)), 'a range');
  t.equal(part.headers.get('content-range'), 'bytes 1000-70999/300000', 'Content-Range');
  t.check(same((await read(url, { Range: 'bytes=-5' })).body, bytes.subarray(-5)), 'the end');
  t.equal((await read(url, { Range: 'bytes=300000-' })).status, 416, 'after the end');
  const other = await read(url, { Range: 'bytes=9-', 'If-Range': '"older"' });
  t.check(other.status === 200 && same(other.body, bytes), 'another version comes whole');
  t.equal((await read(`${server.url}/none`)).status, 404, 'a file that is not there');
  t.equal(server.sent('/file.bin'), 300_000 + 70_000 + 5 + 300_000, 'bytes sent');
  t.equal(whole.headers.get('cross-origin-opener-policy'), 'same-origin', 'isolated');
});

test('server: faults on demand', {}, async (t) => {
  const server = await t.serve({ roots });
  const url = `${server.url}/file.bin`;
  server.fault('/file.bin', { cutAfter: 100_000, times: 1 });
  await t.rejects(() => read(url), /terminated|aborted|fetch failed/, 'a cut connection');
  t.equal(server.sent('/file.bin'), 100_000, 'bytes before the cut');
  t.check(same((await read(url)).body, bytes), 'once only');
  server.fault('/file.bin', { flip: 70_000, times: 1 });
  const wrong = (await read(url)).body;
  t.equal(
    wrong.findIndex((b, i) => b !== bytes[i]),
    70_000,
    'a wrong byte',
  );
  server.fault('/file.bin', { noRanges: true, etag: '"x"', times: 1 });
  const all = await read(url, { Range: 'bytes=5-9' });
  t.equal(
    [all.status, all.body.length, all.headers.get('etag')],
    [200, 300_000, '"x"'],
    'no ranges',
  );
  server.fault('/file.bin', { bytesPerSecond: 600_000, times: 1 });
  const began = performance.now();
  await read(url);
  t.check(performance.now() - began > 300, 'slowly');
  server.fault('/file.bin', { stallAfter: 10, times: 1 });
  const stop = AbortSignal.timeout(300);
  await t.rejects(() => fetch(url, { signal: stop }).then((a) => a.text()), /timeout/, 'a stall');
  server.fault('/file.bin', { status: 503, times: 1 });
  t.equal((await read(url)).status, 503, 'a status');
});
