// node tests/web/run.mjs [-j N] [-a] [-v] [PATTERN...]
//
// Runs the tests of tests/web whose names match one of the patterns ("^text", "firefox") and none that
// begins with '!' ("!in webkit$"), N files at once (2). What was skipped, and why, comes last. -a repeats
// the only test that failed if it compares what a model says in WebKit, which computes one step in thousands
// wrong (docs/browser.md), or if it stood still in Firefox until its time was up, as one in eight runs of a
// memory's test did. So two failures of a run, or one that comes again, are ours. -v prints the tests that passed and
// their time, too.
// Environment: TERN_TEST_LONG=1 adds what takes minutes; TERN_WEB_BROWSERS=all makes a browser that
// is not installed a failure; TERN_BUILD is the build folder.
import { fork } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { runTests } from './harness.mjs';

const self = fileURLToPath(import.meta.url);
const folder = path.dirname(self);

if (process.env.TERN_WEB_TEST_FILE) {
  await import(pathToFileURL(process.env.TERN_WEB_TEST_FILE));
  await runTests(process.argv.slice(2), (result) => process.send(result));
  process.disconnect();
} else {
  process.exitCode = await main(process.argv.slice(2));
}

async function main(args) {
  let jobs = 2;
  let verbose = false;
  let again = false;
  const patterns = [];
  while (args.length) {
    const arg = args.shift();
    if (arg === '-j') jobs = Number(args.shift());
    else if (arg === '-a') again = true;
    else if (arg === '-v') verbose = true;
    else patterns.push(arg);
  }
  if (!(jobs >= 1)) throw new Error('-j wants a number of files');
  // What takes longest begins first, so that nobody waits for it alone at the end.
  const long = ['memory_test.mjs', 'webgpu_test.mjs', 'kernels_test.mjs'];
  const rank = (name) => (long.indexOf(name) + long.length + 1) % (long.length + 1);
  const files = readdirSync(folder)
    .filter((name) => name.endsWith('_test.mjs'))
    .sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const results = [];
  const next = async () => {
    while (files.length)
      await runFile(path.join(folder, files.shift()), patterns, verbose, results);
  };
  await Promise.all(Array.from({ length: jobs }, next));
  return summary(again ? await secondTry(results, verbose) : results);
}

// The results, with that of a second run in the place of a failure that may be a browser's.
async function secondTry(results, verbose) {
  const failed = results.filter((r) => r.failures.length);
  const stoodStill = ({ name, failures }) =>
    / in firefox$/.test(name) && failures.some((one) => `${one}`.includes('not done after'));
  if (failed.length !== 1 || (failed[0].computesIn !== 'webkit' && !stoodStill(failed[0])))
    return results;
  console.log('only WebKit failed, or a page in Firefox stood still: once more');
  const after = results.filter((r) => !r.failures.length);
  const [{ file, name }] = failed;
  await runFile(file, [`^${name.replace(/[^\w ]/g, '\\$&')}$`], verbose, after);
  return after;
}

// The tests of one file in a process of their own; a process that dies is a failed test.
function runFile(file, patterns, verbose, results) {
  return new Promise((done) => {
    const child = fork(self, patterns, { env: { ...process.env, TERN_WEB_TEST_FILE: file } });
    child.on('message', (result) => {
      results.push({ ...result, file });
      print(result, verbose);
    });
    child.on('exit', (code, signal) => {
      if (code !== 0) {
        const failures = [`the process ended with ${signal ?? code}`];
        results.push({ name: path.basename(file), failures, consoles: [], seconds: 0, file });
        print(results.at(-1), verbose);
      }
      done();
    });
  });
}

function print({ name, skipped, failures, consoles, seconds }, verbose) {
  const time = `${seconds.toFixed(1)} s`;
  if (failures.length) {
    console.log(`FAIL  ${name} (${time})`);
    for (const failure of failures) console.log(`    ${failure}`);
    for (const line of consoles.slice(-40)) console.log(`    page: ${line}`);
  } else if (skipped) {
    if (verbose) console.log(`skip  ${name}: ${skipped}`);
  } else if (verbose) {
    console.log(`ok    ${name} (${time})`);
  }
}

function summary(results) {
  const count = (is) => results.filter(is).length;
  const failed = count((r) => r.failures.length);
  const passed = count((r) => !r.failures.length && !r.skipped);
  const reasons = new Map();
  for (const r of results) if (r.skipped) reasons.set(r.skipped, (reasons.get(r.skipped) ?? 0) + 1);
  console.log(`${passed} passed, ${failed} failed, ${count((r) => r.skipped)} skipped`);
  for (const [why, n] of reasons) console.log(`  skipped ${n}: ${why}`);
  if (!results.length) console.log('no test has such a name');
  return failed || !results.length ? 1 : 0;
}
