// The main class: an open model.
import type {
  ChatMessage, ClassifyOptions, DiagnoseOptions, EmbedOptions, EngineChoice, FormOptions, GenerateOptions,
  GenerateOutput, ImageSource, Inferred, Label, LiveTranscription, LoadOptions, ModelSource, ObjectOptions,
  ObjectOutput, ObjectStream, Partly, Schema, Segment, SoundSource, SpeakOptions, Speech, TernInfo, TokenLogprobs,
  TranscribeOptions, TranscriberOptions, Transcript,
} from './api.js';
import { connect, type Connection } from './client.js';
import { completions, finishOf, timingsOf, usageOf, type OnPiece } from './chat/completions.js';
import type { DeviceMemory, GenerateParams, GenerateResult, InfillInfo, MediaInfo, MemoryInfo, Message, Metadata, Part } from './engine/types.js';
import { TernError, aborted, throwIfAborted } from './errors.js';
import { chatInput } from './chat/content.js';
import { Models, persist } from './models.js';
import type { Completions } from './chat/openai.js';
import { portableImage } from './images.js';
import { inNode } from './platform.js';
import type { HostEngineOptions, HostLoadOptions, TextInput } from './protocol.js';
import { Report } from './report.js';
import { samplesOf } from './sounds.js';
import { Queue } from './stream.js';
import { partialValue, specOf, specOfSchema, valueOf } from './chat/structured.js';

export interface Chat {
  // The answer to the last message.
  (messages: readonly ChatMessage[], options?: GenerateOptions): Promise<GenerateOutput>;
  completions: Completions; // as in the OpenAI client
}

export class Tern {
  // The models stored on this device.
  static readonly models: Models = new Models();

  readonly chat: Chat;
  #info: TernInfo;

  private constructor(private connection: Connection, info: TernInfo, private engine: HostEngineOptions) {
    this.#info = info;
    const run = (input: TextInput, params: GenerateParams, onPiece: OnPiece, signal: AbortSignal) =>
      this.#run(input, params, onPiece, signal);
    this.chat = Object.assign(
      async (messages: readonly ChatMessage[], options?: GenerateOptions) => this.#generate(chatInput(messages), options),
      { completions: completions(run, info.name || info.id) });
  }

