// Models that come over a network which fails, and lie in storage that is damaged or full. Bytes are
// counted at the server.
import { test } from './harness.mjs';
import { webRoots } from './engine.mjs';
import { PackagePage, modelBytes, modelHash, modelPath, nativeText, text } from './package.mjs';

const size = modelBytes.length;
// A resumed or repaired download may fetch again what was on its way, or the damaged piece.
const SLACK = 4 << 20;

async function checkWhole(t, page, result, what) {
  t.equal(result.error, undefined, `${what}: fails`);
  t.equal(result.text, await nativeText(), `${what}: text`);
  if (page) t.equal(await page.call('storedHash'), modelHash, `${what}: SHA-256 of what is stored`);
}

for (const which of ['chromium', 'firefox']) {
  test(`downloads: a connection that is cut is resumed in ${which}`, { seconds: 90 }, async (t) => {
    const page = await PackagePage.open(t, which);
    const { server } = page;
    server.fault(modelPath, { cutAfter: 6_000_000, times: 1 });
    await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'resumed');
    t.check(server.sent(modelPath) < size + SLACK, `${server.sent(modelPath)} bytes were sent`);
    const ranges = server.requests.filter(
      (r) => r.path === modelPath && /^bytes=[1-9]/.test(r.range ?? ''),
    );
    t.check(ranges.length > 0, 'asks for the rest');
  });

  test(`downloads: from the cache, without a server, in ${which}`, { seconds: 90 }, async (t) => {
    const page = await PackagePage.open(t, which);
    const first = await page.call('load', page.modelUrl, { text });
    await checkWhole(t, page, first, 'first');
    t.equal(first.info?.storage, 'opfs', 'where it is kept');
    const sent = page.server.sent(modelPath);
    await page.reopen();
    page.server.fault(modelPath, { status: 503 });
    await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'cached');
    t.equal(page.server.sent(modelPath), sent, 'bytes sent');
  });
}

test(
  'downloads: a tab that is closed in the middle goes on where it was',
  { seconds: 90 },
  async (t) => {
    const page = await PackagePage.open(t, 'chromium');
    const { server } = page;
    server.fault(modelPath, { bytesPerSecond: 4 << 20 });
    const lost = page.call('load', page.modelUrl, { text }).catch(() => {});
    while (server.sent(modelPath) < 6 << 20) await new Promise((done) => setTimeout(done, 20));
    await page.reopen();
    await lost;
    server.fault(modelPath);
    const before = server.sent(modelPath);
    await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'resumed');
    const again = server.sent(modelPath) - before;
    t.check(again < size - 4_000_000, `${again} bytes were sent to the second tab`);
  },
);

test('downloads: a file that changed is not mixed with the old one', { seconds: 90 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const { server } = page;
  const old = { etag: '"old"', flip: 1_000_000, cutAfter: 6_000_000, times: 1 };
  server.fault(modelPath, old, { etag: '"new"' });
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'new file');
});

test('downloads: a server without ranges', { seconds: 90 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const { server } = page;
  const bare = { noRanges: true, etag: '', noLength: true };
  server.fault(modelPath, { ...bare, cutAfter: 6_000_000, times: 1 }, bare);
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'whole');
  t.check(server.sent(modelPath) >= size + 6_000_000, 'from the beginning after the cut');
});

test('downloads: a file that is not there is said at once', { seconds: 30 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const url = `${page.server.url}/models/none.gguf`;
  const { error, seconds } = await page.call('load', url, { text });
  t.equal(error?.code, 'network', 'code');
  t.check(/none\.gguf/.test(error?.message) && /404/.test(error?.message), `"${error?.message}"`);
  t.check(seconds < 25, `${seconds} s`); // not after the many tries of a network that fails
});

