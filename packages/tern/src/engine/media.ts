// Images, sounds and speech. Calls may be suspended in the middle: for the GPU,
// or between a recording's segments, so that aborting works.
import { TernError } from './error.js';
import { suspendable } from './jspi.js';
import type { Exports, Module } from './module.js';
import { fromModule, toModule } from './names.js';
import { nextTask } from './task.js';
import type {
  Asking, EmbedImagesResult, ImageTokens, Label, ModelCalls, ModelInfo, Pixels, SpeakParams, SpeakStats, TranscribedSegment,
  TranscribeParams, Transcriber, TranscribeResult,
} from './types.js';

// What the functions below need from an engine's model.
export interface Caller {
  readonly id: number;
  readonly isOpen: boolean;
  readonly info: ModelInfo;
  readonly engine: {
    readonly module: Module;
    call(use: (exports: Exports) => number): number;
    callJson(args: unknown, use: (exports: Exports, at: number, n: number) => number): number;
    suspended(use: (exports: Exports) => number | Promise<number>): Promise<number>;
    listener: SegmentListener | undefined; // gets the segments of the suspended call
  };
}
export type SegmentListener = (json: string) => boolean; // gets a segment, or ''; returns whether to continue

const AT_ONCE = 8; // images per call: messages are served in between

const call = (exports: Exports, name: keyof Exports) => suspendable(exports[name] as (...args: number[]) => number | Promise<number>);

// Red, green and blue only.
function colours({ width, height, data }: Pixels): Uint8Array {
  const n = width * height;
  const fits = Number.isSafeInteger(n) && width > 0 && height > 0 && (data.length === 3 * n || data.length === 4 * n);
  if (!fits) throw new TernError('argument', `${width} x ${height} pixels have 3 or 4 bytes each, not ${data.length} in all`);
  if (data.length === 3 * n) return data as Uint8Array;
  const rgb = new Uint8Array(3 * n);
  for (let from = 0, to = 0; to < rgb.length; from += 4, to += 3) {
    rgb[to] = data[from]!;
    rgb[to + 1] = data[from + 1]!;
    rgb[to + 2] = data[from + 2]!;
  }
  return rgb;
}

// Calls use() with blocks of the module's memory that hold these, then frees them. A module that trapped is not touched again.
async function withBlocks<T>(module: Module, contents: readonly (Uint8Array | Float32Array)[], use: (at: number[]) => Promise<T>): Promise<T> {
  const at: number[] = [];
  let trapped = false;
  try {
    for (const each of contents) at.push(module.put(each));
    return await use(at);
  } catch (error) {
    trapped = error instanceof TernError && error.code === 'trap';
    throw error;
  } finally {
    if (!trapped) for (const each of at) module.exports.web_free(each);
  }
}

const withImages = <T>(module: Module, images: readonly Pixels[], use: (images: object[]) => Promise<T>): Promise<T> =>
  withBlocks(module, images.map(colours), at =>
    use(images.map(({ width, height }, i) => ({ width, height, at: at[i]! }))));

export async function imageTokens(model: Caller, images: readonly Pixels[], maxPixels = 0): Promise<ImageTokens> {
  const { engine } = model, { module } = engine;
  const id = await withImages(module, images, given => engine.suspended(x =>
    module.withJson({ images: given, n_pixels_max: maxPixels }, (at, n) => call(x, 'web_see')(model.id, at, n))));
  return { id, close: () => { if (model.isOpen) engine.call(x => x.web_image_close(id)); } };
}

// A prompt's ids with those of the images in place.
export function imageTokensPlace(model: Caller, ids: ArrayLike<number>, images: readonly ImageTokens[]): Int32Array {
  const args = { ids: Array.from(ids), images: images.map(({ id }) => id) };
  model.engine.callJson(args, (x, at, n) => x.web_images_place(model.id, at, n));
  return Int32Array.from(model.engine.module.result<{ ids: number[] }>().ids);
}

// A call about images, a few at a time; take() gets the result for those from `first` on.
async function inTurn(model: Caller, name: keyof Exports, images: readonly Pixels[], signal: AbortSignal | undefined, more: object,
  take: (first: number) => void): Promise<void> {
  const { engine } = model, { module } = engine;
  for (let first = 0; first < images.length; first += AT_ONCE) {
    if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
    await withImages(module, images.slice(first, first + AT_ONCE), given => engine.suspended(x =>
      module.withJson({ ...more, images: given }, (at, n) => call(x, name)(model.id, at, n))));
    take(first);
    await nextTask();
  }
}

async function classify(model: Caller, images: readonly Pixels[], hits: number, signal: AbortSignal | undefined): Promise<Label[][]> {
  const all: Label[][] = [];
  await inTurn(model, 'web_classify', images, signal, { n_hits: hits }, () => void all.push(...model.engine.module.result<Label[][]>()));
  return all;
}

