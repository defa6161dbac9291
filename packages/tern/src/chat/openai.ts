// chat.completions as in the OpenAI client: requests, answers, chunks of a stream.
import type { ContentPart, DraftLimits, Schema, Timings, Usage } from '../api.js';

export interface ToolCall { id: string; type: 'function'; function: { name: string; arguments: string } }
export interface Tool {
  type: 'function';
  function: { name: string; description?: string; parameters?: Record<string, unknown>; strict?: boolean | null };
}
export interface ChatMessageParam {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  content?: string | readonly ContentPart[] | null; // may be omitted with tool_calls
  name?: string;
  tool_calls?: readonly ToolCall[];
  tool_call_id?: string;
  reasoning_content?: string | null;
}

export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  | { type: 'json_schema'; json_schema: { name?: string; description?: string; schema: Schema; strict?: boolean | null } };

export interface ChatCompletionRequest {
  messages: readonly ChatMessageParam[];
  model?: string; // only echoed in the answer
  stream?: boolean | null;
  stream_options?: { include_usage?: boolean } | null;
  max_completion_tokens?: number | null; // either one; this one takes precedence
  max_tokens?: number | null;
  temperature?: number | null; // omitted: the model's own default
  top_p?: number | null;
  frequency_penalty?: number | null;
  presence_penalty?: number | null;
  n?: number | null;
  seed?: number | null;
  stop?: string | readonly string[] | null;
  logprobs?: boolean | null;
  top_logprobs?: number | null;
  // json_object: any object. Answers are constrained to it; unsupported parts of a schema are refused.
  response_format?: ResponseFormat | null;
  tools?: readonly Tool[] | null; // for models whose chat templates take them; calls are constrained to the tools' schemas
  tool_choice?: 'auto' | 'none' | 'required' | { type: 'function'; function: { name: string } } | null;
  parallel_tool_calls?: boolean | null; // false: at most one call (true)
  reasoning_effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh' | null;
  user?: string;
  metadata?: Record<string, string> | null;
  // As in llama-server and vLLM.
  top_k?: number | null;
  min_p?: number | null;
  repeat_penalty?: number | null;
  repetition_penalty?: number | null; // another name of it
  top_n_sigma?: number | null;
  typical_p?: number | null;
  xtc_probability?: number | null;
  xtc_threshold?: number | null;
  dynatemp_range?: number | null;
  dynatemp_exponent?: number | null;
  dry_multiplier?: number | null;
  dry_base?: number | null;
  dry_allowed_length?: number | null;
  dry_penalty_last_n?: number | null;
  dry_sequence_breakers?: readonly string[] | null;
  mirostat?: number | null;
  mirostat_tau?: number | null;
  mirostat_eta?: number | null;
  samplers?: string | null;
  min_tokens?: number | null;
  stop_token_ids?: readonly number[] | null;
  allowed_token_ids?: readonly number[] | null;
  bad_words?: readonly string[] | null;
  ignore_eos?: boolean | null;
  lora_scales?: readonly number[] | null;
  drafts?: DraftLimits | null;
  chat_template_kwargs?: Record<string, unknown> | null; // the template's own switches
  json_schema?: Schema | null;
  grammar?: string | null; // GBNF
  regex?: string | null;
  choice?: readonly string[] | null;
}
export interface ChatCompletionStreaming extends ChatCompletionRequest { stream: true }
export interface ChatCompletionWhole extends ChatCompletionRequest { stream?: false | null }

export interface TopLogprob { token: string; logprob: number; bytes: number[] }
export interface ContentLogprob extends TopLogprob { top_logprobs: TopLogprob[] }
export interface ChoiceLogprobs { content: ContentLogprob[]; refusal: null }

export interface ChatCompletion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
  choices: {
    index: number;
    message: {
      role: 'assistant'; content: string | null; refusal: null; reasoning_content?: string; tool_calls?: ToolCall[];
    };
    logprobs: ChoiceLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls';
  }[];
  usage: Usage;
  timings: Timings;
}

export interface ChatCompletionChunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  choices: {
    index: number;
    delta: {
      role?: 'assistant'; content?: string; reasoning_content?: string;
      tool_calls?: { index: number; id?: string; type?: 'function'; function: { name?: string; arguments?: string } }[];
    };
    logprobs: ChoiceLogprobs | null;
    finish_reason: 'stop' | 'length' | 'tool_calls' | null;
  }[];
  usage?: Usage | null; // with stream_options.include_usage: in the last chunk
  timings?: Timings; // in the last chunk of each choice
}

export interface RequestOptions { signal?: AbortSignal | null }

// The result of create() with `stream: true`. Leaving the loop early, or controller.abort(), stops the
// generation; the loop then ends without an error.
export interface ChatCompletionStream extends AsyncIterable<ChatCompletionChunk> {
  readonly controller: AbortController;
  toReadableStream(): ReadableStream<Uint8Array>; // one line of JSON per chunk
}

export interface Completions {
  create(request: ChatCompletionStreaming, options?: RequestOptions): Promise<ChatCompletionStream>;
  create(request: ChatCompletionWhole, options?: RequestOptions): Promise<ChatCompletion>;
  create(request: ChatCompletionRequest, options?: RequestOptions):
    Promise<ChatCompletion | ChatCompletionStream>;
}
