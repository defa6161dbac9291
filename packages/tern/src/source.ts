// From the user's source to files that the engine reads.
import type { LoadOptions, ModelSource, TernInfo } from './api.js';
import type { Source } from './engine/types.js';
import { TernError } from './errors.js';
import { HUB, adapterFiles, choose, folderFiles, hubId, parseHub, resolveHub, splitParts } from './hub.js';
import { fs, inNode, path } from './platform.js';
import type { Wire } from './store/download.js';
import { FdSource, FolderStorage, userCacheFolder } from './store/folder.js';
import { ask, askJson, type Asking } from './store/network.js';
import { blobSource, canReadBlobs, openOpfs } from './store/opfs.js';
import { BytesSource, MemoryStorage, type Storage } from './store/storage.js';
import { Store, type Loaded, type LoadRequest, type Plan, type Tell } from './store/store.js';

export type Opened = Omit<Loaded, 'files'> & Pick<TernInfo, 'files' | 'id' | 'storage'>;

// What is sent to the worker: everything that can be.
export type SourceOptions = Pick<LoadOptions, 'cache' | 'headers' | 'hub'>;

export interface OpenContext {
  tell: Tell;
  onNote(sentence: string): void;
  signal: AbortSignal;
  fetch?: typeof fetch;
  backoffMs?: number;
  storage?: Storage; // instead of the platform's
}

