// The API's end of the channel: calls with results, events and abortion.
import type { EngineChoice } from './api.js';
import { startWorker as startThread } from './engine/pool.js';
import type { OnLog, ThreadScript } from './engine/types.js';
import { TernError, aborted, fromPlain, throwIfAborted } from './errors.js';
import { builtin, inNode, workerFile } from './platform.js';
import { localPorts, type Calls, type ClientPort, type FromHost, type Method } from './protocol.js';

interface Pending {
  resolve(value: unknown): void;
  reject(error: unknown): void;
  onEvent: ((value: never) => unknown) | undefined;
  unlisten(): void;
}

export class Connection {
  #pending = new Map<number, Pending>();
  #next = 1;
  #threads = new Map<number, { terminate(): unknown }>(); // started for the worker
  #dead: TernError | undefined;
  #listening = new AbortController(); // aborted when the worker ends
  #held!: () => void;
  readonly #hold = new Promise<void>(resolve => { this.#held = resolve; });

  onLog: OnLog | undefined;

  constructor(private port: ClientPort) {
    port.listen(message => this.#receive(message));
    port.onDeath(why => this.#die(new TernError('worker', why)));
  }

  call<M extends Method>(method: M, args: Calls[M]['args'],
    options: { onEvent?: ((event: Calls[M]['event']) => void) | undefined; signal?: AbortSignal | undefined } = {}):
    Promise<Calls[M]['result']> {
    const { onEvent, signal } = options;
    return new Promise((resolve, reject) => {
      if (this.#dead) throw this.#dead;
      throwIfAborted(signal);
      const id = this.#next++;
      const stop = () => this.port.post({ abort: id, reason: aborted(signal).message });
      signal?.addEventListener('abort', stop);
      this.#pending.set(id, {
        resolve: resolve as (value: unknown) => void, reject, onEvent: onEvent as Pending['onEvent'],
        unlisten: () => signal?.removeEventListener('abort', stop),
      });
      this.port.busy(true);
      try {
        this.port.post({ call: id, method, args });
      } catch (cause) { // DataCloneError
        this.#take(id);
        throw new TernError('argument', `an option cannot be sent to the worker: ${(cause as Error).message}`, { cause });
      }
    });
  }

  #take(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    pending?.unlisten();
    if (this.#pending.size === 0) this.port.busy(false);
    return pending;
  }

  #receive(message: FromHost): void {
    if ('event' in message) this.#tell(message.event, message.value);
    else if ('done' in message) this.#take(message.done)?.resolve(message.value);
    else if ('failed' in message) this.#take(message.failed)?.reject(fromPlain(message.error));
    else if ('log' in message) this.onLog?.(message.log, message.line);
    else if ('held' in message) this.#held();
    else if ('thread' in message) this.#startThread(message);
    else if ('endThread' in message) {
      this.#threads.get(message.endThread)?.terminate();
      this.#threads.delete(message.endThread);
    }
  }

