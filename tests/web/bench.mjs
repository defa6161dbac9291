// node tests/web/bench.mjs [-r ROUNDS] [--browser chromium|firefox] [PART...]
//
// How fast the engine is in a browser, beside the native engine on the same cores, as a table:
//
//   stories   the carried model on one thread: the relaxed and the plain module against AVX2
//   2b        the 2B shape on one and two threads (minutes; 1.5 GB)
//   webgpu    browser WebGPU against native WebGPU on the same adapter
//   first     from an empty tab to the first token, the model in storage
//
// The two engines run in turns, so that what else the machine does hits both; each figure is the median
// of the rounds. Pages are bound to the cores that the native engine gets.
import { execFile, execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cpus } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { enginePage, storiesFile } from './engine.mjs';
import { Test } from './harness.mjs';
import { rendererPids } from './memory.mjs';
import { build, stories, tern, webgpuLibrary } from './native.mjs';
import { PackagePage, text } from './package.mjs';

const rows = [];
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

// Cores for n threads, from the last on: the first ones serve what else runs.
function coresFor(n) {
  const all = cpus().length;
  return Array.from({ length: Math.min(n, all) }, (_, i) => all - 1 - i).join(',');
}

async function nativeSpeed({ file, threads, nPrompt, nText, webgpu }) {
  const where = webgpu ? ['--device', 'webgpu'] : ['--cpu-features', 'avx2', '-t', String(threads)];
  const args = [
    'bench',
    '-m',
    file,
    '-p',
    String(nPrompt),
    '-n',
    String(nText),
    '-r',
    '1',
    '--no-limits',
    '-o',
    'json',
    ...where,
  ];
  let output;
  if (webgpu) output = await tern(args, { webgpu });
  else {
    const bound = ['-c', coresFor(threads), path.join(build, 'tern'), ...args];
    output = (await promisify(execFile)('taskset', bound)).stdout;
  }
  const speed = {};
  for (const { test, tokens_per_second: perSecond } of JSON.parse(output.toString()).rows)
    speed[test === 'pp' ? 'prompt' : 'text'] = perSecond;
  return speed;
}

// A worker that keeps its engine and model, in a page bound to its cores.
async function openWorker(t, which, { model, module, threads, webgpu }) {
  const { page } = await enginePage(t, which, { webgpu });
  if (which === 'chromium' && !webgpu)
    for (const pid of await rendererPids(page.browser))
      execFileSync('taskset', ['-a', '-c', '-p', coresFor(threads), String(pid)], {
        stdio: 'ignore',
      });
  await page.run(
    async (question) => {
      self.worker = (await import('/tests/ask.js')).start('/tests/engine.js');
      await self.worker.ask(question);
    },
    { job: 'open', build: module, threads, device: webgpu ? 'webgpu' : 'wasm', ...model },
  );
  return (question) => page.run((q) => self.worker.ask(q), { job: 'speed', ...question });
}

async function compare(
  t,
  rounds,
  which,
  { name, file, threads = 1, nPrompt, nText, webgpu, ...worker },
) {
  const ask = await openWorker(t, which, { threads, webgpu, ...worker });
  const question = { nPrompt, nText };
  const native = { prompt: [], text: [] };
  const browser = { prompt: [], text: [] };
  await ask(question); // compiles
  for (let i = 0; i < rounds; i++) {
    const [a, b] = [await nativeSpeed({ file, threads, webgpu, ...question }), await ask(question)];
    for (const kind of ['prompt', 'text']) {
      if (a[kind]) native[kind].push(a[kind]);
      if (b[kind]) browser[kind].push(b[kind]);
    }
  }
  for (const kind of ['text', 'prompt'])
    if (browser[kind].length) {
      const [a, b] = [median(native[kind]), median(browser[kind])];
      const what = kind === 'text' ? 'answer' : `prompt of ${nPrompt}`;
      rows.push([name, what, a.toFixed(1), b.toFixed(1), `${((b / a) * 100).toFixed(0)}%`]);
    }
}

const large = { files: [{ name: '2b.gguf', url: '/build/2b.gguf' }], path: '2b.gguf' };
const parts = {
  async stories(t, rounds, which) {
    for (const module of ['relaxed', 'simd'])
      await compare(t, rounds, which, {
        name: `stories, ${module}, 1 thread`,
        file: stories,
        model: storiesFile,
        module,
        nPrompt: 256,
        nText: 256,
      });
  },

  async '2b'(t, rounds, which) {
    const file = path.join(build, '2b.gguf');
    if (!existsSync(file)) execFileSync(path.join(build, 'make_tiny_model'), [file, '2b']);
    for (const threads of [1, 2])
      await compare(t, Math.min(rounds, 5), which, {
        name: `2B shape, threads, ${threads} thread${threads > 1 ? 's' : ''}`,
        file,
        model: large,
        threads,
        module: 'threads',
        nPrompt: 0,
        nText: 24,
      });
  },

  async webgpu(t, rounds, which) {
    if (!existsSync(webgpuLibrary))
      return console.log('webgpu: no native library, `make webgpu-native`');
    await compare(t, Math.min(rounds, 3), which, {
      name: 'stories, WebGPU',
      file: stories,
      model: storiesFile,
      nPrompt: 16,
      nText: 8, // seconds each, on SwiftShader
      webgpu: true,
    });
  },

  async first(t, rounds, which) {
    const page = await PackagePage.open(t, which);
    await page.call('load', page.modelUrl, { text });
    const seconds = [];
    for (let i = 0; i < rounds; i++) {
      await page.reopen();
      seconds.push(await page.call('firstToken', page.modelUrl, text.prompt));
    }
    rows.push(['stories, from storage', 'first token', '', `${median(seconds).toFixed(2)} s`, '']);
  },
};

function print() {
  const all = [['model', 'tokens/s of', 'native', 'browser', 'ratio'], ...rows];
  const widths = all[0].map((_, i) => Math.max(...all.map((row) => row[i].length)));
  const line = (row) => `| ${row.map((cell, i) => cell.padEnd(widths[i])).join(' | ')} |`;
  console.log(line(all[0]));
  console.log(`|${widths.map((n) => '-'.repeat(n + 2)).join('|')}|`);
  for (const row of rows) console.log(line(row));
}

const args = process.argv.slice(2);
let rounds = 7;
let which = 'chromium';
const wanted = [];
while (args.length) {
  const arg = args.shift();
  if (arg === '-r') rounds = Number(args.shift());
  else if (arg === '--browser') which = args.shift();
  else if (parts[arg]) wanted.push(arg);
  else throw new Error(`bench: what is "${arg}"? See the head of tests/web/bench.mjs`);
}
for (const name of wanted.length ? wanted : Object.keys(parts)) {
  const t = new Test();
  try {
    await parts[name](t, rounds, which);
  } catch (e) {
    console.error(`${name}: ${e.message}`, t.consoles.join('\n'));
    process.exitCode = 1;
  }
  await t.end();
}
print();
