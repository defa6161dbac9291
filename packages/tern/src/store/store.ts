// The stored models: for each a manifest (what it consists of), and for each of its files the
// bytes and their state. Names in the storage: KEY.model, KEY.0.data, KEY.0.state, ... A hub's file has many names
// ("hf:o/r", "hf:o/r/file.gguf", "…@commit"): one of them has the manifest, KEY.alias of the others names it.
import type { Source } from '../engine/types.js';
import type { Phase, StoredModel } from '../api.js';
import { formatBytes } from '../bytes.js';
import { TernError, toTernError } from '../errors.js';
import {
  Download, emptyState, hasChanged, isComplete, storedBytes, type FileState, type Remote, type Wire,
} from './download.js';
import { sleep } from '../platform.js';
import { Sha256 } from './sha256.js';
import type { Storage } from './storage.js';

export interface Plan { // for a model on a server
  path: string; // what the engine opens: one of the names, or "" for a folder
  files: Remote[];
}

interface Manifest extends Plan {
  format: 1;
  id: string;
  lastUsed: number; // milliseconds since 1970
}

interface Alias {
  format: 1;
  of: string; // the key of a manifest
  files: string; // which files it had
}

export interface Tell {
  (phase: Phase, loaded: number, total: number, file?: string, more?: { fraction?: number; reason?: string }): void;
}

export interface LoadRequest {
  id: string;
  resolve(): Promise<Plan>; // asks the network
  wire: Pick<Wire, 'fetch' | 'headers' | 'signal' | 'ifRange' | 'backoffMs' | 'stallMs'>;
  verify: boolean;
  update: boolean;
  tell: Tell;
  onNote(sentence: string): void;
}

export interface Loaded extends Plan {
  id: string; // under which it is stored
  sources: Source[];
  release(): void; // from then on the model may be deleted
}

const keyOf = (id: string): string => new Sha256().update(new TextEncoder().encode(id)).hex().slice(0, 24);
const useLock = (key: string): string => `tern-use-${key}`;

export class Store {
  constructor(readonly storage: Storage) {}

  // The model's files; missing or damaged ones are downloaded.
  async load(request: LoadRequest): Promise<Loaded> {
    const own = keyOf(request.id);
    let key = await this.#keyFor(request.id);
    for (;;) {
      const loaded = await this.#loadAt(key, own, request);
      if (typeof loaded !== 'string') return loaded;
      key = loaded;
    }
  }

  // The key of another manifest: the model is there.
  async #loadAt(key: string, own: string, request: LoadRequest): Promise<Loaded | string> {
    const { storage } = this;
    const { signal } = request.wire;
    const release = (await storage.lock(useLock(key), { shared: true, signal }))!;
    const sources: Source[] = [];
    let written: (() => void) | undefined;
    let noted: Promise<void> | undefined;
    try {
      written = (await storage.lock(`tern-write-${key}`, { signal, onWait: () => request.tell('wait', 0, 0) }))!;
      const plan = await this.#plan(key, own, request);
      if (typeof plan === 'string') {
        release();
        return plan;
      }
      await new Fetcher(this, key, plan, request).all(sources);
      // Records the time of use: not awaited, but nobody else writes it, and the model is not deleted meanwhile.
      noted = Promise.race([this.#write(key, plan), sleep(2000)]).catch(() => undefined);
      return { id: plan.id, path: plan.path, files: plan.files, sources, release: () => void noted!.then(release) };
    } catch (error) {
      for (const source of sources) source.close?.();
      if (written) await this.#forgetEmpty(key).catch(() => undefined);
      release();
      throw error;
    } finally {
      void (noted ?? Promise.resolve()).then(() => written?.());
    }
  }

  // A complete model needs no network.
  async #plan(key: string, own: string, request: LoadRequest): Promise<Manifest | string> {
    const known = await this.#manifest(key);
    if (known && !request.update && await this.#complete(key, known)) return known;
    request.tell('resolve', 0, 0);
    let plan: Plan;
    try {
      plan = await request.resolve();
    } catch (error) {
      if (known && toTernError(error).code === 'network') return known;
      throw error;
    }
    return this.#place(key, own, request.id, known, plan);
  }

  // Writes the manifest, unless the same files are stored under another name.
  async #place(key: string, own: string, id: string, known: Manifest | undefined, plan: Plan): Promise<Manifest | string> {
    const naming = (await this.storage.lock('tern-names', {}))!;
    try {
      // The other name stands for other files by now.
      if (key !== own && (!known || identity(known) !== identity(plan))) return await this.#unalias(own);
      const same = known ? undefined : await this.#holder(plan);
      if (same) {
        const alias: Alias = { format: 1, of: same, files: identity(plan) };
        await this.storage.writeText(`${own}.alias`, JSON.stringify(alias));
        return same;
      }
      const manifest = { format: 1, id: known?.id ?? id, lastUsed: Date.now(), ...plan } as const;
      await this.#write(key, manifest);
      return manifest;
    } finally {
      naming();
    }
  }

