// Builds the pages into build/web/pages (esbuild is all that it needs).
//
// usage: node web/build.mjs [OUT] [--engine FOLDER] [--model FILE.gguf]
//   OUT      default build/web/pages
//   --engine the package's dist: index.js, worker.js, the modules; copied to OUT/tern
//   --model  copied to OUT/models/stories.gguf: the model that the chat begins with
//
// Pages load the package from ../tern/index.js when they run, not bundled: three pages share one copy,
// and its worker and modules lie beside it.
import { createHash } from 'node:crypto';
import { copyFile, mkdir, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { cspMeta } from './csp.mjs';
import { drawIcons } from './icons.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(here, '../packages/tern/package.json'));

const PAGES = ['', 'chat', 'voice', 'tldr', 'diagnose']; // folders with an index.html

const engine = {
  // the package, by the place where it lies beside the pages
  name: 'engine',
  setup(build) {
    const places = { 'tern-engine': '../tern/index.js', 'tern-engine/microphone': '../tern/microphone.js' };
    build.onResolve({ filter: /^tern-engine(\/\w+)?$/ }, (args) => ({ path: places[args.path], external: true }));
  },
};

const styles = {
  // a style sheet that a script imports is a text, made small
  name: 'styles',
  setup(build) {
    build.onLoad({ filter: /widget\.css$/ }, async ({ path: file }) => {
      const { code } = await build.esbuild.transform(await readFile(file, 'utf8'), {
        loader: 'css',
        minify: true,
      });
      return { contents: code, loader: 'text' };
    });
  },
};

async function bundle(esbuild, out, options) {
  await esbuild.build({
    bundle: true,
    charset: 'utf8',
    format: 'esm',
    legalComments: 'none',
    logLevel: 'warning',
    minify: true,
    outdir: out,
    plugins: [engine, styles],
    target: ['chrome110', 'firefox115', 'safari16.4'],
    ...options,
  });
}

async function writePages(out) {
  for (const page of PAGES) {
    const html = await readFile(path.join(here, page, 'index.html'), 'utf8');
    if (!html.includes('%CSP%')) throw new Error(`web/${page}/index.html has no %CSP%`);
    await mkdir(path.join(out, page), { recursive: true });
    await writeFile(path.join(out, page, 'index.html'), html.replace('%CSP%', cspMeta));
  }
  await copyFile(path.join(here, 'manifest.webmanifest'), path.join(out, 'manifest.webmanifest'));
}

async function listFiles(folder, prefix = '') {
  const names = [];
  for (const entry of await readdir(path.join(folder, prefix), { withFileTypes: true })) {
    const name = prefix + entry.name;
    if (entry.isDirectory()) names.push(...(await listFiles(folder, name + '/')));
    else names.push(name);
  }
  return names.sort();
}

// What runs of the package: no types, no maps, no hooks for React, no memories. Names of its parts change with their
// contents, so the old ones go first.
const OF_OTHERS = ['react.js', 'memory.js', 'tern-memory.wasm'];
async function copyEngine(from, to) {
  await rm(to, { recursive: true, force: true });
  await mkdir(to, { recursive: true });
  const wanted = (await readdir(from)).filter((name) => /\.(js|wasm|json)$/.test(name) && !OF_OTHERS.includes(name));
  for (const name of ['index.js', 'worker.js']) {
    if (!wanted.includes(name)) throw new Error(`${from} has no ${name}: it is not a built package`);
  }
  for (const name of wanted) await copyFile(path.join(from, name), path.join(to, name));
}

// The service worker knows every file that the pages need without a network, and a name for this set of
// contents. Models are not among them: the package keeps those.
async function writeServiceWorker(esbuild, out) {
  const wanted = (name) =>
    /\.(html|js|css|wasm|json|svg|png|webmanifest)$/.test(name) &&
    !name.startsWith('models/') &&
    name !== 'sw.js';
  // Who makes no diagnosis need not fetch these.
  const isOfFew = (name) => /-check\.wasm$/.test(name);
  const files = (await listFiles(out)).filter(wanted);
  const hash = createHash('sha256');
  for (const name of files)
    hash
      .update(`${name}\0`)
      .update(await readFile(path.join(out, name)))
      .update('\0');
  // "chat/index.html" is asked for as "chat/".
  const urls = (names) => names.map((name) => './' + name.replace(/(^|\/)index\.html$/, '$1'));
  await bundle(esbuild, out, {
    entryPoints: { sw: path.join(here, 'sw.ts') },
    format: 'iife',
    define: {
      FILES: JSON.stringify(urls(files.filter((name) => !isOfFew(name)))),
      LATER: JSON.stringify(urls(files.filter(isOfFew))),
      VERSION: JSON.stringify(hash.digest('hex').slice(0, 12)),
    },
  });
}

export async function buildPages({ out, engineFolder, model }) {
  const esbuild = require('esbuild');
  await mkdir(out, { recursive: true });
  await bundle(esbuild, out, {
    entryPoints: {
      'shared/base': path.join(here, 'shared/base.css'),
      'shared/home': path.join(here, 'shared/home.css'),
      'chat/chat': path.join(here, 'chat/chat.css'),
      'voice/voice': path.join(here, 'voice/voice.css'),
      'diagnose/diagnose': path.join(here, 'diagnose/diagnose.css'),
      'tldr/demo': path.join(here, 'tldr/demo.css'),
    },
  });
  await bundle(esbuild, out, {
    entryPoints: {
      'shared/home': path.join(here, 'home.ts'),
      'chat/chat': path.join(here, 'chat/main.ts'),
      'voice/voice': path.join(here, 'voice/main.ts'),
      'diagnose/diagnose': path.join(here, 'diagnose/main.ts'),
      'diagnose/storage_worker': path.join(here, 'diagnose/storage_worker.ts'),
      'tldr/demo': path.join(here, 'tldr/demo.ts'),
      'tldr/tldr': path.join(here, 'tldr/tldr.ts'),
    },
  });
  await writePages(out);
  await drawIcons(path.join(out, 'icons'));
  if (engineFolder) await copyEngine(engineFolder, path.join(out, 'tern'));
  if (model) {
    await mkdir(path.join(out, 'models'), { recursive: true });
    await copyFile(model, path.join(out, 'models/stories.gguf'));
  }
  await writeServiceWorker(esbuild, out);
}

async function main() {
  const words = process.argv.slice(2);
  const options = { out: path.join(here, '../build/web/pages') };
  for (let i = 0; i < words.length; i++) {
    if (words[i] === '--engine') options.engineFolder = words[++i];
    else if (words[i] === '--model') options.model = words[++i];
    else options.out = words[i];
  }
  await buildPages(options);
  const sizes = await Promise.all(
    ['chat/chat.js', 'voice/voice.js', 'tldr/tldr.js', 'diagnose/diagnose.js'].map(
      async (name) => `${name} ${((await stat(path.join(options.out, name))).size / 1024).toFixed(0)} KB`,
    ),
  );
  console.log(`  pages ${sizes.join(', ')}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
