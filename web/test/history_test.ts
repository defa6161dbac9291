// Conversations: titles, what the model is given, edits, export and what a hostile import may do.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  Conversation,
  dropAnswer,
  editLast,
  exportJson,
  exportMarkdown,
  holds,
  importJson,
  isEmpty,
  messagesForModel,
  newConversation,
  readStored,
  splitThought,
  titleOf,
} from '../chat/history.ts';

function talk(...turns: string[]): Conversation {
  const made = newConversation('chat', 1000);
  made.messages = turns.map((content, i) => ({ role: i % 2 ? 'assistant' : 'user', content }));
  return made;
}

// Seen to fail with the cut at a fixed length in UTF-16 (an emoji cut in two), and without `named`.
test('titles', () => {
  assert.equal(titleOf(talk()), 'New chat');
  assert.equal(titleOf(talk('  # Tell me\n a *story* ')), 'Tell me a story');
  assert.equal(titleOf(talk('word '.repeat(30))), 'word word word word word word word word word…');
  assert.equal(titleOf(talk('🐦'.repeat(60))), '🐦'.repeat(48) + '…');
  const named = talk('a');
  Object.assign(named, { title: 'Mine', named: true });
  assert.equal(titleOf(named), 'Mine');
  const text = newConversation('text');
  assert.equal(isEmpty(text), true);
  text.text = 'Once upon a time';
  assert.equal(titleOf(text), 'Once upon a time');
  assert.equal(isEmpty(text), false);
});

// Seen to fail with thoughts left in, with empty answers left in, and with the system prompt untrimmed.
test('what the model is given', () => {
  assert.deepEqual(messagesForModel(talk('a', '<think>\nhm\n</think>\n\nb', 'c', ''), ' be kind '), [
    { role: 'system', content: 'be kind' },
    { role: 'user', content: 'a' },
    { role: 'assistant', content: 'b' },
    { role: 'user', content: 'c' },
  ]);
  assert.deepEqual(messagesForModel(talk('a', '', 'b'), ''), [
    { role: 'user', content: 'a' },
    { role: 'user', content: 'b' },
  ]);
  assert.deepEqual(splitThought('<think>still'), { thought: 'still', answer: '', open: true });
  assert.deepEqual(splitThought('say <think> aloud'), {
    thought: '',
    answer: 'say <think> aloud',
    open: false,
  });
});

test('editing and answering again', () => {
  const made = talk('a', 'b', 'c', 'd');
  assert.equal(editLast(made, 'C'), true);
  assert.deepEqual(
    made.messages.map((message) => message.content),
    ['a', 'b', 'C'],
  );
  made.messages.push({ role: 'assistant', content: 'half', end: 'stopped' });
  assert.equal(dropAnswer(made), true);
  assert.deepEqual(made.messages.at(-1), { role: 'user', content: 'C' });
  assert.equal(dropAnswer(talk()), false);
  assert.equal(editLast(talk(), 'x'), false);
});

test('export', () => {
  const made = talk('Show code', '<think>x</think>```js\n1\n```');
  const text = exportMarkdown(made, 'Use ```` fences');
  assert.match(
    text,
    /^# Show code\n\n1970-01-01 00:00 UTC\n\n## System\n\n`````\nUse ```` fences\n`````\n\n## You\n\nShow code\n\n## Model\n\n```js\n1\n```\n$/,
  );
  const back = importJson(exportJson([made, newConversation('text')]));
  assert.deepEqual(back[0]!.messages, made.messages);
  assert.equal(back[0]!.created, 1000);
  assert.notEqual(back[0]!.id, made.id); // it does not replace the one that is there
  assert.equal(back[1]!.kind, 'text');
});

// Seen to fail with members taken over as they are.
test('import takes nothing that is not a conversation', () => {
  for (const bad of [
    '',
    '{',
    'null',
    '[]',
    '{"format":"other","conversations":[]}',
    '{"format":"tern-chat","conversations":{}}',
  ]) {
    assert.throws(() => importJson(bad), /The file/, bad);
  }
  const hostile = {
    format: 'tern-chat',
    conversations: [
      null,
      1,
      'x',
      {
        id: '__proto__',
        kind: 'evil',
        title: { a: 1 },
        created: 1e300,
        updated: '<b>',
        named: 'yes',
        extra: 1,
        pieces: [-1, 2, 1e9, 'x'],
        text: 'abc',
        messages: [
          null,
          { role: 'system', content: 'x' },
          { role: 'user', content: 5 },
          { role: 'user', content: 'ok', stats: { device: '<b>' }, onclick: 1 },
        ],
      },
    ],
  };
  const back = importJson(JSON.stringify(hostile));
  assert.equal(back.length, 4);
  const last = back[3]!;
  assert.deepEqual(
    [last.kind, last.title, last.named, last.pieces, last.messages],
    ['chat', '', false, [2], [{ role: 'user', content: 'ok' }]],
  );
  assert.ok(Number.isFinite(new Date(last.created).getTime()) && Number.isFinite(last.updated));
  assert.equal('extra' in last, false);
  assert.notEqual(last.id, '__proto__');
});

// Seen to fail with a comparison of lengths alone.
test('which of two copies says all that the other says', () => {
  const cases: [string[], string[], boolean][] = [
    [['a'], ['a'], true],
    [['a', 'b'], ['a'], true],
    [['a'], ['a', 'b'], false],
    [['a', 'long answer'], ['a', 'long an'], true], // it has grown
    [['a', 'long answer', 'c'], ['a', 'long an'], true],
    [['a', 'other', 'c'], ['a', 'long', 'c'], false],
    [['a longer'], ['a'], false], // questions do not grow
  ];
  for (const [one, other, wanted] of cases) assert.equal(holds(talk(...one), talk(...other)), wanted, `${one} ${other}`);
  const text = (words: string) => ({ ...newConversation('text'), text: words });
  assert.equal(holds(text('Once upon'), text('Once')), true);
  assert.equal(holds(text('Once'), text('One')), false);
  assert.equal(holds(text(''), talk()), false);
});

test('what an older page, or something else, has stored', () => {
  const messages = [{ role: 'user', content: 'a' }, { role: 'robot', content: 'b' }, null, { role: 'user' }];
  const read = readStored({ id: 'x', messages, updated: 'soon', revision: NaN });
  assert.deepEqual([read.id, read.messages.length, read.updated, read.revision, read.writing], ['x', 1, 0, 0, false]);
});
