// The page of tern serve: streams, metrics, and texts that go with a message.
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  exportMarkdown,
  exportJson,
  importJson,
  messagesForModel,
  newConversation,
} from '../chat/history.ts';
import { readEvents } from '../server/client.ts';
import { mean, rate, readMetrics } from '../server/metrics.ts';
import { curve } from '../server/status_dialog.ts';

async function eventsOf(bytes: Uint8Array, cut: number): Promise<string[]> {
  const body = new ReadableStream<Uint8Array>({
    start(stream) {
      for (let at = 0; at < bytes.length; at += cut) stream.enqueue(bytes.slice(at, at + cut));
      stream.close();
    },
  });
  const events: string[] = [];
  for await (const data of readEvents(body)) events.push(data);
  return events;
}

// Seen to fail: with each piece of bytes decoded by itself; with the last line left out.
test('events, however their bytes are cut', async () => {
  const text = ': a comment\n\ndata: {"a":"Käse 🦊"}\n\nevent: x\ndata:b\r\n\r\ndata: [DONE]';
  for (const cut of [1, 2, 3, 7, 1000])
    assert.deepEqual(await eventsOf(new TextEncoder().encode(text), cut), ['{"a":"Käse 🦊"}', 'b', '[DONE]']);
});

// Seen to fail with a brace in a label taken for the labels' end.
test('metrics', () => {
  const before = readMetrics('# HELP a b\na{m="x}\\"y"} 3\na{m="z"} 4 1700000000\nb_sum 1.5\nb_count 3\nnone\n');
  assert.deepEqual([...before], [['a', 7], ['b_sum', 1.5], ['b_count', 3]]);
  const after = readMetrics('a 17\nb_sum 2.5\nb_count 5\n');
  const [from, to] = [{ at: 0, metrics: before }, { at: 2000, metrics: after }];
  assert.equal(rate('a', from, to), 5);
  assert.equal(mean('b', from, to), 0.5);
  assert.equal(mean('b', to, to), null);
  assert.equal(rate('a', { at: 0, metrics: after }, { at: 1000, metrics: before }), 7); // begun anew
  assert.equal(curve([0, 5]), '589.8,88.0 600.0,2.0');
});

// Seen to fail with files that an import drops.
test('texts that go with a message', () => {
  const talk = newConversation('chat');
  talk.messages = [{ role: 'user', content: 'What is it?', files: [{ name: 'a.md', text: '```\ncode\n```' }] }];
  const told = 'a.md:\n````\n```\ncode\n```\n````\n\nWhat is it?';
  assert.deepEqual(messagesForModel(talk, ''), [{ role: 'user', content: told }]);
  assert.ok(exportMarkdown(talk, '').includes(told));
  assert.deepEqual(importJson(exportJson([talk]))[0]!.messages, talk.messages);
});

// Seen to fail with images behind the text; with an import that shows an image at an address.
test('images that go with a message', () => {
  const image = 'data:image/png;base64,AAAA';
  const talk = newConversation('chat');
  talk.messages = [
    { role: 'user', content: 'What is it?', files: [{ name: 'a.png', text: '', image }, { name: 'b', text: 'c' }] },
    { role: 'assistant', content: 'A tern.' },
  ];
  const text = 'b:\n```\nc\n```\n\nWhat is it?';
  assert.deepEqual(messagesForModel({ ...talk, messages: talk.messages.slice(0, 1) }, ''), [
    { role: 'user', content: [{ type: 'image_url', image_url: { url: image } }, { type: 'text', text }] },
  ]);
  const told = exportMarkdown(talk, '');
  assert.ok(told.includes(`[a.png]\n\n${text}`) && !told.includes('base64'), told);
  assert.deepEqual(importJson(exportJson([talk]))[0]!.messages, talk.messages);
  for (const bad of ['https://example.org/a.png', 'data:image/svg+xml;base64,AAAA', 7]) {
    talk.messages[0]!.files = [{ name: 'a', text: '', image: bad as string }];
    assert.equal(importJson(exportJson([talk]))[0]!.messages[0]!.files, undefined);
  }
});
