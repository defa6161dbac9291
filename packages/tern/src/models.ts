// The models that are stored on this device. Works in pages and workers, with and without a model open.
import type { StorageEstimate, StoredModel } from './api.js';
import { inNode } from './platform.js';
import { remoteId } from './source.js';
import { FolderStorage, userCacheFolder } from './store/folder.js';
import { openOpfs } from './store/opfs.js';
import { MemoryStorage } from './store/storage.js';
import { Store } from './store/store.js';

export class Models {
  // folder: in Node, instead of the one in the user's cache folder.
  constructor(private folder?: string) {}

  async #store(): Promise<Store> {
    if (inNode()) return new Store(new FolderStorage(this.folder ?? userCacheFolder()));
    const storage = await openOpfs();
    return new Store(typeof storage === 'string' ? new MemoryStorage() : storage);
  }

  // Most recently used first.
  async list(): Promise<StoredModel[]> {
    return (await this.#store()).list();
  }

  // source: as given to Tern.load, or an id from list(). Whether the model is stored completely.
  async has(source: string | URL): Promise<boolean> {
    return (await (await this.#store()).find(idOf(source)))?.complete ?? false;
  }

  // Whether there was anything to delete. Fails with 'busy' while the model is open in any tab.
  async delete(source: string | URL): Promise<boolean> {
    return (await this.#store()).delete(idOf(source));
  }

  async clear(): Promise<void> {
    await (await this.#store()).clear();
  }

  // Undefined: the platform does not say.
  async estimate(): Promise<StorageEstimate | undefined> {
    const store = await this.#store();
    const room = await store.storage.estimate();
    if (!room) return undefined;
    const models = (await store.list()).reduce((n, model) => n + model.stored, 0);
    return { ...room, models, persisted: await navigator.storage.persisted?.() ?? false };
  }
}

const idOf = (source: string | URL): string => remoteId(String(source)) ?? String(source);

// Asks the browser to keep what is stored when the disk becomes full. Only pages can ask; the browser decides
// whether to grant it and whether to ask the user.
export async function persist(): Promise<void> {
  const storage = (globalThis.navigator as Navigator | undefined)?.storage;
  if (storage?.persist && !await storage.persisted()) await storage.persist();
}
