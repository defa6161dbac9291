// What tests ask of the package in a page: functions that take and give JSON. Import it in the page:
//     page.run(async (...) => (await import('/tests/package.js')).load(...), ...)
import { Tern } from '/tern/index.js';

const problem = (e) => ({ code: e.code, name: e.name, message: String(e.message) });

// Options of Tern.load, and: text {prompt, maxTokens}: written greedily after loading; abortAfter:
// the signal fires after so many seconds; keep: leave it open as self.tern.
// -> { info, text, ids, phases: [{phase, loaded, total}] of each last report, seconds } or { error }.
export async function load(source, { text, abortAfter, keep, ...options } = {}) {
  const began = performance.now();
  const phases = [];
  const stop = new AbortController();
  let abortedAt;
  const retries = [];
  const onProgress = ({ phase, loaded, total, reason }) => {
    if (phase === 'retry') retries.push(reason);
    if (phases.at(-1)?.phase === phase) phases.pop();
    phases.push({ phase, loaded, total });
  };
  if (abortAfter !== undefined)
    setTimeout(() => {
      abortedAt = performance.now();
      stop.abort();
    }, abortAfter * 1000);
  const seconds = () => (performance.now() - began) / 1000;
  let tern;
  try {
    tern = await Tern.load(source, { device: 'wasm', ...options, onProgress, signal: stop.signal });
    const { prompt, ...params } = text ?? {};
    const output = text && (await tern.generate(prompt, { ...params, temperature: 0 }));
    const { info, device } = tern;
    if (keep) self.tern = tern;
    else await tern.close();
    return { info, device, text: output?.text, ids: output?.ids, phases, seconds: seconds() };
  } catch (e) {
    await tern?.close();
    const afterAbort = abortedAt && (performance.now() - abortedAt) / 1000;
    return { error: problem(e), phases, retries, afterAbort, seconds: seconds() };
  }
}

// Several loads of one model at once, in workers of their own. -> the errors
export async function loadTogether(sources, options) {
  const loads = sources.map((source) => Tern.load(source, { device: 'wasm', threads: 1, ...options }));
  const done = await Promise.allSettled(loads);
  for (const one of done) await one.value?.close();
  return done.filter((one) => one.reason).map((one) => problem(one.reason));
}

// A source that cannot be sent to a page: made there from a file of the test server.
export async function loadAs(kind, url, options) {
  const bytes = await (await fetch(url)).arrayBuffer();
  const name = url.split('/').at(-1);
  const sources = {
    file: () => new File([bytes], name),
    files: () => [new File([bytes], name)],
    blob: () => new Blob([bytes]),
    buffer: () => bytes,
    bytes: () => new Uint8Array(bytes),
  };
  return load(sources[kind](), options);
}

export const list = () => Tern.models.list().then((all) => JSON.parse(JSON.stringify(all)));
export const estimate = () => Tern.models.estimate();
export const has = (id) => Tern.models.has(id);
export async function remove(id) {
  try {
    return { removed: await Tern.models.delete(id) };
  } catch (e) {
    return { error: problem(e) };
  }
}

// ---- What lies in the origin's private files --------------------------------------------------

async function* walk(folder, prefix = '') {
  for await (const [name, entry] of folder.entries())
    if (entry.kind === 'directory') yield* walk(entry, `${prefix}${name}/`);
    else yield [prefix + name, entry];
}

export async function storedFiles() {
  const found = [];
  for await (const [path, entry] of walk(await navigator.storage.getDirectory()))
    found.push({ path, size: (await entry.getFile()).size });
  return found;
}

async function largest() {
  let most;
  for await (const [, entry] of walk(await navigator.storage.getDirectory())) {
    const { size } = await entry.getFile();
    if (!most || size > most.size) most = { entry, size };
  }
  return most.entry;
}

// Changes the lowest bit of a byte of the largest stored file: the model.
export async function damage(at) {
  const entry = await largest();
  const byte = new Uint8Array(await (await entry.getFile()).slice(at, at + 1).arrayBuffer());
  byte[0] ^= 1;
  const writer = await entry.createWritable({ keepExistingData: true });
  await writer.write({ type: 'write', position: at, data: byte });
  await writer.close();
}

// Cuts the end of the largest stored file off.
export async function shorten(to) {
  const writer = await (await largest()).createWritable({ keepExistingData: true });
  await writer.truncate(to);
  await writer.close();
}

