// The worker: import this module in a worker of yours, or let the package start it. It hosts an engine, or is
// a thread of one. It is a plain module file; no code is created from text at run time, so it works under a
// strict Content-Security-Policy.
import { loadEngine } from './engine/index.js';
import { isThreadStart, runThread, type ThreadStart } from './engine/thread.js';
import type { ThreadScript } from './engine/types.js';
import { Host, PageThreads, serve } from './host.js';
import { builtin, inNode } from './platform.js';
import type { FromHost, HostPort, ToHost } from './protocol.js';

interface NodePort {
  postMessage(message: unknown): void;
  on(event: 'message', on: (message: ToHost) => void): void;
}

function port(): HostPort {
  if (inNode()) {
    const { parentPort, workerData } = builtin<{ parentPort: NodePort | null; workerData: unknown }>('node:worker_threads');
    if (isThreadStart(workerData)) runThread(workerData);
    if (!parentPort) throw new Error('tern-engine/worker is for workers: import tern-engine instead');
    return { post: message => parentPort.postMessage(message), listen: on => parentPort.on('message', on) };
  }
  const scope = globalThis as unknown as {
    postMessage(message: FromHost): void;
    addEventListener(type: 'message', on: (event: MessageEvent<ToHost | ThreadStart>) => void): void;
  };
  return {
    post: message => scope.postMessage(message),
    listen: on => scope.addEventListener('message', ({ data }) => isThreadStart(data) ? runThread(data) : on(data)),
  };
}

// This script itself, wherever a bundler has put it. Some bundlers make classic workers, and a file of one kind
// does not run as the other. In a module importScripts is a TypeError; a policy's refusal is not.
function ownScript(): ThreadScript {
  let type: WorkerType = 'classic';
  try {
    (globalThis as unknown as { importScripts(url: string): void }).importScripts('data:text/javascript,');
  } catch (error) {
    if (error instanceof TypeError) type = 'module';
  }
  return { url: globalThis.location.href, type };
}

const page = port();
const threads = inNode() ? undefined : new PageThreads(page);
serve(page, new Host(loadEngine, {}, threads && { startThread: threads.start, threadScript: ownScript() }), threads);
