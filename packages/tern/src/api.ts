// The types of the package's front door. Times are seconds and sizes bytes, except in what follows
// OpenAI's and llama-server's names (openai.ts).
import type {
  Build, Device, EmbedParams, Label, LadderItem, Message, ModelInfo, OpenOptions, Pixels, Segment, SpeakParams, SpeakStats, SpeculateOptions, TokenLogprobs,
  TranscribeParams,
} from './engine/types.js';

// Where a model comes from:
// - a URL of a .gguf file (of a split set: its first part), or of a folder, ending in "/";
// - "hf:owner/repo[/file.gguf | /folder][@revision]" on Hugging Face;
// - a File or Blob, or several Files (a folder, or the parts of a split set), which are not copied;
// - bytes, which are;
// - in Node also a path of a file or a folder.
export type ModelSource = string | URL | Blob | ArrayBuffer | Uint8Array | readonly File[];

export type Phase = 'resolve' | 'wait' | 'verify' | 'download' | 'read' | 'open' | (string & {});

export interface Progress {
  // 'resolve': asking the hub what there is; 'wait': another tab downloads this model; 'verify': what
  // is stored is compared with its checksums; 'download'; 'read': into memory; else the engine's.
  phase: Phase;
  loaded: number; // bytes; 0 in phases that count none
  total: number; // bytes; 0: unknown
  fraction: number; // 0..1 of this phase
  bytesPerSecond: number; // of the last seconds; 0 where nothing is transferred
  file?: string; // the one that is worked on
}

export interface CacheOptions {
  verify?: boolean; // false: trust stored bytes without comparing checksums (true)
  update?: boolean; // true: ask the server whether a stored model has changed (false)
  persist?: boolean; // false: do not ask the browser to keep what is stored (true)
  folder?: string; // Node: where models lie; else "tern/models" in the user's cache folder
}

export interface HubOptions {
  baseUrl?: string; // of a mirror of https://huggingface.co
  token?: string; // for private and gated repositories
}

export interface EngineChoice {
  device?: Device; // 'auto': WebGPU if it is there and computes correctly, else WebAssembly
  threads?: number; // at most; more than one needs a cross-origin isolated page
  build?: Build; // instead of the best one that works here
  wasmUrl?: string | URL; // the folder of the .wasm files; else beside the package's JavaScript
  // true: in a worker of its own, or fail; false: in this thread; left out: in a worker where one can
  // be started. A URL (of a module that imports "tern-engine/worker", on the page's own origin), a
  // Worker, or a function that makes one: that worker.
  worker?: boolean | string | URL | Worker | (() => Worker);
  gpu?: GPU; // instead of navigator.gpu: in Node, npm's webgpu. Stays in this thread
}

export interface LoadOptions extends EngineChoice,
  Pick<OpenOptions, 'batch' | 'head' | 'ternary' | 'thinking' | 'pooling' | 'chatTemplate' | 'vocabOnly' | 'webgpu'> {
  context?: number; // tokens of a conversation; left out: what the model was trained for, at most 8192
  kv?: 'auto' | 'f32' | 'f16' | 'q8_0'; // how keys and values are kept
  speculate?: boolean | SpeculateOptions; // guess ahead; the text stays the same (false)
  sessions?: number; // conversations whose beginnings stay computed (4)
  // Where a downloaded model is kept. true or left out: OPFS; in Node, true: a folder, left out:
  // nowhere. false: only in memory.
  cache?: boolean | CacheOptions;
  headers?: Record<string, string>; // sent with every request for the model's files
  hub?: HubOptions;
  // Of a model that speaks: what makes sound of its codes. Without a device it runs on WebGPU where that can be waited for (JSPI),
  // and the model on WebAssembly.
  codec?: ModelSource;
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
}

export interface TernInfo extends ModelInfo {
  id: string; // of the source: what Tern.models.delete takes
  files: { name: string; size: number }[];
  storage: 'opfs' | 'folder' | 'memory' | 'file'; // where the files are; 'file': where the user has them
  build: Build;
  codecDevice?: string; // where the codec runs, as device says of the model
  context: number;
  worker: boolean; // whether it runs in a worker
  notes: string[]; // sentences: what is not as one would expect (no WebGPU, no OPFS, ...)
}

// JSON Schema, drafts 4 to 2020-12; what of it is known: docs/grammar.md.
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };
// What Zod and others make (https://standardschema.dev). To be taken for a schema it describes itself as JSON Schema,
// as Zod's do from 4.2 on.
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
// What an answer of the schema is; of JSON Schema nothing is known when types are checked.
export type Inferred<S> = S extends { readonly '~standard': { readonly types?: { readonly output: infer O } | undefined } }
  ? O : any;

// What the answer may be: at most one of the four. It then is that, or, if it was cut, begins like it.
export interface FormOptions {
  schema?: Schema; // JSON of it
  regex?: string | RegExp; // that matches the whole answer
  choice?: readonly string[]; // one of these
  grammar?: string | { lark: string }; // rules: GBNF, or Lark's notation
  compact?: boolean; // with a schema: no blanks between the parts of the JSON
}

