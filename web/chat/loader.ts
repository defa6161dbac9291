// The model that is loaded, being loaded, or failed to be: one at a time. Views listen to it.
import { Tern, type LoadOptions, type Progress } from 'tern-engine';
import { nameOfSource } from './models.ts';

export type Choice = { source: string; name?: string } | { files: File[]; name?: string };
export type LoaderState =
  | { kind: 'none' }
  | { kind: 'loading'; name: string; progress: Progress | null; remembers: boolean }
  | { kind: 'ready'; name: string; tern: Tern }
  | { kind: 'failed'; name: string; code: string; message: string; choice: Choice };

export function nameOfChoice(choice: Choice): string {
  if (choice.name) return choice.name;
  return 'source' in choice
    ? nameOfSource(choice.source)
    : (choice.files[0]?.name ?? 'file').replace(/\.gguf$/i, '');
}

export class Loader extends EventTarget {
  state: LoaderState = { kind: 'none' };
  private abort: AbortController | null = null;

  private set(state: LoaderState): void {
    this.state = state;
    this.dispatchEvent(new Event('change'));
  }

  get tern(): Tern | null {
    return this.state.kind === 'ready' ? this.state.tern : null;
  }

  /** Loads a model in place of the one that is there; of two calls the later one counts. */
  async load(choice: Choice, options: LoadOptions): Promise<void> {
    this.cancel();
    const abort = (this.abort = new AbortController());
    const name = nameOfChoice(choice);
    const old = this.tern;
    this.set({ kind: 'loading', name, progress: null, remembers: 'source' in choice });
    try {
      await old?.close(); // first: both might not fit into memory
      const tern = await Tern.load(
        'source' in choice ? choice.source : choice.files.length === 1 ? choice.files[0]! : choice.files,
        {
          ...options,
          signal: abort.signal,
          onProgress: (progress) => {
            if (this.abort === abort && this.state.kind === 'loading') this.set({ ...this.state, progress });
          },
        },
      );
      if (this.abort !== abort) return void tern.close();
      this.abort = null;
      this.set({ kind: 'ready', name, tern });
    } catch (error) {
      if (this.abort !== abort) return; // cancelled, or another one is being loaded
      this.abort = null;
      const { code = 'trap', message } = error as { code?: string; message: string };
      this.set(code === 'aborted' ? { kind: 'none' } : { kind: 'failed', name, code, message, choice });
    }
  }

  /** Stops a load; what was downloaded stays, and a later load goes on from there. */
  cancel(): void {
    if (!this.abort) return;
    const abort = this.abort;
    this.abort = null;
    abort.abort();
    this.set({ kind: 'none' });
  }

  async unload(): Promise<void> {
    this.cancel();
    const tern = this.tern;
    this.set({ kind: 'none' });
    await tern?.close();
  }
}
