// The model that is loaded, being loaded, or failed to be: one at a time. Views listen to it.
import { Tern, type LoadOptions, type Progress } from 'tern-engine';
import { nameOfSource } from './models.ts';

export type Choice = { source: string; name?: string } | { files: File[]; name?: string };
export interface Problem {
  name: string;
  code: string;
  message: string;
  choice: Choice;
}
export type LoaderState =
  | { kind: 'none' }
  | { kind: 'loading'; name: string; progress: Progress | null; remembers: boolean }
  | { kind: 'ready'; name: string; tern: Tern; problem?: Problem } // of another model, which this one was to make way for
  | ({ kind: 'failed' } & Problem);

interface Open {
  name: string;
  tern: Tern;
  choice: Choice;
  options: LoadOptions;
}

export function nameOfChoice(choice: Choice): string {
  if (choice.name) return choice.name;
  return 'source' in choice
    ? nameOfSource(choice.source)
    : (choice.files[0]?.name ?? 'file').replace(/\.gguf$/i, '');
}

// What may be wrong with files, and is found without opening the weights.
const OF_FILES = ['network', 'format', 'quota', 'busy', 'io', 'argument', 'aborted'];

export class Loader extends EventTarget {
  state: LoaderState = { kind: 'none' };
  private open: Open | null = null; // also while another one is looked at
  private abort: AbortController | null = null;

  private set(state: LoaderState): void {
    this.state = state;
    this.dispatchEvent(new Event('change'));
  }

  get tern(): Tern | null {
    return this.state.kind === 'ready' ? this.state.tern : null;
  }
  /** What the open model was chosen as. */
  get choice(): Choice | null {
    return this.open?.choice ?? null;
  }

  /** Loads a model in place of the one that is there, which stays if it fails; of two calls the later one counts. */
  async load(choice: Choice, options: LoadOptions): Promise<void> {
    this.cancel();
    const abort = (this.abort = new AbortController());
    const name = nameOfChoice(choice);
    const old = this.open;
    this.set({ kind: 'loading', name, progress: null, remembers: 'source' in choice });
    try {
      const seen = old !== null && (await this.look(choice, options, abort));
      if (this.abort !== abort) return;
      this.open = null;
      await old?.tern.close(); // first: both might not fit into memory
      const tern = await this.read(choice, seen ? { ...options, cache: { verify: false } } : options, abort);
      if (this.abort !== abort) return void tern.close();
      this.ready({ name, tern, choice, options });
    } catch (error) {
      if (this.abort !== abort) return; // cancelled, or another one is being loaded
      this.abort = null;
      const { code = 'trap', message } = error as { code?: string; message: string };
      await this.failed({ name, code, message, choice }, old);
    }
  }

  private ready(open: Open, problem?: Problem): void {
    this.abort = null;
    this.open = open;
    this.set({ kind: 'ready', name: open.name, tern: open.tern, ...(problem && { problem }) });
  }

  private async failed(problem: Problem, old: Open | null): Promise<void> {
    const aborted = problem.code === 'aborted';
    if (this.open) return this.ready(this.open, aborted ? undefined : problem);
    if (!old || aborted) return this.set(aborted ? { kind: 'none' } : { kind: 'failed', ...problem });
    const abort = (this.abort = new AbortController());
    this.set({ kind: 'loading', name: old.name, progress: null, remembers: 'source' in old.choice });
    try {
      const tern = await this.read(old.choice, { ...old.options, cache: { verify: false } }, abort);
      if (this.abort !== abort) return void tern.close();
      this.ready({ ...old, tern }, problem);
    } catch {
      if (this.abort !== abort) return;
      this.abort = null;
      this.set({ kind: 'failed', ...problem });
    }
  }

  private read(choice: Choice, options: LoadOptions, abort: AbortController): Promise<Tern> {
    const { signal } = abort;
    const onProgress = (progress: Progress) => {
      if (this.abort === abort && this.state.kind === 'loading') this.set({ ...this.state, progress });
    };
    const source =
      'source' in choice ? choice.source : choice.files.length === 1 ? choice.files[0]! : choice.files;
    return Tern.load(source, { ...options, signal, onProgress });
  }

  // Downloads the files and reads the vocabulary alone, which takes little memory. Whether that was done: where nothing
  // can be stored it would be a download for nothing.
  private async look(choice: Choice, options: LoadOptions, abort: AbortController): Promise<boolean> {
    if ('source' in choice && this.open?.tern.info.storage === 'memory') return false;
    try {
      const seen = await this.read(choice, { ...options, device: 'wasm', threads: 1, vocabOnly: true }, abort);
      await seen.close();
      return true;
    } catch (error) {
      if (OF_FILES.includes((error as { code?: string }).code ?? '')) throw error;
      return false; // opening it tells why, or it has no vocabulary
    }
  }

  /** Stops a load; what was downloaded stays, and a later load goes on from there. So does the model that is open. */
  cancel(): void {
    if (!this.abort) return;
    const { abort } = this;
    this.abort = null;
    abort.abort();
    if (this.open) this.ready(this.open);
    else this.set({ kind: 'none' });
  }

  /** What failed is not spoken of any more. */
  dismiss(): void {
    if (this.open) this.ready(this.open);
    else void this.unload();
  }

  async unload(): Promise<void> {
    this.cancel();
    const { tern } = this;
    this.open = null;
    this.set({ kind: 'none' });
    await tern?.close();
  }
}
