// OpenAI's chat.completions for one model.
import type { FinishReason, Timings, Usage } from '../api.js';
import { contentOf, roleOf } from './content.js';
import type { ChatRequest, GenerateParams, GenerateResult, Part, TokenLogprob, TokenLogprobs } from '../engine/types.js';
import { TernError, aborted, throwIfAborted } from '../errors.js';
import { formOf, toolsOf } from './forms.js';
import type {
  ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, ChatCompletionStream, ChatMessageParam,
  ChoiceLogprobs, Completions, ContentLogprob, RequestOptions, TopLogprob,
} from './openai.js';
import { Parts } from './parts.js';
import type { ImageInput, TextInput } from '../protocol.js';
import { Queue } from '../stream.js';

export type OnPiece = (text: string, logprobs?: TokenLogprobs[], part?: Part) => void;
export type Run = (input: TextInput, params: GenerateParams, onPiece: OnPiece, signal: AbortSignal) =>
  Promise<GenerateResult>;

export function usageOf(results: readonly GenerateResult[]): Usage {
  const prompt = results[0]?.nPrompt ?? 0; // one prompt, however many answers
  const completion = results.reduce((n, result) => n + result.nGenerated, 0);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: results[0]?.nReused ?? 0 },
    completion_tokens_details: { reasoning_tokens: 0 },
  };
}

export function timingsOf(result: GenerateResult): Timings {
  const computed = result.nPrompt - result.nReused;
  const per = (a: number, b: number) => b > 0 ? a / b : 0;
  return {
    cache_n: result.nReused,
    prompt_n: computed,
    prompt_ms: result.promptSeconds * 1000,
    prompt_per_token_ms: per(result.promptSeconds * 1000, computed),
    prompt_per_second: per(computed, result.promptSeconds),
    predicted_n: result.nGenerated,
    predicted_ms: result.generateSeconds * 1000,
    predicted_per_token_ms: per(result.generateSeconds * 1000, result.nGenerated),
    predicted_per_second: per(result.nGenerated, result.generateSeconds),
    ...(result.nDrafted > 0 ? { draft_n: result.nDrafted, draft_n_accepted: result.nAccepted } : {}),
  };
}

export const finishOf = (reason: GenerateResult['reason']): FinishReason =>
  reason === 'length' || reason === 'context' ? 'length' : 'stop';

const finishWith = (result: GenerateResult, parts: Parts): FinishReason | 'tool_calls' => {
  const finish = finishOf(result.reason);
  return finish === 'stop' && parts.endsInCalls ? 'tool_calls' : finish;
};

// Options that the engine does not support are refused by name: an answer that silently ignores them would be wrong.
const refused = ['functions', 'function_call', 'logit_bias', 'audio', 'modalities',
  'prediction', 'web_search_options'];
// Meaningless for one model in a page, or handled elsewhere.
const harmless = ['model', 'messages', 'stream', 'user', 'metadata', 'store', 'service_tier', 'safety_identifier',
  'prompt_cache_key', 'parallel_tool_calls', 'cache_prompt'];
const ofTools = ['tools', 'tool_choice', 'reasoning_effort', 'chat_template_kwargs'];
// Samplers: the engine's names, and the request's.
const samplers = {
  topNSigma: 'top_n_sigma',
  typicalP: 'typical_p',
  xtcProbability: 'xtc_probability',
  xtcThreshold: 'xtc_threshold',
  dynatempRange: 'dynatemp_range',
  dynatempExponent: 'dynatemp_exponent',
  dryMultiplier: 'dry_multiplier',
  dryBase: 'dry_base',
  dryAllowedLength: 'dry_allowed_length',
  dryPenaltyLastN: 'dry_penalty_last_n',
  drySequenceBreakers: 'dry_sequence_breakers',
  mirostat: 'mirostat',
  mirostatTau: 'mirostat_tau',
  mirostatEta: 'mirostat_eta',
  samplers: 'samplers',
  minTokens: 'min_tokens',
  stopTokenIds: 'stop_token_ids',
  allowedTokenIds: 'allowed_token_ids',
  badWords: 'bad_words',
} as const;
const known = [...harmless, ...ofTools, 'stream_options', 'max_completion_tokens', 'max_tokens', 'temperature', 'top_p',
  'frequency_penalty', 'presence_penalty', 'n', 'seed', 'stop', 'logprobs', 'top_logprobs', 'response_format', 'top_k',
  'min_p', 'repeat_penalty', 'repetition_penalty', 'ignore_eos', 'json_schema', 'grammar', 'regex', 'choice',
  'lora_scales', 'drafts',
  ...Object.values(samplers)];

