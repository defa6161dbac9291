// The stored models: for each a manifest (what it consists of), and for each of its files the
// bytes and their state. Names in the storage: KEY.model, KEY.0.data, KEY.0.state, ...
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

export interface Tell {
  (phase: Phase, loaded: number, total: number, file?: string): void;
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
  sources: Source[];
  release(): void; // from then on the model may be deleted
}

const keyOf = (id: string): string => new Sha256().update(new TextEncoder().encode(id)).hex().slice(0, 24);
const useLock = (key: string): string => `tern-use-${key}`;

export class Store {
  constructor(readonly storage: Storage) {}

  // The model's files; missing or damaged ones are downloaded.
  async load(request: LoadRequest): Promise<Loaded> {
    const { storage } = this;
    const { signal } = request.wire;
    const key = keyOf(request.id);
    const release = (await storage.lock(useLock(key), { shared: true, signal }))!;
    const sources: Source[] = [];
    try {
      const written = (await storage.lock(`tern-write-${key}`, {
        signal, onWait: () => request.tell('wait', 0, 0),
      }))!;
      try {
        const plan = await this.#plan(key, request);
        await new Fetcher(this, key, plan, request).all(sources);
        // Records the time of use: not awaited, but the model is not deleted meanwhile.
        const noted = Promise.race([this.#write(key, plan), sleep(2000)]).catch(() => undefined);
        return { path: plan.path, files: plan.files, sources, release: () => void noted.then(release) };
      } finally {
        written();
      }
    } catch (error) {
      for (const source of sources) source.close?.();
      release();
      throw error;
    }
  }

  // A complete model needs no network.
  async #plan(key: string, request: LoadRequest): Promise<Manifest> {
    const known = await this.#manifest(key);
    if (known && !request.update && await this.#complete(key, known)) return known;
    request.tell('resolve', 0, 0);
    try {
      const plan = { format: 1, id: request.id, lastUsed: Date.now(), ...await request.resolve() } as const;
      await this.#write(key, plan);
      return plan;
    } catch (error) {
      if (known && toTernError(error).code === 'network') return known;
      throw error;
    }
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

  async list(): Promise<StoredModel[]> {
    const models: StoredModel[] = [];
    for (const name of await this.storage.names()) {
      if (!name.endsWith('.model')) continue;
      const key = name.slice(0, -6);
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
    const manifest = await this.#manifest(keyOf(id));
    return manifest && this.#describe(keyOf(id), manifest);
  }

  // Returns whether there was anything. 'busy' while the model is open or being downloaded in any tab.
  async delete(id: string): Promise<boolean> {
    return this.#deleteKey(keyOf(id), id);
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
      const names = (await this.storage.names()).filter(name => name.startsWith(`${key}.`));
      // The manifest last: after a failure the rest is still listed.
      for (const name of names.sort((a, b) => Number(a.endsWith('.model')) - Number(b.endsWith('.model'))))
        await this.storage.remove(name);
      return names.length > 0;
    } finally {
      release();
    }
  }
}

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
    const total = download.total;
    if (now - this.#lastTold < 50 && download.loaded < total) return;
    this.#lastTold = now;
    this.request.tell('download', this.#done + download.loaded,
      total < 0 ? 0 : this.#done + total + this.#others, remote.name);
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
