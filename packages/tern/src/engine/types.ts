// The engine as the package sees it: a WebAssembly module, the files it reads, models, sessions.
// Everything runs in the thread that loaded the engine, a worker's or the page's. Names are
// tern.h's in camel case, times are in seconds, sizes in bytes. Failures are TernErrors of one sentence.

// A file of the model. Reads are synchronous, since the module reads its weights in the middle of
// opening: an OPFS sync access handle, a File through FileReaderSync (both only in workers), bytes in
// memory, a Node file. The engine closes the sources it was given when the model is closed, or when
// opening failed.
export interface Source {
  readonly name: string; // the path that the module sees, "model.gguf" or "folder/config.json"
  readonly size: number;
  // Fills `into` from byte `at` on; returns how many bytes it wrote, fewer only at the end of the
  // file. `into` is never in shared memory, and is not valid after the call.
  read(at: number, into: Uint8Array): number;
  close?(): void;
}

// Small files that outlive the page, such as the limits found for the GPU's driver (a few bytes
// each). When write returns, the bytes must be stored as far as the platform can: the next step
// may end the process.
export interface StateStore {
  read(name: string): Uint8Array | undefined;
  write(name: string, bytes: Uint8Array): void;
}

export type Device = 'auto' | 'webgpu' | 'wasm';
export type Build = 'simd' | 'relaxed' | 'threads';

// navigator.gpu, or the same of another library: TypeScript before 6 does not know its type.
export interface Gpu { requestAdapter(options?: { powerPreference?: 'low-power' | 'high-performance' }): Promise<object | null> }

export interface EngineOptions {
  threads?: number; // maximum; 0 or omitted: one per core if the page is cross-origin isolated
  build?: Build; // instead of the best one that works here; fails if it does not
  wasmUrl?: (file: string) => URL | string; // where tern.wasm and the other modules are; default: next to this module
  wasmModule?: WebAssembly.Module; // already compiled: the one that `build` names
  threadScript?: ThreadScript; // the threads' script; default: worker.js next to this module, where no bundler finds it
  onLog?: OnLog;
  // Starts a thread on the page's own thread, for engines in a worker: Firefox needs it for threads.
  startThread?: StartThread;
  gpu?: Gpu; // instead of navigator.gpu: in Node, npm's webgpu
  state?: StateStore;
  signal?: AbortSignal;
}

// A script that accepts a ThreadStart (thread.ts) as the package's worker does.
export interface ThreadScript { url: string; type: WorkerType }
// Starts a worker with the script and posts `start` to it; if that fails, calls fail with the reason.
// Both may happen after the call returns.
export type StartThread = (script: ThreadScript, start: unknown, fail: (why: string) => void) => { terminate(): unknown };

// One line for people: what was opened, what an answer took, what is not as one would expect.
export type LogLevel = 'debug' | 'info' | 'warn';
export type OnLog = (level: LogLevel, line: string) => void;

// Gets the text's tokens (the prompt and the answer so far) and the scores of the next one, which it may change. Returns
// nothing, or the token itself.
export type LogitsProcessor = (ids: Int32Array, logits: Float32Array) => number | void;

// phase: a short word such as "load". fraction: 0..1.
export type OnProgress = (phase: string, fraction: number) => void;

export interface OpenOptions {
  // 'auto': WebGPU on a GPU that computes correctly, else WebAssembly (ModelInfo.deviceReason says why).
  // 'webgpu': WebGPU on whatever it runs, or an error.
  device?: Device;
  batch?: number; // maximum prompt tokens computed at once; 0: 512
  head?: 'auto' | 'file' | 'exact' | 'q8_0' | 'q6_k' | 'q4_0';
  ternary?: 'auto' | '2bit' | '1.6bit';
  thinking?: 'auto' | 'on' | 'off';
  pooling?: 'auto' | 'mean' | 'last' | 'cls'; // treat the model as an embedding model even if its files do not say so
  chatTemplate?: string; // Jinja text that replaces the file's
  vocabOnly?: boolean; // only tokenizer and template: no sessions
  loras?: { path: string; scale?: number }[]; // adapters: the paths of sources. scale: 1; 0: it is not applied
  lorasBySession?: boolean; // see SessionOptions.loraScales; not of models that make vectors
  webgpu?: WebGpuOptions;
  onProgress?: OnProgress;
  signal?: AbortSignal;
}

