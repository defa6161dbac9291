// Prompts as the engine's tokens, including those of pictures.
import type { ChatRequest, Model, Sight } from './engine/types.js';
import { TernError, throwIfAborted } from './errors.js';
import { decodePicture } from './pictures.js';
import type { PictureInput } from './protocol.js';

export interface Prompt {
  ids: Int32Array;
  texts: Int32Array; // with one token for a picture, of those that are words
  dropped: number; // messages that did not fit
  close(): void; // when it is computed
}

interface Turn { role: string; content: string | { type: string }[] }

const picturesIn = (turns: readonly Turn[]): number =>
  turns.reduce((n, { content }) => n + (typeof content === 'string' ? 0 : content.filter(({ type }) => type === 'image').length), 0);

// How many of the first turns after the system's to drop to make the conversation shorter; 0: it is one question.
function oldest(turns: readonly Turn[]): number {
  const first = turns[0]?.role === 'system' ? 1 : 0;
  const next = turns.findIndex(({ role }, i) => i > first && role === 'user');
  return next < 0 ? 0 : next - first;
}

// A conversation without tools loses its oldest turns that do not fit with the answer (0: a quarter of the context),
// and their pictures.
export async function promptWithPictures(model: Model, request: ChatRequest, pictures: readonly PictureInput[], context: number,
  answer: number, signal: AbortSignal): Promise<Prompt> {
  const { name, vision } = model.info;
  if (!vision.inTexts) throw new TernError('unsupported', `${name || 'the model'} reads no pictures`);
  const sights: Sight[] = [];
  const close = (): void => { for (const sight of sights.splice(0)) sight.close(); };
  try {
    for (const { picture, maxPixels } of pictures) {
      const pixels = await decodePicture(picture, signal);
      throwIfAborted(signal);
      sights.push(await model.see(pixels, { maxPixels }));
      throwIfAborted(signal);
    }
    let turns = request.messages as readonly Turn[], dropped = 0;
    for (;;) {
      const texts = model.requestTokens({ ...request, messages: turns });
      const ids = model.place(texts, sights.slice(pictures.length - picturesIn(turns)));
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
