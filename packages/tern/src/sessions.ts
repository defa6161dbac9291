// A few sessions of a model. Each keeps what it computed last, so a text goes to the one that has the
// longest beginning in common with it: a conversation continues where it was, and several take turns.
import type { Model, Session, SessionOptions } from './engine/types.js';
import { TernError, aborted } from './errors.js';

const RUNNING = 8; // at the same time; more wait their turn
const IDLE_BYTES = 256 << 20; // of keys and values, in sessions that wait for the next turn

interface Slot {
  session: Session;
  scales: string; // of its adapters
  ids: ArrayLike<number>; // what it has computed
  used: number; // when
}

export interface SessionLease { session: Session; give(ids: ArrayLike<number>): void; drop(): void }

export class Sessions {
  #idle: Slot[] = [];
  #running = 0;
  #waiting: (() => void)[] = [];
  #clock = 0;
  #closed = false;

  constructor(private model: Model, private options: SessionOptions, private keep = 4) {}

  // The session to use for a text that begins with ids. loraScales: see SessionOptions.
  async take(ids: ArrayLike<number>, signal?: AbortSignal, loraScales?: readonly number[]): Promise<SessionLease> {
    if (this.#running >= RUNNING) await this.#turn(signal);
    if (this.#closed) throw new TernError('closed', 'the model is closed');
    this.#running++;
    try {
      const scales = loraScales?.join() ?? '', session = this.#choose(ids, scales) ?? this.#open(loraScales);
      return {
        session,
        give: now => this.#give({ session, scales, ids: now, used: ++this.#clock }),
        drop: () => {
          session.close();
          this.#leave();
        },
      };
    } catch (error) {
      this.#leave();
      throw error;
    }
  }

  #turn(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = () => {
        signal?.removeEventListener('abort', stop);
        resolve();
      };
      const stop = () => {
        this.#waiting = this.#waiting.filter(other => other !== go);
        reject(aborted(signal));
      };
      this.#waiting.push(go);
      signal?.addEventListener('abort', stop, { once: true });
    });
  }

  // A session of another conversation is reused only when there is no room for a new one: that
  // would discard what it has beyond the common prefix.
  #choose(ids: ArrayLike<number>, scales: string): Session | undefined {
    const idle = this.#idle.filter(slot => slot.scales === scales);
    let best: Slot | undefined;
    let most = 0;
    for (const slot of idle) {
      const common = commonLength(slot.ids, ids);
      if (common > most || (best && common === most && slot.used > best.used)) {
        best = slot;
        most = common;
      }
    }
    // A text that was computed completely is being asked again: its old answer is discarded.
    const spoils = !best || (most < best.ids.length / 2 && most < ids.length);
    if (spoils && this.#idle.length < this.keep) best = idle.find(slot => slot.ids.length === 0);
    else if (spoils) best = oldest(idle);
    if (best) this.#idle.splice(this.#idle.indexOf(best), 1);
    return best?.session;
  }

  #open(loraScales: readonly number[] | undefined): Session {
    const options = { ...this.options, ...(loraScales ? { loraScales } : {}) };
    try {
      return this.model.session(options);
    } catch (error) {
      if (!(error instanceof TernError) || error.code !== 'memory' || !this.forget()) throw error;
      return this.model.session(options);
    }
  }

  // Frees what is kept for later; returns whether there was anything.
  forget(): boolean {
    const any = this.#idle.length > 0;
    for (const slot of this.#idle.splice(0)) slot.session.close();
    return any;
  }

  #give(slot: Slot): void {
    this.#leave();
    if (this.#closed) return slot.session.close();
    this.#idle.push(slot);
    const bytes = () => this.#idle.reduce((n, { ids }) => n + ids.length, 0) * this.model.info.kvBytesPerToken;
    while (this.#idle.length > this.keep || (this.#idle.length > 1 && bytes() > IDLE_BYTES)) {
      const first = oldest(this.#idle)!;
      this.#idle.splice(this.#idle.indexOf(first), 1);
      first.session.close();
    }
  }

  #leave(): void {
    this.#running--;
    this.#waiting.shift()?.();
  }

  close(): void {
    this.#closed = true;
    this.forget();
    for (const go of this.#waiting.splice(0)) go();
  }
}

const oldest = (slots: readonly Slot[]): Slot | undefined =>
  slots.reduce<Slot | undefined>((a, b) => a && a.used < b.used ? a : b, undefined);

export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const n = Math.min(a.length, b.length);
  let i = 0;
  while (i < n && a[i] === b[i]) i++;
  return i;
}
