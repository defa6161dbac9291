// SQLite for the memory's module: the other end of apps/web/memory/memory_sqlite.c, over one file of
// @sqlite.org/sqlite-wasm. Both are WebAssembly modules, so texts are copied from one memory to the other.
import { TernError } from '../engine/error.js';

// The parts of @sqlite.org/sqlite-wasm that are used.
interface Capi {
  [name: `SQLITE_${string}`]: number;
  sqlite3_open_v2(path: string, db: number, flags: number, vfs: string | null): number;
  sqlite3_close_v2(db: number): number;
  sqlite3_extended_result_codes(db: number, on: number): number;
  sqlite3_db_config(db: number, what: number, value: number, out: number): number;
  sqlite3_exec(db: number, sql: string, callback: number, user: number, error: number): number;
  sqlite3_extended_errcode(db: number): number;
  sqlite3_errmsg(db: number): string;
  sqlite3_changes(db: number): number;
  sqlite3_get_autocommit(db: number): number;
  sqlite3_last_insert_rowid(db: number): bigint;
  sqlite3_prepare_v2(db: number, sql: number, n: number, st: number, tail: number): number;
  sqlite3_step(st: number): number;
  sqlite3_reset(st: number): number;
  sqlite3_finalize(st: number): number;
  sqlite3_bind_int64(st: number, at: number, value: bigint): number;
  sqlite3_bind_text(st: number, at: number, bytes: number, n: number, free: number): number;
  sqlite3_bind_blob(st: number, at: number, bytes: number, n: number, free: number): number;
  sqlite3_column_int64(st: number, column: number): bigint;
  sqlite3_column_bytes(st: number, column: number): number;
  sqlite3_column_blob(st: number, column: number): number;
  sqlite3_deserialize(db: number, schema: string, bytes: number, n: number, room: number, flags: number): number;
  sqlite3_js_db_export(db: number): Uint8Array<ArrayBuffer>;
}
interface Pool {
  vfsName: string;
  importDb(name: string, bytes: Uint8Array): unknown;
  pauseVfs?(): unknown;
}
export interface Sqlite3 {
  capi: Capi;
  version?: { libVersion: string };
  wasm: {
    heap8u(): Uint8Array;
    alloc(n: number): number;
    dealloc(at: number): void;
    allocFromTypedArray(bytes: Uint8Array): number;
    pstack: { pointer: number; alloc(n: number): number; restore(at: number): void };
    peekPtr(at: number): number;
  };
  installOpfsSAHPoolVfs(options: {
    name: string; directory: string; preserveOnInitFailure: boolean; forceReinitIfPreviouslyFailed: boolean;
  }): Promise<Pool>;
}

const WAL_AT = 18; // in SQLite's header: which log the file is used with

// Makes a file that was written with a write-ahead log usable without one.
function withoutLog(bytes: Uint8Array): Uint8Array {
  const copy = bytes.slice();
  if (copy[WAL_AT] === 2) copy.fill(1, WAL_AT, WAL_AT + 2);
  return copy;
}

export class Sqlite {
  #db = 0;
  #pool: Pool | undefined;
  // Whether a transaction is to be rolled back at its end.
  undoes: () => boolean = () => false;

  constructor(private sqlite: Sqlite3, private memory: () => WebAssembly.Memory) {}

