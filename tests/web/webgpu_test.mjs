// The browser's WebGPU on SwiftShader against native WebGPU on the same SwiftShader; no WebGPU; a
// device that is lost. Few tokens: the first run waits many seconds for its pipelines.
import { existsSync } from 'node:fs';
import { enginePage, storiesFile } from './engine.mjs';
import { test } from './harness.mjs';
import { greedy, stories, webgpuLibrary } from './native.mjs';

const prompt = 'Once upon a time';
const gpu = { webgpu: true };
const needNative = (t) => {
  if (!existsSync(webgpuLibrary))
    t.skip('no native WebGPU library: `make webgpu-native` fetches one');
};

test('webgpu: the text of native WebGPU on the same adapter', { seconds: 300 }, async (t) => {
  needNative(t);
  const { ask } = await enginePage(t, 'chromium', gpu);
  const texts = [
    { prompt, maxTokens: 24 },
    { prompt: 'A dog', maxTokens: 8 },
  ];
  const ofNative = ({ prompt, maxTokens }) => greedy(stories, prompt, maxTokens, gpu);
  const [native, { info, results }] = await Promise.all([
    Promise.all(texts.map(ofNative)),
    ask({ job: 'greedy', device: 'webgpu', ...storiesFile, texts }),
  ]);
  t.check(/^webgpu/.test(info.device), `runs on ${info.device}`);
  native.forEach((want, i) => {
    t.check(/^webgpu/.test(want.device), `native runs on ${want.device}`);
    t.equal(results[i].ids, want.ids, `tokens of text ${i}`);
    t.equal(results[i].text, want.text, `text ${i}`);
    t.equal(results[i].notice, null, `notice of text ${i}`);
  });
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

test(
  'webgpu: a device that is lost is replaced, and the text goes on',
  { seconds: 300 },
  async (t) => {
    const { ask } = await enginePage(t, 'chromium', gpu);
    const texts = [{ prompt, maxTokens: 24, loseAfter: 5 }];
    const {
      info,
      results: [got],
    } = await ask({ job: 'greedy', device: 'webgpu', ...storiesFile, texts });
    const want = await greedy(stories, prompt, 24);
    t.equal(got.text, want.text, 'text');
    t.check(/lost/.test(got.notice ?? ''), `notice: ${got.notice}`);
    t.check(/after a loss/.test(info.device), `goes on with ${info.device}`);
  },
);

test('webgpu: the kernels in the browser', { seconds: 600, long: true }, async (t) => {
  const { ask } = await enginePage(t, 'chromium', gpu);
  const report = await ask({ job: 'check', device: 'webgpu' });
  t.check(report.kernels.length > 10, `${report.kernels.length} checks`);
  for (const { name, ok, detail } of report.kernels) t.check(ok, `${name}: ${detail}`);
});