  async #unalias(own: string): Promise<string> {
    await this.storage.remove(`${own}.alias`);
    return own;
  }

  async #holder(plan: Plan): Promise<string | undefined> {
    for (const key of await this.#keys()) {
      const manifest = await this.#manifest(key);
      if (manifest && identity(manifest) === identity(plan)) return key;
    }
    return undefined;
  }

  async #keyFor(id: string): Promise<string> {
    const own = keyOf(id);
    const alias = parse<Alias>(await this.storage.readText(`${own}.alias`));
    const manifest = alias && await this.#manifest(alias.of);
    return manifest && identity(manifest) === alias.files ? alias.of : own;
  }

  // A model without any of its weights is not listed.
  async #forgetEmpty(key: string): Promise<void> {
    const manifest = await this.#manifest(key);
    const stored = await Promise.all((manifest?.files ?? []).map(async ({ name }, i) => {
      const state = /\.(gguf|safetensors)$/i.test(name) && await this.state(key, i);
      return state ? storedBytes(state) : 0;
    }));
    if (stored.every(bytes => bytes === 0)) await this.#removeFiles(key);
  }

  #write(key: string, manifest: Manifest): Promise<void> {
    return this.storage.writeText(`${key}.model`, JSON.stringify({ ...manifest, lastUsed: Date.now() }));
  }

  async #manifest(key: string): Promise<Manifest | undefined> {
    const manifest = parse<Manifest>(await this.storage.readText(`${key}.model`));
    return manifest?.format === 1 && Array.isArray(manifest.files) ? manifest : undefined;
  }

  async state(key: string, index: number): Promise<FileState | undefined> {
    const state = parse<FileState>(await this.storage.readText(`${key}.${index}.state`));
    return state && Array.isArray(state.pieces) && typeof state.size === 'number' ? state : undefined;
  }

  async #complete(key: string, manifest: Manifest): Promise<boolean> {
    const states = await Promise.all(manifest.files.map((_, i) => this.state(key, i)));
    return states.every(state => state && isComplete(state));
  }

  async #keys(): Promise<string[]> {
    return (await this.storage.names()).filter(name => name.endsWith('.model')).map(name => name.slice(0, -6));
  }

  async list(): Promise<StoredModel[]> {
    const models: StoredModel[] = [];
    for (const key of await this.#keys()) {
      const manifest = await this.#manifest(key);
      if (manifest) models.push(await this.#describe(key, manifest));
    }
    return models.sort((a, b) => b.lastUsed.getTime() - a.lastUsed.getTime());
  }

  async #describe(key: string, manifest: Manifest): Promise<StoredModel> {
    const states = await Promise.all(manifest.files.map((_, i) => this.state(key, i)));
    const sizes = states.map((state, i) => state && state.size >= 0 ? state.size : manifest.files[i]!.size ?? -1);
    return {
      id: manifest.id,
      url: manifest.files[0]?.url ?? '',
      size: sizes.includes(-1) ? 0 : sizes.reduce((a, b) => a + b, 0),
      stored: states.reduce((n, state) => n + (state ? storedBytes(state) : 0), 0),
      complete: states.every(state => !!state && isComplete(state)),
      lastUsed: new Date(manifest.lastUsed),
    };
  }

  async find(id: string): Promise<StoredModel | undefined> {
    const key = await this.#keyFor(id);
    const manifest = await this.#manifest(key);
    return manifest && this.#describe(key, manifest);
  }

  // Returns whether there was anything. 'busy' while the model is open or being downloaded in any tab.
  async delete(id: string): Promise<boolean> {
    return this.#deleteKey(await this.#keyFor(id), id);
  }

  // All models, including remains of partial ones.
  async clear(): Promise<void> {
    const keys = new Set((await this.storage.names()).map(name => /^([0-9a-f]{24})\./.exec(name)?.[1]));
    for (const key of keys) if (key) await this.#deleteKey(key, 'a model');
  }

  async #deleteKey(key: string, what: string): Promise<boolean> {
    // A page or a worker that was just closed may hold it for another moment.
    let release = await this.storage.lock(useLock(key), { ifFree: true });
    for (let waits = 0; !release && waits < 10; waits++) {
      await sleep(100);
      release = await this.storage.lock(useLock(key), { ifFree: true });
    }
    if (!release)
      throw new TernError('busy', `${what} is in use, in this page or in another tab; close it first`);
    try {
      return await this.#removeFiles(key);
    } finally {
      release();
    }
  }

  async #removeFiles(key: string): Promise<boolean> {
    const all = await this.storage.names();
    const names = all.filter(name => name.startsWith(`${key}.`));
    // The manifest last: after a failure the rest is still listed.
    for (const name of names.sort((a, b) => Number(a.endsWith('.model')) - Number(b.endsWith('.model'))))
      await this.storage.remove(name);
    for (const name of all.filter(other => other.endsWith('.alias')))
      if (parse<Alias>(await this.storage.readText(name))?.of === key) await this.storage.remove(name);
    return names.length > 0;
  }
}

// Which files these are: a hub's say by their checksum what is in them, or by the commit in their address.
const identity = ({ path, files }: Plan): string =>
  JSON.stringify([path, ...files.map(({ name, url, sha256 }) => [name, sha256 ?? url])]);

