// The engine's side: answers the API's calls. One engine and one model.
import type { ImageSource, Progress, TernInfo } from './api.js';
import type { Device, Engine, EngineOptions, GenerateInput, GenerateResult, LogitsProcessor, OnLog, Transcriber, Model, ModelCalls, OpenOptions, Pixels, Source, StartThread } from './engine/types.js';
import { LOGITS } from './engine/module.js';
import { TernError, plain, throwIfAborted } from './errors.js';
import { Grammars, type GrammarLease } from './chat/grammars.js';
import { decodeImage } from './images.js';
import { promptWithImages, type Prompt } from './prompts.js';
import type {
  Calls, FromHost, Handler, HostEngineOptions, HostLoadOptions, HostPort, Method, OwnCalls, TextInput,
} from './protocol.js';
import { Sessions, type SessionLease } from './sessions.js';
import { openSource, type Opened, type OpenContext } from './source.js';
import { openState } from './store/state.js';
import type { Tell } from './store/store.js';

export type LoadEngine = (options?: EngineOptions) => Promise<Engine>;

type Emit<M extends Method> = (event: Calls[M]['event']) => void;
type Args<M extends Method> = Calls[M]['args'];
type Result<M extends Method> = Promise<Calls[M]['result']>;

export class Host implements Handler {
  onLog: OnLog | undefined;
  #engine: Promise<Engine> | undefined;
  #state: { close(): void } | undefined;
  #loaded:
    {
      model: Model; codec: Model | undefined; sessions: Sessions; grammars: Grammars; opened: readonly Opened[];
      info(): Omit<TernInfo, 'worker'>;
    } | undefined;
  #transcribers: (Transcriber | undefined)[] = [];
  #closed = false;

  // context: replaces network and storage in tests. threads: how an engine's threads are started.
  constructor(private loadEngine: LoadEngine, private context: Partial<OpenContext> = {},
    private threads: Pick<EngineOptions, 'startThread' | 'threadScript'> = {}) {}

