// The package's public types. Times are in seconds and sizes in bytes, except where names follow
// OpenAI's and llama-server's (openai.ts).
import type {
  Build, Device, DraftLimits, EmbedParams, Gpu, Label, LadderItem, LogitsProcessor, MediaInfo, Message, Metadata, ModelInfo, OnLog, OpenOptions, Pixels, SamplerParams, Segment, SpeakParams, SpeakStats, SpeculateOptions, TokenLogprobs,
  TranscribeParams,
} from './engine/types.js';

// Where a model comes from:
// - a URL of a .gguf file (of a split set: its first part), or of a folder, ending in "/";
// - "hf:owner/repo[/file.gguf | /folder][@revision]" on Hugging Face;
// - a File or Blob, or several Files (a folder, or the parts of a split set), which are not copied;
// - bytes, which are copied;
// - in Node also the path of a file or a folder.
export type ModelSource = string | URL | Blob | ArrayBuffer | Uint8Array | readonly File[];

// A LoRA adapter: a GGUF file, or a PEFT folder.
export interface Lora { source: ModelSource; scale?: number } // (1); 0: it is not applied

export type Phase = 'resolve' | 'wait' | 'retry' | 'verify' | 'download' | 'read' | 'open' | (string & {});

export interface Progress {
  // 'resolve': asking the hub for the files; 'wait': another tab is downloading this model; 'retry': a server does
  // not answer, or the connection was lost (`reason`), and it is asked again; 'verify': stored files are checked against their checksums; 'download'; 'read': into memory; others are the engine's.
  phase: Phase;
  loaded: number; // bytes; 0 in phases that do not count bytes
  total: number; // bytes; 0: unknown
  fraction: number; // 0..1 of this phase
  bytesPerSecond: number; // over the last seconds; 0 where nothing is transferred
  file?: string; // the current file
  reason?: string; // of 'retry': a sentence
}

export interface CacheOptions {
  verify?: boolean; // false: trust stored bytes without comparing checksums (true)
  update?: boolean; // true: ask the server whether a stored model has changed (false)
  persist?: boolean; // false: do not ask the browser for persistent storage (true)
  folder?: string; // Node: where models are stored; default: "tern/models" in the user's cache folder
}

export interface HubOptions {
  baseUrl?: string; // of a mirror of https://huggingface.co
  token?: string; // for private and gated repositories
}

export interface EngineChoice {
  device?: Device; // 'auto': WebGPU if it is available and computes correctly, else WebAssembly
  threads?: number; // maximum; more than one needs a cross-origin isolated page
  build?: Build; // instead of the best one that works here
  wasmUrl?: string | URL; // the folder of the .wasm files; default: next to the package's JavaScript
  // true: in a worker of its own, or fail; false: in this thread; omitted: in a worker if one can
  // be started. A URL (of a module that imports "tern-engine/worker", on the page's own origin), a
  // Worker, or a function that creates one: use that worker.
  worker?: boolean | string | URL | Worker | (() => Worker);
  gpu?: Gpu; // instead of navigator.gpu: in Node, npm's webgpu. The engine then stays in this thread
}

export interface LoadOptions extends EngineChoice,
  Pick<OpenOptions, 'batch' | 'head' | 'ternary' | 'thinking' | 'pooling' | 'chatTemplate' | 'vocabOnly' | 'webgpu'> {
  context?: number; // tokens of a conversation; omitted: the model's training context, at most 8192
  kv?: 'auto' | 'f32' | 'f16' | 'q8_0'; // storage type of keys and values
  speculate?: boolean | SpeculateOptions; // speculative decoding; the output is the same (false)
  loras?: readonly Lora[]; // adapters, which all apply
  lorasBySession?: boolean; // GenerateOptions.loraScales chooses among them
  sessions?: number; // conversations whose keys and values are kept (4)
  // Where a downloaded model is stored. true or omitted: OPFS; in Node, true: a folder, omitted:
  // not stored. false: only in memory.
  cache?: boolean | CacheOptions;
  headers?: Record<string, string>; // sent with every request for the model's files
  hub?: HubOptions;
  // For speech models: the codec that turns their codes into sound. If no device is given, it runs on WebGPU
  // where WebAssembly can wait for it (JSPI), and the model on WebAssembly.
  codec?: ModelSource;
  onProgress?: (progress: Progress) => void;
  onLog?: OnLog; // what the engine says besides: one line for people, as long as the model is open
  signal?: AbortSignal;
}

