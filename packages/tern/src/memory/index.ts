// tern-engine/memory: searchable texts in one SQLite file with the tables of `tern memory`.
import type { Tern } from '../tern.js';
import { TernError } from '../engine/error.js';
import { inNode } from '../platform.js';
import { Core, named, type ModelFacts } from './core.js';
import type { Sqlite3 } from './sqlite.js';

export interface MemoryOptions {
  name?: string; // the memory's name ('memory')
  // Computes vectors and counts tokens; a model that does not embed only counts. Omitted: search is by words only, and
  // four bytes count as a token.
  model?: Pick<Tern, 'embed' | 'tokenize' | 'info'>;
  // 'opfs': the browser's private files, which only workers can write. 'auto': these in a worker, else 'memory'.
  storage?: 'auto' | 'opfs' | 'memory';
  file?: Uint8Array; // start from these bytes of a SQLite file, from `tern memory` or file()
  // The result of @sqlite.org/sqlite-wasm's default export; omitted: that package is imported.
  sqlite?: () => Promise<unknown>;
  wasmUrl?: string | URL; // the folder of tern-memory.wasm; default: next to the package's JavaScript
}

export interface AddOptions {
  source?: string; // where the text comes from: 'notes/garden.md'
  metadata?: Record<string, unknown>;
  format?: 'auto' | 'text' | 'markdown' | 'code'; // 'auto': by the source's file extension
  created?: Date;
  replace?: boolean; // replaces earlier texts of the same source
  whole?: boolean; // store as one chunk, whatever its size
  chunkTokens?: number; // maximum tokens of a chunk (256, or what the model takes)
  overlapTokens?: number; // tokens at the end of a chunk that the next one repeats (an eighth); negative: none
  keepSecrets?: boolean; // store the text unredacted
  patterns?: string[]; // additional expressions (PCRE2) to redact
}
export interface Added { id: number; nChunks: number; nRedacted: number; wasThere: boolean }

// 'author=Ann', 'year>=2025': compares a metadata member, source or created; = != < <= > >= and ^= (begins with).
export type Where = string | readonly string[];

export interface RecallOptions {
  limit?: number; // maximum number of hits (8)
  maxTokens?: number; // of all hits together
  search?: 'hybrid' | 'vectors' | 'words';
  where?: Where;
  leastSimilarity?: number; // for hits found only by vectors
  exact?: boolean; // compare all vectors as floats
}
export interface MemoryHit {
  id: number; // of the chunk
  record: number;
  text: string;
  source: string;
  heading: string; // 'Guide > Install'
  metadata: Record<string, unknown>;
  created: Date;
  nTokens: number;
  firstLine: number;
  score: number;
  similarity: number | null;
  vectorRank: number; // from 1; 0: not in that list
  wordRank: number;
}
export interface Recalled { hits: MemoryHit[]; context: string; nTokens: number }
export interface MemoryRecord {
  id: number;
  source: string;
  metadata: Record<string, unknown>;
  created: Date;
  nChunks: number;
  nTokens: number;
  nBytes: number;
  text?: string; // only from show()
}
export interface StoreInfo {
  nRecords: number; nChunks: number; nTokens: number; nVectors: number; nDims: number; nBytes: number;
  model: string; // the model that computed the vectors; '': none
  storage: 'opfs' | 'memory';
}

export class MemoryStore {
  private constructor(private core: Core, readonly storage: 'opfs' | 'memory') {}

  static async open(options: MemoryOptions = {}): Promise<MemoryStore> {
    const { model, storage = 'auto', name = 'memory', file, wasmUrl } = options;
    const inWorker = !inNode() && !('document' in globalThis);
    if (storage === 'opfs' && !inWorker)
      throw new TernError('unsupported', 'a memory in the browser\'s private files needs a worker: open it in one');
    const pool = storage === 'opfs' || (storage === 'auto' && inWorker && await hasFiles());
    const sqlite = await (options.sqlite ? options.sqlite() : loadSqlite()) as Sqlite3;
    const base = wasmUrl === undefined ? undefined : String(wasmUrl).replace(/\/?$/, '/');
    const core = await Core.open(sqlite, {
      name, pool, file, ...(base === undefined ? {} : { wasmUrl: (own: string) => base + own }),
    }, model && factsOf(model), {
      count: async texts => (await Promise.all(texts.map(text => model!.tokenize(text, { bos: false })))).map(ids => ids.length),
      embed: (texts, prompt) => model!.embed(texts, prompt === undefined ? {} : { prompt }),
    });
    return new MemoryStore(core, pool ? 'opfs' : 'memory');
  }

