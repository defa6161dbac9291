// Threads of the module: workers on the same memory, started before any model is opened, since a
// thread that has not started cannot be given work (src/base/os/os_wasm.c).
import { builtin } from '../platform.js';
import { TernError } from './error.js';
import type { StartThread, ThreadScript } from './types.js';

const STACK = 256 << 10;
const START_MS = 5_000; // after which one thread is used: browsers free threads of closed engines late, if at all

export interface Pool { size: number; stop(): void }
interface Thread { terminate(): unknown }
interface NodeThreads { // the parts of node:worker_threads that are used
  Worker: new (url: URL, options: object) => Thread & { on(event: string, heard: (e: unknown) => void): void; unref(): void };
}

export interface PoolOptions {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  n: number;
  script: ThreadScript;
  alloc(bytes: number): number;
  ready(): number; // number of threads waiting for work
  startThread?: StartThread | undefined; // instead of starting a worker from this worker
  signal?: AbortSignal | undefined;
}

async function start(o: PoolOptions, number: number, fail: (reason: unknown) => void): Promise<Thread> {
  const stackTop = o.alloc(STACK) + STACK;
  const data = { module: o.module, memory: o.memory, number, stackTop };
  const startThread = o.startThread ?? (typeof Worker === 'function' ? startWorker : undefined);
  if (startThread) return startThread(o.script, data, fail);
  const { Worker: NodeWorker } = builtin<NodeThreads>('node:worker_threads');
  const worker = new NodeWorker(new URL(o.script.url), { workerData: data });
  worker.on('error', fail);
  worker.unref(); // does not keep the process alive
  return worker;
}

export const startWorker: StartThread = ({ url, type }, start, fail) => {
  const worker = new Worker(url, { type, name: 'tern thread' });
  worker.onerror = (e) => fail(e.message || `${url} could not be loaded`);
  worker.postMessage(start);
  return worker;
};

export async function startPool(o: PoolOptions): Promise<Pool> {
  let failure: unknown;
  const threads: Thread[] = [];
  const stop = (): void => { for (const t of threads) void t.terminate(); };
  try {
    for (let i = 0; i < o.n; i++) threads.push(await start(o, i, (reason) => { failure ??= reason; }));
    const end = performance.now() + START_MS;
    while (o.ready() < o.n) {
      if (o.signal?.aborted) throw new TernError('aborted', 'loading was aborted', { cause: o.signal.reason });
      if (failure !== undefined) throw new TernError('unsupported', `a thread could not be started: ${String(failure)}`);
      if (performance.now() > end) throw new TernError('unsupported', 'the threads did not start in time');
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  } catch (error) {
    stop();
    // A page on another origin than the script (a CDN): refused at once.
    throw error instanceof TernError ? error
      : new TernError('unsupported', `a thread could not be started: ${(error as Error).message}`, { cause: error });
  }
  return { size: threads.length, stop };
}
