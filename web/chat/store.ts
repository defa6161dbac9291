// Conversations on the device: IndexedDB, or memory where there is none (a private window), which the
// page then says. Each change is told to other tabs of the page, and none replaces one that it does not know.
import { type Conversation, type Summary, readStored, summaryOf } from './history.ts';

/** Another tab kept or deleted a conversation. */
export interface Change {
  id: string;
  gone: boolean;
}

/** What is stored is not what the caller's copy was made from; undefined: it was deleted. */
export class Conflict extends Error {
  constructor(readonly stored: Conversation | undefined) {
    super('the conversation was changed in another tab');
  }
}

export interface Store {
  readonly lasting: boolean; // whether it survives the page
  list(): Promise<Summary[]>; // the newest first
  all(): Promise<Conversation[]>;
  get(id: string): Promise<Conversation | undefined>;
  /** Stores the next revision, or fails with a Conflict. */
  put(talk: Conversation): Promise<void>;
  /** The same for a page that ends: there is no time to compare. */
  putLast(talk: Conversation): void;
  delete(id: string): Promise<void>;
  onChange(call: (change: Change) => void): void;
}

const NAME = 'tern-chat';
const newestFirst = <T extends Summary>(talks: T[]) => talks.sort((a, b) => b.updated - a.updated);

function promised<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB failed'));
  });
}

function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
  return promised(request);
}

export async function openStore(): Promise<Store> {
  try {
    const database = await openDatabase();
    database.onversionchange = () => database.close(); // a newer page wants to change its form
    return new DatabaseStore(database);
  } catch (error) {
    console.warn('conversations are not kept:', error);
    return new MemoryStore();
  }
}

/** The copy to store; the caller's counts as stored until `undo`. */
function nextOf(talk: Conversation): { copy: Conversation; base: number; undo: () => void } {
  const base = talk.revision;
  talk.revision = base + 1;
  const undo = () => {
    if (talk.revision === base + 1) talk.revision = base;
  };
  return { copy: structuredClone(talk), base, undo };
}

class DatabaseStore implements Store {
  readonly lasting = true;
  private readonly channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel(NAME) : null;
  constructor(private readonly database: IDBDatabase) {}

  private table(mode: IDBTransactionMode): IDBObjectStore {
    return this.database.transaction('conversations', mode).objectStore('conversations');
  }
  async all(): Promise<Conversation[]> {
    return newestFirst((await promised(this.table('readonly').getAll())).map(readStored));
  }
  // One at a time: whole conversations may be large.
  list(): Promise<Summary[]> {
    return new Promise((resolve, reject) => {
      const found: Summary[] = [];
      const request = this.table('readonly').openCursor();
      request.onerror = () => reject(request.error ?? new Error('IndexedDB failed'));
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor) return resolve(newestFirst(found));
        found.push(summaryOf(readStored(cursor.value)));
        cursor.continue();
      };
    });
  }
  async get(id: string): Promise<Conversation | undefined> {
    const stored: unknown = await promised(this.table('readonly').get(id));
    return stored === undefined ? undefined : readStored(stored);
  }
  // Compared and stored in one transaction, so that of two tabs one is refused.
  put(talk: Conversation): Promise<void> {
    const { copy, base, undo } = nextOf(talk);
    return new Promise<void>((resolve, reject) => {
      const table = this.table('readwrite');
      const { transaction } = table;
      let conflict: Conflict | null = null;
      transaction.oncomplete = () => {
        this.channel?.postMessage({ id: copy.id, gone: false } satisfies Change);
        resolve();
      };
      transaction.onabort = () => {
        undo();
        reject(conflict ?? transaction.error ?? new Error('IndexedDB failed'));
      };
      const request: IDBRequest<Conversation | undefined> = table.get(copy.id);
      request.onsuccess = () => {
        const stored = request.result === undefined ? undefined : readStored(request.result);
        if ((stored?.revision ?? 0) === base && (stored || base === 0)) return void table.put(copy);
        conflict = new Conflict(stored);
        transaction.abort();
      };
    });
  }
  putLast(talk: Conversation): void {
    const { copy } = nextOf(talk);
    this.table('readwrite').put(copy);
    this.channel?.postMessage({ id: copy.id, gone: false } satisfies Change);
  }
  async delete(id: string): Promise<void> {
    await promised(this.table('readwrite').delete(id));
    this.channel?.postMessage({ id, gone: true } satisfies Change);
  }
  onChange(call: (change: Change) => void): void {
    this.channel?.addEventListener('message', ({ data }: MessageEvent<Change>) => call(data));
  }
}

class MemoryStore implements Store {
  readonly lasting = false;
  private readonly talks = new Map<string, Conversation>();
  all = async () => newestFirst([...this.talks.values()].map((talk) => structuredClone(talk)));
  list = async () => (await this.all()).map(summaryOf);
  get = async (id: string) => structuredClone(this.talks.get(id));
  put = async (talk: Conversation) => this.putLast(talk);
  putLast = (talk: Conversation) => void this.talks.set(talk.id, nextOf(talk).copy);
  delete = async (id: string) => void this.talks.delete(id);
  onChange(): void {}
}
