// Images and sounds: decoded by the browser, computed by the module, compared with the native program;
// the microphone (Chromium plays a file to it); and the pages that have both.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { deflateSync } from 'node:zlib';
import { cspHeader } from '../../web/csp.mjs';
import { webRoots } from './engine.mjs';
import { test } from './harness.mjs';
import { root, tensors, tern } from './native.mjs';

const oracle = (name) => path.join(root, 'tests/oracles', name);
const [sees, vit, hears] = ['qwen35_sees', 'vit', 'moonshine'];

async function open(t, which, { roots, ...options } = {}) {
  const server = await t.serve({ roots: { ...webRoots, ...roots } });
  const page = await (await t.browser(which, options)).page();
  await page.goto(`${server.url}/tests/blank.html`);
  const call = (name, ...args) =>
    page.run(async (name, args) => (await import('/tests/senses.js'))[name](...args), name, args);
  return { server, page, call };
}

// ---- Images ------------------------------------------------------------------------------------

const crcs = Array.from({ length: 256 }, (_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});
function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length);
  body.copy(out, 4);
  const crc = body.reduce((c, b) => crcs[(c ^ b) & 255] ^ (c >>> 8), 0xffffffff);
  out.writeUInt32BE((crc ^ 0xffffffff) >>> 0, body.length + 4);
  return out;
}
// A PNG with colours under transparency, which a canvas would lose.
function transparentPng(width, height) {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width);
  head.writeUInt32BE(height, 4);
  head.set([8, 6, 0, 0, 0], 8);
  const rows = Buffer.from(Array.from({ length: height }, (_, y) =>
    [0, ...Array.from({ length: width }, (_, x) => [x * 5, y * 6, (x * y) % 256, (x * 37 + y * 11) % 256]).flat()]).flat());
  const mark = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([mark, chunk('IHDR', head), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}

// Of each file the labels by their scores, as the native program decodes, resizes and computes it. JPEG is left out:
// browsers have decoders of their own; and GIF, whose transparent pixels have no colour in browsers. Seen to
// fail with such a GIF.
for (const [which, build] of [['chromium', 'threads'], ['firefox', 'threads'], ['webkit', 'simd']])
  test(`senses: labels of images, the native program's, in ${which}`, { seconds: 90, computesIn: which }, async (t) => {
    const clear = path.join(await t.folder(), 'clear.png');
    writeFileSync(clear, transparentPng(40, 29));
    const files = [clear, ...['png', 'webp'].map((name) => path.join(root, 'fuzz/corpus/image', name)), oracle(`${sees}/image.png`)];
    const roots = { '/images/': (name) => readFileSync(files[Number(name.match(/\d+/)[0])]) };
    const { call, server } = await open(t, which, { roots });
    const urls = files.map((_, i) => `${server.url}/images/${i}`);
    const got = await call('classify', `/oracles/${vit}/`, urls);
    const out = await tern(['classify', oracle(vit), ...files, '-k', '5', '--json']);
    const native = out.toString().trim().split('\n').map((line) => JSON.parse(line));
    const shown = (labels) => labels.map(({ id, label, probability }) => [id, label, Math.fround(probability)]);
    files.forEach((file, i) => {
      const want = native[i].labels;
      // A canvas without WebGL loses the colours under transparency; WebKit does not turn PNGs by their EXIF data.
      const all = i >= { chromium: 0, firefox: 1, webkit: 2 }[which];
      if (all) t.equal(shown(got.of[i]), shown(want), `${path.basename(file)} in ${build}`);
    });
    for (const [i, labels] of got.ways.entries()) t.equal(labels, got.of.at(-1), `way ${i}`);
    t.equal([got.media.hasVision, got.media.nLabels, got.media.nDims], [false, 5, 24], 'media');
    t.equal(got.failure.code, 'network', 'an image that is not there');
    t.equal(got.broken.code, 'format', 'a file that is no image');
  });

const said = {};
const nativeSaid = (model) =>
  (said[model] ??= tern([
    'run', oracle(model), '--chat', '--image', oracle(`${model}/image.png`), '-p', 'What is it?', '-n', '6', '--temp', '0', '--json',
  ]).then((out) => JSON.parse(out.toString())));

for (const [which, model] of [['chromium', sees], ['webkit', sees], ['chromium', 'lfm2vl_sees'], ['chromium', 'gemma3_sees']])
  test(`senses: an image in a chat, in ${which}, ${model}`, { seconds: 90, computesIn: which }, async (t) => {
    const { call } = await open(t, which);
    const got = await call('look', `/oracles/${model}/`, `/oracles/${model}/image.png`, 'What is it?', 6);
    const want = await nativeSaid(model);
    t.equal(got.ids, want.ids, 'tokens');
    t.equal(got.usage.prompt_tokens, want.prompt_tokens, 'tokens of the prompt');
    t.check(got.again.prompt_tokens_details.cached_tokens > 9, 'the image was seen before');
    t.check(got.same, 'the same answer to the same question');
  });

// ---- Sounds --------------------------------------------------------------------------------------

for (const which of ['chromium', 'firefox', 'webkit'])
  test(`senses: what is said, in ${which}`, { seconds: 90, computesIn: which }, async (t) => {
    const { call } = await open(t, which);
    const got = await call('hear', `/oracles/${hears}/`, `/oracles/${hears}/sound.wav`);
    const want = JSON.parse((await tern(['transcribe', oracle(hears), oracle(`${hears}/sound.wav`), '--ids', '--json'])).toString());
    const ids = want.segments.map((one) => one.ids);
    t.check(ids.length === 1 && ids[0].length > 0, 'the native program writes something down');
    for (const way of ['file', 'samples', 'buffer', 'again']) t.equal(got[way], ids, way);
    t.equal(got.slow, 1, 'a segment of samples of another rate');
    // Where the browser suspends (JSPI).
    if (which !== 'webkit')
      t.check(got.stopped.code === 'aborted' && got.n < 25, `stopped after ${got.n} of 50 segments`);
  });

// A WAV of 48,000 samples a second.
function wav(samples) {
  const head = Buffer.alloc(44);
  head.write('RIFF');
  head.writeUInt32LE(36 + 2 * samples.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(48000, 24);
  head.writeUInt32LE(96000, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write('data', 36);
  head.writeUInt32LE(2 * samples.length, 40);
  const body = Int16Array.from(samples, (x) => Math.max(-1, Math.min(1, x)) * 32767);
  return Buffer.concat([head, Buffer.from(body.buffer)]);
}
async function played(t, samples) {
  const file = path.join(await t.folder(), 'spoken.wav');
  writeFileSync(file, wav(samples));
  return [
    '--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream', `--use-file-for-fake-audio-capture=${file}`,
    '--autoplay-policy=no-user-gesture-required',
  ];
}

test('senses: the microphone in chromium', { seconds: 60 }, async (t) => {
  const tone = Float32Array.from({ length: 96000 }, (_, i) => 0.5 * Math.sin((2 * Math.PI * 500 * i) / 48000));
  const { call } = await open(t, 'chromium', { flags: await played(t, tone) });
  const got = await call('listen', 60);
  t.equal(got.lengths, [512], 'samples of a frame');
  t.check(Math.abs(got.hertz - 500) < 60, `${got.hertz} Hz`); // gaps of a busy machine count. Without the other rate: 167
  t.check(got.loudest > 0.2 && got.loudest < 0.9, `as loud as ${got.loudest}`);
});

// numpy's samples of the tiny model and codec, on WebAssembly and with both on SwiftShader's WebGPU, which `auto` leaves
// alone. Seen to fail with a codec that always runs on WebAssembly.
test('senses: speech on WebGPU in chromium', { seconds: 120 }, async (t) => {
  const { call } = await open(t, 'chromium', { webgpu: true });
  const golden = await tensors(oracle('kani/golden.safetensors'), 'text', 'voice', 'long_sound');
  const [text, voice, want] = Object.values(golden).map((one) => Array.from(one));
  const params = { speaker: voice, temperature: -1, secondsMax: (9 * 6) / 22050 };
  for (const [options, on, bound] of [[{}, /^cpu/, 1e-5], [{ device: 'webgpu' }, /^webgpu/, 2e-3]]) {
    const got = await call('speak', '/oracles/kani/', '/oracles/nanocodec/', text, options, params);
    t.check(on.test(got.device) && on.test(got.codecDevice), `runs on ${got.device}, the codec on ${got.codecDevice}`);
    t.equal([got.samples.length, got.nFrames, got.pieces > 1], [want.length, 9, true], 'samples, frames, in pieces');
    const off = Math.max(...want.map((x, i) => Math.abs(x - got.samples[i])));
    t.check(off <= bound, `the sound is ${off} off`);
  }
});

// ---- Pages ---------------------------------------------------------------------------------------

// The oracle has no tokenizer: one of as many tokens stands for it. What is spoken comes again and again.
test('senses: a conversation by voice in chromium', { seconds: 120 }, async (t) => {
  const once = new Int16Array(readFileSync(oracle(`${hears}/sound.wav`)).subarray(44).slice().buffer);
  const spoken = new Float32Array(48000 * 5);
  for (let i = 0; i < 9 * once.length; i++) spoken[48000 + i] = once[Math.floor(i / 3) % once.length] / 32768;
  const files = {
    'config.json': `${hears}/config.json`, 'model.safetensors': `${hears}/model.safetensors`, 'tokenizer.json': 'small_tokenizer.json',
  };
  const folder = (name) => {
    const file = files[name.split('/').at(-1)];
    return file && readFileSync(oracle(file));
  };
  const server = await t.serve({ roots: { ...webRoots, '/hears/': folder }, csp: cspHeader });
  const page = await (await t.browser('chromium', { flags: await played(t, spoken) })).page();
  await page.raw.setViewport({ width: 360, height: 640 });
  await page.goto(`${server.url}/voice/?hears=/hears/&answers=/models/stories.gguf`);
  const wide = await page.run(() => document.documentElement.scrollWidth);
  t.check(wide <= 360, `the page is ${wide} pixels wide`);
  await page.raw.click('#microphone');
  const turns = () => page.raw.$$eval('.turn', (all) => all.map((one) => [one.className.split(' ')[1], one.textContent]));
  await page.raw.waitForFunction(
    () => document.querySelectorAll('.turn.user').length >= 2 && document.querySelector('.turn.assistant'),
    { timeout: 300_000, polling: 100 },
  );
  const [first, second] = await turns();
  t.equal([first[0], second[0]], ['user', 'assistant'], 'turns');
  t.check(first[1].length > 0 && second[1].length > 5, `"${first[1]}" was answered with "${second[1]}"`);
  t.check(/voice|shown/.test(await page.raw.$eval('#voice-note', (one) => one.textContent)), 'who speaks is said');
  await page.raw.click('#microphone'); // off
  await page.raw.waitForFunction(() => document.querySelector('#stage').textContent === 'Press to begin.', { timeout: 300_000 });
  t.equal(server.violations, [], 'violations of the policy');
});

test('senses: an image goes with a message in chromium', { seconds: 90 }, async (t) => {
  const server = await t.serve({ roots: webRoots, csp: cspHeader });
  const page = await (await t.browser('chromium')).page();
  await page.raw.evaluateOnNewDocument((model) => {
    const settings = { temperature: 0, maxTokens: 6, device: 'wasm', lastModel: model };
    if (location.protocol.startsWith('http')) localStorage['tern-chat-settings'] ??= JSON.stringify(settings);
  }, `${server.url}/oracles/${sees}/`);
  await page.goto(`${server.url}/chat/`);
  await page.raw.waitForFunction(() => document.querySelector('#device')?.textContent?.length > 3, { timeout: 300_000, polling: 50 });
  await page.run(async (url) => {
    const file = new File([await (await fetch(url)).blob()], 'image.png', { type: 'image/png' });
    const data = new DataTransfer();
    data.items.add(file);
    document.querySelector('#input').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
  }, `/oracles/${sees}/image.png`);
  await page.raw.waitForSelector('#files img.image', { timeout: 300_000 });
  await page.raw.type('#input', 'What is it?');
  await page.raw.click('#send');
  await page.raw.waitForFunction(() => document.querySelector('.message.assistant .stats')?.textContent.includes('tokens/s'), { timeout: 300_000, polling: 50 });
  t.equal(await page.raw.$$eval('.message.user img.image', (all) => all.map((one) => one.naturalWidth)), [70], 'the image is shown');
  await page.reload(); // what is kept is shown again
  await page.raw.waitForSelector('.message.user img.image', { timeout: 300_000 });
  t.equal(server.violations, [], 'violations of the policy');
});
