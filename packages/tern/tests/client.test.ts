// The front door before a worker and without one: the same calls, the same errors.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Worker as ThreadWorker } from 'node:worker_threads';
import { Connection, connect } from '../src/client.js';
import { TernError, fromPlain, plain, toTernError } from '../src/errors.js';
import { Host, PageThreads, serve } from '../src/host.js';
import type { ClientPort, FromHost, ToHost } from '../src/protocol.js';
import { localPorts } from '../src/protocol.js';
import { Tern } from '../src/tern.js';
import { toModule } from '../src/engine/names.js';
import { fakeEngine, newSeen } from './fake-engine.js';

async function local(): Promise<Connection> {
  const { client, host } = localPorts();
  const connection = new Connection(client);
  serve(host, new Host(fakeEngine(newSeen())));
  return connection;
}
const inWorker = async (): Promise<Connection> => (await connect({ worker: true })).connection;

const bytes = new TextEncoder().encode('GGUF');
const prompt = (text: string) => ({ input: { prompt: text }, params: {} });

for (const [name, open] of [['in this thread', local], ['in a worker', inWorker]] as const)
  describe(name, () => {
    let connection: Connection;
    before(async () => {
      connection = await open();
      const phases: string[] = [];
      const info = await connection.call('load', { source: bytes, options: { cache: false } }, {
        onEvent: progress => phases.push(progress.phase),
      });
      assert.equal(info.name, 'fake-model');
      assert.equal(info.context, 512);
      assert.deepEqual(info.files, [{ name: 'model.gguf', size: 4 }]);
      assert.deepEqual(phases, ['load']);
    });
    after(() => connection.close());

    test('several generations at once, each with its own pieces', async () => {
      const texts = await Promise.all(['slow a', 'slow b c', 'slow d'].map(async text => {
        let said = '';
        await connection.call('generate', prompt(text), { onEvent: event => { said += event.text; } });
        return said;
      }));
      assert.deepEqual(texts, ['You said: slow a', 'You said: slow b c', 'You said: slow d']);
    });

    test('an error keeps its code', async () => {
      for (const code of ['context', 'device', 'trap'])
        await assert.rejects(connection.call('generate', prompt(`fail ${code}`)), (error: unknown) =>
          error instanceof TernError && error.code === code && error.message === `asked to fail with ${code}`);
    });

    test('one of two is aborted', async () => {
      const stop = new AbortController();
      const long = `slow ${'x '.repeat(200)}`;
      const aborted = connection.call('generate', prompt(long), { signal: stop.signal });
      const other = connection.call('generate', prompt('slow y'));
      setTimeout(() => stop.abort(), 60);
      assert.equal((await aborted).reason, 'caller'); // seen to fail when `abort` is not passed on
      assert.equal((await other).reason, 'end');
      await assert.rejects(connection.call('generate', prompt('a'), { signal: stop.signal }), { code: 'aborted' });
    });

    // Seen to fail: the error was nobody's, which ends Node, and the call went on.
    test('a callback that throws fails its call alone', async () => {
      for (const onEvent of [() => { throw new RangeError('mine'); }, async () => { throw new RangeError('mine'); }]) {
        const failed = connection.call('generate', prompt(`slow ${'x '.repeat(200)}`), { onEvent });
        const other = connection.call('generate', prompt('slow y'));
        await assert.rejects(failed, (error: unknown) => error instanceof RangeError && error.message === 'mine');
        assert.equal((await other).reason, 'end');
      }
    });

    test('text and tokens', async () => {
      assert.deepEqual(await connection.call('tokenize', { text: 'ab' }), [97, 98]);
      assert.equal(await connection.call('detokenize', { ids: [97, 98] }), 'ab');
      assert.equal((await connection.call('chatTokens', { messages: [{ role: 'user', content: 'a' }] })).length, 18);
    });

    test('what is closed says so', async () => {
      const another = await open();
      await assert.rejects(another.call('tokenize', { text: 'a' }), { code: 'closed', message: 'no model is loaded' });
      another.close();
      await assert.rejects(another.call('tokenize', { text: 'a' }), { code: 'closed', message: 'it is closed' });
    });
  });

// Seen to fail: each stream left one, which held its text as long as the signal lived.
test('no listener stays on a signal', async () => {
  const tern = await Tern.load(bytes);
  const { signal } = new AbortController();
  let n = 0;
  const { addEventListener, removeEventListener } = EventTarget.prototype;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => { n++; addEventListener.apply(signal, args); };
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => { n--; removeEventListener.apply(signal, args); };
  for await (const _ of tern.stream('a b', { signal })); // to the end
  for await (const _ of tern.stream('slow a b c', { signal })) break;
  await tern.generate('a', { signal });
  await assert.rejects(tern.generate('fail memory', { signal }));
  await assert.rejects(async () => { for await (const _ of tern.stream('fail memory', { signal })); });
  await tern.generateObject('a', { signal, schema: true }).catch(() => undefined);
  await tern.streamObject('a', { signal, schema: true }).output.catch(() => undefined);
  await tern.chat.completions.create({ messages: [{ role: 'user', content: 'a' }] }, { signal });
  for await (const _ of await tern.chat.completions.create({ messages: [{ role: 'user', content: 'a' }], stream: true }, { signal }));
  await tern.speak('a', { signal }).stats.catch(() => undefined);
  await tern.embed('a', { signal }).catch(() => undefined);
  await new Promise(resolve => setTimeout(resolve, 50));
  assert.equal(n, 0);
  await tern.close();
});

