// Messages between the package's API and the engine's host, in the same thread or across a worker's boundary.
import type { LoadOptions, ModelSource, ImageSource, Progress, TernInfo } from './api.js';
import type {
  ChatRequest, CheckOptions, CheckReport, DeviceMemory, EmbedParams, EmbedResult, EngineOptions,
  GenerateParams, GenerateResult, GrammarOptions, LadderItem, LogitsProcessor, LogLevel, MemoryInfo, Message, Metadata, ModelCalls, Part, Pixels, SpeakParams,
  OnLog, SpeakStats, ThreadScript, TokenLogprobs, TranscribedSegment, TranscribeParams,
} from './engine/types.js';
import type { PlainError } from './errors.js';

// Options that are plain data; wasmUrl is the folder's.
export interface HostEngineOptions extends Pick<EngineOptions, 'threads' | 'build' | 'gpu'> { wasmUrl?: string }
export type HostLoadOptions = HostEngineOptions & Pick<LoadOptions,
  'device' | 'batch' | 'head' | 'ternary' | 'thinking' | 'pooling' | 'chatTemplate' | 'vocabOnly' | 'webgpu' | 'context' | 'kv'
  | 'speculate' | 'sessions' | 'cache' | 'headers' | 'hub' | 'codec' | 'loras' | 'lorasBySession'>;

// lenient: if its schemas are not supported, any answer will do.
export type GrammarSpec = Omit<GrammarOptions, 'after'> & { lenient?: boolean };

// maxPixels: of the image shown to the model; 0: as many as it takes.
export interface ImageInput { image: ImageSource; maxPixels: number }

// One of the first three; images: the request's, in the order of its parts of type "image". apart: parse the answer
// into parts. grammar: what the answer may be.
export interface TextInput {
  prompt?: string;
  messages?: readonly Message[];
  request?: ChatRequest;
  images?: readonly ImageInput[];
  apart?: boolean;
  grammar?: GrammarSpec;
  loraScales?: readonly number[];
  tellsPrompt?: boolean; // events have `prompt`
  logitsProcessor?: LogitsProcessor; // only in the engine's own thread
}

// Each call: its arguments, the events during it, its result.
export interface OwnCalls {
  load: { args: { source: ModelSource; options: HostLoadOptions }; event: Progress; result: Omit<TernInfo, 'worker'> };
  info: { args: undefined; event: never; result: Omit<TernInfo, 'worker'> };
  generate: {
    args: { input: TextInput; params: GenerateParams };
    event: { text: string; logprobs?: TokenLogprobs[]; part?: Part; prompt?: number };
    result: GenerateResult;
  };
  metadata: { args: { key?: string }; event: never; result: Metadata | Record<string, Metadata> | undefined };
  logits: { args: { text: string | readonly number[] }; event: never; result: Float32Array }; // of the token after it
  embed: { args: { texts: readonly string[]; params: EmbedParams }; event: never; result: EmbedResult };
  // Live transcription, by the id that transcriber returns; samples null: the end.
  transcriber: { args: { params: TranscribeParams & { partial: boolean } }; event: never; result: number };
  transcriberFeed: { args: { id: number; samples: Float32Array | null }; event: TranscribedSegment; result: undefined };
  transcriberClose: { args: { id: number }; event: never; result: undefined };
  speak: { args: { text: string | readonly number[]; params: SpeakParams }; event: Float32Array<ArrayBuffer>; result: SpeakStats };
  tokenize: { args: { text: string; special?: boolean; bos?: boolean }; event: never; result: number[] };
  chatTokens: { args: { messages: readonly Message[] }; event: never; result: number[] };
  check: { args: { engine: HostEngineOptions; options: CheckOptions }; event: LadderItem; result: CheckReport };
  memory: { args: undefined; event: never; result: MemoryInfo & { device: DeviceMemory | null } };
  close: { args: undefined; event: never; result: undefined };
}
// What the host decodes on the way.
type Sent<A> = A extends { images: readonly Pixels[] } ? Omit<A, 'images'> & { images: readonly ImageSource[] } : A;
export type Calls = OwnCalls & {
  [C in keyof ModelCalls]: { args: Sent<ModelCalls[C]['args']>; event: ModelCalls[C]['event']; result: Awaited<ModelCalls[C]['result']> };
};
export type Method = keyof Calls;

export type ToHost =
  | { call: number; method: Method; args: unknown }
  | { abort: number; reason?: string }
  | { hello: true } // asks for `ready`: the first one may have been sent before anybody listened
  | { hold: string } // a web lock to hold while the worker lives
  | { threadFailed: number; why: string };

export type FromHost =
  | { ready: true }
  | { held: true }
  | { log: LogLevel; line: string }
  | { event: number; value: unknown }
  | { done: number; value: unknown }
  | { failed: number; error: PlainError }
  | { thread: number; script: ThreadScript; start: unknown } // to be started by the page's thread: EngineOptions.startThread
  | { endThread: number };

// One end of a channel.
export interface Port<In, Out> {
  post(message: Out): void;
  listen(on: (message: In) => void): void;
}
export type HostPort = Port<ToHost, FromHost>;

export interface ClientPort extends Port<FromHost, ToHost> {
  onDeath(on: (why: string) => void): void;
  busy(yes: boolean): void; // whether calls are pending: an idle worker does not keep Node running
  close(): void; // at once, whatever is running
}

// Both ends in one thread.
export function localPorts(): { client: ClientPort; host: HostPort } {
  let toClient: (message: FromHost) => void = () => undefined;
  let toHost: (message: ToHost) => void = () => undefined;
  return {
    client: {
      post: message => queueMicrotask(() => toHost(message)),
      listen: on => { toClient = on; },
      onDeath: () => undefined,
      busy: () => undefined,
      close: () => undefined,
    },
    host: {
      post: message => queueMicrotask(() => toClient(message)),
      listen: on => { toHost = on; },
    },
  };
}

export interface Handler {
  onLog?: OnLog | undefined; // set by whoever listens
  call<M extends Method>(method: M, args: Calls[M]['args'], emit: (event: Calls[M]['event']) => void,
    signal: AbortSignal): Promise<Calls[M]['result']>;
}