  // pool: files in the browser's private file system, which only workers can write; else in memory.
  async open(name: string, pool: boolean, file?: Uint8Array): Promise<void> {
    const { capi } = this.sqlite;
    if (pool && typeof this.sqlite.installOpfsSAHPoolVfs !== 'function')
      throw new TernError('unsupported', `@sqlite.org/sqlite-wasm ${this.sqlite.version?.libVersion ?? ''} is too old to store a memory: `
        + 'npm install @sqlite.org/sqlite-wasm@3.54.1-build1');
    if (pool) {
      // A pool in use elsewhere is refused: its files have one owner.
      const directory = `tern-memory/${encodeURIComponent(name)}`;
      this.#pool = await this.sqlite.installOpfsSAHPoolVfs({
        name: `tern ${name}`, directory, preserveOnInitFailure: true, forceReinitIfPreviouslyFailed: true,
      }).catch((cause: unknown) => { throw new TernError('busy', `the memory "${name}" is open elsewhere, or cannot be: ${String(cause)}`, { cause }); });
      if (file) this.#pool.importDb('/memory.sqlite', withoutLog(file));
    }
    const flags = capi.SQLITE_OPEN_READWRITE! | capi.SQLITE_OPEN_CREATE!;
    this.#db = this.#pointer(to => capi.sqlite3_open_v2(pool ? '/memory.sqlite' : ':memory:', to, flags, this.#pool?.vfsName ?? null));
    capi.sqlite3_extended_result_codes(this.#db, 1);
    if (file && !pool) this.#load(withoutLog(file));
  }

  #load(bytes: Uint8Array): void {
    const { capi, wasm } = this.sqlite, n = bytes.length;
    const flags = capi.SQLITE_DESERIALIZE_FREEONCLOSE! | capi.SQLITE_DESERIALIZE_RESIZEABLE!;
    this.#sure(capi.sqlite3_deserialize(this.#db, 'main', wasm.allocFromTypedArray(bytes), n, n, flags));
  }

  // The value that a function writes to an output pointer.
  #pointer(use: (to: number) => number): number {
    const { pstack, peekPtr } = this.sqlite.wasm, before = pstack.pointer;
    try {
      const to = pstack.alloc(8);
      this.#sure(use(to));
      return peekPtr(to);
    } finally {
      pstack.restore(before);
    }
  }
  #sure(code: number): void {
    if (code !== 0) throw new TernError('io', `SQLite's error ${code}: ${this.#db ? this.sqlite.capi.sqlite3_errmsg(this.#db) : 'cannot open'}`);
  }

  export(): Uint8Array<ArrayBuffer> {
    return this.sqlite.capi.sqlite3_js_db_export(this.#db);
  }
  close(): void {
    if (this.#db) this.sqlite.capi.sqlite3_close_v2(this.#db);
    this.#db = 0;
    this.#pool?.pauseVfs?.(); // releases its files
  }

  // ---- For the module --------------------------------------------------------------------------

  #bytes(at: number, n: number): Uint8Array { return new Uint8Array(this.memory().buffer, at >>> 0, n >>> 0); }
  #text(at: number, n: number): string { return new TextDecoder('utf-8', { ignoreBOM: true }).decode(this.#bytes(at, n)); }

  #exec(sql: string): number {
    const { capi } = this.sqlite;
    return capi.sqlite3_exec(this.#db, sql === 'COMMIT' && this.undoes() ? 'ROLLBACK' : sql, 0, 0, 0);
  }

  #prepare(at: number, n: number): number {
    const { capi, wasm } = this.sqlite, before = wasm.pstack.pointer;
    const sql = wasm.allocFromTypedArray(this.#bytes(at, n + 1)); // with its terminating zero
    try {
      const to = wasm.pstack.alloc(8);
      return capi.sqlite3_prepare_v2(this.#db, sql, n, to, 0) === 0 ? wasm.peekPtr(to) : 0;
    } finally {
      wasm.pstack.restore(before);
      wasm.dealloc(sql);
    }
  }

  #bind(st: number, at: number, from: number, n: number, isText: number): number {
    const { capi, wasm } = this.sqlite;
    const copy = wasm.alloc(n || 1);
    wasm.heap8u().set(this.#bytes(from, n), copy);
    const bind = isText ? capi.sqlite3_bind_text : capi.sqlite3_bind_blob;
    const code = bind(st, at, copy, n, capi.SQLITE_TRANSIENT!);
    wasm.dealloc(copy);
    return code;
  }

  #read(st: number, column: number, to: number): void {
    const { capi, wasm } = this.sqlite;
    const from = capi.sqlite3_column_blob(st, column), n = capi.sqlite3_column_bytes(st, column);
    this.#bytes(to, n).set(wasm.heap8u().subarray(from, from + n));
  }

  get imports(): WebAssembly.ModuleImports {
    const { capi } = this.sqlite;
    return {
      open: () => this.#db ? 0 : capi.SQLITE_CANTOPEN!,
      close: () => 0, // the page closes it
      config: (what: number, value: number) => capi.sqlite3_db_config(this.#db, what, value, 0),
      exec: (at: number, n: number) => this.#exec(this.#text(at, n)),
      errcode: () => capi.sqlite3_extended_errcode(this.#db),
      errmsg: (to: number, n: number) =>
        new TextEncoder().encodeInto(capi.sqlite3_errmsg(this.#db), this.#bytes(to, n)).written,
      changes: () => capi.sqlite3_changes(this.#db),
      autocommit: () => capi.sqlite3_get_autocommit(this.#db),
      rowid: () => capi.sqlite3_last_insert_rowid(this.#db),
      prepare: (at: number, n: number) => this.#prepare(at, n),
      step: (st: number) => capi.sqlite3_step(st),
      reset: (st: number) => capi.sqlite3_reset(st),
      finalize: (st: number) => capi.sqlite3_finalize(st),
      bind_int: (st: number, at: number, value: bigint) => capi.sqlite3_bind_int64(st, at, value),
      bind_bytes: (st: number, at: number, from: number, n: number, isText: number) => this.#bind(st, at, from, n, isText),
      column_int: (st: number, column: number) => capi.sqlite3_column_int64(st, column),
      column_bytes: (st: number, column: number) => capi.sqlite3_column_bytes(st, column),
      column_read: (st: number, column: number, to: number) => this.#read(st, column, to),
    };
  }
}
