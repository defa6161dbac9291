// Makes the files of the page that `tern serve` carries: apps/serve/page. They are kept in the repository,
// since the program is built without npm, and readable, so that a change of them can be read. They are what
// this makes of the sources, and nothing else: tests/web/served_test.mjs compares them.
//
// usage: node web/server/build.mjs [OUT]
import { copyFile, mkdir, readdir, rename, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { svgText } from '../icons.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(here, '../../packages/tern/package.json'));

export const FILES = ['icon.svg', 'index.html', 'page.css', 'page.js'];

export async function buildServerPage(out) {
  const esbuild = require('esbuild');
  await mkdir(out, { recursive: true });
  await esbuild.build({
    bundle: true,
    charset: 'utf8',
    entryPoints: { 'page-script': path.join(here, 'main.ts'), page: path.join(here, 'page.css') },
    format: 'esm',
    legalComments: 'none',
    logLevel: 'warning',
    outdir: out,
    target: ['chrome110', 'firefox115', 'safari16.4'],
  });
  await rename(path.join(out, 'page-script.js'), path.join(out, 'page.js'));
  await copyFile(path.join(here, 'index.html'), path.join(out, 'index.html'));
  await writeFile(path.join(out, 'icon.svg'), svgText({ rounded: true }));
  const left = (await readdir(out)).filter((name) => !FILES.includes(name));
  if (left.length) throw new Error(`${out} has other files: ${left}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  await buildServerPage(process.argv[2] ?? path.join(here, '../../apps/serve/page'));
