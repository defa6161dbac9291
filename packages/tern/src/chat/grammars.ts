// The grammars of a model: a page asks with the same schema again and again, so a few stay compiled.
import type { Grammar, GrammarOptions, Model } from '../engine/types.js';
import { TernError } from '../errors.js';
import type { GrammarSpec } from '../protocol.js';

const IDLE = 4;

export interface GrammarLease { grammar: Grammar | undefined; give(): void }
interface Kept { grammar: Grammar; users: number }

export class Grammars {
  #kept = new Map<string, Kept>(); // the last used one comes last

  constructor(private model: Model) {}

  // after: in conversations, the end of the prompt.
  take({ lenient, ...spec }: GrammarSpec, after: string | undefined): GrammarLease {
    const options: GrammarOptions = { ...spec, ...(after === undefined ? {} : { after }) };
    const key = JSON.stringify(options);
    let kept = this.#kept.get(key);
    try {
      kept ??= { grammar: this.model.grammar(options), users: 0 };
    } catch (error) {
      const isUnknown = error instanceof TernError && (error.code === 'unsupported' || error.code === 'format');
      if (!lenient || !isUnknown) throw error;
      return { grammar: undefined, give: () => undefined };
    }
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    kept.users++;
    return { grammar: kept.grammar, give: () => this.#give(kept) };
  }

  #give(kept: Kept): void {
    kept.users--;
    let idle = [...this.#kept.values()].filter(({ users }) => users === 0).length;
    for (const [key, { grammar, users }] of this.#kept) {
      if (idle <= IDLE) return;
      if (users > 0) continue;
      this.#kept.delete(key);
      grammar.close();
      idle--;
    }
  }
}
