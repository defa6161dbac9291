// A model that runs on WebGPU is never in the page's memory: neither while it is downloaded, nor while
// its weights go to the GPU, nor afterwards.
import { execFileSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import { test } from './harness.mjs';
import { watchMemory } from './memory.mjs';
import { build } from './native.mjs';
import { PackagePage } from './package.mjs';

const MB = 1e6;

function model(shape) {
  const file = path.join(build, `${shape}.gguf`);
  if (!existsSync(file)) execFileSync(path.join(build, 'make_tiny_model'), [file, shape]);
  return { url: `/build/${shape}.gguf`, size: statSync(file).size };
}

// Downloads the model into storage, opens it on WebGPU and writes a token; then opens it from storage. A
// token waits for every pipeline, which SwiftShader compiles for half a minute: one is enough.
async function watch(t, shape, limit, seconds) {
  const { url, size } = model(shape);
  t.check(size > 1.2 * limit, `the file (${size / MB} MB) is greater than the limit`);
  const page = await PackagePage.open(t, 'chromium', { webgpu: true, own: true });
  await page.page.raw.evaluate(() => import('/tests/package.js'));
  const token = { prompt: 'a', maxTokens: 1, ignoreEnd: true };
  for (const [from, text] of Object.entries({ 'the network': token, storage: undefined })) {
    const { result, most, now } = await watchMemory(page.browser, () =>
      page.call('load', page.server.url + url, {
        device: 'webgpu',
        context: 256,
        text,
        keep: true,
      }),
    );
    t.equal(result.error, undefined, `from ${from}`);
    if (text) t.equal(result.ids?.length, 1, 'tokens written');
    t.check(/^webgpu/.test(result.info?.device), `runs on ${result.info?.device}`);
    const { weights } = result.info?.deviceMemory ?? {};
    t.check(weights > size / 2, `${weights / MB} MB of weights on the device`);
    const said = `${shape} from ${from}: ${most / MB} MB at most, ${now / MB} MB afterwards`;
    t.check(most < limit, `${said}, limit ${limit / MB}`);
    if (process.env.TERN_TEST_VERBOSE) console.log(`memory: ${said}`);
    await page.call('close');
    await page.reopen();
    await page.page.raw.evaluate(() => import('/tests/package.js'));
  }
}

// The browser's own code, the module, and the pieces of 4 MB that were not collected yet need as much for
// a small model as for a large one.
test('memory: a 270 MB model on WebGPU', { seconds: 500 }, (t) => watch(t, 'mid', 220 * MB));
test('memory: a 1.2 GB model on WebGPU', { seconds: 900, long: true }, (t) =>
  watch(t, '2b', 300 * MB),
);
