// An engine without a model: tokens are bytes, and an answer says what it was asked. Prompts steer it:
// "json" answers in JSON, "call" calls two tools, "slow" waits between pieces, "fail CODE" fails, "crash" throws outside of any promise.
import type {
  Asking, ChatRequest, Engine, EngineOptions, GenerateInput, GenerateParams, GenerateResult, Grammar, GrammarOptions,
  ImageTokens, Message, Model, ModelCalls, ModelInfo, OpenOptions, Part, Pixels, Session, SessionOptions, Source, SpeakParams, SpeakStats,
  TokenLogprobs, TranscribeParams, TranscribeResult,
} from '../src/engine/types.js';
import { TernError, type ErrorCode } from '../src/errors.js';
import { commonLength } from '../src/sessions.js';

export interface Seen {
  engine?: EngineOptions;
  open?: OpenOptions;
  path?: string;
  files?: Map<string, string>; // the first bytes of each
  sessions: number; // open now
  opened: number; // ever
  running: number;
  most: number; // running at once
  closed: boolean;
  params: GenerateParams[];
  requests: ChatRequest[];
  apart: GenerateInput['apart'][];
  grammars: Map<Grammar, GrammarOptions>; // open now
  bound: (GrammarOptions | undefined)[]; // what answers were bound by
  memory: number; // sessions that may be open at once
  engines: number; // that were loaded
  images: Pixels[]; // that were looked at
  imageTokens: number; // open now
  transcribed: { n: number; rate: number; params: TranscribeParams }[];
  spoken: { text: string | readonly number[]; params: SpeakParams; pieces: number }[]; // pieces: that were told
}
export const newSeen = (): Seen =>
  ({ sessions: 0, opened: 0, running: 0, most: 0, closed: false, params: [], requests: [], apart: [], grammars: new Map(), bound: [],
    memory: Infinity, engines: 0, images: [], imageTokens: 0, transcribed: [], spoken: [] });

const sleep = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));
const bytesOf = (text: string): Int32Array => Int32Array.from(new TextEncoder().encode(text));
const textOf = (ids: ArrayLike<number>): string => new TextDecoder().decode(Uint8Array.from(ids));
type Content = string | { type: string; text?: string }[];
// Of an image the character 1.
const said = (content: Content): string =>
  typeof content === 'string' ? content : content.map(({ type, text }) => type === 'image' ? '\u0001' : text).join('');
const render = (messages: readonly { role: string; content: Content }[]): string =>
  messages.map(({ role, content }) => `<${role}>${said(content)}`).join('') + '<assistant>';

const info: ModelInfo = {
  path: 'm', architecture: 'fake', name: 'fake-model', device: 'cpu wasm-relaxed, 1 thread', deviceReason: null,
  ternaryLayout: '2-bit', head: 'exact', nVocab: 256, nLayers: 1, nEmbd: 1, nContextTrain: 512, nThreads: 1, nBatch: 512,
  nParams: 1, fileBytes: 1, bytesPerToken: 1, bytesPerTokenLogits: 1, kvBytesPerToken: 1000, sequenceBytes: 0,
  deviceMemory: { weights: 0, cache: 0, work: 0, results: 0, now: 0, most: 0 }, loadSeconds: 0, bosId: -1, eosId: 0,
  addsBos: false, templateGuess: null, temperature: null, topK: null, topP: null, minP: null, repeatPenalty: null,
  embedding: { nDims: 0, maxLength: 0, nLabels: 0, prompts: [], defaultPrompt: null },
  infill: {
    prefixToken: -1, suffixToken: -1, middleToken: -1, padToken: -1, repositoryToken: -1, separatorToken: -1, fillsIn: false,
    suffixFirst: false,
  },
  media: {
    imageWidth: 0, imageHeight: 0, patch: 0, nLabels: 0, nDims: 0, hasVision: false, imageToken: -1, beginToken: -1, endToken: -1,
    isAsr: false, audioRate: 0, isTts: false, nSpeaker: 0, isCodec: false, codecRate: 0, codecFrame: 0, nCodes: 0, nValues: 0,
  },
};

const CALLS: [Part['kind'], number, string][] = [
  ['reasoning', 0, 'h'], ['reasoning', 0, 'm'], ['text', 0, 'So'], ['call', 0, 'weather'], ['arguments', 0, '{"town"'],
  ['arguments', 0, ':"Ghent"}'], ['call_end', 0, ''], ['call', 1, 'clock'], ['call_end', 1, '']];