// A URL, a name on the hub, or undefined: a path.
export function remoteId(source: string, hub?: LoadOptions['hub']): string | undefined {
  const parsed = parseHub(source, hub?.baseUrl) ?? (hub?.baseUrl ? parseHub(source, HUB) : undefined);
  if (parsed) return hubId(parsed);
  if (/^(https?|blob|data):/i.test(source)) return source.replace(/#.*$/, '');
  if (inNode()) return undefined;
  const base = (globalThis as { location?: Location }).location?.href;
  if (/^file:/i.test(source) || !base || !URL.canParse(source, base))
    throw new TernError('argument', `"${source}" is not an address that a page can load`);
  return new URL(source, base).href.replace(/#.*$/, '');
}

export async function openSource(source: ModelSource, options: SourceOptions, context: OpenContext): Promise<Opened> {
  if (source instanceof URL) source = source.href;
  if (typeof source === 'string') {
    const id = remoteId(source, options.hub);
    return id === undefined ? openPath(source) : openRemote(id, options, context);
  }
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) {
    const bytes = source instanceof ArrayBuffer ? new Uint8Array(source) : source;
    return opened([new BytesSource('model.gguf', bytes)], 'model.gguf', 'bytes', 'memory');
  }
  if (source instanceof Blob) return openBlobs([source], context);
  if (Array.isArray(source) && source.length > 0 && source.every(file => file instanceof Blob))
    return openBlobs(source as File[], context);
  throw new TernError('argument', 'a model is given as an address, "hf:owner/repo", a File or Blob, Files, or bytes');
}

const opened = (sources: Source[], where: string, id: string, storage: Opened['storage'],
  release = () => undefined as void): Opened =>
  ({ sources, path: where, id, storage, release, files: sources.map(({ name, size }) => ({ name, size })) });

async function openBlobs(blobs: readonly Blob[], context: OpenContext): Promise<Opened> {
  const named = blobs.map(blob => ({ blob, name: blobName(blob) }));
  const { path: where, files } = named.length === 1 ? { path: 'model.gguf', files: [{ ...named[0]!, name: 'model.gguf' }] }
    : choose(named, '', 'the chosen files');
  const total = files.reduce((n, { blob }) => n + blob.size, 0);
  let loaded = 0;
  const sources: Source[] = [];
  for (const { blob, name } of files)
    sources.push(await blobSource(name, blob, n => context.tell('read', loaded += n, total, name)));
  if (!canReadBlobs()) context.onNote('outside of a worker a file is read into memory');
  return opened(sources, where, `file:${named[0]!.name}`, 'file');
}

// Files of a chosen or dropped folder have its name as a prefix.
function blobName(blob: Blob): string {
  const file = blob as Partial<File>;
  return file.webkitRelativePath?.replace(/^[^/]*\//, '') || file.name || 'model.gguf';
}

function openPath(source: string): Opened {
  const { join, basename, dirname, resolve } = path();
  const file = /^file:/i.test(source) ? fileUrlToPath(source) : resolve(source);
  let folder: boolean;
  try {
    folder = fs().statSync(file).isDirectory();
  } catch (cause) {
    throw new TernError('io', `${file}: ${(cause as Error).message}`, { cause });
  }
  const names = folder ? choose(fs().readdirSync(file).map(name => ({ name })), '', file)
    : { path: basename(file), files: splitParts(basename(file)).map(name => ({ name })) };
  const base = folder ? file : dirname(file);
  return opened(names.files.map(({ name }) => new FdSource(name, join(base, name))), names.path, file, 'file');
}

function fileUrlToPath(url: string): string {
  const name = decodeURIComponent(new URL(url).pathname);
  return /^\/[A-Za-z]:/.test(name) ? name.slice(1) : name;
}

async function openRemote(id: string, options: SourceOptions, context: OpenContext): Promise<Opened> {
  const { storage, why } = context.storage ? { storage: context.storage, why: '' }
    : await chooseStorage(/^(blob|data):/i.test(id) ? false : options.cache);
  if (why) context.onNote(`the model is kept in memory only: ${why}`);
  const cache = typeof options.cache === 'object' ? options.cache : {};
  // Browsers refuse their fetch as a method of another object.
  const get: typeof fetch = context.fetch ?? ((...request) => fetch(...request));
  const asking = { fetch: get, headers: headersFor(id, options), signal: context.signal };
  const request: LoadRequest = {
    id,
    resolve: () => plan(id, options, { ...asking, onRetry: reason => context.tell('retry', 0, 0, undefined, { reason }) }),
    wire: {
      ...asking, signal: context.signal, ifRange: sameOrigin,
      ...(context.backoffMs === undefined ? {} : { backoffMs: context.backoffMs }),
    },
    verify: cache.verify !== false && storage.kind !== 'memory',
    update: cache.update === true,
    tell: context.tell,
    onNote: context.onNote,
  };
  const loaded = await new Store(storage).load(request);
  return opened(loaded.sources, loaded.path, loaded.id, storage.kind, loaded.release);
}

function headersFor(id: string, { headers, hub }: SourceOptions): Record<string, string> {
  const token = id.startsWith('hf:') && hub?.token ? { Authorization: `Bearer ${hub.token}` } : {};
  return { ...token, ...headers };
}

const sameOrigin: Wire['ifRange'] = url => inNode() || new URL(url).origin === globalThis.location?.origin;

export async function chooseStorage(cache: LoadOptions['cache']): Promise<{ storage: Storage; why: string }> {
  const memory = (why: string) => ({ storage: new MemoryStorage(), why });
  if (cache === false) return memory('');
  if (inNode()) {
    if (!cache) return memory('in Node a folder is used only with the option cache');
    const folder = typeof cache === 'object' ? cache.folder : undefined;
    return { storage: new FolderStorage(folder ?? userCacheFolder()), why: '' };
  }
  const storage = await openOpfs();
  return typeof storage === 'string' ? memory(storage) : { storage, why: '' };
}

async function plan(id: string, options: SourceOptions, asking: Asking): Promise<Plan> {
  const hub = parseHub(id);
  if (hub) return resolveHub(hub, options.hub ?? {}, asking);
  const url = new URL(id);
  if (url.pathname.endsWith('/')) return folderPlan(url, asking);
  const name = decodeURIComponent(url.pathname.slice(url.pathname.lastIndexOf('/') + 1)) || 'model.gguf';
  const parts = splitParts(name);
  // Whatever the URL looks like, the file there is GGUF.
  if (parts.length === 1) return { path: 'model.gguf', files: [{ name: 'model.gguf', url: id }] };
  return { path: name, files: parts.map(part => ({ name: part, url: sibling(url, part) })) };
}

function sibling(url: URL, name: string): string {
  const other = new URL(encodeURIComponent(name), url);
  other.search = url.search;
  return other.href;
}

// A folder on any server: its files are requested by name. Some servers answer every name with a page.
async function folderPlan(url: URL, asking: Asking): Promise<Plan> {
  const names = await Promise.all([...folderFiles, ...adapterFiles].map(async name => {
    const { ok, headers } = await ask(sibling(url, name), { ...asking, method: 'HEAD' });
    return ok && !headers.get('content-type')?.startsWith('text/html') ? name : undefined;
  }));
  const found = names.filter(name => name !== undefined);
  if (found.includes('model.safetensors.index.json') && !found.includes('model.safetensors')) {
    const at = sibling(url, 'model.safetensors.index.json');
    const index = await askJson<{ weight_map?: Record<string, string> }>(at, await ask(at, asking));
    found.push(...new Set(Object.values(index.weight_map ?? {})));
  }
  const { path: where, files } = choose(found.map(name => ({ name, url: sibling(url, name) })), '', url.href);
  return { path: where, files };
}
