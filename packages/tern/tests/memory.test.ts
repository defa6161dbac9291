// Memories as the package builds them, against `tern memory`: the same tables with the same bytes, files that either
// opens, the same answers. Needs `make` and `make web`; without them it is skipped.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import type * as Package from '../src/index.js';
import type * as Memory from '../src/memory/index.js';

declare const REPOSITORY: string;
const dist = join(REPOSITORY, 'packages/tern/dist');
const native = join(REPOSITORY, 'build/tern');
const embedder = join(REPOSITORY, 'models/embed.gguf');
const missing = [join(dist, 'memory.js'), join(dist, 'tern-memory.wasm'), native].filter(file => !existsSync(file));
const skip = missing.length > 0 ? `there is no ${missing.join(', ')}` : false;

const load = async <T>(name: string): Promise<T> => await import(pathToFileURL(join(dist, name)).href) as T;
let MemoryStore: typeof Memory.MemoryStore;
let model: Package.Tern;
let folder: string;

const notes = `# Garden

The spare key is under the third flowerpot. Ask ann@example.com if it is gone.

## Roses

No water in the evening. ${'They want sun, and they get it from ten to four. '.repeat(6)}

## Tools

The saw hangs behind the door; its blade was sharpened in March. Der Schlüssel für den Schuppen liegt im Café.
`;
const code = `int add(int a, int b) {\n    return a + b;\n}\n\n${'int more(void);\n'.repeat(30)}`;
const texts: [string, string, string][] = [
  ['garden.md', notes, '{"author":"Ann","year":2026,"card":"4111 1111 1111 1111"}'], ['add.c', code, '{}'],
  ['diary', 'Tea at four with Bert. The boat needs paint.', '{"author":"Bert","year":2025}'],
];
const chunkTokens = 40;

function run(words: string[], input = ''): string {
  return execFileSync(native, ['memory', ...words], { encoding: 'utf8', input, stdio: ['pipe', 'pipe', 'ignore'] });
}
// A memory of `tern memory` with the texts: its folder.
function nativeMemory(name: string, ...more: string[]): string {
  const at = join(folder, name);
  for (const [source, text, metadata] of texts)
    run(['add', at, '--text', text, '--source', source, '--metadata', metadata, '--chunk-tokens', String(chunkTokens), ...more]);
  return at;
}
async function ownMemory(options: Memory.MemoryOptions = {}): Promise<Memory.MemoryStore> {
  const store = await MemoryStore.open(options);
  for (const [source, text, metadata] of texts)
    await store.add(text, { source, metadata: JSON.parse(metadata) as Record<string, unknown>, chunkTokens });
  return store;
}
// What is in a file, without times; blobs by their bytes.
function tables(file: string): unknown {
  return JSON.parse(execFileSync('python3', ['-c', `
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
show = lambda v: v.hex() if isinstance(v, bytes) else v
ask = lambda sql: [[show(v) for v in row] for row in db.execute(sql)]
print(json.dumps({
  'schema': ask("SELECT type, name, sql FROM sqlite_master ORDER BY name"), 'version': ask("PRAGMA user_version"),
  'application': ask("PRAGMA application_id"), 'meta': ask("SELECT * FROM meta WHERE key != 'model path' ORDER BY key"),
  'record': ask("SELECT id, source, metadata, digest FROM record"), 'chunk': ask("SELECT * FROM chunk"),
  'code': ask("SELECT * FROM code"), 'vector': ask("SELECT * FROM vector"),
  'words': ask("SELECT rowid FROM words WHERE words MATCH 'schlussel OR sharpen'"), 'whole': ask("PRAGMA integrity_check"),
}))`, file], { encoding: 'utf8', maxBuffer: 64 << 20 }));
}
const fileOf = async (store: Memory.MemoryStore, name: string): Promise<string> => {
  mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, name, 'memory.sqlite'), await store.file());
  return join(folder, name);
};

before(async () => {
  if (skip) return;
  folder = mkdtempSync(join(tmpdir(), 'tern-'));
  ({ MemoryStore } = await load<typeof Memory>('memory.js'));
  model = await (await load<typeof Package>('index.js')).Tern.load(embedder, { device: 'wasm' });
});
after(async () => {
  if (skip) return;
  await model.close();
  rmSync(folder, { recursive: true });
});

// Seen to fail: with counts guessed and never asked; with vectors of one round too early; with a text bound as a blob.
test('the same texts make the same tables, to the byte', { skip }, async () => {
  for (const [name, options, more] of [['words', {}, []], ['vectors', { model }, ['-m', embedder]]] as const) {
    const store = await ownMemory(options);
    const own = tables(join(await fileOf(store, `own-${name}`), 'memory.sqlite'));
    const wanted = tables(join(nativeMemory(`native-${name}`, ...more), 'memory.sqlite'));
    assert.deepEqual(own, wanted);
    store.close();
  }
});

