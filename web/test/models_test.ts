// What a person may type for a model, settings that were stored by anybody, and words for progress.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PRESETS, nameOfSource, sourceFromText } from '../chat/models.ts';
import { DEFAULTS, loadOptions, readSettings, samplingOptions } from '../chat/settings.ts';
import { formatBytes, formatDuration, formatLeft, formatRate } from '../shared/format.ts';
import { progressText } from '../shared/progress.ts';

// Seen to fail with /blob/ pages taken as files, and with http: allowed everywhere.
test('sources', () => {
  for (const [typed, source] of [
    [' owner/name ', 'hf:owner/name'],
    ['hf:owner/name/a.gguf@v1', 'hf:owner/name/a.gguf@v1'],
    ['o/n/sub/a.gguf', 'hf:o/n/sub/a.gguf'],
    ['https://huggingface.co/o/n', 'hf:o/n'],
    ['huggingface.co/o/n/', 'hf:o/n'],
    ['https://huggingface.co/o/n/blob/main/a%20b.gguf', 'hf:o/n/a b.gguf'],
    ['https://huggingface.co/o/n/resolve/v2/x/a.gguf?download=true', 'hf:o/n/x/a.gguf@v2'],
    ['https://huggingface.co/o/n/tree/main', 'hf:o/n'],
    ['https://a.b/c.gguf', 'https://a.b/c.gguf'],
    ['http://localhost:8080/c.gguf', 'http://localhost:8080/c.gguf'],
  ] as const)
    assert.equal(sourceFromText(typed), source, typed);
  for (const bad of [
    '',
    'model',
    'http://a.b/c.gguf',
    'javascript:alert(1)',
    'file:///a.gguf',
    'data:x',
    'https://huggingface.co/o',
    'https://huggingface.co/o/n/discussions/1',
  ]) {
    assert.throws(() => sourceFromText(bad), undefined, bad);
  }
});

test('names', () => {
  for (const [source, name] of [
    ['hf:o/n/Qwen3-0.6B-Q8_0.gguf', 'Qwen3-0.6B-Q8_0'],
    ['hf:o/bitnet-gguf/ggml-model-i2_s.gguf@main', 'bitnet-gguf'],
    ['hf:o/n', 'n'],
    ['https://a.b/x/model%20a.gguf?x=1', 'model a'],
    ['https://a.b/%', '%'],
    [PRESETS[1]!.source, PRESETS[1]!.name],
  ] as const)
    assert.equal(nameOfSource(source), name);
  for (const preset of PRESETS.slice(1)) assert.equal(sourceFromText(preset.source), preset.source);
});

// Seen to fail with values taken without their ranges.
test('stored settings', () => {
  for (const bad of [
    null,
    '',
    '{',
    'null',
    '[]',
    '"x"',
    '{"temperature":"hot","topP":7,"device":"<b>","system":5,"seed":0,"pieceTokens":1e9}',
  ])
    assert.deepEqual(readSettings(bad), DEFAULTS);
  const settings = readSettings('{"temperature":0,"seed":3,"device":"wasm","system":"x","evil":1}');
  assert.deepEqual(settings, { ...DEFAULTS, temperature: 0, seed: 3, device: 'wasm', system: 'x' });
  assert.deepEqual(samplingOptions(settings), { temperature: 0, seed: 3 });
  assert.deepEqual(loadOptions(settings), { device: 'wasm', thinking: 'auto' });
});

test('numbers in words', () => {
  assert.deepEqual([0, 999, 999.6, 9518048, 1.2e9, 99.96e6].map(formatBytes), [
    '0 B',
    '999 B',
    '1.0 KB',
    '9.5 MB',
    '1.2 GB',
    '100 MB',
  ]);
  assert.deepEqual([0.123, 9.96, 59.4, 60, 3599, 7260, NaN].map(formatDuration), [
    '0.12 s',
    '10.0 s',
    '59 s',
    '1 min',
    '59 min 59 s',
    '2 h 1 min',
    '?',
  ]);
  assert.deepEqual([1234.5, 42.55, 0.834, Infinity].map(formatRate), ['1235', '42.5', '0.83', '?']);
  assert.deepEqual([0.2, 2.4, 59, 95, 119, 4000].map(formatLeft), [
    '1 s',
    '2 s',
    '59 s',
    '1 min 35 s',
    '2 min',
    '1 h 7 min',
  ]);
  const progress = { phase: 'download', loaded: 4.2e8, total: 1.2e9, fraction: 0.35, bytesPerSecond: 3.4e7 };
  assert.equal(progressText(progress), 'Downloading · 420 MB of 1.2 GB · 34.0 MB/s · 23 s left');
  assert.equal(progressText({ ...progress, total: 0, bytesPerSecond: 0 }), 'Downloading · 420 MB');
  assert.equal(
    progressText({ phase: 'open', loaded: 0, total: 0, fraction: 0.5, bytesPerSecond: 0 }),
    'Opening',
  );
});
