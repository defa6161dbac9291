// The small models of every family (tests/oracles): their greedy tokens against the reference's, and
// how likely each was against the native engine's logits, to the last bit of a float.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { enginePage } from './engine.mjs';
import { test } from './harness.mjs';
import { logits, root, tensors } from './native.mjs';

const folder = path.join(root, 'tests/oracles');
const TOP = 5;

// Encoders embed, rank or classify: their golden files hold no greedy tokens. Those of models that
// see are about images: senses_test.mjs.
function goesOnWithText(golden) {
  const bytes = readFileSync(golden);
  return bytes.includes('"greedy_ids"') && !bytes.includes('"pixel_values"');
}

// { name, path, files } of each form of each oracle that generates text.
function models() {
  const found = [];
  for (const name of readdirSync(folder)) {
    const has = path.join(folder, name, 'golden.safetensors');
    let files;
    try {
      files = readdirSync(path.dirname(has));
    } catch {
      continue; // a file
    }
    if (!files.includes('golden.safetensors') || !goesOnWithText(has)) continue;
    const file = (one) => ({ name: `${name}/${one}`, url: `/oracles/${name}/${one}` });
    const ofFolder = files.filter((one) => !one.startsWith('golden') && !one.endsWith('.gguf'));
    found.push({ name, path: name, files: ofFolder.map(file) });
    if (files.includes('model.gguf'))
      found.push({ name, path: `${name}/model.gguf`, files: [file('model.gguf')] });
  }
  return found;
}

// ln p of every id of a row of scores, rounded to float as the library does it.
function logprobsOf(row) {
  const top = row.reduce((a, b) => Math.max(a, b), -Infinity);
  let sum = 0;
  for (const x of row) sum += Math.exp(x - top);
  const log = Math.log(sum);
  return Array.from(row, (x) => Math.fround(x - top - log));
}

// The exponential and the logarithm of two mathematical libraries may differ in the last bit of a
// double; a logit that differed in the last bit of a float would move these four times as far.
const within = (a, b) => Math.abs(a - b) <= 1.2e-7 * Math.max(1, Math.abs(b));

// The scores of each token of a text, as when it was the text's last one. LongRoPE turns all tokens
// another way once the text is longer than the model's first training: both lengths are computed.
async function scoresOf(model, ids) {
  const { rope_parameters: rope } = JSON.parse(
    readFileSync(path.join(folder, model.name, 'config.json'), 'utf8'),
  );
  const all = await logits(path.join(folder, model.path), ids);
  const n = rope?.original_max_position_embeddings ?? 0;
  if (rope?.rope_type !== 'longrope' || n >= ids.length) return all;
  all.set(await logits(path.join(folder, model.path), ids.slice(0, n)));
  return all;
}

async function compare(t, ask, model, build) {
  const golden = path.join(folder, model.name, 'golden.safetensors');
  const { input_ids: ids, greedy_ids: greedy } = await tensors(golden, 'input_ids', 'greedy_ids');
  const maxTokens = greedy.length - ids.length;
  const [
    scores,
    {
      results: [got],
      info,
    },
  ] = await Promise.all([
    scoresOf(model, [...greedy].slice(0, -1)),
    ask({
      job: 'greedy',
      build,
      device: 'wasm',
      kv: 'f32',
      threads: 2,
      files: model.files,
      path: model.path,
      texts: [{ ids: [...ids], maxTokens, ignoreEnd: true, logprobs: true, topLogprobs: TOP }],
    }),
  ]);
  const what = `${model.path} (${build})`;
  t.equal(got.ids, [...greedy.subarray(ids.length)], `${what}: greedy tokens`);
  t.equal(got.logprobs.length, maxTokens, `${what}: tokens with logprobs`);
  got.logprobs.forEach((one, i) => {
    const at = (ids.length - 1 + i) * info.nVocab;
    const want = logprobsOf(scores.subarray(at, at + info.nVocab));
    t.equal(one.top.length, TOP, `${what}: likeliest tokens`);
    for (const { id, logprob } of [one, ...one.top])
      t.check(
        within(logprob, want[id]),
        `${what}: token ${i}, ln p of ${id}: ${logprob}, not ${want[id]}`,
      );
  });
}

for (const [which, names] of Object.entries({ chromium: ['relaxed', 'threads'], webkit: ['simd'] }))
  test(`oracles: every family in ${which}`, { seconds: 180, computesIn: which }, async (t) => {
    const { ask } = await enginePage(t, which);
    for (const model of models()) for (const build of names) await compare(t, ask, model, build);
  });
