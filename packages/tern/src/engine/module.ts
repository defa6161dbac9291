// The module: which of the three, how it is loaded, and calls into it with text and JSON.
import { builtin, isFirefox, workerFile } from '../platform.js';
import { TernError, type ErrorCode } from './error.js';
import { Gpu, type Shaders } from './gpu.js';
import { suspending } from './jspi.js';
import { startPool, type Pool } from './pool.js';
import { workingBuilds } from './probe.js';
import { nextTask } from './task.js';
import type { Build, EngineOptions, ModelCalls } from './types.js';
import { Files } from './wasi.js';

const PAGE = 65536;
const PAGES_MAX = 65536; // 4 GB
const PAGES_MIN = 64;
const THREADS_MAX = 16;

interface OwnExports {
  memory?: WebAssembly.Memory;
  _initialize(): void;
  threads_ready(): number;
  web_alloc(n: number): number;
  web_free(block: number): void;
  web_error(): number;
  web_result(): number;
  web_result_bytes(): number;
  web_memory(): number;
  web_open(json: number, n: number): number;
  web_open_poll(id: number): number;
  web_open_cancel(id: number): void;
  web_model_info(model: number): number;
  web_metadata(model: number, json: number, n: number): number;
  web_model_close(model: number): number;
  web_tokenize(model: number, json: number, n: number): number;
  web_chat_tokens(model: number, json: number, n: number): number;
  web_request_tokens(model: number, json: number, n: number): number;
  web_session_open(model: number, json: number, n: number): number;
  web_session_close(session: number): number;
  web_session_info(session: number): number;
  web_grammar_open(model: number, json: number, n: number): number;
  web_grammar_close(id: number): number;
  web_embed(model: number, json: number, n: number): number;
  web_embed_poll(id: number): number;
  web_embed_vectors(id: number): number;
  web_embed_close(id: number): number;
  // Exports that may return a promise may be suspended:
  web_images_place(model: number, json: number, n: number): number;
  web_image_close(id: number): number;
  web_see(model: number, json: number, n: number): number | Promise<number>;
  web_speak(model: number, json: number, n: number): number;
  web_speak_close(id: number): number;
  web_speak_next(id: number): number | Promise<number>;
  web_transcriber(model: number, json: number, n: number): number;
  web_transcriber_close(id: number): number;
  web_transcriber_feed(id: number, samples: number, nSamples: number): number | Promise<number>;
  web_transcriber_end(id: number): number | Promise<number>;
  web_generate(session: number, json: number, n: number): number;
  web_step(model: number): number;
  web_cancel(session: number): number;
  // Only in the checking modules:
  web_check(json: number, n: number): number | Promise<number>;
  web_kernels_next(): number;
}

type Snake<S extends string> = S extends `${infer H}${infer T}` ? `${H extends Lowercase<H> ? H : `_${Lowercase<H>}`}${Snake<T>}` : S;
export type Exports = OwnExports & { [C in keyof ModelCalls as `web_${Snake<C>}`]: (...args: number[]) => number | Promise<number> };

// The module's callbacks while it runs.
export interface ModuleCallbacks {
  text(session: number, text: string): void;
  part(session: number, kind: number, call: number, text: string): void;
  logprobs(session: number, json: string): void;
  end(session: number, json: string): void;
  prompt(session: number, fraction: number): boolean; // false: stop
  logits(session: number, logits: Float32Array, ids: Int32Array): number; // a token, or one of LOGITS
  log(level: number, line: string): void;
  progress(opening: number, fraction: number, phase: string): boolean; // false: stop
  report(text: string): void;
  segment(json: string): boolean; // false: stop; '': only asks whether to stop
}
export const LOGITS = { sample: -1, stop: -2 } as const; // TERN_LOGITS_...
export const NO_CALLBACKS: ModuleCallbacks = { text() {}, part() {}, logprobs() {}, end() {}, prompt: () => true, logits: () => LOGITS.sample, log() {}, progress: () => true, report() {}, segment: () => true };

// The names of tern_status, in order.
const CODES: ErrorCode[] = ['trap', 'memory', 'io', 'format', 'unsupported', 'argument', 'context', 'aborted', 'device'];
export const codeOf = (status: number): ErrorCode => CODES[status] ?? 'trap';

export class Module {
  readonly files: Files;
  readonly gpu: Gpu;
  exports!: Exports;
  pool: Pool | undefined;
  note: string | null = null; // why it is not the best one
  #memory!: WebAssembly.Memory;
  #encoder = new TextEncoder();
  #decoder = new TextDecoder('utf-8', { ignoreBOM: true }); // U+FEFF is a character like others

