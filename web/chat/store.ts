// Conversations on the device: IndexedDB, or memory where there is none (a private window), which the
// page then says. Each change is told to other tabs of the page.
import type { Conversation } from './history.ts';

export interface Store {
  readonly lasting: boolean; // whether it survives the page
  list(): Promise<Conversation[]>; // the newest first
  get(id: string): Promise<Conversation | undefined>;
  put(talk: Conversation): Promise<void>;
  delete(id: string): Promise<void>;
  onChange(call: () => void): void; // another tab changed something
}

const NAME = 'tern-chat';
const newestFirst = (talks: Conversation[]) => talks.sort((a, b) => b.updated - a.updated);

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

class DatabaseStore implements Store {
  readonly lasting = true;
  private readonly channel = typeof BroadcastChannel === 'function' ? new BroadcastChannel(NAME) : null;
  constructor(private readonly database: IDBDatabase) {}

  private table(mode: IDBTransactionMode): IDBObjectStore {
    return this.database.transaction('conversations', mode).objectStore('conversations');
  }
  async list(): Promise<Conversation[]> {
    return newestFirst(await promised(this.table('readonly').getAll() as IDBRequest<Conversation[]>));
  }
  get(id: string): Promise<Conversation | undefined> {
    return promised(this.table('readonly').get(id) as IDBRequest<Conversation | undefined>);
  }
  async put(talk: Conversation): Promise<void> {
    await promised(this.table('readwrite').put(structuredClone(talk)));
    this.channel?.postMessage('changed');
  }
  async delete(id: string): Promise<void> {
    await promised(this.table('readwrite').delete(id));
    this.channel?.postMessage('changed');
  }
  onChange(call: () => void): void {
    this.channel?.addEventListener('message', call);
  }
}

class MemoryStore implements Store {
  readonly lasting = false;
  private readonly talks = new Map<string, Conversation>();
  list = async () => newestFirst([...this.talks.values()].map((talk) => structuredClone(talk)));
  get = async (id: string) => structuredClone(this.talks.get(id));
  put = async (talk: Conversation) => void this.talks.set(talk.id, structuredClone(talk));
  delete = async (id: string) => void this.talks.delete(id);
  onChange(): void {}
}
