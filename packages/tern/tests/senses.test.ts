// Images in conversations, and sounds, by way of the front door.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Connection } from '../src/client.js';
import type { TernInfo } from '../src/api.js';
import type { TranscribedSegment } from '../src/engine/types.js';
import { chatInput } from '../src/chat/content.js';
import { Host, serve } from '../src/host.js';
import { decodeImage, portableImage } from '../src/images.js';
import { localPorts } from '../src/protocol.js';
import { samplesOf } from '../src/sounds.js';
import { fakeEngine, newSeen, type Seen } from './fake-engine.js';

// The front of a GGUF file of one key, and of what follows.
function gguf(architecture: string, more = ''): Uint8Array {
  const u64 = (n: number) => String.fromCharCode(n, 0, 0, 0, 0, 0, 0, 0);
  const key = 'general.architecture';
  const text = `GGUF\u0003\0\0\0${u64(0)}${u64(1)}${u64(key.length)}${key}\u0008\0\0\0${u64(architecture.length)}${architecture}${more}`;
  return Uint8Array.from(text, c => c.charCodeAt(0));
}

const SPEAKS = gguf('lfm2', 'lfm2.speech.text_tokens');
async function open(source: Uint8Array, codec?: Uint8Array): Promise<{ connection: Connection; seen: Seen; info: Omit<TernInfo, 'worker'> }> {
  const { client, host } = localPorts(), connection = new Connection(client), seen = newSeen();
  serve(host, new Host(fakeEngine(seen)));
  const info = await connection.call('load', { source, options: { cache: false, ...(codec ? { codec } : { device: 'wasm' }) } });
  return { connection, seen, info };
}
const image = (width: number, height: number) => ({ width, height, data: new Uint8Array(3 * width * height).fill(width) });

// Seen to fail: with a second engine for models that see or hear.
test('every model gets the one engine', async () => {
  for (const one of ['llama', 'vit', 'moonshine', 'nanocodec']) assert.equal((await open(gguf(one))).seen.engines, 1, one);
  assert.equal((await open(gguf('moonshine'))).seen.opened, 0, 'a session for a model that transcribes');
});

test('parts of messages: texts, and images in their order', () => {
  const one = image(1, 1), address = 'https://example.org/a.png';
  const { request, images } = chatInput([
    { role: 'system', content: 's' },
    { role: 'user', content: [{ type: 'image', image: one }, { type: 'text', text: 'a' },
      { type: 'image_url', image_url: { url: address, detail: 'low' } }] }]);
  assert.deepEqual(request!.messages[1], { role: 'user', content: [{ type: 'image' }, { type: 'text', text: 'a' }, { type: 'image' }] });
  assert.deepEqual(images, [{ image: one, maxPixels: 0 }, { image: address, maxPixels: 262144 }]);
  assert.deepEqual(chatInput([{ role: 'user', content: [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }] }]),
    { messages: [{ role: 'user', content: 'ab' }] });
  assert.throws(() => chatInput([{ role: 'assistant', content: [{ type: 'image', image: one }] }]), { code: 'argument' });
  assert.throws(() => chatInput([{ role: 'user', content: [{ type: 'input_audio' } as never] }]), { code: 'unsupported' });
  assert.throws(() => chatInput([{ role: 'user', content: [{ type: 'image_url', image_url: {} as never }] }]), { code: 'argument' });
});

test('images stand in the prompt where the template puts them', async () => {
  const { connection, seen } = await open(gguf('vit'));
  const input = chatInput([{ role: 'user', content: [
    { type: 'text', text: 'a' }, { type: 'image', image: image(2, 1) }, { type: 'text', text: 'b' }, { type: 'image', image: image(1, 3) }] }]);
  let text = '';
  await connection.call('generate', { input, params: {} }, { onEvent: event => { text += event.text; } });
  assert.equal(text, 'You said: aPPbPPP');
  assert.deepEqual(seen.images.map(({ width, height }) => [width, height]), [[2, 1], [1, 3]]);
  assert.equal(seen.imageTokens, 0, 'images are left open'); // seen to fail without prompt.close()
  await assert.rejects(connection.call('generate', { input: chatInput([{ role: 'user',
    content: [{ type: 'text', text: 'fail trap ' }, { type: 'image', image: image(1, 1) }] }]), params: {} }));
  assert.equal(seen.imageTokens, 0, 'images are left open after a failure');
});

test('turns that no longer fit are left out, and their images', async () => {
  const { connection, seen } = await open(gguf('vit'));
  const turn = (n: number) => [
    { role: 'user', content: [{ type: 'image', image: image(n, 10) }, { type: 'text', text: `${n}` }] } as const,
    { role: 'assistant', content: 'yes' }];
  const input = chatInput([{ role: 'system', content: 's' }, ...turn(20), ...turn(17), turn(15)[0]!]);
  let text = '';
  const result = await connection.call('generate', { input, params: { maxTokens: 100 } }, { onEvent: event => { text += event.text; } });
  assert.equal(result.nDropped, 2); // 520 tokens of images; the context has 512. Seen to fail when the first images stay
  assert.equal(result.nPrompt - 320, '<system>s<user>17<assistant>yes<user>15<assistant>'.length);
  assert.equal(text, `You said: ${'P'.repeat(150)}15`);
  assert.equal(seen.imageTokens, 0);
});