export interface WebGpuOptions {
  group?: number; // dispatches per submission; negative: any number; 0: found by trying
  matrix?: boolean; // false: do not use matrix units
  power?: 'low-power' | 'high-performance';
  f16?: boolean; // false: do not ask for shader-f16
}

export interface Engine {
  readonly build: Build;
  readonly threads: number;
  readonly note: string | null; // a sentence if it is not the best build for this browser
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
  device: string; // where the model runs: "cpu wasm-relaxed, 1 thread", "webgpu ..."
  deviceReason: string | null; // why 'auto' did not choose WebGPU, one sentence
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
  infill: InfillInfo;
  media: MediaInfo;
}
export type Metadata = string | number | boolean | (string | number | boolean | null)[];
// Tokens for filling in between two texts, -1: none: tern_infill_info.
export interface InfillInfo {
  prefixToken: number; suffixToken: number; middleToken: number; padToken: number;
  repositoryToken: number; separatorToken: number; // before the name of a repository; of each file
  fillsIn: boolean; // the vocabulary has what this takes
  suffixFirst: boolean; // suffix, then prefix, without a middle
}
// What the model does with images and sound: tern_media_info. Zero, false and -1 where it has nothing of the kind.
export interface MediaInfo {
  imageWidth: number; imageHeight: number; // of the images that the model classifies or makes vectors of
  patch: number; // edge of the squares that become rows
  nLabels: number; // number of labels of a classifier
  nDims: number; // length of an image's vector
  hasVision: boolean; // accepts images in prompts
  imageToken: number; beginToken: number; endToken: number; // what stands for an image in a prompt, and around it
  isAsr: boolean; // transcribes
  audioRate: number; // sample rate that it transcribes
  isTts: boolean; // speaks, with a codec
  nSpeaker: number; // length of the vector that describes a voice; 0: it takes none
  isCodec: boolean;
  codecRate: number; // sample rate of a codec's output
  codecFrame: number; // samples of a frame
  nCodes: number; nValues: number; // codes of a frame, which are below nValues
}
export interface EmbeddingInfo {
  nDims: number; // length of a vector; 0: the model makes none
  maxLength: number; // maximum tokens of a text
  nLabels: number; // for a reranker; else 0
  prompts: string[]; // names of the prompts in the model's files
  defaultPrompt: string | null;
}

export interface Message { role: string; content: string }

// A conversation as templates take it: OpenAI's names, and the template's own switches.
export interface ChatRequest {
  messages: readonly object[];
  tools?: readonly object[];
  [name: string]: unknown;
}

// What a piece of a parsed answer is: text, reasoning, the name of a called function, its arguments, or
// the end of the call. call: which one, from 0.
export interface Part { kind: 'text' | 'reasoning' | 'call' | 'arguments' | 'call_end'; call: number }

// What a model does with an object of arguments: by the names of apps/web's functions (web_chat_format). Another one
// takes a line here, its function there and a method of Tern, and if it waits for a GPU, a line in media.ts; nothing else
// lists them. `images` are sources of images in Tern and decoded on the way.
export interface ModelCalls {
  detokenize: { args: { ids: readonly number[]; special?: boolean }; event: never; result: string };
  chatFormat: { args: { messages: readonly Message[]; addGenerationPrompt: boolean }; event: never; result: string };
  // The most likely labels for each image (hits 0: five).
  classify: { args: { images: readonly Pixels[]; hits?: number }; event: never; result: Promise<Label[][]> };
  embedImages: { args: { images: readonly Pixels[] }; event: never; result: Promise<EmbedImagesResult> };
  // Transcribes, segment by segment, at the model's sample rate. If aborted, it fails after the current segment
  // where the browser can suspend WebAssembly (JSPI); elsewhere when all is done.
  transcribe: { args: { samples: Float32Array; rate: number; params: TranscribeParams }; event: Segment; result: Promise<TranscribeResult> };
}
export interface Asking<C extends keyof ModelCalls> { // of a call that takes a while
  onEvent?: ((event: ModelCalls[C]['event']) => void) | undefined;
  signal?: AbortSignal | undefined;
}

