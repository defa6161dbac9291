// Greedy text of the carried model, in every browser and module, against the native engine's of the
// same build: the same bits, so the same tokens to the last.
import { builds, enginePage, storiesFile } from './engine.mjs';
import { test } from './harness.mjs';
import { greedy, stories } from './native.mjs';

const prompts = [
  { prompt: 'Once upon a time', maxTokens: 200 },
  { prompt: 'Er sagte „Grüß Gott“ — 你好 🐻 and', maxTokens: 64 },
  { prompt: 'The fox and the bear walked to the river. '.repeat(12), maxTokens: 100 },
];

let cached;
async function nativeTexts() {
  cached ??= Promise.all(
    prompts.map(({ prompt, maxTokens }) =>
      greedy(stories, prompt, maxTokens, { args: ['--ignore-eos'] }),
    ),
  );
  return cached;
}

const texts = prompts.map((one) => ({ ...one, ignoreEnd: true }));
async function compare(t, ask, question) {
  const [native, { engine, info, results }] = await Promise.all([
    nativeTexts(),
    ask({ job: 'greedy', device: 'wasm', ...storiesFile, texts, ...question }),
  ]);
  native.forEach((want, i) => {
    t.equal(results[i].ids, want.ids, `tokens of text ${i}`);
    t.equal(results[i].text, want.text, `text ${i}`);
    t.equal(results[i].nPrompt, want.prompt_tokens, `prompt tokens of text ${i}`);
  });
  return { engine, info };
}

for (const [which, names] of Object.entries(builds))
  for (const build of names)
    test(
      `text: ${build} in ${which} writes what the native engine writes`,
      { seconds: 120 },
      async (t) => {
        const { ask } = await enginePage(t, which);
        const { engine } = await compare(t, ask, { build, threads: 2 });
        t.equal(engine, { build, threads: build === 'threads' ? 2 : 1 }, 'engine');
      },
    );

test(
  'text: a page that is not isolated gets one thread, and the same text',
  { seconds: 60 },
  async (t) => {
    const { ask } = await enginePage(t, 'chromium', { isolated: false });
    const { engine } = await compare(t, ask, {});
    t.equal(engine, { build: 'relaxed', threads: 1 }, 'engine');
  },
);

test(
  'text: an isolated page gets threads by itself, and the same text',
  { seconds: 60 },
  async (t) => {
    const { ask } = await enginePage(t, 'chromium');
    const { engine } = await compare(t, ask, {});
    t.equal(engine.build, 'threads', 'engine');
    t.check(engine.threads >= 2, `${engine.threads} threads`);
  },
);

// What threads pack while a model is opened, and what they allocate, is done in another order each
// time: one load in some fifty was seen to go wrong where the heap that they share had no lock.
// Firefox hung in one load of some twenty where the engine's worker itself started threads.
for (const [which, build] of [
  ['chromium', 'threads'],
  ['firefox', 'threads'],
  ['webkit', 'simd'],
])
  test(`text: forty engines in ${which} write the same`, { seconds: 180, computesIn: which }, async (t) => {
    const { ask } = await enginePage(t, which);
    const [{ prompt }] = prompts;
    const text = { prompt, maxTokens: 12 };
    const question = { job: 'again', build, threads: 4, ...storiesFile, text, times: 40 };
    const { first, different } = await ask(question);
    t.equal(first, (await greedy(stories, prompt, 12)).text, 'the first text');
    t.equal(different, [], 'other texts');
  });
