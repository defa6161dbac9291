// The engine as the package sees it: a WebAssembly module, the files it reads, models, sessions.
// Everything runs in the thread that loaded the engine, be it a worker's or the page's. Names are
// tern.h's in camel case, times are seconds, sizes bytes. Failures are TernErrors of one sentence.

// A file of the model. Reads are synchronous, since the module asks for its weights in the middle of
// opening: an OPFS sync access handle, a File through FileReaderSync (both only in workers), bytes in
// memory, a Node file. The engine closes the sources it was given when the model is closed, or when
// opening failed.
export interface Source {
  readonly name: string; // the path that the module sees, "model.gguf" or "folder/config.json"
  readonly size: number;
  // Fills `into` from byte `at` on; returns how many bytes it wrote, fewer only at the end of the
  // file. `into` never lies in shared memory, and is not valid after the call.
  read(at: number, into: Uint8Array): number;
  close?(): void;
}

// Small files that outlive the page, such as what the GPU's driver was found to stand (a few bytes
// each). write must have stored the bytes when it returns as far as the platform can: the next step
// may end the process.
export interface StateStore {
  read(name: string): Uint8Array | undefined;
  write(name: string, bytes: Uint8Array): void;
}

export type Device = 'auto' | 'webgpu' | 'wasm';
export type Build = 'simd' | 'relaxed' | 'threads';

export interface EngineOptions {
  threads?: number; // at most; 0 or left out: one for each core, where the page is cross-origin isolated
  build?: Build; // instead of the best one that works here; fails if it does not
  senses?: boolean; // the module that has the families that see and hear, which is larger (false)
  wasmUrl?: (file: string) => URL | string; // where tern.wasm and its kin lie; else beside this module
  wasmModule?: WebAssembly.Module; // compiled already: the one that `build` names
  threadScript?: ThreadScript; // what threads run; else worker.js beside this module, which no bundler finds there
  // Starts a thread on the page's own thread, for engines in a worker: Firefox needs it for threads.
  startThread?: StartThread;
  gpu?: GPU; // instead of navigator.gpu: in Node, npm's webgpu
  state?: StateStore;
  signal?: AbortSignal;
}

// A script that takes a ThreadStart (thread.ts) as the package's worker does.
export interface ThreadScript { url: string; type: WorkerType }
// A worker of the script, to which `start` is posted; fail is told why there is none. Both may happen
// after the call.
export type StartThread = (script: ThreadScript, start: unknown, fail: (why: string) => void) => { terminate(): unknown };

// phase: a short word such as "load". fraction: 0..1.
export type OnProgress = (phase: string, fraction: number) => void;

export interface OpenOptions {
  // 'auto': WebGPU on a GPU that computes correctly, else WebAssembly (ModelInfo.deviceReason says why).
  // 'webgpu': WebGPU on whatever it runs, or an error.
  device?: Device;
  batch?: number; // prompt tokens computed at once, at most; 0: 512
  head?: 'auto' | 'file' | 'exact' | 'q8_0' | 'q6_k' | 'q4_0';
  ternary?: 'auto' | '2bit' | '1.6bit';
  thinking?: 'auto' | 'on' | 'off';
  pooling?: 'auto' | 'mean' | 'last' | 'cls'; // makes an embedding model of one whose files do not say so
  chatTemplate?: string; // Jinja text that replaces the file's
  vocabOnly?: boolean; // tokenizer and template alone: no sessions
  loras?: { path: string; scale?: number }[]; // the paths of sources
  webgpu?: WebGpuOptions;
  onProgress?: OnProgress;
  signal?: AbortSignal;
}

export interface WebGpuOptions {
  group?: number; // dispatches of a submission without trying; negative: any number; 0: found out
  matrix?: boolean; // false: leave matrix units alone
  power?: GPUPowerPreference;
  f16?: boolean; // false: do not ask for shader-f16
}

export interface Engine {
  readonly build: Build;
  readonly threads: number;
  readonly senses: boolean;
  readonly note: string | null; // a sentence if it is not the build that this browser could have
  // path: "model.gguf" (the first of a split set), or the folder of a Hugging Face model's files, ""
  // if their names have none.
  open(files: readonly Source[], path: string, options?: OpenOptions): Promise<Model>;
  memory(): MemoryInfo;
  check(options?: CheckOptions): Promise<CheckReport>;
  close(): void; // with all its models
}