  // Downloads the model if it is not stored, and opens it. Fails with a TernError; aborting the signal
  // keeps what was downloaded for the next time.
  static async load(source: ModelSource, options: LoadOptions = {}): Promise<Tern> {
    const { signal, onProgress, cache } = options;
    throwIfAborted(signal);
    const { connection, inWorker, notes } = await connect(options);
    connection.onLog = options.onLog;
    try {
      if (isRemote(source) && cache !== false && (typeof cache !== 'object' || cache.persist !== false))
        void persist().catch(() => undefined);
      const more = {
        ...(options.codec && { codec: portable(options.codec) }),
        ...(options.loras && { loras: options.loras.map(lora => ({ ...lora, source: portable(lora.source) })) }),
      };
      const plain = { ...hostOptions(options), ...more, ...engineOptions(options) };
      const info = await connection.call('load', { source: portable(source), options: plain },
        { onEvent: onProgress, signal });
      return new Tern(connection, { ...info, worker: inWorker, notes: [...notes, ...info.notes] },
        engineOptions(options));
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  // Checks whether this device computes correctly, without a model.
  static async diagnose(options: DiagnoseOptions = {}): Promise<Report> {
    const { connection, notes } = await connect(options);
    try {
      return await check(connection, engineOptions(options), options, notes);
    } finally {
      connection.close();
    }
  }

  // As of loading; call refresh() after the device was lost.
  get info(): TernInfo {
    return this.#info;
  }
  // The tokens for filling in between two texts.
  get infill(): InfillInfo {
    return this.#info.infill;
  }
  // What the model does with images and sound.
  get media(): MediaInfo {
    return this.#info.media;
  }
  // Where the model runs and, if the device was 'auto', why not on WebGPU.
  get device(): string {
    const { device, deviceReason } = this.#info;
    return deviceReason ? `${device} (${deviceReason})` : device;
  }

  async refresh(): Promise<TernInfo> {
    const { worker, notes } = this.#info;
    const info = await this.connection.call('info', undefined);
    this.#info = { ...info, worker, notes: [...new Set([...notes, ...info.notes])] };
    return this.#info;
  }

  // Continues the prompt, which is used as it is.
  generate(prompt: string, options?: GenerateOptions): Promise<GenerateOutput> {
    return this.#generate({ prompt }, options);
  }

  // The same, or the answer to messages, in pieces. Leaving the loop stops it. Fails when aborted.
  stream(input: string | readonly ChatMessage[], options: GenerateOptions = {}): AsyncIterableIterator<string> {
    const { stop, end } = linked(options.signal);
    const queue = new Queue<string>(() => stop.abort());
    const onText = (piece: string) => {
      queue.push(piece);
      return options.onText?.(piece);
    };
    this.#generate(typeof input === 'string' ? { prompt: input } : chatInput(input), { ...options, onText, signal: stop.signal })
      .finally(end).then(() => queue.finish(), error => queue.fail(error));
    return queue;
  }

  // An answer that is JSON by the schema, parsed: after a prompt, or to messages. Fails with 'unsupported', before any token
  // is generated, if part of the schema is not supported, and with 'length' if the answer was cut.
  generateObject<const S extends Schema>(input: string | readonly ChatMessage[], options: ObjectOptions<S>):
    Promise<ObjectOutput<Inferred<S>>> {
    return this.#object(input, options, () => undefined);
  }

  // The same, yielding the object so far each time it grows. Leaving the loop stops it.
  streamObject<const S extends Schema>(input: string | readonly ChatMessage[], options: ObjectOptions<S>): ObjectStream<Inferred<S>> {
    type T = Inferred<S>;
    const { stop, end } = linked(options.signal);
    const queue = new Queue<Partly<T>>(() => stop.abort());
    let last: string | undefined;
    const output = this.#object(input, { ...options, signal: stop.signal }, text => {
      const part = partialValue(text), now = JSON.stringify(part);
      if (now !== last && part !== undefined) queue.push(part as Partly<T>);
      last = now;
    }).finally(end);
    output.then(() => queue.finish(), error => queue.fail(error));
    const object = output.then(o => o.object);
    object.catch(() => undefined); // the loop has thrown it, or nobody waits for it
    return Object.assign(queue, { object, output });
  }

  // What the model's file says about itself: the value of a key, undefined if there is none; or all but lists of more
  // than 64 elements.
  metadata(key: string): Promise<Metadata | undefined>;
  metadata(): Promise<Record<string, Metadata>>;
  metadata(key?: string): Promise<Metadata | Record<string, Metadata> | undefined> {
    return this.connection.call('metadata', key === undefined ? {} : { key });
  }
  // The scores of the token after a text, or after tokens: [info.nVocab].
  logits(text: string | ArrayLike<number>, { signal }: { signal?: AbortSignal } = {}): Promise<Float32Array> {
    return this.connection.call('logits', { text: typeof text === 'string' ? text : Array.from(text) }, { signal });
  }

  // special: names of special tokens in the text become those tokens (false). bos: add the BOS token
  // if the model's tokenizer does (true).
  tokenize(text: string, options: { special?: boolean; bos?: boolean } = {}): Promise<number[]> {
    return this.connection.call('tokenize', { text, ...options });
  }
  detokenize(ids: ArrayLike<number>, options: { special?: boolean } = {}): Promise<string> {
    return this.connection.call('detokenize', { ids: Array.from(ids), ...options });
  }
  // For a text, or for messages with all that the chat template adds.
  async countTokens(input: string | readonly Message[]): Promise<number> {
    return (typeof input === 'string' ? await this.tokenize(input)
      : await this.connection.call('chatTokens', { messages: input })).length;
  }
  // The text that the chat template makes of messages.
  format(messages: readonly Message[], options: { generate?: boolean } = {}): Promise<string> {
    return this.connection.call('chatFormat', { messages, addGenerationPrompt: options.generate ?? true });
  }

