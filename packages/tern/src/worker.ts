// The worker: import this module in a worker of yours, or let the package start it. A plain module
// file; nothing is made of text at run time, so a strict Content-Security-Policy is kept.
import { loadEngine } from './engine/index.js';
import { Host, PageThreads, serve } from './host.js';
import { builtin, inNode } from './platform.js';
import type { FromHost, HostPort, ToHost } from './protocol.js';

interface NodePort {
  postMessage(message: unknown): void;
  on(event: 'message', on: (message: ToHost) => void): void;
}

function port(): HostPort {
  if (inNode()) {
    const { parentPort } = builtin<{ parentPort: NodePort | null }>('node:worker_threads');
    if (!parentPort) throw new Error('tern-engine/worker is for workers: import tern-engine instead');
    return { post: message => parentPort.postMessage(message), listen: on => parentPort.on('message', on) };
  }
  const scope = globalThis as unknown as {
    postMessage(message: FromHost): void;
    addEventListener(type: 'message', on: (event: MessageEvent<ToHost>) => void): void;
  };
  return {
    post: message => scope.postMessage(message),
    listen: on => scope.addEventListener('message', event => on(event.data)),
  };
}

const page = port();
const threads = inNode() ? undefined : new PageThreads(page);
serve(page, new Host(loadEngine, {}, threads?.start), threads);