const given = (value: unknown): boolean =>
  value !== undefined && value !== null && !(Array.isArray(value) && value.length === 0);

function check(request: ChatCompletionRequest): void {
  for (const [name, value] of Object.entries(request)) {
    if (!given(value) || known.includes(name)) continue;
    if (refused.includes(name)) throw new TernError('unsupported', `${name} is not supported`);
    throw new TernError('argument', `there is no parameter ${name} (options such as signal come second)`);
  }
  const { n, top_logprobs: top, logprobs } = request;
  whole('n', n, 1, 16);
  whole('max_tokens', request.max_tokens, 1);
  whole('max_completion_tokens', request.max_completion_tokens, 1);
  whole('top_logprobs', top, 0, 20);
  whole('seed', request.seed, Number.MIN_SAFE_INTEGER);
  if (top && !logprobs) throw new TernError('argument', 'top_logprobs needs logprobs: true');
}

function whole(name: string, value: number | null | undefined, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (given(value) && !(Number.isInteger(value) && value! >= least && value! <= most))
    throw new TernError('argument', most === Number.MAX_SAFE_INTEGER
      ? `${name} must be a whole number${least > 0 ? ` from ${least}` : ''}, not ${String(value)}`
      : `${name} must be a whole number from ${least} to ${most}, not ${String(value)}`);
}

function paramsOf(request: ChatCompletionRequest, index: number): GenerateParams {
  const { stop, seed } = request;
  const further = Object.fromEntries(Object.entries(samplers).map(([name, asked]) => [name, request[asked]]));
  const params: Record<Exclude<keyof GenerateParams, keyof typeof samplers>, unknown> = {
    maxTokens: request.max_completion_tokens ?? request.max_tokens,
    temperature: request.temperature,
    topK: request.top_k,
    topP: request.top_p,
    minP: request.min_p,
    repeatPenalty: request.repetition_penalty ?? request.repeat_penalty,
    frequencyPenalty: request.frequency_penalty,
    presencePenalty: request.presence_penalty,
    penaltyWindow: undefined,
    seed: given(seed) ? seedOf(seed!, index) : undefined,
    stop: given(stop) ? (typeof stop === 'string' ? [stop] : [...stop!]) : undefined,
    ignoreEnd: request.ignore_eos,
    logprobs: request.logprobs,
    topLogprobs: request.logprobs ? request.top_logprobs : undefined,
    drafts: request.drafts,
  };
  return Object.fromEntries(Object.entries({ ...params, ...further }).filter(([, value]) => given(value)));
}

// The engine's seeds begin at 1; OpenAI's may be 0 or negative, and are still the same each time.
const seedOf = (seed: number, index: number): number =>
  (seed > 0 ? seed : Number.MAX_SAFE_INTEGER + seed - 2 ** 32) + index;

// Other members of a message that templates know are kept.
function messageOf(message: ChatMessageParam, i: number, images: ImageInput[]): Turn {
  const where = `messages[${i}]`, { role, content } = message;
  const known = roleOf(role, where);
  const more = Object.fromEntries((['tool_calls', 'tool_call_id', 'name', 'reasoning_content'] as const)
    .filter(name => given(message[name])).map(name => [name, message[name]]));
  const text = !given(content) && given(message.tool_calls) ? '' : contentOf(content, where, role === 'user', images);
  return { role: known, content: text, ...more };
}

