// A stand-in for the package's front door, for working on the pages without modules: it writes Markdown of
// its own at a steady speed, and fails where the source's name says so. Never part of what is built.
const TEXT = `Here is **what** I can do, as a list:

- plain text, *emphasis*, \`code\` and [links](https://example.org/)
- a table and a block of code

| kernel | speed |
|:--|--:|
| scalar | 25 |
| SIMD | 1150 |

\`\`\`js
const answer = 6 * 7; // a comment that is long enough to reach beyond the edge of a narrow screen
\`\`\`

> And <b>no HTML</b>: <img src=x onerror=alert(1)>

1. First
2. Second

That is all.`;
const STORY =
  ' there lived a small white bird who wanted to see the whole world. Every morning she flew a little further than the day before, and every evening she came home with a new story to tell.';

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
class TernError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = 'TernError';
  }
}
const stored: Record<string, unknown>[] = JSON.parse(localStorage.getItem('fake-models') ?? '[]');
const keep = () => localStorage.setItem('fake-models', JSON.stringify(stored));

async function write(text: string, options: any) {
  const from = performance.now();
  await sleep(150);
  const words = text.match(/\s*\S+/g)!.slice(0, options.maxTokens ?? 1e9);
  for (const word of words) {
    if (options.signal?.aborted) throw new TernError('aborted', 'aborted by the caller');
    options.onText?.(word);
    await sleep(12);
  }
  const seconds = (performance.now() - from) / 1000;
  return {
    text: words.join(''),
    ids: [],
    finishReason: 'stop',
    reason: 'end',
    seed: 1,
    dropped: 0,
    usage: {
      prompt_tokens: 30,
      completion_tokens: words.length,
      total_tokens: 30 + words.length,
      prompt_tokens_details: { cached_tokens: 12 },
      completion_tokens_details: { reasoning_tokens: 0 },
    },
    timings: {
      predicted_per_second: words.length / seconds,
      predicted_n: words.length,
      predicted_ms: seconds * 1000,
      prompt_n: 18,
      prompt_ms: 20,
      prompt_per_second: 900,
    },
  };
}

export class Tern {
  device = 'cpu wasm-relaxed, 1 thread';
  info: any;
  static async load(source: any, options: any = {}) {
    const id = typeof source === 'string' ? source : (source.name ?? source[0].name);
    const total = id.includes('stories') ? 9.5e6 : 1.2e9;
    const entry: any = stored.find((one) => one.id === id) ?? {
      id,
      url: id,
      size: total,
      stored: 0,
      complete: false,
      lastUsed: Date.now(),
    };
    if (typeof source === 'string' && !stored.includes(entry)) stored.push(entry);
    const steps = id.includes('stories') ? 5 : 60;
    for (let i = Math.floor((entry.stored / total) * steps); i <= steps && !entry.complete; i++) {
      if (options.signal?.aborted) throw new TernError('aborted', 'aborted');
      if (id.includes('broken') && i === 10)
        throw new TernError(
          'network',
          'https://example.org/broken.gguf: the connection was lost after 200 MB.',
        );
      entry.stored = (total * i) / steps;
      keep();
      options.onProgress?.({
        phase: 'download',
        loaded: entry.stored,
        total,
        fraction: i / steps,
        bytesPerSecond: 34e6,
      });
      await sleep(50);
    }
    entry.complete = true;
    entry.lastUsed = Date.now();
    keep();
    options.onProgress?.({ phase: 'open', loaded: 0, total: 0, fraction: 0.5, bytesPerSecond: 0 });
    await sleep(100);
    const tern = new Tern();
    tern.info = {
      id,
      path: id,
      architecture: 'bitnet-b1.58',
      name: 'tern',
      device: tern.device,
      deviceReason: 'this browser has no WebGPU',
      nParams: 22.6e6,
      fileBytes: total,
      context: 1024,
      loadSeconds: 0.12,
      storage: 'opfs',
      notes: [],
      files: [],
      templateGuess: id.includes('base') ? 'Turns are written as User: and Assistant:.' : null,
      temperature: null,
      topP: null,
      topK: null,
      minP: null,
      repeatPenalty: null,
    };
    return tern;
  }
  chat = (messages: any[], options: any) => write(TEXT, options);
  generate = (prompt: string, options: any) => write(STORY, options);
  countTokens = async (text: string) => Math.ceil(String(text).length / 4);
  close = async () => {};
  static models = {
    list: async () => stored.map((one: any) => ({ ...one, lastUsed: new Date(one.lastUsed) })),
    delete: async (id: string) => {
      stored.splice(
        stored.findIndex((one) => one.id === id),
        1,
      );
      keep();
    },
    has: async (id: string) => stored.some((one) => one.id === id && one.complete),
    estimate: async () => ({ usage: 2.4e9, quota: 12e9, models: 2.3e9, persisted: true }),
  };
  static async diagnose({ device, onItem }: any) {
    onItem?.({ check: 'bitnet, 3 tokens', ok: true });
    await sleep(400);
    const item = (name: string, ok = true) => ({ name, ok, detail: 'values within 0.0e+00', seconds: 0.03 });
    return {
      build: 'relaxed',
      device: device === 'webgpu' ? 'webgpu SwiftShader' : 'cpu wasm-relaxed, 1 thread',
      nFailed: 0,
      notes: [],
      kernels: [item('matmul i2s'), item('attention f16')],
      ladder: [
        { fact: 'kernels', value: 'relaxed' },
        { check: 'bitnet, 3 tokens', ok: true, detail: 'values within 0.0e+00', seconds: 0.1 },
      ],
    };
  }
}