  // Vectors of texts, by an embedding model: close to each other where texts mean the same. One text gives one vector.
  embed(text: string, options?: EmbedOptions): Promise<Float32Array>;
  embed(texts: readonly string[], options?: EmbedOptions): Promise<Float32Array[]>;
  async embed(input: string | readonly string[], { normalize, signal, ...params }: EmbedOptions = {}):
    Promise<Float32Array | Float32Array[]> {
    const texts = typeof input === 'string' ? [input] : input;
    const { vectors, nDims } = await this.connection.call('embed', { texts, params }, { signal });
    const rows = texts.map((_, i) => vectors.slice(i * nDims, (i + 1) * nDims));
    if (normalize) rows.forEach(toLengthOne);
    return typeof input === 'string' ? rows[0]! : rows;
  }
  // Vectors of images, of length 1. One image gives one vector.
  embedImages(image: ImageSource, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  embedImages(images: readonly ImageSource[], options?: { signal?: AbortSignal }): Promise<Float32Array[]>;
  async embedImages(input: ImageSource | readonly ImageSource[], { signal }: { signal?: AbortSignal } = {}):
    Promise<Float32Array | Float32Array[]> {
    const images = [input].flat() as ImageSource[];
    const { vectors, nDims } = await this.connection.call('embedImages', { images: images.map(portableImage) }, { signal });
    const rows = images.map((_, i) => vectors.slice(i * nDims, (i + 1) * nDims));
    return Array.isArray(input) ? rows : rows[0]!;
  }
  // What images show, by a classifier: the most likely labels, best first.
  classify(image: ImageSource, options?: ClassifyOptions): Promise<Label[]>;
  classify(images: readonly ImageSource[], options?: ClassifyOptions): Promise<Label[][]>;
  async classify(input: ImageSource | readonly ImageSource[], { hits = 0, signal }: ClassifyOptions = {}):
    Promise<Label[] | Label[][]> {
    const images = ([input].flat() as ImageSource[]).map(portableImage);
    const labels = await this.connection.call('classify', { images, hits }, { signal });
    return Array.isArray(input) ? labels : labels[0]!;
  }

  // Transcribes a sound, with a speech recognition model.
  async transcribe(sound: SoundSource, { rate, onSegment, signal, ...params }: TranscribeOptions = {}): Promise<Transcript> {
    const audioRate = this.#audioRate();
    throwIfAborted(signal);
    const samples = await samplesOf(sound, rate, audioRate);
    const segments: Segment[] = [];
    const onEvent = (segment: Segment): void => {
      segments.push(segment);
      return onSegment?.(segment);
    };
    const { language } = await this.connection.call('transcribe', { samples, rate: audioRate, params }, { signal, onEvent });
    return { text: segments.map(({ text }) => text).join(' '), segments, seconds: samples.length / audioRate, language };
  }
  // The same for live sound.
  async transcriber({ onSegment, onPartial, signal, ...params }: TranscriberOptions = {}): Promise<LiveTranscription> {
    const rate = this.#audioRate();
    const id = await this.connection.call('transcriber', { params: { ...params, partial: !!onPartial } }, { signal });
    const feed = (samples: Float32Array | null): Promise<void> => this.connection.call('transcriberFeed', { id, samples }, {
      signal, onEvent: ({ partial, ...segment }) => (partial ? onPartial : onSegment)?.(segment),
    });
    return { rate, feed, end: () => feed(null), close: () => this.connection.call('transcriberClose', { id }) };
  }
  #audioRate(): number {
    const { name, media: { audioRate } } = this.#info;
    if (!audioRate) throw new TernError('unsupported', `${name || 'the model'} does not transcribe`);
    return audioRate;
  }