export interface TernInfo extends ModelInfo {
  id: string; // the source's id, as Tern.models.delete takes it
  files: { name: string; size: number }[];
  storage: 'opfs' | 'folder' | 'memory' | 'file'; // where the files are; 'file': the user's own files
  build: Build;
  codec?: MediaInfo & { device: string }; // of the codec that was loaded with the model
  context: number;
  worker: boolean; // whether it runs in a worker
  notes: string[]; // sentences about limitations found (no WebGPU, no OPFS, ...)
}

// JSON Schema, drafts 4 to 2020-12; for what is supported see docs/grammar.md.
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };
// Schema objects of Zod and others (https://standardschema.dev). They must be able to describe themselves as JSON
// Schema, as Zod's can from 4.2 on.
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => ValidationResult<Output> | Promise<ValidationResult<Output>>;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}
export type ValidationResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string; readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined }[] };
export type Schema = JsonSchema | StandardSchema;
// The type of an answer that follows the schema; a plain JSON Schema has no static type.
export type Inferred<S> = S extends { readonly '~standard': { readonly types?: { readonly output: infer O } | undefined } }
  ? O : any;

// Constrains the answer: at most one of the four. The answer then matches, or is a valid beginning if it was cut.
export interface FormOptions {
  schema?: Schema; // the answer is JSON that satisfies it
  regex?: string | RegExp; // must match the whole answer
  choice?: readonly string[]; // the answer is one of these
  grammar?: string | { lark: string }; // GBNF, or Lark's notation
  compact?: boolean; // with a schema: no whitespace between the parts of the JSON
}

export interface GenerateOptions extends FormOptions, SamplerParams {
  maxTokens?: number; // omitted: until the model stops or the context is full
  // Omitted: the model's own default or, if it has none, 0.8, 40, 0.95, 0.05, 1.
  temperature?: number; // 0: greedy
  topK?: number; // 0: off
  topP?: number; // 0: the likeliest token alone
  minP?: number;
  repeatPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  penaltyWindow?: number; // number of last tokens that the penalties apply to (64)
  seed?: number; // an integer from 1; omitted: a different one each time
  stop?: string | string[]; // stop strings; they are not part of the answer
  ignoreEnd?: boolean; // continue after end tokens
  // With lorasBySession: one for each adapter, 0: it is not applied. Omitted: those of LoadOptions.loras.
  loraScales?: readonly number[];
  logprobs?: boolean;
  topLogprobs?: number; // 0 to 20, with logprobs
  drafts?: DraftLimits; // of speculation, for this answer
  onText?: (piece: string) => void; // called with whole characters as they are generated
  onProgress?: (fraction: number) => void; // 0..1 while the prompt is read
  // Sees the scores of each token before it is chosen; it may change them, or return the token itself. It runs in the
  // engine's own thread: only with the LoadOption worker: false.
  logitsProcessor?: LogitsProcessor;
  signal?: AbortSignal;
}

export type FinishReason = 'stop' | 'length';

export interface GenerateOutput {
  text: string;
  ids: number[];
  finishReason: FinishReason;
  reason: 'end' | 'length' | 'string' | 'context';
  usage: Usage;
  timings: Timings;
  seed: number; // the seed used; the same one gives the same text
  dropped: number; // messages of the conversation that no longer fit
  logprobs?: TokenLogprobs[];
}

