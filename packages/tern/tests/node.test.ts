// The package as it is built, on the real engine, in Node: the native program's text. Needs `make` and
// `make web`; without them it is skipped. Node runs the module without relaxed SIMD.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { test } from 'node:test';
import { z } from 'zod';
import type * as Package from '../src/index.js';

declare const REPOSITORY: string;
const dist = join(REPOSITORY, 'packages/tern/dist');
const native = join(REPOSITORY, 'build/tern');
const model = join(REPOSITORY, 'models/stories.gguf');
const missing = [join(dist, 'index.js'), join(dist, 'tern.wasm'), native].filter(file => !existsSync(file));
const skip = missing.length > 0 ? `there is no ${missing.join(', ')}` : false;

const load = async (): Promise<typeof Package> =>
  await import(pathToFileURL(join(dist, 'index.js')).href) as typeof Package;
const greedy = (prompt: string, n: number, ...more: string[]): { text: string; prompt_tokens: number; ids: number[] } =>
  JSON.parse(execFileSync(native, ['run', '-m', model, '-p', prompt, '-n', String(n), '--temp', '0', '--json', ...more],
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

const person = {
  type: 'object', additionalProperties: false, required: ['name', 'age', 'friends'],
  properties: {
    name: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 1, maximum: 99 },
    friends: { type: 'array', items: { enum: ['fox', 'wolf', 'mouse'] }, maxItems: 3 },
  },
} as const;

// Seen to fail: without the grammar among the arguments of web_generate; with `compact` dropped.
test('answers in a form are the native program\'s', { skip }, async () => {
  const { Tern } = await load();
  const tern = await Tern.load(model, { device: 'wasm' });
  const prompt = 'Once upon a time';
  const forms: [Package.FormOptions, string[]][] = [
    [{ schema: person }, ['--schema', JSON.stringify(person)]],
    [{ schema: person, compact: true }, ['--schema', JSON.stringify(person), '--compact']],
    [{ regex: / there (was|were) [1-9]\d? \w{3,9}\./ }, ['--regex', ' there (was|were) [1-9]\\d? \\w{3,9}\\.']],
    [{ choice: [' yes', ' no', ' not at all'] }, ['--choice', ' yes', '--choice', ' no', '--choice', ' not at all']],
  ];
  const outputs = await Promise.all(forms.map(([form]) => tern.generate(prompt, { ...form, maxTokens: 120, temperature: 0 })));
  for (const [i, { text, reason }] of outputs.entries()) {
    assert.equal(text, greedy(prompt, 120, ...forms[i]![1]).text);
    assert.equal(reason, 'end');
  }
  const rules = 'root ::= " " [a-z]+ (" and " [a-z]+){2} "."';
  const gbnf = await tern.generate(prompt, { grammar: rules, maxTokens: 60, seed: 3 });
  assert.match(gbnf.text, gbnf.reason === 'end' ? /^ [a-z]+( and [a-z]+){2}\.$/ : /^ [a-z]+/);
  const lark = await tern.generate(prompt, { grammar: { lark: 'start: (" fox" | " wolf") "!"~2' }, seed: 3 });
  assert.match(lark.text, /^ (fox|wolf)!!$/);
  await tern.close();
});

// Seen to fail: with a cut answer read; with partial objects told after the whole one only.
test('objects', { skip }, async () => {
  const { Tern } = await load();
  const tern = await Tern.load(model, { device: 'wasm' });
  const prompt = 'A mouse, in JSON: ';
  const ask = { schema: person, compact: true, maxTokens: 120, temperature: 0 };
  const { object, text, finishReason } = await tern.generateObject(prompt, ask);
  assert.equal(finishReason, 'stop');
  assert.deepEqual(object, JSON.parse(text));
  assert.deepEqual(Object.keys(object), ['name', 'age', 'friends']);
  const stream = tern.streamObject([{ role: 'user', content: prompt }], ask);
  const parts: Partial<{ name: string; age: number }>[] = [];
  for await (const part of stream) parts.push(part);
  assert.ok(parts.length > 3 && parts[0]!.age === undefined, JSON.stringify(parts));
  for (const [i, { name = '' }] of parts.entries()) assert.ok((parts[i + 1]?.name ?? name).startsWith(name));
  assert.equal(new Set(parts.map(part => JSON.stringify(part))).size, parts.length);
  assert.deepEqual(parts.at(-1), await stream.object);
  const born = z.object({ year: z.int().min(1900).max(2000).transform(year => new Date(year, 0)) });
  const { object: birth } = await tern.generateObject(prompt, { schema: born, seed: 1 });
  assert.ok(birth.year.getFullYear() >= 1900);
  await assert.rejects(tern.generateObject(prompt, { ...ask, maxTokens: 4 }), { code: 'length', message: /after 4 tokens/ });
  const short = tern.streamObject(prompt, { ...ask, maxTokens: 4 });
  await assert.rejects(async () => { for await (const _ of short); }, { code: 'length' });
  for await (const _ of tern.streamObject(prompt, ask)) break;
  await tern.close();
});

// Seen to fail: with a grammar opened when the first token is there.
test('a schema that is not known is refused before a token is made', { skip }, async () => {
  const { Tern } = await load();
  const tern = await Tern.load(model, { device: 'wasm' });
  const schema = { properties: { tags: { type: 'array', uniqueItems: true, items: { type: 'string' } } } };
  const refused = { code: 'unsupported', message: /^the schema at #\/properties\/tags: 'uniqueItems'/ };
  let text = '';
  await assert.rejects(tern.generateObject('a', { schema, onText: piece => { text += piece; } }), refused);
  await assert.rejects(tern.chat.completions.create({
    messages: [{ role: 'user', content: 'a' }], response_format: { type: 'json_schema', json_schema: { schema } },
  }), refused);
  await assert.rejects(tern.generate('a', { regex: '(' }), { name: 'TernError' });
  assert.equal(text, '');
  const { choices: [choice] } = await tern.chat.completions.create({
    messages: [{ role: 'user', content: 'a' }], response_format: { type: 'json_schema', json_schema: { schema: person } }, seed: 1,
  });
  assert.deepEqual(Object.keys(JSON.parse(choice!.message.content!) as object), ['name', 'age', 'friends']);
  await tern.close();
});

// Seen to fail: with the second step's vectors left out; with `dimensions` and `prefix` dropped.
test('vectors are the native program\'s, to the bit', { skip }, async () => {
  const { Tern } = await load();
  const embedder = join(REPOSITORY, 'models/embed.gguf');
  const tern = await Tern.load(embedder, { device: 'wasm' });
  const texts = ['how do magnets work', 'a', 'Der Fluss tritt über die Ufer. '.repeat(20), ...Array.from({ length: 40 }, (_, i) => `word ${'and '.repeat(i * 3)}${i}`)];
  const native_ = (...more: string[]): number[][] => execFileSync(native, ['embed', embedder, ...more, ...texts],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 64 << 20 }).trim().split('\n')
    .map(line => (JSON.parse(line) as { embedding: number[] }).embedding.map(Math.fround));
  const { nDims, maxLength, prompts } = tern.info.embedding;
  assert.ok(nDims > 0 && maxLength > 0 && Array.isArray(prompts));
  const vectors = await tern.embed(texts);
  assert.deepEqual(vectors.map(row => Array.from(row)), native_());
  const short = await tern.embed(texts, { dimensions: 32, prefix: 'query: ', maxLength: 24 });
  assert.deepEqual(short.map(row => Array.from(row)), native_('--dimensions', '32', '--prefix', 'query: ', '--max-length', '24'));
  assert.deepEqual(await tern.embed('a'), vectors[1]);
  assert.ok(Math.abs(Tern.similarity(vectors[0]!, vectors[0]!) - 1) < 1e-6);
  assert.ok(Math.abs(Math.hypot(...(await tern.embed('a', { normalize: true }))) - 1) < 1e-6);
  await assert.rejects(tern.embed('a', { dimensions: nDims + 1 }), { code: 'argument', message: /n_dims is/ });
  await assert.rejects(tern.embed('a', { prompt: 'none such' }), { code: 'argument', message: /no prompt "none such"/ });
  await assert.rejects(tern.embed(texts, { signal: AbortSignal.abort() }), { code: 'aborted' });
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 5);
  await assert.rejects(tern.embed(Array.from({ length: 2000 }, (_, i) => `${texts[2]} ${i}`), { signal: stop.signal }), { code: 'aborted' });
  assert.deepEqual(await tern.embed('a'), vectors[1]);
  await tern.close();
  const writer = await Tern.load(model, { device: 'wasm' });
  await assert.rejects(writer.embed('a'), { code: 'unsupported' });
  await writer.close();
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

// A model that says what it is told to, and calls two tools.
test('tools are called, answered, and reasoning is apart', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tern-'));
  const parrot = join(folder, 'parrot.gguf');
  execFileSync('python3', [join(REPOSITORY, 'tests/parrot.py'), parrot]);
  const { Tern } = await load();
  const tern = await Tern.load(parrot, { device: 'wasm' });
  const parameters = { type: 'object', properties: { town: { type: 'string', maxLength: 5 } }, required: ['town'] } as const;
  const functions = [{ name: 'weather', parameters }, { name: 'clock' }].map(f => ({ type: 'function', function: f }) as const);
  const question = [{ role: 'user', content: 'Rain in Ghent?' }] as const;
  const ask = { messages: question, tools: functions, temperature: 0 };
  const { message, finish_reason } = (await tern.chat.completions.create(ask)).choices[0]!;
  assert.deepEqual([message.reasoning_content, message.content, finish_reason], ['Rain?', 'I look.', 'tool_calls']);
  assert.deepEqual(message.tool_calls!.map(c => [c.function.name, JSON.parse(c.function.arguments)]),
    [['weather', { town: 'Ghent' }], ['clock', {}]]);
  const after = await tern.chat.completions.create({
    ...ask, messages: [...question, message, { role: 'tool', tool_call_id: message.tool_calls![0]!.id, content: 'dry' }],
  });
  assert.equal(after.choices[0]!.message.content, 'It is dry in Ghent.');
  // It would say "Good day." then. Seen to fail: with forced calls left to the model.
  const forced = { ...ask, messages: [{ role: 'user', content: 'Hello!' }], tools: [functions[0]!] } as const;
  assert.equal((await tern.chat.completions.create({ ...forced, tool_choice: 'none' })).choices[0]!.message.tool_calls, undefined);
  const must = (await tern.chat.completions.create({ ...forced, tool_choice: 'required' })).choices[0]!;
  assert.equal(must.finish_reason, 'tool_calls');
  for (const { function: f } of must.message.tool_calls!) {
    assert.equal(f.name, 'weather');
    assert.deepEqual(Object.keys(JSON.parse(f.arguments) as object), ['town']);
  }
  const off = await tern.chat.completions.create({ ...ask, reasoning_effort: 'none' });
  assert.equal(off.choices[0]!.message.tool_calls!.length, 1);
  const none = await tern.chat.completions.create({ ...ask, tool_choice: 'none' });
  assert.equal(none.choices[0]!.message.content, 'Good day.');
  await tern.close();
  rmSync(folder, { recursive: true });
});

test('the scores, a processor of them, what the file and the engine say', { skip }, async () => {
  const { Tern } = await load();
  const lines: string[] = [], fractions: number[] = [], seen: number[][] = [];
  const tern = await Tern.load(model, { device: 'wasm', worker: false, onLog: (level, line) => lines.push(`${level} ${line}`) });
  const prompt = 'Once upon a time', wanted = greedy(prompt, 6);
  const logits = await tern.logits(prompt);
  assert.equal(logits.length, tern.info.nVocab);
  assert.equal(logits.indexOf(Math.max(...logits)), wanted.ids[0]);
  const said = await tern.generate(prompt, {
    maxTokens: 6, temperature: 0, onProgress: fraction => fractions.push(fraction),
    logitsProcessor: (ids, scores) => {
      seen.push(Array.from(ids));
      return scores.indexOf(Math.max(...scores));
    },
  });
  assert.deepEqual(said.ids, wanted.ids);
  assert.equal(seen.length, 6);
  assert.deepEqual(seen[2]!.slice(-2), wanted.ids.slice(0, 2));
  assert.equal(fractions.at(-1), 1);
  const other = await tern.generate(prompt, {
    maxTokens: 6, temperature: 0, logitsProcessor: (_, scores) => { scores[wanted.ids[0]!] = -Infinity; } });
  assert.ok(!other.ids.includes(wanted.ids[0]!));
  await assert.rejects(tern.generate(prompt, { maxTokens: 2, logitsProcessor: () => { throw new RangeError('mine'); } }), { message: 'mine' });
  await assert.rejects(tern.generate(prompt, { maxTokens: 2, logitsProcessor: () => 1e9 }), { code: 'argument' });
  assert.equal(await tern.metadata('general.architecture'), 'bitnet-b1.58');
  assert.equal((await tern.metadata('tokenizer.ggml.tokens') as string[]).length, tern.info.nVocab);
  assert.equal(await tern.metadata('none'), undefined);
  const all = await tern.metadata();
  assert.ok('general.architecture' in all && !('tokenizer.ggml.tokens' in all));
  assert.ok(lines.some(line => line.startsWith('info ') && line.includes('bitnet')), lines.join('\n'));
  await tern.close();
  const away = await Tern.load(model, { device: 'wasm', worker: true });
  await assert.rejects(away.generate(prompt, { logitsProcessor: () => undefined }), { code: 'unsupported' });
  assert.deepEqual(await away.logits(prompt), logits);
  await away.close();
});

// Seen to fail: with each of the five left out by draftsOf, or by web_generate.
test('drafts change no text, and an answer limits them', { skip }, async () => {
  const { Tern } = await load();
  const speculate = { lookup: true, online: true, always: true, tokenCost: 0.1, threshold: 0.01 };
  const tern = await Tern.load(model, { device: 'wasm', speculate });
  const prompt = 'The cat sat on the mat. '.repeat(4), { text } = greedy(prompt, 48);
  const drafted = async (drafts: Package.DraftLimits): Promise<number> => {
    const output = await tern.generate(prompt, { maxTokens: 48, temperature: 0, drafts });
    assert.equal(output.text, text);
    return output.timings.draft_n ?? 0;
  };
  const all = await drafted({});
  assert.ok(all > 0);
  for (const drafts of [{ none: true }, { without: ['lookup', 'online'] }, { least: 17 }] as const) assert.equal(await drafted(drafts), 0, JSON.stringify(drafts));
  for (const drafts of [{ most: 1 }, { chance: 0.9 }]) {
    const fewer = await drafted(drafts);
    assert.ok(fewer < all, JSON.stringify([drafts, fewer, all]));
  }
  for (const wrong of [{ without: ['guesses'] }, { most: -1 }, { chance: 2 }, { chances: 0 }])
    await assert.rejects(drafted(wrong as Package.DraftLimits), { code: 'argument' });
  const messages = [{ role: 'user', content: 'Hello' }] as const;
  assert.equal((await tern.chat.completions.create({ messages, max_tokens: 8, drafts: { none: true } })).timings.draft_n, undefined);
  await tern.close();
});

// A PEFT adapter of rank 1 for the first layer's queries.
function writeAdapter(folder: string, nEmbd: number): void {
  const name = (which: string) => `base_model.model.model.layers.0.self_attn.q_proj.lora_${which}.weight`;
  const a = Float32Array.from({ length: nEmbd }, (_, i) => Math.sin(i)), b = Float32Array.from(a, (_, i) => Math.cos(i) / 2);
  const head = Buffer.from(JSON.stringify({
    [name('A')]: { dtype: 'F32', shape: [1, nEmbd], data_offsets: [0, a.byteLength] },
    [name('B')]: { dtype: 'F32', shape: [nEmbd, 1], data_offsets: [a.byteLength, a.byteLength + b.byteLength] },
  }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  writeFileSync(join(folder, 'adapter_model.safetensors'), Buffer.concat([length, head, Buffer.from(a.buffer), Buffer.from(b.buffer)]));
  writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify({ peft_type: 'LORA', r: 1, lora_alpha: 1, target_modules: ['q_proj'] }));
}

// Seen to fail: with a scale of 0 passed on, which is 1 to the library; with sessions chosen whatever their scales.
test('adapters are the native program\'s, and answers choose among them', { skip }, async () => {
  const { Tern } = await load();
  const folder = mkdtempSync(join(tmpdir(), 'tern-')), prompt = 'Once upon a time', ask = { maxTokens: 24, temperature: 0 };
  const plain = await Tern.load(model, { device: 'wasm' });
  writeAdapter(folder, plain.info.nEmbd);
  await assert.rejects(plain.generate(prompt, { ...ask, loraScales: [1] }), { code: 'argument' });
  await plain.close();
  const bare = greedy(prompt, 24).text, adapted = greedy(prompt, 24, '--lora', folder).text, thrice = greedy(prompt, 24, '--lora', `${folder}=3`).text;
  assert.equal(new Set([bare, adapted, thrice]).size, 3);
  for (const [scale, wanted] of [[0, bare], [undefined, adapted], [3, thrice]] as const) {
    const tern = await Tern.load(model, { device: 'wasm', loras: [{ source: folder, ...(scale === undefined ? {} : { scale }) }] });
    assert.equal((await tern.generate(prompt, ask)).text, wanted);
    await tern.close();
  }
  const tern = await Tern.load(model, { device: 'wasm', loras: [{ source: folder }], lorasBySession: true });
  const scales = [[0], [1], undefined, [3], [0]];
  const texts = await Promise.all(scales.map(async loraScales => (await tern.generate(prompt, { ...ask, ...(loraScales ? { loraScales } : {}) })).text));
  assert.deepEqual(texts, [bare, adapted, adapted, thrice, bare]);
  const again = await tern.generate(prompt, { ...ask, loraScales: [3] });
  assert.deepEqual([again.text, again.usage.prompt_tokens_details.cached_tokens > 0], [thrice, true]);
  for (const wrong of [[1, 2], [Infinity], Array<number>(65).fill(0)])
    await assert.rejects(tern.generate(prompt, { ...ask, loraScales: wrong }), { code: 'argument' });
  const messages = [{ role: 'user', content: 'Hello' }] as const;
  const chats = await Promise.all([[0], [3]].map(lora_scales => tern.chat.completions.create({ messages, temperature: 0, max_tokens: 24, lora_scales })));
  assert.notEqual(chats[0]!.choices[0]!.message.content, chats[1]!.choices[0]!.message.content);
  await tern.close();
  rmSync(folder, { recursive: true });
});
