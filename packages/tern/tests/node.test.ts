// The package as it is built, on the real engine, in Node: the native program's text. Needs `make` and
// `make web`; without them it is skipped. Node runs the module without relaxed SIMD.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { test } from 'node:test';
import type * as Package from '../src/index.js';

declare const REPOSITORY: string;
const dist = join(REPOSITORY, 'packages/tern/dist');
const native = join(REPOSITORY, 'build/tern');
const model = join(REPOSITORY, 'models/stories.gguf');
const missing = [join(dist, 'index.js'), join(dist, 'tern.wasm'), native].filter(file => !existsSync(file));
const skip = missing.length > 0 ? `there is no ${missing.join(', ')}` : false;

const load = async (): Promise<typeof Package> =>
  await import(pathToFileURL(join(dist, 'index.js')).href) as typeof Package;
const greedy = (prompt: string, n: number): { text: string; prompt_tokens: number; ids: number[] } =>
  JSON.parse(execFileSync(native, ['run', '-m', model, '-p', prompt, '-n', String(n), '--temp', '0', '--json'],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })) as never;

const prompts = ['Once upon a time', 'The dragon said:', 'Maria und der Wolf — €'];

for (const worker of [true, false])
  test(`greedy text is the native program's, ${worker ? 'in a worker' : 'in this thread'}`, { skip }, async () => {
    const { Tern } = await load();
    const tern = await Tern.load(model, { worker, device: 'wasm' });
    assert.equal(tern.info.worker, worker);
    assert.equal(tern.info.architecture, 'bitnet-b1.58');
    const outputs = await Promise.all(prompts.map(prompt => tern.generate(prompt, { maxTokens: 48, temperature: 0 })));
    for (const [i, output] of outputs.entries()) {
      const wanted = greedy(prompts[i]!, 48);
      assert.equal(output.text, wanted.text);
      assert.deepEqual(output.ids, wanted.ids);
      assert.equal(output.usage.prompt_tokens, wanted.prompt_tokens);
    }
    await tern.close();
  });

test('a conversation, its stream, its second turn', { skip }, async () => {
  const { Tern } = await load();
  const tern = await Tern.load(new Uint8Array(readFileSync(model)), { device: 'wasm' });
  const messages: Package.Message[] = [{ role: 'user', content: 'Write a bedtime story about a fox.' }];
  const stream = await tern.chat.completions.create({
    messages: messages as never, stream: true, max_tokens: 40, temperature: 0, stream_options: { include_usage: true },
  });
  let text = '';
  let usage: Package.Usage | null | undefined;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage;
  }
  const whole = await tern.chat(messages, { maxTokens: 40, temperature: 0 });
  assert.equal(text, whole.text);
  assert.equal(usage!.completion_tokens, 40);
  assert.equal(await tern.countTokens(messages), usage!.prompt_tokens);
  const second = await tern.chat([...messages, { role: 'assistant', content: text }, { role: 'user', content: 'Go on.' }],
    { maxTokens: 5, temperature: 0 });
  assert.ok(second.usage.prompt_tokens_details.cached_tokens > 30, 'the first turn was computed again');
  const ids = await tern.tokenize('Once upon a time', { bos: false });
  assert.equal(await tern.detokenize(ids), 'Once upon a time');
  await tern.close();
});

test('what is wrong is said in words', { skip }, async () => {
  const { Tern, TernError } = await load();
  await assert.rejects(Tern.load(new TextEncoder().encode('no model at all')), error =>
    error instanceof TernError && error.code === 'format');
  const tern = await Tern.load(model, { device: 'wasm', context: 64 });
  await assert.rejects(tern.generate('a', { temperature: -5 }), { code: 'argument' });
  await assert.rejects(tern.generate('word '.repeat(200)), { code: 'context' });
  const stop = AbortSignal.timeout(150);
  await assert.rejects(tern.generate('Once', { ignoreEnd: true, signal: stop, maxTokens: 60 }).then(() =>
    tern.generate('Once', { signal: AbortSignal.abort() })), { code: 'aborted' });
  assert.equal((await tern.generate('Once', { maxTokens: 3, temperature: 0 })).usage.completion_tokens, 3);
  await tern.close();
});

// By the package's own name, as others import it. Seen to fail with an entry that touches `document` at
// the top, and with an export of a file that is not built.
test('every export is there, and can be imported where there is no window', { skip }, () => {
  const folder = join(REPOSITORY, 'packages/tern');
  const { exports } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as
    { exports: Record<string, string | { types: string; default: string }> };
  for (const file of Object.values(exports).flatMap(entry => typeof entry === 'string' ? [entry] : Object.values(entry)))
    assert.ok(existsSync(join(folder, file)), `${file} is not built`);
  const script = `
    const names = await Promise.all(['', '/react', '/engine'].map(async part =>
      Object.keys(await import('tern-engine' + part)).sort().join()));
    console.log(names.join(' '));`;
  const printed = execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: folder, encoding: 'utf8' });
  assert.equal(printed.trim(), 'Models,Report,Tern,TernError useChat,useCompletion,useTern TernError,loadEngine');
});
