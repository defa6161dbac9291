// Models and sessions over the module, and the pump that steps them.
//
// Calls into the module compute and return; none waits for a GPU. Its callbacks, except for progress, are
// queued until the call has returned: the module must not be called from within.
import { check } from './check.js';
import { TernError } from './error.js';
import { codeOf, LOGITS, Module, type Exports, type ModuleCallbacks } from './module.js';
import { fromModule, snake, toModule } from './names.js';
import { imageTokens, imageTokensPlace, MEDIA, openTranscriber, speak, type SegmentListener } from './media.js';
import type {
  Asking, ChatRequest, CheckOptions, CheckReport, Drafter, DraftLimits, EmbedParams, EmbedResult, Engine, EngineOptions,
  GenerateInput, GenerateParams, GenerateResult, Grammar, GrammarOptions, ImageTokens, MemoryInfo, Message,
  Metadata, Model, ModelCalls, ModelInfo, OnProgress, OpenOptions, Part, Pixels, Session, SessionOptions, Source, SpeakParams,
  SpeakStats, TokenLogprob, TokenLogprobs, TranscribeParams, Transcriber,
} from './types.js';
import { nextTask } from './task.js';
import { STATE_FOLDER } from './wasi.js';

const SMALL_BYTES = 64 << 20; // of a model's files
const YIELD_MS = 8; // of computing before messages are served

interface Opening { onProgress: OnProgress | undefined; signal: AbortSignal | undefined; failure?: unknown }
type OnText = (piece: string, logprobs?: TokenLogprobs[], part?: Part) => void;
const LEVELS = ['debug', 'info', 'warn'] as const; // of tern_log_level
const KINDS = ['text', 'reasoning', 'call', 'arguments', 'call_end'] as const; // of tern_part_kind
const DRAFTERS: Drafter[] = ['chains', 'lookup', 'online', 'model', 'caller']; // of tern_drafter

export async function loadEngine(options: EngineOptions = {}): Promise<Engine> {
  const engine = new WasmEngine();
  await engine.load(options);
  return engine;
}

class WasmEngine implements Engine {
  module!: Module;
  readonly sessions = new Map<number, WasmSession>();
  readonly #models = new Set<WasmModel>();
  readonly #openings = new Map<number, Opening>();
  #nMounts = 0;
  #beginning: Opening | undefined;
  #inside = false; // of a call
  #suspended: Promise<unknown> | undefined;
  listener: SegmentListener | undefined;
  #options: EngineOptions = {};
  #dead: TernError | undefined;

  async load(options: EngineOptions): Promise<void> {
    const callbacks: ModuleCallbacks = {
      text: (id, text) => this.sessions.get(id)?.onText(text),
      part: (id, kind, call, text) => this.sessions.get(id)?.onText(text, { kind: KINDS[kind]!, call }),
      logprobs: (id, json) => this.sessions.get(id)?.transcriberLogprobs(json),
      end: (id, json) => this.sessions.get(id)?.transcriberEnd(json),
      prompt: (id, fraction) => this.sessions.get(id)?.onPrompt(fraction) ?? false,
      logits: (id, logits, ids) => this.sessions.get(id)?.onLogits(logits, ids) ?? LOGITS.stop,
      log: (level, line) => options.onLog?.(LEVELS[level] ?? 'info', this.named(line)),
      progress: (id, fraction, phase) => this.#progress(id, fraction, phase),
      report: () => undefined,
      segment: (json) => this.listener?.(json) ?? false,
    };
    this.#options = options;
    this.module = await Module.load(options, callbacks);
  }

  get build(): Engine['build'] { return this.module.build; }
  get threads(): number { return this.module.threads; }
  get note(): string | null { return this.module.note; }

  // ---- Calls ---------------------------------------------------------------------------------