// Counted are tries, not seconds. Seen to fail: six tries over 16 seconds without a word, then "Failed to fetch".
for (const which of ['chromium', 'firefox', 'webkit'])
  test(`downloads: why a server gives no answer is said, in ${which}`, { seconds: 30 }, async (t) => {
    const page = await PackagePage.open(t, which, { server: await t.serve({ roots: webRoots, isolated: false }) });
    const other = await t.serve({ roots: webRoots, isolated: false });
    const refused = await page.call('load', other.url + modelPath, { text });
    t.equal(refused.error?.code, 'network', 'code');
    t.check(/answers, but does not let pages of .* read from it \(CORS/.test(refused.error?.message), `"${refused.error?.message}"`);
    t.equal(refused.retries, [], 'it is not tried again');
    await other.close();
    const gone = await page.call('load', other.url + modelPath, { text });
    t.check(/127\.0\.0\.1:\d+ cannot be reached.*after 3 tries$/.test(gone.error?.message), `"${gone.error?.message}"`);
    t.equal(gone.retries?.map((reason) => /cannot be reached/.test(reason)), [true, true], 'each try is told');
    t.equal(await page.call('list'), [], 'nothing is listed');
    if (which === 'webkit') return; // has no storage in these tests
    // Many at once, under two names of a hub, download once and never fail.
    const siblings = [{ rfilename: 'model.gguf', size, lfs: { sha256: modelHash, size } }];
    const files = { '/api/models/o/r/revision/main': JSON.stringify({ sha: 'c0ffee', siblings }), [hubFile]: modelBytes };
    const hub = await t.serve({ roots: { '/': (path) => files[path] }, cors: true });
    const names = ['hf:o/r', 'hf:o/r/model.gguf', `${hub.url}/o/r/resolve/main/model.gguf`];
    t.equal(await page.call('loadTogether', [...names, ...names], { hub: { baseUrl: hub.url } }), [], 'errors');
    t.equal(hub.sent(hubFile), size, 'bytes sent');
    t.equal((await page.call('list')).length, 1, 'stored models');
  });

// A server laid out like Hugging Face, with one file, of which it says the checksum.
const hubFile = '/o/r/resolve/c0ffee/model.gguf';
async function openHub(t, sha256) {
  const siblings = [{ rfilename: 'model.gguf', size, lfs: { sha256, size } }];
  const listing = JSON.stringify({ sha: 'c0ffee', siblings });
  const files = { '/api/models/o/r/revision/main': listing, [hubFile]: modelBytes };
  const hub = await t.serve({ roots: { '/': (path) => files[path] }, cors: true });
  const page = await PackagePage.open(t, 'chromium');
  const load = () => page.call('load', 'hf:o/r', { text, hub: { baseUrl: hub.url } });
  return { hub, page, load };
}

test(
  'downloads: from a hub, a byte that came wrong is noticed by its checksum',
  { seconds: 60 },
  async (t) => {
    const { hub, page, load } = await openHub(t, modelHash);
    hub.fault(hubFile, { flip: 5_000_000, times: 1 });
    const result = await load();
    await checkWhole(t, page, result, 'fetched again');
    t.equal(result.info?.id, 'hf:o/r', 'id');
    t.check(hub.sent(hubFile) > size, `${hub.sent(hubFile)} bytes were sent`);
  },
);

test(
  'downloads: from a hub, a file that is not what its checksum says is refused',
  { seconds: 60 },
  async (t) => {
    const { page, load } = await openHub(t, '0'.repeat(64));
    const { error } = await load();
    t.equal(error?.code, 'network', 'code');
    t.check(/SHA-256/.test(error?.message ?? ''), `"${error?.message}"`);
    const complete = (await page.call('list')).filter((one) => one.complete);
    t.equal(complete, [], 'complete models');
  },
);

test('downloads: a damaged or short cache is noticed and repaired', { seconds: 90 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const { server } = page;
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'first');
  let before = server.sent(modelPath);
  await page.call('damage', Math.floor(size / 2));
  await page.reopen();
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'damaged');
  let again = server.sent(modelPath) - before;
  t.check(again > 0 && again <= SLACK, `${again} bytes repair one`);
  before = server.sent(modelPath);
  await page.call('shorten', size - 100_000);
  await page.reopen();
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'short');
  again = server.sent(modelPath) - before;
  t.check(again > 0 && again <= SLACK, `${again} bytes lengthen a short one`);
});