  private constructor(readonly build: Build, options: EngineOptions) {
    this.files = new Files(() => this.#memory, options.state);
    this.gpu = new Gpu(() => this.#memory, options.gpu as GPU | undefined, () => loadShaders(options));
  }

  static async load(options: EngineOptions, callbacks: ModuleCallbacks): Promise<Module> {
    const working = workingBuilds();
    const one = options.threads === 1 || (options.threads === undefined && isFirefox() && !options.startThread);
    const build = options.build ?? (one && working[0] === 'threads' ? 'relaxed' : working[0]!);
    if (!working.includes(build)) throw new TernError('unsupported', refusal(build));
    const load = async (kind: Build): Promise<Module> =>
      new Module(kind, options).#start(options.wasmModule ?? (await compile(FILES[kind], options)), options, callbacks);
    try {
      return await load(build);
    } catch (error) {
      const goesOn = build === 'threads' && options.build === undefined && !options.wasmModule;
      if (!goesOn || options.signal?.aborted || !(error instanceof TernError)) throw error;
      const relaxed = await load('relaxed');
      relaxed.note = `one thread: ${error.message}`;
      return relaxed;
    }
  }
  // The module that checks a build: the same kernels and more, in one thread.
  static async loadChecks(build: Build, options: EngineOptions, callbacks: ModuleCallbacks): Promise<Module> {
    const kind = build === 'simd' ? 'simd' : 'relaxed';
    return new Module(kind, options).#start(await compile(CHECKS[kind], options), options, callbacks);
  }

  async #start(module: WebAssembly.Module, options: EngineOptions, callbacks: ModuleCallbacks): Promise<Module> {
    const { imports, memory } = this.#imports(module, callbacks);
    const instance = await WebAssembly.instantiate(module, imports);
    this.exports = instance.exports as unknown as Exports;
    this.#memory = memory ?? this.exports.memory!;
    this.exports._initialize();
    if (this.build === 'threads') await this.#startThreads(module, options);
    return this;
  }

  #imports(module: WebAssembly.Module, callbacks: ModuleCallbacks): { imports: WebAssembly.Imports; memory?: WebAssembly.Memory } {
    const imports: WebAssembly.Imports = {
      wasi_snapshot_preview1: this.files.importsOf(module),
      gpu: this.gpu.imports,
      web: {
        text: (session: number, at: number, n: number) => callbacks.text(session, this.text(at, n)),
        part: (session: number, kind: number, call: number, at: number, n: number) =>
          callbacks.part(session, kind, call, this.text(at, n)),
        logprobs: (session: number, at: number, n: number) => callbacks.logprobs(session, this.text(at, n)),
        end: (session: number, at: number, n: number) => callbacks.end(session, this.text(at, n)),
        prompt: (session: number, fraction: number) => callbacks.prompt(session, fraction) ? 1 : 0,
        // The scores are in the module's memory, where they may be changed.
        logits: (session: number, at: number, n: number, ids: number, nIds: number) => callbacks.logits(session,
          new Float32Array(this.#memory.buffer, at >>> 0, n), new Int32Array(this.#memory.buffer, ids >>> 0, nIds).slice()),
        log: (level: number, at: number, n: number) => callbacks.log(level, this.text(at, n)),
        report: (at: number, n: number) => callbacks.report(this.text(at, n)),
        progress: (opening: number, fraction: number, at: number, n: number) =>
          callbacks.progress(opening, fraction, this.text(at, n)) ? 1 : 0,
        segment: suspending(async (at, n) => { // lets an abort arrive first
          const goesOn = callbacks.segment(this.text(at, n));
          await nextTask();
          return goesOn && callbacks.segment('') ? 1 : 0;
        }, (at, n) => callbacks.segment(this.text(at, n)) ? 1 : 0),
      },
    };
    if (this.build !== 'threads') return { imports };
    const memory = sharedMemory();
    imports['env'] = { memory };
    this.#memory = memory;
    return { imports, memory };
  }

  async #startThreads(module: WebAssembly.Module, options: EngineOptions): Promise<void> {
    const cores = globalThis.navigator?.hardwareConcurrency ?? 2;
    const n = Math.min(options.threads || cores, THREADS_MAX) - 1;
    this.pool = await startPool({
      module, memory: this.#memory, n,
      script: options.threadScript ?? { url: workerFile(), type: 'module' },
      alloc: (bytes) => this.alloc(bytes), ready: () => this.exports.threads_ready(), signal: options.signal,
      startThread: isFirefox() ? options.startThread : undefined,
    });
  }

  get threads(): number { return 1 + (this.pool?.size ?? 0); }
  get memoryBytes(): number { return this.#memory.buffer.byteLength; }

  // ---- Text ----------------------------------------------------------------------------------

  alloc(n: number): number {
    const at = this.exports.web_alloc(n) >>> 0;
    if (at === 0) throw new TernError('memory', `out of memory (${n} bytes wanted)`);
    return at;
  }
  // A copy: decoders refuse shared memory.
  text(at: number, n: number): string {
    return this.#decoder.decode(new Uint8Array(this.#memory.buffer).slice(at >>> 0, (at >>> 0) + n));
  }
  error(): string {
    const at = this.exports.web_error() >>> 0, bytes = new Uint8Array(this.#memory.buffer);
    return this.text(at, bytes.indexOf(0, at) - at);
  }
  // A block with a copy of these, which the caller frees.
  put(content: Uint8Array | Float32Array): number {
    const at = this.alloc(content.byteLength);
    new Uint8Array(this.#memory.buffer).set(new Uint8Array(content.buffer, content.byteOffset, content.byteLength), at);
    return at;
  }
  floats(at: number, n: number): Float32Array<ArrayBuffer> { // a copy
    return new Float32Array(this.#memory.buffer, at >>> 0, n).slice() as Float32Array<ArrayBuffer>;
  }
  result<T>(): T { return JSON.parse(this.text(this.exports.web_result(), this.exports.web_result_bytes())) as T; }

  // Calls use(pointer, bytes) with arguments in JSON.
  withJson<T>(args: unknown, use: (at: number, n: number) => T): T {
    const bytes = this.#encoder.encode(JSON.stringify(args));
    const at = this.alloc(bytes.length);
    new Uint8Array(this.#memory.buffer).set(bytes, at);
    const done = (): void => this.exports.web_free(at);
    let answer: T;
    try {
      answer = use(at, bytes.length);
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) done();
      throw error;
    }
    if (answer instanceof Promise) return answer.finally(done) as T;
    done();
    return answer;
  }

  close(): void {
    this.pool?.stop();
    this.gpu.close();
  }
}

function refusal(build: Build): string {
  return build === 'threads'
    ? 'threads need a page that is cross-origin isolated, and relaxed SIMD'
    : `the build "${build}" does not work here: it needs WebAssembly's relaxed SIMD`;
}

// The address space is reserved at once: phones may refuse 4 GB.
function sharedMemory(): WebAssembly.Memory {
  for (let maximum = PAGES_MAX; ; maximum /= 2) {
    try {
      return new WebAssembly.Memory({ initial: PAGES_MIN, maximum, shared: true });
    } catch (error) {
      if (maximum * PAGE <= 256 << 20) throw new TernError('memory', 'no shared memory of 256 MB can be had', { cause: error });
    }
  }
}

export interface OwnFile { name: string; beside(): URL }
// Bundlers look for exactly this form.
const FILES: Record<Build, OwnFile> = {
  simd: { name: 'tern.wasm', beside: () => new URL('./tern.wasm', import.meta.url) },
  relaxed: { name: 'tern-relaxed.wasm', beside: () => new URL('./tern-relaxed.wasm', import.meta.url) },
  threads: { name: 'tern-threads.wasm', beside: () => new URL('./tern-threads.wasm', import.meta.url) },
};
const CHECKS: Record<'simd' | 'relaxed', OwnFile> = {
  simd: { name: 'tern-check.wasm', beside: () => new URL('./tern-check.wasm', import.meta.url) },
  relaxed: { name: 'tern-relaxed-check.wasm', beside: () => new URL('./tern-relaxed-check.wasm', import.meta.url) },
};
const SHADERS: OwnFile = { name: 'tern-shaders.json', beside: () => new URL('./tern-shaders.json', import.meta.url) };

export type Loading = Pick<EngineOptions, 'wasmUrl' | 'signal'>;

async function get(file: OwnFile, { wasmUrl, signal }: Loading): Promise<{ url: URL; response: Response }> {
  const url = new URL(wasmUrl ? wasmUrl(file.name) : file.beside(), globalThis.location?.href);
  if (url.protocol === 'file:' && typeof Worker === 'undefined') return { url, response: await readOwn(url) };
  let response: Response;
  try {
    response = await fetch(url, signal ? { signal } : {});
  } catch (error) {
    if (signal?.aborted) throw new TernError('aborted', 'loading was aborted', { cause: error });
    throw new TernError('network', `${url} cannot be fetched: ${String(error)}`, { cause: error });
  }
  if (!response.ok) throw new TernError('network', `${url}: ${response.status} ${response.statusText}`);
  return { url, response };
}
async function readOwn(url: URL): Promise<Response> { // in Node
  const { readFile } = builtin<{ readFile(url: URL): Promise<Uint8Array<ArrayBuffer>> }>('node:fs/promises');
  return new Response(await readFile(url));
}

export async function compile(file: OwnFile, options: Loading): Promise<WebAssembly.Module> {
  const { url, response } = await get(file, options);
  try {
    if (response.headers.get('content-type')?.startsWith('application/wasm')) return await WebAssembly.compileStreaming(response);
    return await WebAssembly.compile(await response.arrayBuffer());
  } catch (error) {
    throw new TernError('unsupported', `${url} cannot be compiled: ${String(error)}`, { cause: error });
  }
}

async function loadShaders(options: Loading): Promise<Shaders> {
  const { url, response } = await get(SHADERS, options);
  try {
    return await response.json() as Shaders;
  } catch (error) {
    throw new TernError('network', `${url} is no JSON: ${String(error)}`, { cause: error });
  }
}