export interface Model {
  readonly info: ModelInfo; // current: device and deviceMemory change
  // What its file says about itself: the value of a key, undefined if there is none; or all but long lists.
  metadata(key: string): Metadata | undefined;
  metadata(): Record<string, Metadata>;
  // special: names of special tokens in the text become those tokens (false). bos: add the BOS token
  // if the model's tokenizer does (true).
  tokenize(text: string, options?: { special?: boolean; bos?: boolean }): Int32Array;
  // special: also the names of control tokens (false).
  detokenize(ids: ArrayLike<number>, options?: { special?: boolean }): string;
  // context > 0: room for prompt and answer; the oldest turns that do not fit are left out.
  chatTokens(messages: readonly Message[], options?: { context?: number; answer?: number }):
    { ids: Int32Array; dropped: number };
  // Tokens of a request with tools; no messages are dropped.
  requestTokens(request: ChatRequest): Int32Array;
  ask<C extends keyof ModelCalls>(call: C, args: ModelCalls[C]['args'], asking?: Asking<C>): ModelCalls[C]['result'];
  // generate: end with the prompt for an answer (true).
  chatFormat(messages: readonly Message[], options?: { generate?: boolean }): string;
  session(options?: SessionOptions): Session;
  // Vectors of texts, some thousand tokens at a time; messages are served in between.
  embed(texts: readonly string[], params: EmbedParams, signal?: AbortSignal): Promise<EmbedResult>;
  // ---- Images, sounds and speech ----
  // Encodes an image, or two frames of a video, reduced to at most maxPixels (0: as the model's files say, up to 1,048,576). An image that was
  // encoded before is not computed again. Close the result once the prompt it was placed in is computed or discarded.
  imageTokens(images: readonly Pixels[], options?: { maxPixels?: number }): Promise<ImageTokens>;
  // ids with each image token replaced by its image's ids; there must be as many as images.
  imageTokensPlace(ids: ArrayLike<number>, images: readonly ImageTokens[]): Int32Array;
  transcriber(params: TranscribeParams & { partial?: boolean }): Transcriber; // partial: report preliminary texts
  // Speaks a text, or its tokens, in pieces that join seamlessly; codec turns this model's codes into sound. If aborted,
  // it fails after the current step, one frame of speech at most.
  speak(codec: Model, text: string | readonly number[], params: SpeakParams, onSamples: (samples: Float32Array<ArrayBuffer>) => void,
    signal?: AbortSignal): Promise<SpeakStats>;
  // Compiles a grammar; fails with a sentence that says where something is not supported.
  grammar(options: GrammarOptions): Grammar;
  close(): void; // closes its sessions and grammars, too; running generations fail with 'closed'
}

