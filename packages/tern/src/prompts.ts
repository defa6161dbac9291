// Prompts as the engine's tokens, including those of images.
import type { ChatRequest, ImageTokens, Model } from './engine/types.js';
import { TernError, throwIfAborted } from './errors.js';
import { decodeImage } from './images.js';
import type { ImageInput } from './protocol.js';

export interface Prompt {
  ids: Int32Array;
  texts: Int32Array; // with one token for an image, of those that are words
  dropped: number; // messages that did not fit
  close(): void; // when it is computed
}

interface Turn { role: string; content: string | { type: string }[] }

const imagesIn = (turns: readonly Turn[]): number =>
  turns.reduce((n, { content }) => n + (typeof content === 'string' ? 0 : content.filter(({ type }) => type === 'image').length), 0);

// How many of the first turns after the system's to drop to make the conversation shorter; 0: it is one question.
function oldest(turns: readonly Turn[]): number {
  const first = turns[0]?.role === 'system' ? 1 : 0;
  const next = turns.findIndex(({ role }, i) => i > first && role === 'user');
  return next < 0 ? 0 : next - first;
}

// A conversation without tools loses its oldest turns that do not fit with the answer (0: a quarter of the context),
// and their images.
export async function promptWithImages(model: Model, request: ChatRequest, images: readonly ImageInput[], context: number,
  answer: number, signal: AbortSignal): Promise<Prompt> {
  const { name, media } = model.info;
  if (!media.hasVision) throw new TernError('unsupported', `${name || 'the model'} reads no images`);
  const imageTokens: ImageTokens[] = [];
  const close = (): void => { for (const tokens of imageTokens.splice(0)) tokens.close(); };
  try {
    for (const { image, maxPixels } of images) {
      const pixels = await decodeImage(image, signal);
      throwIfAborted(signal);
      imageTokens.push(await model.imageTokens([pixels], { maxPixels }));
      throwIfAborted(signal);
    }
    let turns = request.messages as readonly Turn[], dropped = 0;
    for (;;) {
      const texts = model.requestTokens({ ...request, messages: turns });
      const ids = model.imageTokensPlace(texts, imageTokens.slice(images.length - imagesIn(turns)));
      const n = request.tools || ids.length + (answer || context / 4) <= context ? 0 : oldest(turns);
      if (n === 0) return { ids, texts, dropped, close };
      const first = turns[0]?.role === 'system' ? 1 : 0;
      turns = [...turns.slice(0, first), ...turns.slice(first + n)];
      dropped += n;
    }
  } catch (error) {
    close();
    throw error;
  }
}