async function embedImages(model: Caller, images: readonly Pixels[], signal: AbortSignal | undefined): Promise<EmbedImagesResult> {
  const { module } = model.engine, { nDims } = model.info.media, vectors = new Float32Array(images.length * nDims);
  await withBlocks(module, [vectors.subarray(0, AT_ONCE * nDims)], ([to]) => inTurn(model, 'web_embed_images', images, signal, { to },
    first => vectors.set(module.floats(to!, Math.min(AT_ONCE, images.length - first) * nDims), first * nDims)));
  return { vectors, nDims };
}

// A call that reports segments; aborting, or a callback that fails, ends it.
async function withListener(model: Caller, onSegment: (segment: TranscribedSegment) => void,
  signal: AbortSignal | undefined, use: (exports: Exports) => number | Promise<number>): Promise<void> {
  const { engine } = model;
  let failure: { error: unknown } | undefined;
  const listener: SegmentListener = json => {
    try {
      if (json) onSegment(fromModule(JSON.parse(json)) as TranscribedSegment);
    } catch (error) { // an error of the caller's callback: it ends the call
      failure = { error };
    }
    return !failure && !signal?.aborted && model.isOpen;
  };
  try {
    await engine.suspended(x => {
      if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
      engine.listener = listener;
      return use(x);
    });
  } catch (error) {
    throw failure ? failure.error : error;
  }
}

function transcribe(model: Caller, { samples, rate, params }: ModelCalls['transcribe']['args'],
  { onEvent: onSegment = () => undefined, signal }: Asking<'transcribe'>): Promise<TranscribeResult> {
  const { module } = model.engine;
  return withBlocks(module, [samples], async ([pcm]) => {
    let result: TranscribeResult | undefined;
    await withListener(model, onSegment, signal, async x => {
      const status = await module.withJson(toModule(params), (at, n) => call(x, 'web_transcribe')(model.id, pcm!, samples.length, rate, at, n));
      if (status >= 0) result = module.result();
      return status;
    });
    return result!;
  });
}

// The calls that wait, by name.
type Media = { [C in keyof ModelCalls as ModelCalls[C]['result'] extends Promise<unknown> ? C : never]:
  (model: Caller, args: ModelCalls[C]['args'], asking: Asking<C>) => ModelCalls[C]['result'] };
export const MEDIA: Media = {
  classify: (model, { images, hits = 0 }, { signal }) => classify(model, images, hits, signal),
  embedImages: (model, { images }, { signal }) => embedImages(model, images, signal),
  transcribe,
};

export function openTranscriber(model: Caller, params: TranscribeParams): Transcriber {
  const { engine } = model, { module } = engine;
  const id = engine.callJson(toModule(params), (x, at, n) => x.web_transcriber(model.id, at, n));
  return {
    feed: async (samples, onSegment, signal) => {
      if (samples?.length === 0) return;
      await withBlocks(module, samples ? [samples] : [], ([pcm]) => withListener(model, onSegment, signal, x =>
        samples ? call(x, 'web_transcriber_feed')(id, pcm!, samples.length) : call(x, 'web_transcriber_end')(id)));
    },
    close: async () => void await engine.suspended(x => model.isOpen ? x.web_transcriber_close(id) : 0), // after the current feed
  };
}

interface Step { at: number; n: number; done: boolean; stats: object }

export async function speak(model: Caller, codec: Caller, text: string | readonly number[], { speaker, ...params }: SpeakParams,
  onSamples: (samples: Float32Array<ArrayBuffer>) => void, signal: AbortSignal | undefined): Promise<SpeakStats> {
  const { engine } = model, { module } = engine;
  const id = await withBlocks(module, speaker ? [Float32Array.from(speaker)] : [], async ([at]) => engine.callJson({
    ...toModule(params), [typeof text === 'string' ? 'text' : 'ids']: text, codec: codec.id, speaker: at, n_speaker: speaker?.length,
  }, (x, json, n) => x.web_speak(model.id, json, n)));
  const isOpen = (): boolean => model.isOpen && codec.isOpen; // closing either ends the speech
  try {
    for (;;) {
      let step: Step | undefined;
      await engine.suspended(async x => {
        if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
        if (!isOpen()) throw new TernError('closed', 'the model was closed');
        const status = await call(x, 'web_speak_next')(id);
        step = status < 0 ? undefined : module.result<Step>();
        if (step?.n) onSamples(module.floats(step.at, step.n));
        return status;
      });
      if (step!.done) return fromModule(step!.stats) as SpeakStats;
      await nextTask();
    }
  } finally {
    if (isOpen()) engine.call(x => x.web_speak_close(id));
  }
}