// Seen to fail: with the log's mark left in a file's header; with hits in the order of their ids.
test('either opens what the other has made, and both answer alike', { skip }, async () => {
  const made = nativeMemory('made', '-m', embedder);
  const store = await MemoryStore.open({ model, file: new Uint8Array(readFileSync(join(made, 'memory.sqlite'))) });
  const again = await fileOf(store, 'again');
  const questions: [string, Memory.RecallOptions, string[]][] = [
    ['where is the key', {}, []], ['sharpened saw', { search: 'words' }, ['--search', 'words']],
    ['a boat', { search: 'vectors', limit: 3 }, ['--search', 'vectors', '-n', '3']],
    ['tea', { where: ['author=Bert', 'year<2026'] }, ['--where', 'author=Bert', '--where', 'year<2026']],
    ['key', { maxTokens: 50, exact: true }, ['--max-tokens', '50', '--exact']],
  ];
  for (const [question, options, words] of questions) {
    const { hits } = await store.recall(question, options);
    assert.ok(hits.length > 0, question);
    for (const at of [made, again]) {
      const wanted = run(['recall', at, question, '--json', '-m', embedder, ...words]).trim().split('\n').map(line => JSON.parse(line) as Record<string, unknown>);
      assert.deepEqual(hits.map(h => [h.text, h.source, h.heading, h.metadata, Math.fround(h.score)]),
        wanted.map(h => [h['text'], h['source'] ?? '', h['heading'] ?? '', h['metadata'], Math.fround(h['score'] as number)]), question);
      assert.deepEqual(hits.map(h => h.similarity && Math.fround(h.similarity)),
        wanted.map(h => h['similarity'] && Math.fround(h['similarity'] as number)), question);
    }
  }
  assert.equal(await store.export(), run(['export', made]));
  assert.deepEqual((await store.list('source^=g')).map(r => r.source), ['garden.md']);
  const other = { ...model, info: model.info, tokenize: model.tokenize.bind(model),
    embed: async (input: string | readonly string[]) => (input as string[]).map((_, i) => new Float32Array(model.info.embedding.nDims).fill(i - 1)) };
  const file = await store.file();
  await assert.rejects(MemoryStore.open({ model: other as never, file }), { code: 'argument', message: /its vectors were made by/ });
  store.close();
});

// Seen to fail: with transactions kept whose vectors were not known; with secrets kept; with a digest of the machine's own sizes.
test('adding, forgetting, importing', { skip }, async () => {
  const store = await MemoryStore.open({ model });
  const added = await store.add(notes, { source: 'a.md', replace: true, created: new Date('2026-01-02T03:04:05Z') });
  assert.deepEqual([added.wasThere, added.nRedacted], [false, 1]);
  assert.ok((await store.show(added.id)).text!.includes('[redacted email]'));
  assert.equal((await store.show(added.id)).created.toISOString(), '2026-01-02T03:04:05.000Z');
  assert.equal((await store.add(notes, { source: 'a.md', replace: true })).wasThere, true);
  assert.equal((await store.info()).nRecords, 1);
  const lines = Array.from({ length: 130 }, (_, i) => JSON.stringify({ text: `note ${i} of many`, metadata: { i, nested_name: { a_b: 1 } } })).join('\n');
  await assert.rejects(store.import(`${lines}\n{"no": "text"}`), { code: 'format', message: /^line 131: / });
  assert.equal((await store.info()).nRecords, 1);
  assert.equal(await store.import(lines), 130);
  assert.equal((await store.info()).nRecords, 131);
  assert.deepEqual((await store.list('i=7'))[0]!.metadata, { i: 7, nested_name: { a_b: 1 } });
  assert.equal(await store.forget({ where: 'i>=10' }), 120);
  assert.equal(await store.forget(added.id), 1);
  await assert.rejects(store.forget(added.id), { code: 'argument', message: /there is no record/ });
  await assert.rejects(store.forget({ where: [] }), { code: 'argument', message: /everything would be forgotten/ });
  await store.compact();
  assert.equal((await store.info()).nRecords, 10);
  assert.ok((await store.rules()).some(({ name }) => name === 'email'));
  const several = await Promise.all(['one', 'two', 'three'].map(text => store.add(text)));
  assert.equal(new Set(several.map(({ id }) => id)).size, 3);
  store.close();
});

test('what is wrong is said in words', { skip }, async () => {
  await assert.rejects(MemoryStore.open({ storage: 'opfs' }), { code: 'unsupported', message: /needs a worker/ });
  await assert.rejects(MemoryStore.open({ file: new TextEncoder().encode('no database at all'.repeat(99)) }), { code: 'format' });
  const store = await MemoryStore.open();
  await assert.rejects(store.add(' \n '), { code: 'argument', message: /the text is empty/ });
  await assert.rejects(store.list('author'), { code: 'argument', message: /expected KEY=VALUE/ });
  await assert.rejects(store.recall('a', { search: 'vectors' }), { code: 'argument', message: /needs the model/ });
  await assert.rejects(store.add('a', { patterns: ['('] }), { code: 'argument', message: /is wrong at byte/ });
  assert.equal((await store.info()).nRecords, 0);
  store.close();
});