  call<M extends Method>(method: M, args: Args<M>, emit: Emit<M>, signal: AbortSignal): Result<M> {
    const methods: { [K in keyof OwnCalls]: (args: Args<K>, emit: Emit<K>, signal: AbortSignal) => Result<K> } = {
      load: (a, e, s) => this.#load(a, e, s),
      info: async () => this.#open().info(),
      metadata: async ({ key }) => key === undefined ? this.#open().model.metadata() : this.#open().model.metadata(key),
      logits: ({ text }, _, s) => this.#logits(text, s),
      generate: (a, e, s) => this.#generate(a, e, s),
      transcriber: async ({ params }) => this.#transcribers.push(this.#open().model.transcriber(params)) - 1,
      transcriberFeed: async ({ id, samples }, onSegment, s) => void await this.#transcriber(id).feed(samples, onSegment, s),
      transcriberClose: async ({ id }) => {
        const transcriber = this.#transcriber(id);
        this.#transcribers[id] = undefined;
        await transcriber.close();
        return undefined;
      },
      speak: async ({ text, params }, onSamples, s) => {
        const { model, codec } = this.#open();
        return model.speak(codec ?? fail('argument', 'no codec is loaded (the option codec)'), text, params, onSamples, s);
      },
      embed: ({ texts, params }, _, s) => this.#open().model.embed(texts, params, s),
      tokenize: async ({ text, ...options }) => Array.from(this.#open().model.tokenize(text, options)),
      chatTokens: async ({ messages }) => Array.from(this.#open().model.chatTokens(messages).ids),
      check: async ({ engine, options }, onItem, s) =>
        (await this.#start(engine, options.device, s)).check({ ...options, onItem, signal: s }),
      memory: async () => ({
        ...(await this.#engine ?? fail('closed', 'no engine is loaded')).memory(),
        device: this.#loaded?.model.info.deviceMemory ?? null,
      }),
      close: () => this.#close(),
    };
    if (method in methods) return (methods as unknown as Record<Method, (...all: unknown[]) => Result<M>>)[method](args, emit, signal);
    return this.#ask(method as keyof ModelCalls, args as object, emit as Emit<keyof ModelCalls>, signal) as Result<M>;
  }

  // The calls that the model's own table has.
  async #ask(method: keyof ModelCalls, args: object, onEvent: Emit<keyof ModelCalls>, signal: AbortSignal): Promise<unknown> {
    const { model } = this.#open();
    const images = 'images' in args ? { images: await this.#decode(args.images as readonly ImageSource[], signal) } : {};
    return model.ask(method, { ...args, ...images } as never, { onEvent, signal });
  }

  #open() {
    return this.#loaded ?? fail('closed', this.#closed ? 'the model is closed' : 'no model is loaded');
  }

  #transcriber(id: number): Transcriber {
    this.#open();
    return this.#transcribers[id] ?? fail('closed', 'this transcription is closed');
  }

  // A failed start is forgotten: the next call may try again.
  #start({ wasmUrl, ...options }: HostEngineOptions, device: Device | 'cpu' | undefined, signal: AbortSignal): Promise<Engine> {
    this.#engine ??= (async () => {
      const state = device === 'wasm' || device === 'cpu' ? undefined : await openState(); // only GPUs have any
      this.#state = state;
      const base = wasmUrl === undefined ? undefined : wasmUrl.replace(/\/?$/, '/');
      return this.loadEngine({
        ...options, ...this.threads, signal, ...(state ? { state } : {}),
        onLog: (level, line) => this.onLog?.(level, line),
        ...(base ? { wasmUrl: file => base + file } : {}),
      });
    })();
    this.#engine.catch(() => { this.#engine = undefined; });
    return this.#engine;
  }

  async #load({ source, options }: Args<'load'>, emit: Emit<'load'>, signal: AbortSignal): Result<'load'> {
    if (this.#loaded) throw new TernError('argument', 'a model is loaded already');
    const notes: string[] = [];
    const progress = new Meter(emit);
    const choice = pick(options, ['threads', 'build', 'gpu', 'wasmUrl']);
    const started = this.#start(choice, options.device, signal);
    started.catch(() => undefined); // reported below, after the source
    const context: OpenContext = { ...this.context, signal, onNote: note => void notes.push(note), tell: progress.tell };
    const opened = [await openSource(source, options, context)];
    try {
      if (options.codec) opened.push(await openSource(options.codec, options, context));
      const adapters: Adapter[] = [];
      for (const [i, { source: from, scale = 1 }] of (options.loras ?? []).entries()) {
        opened.push(await openSource(from, options, context));
        adapters.push(adapterOf(opened.at(-1)!, i, scale));
      }
      const engine = await started;
      const more = { signal, onProgress: (phase: string, fraction: number) => progress.tell(phase, 0, 0, undefined, { fraction }) };
      const device = options.device ?? (options.codec && 'wasm'); // 50 steps a second of speech: a GPU would be waited for in each
      const model = await engine.open([...opened[0]!.sources, ...adapters.flatMap(({ sources }) => sources)], opened[0]!.path, {
        ...pick(options, ['batch', 'head', 'ternary', 'thinking', 'pooling', 'chatTemplate', 'vocabOnly', 'webgpu', 'lorasBySession']),
        ...more, ...(device ? { device } : {}), ...(adapters.length > 0 ? { loras: adapters.map(({ lora }) => lora) } : {}),
      } as OpenOptions);
      const codec = options.codec ? await this.#openCodec(engine, model, opened[1]!, { ...more, device: codecDevice(options.device) }) : undefined;
      return await this.#take(engine, model, codec, opened, options, notes);
    } catch (error) {
      for (const { sources, release } of opened) {
        for (const each of sources) each.close?.();
        release();
      }
      throw error;
    }
  }

  async #openCodec(engine: Engine, model: Model, { sources, path }: Opened, options: OpenOptions): Promise<Model> {
    let codec: Model | undefined;
    try {
      codec = await engine.open(sources, path, options);
      if (!codec.info.media.isCodec) throw new TernError('unsupported', `${codec.info.name || 'the second model'} is not a codec`);
      return codec;
    } catch (error) {
      codec?.close();
      model.close();
      throw error;
    }
  }

  async #take(engine: Engine, model: Model, codec: Model | undefined, opened: readonly Opened[], options: HostLoadOptions, notes: string[]):
    Promise<Omit<TernInfo, 'worker'>> {
    const sessions = new Sessions(model, pick(options, ['context', 'kv', 'speculate']), options.sessions ?? 4);
    let context = 0;
    try {
      if (!options.vocabOnly && writes(model)) {
        const first = await sessions.take([]);
        context = first.session.nContext;
        first.give([]);
      }
    } catch (error) {
      sessions.close();
      model.close();
      codec?.close();
      throw error;
    }
    const { id, files, storage } = opened[0]!;
    const info = () => {
      const now = model.info;
      const more = [engine.note, now.deviceReason, now.templateGuess].filter(note => note !== null);
      return {
        ...now, ...(codec && { codec: { ...codec.info.media, device: codec.info.device } }), id, files, storage, build: engine.build, context, notes: [...notes, ...more],
      };
    };
    this.#loaded = { model, codec, sessions, grammars: new Grammars(model), opened, info };
    return info();
  }

  async #generate({ input, params }: Args<'generate'>, emit: Emit<'generate'>, signal: AbortSignal):
    Promise<GenerateResult> {
    throwIfAborted(signal);
    const prompt = await this.#prompt(input, params.maxTokens ?? 0, signal);
    let lease: GrammarLease | undefined;
    try {
      lease = this.#grammar(input, prompt.texts);
      const { logitsProcessor, tellsPrompt } = input;
      const more = {
        ...(input.apart ? this.#apart(input, prompt.texts) : {}), grammar: lease?.grammar, logitsProcessor,
        onPrompt: tellsPrompt ? (fraction: number) => emit({ text: '', prompt: fraction }) : undefined,
      };
      const result = await this.#answer(prompt.ids, { ids: prompt.ids, ...more }, params, emit, signal, input.loraScales);
      return { ...result, nDropped: result.nDropped + prompt.dropped };
    } finally {
      lease?.give();
      prompt.close();
    }
  }

  // An answer that ends before its first token, when its scores are there.
  async #logits(text: string | readonly number[], signal: AbortSignal): Promise<Float32Array> {
    const ids = typeof text === 'string' ? this.#open().model.tokenize(text, { special: true }) : Int32Array.from(text);
    let found: Float32Array | undefined;
    const logitsProcessor: LogitsProcessor = (_, logits) => {
      found = logits.slice();
      return LOGITS.stop;
    };
    await this.#answer(ids, { ids, logitsProcessor }, { maxTokens: 1 }, () => undefined, signal);
    throwIfAborted(signal);
    if (!found) throw new TernError('context', 'the context has no room for one more token');
    return found;
  }

  async #answer(ids: ArrayLike<number>, input: GenerateInput, params: Args<'generate'>['params'], emit: Emit<'generate'>,
    signal: AbortSignal, loraScales?: readonly number[]): Promise<GenerateResult> {
    const { sessions } = this.#open();
    let said = false;
    for (let tries = 0; ; tries++) {
      throwIfAborted(signal);
      const lease = await sessions.take(ids, signal, loraScales);
      try {
        const result = await lease.session.generate(input, params, (text, logprobs, part) => {
          said = true;
          emit({ text, ...(logprobs ? { logprobs } : {}), ...(part ? { part } : {}) });
        }, signal);
        lease.give([...Array.from(ids), ...result.ids]);
        return result;
      } catch (error) {
        this.#failed(lease, error);
        // Other conversations' keys and values may be what takes the room.
        const room = error instanceof TernError && error.code === 'memory' && !said && tries === 0;
        if (!room || !sessions.forget()) throw error;
      }
    }
  }

  // A session that failed is not used again, unless it was left unchanged.
  #failed(lease: SessionLease, error: unknown): void {
    if (error instanceof TernError && (error.code === 'argument' || error.code === 'context')) lease.give([]);
    else lease.drop();
  }

  async #prompt(input: TextInput, answer: number, signal: AbortSignal): Promise<Prompt> {
    const { model, info } = this.#open();
    const plain = (ids: Int32Array, dropped = 0): Prompt => ({ ids, texts: ids, dropped, close: () => undefined });
    const { request, images } = input;
    if (request && images) return promptWithImages(model, request, images, info().context, answer, signal);
    if (request) return plain(model.requestTokens(request));
    if (!input.messages) return plain(model.tokenize(input.prompt ?? '', { special: true, bos: true }));
    const { ids, dropped } = model.chatTokens(input.messages, { context: info().context, answer });
    return plain(ids, dropped);
  }

  #decode(images: readonly ImageSource[], signal: AbortSignal): Promise<Pixels[]> {
    this.#open();
    return Promise.all(images.map(image => decodeImage(image, signal)));
  }

  // The prompt may already have begun the reasoning: its last few tokens tell.
  #after(ids: ArrayLike<number>): string {
    return this.#open().model.detokenize(Array.from(ids).slice(-16), { special: true });
  }

  #grammar({ grammar, prompt }: TextInput, ids: ArrayLike<number>): GrammarLease | undefined {
    return grammar && this.#open().grammars.take(grammar, prompt === undefined ? this.#after(ids).slice(-32) : undefined);
  }

  #apart({ request }: TextInput, ids: ArrayLike<number>): Pick<GenerateInput, 'apart'> {
    const { tools } = request ?? {};
    return { apart: { after: this.#after(ids), ...(tools && tools.length > 0 ? { tools: JSON.stringify(tools) } : {}) } };
  }

  async #close(): Promise<undefined> {
    this.#closed = true;
    const loaded = this.#loaded;
    this.#loaded = undefined;
    loaded?.sessions.close();
    loaded?.model.close();
    loaded?.codec?.close();
    for (const { release } of loaded?.opened ?? []) release();
    const engine = this.#engine;
    this.#engine = undefined;
    await engine?.then(e => e.close(), () => undefined);
    this.#state?.close();
  }
}