test('downloads: a load is cancelled at once, and goes on later', { seconds: 60 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const { server } = page;
  server.fault(modelPath, { stallAfter: 6_000_000, times: 1 });
  const stopped = await page.call('load', page.modelUrl, { abortAfter: 2 });
  t.equal(stopped.error?.code, 'aborted', 'cancelled');
  t.check(stopped.afterAbort < 1, `${stopped.afterAbort} s after the signal`);
  t.equal(server.requests.at(-1).ended, true, 'the connection is given up');
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'later');
  t.check(server.sent(modelPath) < size + SLACK, `${server.sent(modelPath)} bytes were sent`);
});

test('downloads: two tabs at once fetch a model once', { seconds: 90 }, async (t) => {
  const one = await PackagePage.open(t, 'chromium');
  const { server } = one;
  const two = new PackagePage(one.browser, server);
  await two.reopen();
  server.fault(modelPath, { bytesPerSecond: 8 << 20 });
  const results = await Promise.all(
    [one, two].map((page) => page.call('load', page.modelUrl, { text })),
  );
  for (const [i, result] of results.entries()) await checkWhole(t, null, result, `tab ${i}`);
  t.equal(await one.call('storedHash'), modelHash, 'SHA-256 of what is stored');
  t.check(server.sent(modelPath) < size + SLACK, `${server.sent(modelPath)} bytes were sent`);
});

test('downloads: no room is said, with how much is missing', { seconds: 60 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const devtools = await page.page.raw.createCDPSession();
  await devtools.send('Storage.overrideQuotaForOrigin', {
    origin: page.server.url,
    quotaSize: 4 << 20,
  });
  const full = await page.call('load', page.modelUrl, { text });
  t.equal(full.error?.code, 'quota', `"${full.error?.message ?? 'no error'}"`);
  t.check(/\d.*MB/.test(full.error?.message ?? ''), `sizes in "${full.error?.message}"`);
  await devtools.send('Storage.overrideQuotaForOrigin', { origin: page.server.url });
  await checkWhole(t, page, await page.call('load', page.modelUrl, { text }), 'with room');
});

test('downloads: models are listed and deleted', { seconds: 60 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  const { server } = page;
  t.equal(await page.call('list'), [], 'at first');
  const { info } = await page.call('load', page.modelUrl, { text });
  const [entry, ...more] = await page.call('list');
  t.equal(more.length, 0, 'more entries');
  t.equal([entry?.id, entry?.url], [info?.id, page.modelUrl], 'which it is');
  t.equal([entry?.size, entry?.complete], [size, true], 'how much of it');
  const { id } = entry ?? {};
  t.check(
    Math.abs(new Date(entry?.lastUsed) - Date.now()) < 3600_000,
    `last used ${entry?.lastUsed}`,
  );
  t.equal(await page.call('has', page.modelUrl), true, 'has');
  const { models, quota } = await page.call('estimate');
  t.check(models >= size && quota > models, `estimate: ${models} of ${quota}`);
  t.equal((await page.call('remove', id)).error, undefined, 'delete');
  t.equal(await page.call('list'), [], 'afterwards');
  const left = (await page.call('storedFiles')).reduce((n, file) => n + file.size, 0);
  t.check(left < 100_000, `${left} bytes stay`);
  await page.call('load', page.modelUrl, { text });
  t.check(server.sent(modelPath) >= 2 * size, 'fetched again');
});

test('downloads: files and bytes are sources, too', { seconds: 60 }, async (t) => {
  const page = await PackagePage.open(t, 'chromium');
  for (const kind of ['file', 'files', 'blob', 'buffer', 'bytes'])
    await checkWhole(t, null, await page.call('loadAs', kind, page.modelUrl, { text }), kind);
  t.equal(await page.call('list'), [], 'nothing is stored');
});

test('downloads: where there is no storage, memory, and it says so', { seconds: 60 }, async (t) => {
  const page = await PackagePage.open(t, 'webkit', { server: await t.serve({ roots: webRoots }) });
  const result = await page.call('load', page.modelUrl, { text });
  await checkWhole(t, null, result, 'in memory');
  t.equal(result.info?.storage, 'memory', 'where it is kept');
  t.check(
    result.info?.notes.some((note) => /stor|OPFS|memory/i.test(note)),
    `notes: ${result.info?.notes}`,
  );
});