class FakeSession implements Session {
  readonly nContext = 512;
  readonly kv = 'f32';
  readonly loraScales: readonly number[];
  #ids: number[] = [];
  #open = true;
  constructor(private seen: Seen, options: SessionOptions = {}) {
    this.loraScales = options.loraScales ?? [];
    if (seen.sessions >= seen.memory) throw new TernError('memory', 'no room for a session');
    seen.sessions++;
    seen.opened++;
  }
  async generate(input: GenerateInput, params: GenerateParams,
    onText: (piece: string, logprobs?: TokenLogprobs[], part?: Part) => void,
    signal?: AbortSignal): Promise<GenerateResult> {
    const ids = Array.from(input.ids ?? []);
    const asked = textOf(ids).replace(/<assistant>$/, '').replace(/^.*<user>/s, '');
    this.seen.params.push(params);
    this.seen.apart.push(input.apart);
    this.seen.bound.push(input.grammar && this.seen.grammars.get(input.grammar));
    this.seen.most = Math.max(this.seen.most, ++this.seen.running);
    const nReused = commonLength(this.#ids, ids);
    this.#ids = ids;
    try {
      const failure = /^fail (\w+)/.exec(asked);
      if (failure) throw new TernError(failure[1] as ErrorCode, `asked to fail with ${failure[1]}`);
      if (asked === 'crash') {
        setTimeout(() => { throw new Error('crashed as asked'); });
        await sleep(10_000);
      }
      input.onPrompt?.(1);
      if (input.logitsProcessor) {
        const logits = Float32Array.from({ length: 256 }, (_, i) => i), token = input.logitsProcessor(Int32Array.from(ids), logits);
        return await this.#say(token === -2 ? '' : `took ${token ?? logits.indexOf(Math.max(...logits))}`, params, nReused, onText, signal);
      }
      if (asked === 'call') for (const [kind, call, text] of CALLS) onText(text, undefined, { kind, call });
      return await this.#say(asked === 'call' ? '' : asked.startsWith('json') ? asked.slice(5) : `You said: ${asked}`, params, nReused, onText, signal);
    } finally {
      this.seen.running--;
    }
  }
  async #say(answer: string, params: GenerateParams, nReused: number, onText: (piece: string, l?: TokenLogprobs[]) => void,
    signal?: AbortSignal): Promise<GenerateResult> {
    const pieces = answer.match(/\s?\S+/g) ?? [];
    const said: number[] = [];
    let reason: GenerateResult['reason'] = 'end';
    for (const [i, piece] of pieces.entries()) {
      if (params.maxTokens && i >= params.maxTokens) reason = 'length';
      if (params.stop?.some(stop => piece.includes(stop))) reason = 'string';
      if (signal?.aborted) reason = 'caller';
      if (reason !== 'end') break;
      await sleep(answer.includes('slow') ? 20 : 0);
      const token = { id: i, text: piece, bytes: Array.from(bytesOf(piece)), logprob: i === 0 ? -Infinity : -i };
      onText(piece, params.logprobs
        ? [{ ...token, top: Array.from({ length: params.topLogprobs ?? 0 }, () => token) }] : undefined);
      said.push(...bytesOf(piece));
    }
    const nPrompt = this.#ids.length;
    this.#ids.push(...said);
    return {
      reason, ids: Int32Array.from(said), nPrompt, nReused, nGenerated: said.length, nDropped: 0, promptSeconds: 0.5,
      generateSeconds: 2, seed: params.seed ?? 7, nSteps: 1, nDrafted: 0, nAccepted: 0, notice: null,
    };
  }
  close(): void {
    if (this.#open) this.seen.sessions--;
    this.#open = false;
  }
}

export function fakeEngine(seen: Seen): (options?: EngineOptions) => Promise<Engine> {
  return async (options = {}) => {
    seen.engine = options;
    seen.engines++;
    return {
      build: 'relaxed', threads: 1, note: null,
      memory: () => ({ wasm: 1, heapNow: 1, heapMax: 1 }),
      check: async ({ onItem } = {}) => {
        const ladder = [
          { fact: 'verdict', value: 'something is wrong' }, { check: 'llama', ok: true, seconds: 0.1, detail: 'fine' }];
        for (const item of ladder) onItem?.(item);
        return {
          build: 'relaxed', device: 'cpu wasm-relaxed, 1 thread', nFailed: 1, ladder,
          kernels: [{ name: 'matmul', ok: false, detail: 'differs', seconds: 0.1 }],
        };
      },
      close: () => { seen.closed = true; },
      open: async (files: readonly Source[], path, open = {}) => {
        seen.open = open;
        seen.path = path;
        seen.files = new Map(files.map(file => {
          const bytes = new Uint8Array(Math.min(16, file.size));
          file.read(0, bytes);
          return [file.name, new TextDecoder().decode(bytes)];
        }));
        open.onProgress?.('load', 1);
        if (seen.files.get(path)?.startsWith('bad')) throw new TernError('format', `${path}: is no model`);
        return fakeModel(seen, kindOf(files));
      },
    };
  };
}

// Of an image as many tokens as it has pixels, which read as P.
const IMAGE = 0x1050;
interface FakeImageTokens extends ImageTokens { n: number }
function see(seen: Seen, image: Pixels): FakeImageTokens {
  seen.images.push(image);
  seen.imageTokens++;
  return { id: seen.images.length, n: image.width * image.height, close: () => void seen.imageTokens-- };
}

// Writes down three words; between them others are heard.
async function transcribe(seen: Seen, { samples, rate, params }: ModelCalls['transcribe']['args'],
  { onEvent: onSegment, signal }: Asking<'transcribe'>): Promise<TranscribeResult> {
  seen.transcribed.push({ n: samples.length, rate, params });
  for (const [i, text] of ['one', 'two', 'three'].entries()) {
    if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller');
    onSegment?.({ start: i, end: i + 1, text, ids: [i] });
    await sleep(20);
  }
  return { language: 'en' };
}

// Four pieces, each longer than the one before; between them others are heard.
async function speak(seen: Seen, codec: Model, text: string | readonly number[], params: SpeakParams,
  onSamples: Parameters<Model['speak']>[3], signal?: AbortSignal): Promise<SpeakStats> {
  const spoken = { text, params, pieces: 0 };
  seen.spoken.push(spoken);
  for (let n = 1; n <= 4; n++) {
    if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller');
    onSamples(new Float32Array(n).fill(n));
    spoken.pieces = n;
    await sleep(20);
  }
  return { rate: codec.info.media.codecRate, nFrames: 4, seconds: 1, modelSeconds: 0, codecSeconds: 0, firstSeconds: 0, isCut: false };
}

const MEDIA = {
  vit: { hasVision: true, nLabels: 2 }, moonshine: { isAsr: true, audioRate: 16000 }, nanocodec: { isCodec: true, codecRate: 22050 },
  speech: { isTts: true, nSpeaker: 6 },
};
type Kind = keyof typeof MEDIA;
function kindOf([file]: readonly Source[]): Kind | undefined {
  const bytes = new Uint8Array(Math.min(200, file!.size));
  file!.read(0, bytes);
  const text = new TextDecoder().decode(bytes);
  return (Object.keys(MEDIA) as Kind[]).find(kind => text.includes(kind));
}

const calls = (seen: Seen): { [C in keyof ModelCalls]: (args: ModelCalls[C]['args'], asking: Asking<C>) => ModelCalls[C]['result'] } => ({
  detokenize: ({ ids }) => textOf(ids),
  chatFormat: ({ messages }) => render(messages),
  classify: async ({ images, hits = 0 }) => images.map(({ data }) =>
    Array.from({ length: hits || 2 }, (_, id) => ({ id, label: `${data[0]}`, score: 0, probability: 0.5 }))),
  embedImages: async ({ images }) => ({ vectors: Float32Array.from(images.flatMap(({ width, height }) => [width, height])), nDims: 2 }),
  transcribe: (args, asking) => transcribe(seen, args, asking),
});

export const fakeModel = (seen: Seen, kind?: Kind): Model => ({
  info: { ...info, media: { ...info.media, ...kind && MEDIA[kind] } },
  imageTokens: async ([image]) => see(seen, image!),
  imageTokensPlace: (ids, imageTokens) => {
    let next = 0;
    const placed = Array.from(ids).flatMap(id => id === 1 ? Array<number>((imageTokens[next++] as FakeImageTokens).n).fill(IMAGE) : [id]);
    if (next !== imageTokens.length) throw new TernError('argument', `${imageTokens.length} images for ${next} places`);
    return Int32Array.from(placed);
  },
  // A word a piece, which was partial before.
  transcriber: ({ partial }) => ({
    feed: async (samples, onSegment) => {
      const segment = { start: 0, end: 1, text: samples ? `${samples.length}` : 'end', ids: [] };
      if (partial) onSegment({ ...segment, partial: true });
      onSegment(segment);
    },
    close: async () => undefined,
  }),
  speak: (codec, text, params, onSamples, signal) => speak(seen, codec, text, params, onSamples, signal),
  metadata: (key?: string) => {
    const all: Record<string, string | number> = { 'general.name': 'fake', 'fake.block_count': 1 };
    return (key === undefined ? all : all[key]) as never;
  },
  tokenize: text => bytesOf(text),
  detokenize: ids => textOf(ids),
  chatTokens: messages => ({ ids: bytesOf(render(messages)), dropped: messages.length > 9 ? 2 : 0 }),
  chatFormat: messages => render(messages),
  // Seen to fail with a name that the host looks for elsewhere.
  ask: ((call, args, asking = {}) => (calls(seen)[call] as (args: object, asking: object) => unknown)(args, asking)) as Model['ask'],
  requestTokens: request => {
    seen.requests.push(request);
    return bytesOf(render(request.messages as readonly Message[]));
  },
  session: options => new FakeSession(seen, options),
  embed: async () => { throw new TernError('unsupported', 'm: the model writes text'); },
  grammar: options => {
    if (options.text?.includes('puzzling')) throw new TernError('unsupported', "the schema at #/puzzling: 'puzzling' is not known");
    const grammar = { close: () => void seen.grammars.delete(grammar) };
    seen.grammars.set(grammar, options);
    return grammar;
  },
  close: () => undefined,
});