// An adapter's files, in a folder of their own beside the model's.
interface Adapter { sources: Source[]; lora: { path: string; scale: number } }
function adapterOf({ sources, path }: Opened, i: number, scale: number): Adapter {
  const folder = `lora${i}`;
  const placed = sources.map(source => ({
    name: `${folder}/${source.name}`, size: source.size, read: (at: number, into: Uint8Array) => source.read(at, into), close: () => source.close?.(),
  }));
  return { sources: placed, lora: { path: path ? `${folder}/${path}` : folder, scale } };
}

// What makes vectors or scores, writes down what it hears, or speaks, goes on with no text.
// Many frames a step: a GPU is worth waiting for, where the module can be suspended (JSPI).
function codecDevice(wanted: Device | undefined): Device {
  return 'Suspending' in WebAssembly ? wanted ?? 'auto' : 'wasm';
}

function writes({ info: { embedding, media } }: Model): boolean {
  return !(embedding.nDims || embedding.nLabels || media.nDims || media.isAsr || media.isTts || media.isCodec);
}

function fail(code: 'closed' | 'argument', message: string): never {
  throw new TernError(code, message);
}

function pick<T extends object, K extends keyof T>(from: T, keys: readonly K[]): Pick<T, K> {
  return Object.fromEntries(keys.filter(key => from[key] !== undefined).map(key => [key, from[key]])) as Pick<T, K>;
}

