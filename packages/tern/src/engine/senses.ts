// Pictures and sounds for a model that sees or hears, in the modules that have senses. Calls may be suspended in the
// middle: for the GPU, or between a recording's segments, so that who wants to stop is heard.
import { TernError } from './error.js';
import { suspendable } from './jspi.js';
import type { Exports, Module } from './module.js';
import { fromModule, toModule } from './names.js';
import { nextTask } from './task.js';
import type { Label, ModelInfo, Pixels, Segment, Sight, TranscribeParams } from './types.js';

// What the functions below need of an engine's model.
export interface Caller {
  readonly id: number;
  readonly isOpen: boolean;
  readonly engine: {
    readonly module: Module;
    call(use: (exports: Exports) => number): number;
    callJson(args: unknown, use: (exports: Exports, at: number, n: number) => number): number;
    suspended(use: (exports: Exports) => number | Promise<number>): Promise<number>;
    listener: Listener | undefined; // to the segments of the call that is suspended
  };
}
export type Listener = (json: string) => boolean; // of a segment, or '': whether to go on

const AT_ONCE = 8; // pictures of a call: messages are served in between

// Of one of these functions, which only modules with senses have.
const call = (exports: Exports, name: 'web_see' | 'web_classify' | 'web_embed_pictures' | 'web_transcribe') => {
  if (!exports[name]) throw new TernError('unsupported', 'the module that is loaded neither sees nor hears (the option senses)');
  return suspendable(exports[name]);
};

export type SenseInfo = Pick<ModelInfo, 'vision' | 'hearingRate'>;
export const NO_SENSES: SenseInfo = { vision: { inTexts: false, nLabels: 0, nDims: 0 }, hearingRate: 0 };
export function senseInfo({ engine, id }: Caller): SenseInfo {
  engine.call(x => x.web_senses!(id));
  return fromModule(engine.module.result()) as SenseInfo;
}

// Red, green and blue alone.
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

// use() with blocks of the module's memory that hold these, until it is done. One that trapped is not touched again.
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

const withPictures = <T>(module: Module, pictures: readonly Pixels[], use: (pictures: object[]) => Promise<T>): Promise<T> =>
  withBlocks(module, pictures.map(colours), at =>
    use(pictures.map(({ width, height }, i) => ({ width, height, at: at[i]! }))));

export async function see(model: Caller, picture: Pixels, maxPixels = 0): Promise<Sight> {
  const { engine } = model, { module } = engine;
  const id = await withPictures(module, [picture], pictures => engine.suspended(x =>
    module.withJson({ pictures, n_pixels_max: maxPixels }, (at, n) => call(x, 'web_see')(model.id, at, n))));
  return { id, close: () => { if (model.isOpen) engine.call(x => x.web_sight_close!(id)); } };
}

// A prompt's ids with those of the pictures in their places.
export function place(model: Caller, ids: ArrayLike<number>, sights: readonly Sight[]): Int32Array {
  const args = { ids: Array.from(ids), sights: sights.map(({ id }) => id) };
  model.engine.callJson(args, (x, at, n) => x.web_sights_place!(model.id, at, n));
  return Int32Array.from(model.engine.module.result<{ ids: number[] }>().ids);
}

export async function classify(model: Caller, pictures: readonly Pixels[], hits: number, signal: AbortSignal | undefined): Promise<Label[][]> {
  const { engine } = model, { module } = engine, all: Label[][] = [];
  for (let first = 0; first < pictures.length; first += AT_ONCE) {
    if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
    await withPictures(module, pictures.slice(first, first + AT_ONCE), some => engine.suspended(x =>
      module.withJson({ pictures: some, n_hits: hits }, (at, n) => call(x, 'web_classify')(model.id, at, n))));
    all.push(...module.result<Label[][]>());
    await nextTask();
  }
  return all;
}

export async function embedPictures(model: Caller, pictures: readonly Pixels[], nDims: number, signal: AbortSignal | undefined):
  Promise<Float32Array<ArrayBuffer>> {
  const { engine } = model, { module } = engine, all = new Float32Array(pictures.length * nDims);
  for (let first = 0; first < pictures.length; first += AT_ONCE) {
    if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
    const some = pictures.slice(first, first + AT_ONCE);
    const room = new Float32Array(some.length * nDims);
    await withBlocks(module, [room], ([to]) => withPictures(module, some, async given => {
      await engine.suspended(x =>
        module.withJson({ pictures: given, to }, (at, n) => call(x, 'web_embed_pictures')(model.id, at, n)));
      all.set(module.floats(to!, room.length), first * nDims);
    }));
    await nextTask();
  }
  return all;
}

export async function transcribe(model: Caller, samples: Float32Array, rate: number, params: TranscribeParams,
  onSegment: (segment: Segment) => void, signal: AbortSignal | undefined): Promise<void> {
  const { engine } = model, { module } = engine;
  let failure: { error: unknown } | undefined;
  const listener: Listener = json => {
    try {
      if (json) onSegment(fromModule(JSON.parse(json)) as Segment);
    } catch (error) { // the caller's: it ends what it heard
      failure = { error };
    }
    return !failure && !signal?.aborted && model.isOpen;
  };
  try {
    await withBlocks(module, [samples], ([pcm]) => engine.suspended(x => {
      if (signal?.aborted) throw new TernError('aborted', 'aborted by the caller', { cause: signal.reason });
      engine.listener = listener;
      return module.withJson(toModule(params), (at, n) => call(x, 'web_transcribe')(model.id, pcm!, samples.length, rate, at, n));
    }));
  } catch (error) {
    throw failure ? failure.error : error;
  }
}