// Plain messages lose the oldest turns that do not fit; a request with tools is used as it is.
function inputOf(request: ChatCompletionRequest): TextInput {
  const { messages, images } = messagesOf(request.messages);
  const tools = toolsOf(request), grammar = formOf(request);
  const { reasoning_effort: effort, lora_scales: loraScales } = request;
  const more = { ...(grammar ? { grammar } : {}), ...(loraScales ? { loraScales } : {}) };
  const switches = {
    ...(given(effort) ? { enable_thinking: effort !== 'none' && effort !== 'minimal' } : {}), ...request.chat_template_kwargs,
  };
  const isPlain = images.length === 0 && tools.length === 0 && Object.keys(switches).length === 0
    && messages.every(message => Object.keys(message).every(name => ['role', 'content', 'name'].includes(name)));
  if (isPlain) {
    const texts = messages.map(({ role, content }) => ({ role, content: content as string }));
    return { messages: texts, apart: true, ...more };
  }
  const whole: ChatRequest = { ...switches, messages, ...(tools.length > 0 ? { tools } : {}) };
  return { request: whole, ...(images.length > 0 ? { images } : {}), apart: true, ...more };
}

export interface Turn { role: string; content: string | object[] }

// Templates know one system message, at the beginning.
export function messagesOf(messages: readonly ChatMessageParam[] | undefined): { messages: Turn[]; images: ImageInput[] } {
  if (!Array.isArray(messages) || messages.length === 0)
    throw new TernError('argument', 'messages must be a list of at least one message');
  const images: ImageInput[] = [];
  const list = messages.map((message, i) => messageOf(message, i, images));
  let n = 0;
  while (n < list.length && list[n]!.role === 'system') n++;
  if (n < 2) return { messages: list, images };
  const system = { role: 'system', content: list.slice(0, n).map(message => message.content).join('\n\n') };
  return { messages: [system, ...list.slice(n)], images };
}

// JSON has no -inf.
const finite = (logprob: number): number => Number.isFinite(logprob) ? logprob : -9999;
const topOf = ({ text, logprob, bytes }: TokenLogprob): TopLogprob => ({ token: text, logprob: finite(logprob), bytes });
const logprobOf = (token: TokenLogprobs): ContentLogprob => ({ ...topOf(token), top_logprobs: token.top.map(topOf) });
const logprobsOf = (tokens: readonly TokenLogprobs[] | undefined): ChoiceLogprobs | null =>
  tokens ? { content: tokens.map(logprobOf), refusal: null } : null;

export function completions(run: Run, modelName: string): Completions {
  async function create(request: ChatCompletionRequest, options: RequestOptions = {}):
    Promise<ChatCompletion | ChatCompletionStream> {
    check(request);
    const answer = new Answer(run, request, inputOf(request), modelName);
    const signal = options.signal ?? undefined;
    throwIfAborted(signal);
    const controller = new AbortController();
    const stop = () => controller.abort(signal!.reason);
    signal?.addEventListener('abort', stop);
    const unlink = () => signal?.removeEventListener('abort', stop);
    return request.stream ? answer.stream(controller, unlink) : answer.whole(controller).finally(unlink);
  }
  return { create: create as Completions['create'] };
}

class Answer {
  #head: { id: string; created: number; model: string };
  #n: number;

  constructor(private run: Run, private request: ChatCompletionRequest, private input: TextInput, name: string) {
    const id = `chatcmpl-${Array.from({ length: 3 }, () => Math.random().toString(36).slice(2, 10)).join('')}`;
    this.#head = { id, created: Math.floor(Date.now() / 1000), model: request.model ?? name };
    this.#n = request.n ?? 1;
  }

