// A memory's module with its SQLite: the other end of apps/web/memory/web_memory.c.
//
// In the middle of its work the store needs vectors and token counts from a model, which runs elsewhere. So a call
// runs with the answers known so far and records the missing ones; its changes are rolled back, the model is asked,
// and the call is repeated until every answer is known. A call with missing answers continues to its end with guesses,
// so that all its questions are collected at once, also those of an import, which has several transactions.
import { TernError } from '../engine/error.js';
import { codeOf, compile, type Loading, type OwnFile } from '../engine/module.js';
import { fromModule, toModule } from '../engine/names.js';
import { Files } from '../engine/wasi.js';
import { Sqlite, type Sqlite3 } from './sqlite.js';

const FILE: OwnFile = { name: 'tern-memory.wasm', beside: () => new URL('./tern-memory.wasm', import.meta.url) };
const ROUNDS = 500; // a call takes a handful

export interface ModelFacts { name: string; path: string; nDims: number; maxLength: number; prompts: readonly string[]; embeds: boolean }
// The model's answers.
export interface Asked {
  count(texts: readonly string[]): Promise<number[]>;
  embed(texts: readonly string[], prompt: string | undefined): Promise<Float32Array[]>;
}

interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  web_alloc(n: number): number;
  web_free(at: number): void;
  web_error(): number;
  web_result(): number;
  web_result_bytes(): number;
  [call: `memory_${string}`]: (json: number, n: number) => number;
}
export type CallName = 'open' | 'add' | 'recall' | 'list' | 'forget' | 'export' | 'import' | 'info' | 'compact' | 'rules';

export class Core {
  #exports!: Exports;
  #counts = new Map<string, number>();
  #vectors = new Map<string, Float32Array>(); // by prompt and text
  #toCount = new Set<string>();
  #toEmbed = new Map<string, Set<string>>();
  #last: Promise<unknown> = Promise.resolve();
  readonly #sqlite: Sqlite;

  private constructor(sqlite: Sqlite3, private asked: Asked) {
    this.#sqlite = new Sqlite(sqlite, () => this.#exports.memory);
    this.#sqlite.undoes = () => !this.#isKnown;
  }

  static async open(sqlite: Sqlite3, options: Loading & { name: string; pool: boolean; file?: Uint8Array | undefined },
    model: ModelFacts | undefined, asked: Asked): Promise<Core> {
    const core = new Core(sqlite, asked), { name } = options;
    const module = await compile(FILE, options);
    const files = new Files(() => core.#exports.memory, undefined);
    const folder = encodeURIComponent(name); // the module sees only one with that name
    files.add(folder, [{ name: 'none', size: 0, read: () => 0 }]);
    const memory = {
      count: (at: number, n: number) => core.#count(core.#text(at, n)),
      vector: (p: number, nP: number, at: number, n: number, to: number, nDims: number) =>
        core.#vector(core.#text(p, nP), core.#text(at, n), to, nDims),
    };
    const instance = await WebAssembly.instantiate(module, {
      wasi_snapshot_preview1: files.importsOf(module), sqlite: core.#sqlite.imports, memory,
    });
    core.#exports = instance.exports as unknown as Exports;
    core.#exports._initialize();
    await core.#sqlite.open(name, options.pool, options.file);
    try {
      const { embeds = false, ...facts } = model ?? { path: 'none' };
      await core.call('open', { ...facts, folder, embeds, counts: model !== undefined });
      return core;
    } catch (error) {
      core.close();
      throw error;
    }
  }

  // Calls run one after another: each sees what the one before it left.
  call<T>(name: CallName, args: object = {}): Promise<T> {
    const run = this.#last.then(() => this.#call<T>(name, args));
    this.#last = run.catch(() => undefined);
    return run;
  }

  async #call<T>(name: CallName, args: object): Promise<T> {
    try {
      for (let i = 0; i < ROUNDS; i++) {
        const result = this.#once<T>(name, args);
        if (!this.#isKnown) await this.#ask();
        else if (result instanceof TernError) throw result;
        else return result;
      }
      throw new TernError('trap', `the memory asks without an end (${name})`);
    } finally {
      this.#counts.clear();
      this.#vectors.clear();
      this.#toCount.clear();
      this.#toEmbed.clear();
    }
  }

  #once<T>(name: CallName, args: object): T | TernError {
    const x = this.#exports, json = new TextEncoder().encode(JSON.stringify(toModule(args)));
    const at = x.web_alloc(json.length) >>> 0;
    if (at === 0) return new TernError('memory', `out of memory (${json.length} bytes wanted)`);
    new Uint8Array(x.memory.buffer).set(json, at);
    const status = x[`memory_${name}`]!(at, json.length);
    x.web_free(at);
    if (status < 0) return new TernError(codeOf(-status), this.#error());
    const text = this.#text(x.web_result(), x.web_result_bytes());
    return (text === '' || name === 'open' || name === 'compact' ? undefined : JSON.parse(text)) as T;
  }

  get #isKnown(): boolean { return this.#toCount.size === 0 && this.#toEmbed.size === 0; }

  // A text whose count is not known yet gets a guess: four bytes a token.
  #count(text: string): number {
    const known = this.#counts.get(text);
    if (known === undefined) this.#toCount.add(text);
    return known ?? Math.ceil(text.length / 4);
  }
  #vector(prompt: string, text: string, to: number, nDims: number): void {
    const known = this.#vectors.get(`${prompt}\0${text}`);
    if (known) return new Float32Array(this.#exports.memory.buffer, to >>> 0, nDims).set(known);
    const texts = this.#toEmbed.get(prompt) ?? new Set();
    this.#toEmbed.set(prompt, texts.add(text));
  }

  // Token counts first: what is to be embedded depends on them.
  async #ask(): Promise<void> {
    const texts = [...this.#toCount];
    if (texts.length > 0) (await this.asked.count(texts)).forEach((n, i) => this.#counts.set(texts[i]!, n));
    else
      for (const [prompt, wanted] of this.#toEmbed) {
        const list = [...wanted];
        const vectors = await this.asked.embed(list, prompt || undefined);
        vectors.forEach((vector, i) => this.#vectors.set(`${prompt}\0${list[i]!}`, vector));
      }
    this.#toCount.clear();
    this.#toEmbed.clear();
  }

  #text(at: number, n: number): string {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(new Uint8Array(this.#exports.memory.buffer, at >>> 0, n));
  }
  #error(): string {
    const at = this.#exports.web_error() >>> 0, bytes = new Uint8Array(this.#exports.memory.buffer);
    return this.#text(at, bytes.indexOf(0, at) - at);
  }

  file(): Promise<Uint8Array<ArrayBuffer>> {
    return this.#last.then(() => this.#sqlite.export());
  }
  close(): void {
    this.#exports.memory_close!(0, 0);
    this.#sqlite.close();
  }
}

export const named = <T>(value: unknown): T => fromModule(value) as T;
