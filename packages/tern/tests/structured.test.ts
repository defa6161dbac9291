// Forms that answers may have: schemas, what is there of JSON that has only begun, answers that were cut.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import type { GenerateOutput } from '../src/api.js';
import { jsonSchemaOf, partialValue, specOf, valueOf } from '../src/chat/structured.js';

const texts = [
  '{"name": "A \\"b\\" \\u00e9\\ud83d\\ude00 \\\\u12", "n": [1, -2.5e3, true, null, {}], "in": {"": [[], [""]]}, "__proto__": 1}',
  ' [ "a" , 12 ,\n{ "b" : false } ] ', '"€\\\\"', '3.5 ',
];

// Whether a is what there may be of b before all of it has come.
function isPartOf(a: unknown, b: unknown): boolean {
  if (typeof a === 'string' && typeof b === 'string') return b.startsWith(a) && !/[\ud800-\udbff]$/.test(a);
  if (Array.isArray(a) && Array.isArray(b))
    return a.length <= b.length && a.every((e, i) => isPartOf(e, b[i]) && (i === a.length - 1 || JSON.stringify(e) === JSON.stringify(b[i])));
  if (typeof a !== 'object' || a === null || typeof b !== 'object' || b === null) return Object.is(a, b);
  return Object.keys(a).every(name => Object.hasOwn(b, name) && isPartOf((a as never)[name], (b as never)[name]));
}

// Seen to fail: with an escape's beginning kept; with half of a pair kept; with numbers that may go on; with a name
// that has no value yet.
test('every beginning of a text has a part of its value', () => {
  for (const text of texts) {
    const whole: unknown = JSON.parse(text);
    let before = -1;
    for (let n = 0; n <= text.length; n++) {
      const part = partialValue(text.slice(0, n));
      assert.ok(part === undefined || isPartOf(part, whole), `${text.slice(0, n)}: ${JSON.stringify(part)}`);
      const size = JSON.stringify(part)?.length ?? 0;
      assert.ok(size >= before, `${text.slice(0, n)}: less than before`);
      before = size;
    }
    assert.equal(JSON.stringify(partialValue(text)), JSON.stringify(whole));
  }
});

test('strings and lists are seen growing', () => {
  assert.deepEqual(partialValue('{"a": "He'), { a: 'He' });
  assert.deepEqual(partialValue('{"a": ["x", "y'), { a: ['x', 'y'] });
  assert.deepEqual(partialValue('{"a": 12'), {});
  assert.deepEqual(partialValue('{"a": 12,'), { a: 12 });
  assert.equal(partialValue(' '), undefined);
});

// Seen to fail: without closing; with values of an enum closed like schemas; with joined parts closed.
test('objects that describe themselves', () => {
  const closed = { type: 'object', properties: { b: { type: 'string' } }, required: ['b'], additionalProperties: false };
  const schema = z.object({ a: z.array(z.object({ b: z.string() })), c: z.literal(['properties']).optional() });
  const { $schema, ...described } = jsonSchemaOf(schema) as Record<string, unknown>;
  assert.equal($schema, 'https://json-schema.org/draft/2020-12/schema');
  assert.deepEqual(described, {
    type: 'object', properties: { a: { type: 'array', items: closed }, c: { type: 'string', const: 'properties' } },
    required: ['a'], additionalProperties: false,
  });
  const joined = JSON.stringify(jsonSchemaOf(z.intersection(z.union([z.object({ a: z.string() }), z.array(z.string())]), z.object({ b: z.string() }))));
  assert.ok(!joined.includes('additionalProperties'), joined);
  const loose = jsonSchemaOf(z.looseObject({ a: z.string() })) as Record<string, unknown>;
  assert.notEqual(loose['additionalProperties'], false);
  const own = { properties: { a: true } };
  assert.equal(jsonSchemaOf(own), own);
  const values = { enum: [{ type: 'object', properties: {} }] };
  const older = { toJSONSchema: () => ({ type: 'object', properties: { values } }), '~standard': schema['~standard'] };
  assert.deepEqual(jsonSchemaOf({ ...older, '~standard': { version: 1, vendor: 'x', validate: (value: unknown) => ({ value }) } } as never),
    { type: 'object', properties: { values }, additionalProperties: false });
  assert.throws(() => jsonSchemaOf({ '~standard': { version: 1, vendor: 'x', validate: value => ({ value }) } }),
    { code: 'argument', message: /z.toJSONSchema/ });
  assert.throws(() => jsonSchemaOf([] as never), { code: 'argument' });
});

test('what options ask for', () => {
  assert.equal(specOf({}), undefined);
  assert.deepEqual(specOf({ regex: /a\d/u }), { kind: 'regex', text: 'a\\d' });
  assert.deepEqual(specOf({ grammar: { lark: 'start: "a"' } }), { kind: 'lark', text: 'start: "a"' });
  assert.deepEqual(specOf({ schema: true, compact: true }), { kind: 'schema', text: 'true', compact: true });
  assert.throws(() => specOf({ regex: /a/i }), { code: 'unsupported' });
  assert.throws(() => specOf({ regex: 'a', grammar: '' }), { code: 'argument', message: /regex and grammar/ });
  assert.throws(() => specOf({ regex: 'a', compact: true }), { code: 'argument' });
});

const output = (text: string, reason: GenerateOutput['reason']): GenerateOutput => ({
  text, reason, ids: [], finishReason: 'stop', usage: { completion_tokens: 7 } as never, timings: {} as never, seed: 1, dropped: 0,
});

// Seen to fail: with a number that was cut taken for whole; without the schema object's own rules.
test('values of answers', async () => {
  assert.deepEqual(await valueOf({}, output('{"a": 1}', 'end')), { a: 1 });
  assert.deepEqual(await valueOf({}, output('{"a": 1}', 'length')), { a: 1 });
  assert.equal(await valueOf({}, output('12', 'end')), 12);
  const cut = { code: 'length', message: 'the answer was cut after 7 tokens, before its JSON was complete: maxTokens were reached' };
  for (const text of ['12', '{"a": 1', '{"a": [1]', '{"a": "}']) await assert.rejects(valueOf({}, output(text, 'length')), cut);
  await assert.rejects(valueOf({}, output('[', 'context')), { code: 'length', message: /the context was full$/ });
  const even = z.object({ when: z.string().transform(text => new Date(text)), n: z.int().refine(n => n % 2 === 0, 'is odd') });
  const { when } = await valueOf(even, output('{"when": "2020-01-01", "n": 2}', 'end')) as { when: Date };
  assert.equal(when.getUTCFullYear(), 2020);
  await assert.rejects(valueOf(even, output('{"when": "2020-01-01", "n": 3}', 'end')), { code: 'format', message: /n: is odd/ });
});
