// What tests ask of models that see and hear, in a page: functions that take and give JSON.
import { Tern } from '/tern/index.js';
import { Microphone } from '/tern/microphone.js';

const fetched = async (url) => (await fetch(url)).blob();
const problem = (e) => ({ code: e.code, message: String(e.message) });
const dataUrl = (blob) =>
  new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.readAsDataURL(blob);
  });

// The labels of images at addresses, and of the last one given in every other way.
export async function classify(model, urls, options = {}) {
  const tern = await Tern.load(model, { device: 'wasm', ...options });
  const last = urls.at(-1);
  const blob = await fetched(last);
  const bitmap = await createImageBitmap(blob);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d');
  canvas.drawImage(bitmap, 0, 0);
  const pixels = canvas.getImageData(0, 0, bitmap.width, bitmap.height);
  const ways = [blob, await dataUrl(blob), URL.createObjectURL(blob), bitmap, pixels];
  const labels = await tern.classify([...urls, ...ways], { hits: 5 });
  const { media, device } = tern.info;
  const failure = await tern.classify('/none.png').catch(problem);
  const broken = await tern.classify(new Blob(['no image'])).catch(problem);
  await tern.close();
  return { of: labels.slice(0, urls.length), ways: labels.slice(urls.length), media, device, failure, broken };
}

// The greedy tokens after an image and a question; asked again, with OpenAI's names.
export async function look(model, url, question, maxTokens, options = {}) {
  const tern = await Tern.load(model, { device: 'wasm', ...options });
  const image = { type: 'image', image: await fetched(url) };
  const content = [image, { type: 'text', text: question }];
  const params = { maxTokens, temperature: 0, ignoreEnd: true };
  const first = await tern.chat([{ role: 'user', content }], params);
  const part = { type: 'image_url', image_url: { url } };
  const again = await tern.chat.completions.create({
    messages: [{ role: 'user', content: [part, content[1]] }],
    max_tokens: maxTokens, temperature: 0, ignore_eos: true,
  });
  const { device } = tern.info;
  await tern.close();
  return { ids: first.ids, usage: first.usage, again: again.usage, device, same: again.choices[0].message.content === first.text };
}

// What is said in a file, given as it is, as samples of another rate, and as an AudioBuffer; and that a long one, five
// times the same with a pause, can be stopped after its first segment.
export async function hear(model, url) {
  const tern = await Tern.load(model, { device: 'wasm' });
  const file = await fetched(url);
  const buffer = await new OfflineAudioContext(1, 1, 16000).decodeAudioData(await file.arrayBuffer());
  const samples = buffer.getChannelData(0);
  const slow = new OfflineAudioContext(1, 1, 48000).decodeAudioData(await file.arrayBuffer());
  const ids = async (sound, options) => (await tern.transcribe(sound, options)).segments.map((one) => one.ids);
  const all = { file: await ids(file), samples: await ids(samples), buffer: await ids(buffer), slow: (await ids(await slow)).length };
  const long = new Float32Array(400 * 16000);
  for (let at = 0; at + samples.length < long.length; at += 8 * 16000) long.set(samples, at);
  const stop = new AbortController();
  let n = 0;
  const onSegment = () => ++n === 1 && stop.abort();
  const stopped = await tern.transcribe(long, { onSegment, signal: stop.signal, secondsMax: 2 }).catch(problem);
  const again = await ids(samples);
  await tern.close();
  return { ...all, stopped, n, again };
}

// Frames of the microphone: how many, and how often they cross zero a second.
export async function listen(nFrames, options = {}) {
  const frames = [];
  let enough;
  const done = new Promise((resolve) => (enough = resolve));
  const onFrame = (frame) => frames.push(Array.from(frame)) === nFrames && enough();
  const microphone = await Microphone.open({
    onFrame, echoCancellation: false, noiseSuppression: false, autoGainControl: false, ...options,
  });
  await done;
  microphone.close();
  const samples = frames.slice(nFrames / 2).flat();
  let crossings = 0;
  for (let i = 1; i < samples.length; i++) crossings += samples[i - 1] < 0 !== samples[i] < 0;
  return {
    lengths: [...new Set(frames.map((frame) => frame.length))],
    hertz: crossings / 2 / (samples.length / microphone.rate),
    loudest: Math.max(...samples),
  };
}

// What a text's tokens sound like.
export async function speak(model, codec, ids, options, params) {
  const tern = await Tern.load(model, { codec, ...options });
  const pieces = [];
  const speech = tern.speak(ids, params);
  for await (const piece of speech) pieces.push(Array.from(piece));
  const { info } = tern, { nFrames } = await speech.stats;
  await tern.close();
  return { samples: pieces.flat(), pieces: pieces.length, nFrames, device: info.device, codecDevice: info.codec.device };
}
