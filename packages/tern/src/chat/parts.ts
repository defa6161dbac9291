// A parsed answer in the form of OpenAI's messages and chunks.
import type { Part } from '../engine/types.js';
import type { ChatCompletion, ChatCompletionChunk, ToolCall } from './openai.js';

type Message = ChatCompletion['choices'][number]['message'];
type Delta = ChatCompletionChunk['choices'][number]['delta'];

// Nine letters and digits: the longest id that all templates accept.
const newId = (): string => Array.from({ length: 9 }, () => Math.floor(Math.random() * 36).toString(36)).join('');

export class Parts {
  #content = '';
  #reasoning = '';
  #calls: ToolCall[] = [];
  #open = 0; // calls without an end

  constructor(private oneCall: boolean) {}

  // The piece as a chunk's delta; undefined: nothing to send.
  add(text: string, part: Part | undefined): Delta | undefined {
    const { kind, call } = part ?? { kind: 'text', call: 0 };
    if (kind === 'text') {
      this.#content += text;
      return { content: text };
    }
    if (kind === 'reasoning') {
      this.#reasoning += text;
      return { reasoning_content: text };
    }
    if (this.oneCall && call > 0) return undefined;
    return this.#addToCall(kind, call, text);
  }

  #addToCall(kind: Part['kind'], index: number, text: string): Delta | undefined {
    if (kind === 'call') {
      const call: ToolCall = { id: newId(), type: 'function', function: { name: text, arguments: '' } };
      this.#calls.push(call);
      this.#open++;
      return { tool_calls: [{ index, ...call, function: { ...call.function } }] };
    }
    if (kind === 'call_end') {
      this.#open--;
      return undefined;
    }
    this.#calls[index]!.function.arguments += text;
    return { tool_calls: [{ index, function: { arguments: text } }] };
  }

  // Whether the answer consists of calls, none of them cut.
  get endsInCalls(): boolean { return this.#calls.length > 0 && this.#open === 0; }

  get message(): Message {
    const calls = this.#calls.map(call => ({ ...call, function: { ...call.function, arguments: call.function.arguments || '{}' } }));
    return {
      role: 'assistant',
      content: this.#content || calls.length === 0 ? this.#content : null,
      refusal: null,
      ...(this.#reasoning ? { reasoning_content: this.#reasoning } : {}),
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    };
  }
}
