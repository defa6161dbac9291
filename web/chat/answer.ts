// Makes a model write: one answer or continuation at a time, its text given on as it comes, at most once a frame.
import type { GenerateOptions, GenerateOutput } from 'tern-engine';
import type { AnswerStats, ChatMessage, ModelMessage } from './history.ts';

export interface Run {
  readonly id: string; // of the conversation
  stop(): void;
}

export interface Outcome {
  end: ChatMessage['end'];
  error?: string;
  stats?: AnswerStats;
}

/** Of an answer what the page makes use of. */
export type Output = Pick<GenerateOutput, 'usage' | 'timings' | 'reason' | 'dropped'>;
export type Ask = (options: GenerateOptions) => Promise<Output>;

/** What a model does: the package's Tern, or a server. */
export interface Writes {
  chat(messages: ModelMessage[], options: GenerateOptions): Promise<Output>;
  generate(prompt: string, options: GenerateOptions): Promise<Output>;
}

/** Runs `ask`; `onText` gets the text so far. Never throws: how it ended is the result. */
export async function write(
  by: { name: string; device: string },
  ask: Ask,
  signal: AbortSignal,
  onText: (piece: string) => void,
): Promise<Outcome> {
  const from = performance.now();
  let first = 0,
    last = 0,
    pieces = 0,
    waiting = '',
    frame = 0;
  const flush = () => {
    frame = 0;
    if (waiting) onText(waiting);
    waiting = '';
  };
  const onPiece = (piece: string) => {
    last = performance.now();
    first ||= last;
    pieces++;
    waiting += piece;
    // Hidden tabs get no frames, but the text is to be complete when they are shown.
    if (document.hidden) flush();
    else frame ||= requestAnimationFrame(flush);
  };
  const measured = (): AnswerStats | undefined =>
    pieces < 2
      ? undefined
      : {
          promptTokens: 0,
          cachedTokens: 0,
          tokens: pieces,
          perSecond: (pieces - 1) / ((last - first) / 1000),
          firstSeconds: (first - from) / 1000,
          device: by.device,
          model: by.name,
        };
  try {
    const output = await ask({ signal, onText: onPiece });
    const { usage, timings, reason, dropped } = output;
    return {
      end: reason === 'length' || reason === 'context' ? 'length' : undefined,
      stats: {
        promptTokens: usage.prompt_tokens,
        cachedTokens: usage.prompt_tokens_details.cached_tokens,
        tokens: usage.completion_tokens,
        perSecond: timings.predicted_per_second,
        firstSeconds: ((first || performance.now()) - from) / 1000,
        device: by.device,
        model: by.name,
        ...(dropped && { dropped }),
      },
    };
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    const stats = measured();
    return code === 'aborted'
      ? { end: 'stopped', ...(stats && { stats }) }
      : { end: 'failed', error: message, ...(stats && { stats }) };
  } finally {
    if (frame) cancelAnimationFrame(frame);
    flush();
  }
}
