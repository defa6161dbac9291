// The hooks in React's own renderer, over the fake engine.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createElement } from 'react';
import TestRenderer from 'react-test-renderer';
import { useChat, useCompletion, useTern, type UseChat, type UseCompletion, type UseTern } from '../src/react.js';
import { Tern } from '../src/tern.js';

const { act, create } = TestRenderer;
Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
const error = console.error;
console.error = (...words: unknown[]) => { // of the renderer, which is announced to go away
  if (!String(words[0]).includes('react-test-renderer')) error(...words);
};
// React's act() opens a channel each time and leaves it open, which would keep Node running.
const channels: MessageChannel[] = [];
globalThis.MessageChannel = class extends MessageChannel {
  constructor() {
    super();
    channels.push(this);
  }
};
after(() => {
  console.error = error;
  for (const channel of channels) channel.port1.close();
});

const bytes = new TextEncoder().encode('GGUF');
const wait = (ms: number) => act(() => new Promise<void>(resolve => setTimeout(resolve, ms)));
async function until(holds: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !holds(); i++) await wait(10);
  assert.ok(holds());
}

// The value of a hook in a component, as it is now.
async function mount<T, P>(hook: (props: P) => T, props: P) {
  const now = {} as { value: T; renders: T[] };
  now.renders = [];
  const Component = (p: { props: P }) => {
    now.value = hook(p.props);
    now.renders.push(now.value);
    return null;
  };
  let root!: ReturnType<typeof create>;
  await act(async () => { root = create(createElement(Component, { props })); });
  return {
    now,
    update: (next: P) => act(async () => { root.update(createElement(Component, { props: next })); }),
    unmount: () => act(async () => { root.unmount(); }),
  };
}

test('useChat: loading, ready, streaming; stop and regenerate', async () => {
  const tern = await Tern.load(bytes);
  const chat = await mount((props: { tern: Tern | null }) => useChat({ ...props, system: 'be kind' }), { tern: null as Tern | null });
  const now = () => chat.now.value as UseChat;
  assert.equal(now().status, 'loading');
  await assert.rejects(async () => now().send('too early'), { code: 'argument' });
  await chat.update({ tern });
  assert.equal(now().status, 'ready');

  await act(async () => { now().setInput('hello there'); });
  await act(async () => { await now().send(); });
  assert.equal(now().input, '');
  assert.deepEqual(now().messages, [
    { role: 'user', content: 'hello there' }, { role: 'assistant', content: 'You said: hello there' }]);
  assert.equal(now().usage!.prompt_tokens, '<system>be kind<user>hello there<assistant>'.length);
  // Where both come before React draws, the last text and the end are one image.
  const drawn = [...new Set(chat.now.renders.map(each => each.status))];
  assert.deepEqual(drawn.filter(each => each !== 'streaming'), ['loading', 'ready', 'submitted']);

  await act(async () => { void now().send(`slow ${'word '.repeat(100)}`); });
  await until(() => now().messages.length === 4 && now().status === 'streaming');
  await act(async () => { now().stop(); });
  await until(() => now().status === 'ready'); // seen to fail (stays streaming) when an abort sets no status
  const stopped = now().messages[3]!.content;
  assert.ok(stopped.length > 0 && stopped.length < 400);

  await act(async () => { now().setMessages(now().messages.slice(0, 2)); });
  await act(async () => { await now().regenerate(); });
  assert.equal(now().messages.length, 2); // seen to fail when regenerate keeps the old answer

  await act(async () => { await now().send('fail memory'); });
  assert.equal(now().status, 'error');
  assert.equal(now().error!.code, 'memory');
  await act(async () => { await now().send('again'); });
  assert.equal(now().error, null);
  await chat.unmount();
  await tern.close();
});

test('a second question ends the first answer', async () => {
  const tern = await Tern.load(bytes);
  const chat = await mount(() => useChat({ tern }), {});
  await act(async () => { void chat.now.value.send(`slow ${'word '.repeat(100)}`); });
  await until(() => chat.now.value.status === 'streaming');
  await act(async () => { await chat.now.value.send('quick'); });
  assert.equal(chat.now.value.messages.at(-1)!.content, 'You said: quick');
  await wait(100);
  assert.equal(chat.now.value.messages.at(-1)!.content, 'You said: quick'); // seen to fail without `this.#stop !== stop`
  await chat.unmount();
  await tern.close();
});

test('useCompletion', async () => {
  const tern = await Tern.load(bytes);
  const run = await mount(() => useCompletion({ tern, params: { maxTokens: 3 } }), {});
  const now = () => run.now.value as UseCompletion;
  await act(async () => { now().setInput('a b c'); });
  await act(async () => { await now().complete(); });
  assert.equal(now().completion, 'You said: a');
  assert.equal(now().status, 'ready');
  assert.ok(now().timings!.predicted_per_second > 0);
  await run.unmount();
  await tern.close();
});

// Seen to fail: each drawing loaded the model again, for ever.
test('a new URL of the same address, and a new array of the same files, load nothing again', async () => {
  const address: string = 'data:application/octet-stream;base64,R0dVRg==';
  const one = await mount((at: string) => useTern(new URL(at)), address);
  const two = await mount((files: File[]) => useTern([...files]), [new Blob(['GGUF'])] as File[]);
  for (const { now } of [one, two] as { now: { value: UseTern } }[]) {
    await until(() => now.value.status === 'ready');
    const { tern } = now.value;
    await wait(50);
    assert.equal(now.value.tern, tern);
  }
  const { tern } = one.now.value;
  await one.update(`${address}#other`);
  await until(() => one.now.value.status === 'ready' && one.now.value.tern !== tern);
  for (const each of [one, two]) await each.unmount();
});

test('useTern loads and closes', async () => {
  const good = await mount((source: Uint8Array | null) => useTern(source), null as Uint8Array | null);
  const now = () => good.now.value as UseTern;
  assert.equal(now().status, 'idle');
  await good.update(bytes);
  await until(() => now().status === 'ready');
  const { tern } = now();
  assert.equal(now().progress!.phase, 'load');
  await good.unmount();
  await new Promise(resolve => setTimeout(resolve, 100));
  await assert.rejects(tern!.generate('a'), { code: 'closed' }); // seen to fail without the effect's clean-up

  const bad = await mount(() => useTern(badBytes), {});
  await until(() => bad.now.value.status === 'error');
  assert.equal(bad.now.value.error!.code, 'format');
  await bad.unmount();
});
const badBytes = new TextEncoder().encode('bad');
