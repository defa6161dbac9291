// Speech and hearing by the package as it is built, on the real engine, in Node: numpy's samples of a tiny model and codec,
// and the native program's; what transformers hears. Needs `make` and `make web`; without them it is skipped.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, test } from 'node:test';
import type * as Package from '../src/index.js';

declare const REPOSITORY: string;
const dist = join(REPOSITORY, 'packages/tern/dist');
const native = join(REPOSITORY, 'build/tern');
const oracles = join(REPOSITORY, 'tests/oracles');
const missing = [join(dist, 'index.js'), join(dist, 'tern.wasm'), native].filter(file => !existsSync(file));
const skip = missing.length > 0 ? `there is no ${missing.join(', ')}` : false;
const codec = join(oracles, 'nanocodec');
const FRAME = 6 / 22050; // seconds

const folder = mkdtempSync(join(tmpdir(), 'tern-speech-'));
const reads = join(folder, 'kani'); // the model with a tokenizer
cpSync(join(oracles, 'kani'), reads, { recursive: true });
copyFileSync(join(oracles, 'small_tokenizer.json'), join(reads, 'tokenizer.json'));
after(() => rmSync(folder, { recursive: true, force: true }));

const load = async (): Promise<typeof Package> =>
  await import(pathToFileURL(join(dist, 'index.js')).href) as typeof Package;

// Arrays of a safetensors file, of four bytes each.
function goldens(file: string): Record<string, number[]> {
  const bytes = readFileSync(file), n = Number(bytes.readBigUInt64LE(0));
  const head = JSON.parse(bytes.toString('utf8', 8, 8 + n)) as Record<string, { dtype: string; data_offsets: [number, number] }>;
  return Object.fromEntries(Object.entries(head).map(([name, { dtype, data_offsets: [from, to] }]) => {
    const part = new Uint8Array(bytes.subarray(8 + n + from, 8 + n + to)).buffer;
    return [name, Array.from(dtype === 'F32' ? new Float32Array(part) : new Int32Array(part))];
  }));
}

async function all(speech: Package.Speech): Promise<{ samples: number[]; pieces: number }> {
  const samples: number[] = [];
  let pieces = 0;
  for await (const piece of speech) {
    samples.push(...piece);
    pieces++;
  }
  return { samples, pieces };
}

function near(samples: readonly number[], wanted: readonly number[], bound: number): void {
  assert.equal(samples.length, wanted.length);
  const worst = Math.max(...samples.map((x, i) => Math.abs(x - wanted[i]!)));
  assert.ok(worst <= bound, `the sound is ${worst} off`);
}

function spoken(words: string, ...options: string[]): number[] {
  const pcm = execFileSync(native, ['speak', reads, words, '--codec', codec, '-o', '-', '--greedy', ...options],
    { stdio: ['ignore', 'pipe', 'ignore'] });
  return Array.from({ length: pcm.length / 2 }, (_, i) => pcm.readInt16LE(2 * i) / 32767);
}

for (const worker of [true, false])
  test(`samples are numpy's, ${worker ? 'in a worker' : 'in this thread'}`, { skip }, async () => {
    const { Tern } = await load();
    const want = goldens(join(oracles, 'kani/golden.safetensors'));
    const tern = await Tern.load(join(oracles, 'kani'), { codec, worker });
    assert.deepEqual([tern.info.media.nSpeaker, tern.info.codec!.codecRate, tern.info.context], [6, 22050, 0]);
    const speech = tern.speak(want.text!, { speaker: want.voice!, temperature: -1, secondsMax: 9 * FRAME });
    const { samples, pieces } = await all(speech);
    near(samples, want.long_sound!, 1e-5);
    assert.ok(pieces > 1);
    const stats = await speech.stats;
    assert.deepEqual([speech.rate, stats.rate, stats.nFrames, stats.isCut], [22050, 22050, 9, true]);
    const short = tern.speak(want.text!, { temperature: -1, secondsMax: 9 * FRAME });
    near((await all(short)).samples, want.short_sound!, 1e-5);
    assert.equal((await short.stats).isCut, false);
    await tern.close();
  });

// Seen to fail: with the voice left out of what web_speak reads, and without the rest that a slower sound ends with.
test("samples are the native program's", { skip }, async () => {
  const { Tern } = await load();
  const files = [reads, codec].map((from, i) => {
    const to = join(folder, `${i}.gguf`);
    execFileSync(native, ['convert', from, to], { stdio: 'ignore' });
    return new Uint8Array(readFileSync(to));
  });
  const tern = await Tern.load(files[0]!, { codec: files[1]!, worker: false });
  const cases: [Package.SpeakOptions, string[]][] = [[{}, []], [{ voice: 'andrew' }, ['--voice', 'andrew']], [{ speed: 0.5 }, ['--speed', '0.5']]];
  for (const [options, args] of cases) {
    const { samples } = await all(tern.speak('12 34', { ...options, temperature: -1 }));
    assert.ok(samples.length > 0);
    near(samples, spoken('12 34', ...args), 0.51 / 32767 + 1e-5); // of 16 bits
  }
  const [one, again, other] = await Promise.all([5, 5, 6].map(seed => all(tern.speak('12 34', { seed }))));
  assert.deepEqual(one!.samples, again!.samples);
  assert.notDeepEqual(one!.samples, other!.samples);
  await tern.close();
});

