// A conversation and a completion as stores that views can subscribe to; independent of any framework.
import type { GenerateOptions, GenerateOutput, Message, Timings, Usage } from './api.js';
import { TernError, toTernError } from './errors.js';
import type { Tern } from './tern.js';

// 'loading': there is no model yet. 'submitted': sent, no text yet. 'error': see `error`; the chat can continue.
export type Status = 'loading' | 'ready' | 'submitted' | 'streaming' | 'error';

export type Params = Omit<GenerateOptions, 'signal' | 'onText'>;

interface Run {
  status: Status;
  error: TernError | null;
  usage: Usage | null; // for the last answer
  timings: Timings | null;
}
export interface ChatSnapshot extends Run { messages: readonly Message[] }
export interface CompletionSnapshot extends Run { completion: string }

const idle: Run = { status: 'loading', error: null, usage: null, timings: null };

// One run at a time, whose pieces update a snapshot.
class Runner<S extends Run> {
  tern: Tern | null = null;
  #stop: AbortController | null = null;
  #listeners = new Set<() => void>();

  constructor(protected now: S) {}

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };
  readonly snapshot = (): S => this.now;

  protected set(change: Partial<S>): void {
    this.now = { ...this.now, ...change };
    for (const listener of this.#listeners) listener();
  }

  setTern(tern: Tern | null): void {
    if (tern === this.tern) return;
    this.tern = tern;
    this.stop();
    this.set({ status: tern ? 'ready' : 'loading' } as Partial<S>);
  }

  // Stops the current run; the text so far stays.
  readonly stop = (): void => {
    this.#stop?.abort();
  };

  // Undefined: it was stopped or failed (see status and error).
  protected async run(begin: (tern: Tern, options: GenerateOptions) => Promise<GenerateOutput>,
    onPiece: (piece: string) => void): Promise<GenerateOutput | undefined> {
    const { tern } = this;
    if (!tern) throw new TernError('argument', 'the model is not loaded yet');
    this.stop();
    const stop = new AbortController();
    this.#stop = stop;
    this.set({ status: 'submitted', error: null } as Partial<S>);
    try {
      const output = await begin(tern, {
        signal: stop.signal,
        onText: piece => {
          if (this.#stop !== stop || stop.signal.aborted) return;
          onPiece(piece);
        },
      });
      if (this.#stop === stop)
        this.set({ status: 'ready', usage: output.usage, timings: output.timings } as Partial<S>);
      return output;
    } catch (thrown) {
      const error = toTernError(thrown);
      if (this.#stop !== stop) return undefined;
      this.set((error.code === 'aborted' ? { status: this.tern ? 'ready' : 'loading' } : { status: 'error', error }) as Partial<S>);
      return undefined;
    } finally {
      if (this.#stop === stop) this.#stop = null;
    }
  }
}

export class ChatState extends Runner<ChatSnapshot> {
  constructor(messages: readonly Message[] = [], public system?: string, public params: Params = {}) {
    super({ ...idle, messages });
  }

  // Replaces the conversation; stops the current run.
  readonly setMessages = (messages: readonly Message[]): void => {
    this.stop();
    this.set({ messages: [...messages] });
  };

  // Sends a message, and writes the answer into the conversation as it is generated.
  readonly send = (text: string): Promise<GenerateOutput | undefined> =>
    this.#answer([...this.now.messages, { role: 'user', content: text }]);

  // Replaces the last answer with another one.
  readonly regenerate = (): Promise<GenerateOutput | undefined> => {
    const { messages } = this.now;
    let last = messages.length;
    while (last > 0 && messages[last - 1]!.role !== 'user') last--;
    if (last === 0) throw new TernError('argument', 'there is nothing to answer again');
    return this.#answer(messages.slice(0, last));
  };

  async #answer(asked: readonly Message[]): Promise<GenerateOutput | undefined> {
    if (!this.tern) throw new TernError('argument', 'the model is not loaded yet');
    const all = this.system ? [{ role: 'system', content: this.system }, ...asked] : asked;
    let text = '';
    const done = this.run((tern, options) => tern.chat(all, { ...this.params, ...options }), piece => {
      text += piece;
      this.set({ status: 'streaming', messages: [...asked, { role: 'assistant', content: text }] });
    });
    this.set({ messages: [...asked] });
    return done;
  }
}

export class CompletionState extends Runner<CompletionSnapshot> {
  constructor(public params: Params = {}) {
    super({ ...idle, completion: '' });
  }

  readonly complete = (prompt: string): Promise<GenerateOutput | undefined> => {
    const done = this.run((tern, options) => tern.generate(prompt, { ...this.params, ...options }), piece =>
      this.set({ status: 'streaming', completion: this.now.completion + piece }));
    this.set({ completion: '' });
    return done;
  };
}
