// A module worker that loads the engine and does one job with it: what tests ask through ask.js.
//
//     { job: 'check' | 'greedy' | 'again' | 'open' | 'speed', build, threads, device, files: [{ name, url }],
//       path, ... }
//
// The engine is asked without the package around it, so that a fault is the engine's.
import { loadEngine } from '/tern/engine.js';

async function fetchSource({ name, url }) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: status ${answer.status}`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const read = (at, into) => {
    const piece = bytes.subarray(at, at + into.length);
    into.set(piece);
    return piece.length;
  };
  return { name, size: bytes.length, read };
}

// Threads are the page's (ask.js).
let nThreads = 0;
function startThread(script, start) {
  const thread = nThreads++;
  self.postMessage({ thread, script, start });
  return { terminate: () => self.postMessage({ endThread: thread }) };
}

const jobs = {
  // Every kernel variant of the module against the plain one; ladder: and what tern diagnose does.
  async check(engine, { device, ladder = false }) {
    return engine.check({ device, kernels: true, ladder, quick: true });
  },

  // texts: [{ prompt | ids | messages, maxTokens, ... }], one after another, each in a session of its
  // own. loseAfter: the GPU's device is destroyed after so many pieces of text. tellAfter: the console
  // is told then.
  async greedy(engine, { files, path, device, kv, texts, open = {} }) {
    const model = await engine.open(await Promise.all(files.map(fetchSource)), path, {
      device,
      ...open,
    });
    const results = [];
    for (const { prompt, ids, messages, loseAfter, tellAfter, ...params } of texts) {
      const session = model.session({ kv });
      let text = '';
      const logprobs = [];
      let pieces = 0;
      const took = (piece, more) => {
        text += piece;
        if (more) logprobs.push(...more);
        if (++pieces === loseAfter) for (const gpu of devices) gpu.destroy();
        if (pieces === tellAfter) console.log(`wrote ${pieces} pieces`);
      };
      const result = await session.generate(
        { prompt, ids, messages },
        { temperature: 0, ...params },
        took,
      );
      session.close();
      const { device: now } = model.info;
      results.push({ ...result, ids: [...result.ids], text, logprobs, device: now });
    }
    const info = model.info;
    model.close();
    return { info, results, memory: engine.memory() };
  },

  // Engines one after another, each of which opens the model, writes and is closed: the texts that
  // differ from the first one's, or what failed.
  async again(engine, { build, threads, files, path, text, times }) {
    const sources = await Promise.all(files.map(fetchSource));
    const different = [];
    let first;
    for (let i = 0; i < times; i++) {
      const next = await loadEngine({ build, threads, startThread });
      const model = await next.open(sources, path, { device: 'wasm' });
      let written = '';
      const { prompt, ...params } = text;
      await model.session().generate({ prompt }, { temperature: 0, ...params }, (piece) => {
        written += piece;
      });
      next.close();
      first ??= written;
      if (written !== first) different.push([i, written]);
    }
    return { first, different };
  },

  // Keeps the model open for 'speed'.
  async open(engine, { files, path, device }) {
    kept = await engine.open(await Promise.all(files.map(fetchSource)), path, { device });
    return { info: kept.info };
  },

  // Tokens a second of a prompt of nPrompt tokens and of an answer of nText, each in a new session,
  // as `tern bench` measures them.
  async speed(engine, { nPrompt, nText }) {
    const ids = (n) => Array.from({ length: n }, (_, i) => (i * 7919) % kept.info.nVocab);
    const run = async (n, maxTokens) => {
      const session = kept.session();
      const params = { temperature: 0, maxTokens, ignoreEnd: true };
      const result = await session.generate({ ids: ids(n) }, params, () => {});
      session.close();
      return result;
    };
    const speed = {};
    if (nPrompt) speed.prompt = nPrompt / (await run(nPrompt, 1)).promptSeconds;
    if (nText) {
      const { nGenerated, generateSeconds } = await run(1, nText);
      speed.text = nGenerated / generateSeconds;
    }
    return speed;
  },
};
let kept; // by 'open'

// Every device that anybody asks for, so that a test can lose it.
const devices = [];
if (self.GPUAdapter) {
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    devices.push(await requestDevice.apply(this, args));
    return devices.at(-1);
  };
}

let engine; // loaded with the first question

self.onmessage = async ({ data: { job, ...question } }) => {
  try {
    const { build, threads } = question;
    engine ??= await loadEngine({ build, threads, startThread });
    const answer = await jobs[job](engine, question);
    self.postMessage({ engine: { build: engine.build, threads: engine.threads }, ...answer });
  } catch (e) {
    self.postMessage({ error: `${e.code ?? e.name}: ${e.message}\n${e.stack}` });
  }
};