// Rows from the top: RGB, or RGBA, whose alpha is dropped.
export interface Pixels { readonly width: number; readonly height: number; readonly data: Uint8Array | Uint8ClampedArray }
export interface ImageTokens { readonly id: number; close(): void }
export interface Label {
  id: number;
  label: string; // as named in the model's files
  score: number; // the model's raw score
  probability: number; // among all labels
}
export interface EmbedImagesResult { vectors: Float32Array<ArrayBuffer>; nDims: number } // [images, nDims], of length 1
export interface Segment { start: number; end: number; text: string; ids: number[] } // seconds
export interface TranscribeResult { language: string } // the spoken language, 'en' and so on; '': the model does not say
export interface TranscribeParams {
  whole?: boolean; // skip nothing: transcribe what is not speech, too
  secondsMax?: number; // maximum length of a segment; 0: the model's
  tokensPerSecond?: number; // maximum; 0: 6.5
  // For multilingual models (Whisper):
  language?: string; // the spoken language, 'en' and so on; omitted: detected in the first window
  translate?: boolean; // into English
  noFallback?: boolean; // do not decode uncertain texts again at higher temperatures
}
export type TranscribedSegment = Segment & { partial?: true }; // partial: the preliminary text of the current segment
// Live transcription.
export interface Transcriber {
  // Takes more samples, at the model's rate; null: the end. Computes; fails as transcribe does.
  feed(samples: Float32Array | null, onSegment: (segment: TranscribedSegment) => void, signal?: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export interface SpeakParams {
  // Put before the text: the voice, for a model with named voices ("andrew"), or the language, for a multilingual one
  // ("en_us").
  voice?: string;
  speaker?: ArrayLike<number>; // a voice vector; omitted: a random voice
  temperature?: number; // 0: the makers'; below 0: greedy
  topP?: number; // 0: 0.95
  repeatPenalty?: number; // 0: 1.1
  seed?: number; // an integer below 2^53; 0 or omitted: a different one each time
  speed?: number; // 0.25 to 4 times as fast, at the same pitch (1)
  secondsMax?: number; // 0: 60, or the model's
}
export interface SpeakStats {
  rate: number; // sample rate
  nFrames: number;
  seconds: number; // of sound
  modelSeconds: number; codecSeconds: number; // computing time
  firstSeconds: number; // until the first samples
  isCut: boolean; // it was cut before it ended by itself
}

// Constrains an answer (docs/grammar.md).
export interface GrammarOptions {
  kind: 'schema' | 'json' | 'regex' | 'gbnf' | 'lark' | 'choices' | 'calls';
  text?: string; // the JSON Schema, expression or grammar; for calls: the list of tools, JSON
  choices?: readonly string[];
  compact?: boolean; // JSON without whitespace between its parts
  // For calls: only this tool; at most one call; text without a call is allowed, too.
  tool?: string;
  oneCall?: boolean;
  optional?: boolean;
  tools?: string; // the answer is either calls of these tools (JSON) or what the other members say
  after?: string; // in conversations: the end of the prompt; reasoning may come before the answer
}
export interface Grammar { close(): void } // only when no generation uses it

export interface EmbedParams {
  prompt?: string; // name of one of the model's prompts; omitted: its default; '': none
  prefix?: string; // a text to put before each, instead of the model's prompts
  maxLength?: number; // maximum tokens of a text, the rest is cut off; 0: the model's
  dimensions?: number; // keep this many leading dimensions, normalized again; 0: all
}
export interface EmbedResult {
  vectors: Float32Array<ArrayBuffer>; // [texts, nDims]
  nDims: number;
  nTokens: number[]; // per text
  cut: boolean[]; // whether the text was too long and was cut
}

export interface SessionOptions {
  context?: number; // tokens; 0: the model's training context, at most 8192
  kv?: 'auto' | 'f32' | 'f16' | 'q8_0';
  speculate?: boolean | SpeculateOptions; // false; true: both drafters
  // With lorasBySession: one for each adapter, 0: it is not applied. Omitted: those of `loras`.
  loraScales?: readonly number[];
}
export interface SpeculateOptions {
  lookup?: boolean; // what followed earlier occurrences of the last tokens
  online?: boolean; // what was learnt from the session's own text
  maxLength?: number; // of a draft in tokens, at most 16 (8)
  threshold?: number; // greedy: minimum probability of a drafted token (0)
  tokenCost?: number; // of one more token in a run, relative to a run of one; 0: measured
  always?: boolean; // draft even if it has not paid off so far (false)
}
// Limits of one answer's drafts; what is omitted is as the session has it.
export interface DraftLimits {
  none?: boolean; // no drafts
  without?: readonly Drafter[]; // drafters that are left out
  most?: number; // tokens of a draft
  least?: number; // a shorter draft is not computed
  chance?: number; // a draft ends before a guess whose like was right less often
}
export type Drafter = 'chains' | 'lookup' | 'online' | 'model' | 'caller';

// Samplers that few use, off unless given; in brackets what their settings are otherwise.
export interface SamplerParams {
  topNSigma?: number; // logits at most this many standard deviations below the greatest; 0: off
  typicalP?: number; // the most typical tokens that exceed it together; 0 or 1: off
  xtcProbability?: number; // of leaving out all but the least likely of the likely tokens
  xtcThreshold?: number; // which are those of this probability (0.1)
  dynatempRange?: number; // the temperature goes this far up and down with the entropy
  dynatempExponent?: number; // (1)
  dryMultiplier?: number; // penalty of what would continue a repetition,
  dryBase?: number; // times this (1.75) for each more token of it
  dryAllowedLength?: number; // shorter repetitions cost nothing (2)
  dryPenaltyLastN?: number; // of the last tokens (-1: all)
  drySequenceBreakers?: string[]; // no repetition goes beyond one
  mirostat?: number; // 1 or 2: replaces all samplers but biases and temperature
  mirostatTau?: number; // the surprise that it aims at, in bits (5)
  mirostatEta?: number; // how fast (0.1)
  samplers?: string; // letters of those that act, in their order ("edskypmxt"); "-": none
  minTokens?: number; // no end token and no stop before so many
  stopTokenIds?: number[]; // tokens that end the answer, as end tokens do
  allowedTokenIds?: number[]; // no others are chosen
  badWords?: string[]; // texts that are not written
}

export interface GenerateParams extends SamplerParams {
  maxTokens?: number; // 0: until the model stops or the context is full
  // Omitted: the file's default or, if it has none, the usual one (0.8, 40, 0.95, 0.05, 1).
  temperature?: number; // 0: greedy
  topK?: number; // 0: off
  topP?: number; // 1: off; 0: the likeliest token alone
  minP?: number; // 0: off
  repeatPenalty?: number; // 0 or 1: off
  frequencyPenalty?: number; presencePenalty?: number; // 0: off
  penaltyWindow?: number; // number of last tokens that the penalties apply to; 0: 64
  seed?: number; // an integer below 2^53; 0 or omitted: a different one each time
  stop?: string[]; // stop strings; they are not part of the answer
  ignoreEnd?: boolean; // continue after end tokens (for measurements)
  logprobs?: boolean; // log probability of each token
  topLogprobs?: number; // with logprobs: how many of the most likely tokens to list, 0 to 20
  drafts?: DraftLimits; // of speculation
}

export interface TokenLogprob {
  id: number;
  text: string; // as far as its bytes are valid UTF-8
  bytes: number[];
  logprob: number; // ln p by the model, before sampling parameters
}
export interface TokenLogprobs extends TokenLogprob { top: TokenLogprob[] }

export interface GenerateInput { // one of the three
  prompt?: string; // special tokens are recognized, the tokenizer's BOS is added
  ids?: ArrayLike<number>;
  // Formatted by the model's chat template; the oldest turns that do not fit with the answer are dropped.
  messages?: readonly Message[];
  // Parse the answer: onText gets the kind of each piece. tools: the request's, JSON; after: the end of the prompt,
  // which may have begun the reasoning.
  apart?: { tools?: string; after?: string };
  grammar?: Grammar | undefined; // of the session's model
  onPrompt?: ((fraction: number) => void) | undefined; // while the prompt is read
  logitsProcessor?: LogitsProcessor | undefined;
}

export interface GenerateResult {
  // The model stopped; maxTokens; a stop string; the context is full; the signal was aborted.
  reason: 'end' | 'length' | 'string' | 'context' | 'caller';
  ids: Int32Array; // the answer's
  nPrompt: number; nReused: number; nGenerated: number; // tokens
  nDropped: number; // messages dropped
  promptSeconds: number; generateSeconds: number;
  seed: number; // the seed used
  nSteps: number; nDrafted: number; nAccepted: number; // of speculative decoding
  notice: string | null; // the device was lost, and what the model continues on: one line
}

export interface Session {
  readonly nContext: number;
  readonly kv: 'f32' | 'f16' | 'q8_0';
  readonly loraScales: readonly number[]; // with lorasBySession, of each adapter; else none
  // One at a time per session; a model's sessions generate concurrently. The prefix that the session
  // already holds is not computed again. If aborted, it resolves with reason 'caller'. onText gets
  // whole characters; with logprobs also the tokens since the last piece.
  generate(input: GenerateInput, params: GenerateParams,
    onText: (piece: string, logprobs?: TokenLogprobs[], part?: Part) => void, signal?: AbortSignal):
    Promise<GenerateResult>;
  close(): void;
}

export interface CheckOptions {
  device?: 'cpu' | 'webgpu'; // 'cpu': WebAssembly
  kernels?: boolean; // check every kernel variant against the scalar one (true)
  ladder?: boolean; // run the checks of `tern diagnose` (true)
  quick?: boolean; // skip the measurements of the machine
  files?: readonly Source[]; // with `model`: also compare this model's weights and results
  model?: string;
  onItem?: (item: LadderItem) => void; // as soon as it is known
  signal?: AbortSignal; // between kernels
}
export interface CheckItem { name: string; ok: boolean; detail: string; seconds: number }
// As in `tern diagnose --json`: {fact, value} or {check, ok, seconds, detail}.
export interface LadderItem { fact?: string; value?: string; check?: string; ok?: boolean; seconds?: number; detail?: string }
export interface CheckReport {
  build: 'simd' | 'relaxed'; // whose kernels were checked; 'threads' has those of 'relaxed'
  device: string;
  nFailed: number; // among kernels and ladder
  kernels: CheckItem[];
  ladder: LadderItem[];
}
