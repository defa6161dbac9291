import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TernError } from '../src/errors.js';
import { Sessions } from '../src/sessions.js';
import { fakeModel, newSeen } from './fake-engine.js';

const ids = (text: string): number[] => Array.from(text, c => c.charCodeAt(0));

test('two conversations that take turns keep a session each', async () => {
  const seen = newSeen();
  const sessions = new Sessions(fakeModel(seen), {});
  const first = await sessions.take(ids('aaaa'));
  first.give(ids('aaaa says a'));
  const second = await sessions.take(ids('bbbb'));
  assert.notEqual(second.session, first.session); // seen to fail with #choose that takes any idle session
  second.give(ids('bbbb says b'));
  for (const [text, wanted] of [['aaaa says a, and', first], ['bbbb says b, and', second]] as const) {
    const again = await sessions.take(ids(text));
    assert.equal(again.session, wanted.session);
    again.give(ids(text));
  }
  assert.equal(seen.opened, 2);
});

test('a question that is asked again is not computed again', async () => {
  const sessions = new Sessions(fakeModel(newSeen()), {});
  const first = await sessions.take(ids('why?'));
  first.give(ids('why? because of a long answer'));
  const again = await sessions.take(ids('why?'));
  assert.equal(again.session, first.session); // seen to fail without `most < ids.length`
});

test('a conversation that was cut short stays in its session, a new one spoils the oldest', async () => {
  const seen = newSeen();
  const sessions = new Sessions(fakeModel(seen), {}, 2);
  const a = await sessions.take(ids('a'));
  a.give(ids('a'.repeat(100)));
  const b = await sessions.take(ids('b'));
  b.give(ids('b'.repeat(100)));
  const regenerated = await sessions.take(ids('a'.repeat(60)));
  assert.equal(regenerated.session, a.session);
  regenerated.give(ids('a'.repeat(90)));
  const c = await sessions.take(ids('c'));
  assert.equal(c.session, b.session); // the one not used for longest
  c.drop();
  assert.equal(seen.sessions, 1);
});

test('at most eight run, the rest wait, also in vain', async () => {
  const seen = newSeen();
  const sessions = new Sessions(fakeModel(seen), {});
  const running = await Promise.all(Array.from({ length: 8 }, () => sessions.take([])));
  const stop = new AbortController();
  const ninth = sessions.take([], stop.signal);
  const tenth = sessions.take([]);
  stop.abort();
  await assert.rejects(ninth, { code: 'aborted' });
  running[0]!.give([]);
  (await tenth).give([]); // seen to fail (it never comes) when an aborted one stays in the queue
  for (const lease of running.slice(1)) lease.give([]);
  assert.equal(seen.sessions, 4);
  sessions.close();
  assert.equal(seen.sessions, 0);
  await assert.rejects(sessions.take([]), { code: 'closed' });
});

test('idle sessions make room', async () => {
  const seen = newSeen();
  seen.memory = 2;
  const sessions = new Sessions(fakeModel(seen), {});
  (await sessions.take(ids('a'))).give(ids('aaa'));
  (await sessions.take(ids('b'))).give(ids('bbb'));
  const third = await sessions.take(ids('c')); // seen to fail without forget in #open
  assert.equal(seen.sessions, 1);
  await sessions.take(ids('d'));
  await assert.rejects(sessions.take(ids('e')), (error: TernError) => error.code === 'memory');
  third.give([]);
});

test('what idle sessions hold is bounded', async () => {
  const seen = newSeen(); // 1000 bytes a token
  const sessions = new Sessions(fakeModel(seen), {});
  const leases = await Promise.all(['a', 'b', 'c'].map(text => sessions.take(ids(text))));
  for (const each of leases) each.give(new Array(100_000).fill(1));
  assert.equal(seen.sessions, 2);
});

test('a session is for the scales of its adapters alone', async () => {
  const sessions = new Sessions(fakeModel(newSeen()), {}, 2);
  const [a, b] = [await sessions.take(ids('aaaa'), undefined, [1]), await sessions.take(ids('aaaa'), undefined, [0])];
  assert.deepEqual([a.session.loraScales, b.session.loraScales], [[1], [0]]);
  for (const lease of [a, b]) lease.give(ids('aaaa'));
  const again = await sessions.take(ids('aaaa'), undefined, [1]);
  assert.equal(again.session, a.session); // seen to fail without the filter in #choose: the one used last
  const other = await sessions.take(ids('aaaa'), undefined, [2]);
  assert.deepEqual(other.session.loraScales, [2]);
});
