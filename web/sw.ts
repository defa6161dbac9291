// The service worker: all files of the pages, kept under the name of their contents, so that a page, its
// scripts and the modules are always of one version. A new version waits until the page says so, or until
// no page is open. Models are not kept here: the package does, in the browser's file system.
declare const FILES: string[];
declare const LATER: string[]; // kept from when they are first asked for
declare const VERSION: string;

// What is used of a service worker's world: TypeScript has it only in place of the page's.
interface LifeEvent extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface RequestEvent extends Event {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface Scope {
  readonly location: Location;
  readonly clients: { claim(): Promise<void> };
  skipWaiting(): Promise<void>;
  addEventListener(type: 'install' | 'activate', call: (event: LifeEvent) => void): void;
  addEventListener(type: 'fetch', call: (event: RequestEvent) => void): void;
  addEventListener(type: 'message', call: (event: MessageEvent) => void): void;
}
declare const self: Scope;

const PREFIX = 'tern-pages-';
const CACHE = PREFIX + VERSION;
const here = (name: string): string => new URL(name, self.location.href).href;
const urls = new Set(FILES.map(here));
const later = new Set(LATER.map(here));

self.addEventListener('install', (event) => {
  // Past the browser's own cache: what it keeps may be of an older version.
  const requests = [...urls].map((url) => new Request(url, { cache: 'no-cache' }));
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(requests)));
});

self.addEventListener('activate', (event) => {
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys()) {
        if (name.startsWith(PREFIX) && name !== CACHE) await caches.delete(name);
      }
    })(),
  );
  // Not waited for: Firefox asks every thread of a page, and those that compute or wait never answer, while
  // all requests of the page wait for the end of this event.
  void self.clients.claim();
});

self.addEventListener('message', (event) => {
  if (event.data === 'take over') void self.skipWaiting();
});

self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || request.headers.has('range')) return;
  const url = new URL(request.url);
  url.search = url.hash = '';
  if (url.pathname.endsWith('/index.html')) url.pathname = url.pathname.slice(0, -'index.html'.length);
  if (urls.has(url.href) || later.has(url.href)) event.respondWith(answer(url.href, request));
});

async function answer(url: string, request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(url);
  if (kept) return kept;
  const response = await fetch(request);
  // Without room it is fetched again next time.
  if (later.has(url) && response.ok) await cache.put(url, response.clone()).catch(() => undefined);
  return response;
}

export {};