export interface ObjectOptions<S extends Schema> extends Omit<GenerateOptions, 'regex' | 'choice' | 'grammar' | 'schema'> {
  schema: S;
}
export interface ObjectOutput<T> extends GenerateOutput {
  object: T;
  reasoning: string; // for models that think first; `text` is only the JSON
}
// The object as far as it has been generated: strings grow, numbers come whole. The last part is not validated yet.
export type Partly<T> = T extends readonly (infer E)[] ? Partly<E>[] : T extends object ? { [K in keyof T]?: Partly<T[K]> } : T;
export interface ObjectStream<T> extends AsyncIterableIterator<Partly<T>> {
  readonly object: Promise<T>; // the complete object, validated
  readonly output: Promise<ObjectOutput<T>>;
}

export interface EmbedOptions extends EmbedParams {
  normalize?: boolean; // true: length 1, even for models whose vectors have other lengths
  signal?: AbortSignal;
}

// An image: its URL (https:, data:, blob:), a file, or its pixels. The browser decodes blobs and URLs.
export type ImageSource = string | URL | Blob | ImageBitmap | Pixels;
export interface TextPart { type: 'text'; text: string }
export type ImagePart =
  | { type: 'image_url'; image_url: { url: string; detail?: 'auto' | 'low' | 'high' } } // low: at most 512 x 512 pixels
  | { type: 'image'; image: ImageSource };
export type ContentPart = TextPart | ImagePart;
// For vision models, user messages may contain images.
export interface ChatMessage { role: string; content: string | readonly ContentPart[] }

export interface ClassifyOptions { hits?: number; signal?: AbortSignal } // hits: labels per image (5)

// A sound: samples of one channel, -1 to 1, or a file that the browser decodes; in workers and in Node only samples.
export type SoundSource = Float32Array | AudioBuffer | Blob | ArrayBuffer;
export interface TranscribeOptions extends TranscribeParams {
  rate?: number; // sample rate (16000)
  onSegment?: (segment: Segment) => void; // called as soon as a segment is transcribed
  signal?: AbortSignal;
}
export interface SpeakOptions extends SpeakParams { signal?: AbortSignal }
// Speech in pieces as they are generated: samples of one channel, -1 to 1, that join seamlessly.
export interface Speech extends AsyncIterableIterator<Float32Array<ArrayBuffer>> {
  readonly rate: number; // sample rate
  readonly stats: Promise<SpeakStats>;
}
export interface Transcript { text: string; segments: Segment[]; seconds: number; language: string }
export interface TranscriberOptions extends TranscribeParams {
  onSegment?: (segment: Segment) => void;
  onPartial?: (segment: Segment) => void; // the preliminary text of the current segment, at most every half second
  signal?: AbortSignal;
}
// Live transcription. Samples are processed in order; when feed() resolves, their segments have been reported.
export interface LiveTranscription {
  readonly rate: number; // sample rate
  feed(samples: Float32Array): Promise<void>;
  end(): Promise<void>; // finishes the last segment; a new sound may follow, whose times continue
  close(): Promise<void>;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
  completion_tokens_details: { reasoning_tokens: number };
}

// As in llama-server: milliseconds.
export interface Timings {
  cache_n: number; // prompt tokens found in the cache
  prompt_n: number; // prompt tokens that were computed
  prompt_ms: number;
  prompt_per_token_ms: number;
  prompt_per_second: number;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_token_ms: number;
  predicted_per_second: number;
  draft_n?: number; // with speculation
  draft_n_accepted?: number;
}

export interface StoredModel {
  id: string;
  url: string; // where it came from
  size: number; // bytes when complete; 0: unknown
  stored: number; // bytes stored so far
  complete: boolean;
  lastUsed: Date;
}

export interface StorageEstimate {
  usage: number; // bytes stored for this site, as the browser counts
  quota: number; // maximum bytes that it may store
  models: number; // bytes used by models
  persisted: boolean; // whether the browser promises not to delete them
}

export interface DiagnoseOptions extends EngineChoice {
  kernels?: boolean; // check every kernel against the scalar one (true)
  quick?: boolean; // skip the measurements of the machine
  onItem?: (item: LadderItem) => void; // called with each fact and check as soon as it is known
  signal?: AbortSignal;
}

export type { Build, Device, DraftLimits, Gpu, Label, LadderItem, LogitsProcessor, MediaInfo, Message, Metadata, OnLog, Pixels, Segment, SpeakStats, TokenLogprobs };
