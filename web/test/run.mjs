// Runs the pages' unit tests: TypeScript is built by esbuild first, since Node 20 does not read it.
// usage: node web/test/run.mjs [NAME...]
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(here, '../../packages/tern/package.json'));
const wanted = process.argv.slice(2);
const names = readdirSync(here).filter(
  (name) => /_test\.(ts|mjs)$/.test(name) && (!wanted.length || wanted.some((w) => name.includes(w))),
);
const out = mkdtempSync(path.join(os.tmpdir(), 'tern-pages-'));
try {
  require('esbuild').buildSync({
    bundle: true,
    entryPoints: names.filter((name) => name.endsWith('.ts')).map((name) => path.join(here, name)),
    format: 'esm',
    logLevel: 'warning',
    outExtension: { '.js': '.mjs' },
    outdir: out,
    platform: 'node',
    target: 'node20',
  });
  const files = names.map((name) =>
    name.endsWith('.ts') ? path.join(out, name.replace(/ts$/, 'mjs')) : path.join(here, name),
  );
  process.exitCode =
    spawnSync(process.execPath, ['--test', '--test-reporter=spec', ...files], {
      stdio: 'inherit',
      env: { ...process.env, TERN_WEB: path.join(here, '..') },
    }).status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}
