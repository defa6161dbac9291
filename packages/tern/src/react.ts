// React hooks. The application brings React itself.
import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import type { GenerateOutput, LoadOptions, Message, ModelSource, Progress } from './api.js';
import { ChatState, CompletionState, type ChatSnapshot, type CompletionSnapshot, type Params, type Status } from './chat-state.js';
import { toTernError, type TernError } from './errors.js';
import { Tern } from './tern.js';

export type { ChatSnapshot, CompletionSnapshot, Params, Status };

export interface UseTern {
  tern: Tern | null; // null while it loads, and after a failure
  progress: Progress | null;
  error: TernError | null;
  status: 'idle' | 'loading' | 'ready' | 'error';
}

// Loads a model while the component is mounted, and closes it afterwards. null: nothing is loaded. It
// is loaded again when the source or the key changes; other changes of the options are ignored. A new URL of the same
// address and a new array of the same files are no change.
export function useTern(source: ModelSource | null, options: Omit<LoadOptions, 'signal'> = {}, key?: unknown): UseTern {
  const [state, setState] = useState<UseTern>(nothing);
  const latest = useRef(options);
  latest.current = options;
  const kept = useRef(source);
  if (!isSame(kept.current, source)) kept.current = source;
  const same = kept.current;
  useEffect(() => {
    if (same === null) return setState(nothing);
    const stop = new AbortController();
    const set = (change: Partial<UseTern>) => {
      if (!stop.signal.aborted) setState(before => ({ ...before, ...change }));
    };
    set({ ...nothing, status: 'loading' });
    const loading = Tern.load(same, {
      ...latest.current, signal: stop.signal,
      onProgress: progress => {
        latest.current.onProgress?.(progress);
        set({ progress });
      },
    });
    loading.then(tern => set({ tern, status: 'ready' }), error => set({ error: toTernError(error), status: 'error' }));
    return () => {
      stop.abort();
      void loading.then(tern => tern.close(), () => undefined);
    };
  }, [same, key]);
  return state;
}

function isSame(a: ModelSource | null, b: ModelSource | null): boolean {
  if (a instanceof URL && b instanceof URL) return a.href === b.href;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((file, i) => file === b[i]);
  return a === b;
}
const nothing: UseTern = { tern: null, progress: null, error: null, status: 'idle' };

export interface UseChatOptions {
  tern: Tern | null | undefined;
  system?: string;
  initialMessages?: readonly Message[];
  params?: Params;
}
export interface UseChat extends ChatSnapshot {
  input: string; // for a text field
  setInput(text: string): void;
  send(text?: string): Promise<GenerateOutput | undefined>; // sends the text, or else the input, which is cleared
  regenerate(): Promise<GenerateOutput | undefined>;
  stop(): void;
  setMessages(messages: readonly Message[]): void;
}

// A conversation with an open model.
export function useChat({ tern, system, initialMessages, params }: UseChatOptions): UseChat {
  const [chat] = useState(() => new ChatState(initialMessages));
  const [input, setInput] = useState('');
  const snapshot = useSyncExternalStore(chat.subscribe, chat.snapshot, chat.snapshot);
  useEffect(() => {
    if (system === undefined) delete chat.system;
    else chat.system = system;
    chat.params = params ?? {};
  });
  useEffect(() => chat.setTern(tern ?? null), [chat, tern]);
  useEffect(() => chat.stop, [chat]);
  const send = useCallback((text?: string) => {
    if (text === undefined) setInput('');
    return chat.send(text ?? input);
  }, [chat, input]);
  return {
    ...snapshot, input, setInput, send, regenerate: chat.regenerate, stop: chat.stop, setMessages: chat.setMessages,
  };
}

export interface UseCompletion extends CompletionSnapshot {
  input: string;
  setInput(text: string): void;
  complete(prompt?: string): Promise<GenerateOutput | undefined>; // the prompt, or else the input
  stop(): void;
}

// A completion of a text.
export function useCompletion({ tern, params }: Pick<UseChatOptions, 'tern' | 'params'>): UseCompletion {
  const [run] = useState(() => new CompletionState());
  const [input, setInput] = useState('');
  const snapshot = useSyncExternalStore(run.subscribe, run.snapshot, run.snapshot);
  useEffect(() => {
    run.params = params ?? {};
  });
  useEffect(() => run.setTern(tern ?? null), [run, tern]);
  useEffect(() => run.stop, [run]);
  const complete = useCallback((prompt?: string) => run.complete(prompt ?? input), [run, input]);
  return { ...snapshot, input, setInput, complete, stop: run.stop };
}