// Seen to fail: with a loop over the steps that serves nobody in between.
test('speech is stopped between frames, and others are served', { skip }, async () => {
  const { Tern } = await load();
  const tern = await Tern.load(reads, { codec, worker: false });
  for await (const piece of tern.speak('12 34', { seed: 5 })) {
    assert.ok(piece.length > 0);
    break;
  }
  const stop = new AbortController(), speech = tern.speak('12 34', { seed: 5, signal: stop.signal });
  await speech.next();
  setImmediate(() => stop.abort()); // a task of its own, as messages to a worker are
  await assert.rejects(all(speech), { code: 'aborted' });
  await assert.rejects(speech.stats, { code: 'aborted' });
  const whole = tern.speak('12 34', { seed: 5 });
  await whole.next();
  let over = false;
  void whole.stats.then(() => { over = true; });
  assert.ok((await tern.tokenize('12 34')).length > 0);
  assert.equal(over, false, 'nobody was served before all was said');
  await whole.stats;
  await assert.rejects(tern.speak('a', { speed: 9 }).next(), { code: 'argument', message: /speed is 9/ });
  await assert.rejects(tern.speak('a', { speaker: [1, 2] }).next(), { code: 'argument', message: /takes 6/ });
  await assert.rejects(tern.speak([1 << 20]).next(), { code: 'argument', message: /token 1048576/ });
  const last = tern.speak('12 34');
  await last.next();
  await tern.close();
  await assert.rejects(last.stats);
});

test('what does not speak says so', { skip }, async () => {
  const { Tern } = await load();
  const alone = await Tern.load(reads, { worker: false });
  await assert.rejects(alone.speak('a').next(), { code: 'argument', message: /option codec/ });
  await alone.close();
  await assert.rejects(Tern.load(reads, { codec: reads, worker: false }), { code: 'unsupported', message: /not a codec/ });
  const sound = await Tern.load(codec, { worker: false });
  assert.deepEqual([sound.info.media.codecRate, sound.info.media.isCodec, sound.info.media.isTts], [22050, true, false]);
  await sound.close();
  const tern = await Tern.load(join(REPOSITORY, 'models/stories.gguf'), { codec, worker: false, device: 'wasm' });
  await assert.rejects(tern.speak('a').next(), { code: 'unsupported', message: /is not a speech model/ });
  await tern.close();
});

// Seen to fail: with partial texts told as segments.
test('what is said, and while it is said', { skip }, async () => {
  const { Tern } = await load();
  const { pcm, greedy } = goldens(join(oracles, 'moonshine/golden.safetensors'));
  const samples = Float32Array.from(pcm!);
  const tern = await Tern.load(join(oracles, 'moonshine'), { worker: false });
  const { segments, language } = await tern.transcribe(samples, { whole: true, tokensPerSecond: 40 });
  assert.deepEqual([segments[0]!.ids, language], [greedy, '']);
  const heard: Package.Segment[] = [], partial: Package.Segment[] = [];
  const transcriber = await tern.transcriber({ tokensPerSecond: 40, onSegment: s => heard.push(s), onPartial: s => partial.push(s) });
  assert.equal(transcriber.rate, 16000);
  await Promise.all([1, 2, 3, 4].map(() => transcriber.feed(samples))); // in their order
  await transcriber.feed(new Float32Array(0));
  const before = heard.length;
  await transcriber.end();
  await transcriber.close();
  assert.deepEqual([before, heard.length], [0, 1]);
  assert.ok(partial.length >= 1 && partial.every(({ ids }) => ids.length > 0) && heard[0]!.end > 1);
  const four = Float32Array.from([...pcm!, ...pcm!, ...pcm!, ...pcm!]);
  assert.deepEqual((await tern.transcribe(four, { tokensPerSecond: 40 })).segments.map(({ ids }) => ids), heard.map(({ ids }) => ids));
  await assert.rejects(transcriber.feed(samples), { code: 'closed' });
  const stopped = await tern.transcriber({ tokensPerSecond: 40, signal: AbortSignal.abort() }).catch(error => error as Error);
  assert.equal((stopped as Package.TernError).code, 'aborted');
  const open = await tern.transcriber({ tokensPerSecond: 40 }); // and closed with the model
  await open.feed(samples);
  await tern.close();
  const whisper = await Tern.load(join(oracles, 'whisper'), { worker: false });
  assert.equal((await whisper.transcribe(samples, { language: 'de', noFallback: true })).language, 'de');
  await assert.rejects(whisper.transcribe(samples, { language: 'tlh' }), { message: /tlh/ });
  await whisper.close();
});