export interface GenerateOptions extends FormOptions {
  maxTokens?: number; // left out: until the model ends or the context is full
  // Left out: the model's own default or, if it has none, 0.8, 40, 0.95, 0.05, 1.
  temperature?: number; // 0: greedy
  topK?: number; // 0: off
  topP?: number;
  minP?: number;
  repeatPenalty?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  penaltyWindow?: number; // last tokens that the penalties look at (64)
  seed?: number; // a whole number from 1; left out: another one each time
  stop?: string | string[]; // texts that end the answer and are not part of it
  ignoreEnd?: boolean; // go on after end tokens
  logprobs?: boolean;
  topLogprobs?: number; // 0 to 20, with logprobs
  onText?: (piece: string) => void; // whole characters, as they come
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
  seed: number; // that was used: the same one gives the same text
  dropped: number; // messages of a conversation that no longer fit
  logprobs?: TokenLogprobs[];
}

export interface ObjectOptions<S extends Schema> extends Omit<GenerateOptions, 'regex' | 'choice' | 'grammar' | 'schema'> {
  schema: S;
}
export interface ObjectOutput<T> extends GenerateOutput {
  object: T;
  reasoning: string; // of models that think first; text is the JSON alone
}
// Parts of the object as they come: strings grow, numbers come whole. What is read last is not checked yet.
export type Partly<T> = T extends readonly (infer E)[] ? Partly<E>[] : T extends object ? { [K in keyof T]?: Partly<T[K]> } : T;
export interface ObjectStream<T> extends AsyncIterableIterator<Partly<T>> {
  readonly object: Promise<T>; // the whole one, checked
  readonly output: Promise<ObjectOutput<T>>;
}

export interface EmbedOptions extends EmbedParams {
  normalize?: boolean; // true: length 1, also of models whose vectors have other lengths
  signal?: AbortSignal;
}

// A picture: its address (https:, data:, blob:), a file, or its pixels. Blobs and addresses are decoded by the browser.
export type PictureSource = string | URL | Blob | ImageBitmap | Pixels;
export interface TextPart { type: 'text'; text: string }
export type ImagePart =
  | { type: 'image_url'; image_url: { url: string; detail?: 'auto' | 'low' | 'high' } } // low: at most 512 x 512 pixels
  | { type: 'image'; image: PictureSource };
export type ContentPart = TextPart | ImagePart;
// Pictures in messages of the user, for models that see.
export interface ChatMessage { role: string; content: string | readonly ContentPart[] }

export interface ClassifyOptions { hits?: number; signal?: AbortSignal } // labels of a picture (5)

// A sound: samples of one channel, -1 to 1, or what the browser decodes; in workers and in Node samples alone.
export type SoundSource = Float32Array | AudioBuffer | Blob | ArrayBuffer;
export interface TranscribeOptions extends TranscribeParams {
  rate?: number; // of samples, a second (16000)
  onSegment?: (segment: Segment) => void; // as soon as it is written down
  signal?: AbortSignal;
}
export interface SpeakOptions extends SpeakParams { signal?: AbortSignal }
// What is said, in pieces as they come: samples of one channel, -1 to 1, that join without a seam.
export interface Speech extends AsyncIterableIterator<Float32Array<ArrayBuffer>> {
  readonly rate: number; // samples a second
  readonly stats: Promise<SpeakStats>;
}
export interface Transcript { text: string; segments: Segment[]; seconds: number; language: string }
export interface HearOptions extends TranscribeParams {
  onSegment?: (segment: Segment) => void;
  onPartial?: (segment: Segment) => void; // what the segment that is being said may become, each half second at most
  signal?: AbortSignal;
}
// A sound that is still being made. What is fed is heard in its order; who waits for feed knows what was said.
export interface Hearing {
  readonly rate: number; // of samples, a second
  feed(samples: Float32Array): Promise<void>;
  end(): Promise<void>; // the last segment; a new sound may follow, whose seconds go on
  close(): Promise<void>;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
  completion_tokens_details: { reasoning_tokens: number };
}

// As llama-server's: milliseconds.
export interface Timings {
  cache_n: number; // prompt tokens that were still there
  prompt_n: number; // that were computed
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
  stored: number; // bytes that are here
  complete: boolean;
  lastUsed: Date;
}

export interface StorageEstimate {
  usage: number; // bytes stored for this site, by the browser's count
  quota: number; // bytes it may store at most
  models: number; // bytes of models
  persisted: boolean; // the browser does not delete them by itself
}

export interface DiagnoseOptions extends EngineChoice {
  kernels?: boolean; // check every kernel against the plain one (true)
  quick?: boolean; // do not measure the machine
  onItem?: (item: LadderItem) => void; // each fact and check as soon as it is known
  signal?: AbortSignal;
}

export type { Build, Device, Label, LadderItem, Message, Pixels, Segment, SpeakStats, TokenLogprobs };
