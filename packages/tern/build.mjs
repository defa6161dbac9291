// Builds dist/: JavaScript by esbuild, types by tsc, the modules and shaders of `make web`; and beside it what else
// npm is to publish. With --test it builds and runs the tests instead (further arguments: names of test files). npm
// itself calls it with --pack and --unpack, before and after it makes an archive.
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, '../../build/web');
const dist = join(here, 'dist');
const MAX_GZIP = 48 * 1024; // images and sounds, too, which the worker decides to want and cannot load later (bundlers)

const shared = {
  absWorkingDir: here,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  external: ['react', '@sqlite.org/sqlite-wasm'],
  logLevel: 'warning',
};

const tsc = (...args) =>
  execFileSync(process.execPath, [join(here, 'node_modules/typescript/bin/tsc'), ...args], { cwd: here, stdio: 'inherit' });

async function buildPackage() {
  rmSync(dist, { recursive: true, force: true });
  tsc('--noEmit', '-p', 'tests');
  tsc('-p', '.', '--emitDeclarationOnly', '--outDir', 'dist/types');
  // As strict users read them, who have no other types installed.
  tsc('--ignoreConfig', '--noEmit', '--strict', '--exactOptionalPropertyTypes', '--skipLibCheck', 'false', '--types', '', '--target', 'es2022',
    '--lib', 'es2022,dom', '--module', 'nodenext', ...['index', 'react', 'worker', 'engine/index', 'memory/index', 'microphone/index'].map(name => `dist/types/${name}.d.ts`));
  const entry = { index: 'src/index.ts', worker: 'src/worker.ts', react: 'src/react.ts', engine: 'src/engine/index.ts',
    memory: 'src/memory/index.ts', microphone: 'src/microphone/index.ts' };
  await build({
    ...shared, entryPoints: entry, outdir: 'dist', splitting: true, minify: true, sourcemap: true,
    chunkNames: 'chunk-[hash]',
  });
  // Worklets load one file.
  await build({ ...shared, entryPoints: { 'microphone-worklet': 'src/microphone/worklet.ts' }, outdir: 'dist', minify: true, sourcemap: true });
  const names = ['tern', 'tern-relaxed', 'tern-threads', 'tern-check',
    'tern-relaxed-check', 'tern-memory'].map(name => `${name}.wasm`);
  for (const name of [...names, 'tern-shaders.json']) {
    const file = join(modules, name);
    if (existsSync(file)) copyFileSync(file, join(dist, name));
    else console.warn(`package: ${file} is missing; \`make web\` builds it`);
  }
  checkSize();
  writePapers();
}

// The licences of what the modules contain, and the pages of docs that the README names. The archive has no other
// files of the repository: links to them become plain words.
const LICENCES = [
  ['PCRE2', join(modules, 'deps/pcre2/LICENCE')],
  ['Tables of Unicode, made with utf8proc', join(modules, 'deps/utf8proc/LICENSE.md')],
  ['wasi-libc', '/usr/share/doc/wasi-libc/copyright'],
  ["LLVM's compiler-rt", '/usr/share/doc/libclang-rt-19-dev-wasm32/copyright'],
];
function writePapers() {
  copyFileSync(join(here, '../../LICENSE'), join(here, 'LICENSE'));
  const texts = LICENCES.filter(([, file]) => existsSync(file)).map(([name, file]) =>
    `${'='.repeat(100)}\n${name}\n${'='.repeat(100)}\n\n${readFileSync(file, 'utf8').trim()}\n`);
  writeFileSync(join(here, 'NOTICES'), `The .wasm files of this package contain parts of these:\n\n${texts.join('\n')}`);
  const readme = readFileSync(join(here, 'README.md'), 'utf8');
  const names = [...new Set([...readme.matchAll(/\]\((?:\.\.\/\.\.\/)?docs\/([\w-]+\.md)/g)].map(found => found[1]))];
  rmSync(join(here, 'docs'), { recursive: true, force: true });
  mkdirSync(join(here, 'docs'));
  for (const name of names) {
    const text = readFileSync(join(here, '../../docs', name), 'utf8').replaceAll('](../packages/tern/README.md', '](../README.md');
    writeFileSync(join(here, 'docs', name), text.replace(/!?\[([^\]]*)\]\(([^)\s]+)\)/g, (link, words, to) =>
      /^(https?:|#|\.\.\/README\.md)/.test(to) || names.includes(to.replace(/#.*/, '')) ? link : words));
  }
}

// In the archive docs/ is beside the README.
function link(from, to) {
  const file = join(here, 'README.md');
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll(`](${from}`, `](${to}`));
}

// What a page loads at most: every JavaScript file of the package, but for memories and the microphone, which few want.
const OF_FEW = ['memory.js', 'microphone.js', 'microphone-worklet.js'];
function checkSize() {
  const sizes = readdirSync(dist).filter(name => name.endsWith('.js') && !OF_FEW.includes(name)).map(name => {
    const bytes = readFileSync(join(dist, name));
    return { name, bytes: bytes.length, gzip: gzipSync(bytes, { level: 9 }).length };
  });
  const total = sizes.reduce((n, { gzip }) => n + gzip, 0);
  for (const { name, bytes, gzip } of sizes) console.log(`${name.padEnd(22)} ${bytes} bytes, ${gzip} gzip`);
  console.log(`JavaScript in all: ${total} bytes gzip, at most ${MAX_GZIP}`);
  if (total > MAX_GZIP) throw new Error(`package: the JavaScript has ${total} bytes gzip, more than ${MAX_GZIP}`);
}

async function runTests(names) {
  tsc('--noEmit', '-p', 'tests');
  const out = mkdtempSync(join(tmpdir(), 'tern-package-'));
  const tests = readdirSync(join(here, 'tests')).filter(name => name.endsWith('.test.ts'))
    .filter(name => names.length === 0 || names.some(wanted => name.includes(wanted)));
  try {
    await build({
      ...shared, platform: 'node', target: 'node20', outdir: out, external: [],
      entryPoints: [
        ...tests.map(name => ({ in: `tests/${name}`, out: name.slice(0, -3) })),
        { in: 'tests/fake-worker.ts', out: 'worker' }, // where the package looks for its own
      ],
      sourcemap: 'inline',
      define: { REPOSITORY: JSON.stringify(join(here, '../..')) },
      banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
    });
    writeFileSync(join(out, 'package.json'), '{ "type": "module" }');
    const files = tests.map(name => join(out, name.replace(/\.ts$/, '.js')));
    const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-timeout=600000', ...files], { stdio: 'inherit' });
    process.exitCode = status ?? 1;
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

const [flag, ...names] = process.argv.slice(2);
if (flag === '--pack') link('../../docs/', 'docs/');
else if (flag === '--unpack') link('docs/', '../../docs/');
else await (flag === '--test' ? runTests(names) : buildPackage());