  // A trap leaves the module in an undefined state: its engine is closed.
  #died(error: unknown): never {
    if (error instanceof TernError) throw error;
    if (!(error instanceof WebAssembly.RuntimeError) && !(error instanceof RangeError)) throw error;
    const dead = new TernError('trap', `the WebAssembly module failed (${error.message}); its engine is closed`, { cause: error });
    this.#end(dead);
    throw dead;
  }
  alive(): Exports {
    if (this.#dead) throw this.#dead;
    return this.module.exports;
  }
  get isOpen(): boolean { return this.#dead === undefined; }
  // A result < 0 is a failure.
  #checked(result: number): number {
    if (result >= 0) return result;
    const { failure } = this.module.files, code = codeOf(-result);
    this.module.files.failure = undefined;
    const cause = failure === undefined ? '' : `: ${failure instanceof Error ? failure.message : String(failure)}`;
    throw new TernError(code, this.named(this.module.error()) + (code === 'io' ? cause : ''), { cause: failure });
  }
  call(use: (exports: Exports) => number): number {
    const exports = this.alive();
    if (this.#inside) throw new TernError('argument', 'the engine cannot be used in a progress callback');
    this.#inside = true;
    try {
      return this.#checked(use(exports));
    } catch (error) {
      this.#died(error);
    } finally {
      this.#inside = false;
    }
  }
  callJson(args: unknown, use: (exports: Exports, at: number, n: number) => number): number {
    return this.call((exports) => this.module.withJson(args, (at, n) => use(exports, at, n)));
  }
  // A call that may be suspended in the middle. One at a time: what it has on the module's stack stays above theirs who
  // come and go meanwhile. Steps, which would use the device, wait until it is over.
  suspended(use: (exports: Exports) => number | Promise<number>): Promise<number> {
    const run = (this.#suspended ?? Promise.resolve()).then(async () => {
      try {
        return this.#checked(await use(this.alive()));
      } catch (error) {
        return this.#died(error);
      } finally {
        this.listener = undefined;
      }
    });
    const over = run.then(() => undefined, () => undefined).then(() => {
      if (this.#suspended === over) this.#suspended = undefined;
    });
    this.#suspended = over;
    return run;
  }
  get suspension(): Promise<unknown> | undefined { return this.#suspended; }
  // Paths as the caller knows them: each opening has its files in a folder of its own.
  named(text: string): string { return text.replaceAll(/\bm\d+\/(?=\S)/g, ''); }

  // ---- Models --------------------------------------------------------------------------------

  #progress(id: number, fraction: number, phase: string): boolean {
    const opening = this.#openings.get(id) ?? this.#beginning;
    if (!opening) return true;
    try {
      opening.onProgress?.(phase, fraction);
    } catch (error) {
      opening.failure = error;
      return false;
    }
    return !opening.signal?.aborted;
  }

  async open(files: readonly Source[], path: string, options: OpenOptions = {}): Promise<Model> {
    const folder = `m${++this.#nMounts}`;
    this.alive();
    this.module.files.add(folder, files);
    try {
      return await this.#open(folder, path, this.#threadsFor(files), options);
    } catch (error) {
      this.module.files.remove(folder);
      throw error;
    }
  }

  // A token of a small model is done before other threads have woken up: unless a number of threads was
  // requested, it gets one.
  #threadsFor(files: readonly Source[]): number {
    const bytes = files.reduce((sum, file) => sum + file.size, 0);
    return this.#options.threads || bytes >= SMALL_BYTES ? this.threads : 1;
  }

  async #open(folder: string, path: string, nThreads: number, options: OpenOptions): Promise<Model> {
    const { device = 'auto', signal, onProgress, webgpu, batch, loras, ...rest } = options;
    const reason = device === 'wasm' ? null : await this.#prepareGpu(device, webgpu);
    if (device === 'webgpu' && reason !== null) throw new TernError('device', reason);
    aborted(signal);
    const args = {
      ...toModule(rest), path: path ? `${folder}/${path}` : folder, n_batch: batch, n_threads: nThreads,
      device: device === 'wasm' || reason !== null ? 'cpu' : device,
      loras: loras?.map((l) => ({ ...l, path: `${folder}/${l.path}` })),
      webgpu_group: webgpu?.group, webgpu_matrix: webgpu?.matrix,
      webgpu_state: this.module.files.state ? STATE_FOLDER : undefined,
    };
    const opening: Opening = { onProgress, signal };
    try {
      this.#beginning = opening;
      const id = this.callJson(args, (x, at, n) => x.web_open(at, n));
      this.#beginning = undefined;
      this.#openings.set(id, opening);
      const model = new WasmModel(this, await this.#poll(id, signal), folder, reason);
      this.#models.add(model);
      return model;
    } catch (error) {
      throw opening.failure ?? error;
    } finally {
      this.#beginning = undefined;
    }
  }

  // Null, or the reason not to use WebGPU.
  async #prepareGpu(device: OpenOptions['device'], options: OpenOptions['webgpu']): Promise<string | null> {
    const { gpu } = this.module, reason = await gpu.prepare(options), { software } = gpu;
    if (reason !== null || device === 'webgpu' || software === null) return reason;
    gpu.drop();
    return `WebGPU has no GPU here, only software that is slower than WebAssembly (${software})`;
  }

  async #poll(id: number, signal: AbortSignal | undefined): Promise<number> {
    try {
      for (;;) {
        const model = this.call((x) => x.web_open_poll(id));
        if (model > 0) return model;
        await this.module.gpu.settled();
        if (!signal?.aborted) continue;
        this.alive().web_open_cancel(id);
        aborted(signal);
      }
    } finally {
      this.#openings.delete(id);
    }
  }

  forget(model: WasmModel): void { this.#models.delete(model); }

  // ---- The rest ------------------------------------------------------------------------------

  memory(): MemoryInfo {
    this.call((x) => x.web_memory());
    const { heapNow, heapMax } = fromModule(this.module.result()) as { heapNow: number; heapMax: number };
    return { wasm: this.module.memoryBytes, heapNow, heapMax };
  }

  check(options: CheckOptions = {}): Promise<CheckReport> {
    this.alive();
    return check(this.build, this.#options, options);
  }

  #end(why: TernError): void {
    if (this.#dead) return;
    this.#dead = why;
    for (const s of this.sessions.values()) s.fail(why);
    this.sessions.clear();
    for (const m of this.#models) this.module.files.remove(m.folder);
    this.#models.clear();
    this.module.close();
  }
  close(): void { this.#end(new TernError('closed', 'the engine is closed')); }
}

class WasmModel implements Model {
  #closed = false;
  #pumping = false;

  constructor(readonly engine: WasmEngine, readonly id: number, readonly folder: string, readonly reason: string | null) {}

  #open(): void { if (this.#closed) throw new TernError('closed', 'the model is closed'); }
  #ask<T>(args: unknown, use: (x: Exports, at: number, n: number) => number): T {
    this.#open();
    this.engine.callJson(args, use);
    return this.engine.module.result<T>();
  }

  ask<C extends keyof ModelCalls>(call: C, args: ModelCalls[C]['args'], asking: Asking<C> = {}): ModelCalls[C]['result'] {
    this.#open();
    const media = (MEDIA as Partial<Record<string, (model: WasmModel, args: object, asking: object) => unknown>>)[call];
    if (media) return media(this, args, asking) as ModelCalls[C]['result'];
    const name = `web_${snake(call)}`;
    const use = (x: Exports, at: number, n: number) =>
      (x as unknown as Record<string, (model: number, at: number, n: number) => number>)[name]!(this.id, at, n);
    return fromModule(this.#ask(toModule(args), use)) as ModelCalls[C]['result'];
  }

  get info(): ModelInfo {
    this.#open();
    this.engine.call((x) => x.web_model_info(this.id));
    const info = fromModule(this.engine.module.result()) as ModelInfo;
    return { ...info, path: this.engine.named(info.path), deviceReason: this.reason };
  }
  metadata(key: string): Metadata | undefined;
  metadata(): Record<string, Metadata>;
  metadata(key?: string): Metadata | Record<string, Metadata> | undefined {
    return this.#ask<Metadata | Record<string, Metadata> | null>({ key }, (x, at, n) => x.web_metadata(this.id, at, n)) ?? undefined;
  }
  tokenize(text: string, options: { special?: boolean; bos?: boolean } = {}): Int32Array {
    return Int32Array.from(this.#ask<{ ids: number[] }>({ ...options, text }, (x, at, n) => x.web_tokenize(this.id, at, n)).ids);
  }
  detokenize(ids: ArrayLike<number>, options: { special?: boolean } = {}): string {
    return this.ask('detokenize', { ...options, ids: Array.from(ids) });
  }
  chatTokens(messages: readonly Message[], options: { context?: number; answer?: number } = {}):
    { ids: Int32Array; dropped: number } {
    const got = this.#ask<{ ids: number[]; n_dropped: number }>({ ...options, messages }, (x, at, n) => x.web_chat_tokens(this.id, at, n));
    return { ids: Int32Array.from(got.ids), dropped: got.n_dropped };
  }
  requestTokens(request: ChatRequest): Int32Array {
    return Int32Array.from(this.#ask<{ ids: number[] }>(request, (x, at, n) => x.web_request_tokens(this.id, at, n)).ids);
  }
  chatFormat(messages: readonly Message[], { generate = true }: { generate?: boolean } = {}): string {
    return this.ask('chatFormat', { messages, addGenerationPrompt: generate });
  }

  session(options: SessionOptions = {}): Session {
    this.#open();
    const { speculate = false, ...rest } = options;
    const drafters = speculate === true ? { lookup: true, online: true } : speculate || {};
    const id = this.engine.callJson({ ...toModule(rest), ...toModule(drafters) }, (x, at, n) => x.web_session_open(this.id, at, n));
    return new WasmSession(this, id);
  }

  async embed(texts: readonly string[], params: EmbedParams, signal?: AbortSignal): Promise<EmbedResult> {
    this.#open();
    aborted(signal);
    const { engine } = this, { module } = engine;
    const id = engine.callJson({ ...toModule(params), texts }, (x, at, n) => x.web_embed(this.id, at, n));
    let lives = true; // after a failure it is already closed
    try {
      for (;;) {
        if (engine.suspension) await engine.suspension;
        this.#open();
        lives = false;
        const done = engine.call((x) => x.web_embed_poll(id));
        lives = true;
        if (done) break;
        await module.gpu.settled();
        this.#open();
        aborted(signal);
      }
      const { nDims, nTokens, cut } = fromModule(module.result()) as { nDims: number; nTokens: number[]; cut: number[] };
      const vectors = module.floats(engine.call((x) => x.web_embed_vectors(id)), texts.length * nDims);
      return { vectors, nDims, nTokens, cut: cut.map(Boolean) };
    } finally {
      if (lives && this.isOpen) engine.call((x) => x.web_embed_close(id));
    }
  }

  async imageTokens(images: readonly Pixels[], options: { maxPixels?: number } = {}): Promise<ImageTokens> {
    this.#open();
    return imageTokens(this, images, options.maxPixels);
  }
  imageTokensPlace(ids: ArrayLike<number>, images: readonly ImageTokens[]): Int32Array {
    this.#open();
    return imageTokensPlace(this, ids, images);
  }
  transcriber(params: TranscribeParams): Transcriber {
    this.#open();
    return openTranscriber(this, params);
  }

  async speak(codec: Model, text: string | readonly number[], params: SpeakParams, onSamples: (samples: Float32Array<ArrayBuffer>) => void,
    signal?: AbortSignal): Promise<SpeakStats> {
    this.#open();
    return speak(this, codec as WasmModel, text, params, onSamples, signal);
  }

  grammar(options: GrammarOptions): Grammar {
    this.#open();
    return new WasmGrammar(this, this.engine.callJson(toModule(options), (x, at, n) => x.web_grammar_open(this.id, at, n)));
  }
  get isOpen(): boolean { return !this.#closed && this.engine.isOpen; }

  // Steps whatever runs until nothing does.
  async pump(): Promise<void> {
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      await nextTask(); // generations added meanwhile take part from the first step on
      let since = performance.now();
      for (;;) {
        if (this.engine.suspension) await this.engine.suspension;
        const state = this.#closed ? 0 : this.engine.call((x) => x.web_step(this.id));
        for (const s of this.engine.sessions.values()) if (s.model === this) s.deliver();
        if (state === 0) break;
        if (state === 2) await this.engine.module.gpu.settled();
        if (performance.now() - since < YIELD_MS) continue;
        await nextTask();
        since = performance.now();
      }
    } catch (error) {
      const why = error instanceof TernError ? error : new TernError('trap', String(error), { cause: error });
      for (const s of this.engine.sessions.values()) if (s.model === this) s.fail(why);
    } finally {
      this.#pumping = false;
    }
    for (const s of this.engine.sessions.values()) {
      if (s.model !== this || !s.waits) continue; // added while the last step ended
      await nextTask();
      return this.pump();
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.engine.forget(this);
    const closed = new TernError('closed', 'the model was closed');
    for (const [id, s] of this.engine.sessions) {
      if (s.model !== this) continue;
      s.fail(closed);
      this.engine.sessions.delete(id);
    }
    const { engine } = this;
    const free = (): void => {
      engine.call((x) => x.web_model_close(this.id));
      engine.module.files.remove(this.folder);
    };
    if (!engine.suspension) return free();
    engine.suspension.then(() => { if (engine.isOpen) free(); }).catch(() => undefined); // the call ends early, but uses it until then
  }
}

class WasmGrammar implements Grammar {
  constructor(private model: WasmModel, readonly id: number) {}
  close(): void {
    if (this.model.isOpen) this.model.engine.call((x) => x.web_grammar_close(this.id));
  }
}

interface Generation {
  onText: OnText;
  onPrompt: GenerateInput['onPrompt'];
  logitsProcessor: GenerateInput['logitsProcessor'];
  failure?: unknown; // of one of the last two
  resolve(result: GenerateResult): void;
  reject(reason: unknown): void;
  stopListening(): void;
}

class WasmSession implements Session {
  readonly nContext: number;
  readonly kv: 'f32' | 'f16' | 'q8_0';
  readonly loraScales: readonly number[];
  #now: Generation | undefined;
  #closed = false;
  #pending: { text: string; logprobs: TokenLogprobs[] | undefined; part: Part | undefined }[] = [];
  #logprobs: TokenLogprobs[] | undefined;
  #end: string | undefined;

  constructor(readonly model: WasmModel, readonly id: number) {
    const { engine } = model;
    engine.call((x) => x.web_session_info(id));
    const info = fromModule(engine.module.result()) as Pick<Session, 'nContext' | 'kv' | 'loraScales'>;
    this.nContext = info.nContext;
    this.kv = info.kv;
    this.loraScales = info.loraScales;
    engine.sessions.set(id, this);
  }

  get waits(): boolean { return this.#now !== undefined; }

  // ---- The module's callbacks during a step: queued until it returns -------------------------

  onText(text: string, part?: Part): void {
    this.#pending.push({ text, logprobs: this.#logprobs, part });
    this.#logprobs = undefined;
  }
  transcriberLogprobs(json: string): void {
    const rows = JSON.parse(json) as { id: number; logprob: number; bytes: number[] }[][];
    const told = rows.map(([first, ...top]) => ({ ...token(first!), top: top.map(token) }));
    this.#logprobs = [...(this.#logprobs ?? []), ...told];
  }
  transcriberEnd(json: string): void { this.#end = json; }
  // These two are called at once: the module waits for them.
  onPrompt(fraction: number): boolean {
    return this.#at((now) => { now.onPrompt?.(fraction); return true; }, false);
  }
  onLogits(logits: Float32Array, ids: Int32Array): number {
    return this.#at((now) => {
      const token = now.logitsProcessor?.(ids, logits);
      if (token === LOGITS.stop) return token; // of logits(), which wants no answer
      if (token !== undefined && !(Number.isInteger(token) && token >= 0))
        throw new TernError('argument', `logitsProcessor chose ${token}, which is no token`);
      return token ?? LOGITS.sample;
    }, LOGITS.stop);
  }
  #at<T>(use: (now: Generation) => T, otherwise: T): T {
    const now = this.#now;
    if (!now || now.failure !== undefined) return otherwise;
    try {
      return use(now);
    } catch (error) {
      now.failure = error;
      return otherwise;
    }
  }

  deliver(): void {
    const now = this.#now, callbacks = this.#pending;
    this.#pending = [];
    for (const { text, logprobs, part } of callbacks) {
      if (this.#now !== now || !now) return;
      try {
        if (logprobs || part) now.onText(text, logprobs, part);
        else now.onText(text);
      } catch (error) { // an error of the caller's callback: it ends its generation
        this.#settle()?.reject(error);
        this.#cancel();
        return;
      }
    }
    if (this.#end !== undefined) this.#finish(this.#end);
  }

  #finish(json: string): void {
    const last = this.#logprobs, now = this.#settle();
    this.#end = this.#logprobs = undefined;
    if (!now) return;
    if (now.failure !== undefined) return now.reject(now.failure);
    if (last) now.onText('', last); // tokens without a text of their own
    if (json === '') return now.reject(new TernError('memory', 'out of memory'));
    const { status, error, ids, ...rest } = fromModule(JSON.parse(json)) as
      GenerateResult & { status: number; error: string; ids: unknown };
    if (status !== 0) return now.reject(new TernError(codeOf(status), this.model.engine.named(error)));
    now.resolve({ ...rest, ids: Int32Array.from(ids as unknown as number[]) });
  }

  #settle(): Generation | undefined {
    const now = this.#now;
    this.#now = undefined;
    now?.stopListening();
    return now;
  }
  fail(why: TernError): void {
    this.#cancel();
    this.#settle()?.reject(why);
  }
  #cancel(): void {
    if (this.model.engine.isOpen) this.model.engine.call((x) => x.web_cancel(this.id));
  }

  // ---- Generating ----------------------------------------------------------------------------

  async generate(input: GenerateInput, params: GenerateParams, onText: OnText, signal?: AbortSignal): Promise<GenerateResult> {
    const { engine } = this.model;
    if (this.#closed) throw new TernError('closed', 'the session is closed');
    if (this.#now) throw new TernError('argument', 'the session generates already');
    aborted(signal);
    const { apart, ids, grammar, onPrompt, logitsProcessor, ...rest } = input;
    const more = {
      ...rest, ids: ids && Array.from(ids), grammar: (grammar as WasmGrammar | undefined)?.id,
      ...(apart ? { ...apart, apart: true } : {}), tellsPrompt: !!onPrompt, asks: !!logitsProcessor,
    };
    const { drafts, ...plain } = params;
    const args = { ...toModule(plain), ...toModule(more), ...draftsOf(drafts) };
    return new Promise<GenerateResult>((resolve, reject) => {
      const onAbort = (): void => this.#cancel();
      signal?.addEventListener('abort', onAbort);
      this.#now = { onText, onPrompt, logitsProcessor, resolve, reject, stopListening: () => signal?.removeEventListener('abort', onAbort) };
      this.#pending = [];
      this.#end = this.#logprobs = undefined;
      try {
        engine.callJson(args, (x, at, n) => x.web_generate(this.id, at, n));
        void this.model.pump();
      } catch (error) {
        this.#settle()?.reject(error);
      }
    });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const { engine } = this.model;
    this.fail(new TernError('closed', 'the session was closed'));
    engine.sessions.delete(this.id);
    if (engine.isOpen) engine.call((x) => x.web_session_close(this.id));
  }
}

function token(t: { id: number; logprob: number; bytes: number[] }): TokenLogprob {
  return { id: t.id, text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(t.bytes)), bytes: t.bytes, logprob: t.logprob };
}

// For each member of its own; the drafters as bits.
function draftsOf({ without, ...drafts }: DraftLimits = {}): Record<string, unknown> {
  const bits = without?.map((drafter) => 1 << DRAFTERS.indexOf(drafter)).reduce((all, bit) => all | bit, 0);
  if (bits! < 0) throw new TernError('argument', `drafts.without has some of ${DRAFTERS.join(', ')}`);
  const given = Object.entries(toModule({ ...drafts, without: bits }));
  return Object.fromEntries(given.map(([name, value]) => [`drafts_${name}`, value]));
}

function aborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
}