test('roles and numbers are checked', async () => {
  const tern = await Tern.load(bytes);
  await assert.rejects(tern.chat([{ role: 'users', content: 'a' }]), { code: 'argument', message: /messages\[0\]: there is no role "users"/ });
  assert.equal((await tern.chat([{ role: 'developer', content: 'a' }, { role: 'user', content: 'b' }])).text, 'You said: b');
  await tern.close();
  assert.throws(() => toModule({ topP: NaN }), { code: 'argument', message: 'topP must be a finite number, not NaN' });
  assert.deepEqual(toModule({ topP: 0.5, seed: undefined }), { top_p: 0.5 }); // seen to fail: NaN was the default
});

test('a service worker is refused in words', async () => {
  Object.assign(globalThis, { ServiceWorkerGlobalScope: class {} });
  try {
    await assert.rejects(Tern.load(bytes), { code: 'unsupported', message: /a service worker cannot run a model.*offscreen document/ });
  } finally {
    Reflect.deleteProperty(globalThis, 'ServiceWorkerGlobalScope');
  }
});

test('a worker that crashes fails every call that is pending, and those after', async () => {
  const connection = await inWorker();
  await connection.call('load', { source: bytes, options: {} });
  const pending = ['slow a b c d e f g h', 'crash'].map(text => connection.call('generate', prompt(text)));
  for (const call of pending) // seen to fail (never settles) without onDeath
    await assert.rejects(call, { code: 'worker', message: 'the worker failed: crashed as asked' });
  await assert.rejects(connection.call('tokenize', { text: 'a' }), { code: 'worker' });
});

test('a worker that does not start is not waited for', async () => {
  const worker = new ThreadWorker('setInterval(() => {}, 1000)', { eval: true });
  const port: ClientPort = {
    post: message => worker.postMessage(message), listen: on => void worker.on('message', on), onDeath: () => undefined,
    busy: () => undefined, close: () => void worker.terminate(),
  };
  Object.assign(globalThis, { Worker: class { constructor() { return port as never; } } });
  try {
    const web = Object.assign(Object.create((globalThis as { Worker: { prototype: object } }).Worker.prototype), {
      postMessage: () => undefined, addEventListener: () => undefined, terminate: () => void worker.terminate(),
    });
    await assert.rejects(connect({ worker: web }, 50), { code: 'worker', message: 'the worker does not start' });
  } finally {
    delete (globalThis as { Worker?: unknown }).Worker;
    await worker.terminate();
  }
});