function parse<T>(text: string | undefined): T | undefined {
  try {
    return text === undefined ? undefined : JSON.parse(text) as T;
  } catch {
    return undefined; // remains of a killed process
  }
}

// The files of one model, one after another.
class Fetcher {
  #done = 0; // bytes of the files done
  #others: number; // known bytes of the files to come
  #lastTold = 0;

  constructor(private store: Store, private key: string, private plan: Manifest, private request: LoadRequest) {
    this.#others = plan.files.reduce((n, file) => n + (file.size ?? 0), 0);
  }

  async all(sources: Source[]): Promise<void> {
    for (let i = 0; i < this.plan.files.length; i++) {
      const remote = this.plan.files[i]!;
      this.#others -= remote.size ?? 0;
      const source = await this.#one(i, remote);
      sources.push(source);
      this.#done += source.size;
    }
    this.request.tell('download', this.#done, this.#done);
  }

  async #one(i: number, remote: Remote): Promise<Source> {
    const { request } = this;
    const { storage } = this.store;
    const wire: Wire = {
      ...request.wire,
      onNote: request.onNote,
      onBytes: () => this.#tell(download, remote),
      onRetry: reason => request.tell('retry', this.#done + download.loaded, this.#totalWith(download), remote.name, { reason }),
      onSize: missing => this.#checkRoom(missing, remote),
      save: state => storage.writeText(`${this.key}.${i}.state`, JSON.stringify(state)),
    };
    const state = await this.#known(i, remote, wire);
    const download = new Download(state, remote, wire);
    const whole = isComplete(state);
    const source = whole ? await this.#stored(i, remote, download) : undefined;
    if (source) return source;
    const file = await storage.open(`${this.key}.${i}.data`);
    try {
      if (!whole) await this.#verify(download, remote, (at, into) => file.read(at, into));
      await download.run(file);
    } catch (error) {
      throw toTernError(error).code === 'quota' ? await this.#noRoom(download.missing, remote, error)
        : error;
    } finally {
      await file.close();
    }
    return this.#source(i, remote, state.size);
  }

  async #known(i: number, remote: Remote, wire: Wire): Promise<FileState> {
    const state = await this.store.state(this.key, i);
    if (!state) return emptyState(remote.url);
    const other = state.url !== remote.url && (!remote.sha256 || remote.sha256 !== state.sha256);
    if (other || (this.request.update && isComplete(state) && await hasChanged(state, remote, wire))) {
      this.request.onNote(`${remote.name} has changed on the server; it is downloaded anew`);
      return emptyState(remote.url);
    }
    return { ...state, url: remote.url };
  }

  // Undefined: something is missing or damaged.
  async #stored(i: number, remote: Remote, download: Download): Promise<Source | undefined> {
    const { size } = download.state;
    const right = await this.store.storage.size(`${this.key}.${i}.data`) === size;
    if (right && !this.request.verify) return this.#source(i, remote, size);
    const source = await this.#source(i, remote, size);
    const damaged = await this.#verify(download, remote, (at, into) => source.read(at, into));
    if (damaged === 0 && right) return source;
    source.close?.();
    this.request.onNote(`${remote.name}: ${damaged} of ${download.state.pieces.length} stored pieces were `
      + 'damaged or missing; these were downloaded again');
    return undefined;
  }

  async #source(i: number, remote: Remote, size: number): Promise<Source> {
    let read = 0;
    return this.store.storage.source(`${this.key}.${i}.data`, remote.name, n => {
      this.request.tell('read', read += n, size, remote.name);
    });
  }

  async #verify(download: Download, remote: Remote,
    read: (at: number, into: Uint8Array<ArrayBuffer>) => number | Promise<number>): Promise<number> {
    let n = 0;
    const total = storedBytes(download.state);
    return download.verify(read, bytes => this.request.tell('verify', n += bytes, total, remote.name));
  }

  #tell(download: Download, remote: Remote): void {
    const now = Date.now();
    if (now - this.#lastTold < 50 && download.loaded < download.total) return;
    this.#lastTold = now;
    this.request.tell('download', this.#done + download.loaded, this.#totalWith(download), remote.name);
  }

  #totalWith({ total }: Download): number { // 0: unknown
    return total < 0 ? 0 : this.#done + total + this.#others;
  }

  async #checkRoom(missing: number, remote: Remote): Promise<void> {
    const room = await this.store.storage.estimate();
    const wanted = missing + this.#others;
    if (room && missing > 0 && wanted > room.quota - room.usage) throw await this.#noRoom(wanted, remote);
  }

  async #noRoom(missing: number, remote: Remote, cause?: unknown): Promise<TernError> {
    const room = await this.store.storage.estimate();
    const numbers = room
      ? `this site may store ${formatBytes(room.quota)}, and ${formatBytes(room.usage)} are taken`
      : 'the disk is full';
    const need = missing > 0 ? `needs ${formatBytes(missing)} more` : 'cannot be stored';
    return new TernError('quota', `${remote.name} ${need}, but ${numbers}; delete a model `
      + '(Tern.models.list, Tern.models.delete), free space on the disk, or load with cache: false', { cause });
  }
}