  // An error of the caller's callback, also of an asynchronous one, is the error of its call, which ends.
  #tell(id: number, value: unknown): void {
    const failed = (error: unknown) => {
      const call = this.#take(id);
      if (!call) return;
      call.reject(error);
      this.port.post({ abort: id, reason: 'a callback of the caller failed' });
    };
    try {
      const told: unknown = this.#pending.get(id)?.onEvent?.(value as never);
      if (told instanceof Promise) told.catch(failed);
    } catch (error) {
      failed(error);
    }
  }

  #startThread({ thread, script, start }: { thread: number; script: ThreadScript; start: unknown }): void {
    const fail = (why: string) => this.port.post({ threadFailed: thread, why });
    try {
      this.#threads.set(thread, startThread(script, start, fail));
    } catch (error) { // refused at once, for another origin, for example
      fail((error as Error).message);
    }
  }

  // Detects a worker that ended silently, because it was terminated or ran out of memory: its web lock
  // becomes free.
  watch(): void {
    const locks = (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
    if (!locks || inNode()) return;
    const name = `tern-alive-${Math.random().toString(36).slice(2)}`;
    this.port.post({ hold: name });
    const { signal } = this.#listening;
    void this.#hold.then(() => locks.request(name, { signal }, () =>
      this.#die(new TernError('worker', 'the worker has ended: it was terminated, or the browser took its memory'))))
      .catch(() => undefined);
  }

  #die(error: TernError): void {
    this.#dead ??= error;
    this.#listening.abort();
    for (const id of [...this.#pending.keys()]) this.#take(id)?.reject(error);
    for (const thread of this.#threads.values()) thread.terminate();
    this.#threads.clear();
  }

  close(): void {
    this.#die(new TernError('closed', 'it is closed'));
    this.port.close();
  }
}

interface NodeWorker {
  postMessage(message: unknown): void;
  on(event: string, on: (value: never) => void): void;
  ref(): void;
  unref(): void;
  terminate(): Promise<number>;
}

// Ready to be called, or fails with 'worker'.
async function ready(port: ClientPort, timeoutMs: number): Promise<ClientPort> {
  port.busy(true);
  try {
    await new Promise<void>((resolve, reject) => {
      const late = setTimeout(() => reject(new TernError('worker', 'the worker does not start')), timeoutMs);
      port.onDeath(why => reject(new TernError('worker', why)));
      port.listen(message => {
        if ('ready' in message) resolve();
        clearTimeout(late);
      });
      port.post({ hello: true });
    });
  } catch (error) {
    port.close();
    throw error;
  }
  port.busy(false);
  return port;
}

function nodePort(url: URL): ClientPort {
  const { Worker } = builtin<{ Worker: new (url: URL) => NodeWorker }>('node:worker_threads');
  const worker = new Worker(url);
  worker.unref();
  let message: (message: FromHost) => void;
  let death: (why: string) => void;
  worker.on('message', (value: FromHost) => message(value));
  worker.on('error', (error: Error) => death(`the worker failed: ${error.message}`));
  worker.on('exit', (status: number) => death(`the worker has ended with status ${status}`));
  return {
    post: value => worker.postMessage(value),
    listen: on => { message = on; },
    onDeath: on => { death = on; },
    busy: yes => yes ? worker.ref() : worker.unref(),
    close: () => void worker.terminate(),
  };
}

function webPort(worker: Worker): ClientPort {
  let message: (message: FromHost) => void;
  let death: (why: string) => void;
  worker.addEventListener('message', (event: MessageEvent<FromHost>) => message(event.data));
  worker.addEventListener('messageerror', () => death('an answer of the worker cannot be read'));
  worker.addEventListener('error', event => {
    event.preventDefault?.();
    death(event.message ? `the worker failed: ${event.message}`
      : 'the worker cannot be loaded: its address is wrong, or the Content-Security-Policy forbids it (worker-src)');
  });
  return {
    post: value => worker.postMessage(value),
    listen: on => { message = on; },
    onDeath: on => { death = on; },
    busy: () => undefined,
    close: () => worker.terminate(),
  };
}

// Creates the worker for the option `worker`. Bundlers look for this literal form.
function startWorker(worker: Exclude<EngineChoice['worker'], false>): ClientPort {
  if (inNode() && (worker === true || worker === undefined))
    return nodePort(new URL(workerFile()));
  if (typeof Worker === 'undefined') throw new TernError('worker', 'there are no workers here');
  if (typeof worker === 'function') return webPort(worker());
  if (worker instanceof Worker) return webPort(worker);
  if (typeof worker === 'string' || worker instanceof URL) return webPort(new Worker(worker, { type: 'module' }));
  return webPort(new Worker(new URL('./worker.js', import.meta.url), { type: 'module' }));
}

// They cannot start workers, import modules later or read files synchronously, and browsers end them after half a minute.
function refuseServiceWorker(): void {
  if (!('ServiceWorkerGlobalScope' in globalThis)) return;
  throw new TernError('unsupported', 'a service worker cannot run a model: it has no workers, and the browser ends it at any time. '
    + 'Load the model in a page and send it messages; in an extension, in an offscreen document '
    + '(README of tern-engine, "Service workers and extensions")');
}

// A connection to an engine's host, in a worker if one is wanted and possible. notes: why not.
export async function connect(choice: EngineChoice, startMs = 30_000):
  Promise<{ connection: Connection; inWorker: boolean; notes: string[] }> {
  refuseServiceWorker();
  const notes: string[] = [];
  const { worker } = choice;
  if (worker && choice.gpu)
    throw new TernError('argument', 'a gpu object cannot be given to a worker: leave worker out, or set it to false');
  if (worker !== false && !choice.gpu) {
    try {
      const connection = new Connection(await ready(startWorker(worker), startMs));
      connection.watch();
      return { connection, inWorker: true, notes };
    } catch (cause) {
      const why = (cause as Error).message;
      if (worker !== undefined) throw cause instanceof TernError ? cause : new TernError('worker', why, { cause });
      notes.push(`it runs in the page's own thread: ${why}`);
    }
  }
  const [{ Host, serve }, { loadEngine }] = await Promise.all([import('./host.js'), import('./engine/index.js')]);
  const { client, host } = localPorts();
  const connection = new Connection(client);
  serve(host, new Host(loadEngine));
  return { connection, inWorker: false, notes };
}