  // When it resolves, all of the text is stored; if it fails, none of it is. Secrets are redacted first.
  add(text: string, options: AddOptions = {}): Promise<Added> {
    return this.core.call('add', { text, ...addArgs(options), source: options.source, created: secondsOf(options.created),
      metadata: options.metadata && JSON.stringify(options.metadata), format: options.format }).then(named<Added>);
  }
  // The passages that answer a question, the best first.
  async recall(text: string, { where, ...options }: RecallOptions = {}): Promise<Recalled> {
    const got = await this.core.call<{ hits: Raw[]; context: string; n_tokens: number }>('recall', { text, ...options, where: filtersOf(where) });
    return { hits: got.hits.map(hit => revived<MemoryHit>(hit)), context: got.context, nTokens: got.n_tokens };
  }
  async list(where?: Where): Promise<MemoryRecord[]> {
    return (await this.core.call<Raw[]>('list', { where: filtersOf(where) })).map(record => revived<MemoryRecord>(record));
  }
  async show(id: number): Promise<MemoryRecord> {
    return revived<MemoryRecord>((await this.core.call<Raw[]>('list', { id }))[0]!);
  }
  // Deletes one record, or those that match; returns how many.
  forget(which: number | { where: Where }): Promise<number> {
    return this.core.call('forget', typeof which === 'number' ? { id: which } : { where: filtersOf(which.where) });
  }
  // Exports one line of JSON per record: {"text", "source", "metadata", "created"}.
  export(where?: Where): Promise<string> {
    return this.core.call('export', { where: filtersOf(where) });
  }
  // Imports such lines; all are checked before the first is added.
  import(lines: string, options: Omit<AddOptions, 'source' | 'metadata' | 'created' | 'format'> = {}): Promise<number> {
    return this.core.call('import', { lines, ...addArgs(options) });
  }
  async info(): Promise<StoreInfo> {
    return { ...named<StoreInfo>(await this.core.call('info')), storage: this.storage };
  }
  // The rules by which secrets are redacted.
  rules(): Promise<{ name: string; pattern: string }[]> { return this.core.call('rules'); }
  // Erases all traces of deleted records.
  compact(): Promise<void> { return this.core.call('compact'); }
  // The bytes of the SQLite file: `memory.sqlite` in a folder of `tern memory`.
  file(): Promise<Uint8Array<ArrayBuffer>> { return this.core.file(); }
  close(): void { this.core.close(); }
}

// ---- Arguments ------------------------------------------------------------------------------------

function factsOf({ info }: NonNullable<MemoryOptions['model']>): ModelFacts {
  const { nDims, maxLength, prompts } = info.embedding;
  return { name: info.name, path: info.path || info.id, nDims, maxLength, prompts, embeds: nDims > 0 };
}

const addArgs = ({ replace, whole, chunkTokens, overlapTokens, keepSecrets, patterns }: AddOptions): object =>
  ({ replace, whole, chunkTokens, overlapTokens, keepSecrets, patterns });

const secondsOf = (date: Date | undefined): number | undefined => date && Math.floor(date.getTime() / 1000);

export function filtersOf(where: Where | undefined): { key: string; compare: string; value: string }[] | undefined {
  if (where === undefined) return undefined;
  return (typeof where === 'string' ? [where] : where).map(text => {
    const [, key, compare, value] = /^([^!<>^=]+)(!=|<=|>=|\^=|=|<|>)(.*)$/s.exec(text) ?? [];
    if (key === undefined) throw new TernError('argument', `where "${text}": expected KEY=VALUE, also with != < <= > >= ^=`);
    return { key, compare: compare!, value: value! };
  });
}

// Metadata belongs to the caller: its names are not converted.
interface Raw { metadata: Record<string, unknown>; created: number }
const revived = <T>({ metadata, created, ...rest }: Raw): T =>
  ({ ...named<object>(rest), metadata, created: new Date(created * 1000) }) as T;

async function hasFiles(): Promise<boolean> {
  const { storage } = navigator as { storage?: StorageManager };
  return await storage?.getDirectory?.().then(() => 'createSyncAccessHandle' in FileSystemFileHandle.prototype, () => false) ?? false;
}

async function loadSqlite(): Promise<unknown> {
  let module: { default(): Promise<unknown> };
  try {
    module = await import('@sqlite.org/sqlite-wasm') as unknown as typeof module;
  } catch (cause) {
    throw new TernError('unsupported', 'a memory needs SQLite: install @sqlite.org/sqlite-wasm, or give it as `sqlite`', { cause });
  }
  return module.default();
}
