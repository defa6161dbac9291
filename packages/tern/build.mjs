// Builds dist/: JavaScript by esbuild, types by tsc, the modules and shaders of `make web`. With --test it builds
// and runs the tests instead (further arguments: names of test files).
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, '../../build/web');
const dist = join(here, 'dist');
const MAX_GZIP = 45 * 1024; // 40 before images and sounds, which the worker decides to want and cannot load later (bundlers)

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
    const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-timeout=120000', ...files], { stdio: 'inherit' });
    process.exitCode = status ?? 1;
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

const [flag, ...names] = process.argv.slice(2);
await (flag === '--test' ? runTests(names) : buildPackage());