test('a model that reads texts alone says so', async () => {
  const { connection } = await open(gguf('llama'));
  const input = chatInput([{ role: 'user', content: [{ type: 'image', image: image(1, 1) }] }]);
  await assert.rejects(connection.call('generate', { input, params: {} }), { code: 'unsupported' });
});

test('labels and vectors of images', async () => {
  const { connection } = await open(gguf('vit'));
  const labels = await connection.call('classify', { images: [image(3, 1), image(4, 1)], hits: 1 });
  assert.deepEqual(labels.map(([first]) => first!.label), ['3', '4']);
  assert.deepEqual([...(await connection.call('embedImages', { images: [image(3, 1)] })).vectors], [3, 1]);
});

test('segments come as they are written down, and can be stopped', async () => {
  const { connection, seen } = await open(gguf('moonshine'));
  const samples = new Float32Array(100), words: string[] = [];
  await connection.call('transcribe', { samples, rate: 16000, params: { whole: true } }, { onEvent: ({ text }) => words.push(text) });
  assert.deepEqual(words, ['one', 'two', 'three']);
  assert.deepEqual(seen.transcribed, [{ n: 100, rate: 16000, params: { whole: true } }]);
  const stop = new AbortController(), heard: string[] = [];
  await assert.rejects(connection.call('transcribe', { samples, rate: 16000, params: {} }, {
    signal: stop.signal, onEvent: ({ text }) => {
      heard.push(text);
      stop.abort();
    },
  }), { code: 'aborted' });
  assert.deepEqual(heard, ['one']);
});

test('a sound that is still being made', async () => {
  const { connection } = await open(gguf('moonshine')), heard: TranscribedSegment[] = [];
  const onEvent = (segment: TranscribedSegment): void => void heard.push(segment);
  const [one, two] = await Promise.all([true, false].map(partial => connection.call('transcriber', { params: { partial } })));
  await connection.call('transcriberFeed', { id: one!, samples: new Float32Array(3) }, { onEvent });
  await connection.call('transcriberFeed', { id: two!, samples: null }, { onEvent });
  assert.deepEqual(heard.map(({ text, partial = false }) => [text, partial]), [['3', true], ['3', false], ['end', false]]);
  await connection.call('transcriberClose', { id: one! });
  await assert.rejects(connection.call('transcriberFeed', { id: one!, samples: null }), { code: 'closed' });
  await connection.call('transcriberFeed', { id: two!, samples: null });
});

test('what is said comes in pieces, and can be stopped', async () => {
  const { connection, seen, info } = await open(SPEAKS, gguf('nanocodec'));
  assert.deepEqual([info.media.nSpeaker, info.codec!.codecRate, info.context], [6, 22050, 0]);
  assert.equal(seen.opened, 0, 'a session for a model that speaks');
  assert.equal(seen.open!.device, 'wasm', 'a codec on a GPU');
  const pieces: number[][] = [], params = { voice: 'andrew', speed: 2 };
  const stats = await connection.call('speak', { text: 'a', params }, { onEvent: samples => pieces.push([...samples]) });
  assert.deepEqual(pieces, [[1], [2, 2], [3, 3, 3], [4, 4, 4, 4]]);
  assert.deepEqual([stats.rate, seen.spoken], [22050, [{ text: 'a', params, pieces: 4 }]]);
  const stop = new AbortController();
  await assert.rejects(connection.call('speak', { text: [1, 2], params: {} }, { signal: stop.signal, onEvent: () => stop.abort() }),
    { code: 'aborted' });
  assert.equal(seen.spoken[1]!.pieces, 1); // seen to fail when the signal is not passed on
  await assert.rejects((await open(SPEAKS)).connection.call('speak', { text: 'a', params: {} }), { code: 'argument' });
  await assert.rejects(open(SPEAKS, gguf('vit')), { code: 'unsupported', message: /not a codec/ });
});

test('where there are no decoders that is said', async () => {
  await assert.rejects(decodeImage(new Blob(['a'])), { code: 'unsupported' });
  await assert.rejects(decodeImage('data:image/png;base64,AA=='), { code: 'unsupported' });
  await assert.rejects(decodeImage('data:no comma'), { code: 'argument' });
  await assert.rejects(decodeImage('ftp://a/b'), { code: 'argument' });
  const pixels = image(1, 1);
  assert.equal(await decodeImage(pixels), pixels);
  assert.equal(portableImage(new URL('https://example.org/a.png')), 'https://example.org/a.png');
  const samples = new Float32Array(3);
  assert.equal(await samplesOf(samples, undefined, 16000), samples);
  await assert.rejects(samplesOf(samples, 8000, 16000), { code: 'unsupported' });
  await assert.rejects(samplesOf(new Blob(['a']), undefined, 16000), { code: 'unsupported' });
  await assert.rejects(samplesOf([1, 2] as never, undefined, 16000), { code: 'argument' });
});