// Adds the speed over the last three seconds to a phase's reports.
class Meter {
  #seen: { at: number; loaded: number }[] = [];
  #phase = '';
  constructor(private emit: (progress: Progress) => void) {}

  tell: Tell = (phase, loaded, total, file, { fraction, reason } = {}) => {
    const at = Date.now();
    if (phase !== this.#phase || loaded < (this.#seen.at(-1)?.loaded ?? 0)) this.#seen = [];
    this.#phase = phase;
    this.#seen = [...this.#seen.filter(seen => at - seen.at < 3000), { at, loaded }];
    const first = this.#seen[0]!;
    this.emit({
      phase, loaded, total,
      fraction: fraction ?? (total > 0 ? Math.min(1, loaded / total) : 0),
      bytesPerSecond: at > first.at ? Math.round(1000 * (loaded - first.loaded) / (at - first.at)) : 0,
      ...(file === undefined ? {} : { file }), ...(reason === undefined ? {} : { reason }),
    });
  };
}

// The worker's end of EngineOptions.startThread.
export class PageThreads {
  #fails: ((why: string) => void)[] = [];
  constructor(private port: HostPort) {}

  start: StartThread = (script, start, fail) => {
    const thread = this.#fails.push(fail) - 1;
    this.port.post({ thread, script, start });
    return { terminate: () => this.port.post({ endThread: thread }) };
  };
  failed(thread: number, why: string): void { this.#fails[thread]?.(why); }
}

// Answers calls from the port, several at a time.
export function serve(port: HostPort, handler: Handler, threads?: PageThreads): void {
  const running = new Map<number, AbortController>();
  handler.onLog = (log, line) => port.post({ log, line });
  port.listen(message => {
    if ('hello' in message) return port.post({ ready: true });
    if ('hold' in message) return hold(message.hold, port);
    if ('threadFailed' in message) return threads?.failed(message.threadFailed, message.why);
    if ('abort' in message) return running.get(message.abort)?.abort(
      new TernError('aborted', message.reason ?? 'aborted by the caller'));
    const { call, method, args } = message;
    const stop = new AbortController();
    running.set(call, stop);
    const answer = (reply: FromHost) => port.post(reply);
    Promise.resolve().then(() => handler.call(method, args as never, value => answer({ event: call, value }), stop.signal))
      .then(value => answer({ done: call, value }), error => answer({ failed: call, error: plain(error) }))
      .finally(() => running.delete(call));
  });
  port.post({ ready: true });
}

// The page asks for the same lock, and gets it when this worker has ended, however it did.
function hold(name: string, port: HostPort): void {
  void (navigator.locks as LockManager | undefined)?.request(name, () => {
    port.post({ held: true });
    return new Promise(() => undefined);
  });
}