// As Chromium does with a worker from another origin, and with one that the page's policy forbids.
test('where no worker can be had the page does the work and says why; unless a worker was demanded', async () => {
  class Refusing {
    constructor() { throw new DOMException('Script at https://cdn cannot be accessed from origin', 'SecurityError'); }
  }
  Object.assign(globalThis, { Worker: Refusing, document: {} }); // no longer Node, for the package
  try {
    const { inWorker: there, notes, connection } = await connect({});
    assert.equal(there, false);
    assert.match(notes[0]!, /in the page's own thread: Script at https:\/\/cdn cannot be accessed/);
    connection.close();
    await assert.rejects(connect({ worker: true }), { code: 'worker', message: /cannot be accessed/ });
  } finally {
    delete (globalThis as { Worker?: unknown }).Worker;
    delete (globalThis as { document?: unknown }).document;
  }
  await assert.rejects(connect({ worker: true, gpu: {} as GPU }), { code: 'argument' });
});

// Seen to fail where the page leaves the threads of a closed connection, and where it does not tell why
// there is none.
test('the page starts the threads that its worker wants, ends them, and says what went wrong', async () => {
  const workers: { url: string; got: unknown[]; ended: boolean; onerror?: (e: { message: string }) => void }[] = [];
  Object.assign(globalThis, { Worker: class {
    got: unknown[] = [];
    ended = false;
    constructor(readonly url: string, { type }: { type: string }) {
      assert.equal(type, 'classic'); // as its worker is
      if (url === 'refused') throw new Error('another origin');
      workers.push(this);
    }
    postMessage(message: unknown): void { this.got.push(message); }
    terminate(): void { this.ended = true; }
  } });
  try {
    const { client, host } = localPorts(), threads = new PageThreads(host), connection = new Connection(client);
    const whys: string[] = [];
    const run = (url: string, start: unknown) => threads.start({ url, type: 'classic' }, start, why => void whys.push(why));
    serve(host, new Host(fakeEngine(newSeen()), {}, { startThread: threads.start }), threads);
    const first = run('a.js', 1);
    run('b.js', 2);
    run('refused', 3);
    await connection.call('memory', undefined).catch(() => undefined); // everything was heard
    assert.deepEqual(workers.map(({ url, got }) => [url, got]), [['a.js', [1]], ['b.js', [2]]]);
    workers[1]!.onerror!({ message: 'no such file' });
    first.terminate();
    await connection.call('memory', undefined).catch(() => undefined);
    assert.deepEqual(whys, ['another origin', 'no such file']);
    assert.deepEqual(workers.map(({ ended }) => ended), [true, false]);
    connection.close();
    assert.deepEqual(workers.map(({ ended }) => ended), [true, true]);
  } finally {
    delete (globalThis as { Worker?: unknown }).Worker;
  }
});

test('the first `ready` may be missed', async () => {
  const sent: ToHost[] = [];
  let receive!: (message: FromHost) => void;
  const worker = {
    postMessage: (message: ToHost) => {
      sent.push(message);
      if ('hello' in message) receive({ ready: true });
    },
    addEventListener: (type: string, on: (event: { data: FromHost }) => void) => {
      if (type === 'message') receive = data => on({ data });
    },
    terminate: () => undefined,
  };
  const FakeWorker = class {};
  Object.assign(globalThis, { Worker: FakeWorker });
  try {
    const { connection } = await connect({ worker: Object.assign(Object.create(FakeWorker.prototype), worker) }, 100);
    assert.deepEqual(sent[0], { hello: true });
    connection.close();
  } finally {
    delete (globalThis as { Worker?: unknown }).Worker;
  }
});

test('errors of the platform get codes', () => {
  assert.equal(toTernError(new DOMException('x', 'QuotaExceededError')).code, 'quota');
  assert.equal(toTernError(new DOMException('x', 'AbortError')).name, 'AbortError');
  assert.equal(toTernError(new TypeError('x')).message, 'TypeError: x');
  const thrown = new TernError('busy', 'b');
  const error = fromPlain(plain(thrown));
  assert.ok(error instanceof TernError && error.code === 'busy');
  assert.equal(error.stack, thrown.stack); // where it was thrown, not where it arrived
});

test('Tern, before the fake worker', async () => {
  await assert.rejects(Tern.load(new TextEncoder().encode('bad file')), { code: 'format' });
  await assert.rejects(Tern.load(42 as never), { code: 'argument' });
  const tern = await Tern.load(bytes);
  assert.equal(tern.info.worker, true);
  assert.equal(tern.device, 'cpu wasm-relaxed, 1 thread');
  const pieces: string[] = [];
  const output = await tern.generate('a b', { onText: piece => pieces.push(piece), maxTokens: 3, logprobs: true, stop: 'zz' });
  assert.equal(output.text, 'You said: a');
  assert.deepEqual(pieces, ['You', ' said:', ' a']);
  assert.equal(output.finishReason, 'length');
  assert.equal(output.logprobs!.length, 3);
  assert.equal((await tern.chat([{ role: 'user', content: 'hi' }])).text, 'You said: hi');
  assert.equal((await tern.chat.completions.create({ messages: [{ role: 'user', content: 'hi' }] }))
    .choices[0]!.message.content, 'You said: hi');
  assert.equal(await tern.countTokens('abc'), 3);
  assert.equal(await tern.countTokens([{ role: 'user', content: 'a' }]), 18);
  let text = '';
  for await (const piece of tern.stream([{ role: 'user', content: 'x y z' }])) {
    text += piece;
    if (text.endsWith('x')) break;
  }
  assert.equal(text, 'You said: x');
  const stop = AbortSignal.timeout(50);
  await assert.rejects(async () => { for await (const _ of tern.stream(`slow ${'w '.repeat(99)}`, { signal: stop })); },
    { code: 'aborted' });
  await assert.rejects(tern.embed('a'), { code: 'unsupported' });
  const items: string[] = [];
  const report = await tern.diagnose({ onItem: item => items.push(item.fact ?? item.check ?? '') });
  assert.deepEqual(items, ['verdict', 'llama']);
  assert.equal(report.ok, false);
  assert.match(report.toText(), /matmul +FAILED 0\.100 s {2}differs/);
  assert.match(report.toText(), /verdict +something is wrong/);
  assert.equal((JSON.parse(JSON.stringify(report)) as { ok: boolean }).ok, false);
  await tern.close();
  await assert.rejects(tern.generate('a'), { code: 'closed' });
  assert.equal((await Tern.diagnose()).nFailed, 1);
});
