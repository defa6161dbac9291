// The server that this page came from, as what the chat's views know: a model that writes. It speaks
// OpenAI's interface, and llama-server's routes for what that one has not.
import type { GenerateOptions } from 'tern-engine';
import type { Output, Writes } from '../chat/answer.ts';
import type { ModelMessage } from '../chat/history.ts';

export class ServerError extends Error {
  constructor(
    message: string,
    readonly status: number, // 0: no answer came
    readonly code = '',
  ) {
    super(message);
  }
}

export interface Props {
  default_generation_settings?: { n_ctx?: number; params?: Record<string, number> };
  total_slots?: number;
  modalities?: { vision?: boolean };
  build_info?: string;
}

interface Chunk {
  choices?: { delta?: { content?: string }; text?: string; finish_reason?: string | null }[];
  usage?: {
    prompt_tokens?: number;
    completion_tokens?: number;
    prompt_tokens_details?: { cached_tokens?: number } | null;
  } | null;
  error?: { message?: string };
}

const KEY = 'tern-server-key';

/** The events of a stream, from its bytes however they are cut: what stands after "data:". */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    rest += decoder.decode(value, { stream: !done });
    const lines = rest.split(/\r\n|\n|\r/);
    rest = done ? '' : lines.pop()!;
    for (const line of lines) if (line.startsWith('data:')) yield line.slice(5).trimStart();
    if (done) return;
  }
}

export class Client implements Writes {
  model = '';
  context = 0; // tokens; 0: not known
  /** Asks the person for a key; null: there is none. */
  onKeyWanted: () => Promise<string | null> = async () => null;
  private key: string;

  constructor() {
    this.key = Client.stored();
  }

  private static stored(): string {
    try {
      return localStorage.getItem(KEY) ?? '';
    } catch {
      return ''; // storage is switched off
    }
  }

  private useKey(key: string): void {
    this.key = key;
    try {
      if (key) localStorage.setItem(KEY, key);
      else localStorage.removeItem(KEY);
    } catch {
      /* it holds until the page is closed */
    }
  }

  /** An answer with status 200; a key that is missing or wrong is asked for. */
  private async ask(path: string, init: RequestInit = {}): Promise<Response> {
    for (;;) {
      const headers = new Headers(init.headers);
      if (this.key) headers.set('Authorization', `Bearer ${this.key}`);
      let answer: Response;
      try {
        answer = await fetch(path, { ...init, headers, cache: 'no-store' });
      } catch (error) {
        if (init.signal?.aborted) throw error;
        throw new ServerError('The server does not answer.', 0);
      }
      if (answer.ok) return answer;
      if (answer.status === 401) {
        const key = await this.onKeyWanted();
        if (key) {
          this.useKey(key);
          continue;
        }
      }
      throw await failureOf(answer);
    }
  }

  async text(path: string): Promise<string> {
    return (await this.ask(path)).text();
  }

  async json<T>(path: string, body?: object): Promise<T> {
    const init = body && {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
    };
    return (await (await this.ask(path, init)).json()) as T;
  }

  /** The names of those that write: others make vectors, or rank. */
  async models(): Promise<string[]> {
    const { data } = await this.json<{ data: { id: string; capabilities?: string[] }[] }>('v1/models');
    return data.filter((m) => m.capabilities?.includes('completion') ?? true).map(({ id }) => id);
  }

  props(): Promise<Props> {
    return this.json<Props>(`props${this.model ? `?model=${encodeURIComponent(this.model)}` : ''}`);
  }

  chat(messages: ModelMessage[], options: GenerateOptions): Promise<Output> {
    return this.write('v1/chat/completions', { messages }, options);
  }

  generate(prompt: string, options: GenerateOptions): Promise<Output> {
    return this.write('v1/completions', { prompt }, options);
  }

  private async write(path: string, what: object, options: GenerateOptions): Promise<Output> {
    const { signal, onText } = options;
    const asked = performance.now();
    let first = 0,
      last = 0,
      pieces = 0,
      reason: Output['reason'] = 'end';
    let usage: Chunk['usage'] = null;
    try {
      const answer = await this.ask(path, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify(this.body(what, options)),
        ...(signal && { signal }),
      });
      for await (const data of readEvents(answer.body!)) {
        if (data === '[DONE]') break;
        const chunk = JSON.parse(data) as Chunk;
        if (chunk.error) throw new ServerError(chunk.error.message ?? 'The server failed.', 200);
        const choice = chunk.choices?.[0];
        const piece = choice?.delta?.content ?? choice?.text ?? '';
        if (piece) {
          last = performance.now();
          first ||= last;
          pieces++;
          onText?.(piece);
        }
        if (choice?.finish_reason === 'length') reason = 'length';
        usage = chunk.usage ?? usage;
      }
    } catch (error) {
      if (signal?.aborted) throw Object.assign(new Error('stopped'), { code: 'aborted' });
      throw error instanceof ServerError ? error : new ServerError('The answer was cut off.', 0);
    }
    return output(usage, reason, { asked, first, last, pieces });
  }

  private body(what: object, options: GenerateOptions): object {
    const { temperature, topP, topK, minP, repeatPenalty, seed, maxTokens } = options;
    return {
      ...(this.model && { model: this.model }),
      ...what,
      stream: true,
      stream_options: { include_usage: true },
      temperature,
      top_p: topP,
      top_k: topK,
      min_p: minP,
      repeat_penalty: repeatPenalty,
      seed,
      max_tokens: maxTokens,
    }; // what is undefined is left out
  }
}

/** A failure's words, of whichever interface the server answered in. */
async function failureOf(answer: Response): Promise<ServerError> {
  const text = await answer.text().catch(() => '');
  let said = '',
    code = '';
  try {
    const { error } = JSON.parse(text) as { error?: { message?: string; code?: unknown } | string };
    said = typeof error === 'string' ? error : (error?.message ?? '');
    code = typeof error === 'object' ? String(error.code ?? '') : '';
  } catch {
    /* no JSON: a proxy's page */
  }
  const later = answer.status === 429 || answer.status === 503 ? ' Try again in a moment.' : '';
  return new ServerError(
    (said || `The server answers with status ${answer.status}.`) + later,
    answer.status,
    code,
  );
}

function output(
  usage: Chunk['usage'],
  reason: Output['reason'],
  at: { asked: number; first: number; last: number; pieces: number },
): Output {
  const prompt = usage?.prompt_tokens ?? 0;
  const tokens = usage?.completion_tokens ?? at.pieces;
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  const first = at.first || performance.now();
  const writing = Math.max(at.last - first, 0);
  // Of one token there is no time between two: then the whole answer's counts.
  const perToken = tokens > 1 && writing > 0 ? writing / (tokens - 1) : first - at.asked;
  const reading = first - at.asked;
  return {
    reason,
    dropped: 0,
    usage: {
      prompt_tokens: prompt,
      completion_tokens: tokens,
      total_tokens: prompt + tokens,
      prompt_tokens_details: { cached_tokens: cached },
      completion_tokens_details: { reasoning_tokens: 0 },
    },
    timings: {
      cache_n: cached,
      prompt_n: prompt - cached,
      prompt_ms: reading,
      prompt_per_token_ms: reading / Math.max(1, prompt - cached),
      prompt_per_second: (1000 * (prompt - cached)) / reading,
      predicted_n: tokens,
      predicted_ms: writing,
      predicted_per_token_ms: perToken,
      predicted_per_second: 1000 / perToken,
    },
  };
}