export interface MemoryInfo {
  wasm: number; // bytes of the module's memory; it never shrinks
  heapNow: number; // allocated inside
  heapMax: number;
}

export interface DeviceMemory {
  weights: number; cache: number; work: number; results: number; now: number; most: number;
}

export interface ModelInfo {
  path: string;
  architecture: string;
  name: string;
  device: string; // where it runs: "cpu wasm-relaxed, 1 thread", "webgpu ..."
  deviceReason: string | null; // why 'auto' did not take WebGPU, one sentence
  ternaryLayout: string; // "2-bit", "1.6-bit", "none"
  head: string;
  nVocab: number; nLayers: number; nEmbd: number; nContextTrain: number;
  nThreads: number; nBatch: number;
  nParams: number;
  fileBytes: number;
  bytesPerToken: number; bytesPerTokenLogits: number; kvBytesPerToken: number; sequenceBytes: number;
  deviceMemory: DeviceMemory;
  loadSeconds: number;
  bosId: number; eosId: number; // -1: none
  addsBos: boolean;
  templateGuess: string | null; // a sentence if the file has no chat template
  // The file's sampling defaults; null: it has none.
  temperature: number | null; topK: number | null; topP: number | null; minP: number | null;
  repeatPenalty: number | null;
  embedding: EmbeddingInfo;
  vision: VisionInfo;
  hearingRate: number; // samples a second that it hears; 0: it hears nothing
  voiceSize: number | null; // numbers of a vector that describes a voice, 0: it takes none; null: it does not speak
  codecRate: number; // samples a second that a codec makes of codes; 0: it is none
}
// What it does with pictures: a module without senses does nothing.
export interface VisionInfo {
  inTexts: boolean; // reads them between texts
  nLabels: number; // classifies them; 0: it does not
  nDims: number; // of a picture's vector; 0: it makes none
}
export interface EmbeddingInfo {
  nDims: number; // numbers of a vector; 0: the model makes none
  maxLength: number; // tokens of a text that it takes
  nLabels: number; // of a reranker; else 0
  prompts: string[]; // names of those that the model's files have
  defaultPrompt: string | null;
}

export interface Message { role: string; content: string }

// A conversation as templates know it: OpenAI's names, and the template's own switches.
export interface ChatRequest {
  messages: readonly object[];
  tools?: readonly object[];
  [name: string]: unknown;
}

// What a piece of an answer is that is taken apart: text, reasoning, the name of a function that is called, its
// arguments, the call's end. call: which one, from 0.
export interface Part { kind: 'text' | 'reasoning' | 'call' | 'arguments' | 'call_end'; call: number }

export interface Model {
  readonly info: ModelInfo; // as it is now: device and deviceMemory change
  // special: names of special tokens in the text become these (false). bos: begin as the model's
  // tokenizer does (true).
  tokenize(text: string, options?: { special?: boolean; bos?: boolean }): Int32Array;
  // special: also the names of control tokens (false).
  detokenize(ids: ArrayLike<number>, options?: { special?: boolean }): string;
  // context > 0: room for prompt and answer; the oldest turns that do not fit are left out.
  chatTokens(messages: readonly Message[], options?: { context?: number; answer?: number }):
    { ids: Int32Array; dropped: number };
  // Of a request with tools; nothing of it is left out.
  requestTokens(request: ChatRequest): Int32Array;
  // generate: end with the words that make the model answer (true).
  chatFormat(messages: readonly Message[], options?: { generate?: boolean }): string;
  session(options?: SessionOptions): Session;
  // Vectors of texts, some thousand tokens at a time; messages are served in between.
  embed(texts: readonly string[], params: EmbedParams, signal?: AbortSignal): Promise<EmbedResult>;
  // ---- Of modules with senses ----
  // Looks at a picture, at most so many pixels of it (0: as many as the model's files say, up to 1,048,576). One that it
  // has seen is not computed again. To be closed when what it was placed in is computed, or no longer wanted.
  see(picture: Pixels, options?: { maxPixels?: number }): Promise<Sight>;
  // ids with the sights' own in place of the model's tokens for pictures, as many as there are.
  place(ids: ArrayLike<number>, sights: readonly Sight[]): Int32Array;
  // Of each picture the likeliest labels (0: five).
  classify(pictures: readonly Pixels[], options?: { hits?: number }, signal?: AbortSignal): Promise<Label[][]>;
  embedPictures(pictures: readonly Pixels[], signal?: AbortSignal): Promise<EmbedPicturesResult>;
  // What is said, segment by segment. rate: the model's. Aborted, it fails after the segment that is being written,
  // where the browser can suspend WebAssembly (JSPI); elsewhere when all is done.
  transcribe(samples: Float32Array, rate: number, params: TranscribeParams, onSegment: (segment: Segment) => void,
    signal?: AbortSignal): Promise<TranscribeResult>;
  hear(params: TranscribeParams & { partial?: boolean }): Listening; // partial: what a segment may become is told
  // A text, or its tokens, as sound, in pieces that join without a seam; codec makes it of this model's codes. Aborted,
  // it fails after the step that is computed, a frame of speech at most.
  speak(codec: Model, text: string | readonly number[], params: SpeakParams, onSamples: (samples: Float32Array<ArrayBuffer>) => void,
    signal?: AbortSignal): Promise<SpeakStats>;
  // Compiles it; fails with a sentence that has the place of what is not known.
  grammar(options: GrammarOptions): Grammar;
  close(): void; // with its sessions and grammars; what they generate fails with 'closed'
}

