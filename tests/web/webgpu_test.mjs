// The browser's WebGPU on SwiftShader against native WebGPU on the same SwiftShader; no WebGPU; a
// device that is lost. Few tokens: the first run waits many seconds for its pipelines.
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { enginePage, storiesFile } from './engine.mjs';
import { test } from './harness.mjs';
import { greedy, stories, webgpuLibrary } from './native.mjs';

const prompt = 'Once upon a time';
const gpu = { webgpu: true };

test('webgpu: the text of native WebGPU on the same adapter', { seconds: 600 }, async (t) => {
  if (!existsSync(webgpuLibrary)) t.skip('no native WebGPU library (`make webgpu-native`)');
  const { ask } = await enginePage(t, 'chromium', gpu);
  const texts = [{ prompt, maxTokens: 24 }];
  const { info, results } = await ask({ job: 'greedy', device: 'webgpu', ...storiesFile, texts });
  const want = await greedy(stories, prompt, 24, gpu);
  t.check(/^webgpu/.test(info.device), `runs on ${info.device}`);
  t.check(/^webgpu/.test(want.device), `native runs on ${want.device}`);
  t.equal(results[0].ids, want.ids, 'tokens');
  t.equal(results[0].text, want.text, 'text');
  t.equal(results[0].notice, null, 'notice');
});

test(
  'webgpu: where there is none, WebAssembly writes, and says why',
  { seconds: 60 },
  async (t) => {
    const { ask } = await enginePage(t, 'chromium');
    const texts = [{ prompt, maxTokens: 40 }];
    const { info, results } = await ask({ job: 'greedy', device: 'auto', ...storiesFile, texts });
    t.check(/^cpu/.test(info.device), `runs on ${info.device}`);
    t.check(/WebGPU/.test(info.deviceReason ?? ''), `reason: ${info.deviceReason}`);
    t.equal(results[0].ids, (await greedy(stories, prompt, 40)).ids, 'tokens');
    await t.rejects(
      () => ask({ job: 'greedy', device: 'webgpu', ...storiesFile, texts }),
      /WebGPU/,
      'webgpu asked for',
    );
  },
);

// What may happen to a device in the middle of an answer.
const losses = {
  // As by a driver's crash: the browser may give another device, or none any more.
  async crashed(browser, page) {
    while (!page.log.some((line) => line.includes('wrote'))) await sleep(20);
    const devtools = await browser.raw.target().createCDPSession();
    await devtools.send('Browser.crashGpuProcess').catch(() => {}); // no answer comes from it
  },
  async destroyed() {}, // by the worker, after five pieces
};
for (const [how, lose] of Object.entries(losses))
  test(
    `webgpu: after a device that is ${how} the text goes on`,
    { seconds: 600, long: how === 'crashed' },
    async (t) => {
      const { page, ask } = await enginePage(t, 'chromium', gpu);
      const when = how === 'destroyed' ? 'loseAfter' : 'tellAfter';
      const texts = [{ prompt, maxTokens: 40, [when]: 5 }];
      const asking = ask({ job: 'greedy', device: 'webgpu', ...storiesFile, texts });
      await Promise.race([asking, lose(page.browser, page)]);
      const { info, results } = await asking;
      t.equal(results[0].text, (await greedy(stories, prompt, 40)).text, 'text');
      t.check(/lost/.test(results[0].notice ?? ''), `notice: ${results[0].notice}`);
      t.check(/after a loss/.test(info.device), `goes on with ${info.device}`);
    },
  );

test('webgpu: the kernels in the browser', { seconds: 600, long: true }, async (t) => {
  const { ask } = await enginePage(t, 'chromium', gpu);
  const report = await ask({ job: 'check', device: 'webgpu' });
  t.check(report.kernels.length > 10, `${report.kernels.length} checks`);
  for (const { name, ok, detail } of report.kernels) t.check(ok, `${name}: ${detail}`);
});