  // Speaks a text, or its tokens, with a speech model and its codec. Leaving the loop stops it. Fails when aborted.
  speak(text: string | ArrayLike<number>, { signal, ...params }: SpeakOptions = {}): Speech {
    const { stop, end } = linked(signal);
    const queue = new Queue<Float32Array<ArrayBuffer>>(() => stop.abort());
    const stats = this.connection.call('speak', { text: typeof text === 'string' ? text : Array.from(text), params }, {
      signal: stop.signal, onEvent: samples => queue.push(samples),
    }).finally(end);
    stats.then(() => queue.finish(), error => queue.fail(error));
    return Object.assign(queue, { stats, rate: this.#info.codec?.codecRate ?? 0 });
  }

  // The cosine of the angle between two vectors, -1 to 1; 0 if one of them is 0.
  static similarity(a: ArrayLike<number>, b: ArrayLike<number>): number {
    let ab = 0, aa = 0, bb = 0;
    for (let i = 0; i < a.length; i++) {
      ab += a[i]! * b[i]!;
      aa += a[i]! * a[i]!;
      bb += b[i]! * b[i]!;
    }
    return aa > 0 && bb > 0 ? ab / Math.sqrt(aa) / Math.sqrt(bb) : 0;
  }

  diagnose(options: Omit<DiagnoseOptions, keyof EngineChoice> & Pick<EngineChoice, 'device'> = {}): Promise<Report> {
    return check(this.connection, this.engine, options, this.#info.notes);
  }

  memory(): Promise<MemoryInfo & { device: DeviceMemory | null }> {
    return this.connection.call('memory', undefined);
  }

  // Stops everything and frees it. Stored models stay.
  async close(): Promise<void> {
    try {
      // A worker may be busy with a long step; it is terminated anyway.
      await Promise.race([this.connection.call('close', undefined), new Promise(resolve => setTimeout(resolve, 500))]);
    } catch {
      // Closed or dead already.
    }
    this.connection.close();
  }

  async #object<S extends Schema>(input: string | readonly ChatMessage[], { schema, compact, onText, ...options }: ObjectOptions<S>,
    onJson: (text: string) => void): Promise<ObjectOutput<Inferred<S>>> {
    const grammar = specOfSchema(schema, compact);
    let reasoning = '', json = '';
    const output = await this.#generate(
      typeof input === 'string' ? { prompt: input, grammar } : { ...chatInput(input), apart: true, grammar }, options,
      (piece, part) => {
        if (part?.kind === 'reasoning') return void (reasoning += piece);
        onJson(json += piece);
        return onText?.(piece);
      });
    const whole = { ...output, text: json, reasoning };
    return { ...whole, object: await valueOf(schema, whole) as Inferred<S> };
  }

  async #generate(input: TextInput, options: GenerateOptions = {},
    onPart: (piece: string, part?: Part) => void = () => undefined): Promise<GenerateOutput> {
    const { onText, onProgress, logitsProcessor, signal, stop, schema, regex, choice, grammar, compact, loraScales, ...params } = options;
    if (logitsProcessor && this.#info.worker)
      throw new TernError('unsupported', 'a logitsProcessor runs in the engine\'s own thread: load the model with worker: false');
    const spec = specOf({ schema, regex, choice, grammar, compact } as FormOptions);
    let text = '';
    const logprobs: TokenLogprobs[] = [];
    const more = {
      ...(spec ? { grammar: spec } : {}), ...(logitsProcessor ? { logitsProcessor } : {}), ...(onProgress ? { tellsPrompt: true } : {}),
      ...(loraScales ? { loraScales } : {}),
    };
    const result = await this.#run({ ...input, ...more }, {
      ...params, ...(stop === undefined ? {} : { stop: typeof stop === 'string' ? [stop] : stop }),
    }, (piece, tokens, part) => {
      text += piece;
      if (tokens) logprobs.push(...tokens);
      const told = onPart(piece, part);
      return piece && onText ? onText(piece) : told;
    }, signal, onProgress);
    const { reason } = result;
    if (reason === 'caller') throw aborted(signal);
    return {
      text, ids: Array.from(result.ids), finishReason: finishOf(reason), reason, usage: usageOf([result]),
      timings: timingsOf(result), seed: result.seed, dropped: result.nDropped,
      ...(params.logprobs ? { logprobs } : {}),
    };
  }

  async #run(input: TextInput, params: GenerateParams, onPiece: OnPiece, signal?: AbortSignal, onPrompt?: (fraction: number) => void):
    Promise<GenerateResult> {
    const result = await this.connection.call('generate', { input, params }, {
      signal, onEvent: ({ text, logprobs, part, prompt }) => prompt === undefined ? onPiece(text, logprobs, part) : onPrompt?.(prompt),
    });
    if (result.notice) {
      await this.refresh();
      this.#info.notes.push(result.notice);
    }
    return result;
  }
}