// Rows from the top: red, green, blue, or these and alpha, which is dropped.
export interface Pixels { readonly width: number; readonly height: number; readonly data: Uint8Array | Uint8ClampedArray }
export interface Sight { readonly id: number; close(): void }
export interface Label {
  id: number;
  label: string; // as the model's files call it
  score: number; // the model's own
  probability: number; // among all labels
}
export interface EmbedPicturesResult { vectors: Float32Array<ArrayBuffer>; nDims: number } // [pictures, nDims], of length 1
export interface Segment { start: number; end: number; text: string; ids: number[] } // seconds
export interface TranscribeResult { language: string } // what was spoken, 'en' and so on; '': the model does not say
export interface TranscribeParams {
  whole?: boolean; // leave nothing out: what is not speech is written down, too
  secondsMax?: number; // of a segment; 0: the model's
  tokensPerSecond?: number; // at most; 0: 6.5
  // Of models of many languages (Whisper):
  language?: string; // what is spoken, 'en' and so on; left out: the model says it by the first window
  translate?: boolean; // into English
  noFallback?: boolean; // what it is unsure of is not written down again with other tokens
}
export type HeardSegment = Segment & { partial?: true }; // partial: what the segment that is being said may become
// A sound that is still being made.
export interface Listening {
  // Samples more, at the model's rate; null: nothing follows. Computes; fails as transcribe does.
  feed(samples: Float32Array | null, onSegment: (segment: HeardSegment) => void, signal?: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export interface SpeakParams {
  // Written before the text: the voice of a model that knows some by name ("andrew"), or the language of one that knows
  // several ("en_us").
  voice?: string;
  speaker?: ArrayLike<number>; // a vector that describes a voice; left out: whatever voice comes
  temperature?: number; // 0: the makers'; below 0: greedy
  topP?: number; // 0: 0.95
  repeatPenalty?: number; // 0: 1.1
  seed?: number; // a whole number below 2^53; 0 or left out: another one each time
  speed?: number; // 0.25 to 4 times as fast, at the same pitch (1)
  secondsMax?: number; // 0: 60, or the model's
}
export interface SpeakStats {
  rate: number; // samples a second
  nFrames: number;
  seconds: number; // of sound
  modelSeconds: number; codecSeconds: number; // that were computed for it
  firstSeconds: number; // until the first samples
  isCut: boolean; // it did not end by itself
}

// What an answer may be (docs/grammar.md).
export interface GrammarOptions {
  kind: 'schema' | 'json' | 'regex' | 'gbnf' | 'lark' | 'choices' | 'calls';
  text?: string; // the JSON Schema, the expression, the rules; of calls: the list of tools, JSON
  choices?: readonly string[];
  compact?: boolean; // JSON without blanks between its parts
  // Of calls: of this tool alone; at most one; text and no call is fine, too.
  tool?: string;
  oneCall?: boolean;
  optional?: boolean;
  tools?: string; // the answer is calls of these, JSON, or what the others say
  after?: string; // of conversations: the end of what the answer follows; reasoning may come before
}
export interface Grammar { close(): void } // when no generation uses it

export interface EmbedParams {
  prompt?: string; // the name of one of the model's; left out: its default; '': none
  prefix?: string; // a text in front of each, in place of the model's prompts
  maxLength?: number; // tokens of a text, the rest is cut off; 0: the model's
  dimensions?: number; // the first numbers of each vector, of length 1 again; 0: all
}
export interface EmbedResult {
  vectors: Float32Array<ArrayBuffer>; // [texts, nDims]
  nDims: number;
  nTokens: number[]; // of each text
  cut: boolean[]; // whether it was longer than it may be
}

export interface SessionOptions {
  context?: number; // tokens; 0: what the model was trained for, at most 8192
  kv?: 'auto' | 'f32' | 'f16' | 'q8_0';
  speculate?: boolean | SpeculateOptions; // false; true: both drafters
}
export interface SpeculateOptions { lookup?: boolean; online?: boolean; maxLength?: number }

export interface GenerateParams {
  maxTokens?: number; // 0: until the model ends or the context is full
  // Left out: the file's default or, if it has none, the usual one (0.8, 40, 0.95, 0.05, 1).
  temperature?: number; // 0: greedy
  topK?: number; // 0: off
  topP?: number; // 0 or 1: off
  minP?: number; // 0: off
  repeatPenalty?: number; // 0 or 1: off
  frequencyPenalty?: number; presencePenalty?: number; // 0: off
  penaltyWindow?: number; // last tokens that the penalties look at, 0: 64
  seed?: number; // a whole number below 2^53; 0 or left out: a new one each time
  stop?: string[]; // texts that end the answer and are not part of it
  ignoreEnd?: boolean; // go on after end tokens (for measurements)
  logprobs?: boolean; // how likely each token was
  topLogprobs?: number; // with logprobs: how many of the likeliest to add, 0 to 20
}

export interface TokenLogprob {
  id: number;
  text: string; // as far as it is UTF-8 by itself
  bytes: number[];
  logprob: number; // ln p by the model itself
}
export interface TokenLogprobs extends TokenLogprob { top: TokenLogprob[] }

export interface GenerateInput { // one of the three
  prompt?: string; // special tokens are recognised, the tokenizer's BOS is added
  ids?: ArrayLike<number>;
  // By the model's chat template; the oldest turns that do not fit beside the answer are left out.
  messages?: readonly Message[];
  // The answer is taken apart: onText gets what each piece is. tools: JSON, those of the request; after: the end of
  // what the answer follows, which may have begun its reasoning.
  apart?: { tools?: string; after?: string };
  grammar?: Grammar | undefined; // of the session's model
}

export interface GenerateResult {
  // The model ended its text; maxTokens; a stop string; the context is full; the signal was aborted.
  reason: 'end' | 'length' | 'string' | 'context' | 'caller';
  ids: Int32Array; // the answer's
  nPrompt: number; nReused: number; nGenerated: number; // tokens
  nDropped: number; // messages left out
  promptSeconds: number; generateSeconds: number;
  seed: number; // that was used
  nSteps: number; nDrafted: number; nAccepted: number; // of speculation
  notice: string | null; // the device was lost, and what it goes on with: one line
}

export interface Session {
  readonly nContext: number;
  readonly kv: 'f32' | 'f16' | 'q8_0';
  // One at a time in a session; sessions of a model generate at the same time. What the session
  // holds already of the new text's beginning is not computed again. Aborted: resolves with reason
  // 'caller'. onText gets whole characters; with logprobs also the tokens since the last piece.
  generate(input: GenerateInput, params: GenerateParams,
    onText: (piece: string, logprobs?: TokenLogprobs[], part?: Part) => void, signal?: AbortSignal):
    Promise<GenerateResult>;
  close(): void;
}

export interface CheckOptions {
  device?: 'cpu' | 'webgpu'; // 'cpu': WebAssembly
  kernels?: boolean; // every kernel variant against the plain one (true)
  ladder?: boolean; // what `tern diagnose` does (true)
  quick?: boolean; // do not measure the machine
  files?: readonly Source[]; // with `model`: also compare this model's weights and results
  model?: string;
  onItem?: (item: LadderItem) => void; // as soon as it is known
  signal?: AbortSignal; // between kernels
}
export interface CheckItem { name: string; ok: boolean; detail: string; seconds: number }
// As `tern diagnose --json` has them: {fact, value} or {check, ok, seconds, detail}.
export interface LadderItem { fact?: string; value?: string; check?: string; ok?: boolean; seconds?: number; detail?: string }
export interface CheckReport {
  build: 'simd' | 'relaxed'; // whose kernels: those of 'threads' are those of 'relaxed'
  device: string;
  nFailed: number; // of kernels and ladder
  kernels: CheckItem[];
  ladder: LadderItem[];
}