export async function storedHash() {
  const bytes = await (await (await largest()).getFile()).arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(hash, (b) => b.toString(16).padStart(2, '0')).join('');
}

// ---- Conversations with what load(..., { keep: true }) left open -----------------------------

export const complete = async (params) => {
  try {
    return JSON.parse(JSON.stringify(await self.tern.chat.completions.create(params)));
  } catch (e) {
    return { error: problem(e) };
  }
};

// A streamed answer, put together; abortAfter: aborted by the stream's own controller after so many
// chunks that had text.
export async function stream(params, abortAfter = Infinity) {
  const chunks = await self.tern.chat.completions.create({
    ...params,
    stream: true,
    stream_options: { include_usage: true },
  });
  const seen = { text: '', role: undefined, finish: null, usage: null, withText: 0, objects: [] };
  let abortedAt;
  try {
    for await (const chunk of chunks) {
      if (!seen.objects.includes(chunk.object)) seen.objects.push(chunk.object);
      const { delta, finish_reason: finish } = chunk.choices[0] ?? { delta: {} };
      seen.role ??= delta.role;
      seen.finish = finish ?? seen.finish;
      seen.usage = chunk.usage ?? seen.usage;
      if (!delta.content) continue;
      seen.text += delta.content;
      if (++seen.withText === abortAfter) {
        abortedAt = performance.now();
        chunks.controller.abort();
      }
    }
  } catch (e) {
    seen.error = problem(e);
  }
  return { ...seen, afterAbort: abortedAt && (performance.now() - abortedAt) / 1000 };
}

// An object, and how many parts of it were seen on the way.
export async function object(prompt, options) {
  const stream = self.tern.streamObject(prompt, options);
  let n = 0;
  try {
    for await (const part of stream) n += typeof part === 'object';
    const { text, object } = await stream.output;
    return { n, text, object };
  } catch (e) {
    return { n, error: problem(e) };
  }
}

// A memory in a worker of its own, which ends with the answer unless it stays open.
export const memory = (question) =>
  new Promise((resolve, reject) => {
    const worker = new Worker('/tests/memory_worker.js', { type: 'module' });
    worker.onerror = (e) => reject(new Error(e.message));
    worker.onmessage = ({ data }) => {
      if (!question.leave) worker.terminate();
      resolve(data);
    };
    worker.postMessage(question);
  });

// What a service worker that wants a model is told; null: there are none here.
export async function inServiceWorker() {
  if (!navigator.serviceWorker) return null;
  const registration = await navigator.serviceWorker.register('/tests/service_worker.js', { type: 'module' });
  await navigator.serviceWorker.ready;
  const { port1, port2 } = new MessageChannel();
  const said = new Promise((done) => (port1.onmessage = ({ data }) => done(data)));
  registration.active.postMessage(null, [port2]);
  try {
    return await said;
  } finally {
    await registration.unregister();
  }
}

// A callback that throws, beside another call. -> the errors' texts or the texts
export async function throwingCallback(prompt) {
  const uncaught = [];
  addEventListener('error', (e) => uncaught.push(e.message));
  const onText = () => {
    throw new RangeError('mine');
  };
  const options = { temperature: 0, maxTokens: 32 };
  const both = [self.tern.generate(prompt, { ...options, onText }), self.tern.generate(prompt, options)];
  const [first, second] = await Promise.allSettled(both);
  return { failed: String(first.reason), text: second.value?.text, uncaught };
}

// U+FEFF among others, through the module and back.
export const roundTrip = async (text) => self.tern.detokenize(await self.tern.tokenize(text, { bos: false }));

export async function close() {
  await self.tern.close();
}

// Frames that the page drew while an answer was written, and the longest time between two.
export async function framesDuring(params) {
  let going = true;
  let frames = 0;
  let longest = 0;
  let last = performance.now();
  const frame = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
    frames++;
    if (going) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  const answer = await self.tern.chat.completions.create(params);
  going = false;
  return { frames, longest, usage: answer.usage };
}

// Seconds from the page's beginning to the first text, the model being in storage.
export async function firstToken(source, prompt) {
  const tern = await Tern.load(source, { device: 'wasm' });
  let first;
  const onText = () => (first ??= performance.now() / 1000);
  await tern.generate(prompt, { maxTokens: 4, temperature: 0, onText });
  await tern.close();
  return first;
}