async function check(connection: Connection, engine: HostEngineOptions, options: DiagnoseOptions,
  notes: readonly string[]): Promise<Report> {
  const { device, kernels, quick, signal, onItem } = options;
  const report = await connection.call('check', {
    engine,
    options: {
      ...(device && device !== 'auto' ? { device: device === 'wasm' ? 'cpu' : device } as const : {}),
      ...(kernels === undefined ? {} : { kernels }), ...(quick === undefined ? {} : { quick }),
    },
  }, { signal, onEvent: onItem });
  return new Report(report, notes);
}

function toLengthOne(row: Float32Array): void {
  const length = Math.hypot(...row) || 1;
  for (let i = 0; i < row.length; i++) row[i]! /= length;
}

const isRemote = (source: ModelSource): boolean =>
  !inNode() && (source instanceof URL || (typeof source === 'string' && !/^(blob|data):/i.test(source)));

// A worker in another folder would resolve a relative URL differently; a URL object cannot be sent.
function portable(source: ModelSource): ModelSource {
  if (source instanceof URL) return source.href;
  if (typeof source !== 'string' || inNode() || source.startsWith('hf:')) return source;
  const base = (globalThis as { document?: Document; location?: Location }).document?.baseURI
    ?? (globalThis as { location?: Location }).location?.href;
  return base && URL.canParse(source, base) ? new URL(source, base).href : source;
}

// Aborted by the caller's signal too, until end() is called: no listener stays on a signal that outlives the call.
function linked(signal: AbortSignal | undefined): { stop: AbortController; end(): void } {
  const stop = new AbortController();
  const abort = () => stop.abort(signal!.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener('abort', abort);
  return { stop, end: () => signal?.removeEventListener('abort', abort) };
}

function engineOptions({ threads, build, wasmUrl, gpu }: EngineChoice): HostEngineOptions {
  return {
    ...(threads === undefined ? {} : { threads }), ...(build === undefined ? {} : { build }), ...(gpu ? { gpu } : {}),
    ...(wasmUrl === undefined ? {} : { wasmUrl: String(portable(wasmUrl as string)) }),
  };
}

const forHost = ['device', 'batch', 'head', 'ternary', 'thinking', 'pooling', 'chatTemplate', 'vocabOnly', 'webgpu', 'context', 'kv',
  'speculate', 'sessions', 'cache', 'headers', 'hub', 'lorasBySession'] as const satisfies readonly (keyof HostLoadOptions & keyof LoadOptions)[];

const hostOptions = (options: LoadOptions): HostLoadOptions =>
  Object.fromEntries(forHost.filter(name => options[name] !== undefined).map(name => [name, options[name]]));