  // All choices run concurrently. When one fails, the others are stopped, too.
  async #all(onPiece: (index: number, text: string, logprobs?: TokenLogprobs[], part?: Part) => void, controller: AbortController,
    onEnd: (index: number, result: GenerateResult) => void): Promise<GenerateResult[]> {
    const { signal } = controller;
    const choices = Array.from({ length: this.#n }, async (_, index) => {
      const result = await this.run(this.input, paramsOf(this.request, index),
        (text, logprobs, part) => onPiece(index, text, logprobs, part), signal);
      if (result.reason === 'caller') throw aborted(signal);
      onEnd(index, result);
      return result;
    });
    try {
      return await Promise.all(choices);
    } catch (error) {
      controller.abort();
      await Promise.allSettled(choices);
      throw error;
    }
  }

  #parts(): Parts[] {
    return Array.from({ length: this.#n }, () => new Parts(this.request.parallel_tool_calls === false));
  }

  async whole(controller: AbortController): Promise<ChatCompletion> {
    const parts = this.#parts();
    const tokens: TokenLogprobs[][] = parts.map(() => []);
    const results = await this.#all((index, text, logprobs, part) => {
      parts[index]!.add(text, part);
      tokens[index]!.push(...logprobs ?? []);
    }, controller, () => undefined);
    return {
      ...this.#head,
      object: 'chat.completion',
      choices: results.map((result, index) => ({
        index,
        message: parts[index]!.message,
        logprobs: this.request.logprobs ? logprobsOf(tokens[index]) : null,
        finish_reason: finishWith(result, parts[index]!),
      })),
      usage: usageOf(results),
      timings: timingsOf(results[0]!),
    };
  }

  stream(controller: AbortController, unlink: () => void): ChatCompletionStream {
    const queue = new Queue<ChatCompletionChunk>(() => controller.abort());
    const wantsUsage = !!this.request.stream_options?.include_usage;
    const chunk = (choices: ChatCompletionChunk['choices'], more: Partial<ChatCompletionChunk> = {}) =>
      queue.push({
        ...this.#head, object: 'chat.completion.chunk', choices, ...(wantsUsage ? { usage: null } : {}), ...more,
      });
    type Choice = ChatCompletionChunk['choices'][number];
    const choice = (index: number, delta: Choice['delta'], more: Partial<Choice> = {}): Choice[] =>
      [{ index, delta, logprobs: null, finish_reason: null, ...more }];
    const parts = this.#parts();
    for (let i = 0; i < this.#n; i++) chunk(choice(i, { role: 'assistant', content: '' }));
    this.#all(
      (index, text, logprobs, part) => {
        const delta = parts[index]!.add(text, part);
        if (delta || logprobs) chunk(choice(index, delta ?? { content: '' }, { logprobs: logprobsOf(logprobs) }));
      },
      controller,
      (index, result) =>
        chunk(choice(index, {}, { finish_reason: finishWith(result, parts[index]!) }), { timings: timingsOf(result) }),
    ).then(results => {
      if (wantsUsage) chunk([], { usage: usageOf(results) });
      queue.finish();
    }).catch(error => {
      // As in OpenAI's client: aborting ends the loop without an error.
      if (error instanceof TernError && error.code === 'aborted') queue.finish();
      else queue.fail(error);
    }).finally(unlink);
    return new Stream(queue, controller);
  }
}

class Stream implements ChatCompletionStream {
  #read = false;
  constructor(private queue: Queue<ChatCompletionChunk>, readonly controller: AbortController) {}

  [Symbol.asyncIterator](): AsyncIterator<ChatCompletionChunk> {
    if (this.#read) throw new TernError('argument', 'a stream can be read only once');
    this.#read = true;
    return this.queue;
  }

  toReadableStream(): ReadableStream<Uint8Array> {
    const chunks = this[Symbol.asyncIterator]();
    const encoder = new TextEncoder();
    return new ReadableStream<Uint8Array>({
      async pull(out) {
        const { value, done } = await chunks.next();
        if (done) out.close();
        else out.enqueue(encoder.encode(`${JSON.stringify(value)}\n`));
      },
      cancel: async () => void await chunks.return?.(),
    });
  }
}
