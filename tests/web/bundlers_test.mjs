// The package as an application's bundler leaves it: the worker, the modules and the threads are found
// under the names that Vite and webpack give them. npm fetches both; without it the tests are skipped.
import { execFile } from 'node:child_process';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { webRoots } from './engine.mjs';
import { isLong, root, test } from './harness.mjs';
import { nativeText, text } from './package.mjs';

const run = promisify(execFile);
const page = `
  import { Tern } from 'tern-engine';
  window.ask = async (options, text) => {
    const tern = await Tern.load('/models/stories.gguf', options);
    const { text: answer } = await tern.generate(text.prompt, { maxTokens: text.maxTokens, temperature: 0 });
    const { worker, build, notes } = tern.info;
    await tern.close();
    return { text: answer, worker, build, notes };
  };`;
const html = (script) => `<!doctype html><title>bundled</title>${script}`;

const bundlers = {
  vite: {
    packages: ['vite@8'],
    files: {
      'index.html': html('<script type="module" src="/main.js"></script>'),
      'vite.config.js': "export default { build: { target: 'esnext' } };",
    },
    args: ['vite', 'build'],
  },
  webpack: {
    packages: ['webpack@5', 'webpack-cli@7'],
    files: {
      'webpack.config.mjs': "export default { mode: 'production', entry: './main.js' };",
      'dist/index.html': html('<script src="/main.js"></script>'),
    },
    args: ['webpack'],
  },
};

// The folder of a small application, built; undefined where npm gives nothing.
async function application(t, { packages, files, args }) {
  const folder = await t.folder();
  const npm = (...words) => run('npm', [...words, '--no-audit', '--no-fund'], { cwd: folder });
  await writeFile(path.join(folder, 'package.json'), '{ "private": true, "type": "module" }');
  try {
    await npm('install', ...packages);
  } catch (e) {
    return t.skip(`npm fetches no ${packages[0]}: ${String(e.stderr ?? e).split('\n')[0]}`);
  }
  const from = path.join(root, 'packages/tern');
  const installed = path.join(folder, 'node_modules/tern-engine'); // a copy, as npm makes one
  await mkdir(installed);
  for (const part of ['package.json', ...JSON.parse(await readFile(`${from}/package.json`)).files])
    await cp(path.join(from, part), path.join(installed, part), { recursive: true });
  for (const [name, words] of Object.entries({ 'main.js': page, ...files })) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
    await writeFile(path.join(folder, name), words);
  }
  await run('npx', args, { cwd: folder, maxBuffer: 64 << 20 });
  return path.join(folder, 'dist');
}

// Seen to fail with webpack when the script of threads was a file of its own, asked for by `new URL`, and
// with Vite's one thread then.
for (const [name, bundler] of Object.entries(bundlers))
  test(`bundlers: ${name} finds the worker and its threads`, { seconds: 180 }, async (t) => {
    const dist = await application(t, bundler);
    const server = await t.serve({ roots: { ...webRoots, '/': dist } });
    for (const which of isLong ? ['chromium', 'firefox', 'webkit'] : ['chromium'])
      for (const options of [{ device: 'wasm' }, { device: 'wasm', worker: false }]) {
        const browser = await (await t.browser(which)).page();
        await browser.goto(`${server.url}/index.html`);
        const got = await browser.run((options, text) => window.ask(options, text), options, text);
        const where = `${which} ${JSON.stringify(options)}`;
        t.equal(got.text, await nativeText(), `${where}: text`);
        t.equal(got.worker, options.worker ?? true, `${where}: in a worker`);
        const build = which === 'webkit' ? 'simd' : got.worker ? 'threads' : 'relaxed';
        t.equal(got.build, build, `${where}: ${got.notes}`);
      }
  });
