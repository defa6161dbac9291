// A test file registers its tests:
//
//     test('downloads: a cut connection is resumed', { seconds: 30 }, async (t) => {
//       const server = await t.serve(...); const page = await (await t.browser('chromium')).page();
//       t.equal(await page.run(() => 1 + 1), 2, 'a sum');
//     });
//
// Checks go on after a failure; what throws leaves the test. A test that reaches no check, and was
// not skipped, has failed. Whatever `t` started is ended with the test, newest first. Tests of one
// file run one after another in one process, files beside each other (run.mjs). A browser without
// options of its own serves all tests of its file: their servers, and so what they store, differ.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { openBrowser } from './browsers.mjs';
import { serve } from './server.mjs';

export const root = path.resolve(fileURLToPath(import.meta.url), '../../..');
// Whether TERN_TEST_LONG asks for the cases that take minutes.
export const isLong = !['', '0'].includes(process.env.TERN_TEST_LONG ?? '');

const SLOW = 10;
const tests = [];

// seconds: what the test takes at most on an idle machine; one that hangs has failed after SLOW times as
// long. computesIn: the browser in which it compares what models say (run.mjs has a use for it). long: only
// with TERN_TEST_LONG.
export function test(name, options, run) {
  tests.push({ name, seconds: 60, long: false, ...options, run });
}

class Skip extends Error {}

export class Test {
  failures = [];
  checks = 0;
  #pages = [];
  #cleanups = [];
  #shared;

  // shared: SharedBrowsers; without them every browser is the test's own.
  constructor(shared) {
    this.#shared = shared;
  }

  check(ok, what) {
    this.checks++;
    if (!ok) this.failures.push(`${what}\n      ${callSite()}`);
    return Boolean(ok);
  }

  // Compared as JSON: got and want are numbers, strings, or arrays and objects of them.
  equal(got, want, what) {
    const [a, b] = [got, want].map((x) => JSON.stringify(x) ?? 'undefined');
    return this.check(a === b, a === b ? what : `${what}: ${difference(a, b)}`);
  }

  // run() must reject with an error whose text matches.
  async rejects(run, pattern, what) {
    let text;
    try {
      await run();
    } catch (e) {
      text = String(e.message ?? e);
    }
    this.check(text !== undefined, `${what}: did not fail`);
    if (text !== undefined) this.check(pattern.test(text), `${what}: fails with "${text}"`);
  }

  skip(why) {
    throw new Skip(why);
  }

  cleanup(end) {
    this.#cleanups.push(end);
  }

  async folder() {
    const folder = await mkdtemp(path.join(tmpdir(), 'tern-web-'));
    this.cleanup(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
    return folder;
  }

  // server.mjs has the options.
  async serve(options) {
    const server = await serve(options);
    this.cleanup(() => server.close());
    return server;
  }

  // which: 'chromium', 'firefox' or 'webkit'; skips the test where it is not installed, unless
  // TERN_WEB_BROWSERS=all says that every one must be there. With options other than webgpu (own: true
  // is one that says nothing else) the browser is new.
  async browser(which, options = {}) {
    const plain = Object.keys(options).every((name) => name === 'webgpu');
    if (this.#shared && plain && which !== 'webkit') // which begins in a second, and has one page
      return this.#take(which, Boolean(options.webgpu));
    const profile = options.profile ?? (await this.folder());
    const browser = await openBrowser(which, { ...options, profile, pages: this.#pages });
    this.#mustBeThere(browser);
    this.cleanup(() => browser.close());
    return browser;
  }

  // Of a shared browser the pages alone are the test's; after a failure nobody else gets it.
  async #take(which, webgpu) {
    const browser = await this.#shared.open(which, webgpu);
    this.#mustBeThere(browser);
    browser.pages = this.#pages;
    this.cleanup(async () => {
      if (this.failures.length) await this.#shared.giveUp(browser);
      else for (const page of this.#pages) await page.close();
    });
    return browser;
  }

  #mustBeThere({ missing }) {
    if (missing && process.env.TERN_WEB_BROWSERS === 'all') throw new Error(missing);
    if (missing) this.skip(missing);
  }

  // What the pages wrote to their consoles: printed after a failure.
  get consoles() {
    return this.#pages.flatMap((page) => page.log);
  }

  async end() {
    for (const end of this.#cleanups.reverse()) {
      try {
        await end();
      } catch (e) {
        this.failures.push(`cleaning up: ${e.stack ?? e}`);
      }
    }
  }
}

// Browsers that serve one test after another.
class SharedBrowsers {
  #all = new Map(); // by name

  async open(which, webgpu) {
    const name = `${which} ${webgpu}`;
    if (this.#all.has(name)) return this.#all.get(name);
    const profile = await mkdtemp(path.join(tmpdir(), 'tern-web-'));
    const browser = await openBrowser(which, { webgpu, profile });
    browser.profile = profile;
    this.#all.set(name, browser);
    return browser;
  }

  async giveUp(browser) {
    for (const [name, one] of this.#all) if (one === browser) this.#all.delete(name);
    await browser.close?.();
    await rm(browser.profile, { recursive: true, force: true, maxRetries: 5 });
  }

  async close() {
    for (const browser of [...this.#all.values()]) await this.giveUp(browser);
  }
}

// The line of the test file from which a check was called.
function callSite() {
  const lines = new Error().stack.split('\n').slice(2);
  return (lines.find((line) => line.includes('_test.mjs')) ?? lines[0] ?? '').trim();
}

// The message of an error, and where it came from without puppeteer's own frames.
function ownFrames(e) {
  const lines = (e.stack ?? String(e)).split('\n');
  return lines
    .filter((line) => !/node_modules|node:internal|harness\.mjs|run\.mjs/.test(line))
    .join('\n    ');
}

function difference(a, b) {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  const from = Math.max(0, at - 40);
  const to = at + 160;
  const piece = (s) => (from ? '…' : '') + s.slice(from, to) + (s.length > to ? '…' : '');
  return `${piece(a)} instead of ${piece(b)} (from character ${at} on)`;
}

async function runOne({ name, seconds, long, computesIn, run }, shared) {
  const t = new Test(shared);
  const began = performance.now();
  let skipped;
  if (long && !isLong) skipped = 'TERN_TEST_LONG is not set: takes minutes';
  if (!skipped) {
    let timer;
    const late = new Promise((_, fail) => {
      timer = setTimeout(() => fail(new Error(`not done after ${SLOW * seconds} s`)), SLOW * seconds * 1000);
    });
    const running = run(t);
    try {
      await Promise.race([running, late]);
      if (!t.checks) t.failures.push('has checked nothing');
    } catch (e) {
      if (e instanceof Skip) skipped = e.message;
      else t.failures.push(ownFrames(e));
    }
    clearTimeout(timer);
    running.catch(() => {}); // it fails once more when its browser is ended
    await t.end();
  }
  return {
    name,
    computesIn,
    skipped,
    failures: t.failures,
    consoles: t.failures.length ? t.consoles : [],
    seconds: (performance.now() - began) / 1000,
  };
}

// Runs the registered tests whose names match one of the patterns, and tells `report` each result.
export async function runTests(patterns, report) {
  const isOut = (pattern) => pattern.startsWith('!');
  const wanted = patterns.filter((pattern) => !isOut(pattern)).map((pattern) => new RegExp(pattern));
  const leftOut = patterns.filter(isOut).map((pattern) => new RegExp(pattern.slice(1)));
  const shared = new SharedBrowsers();
  for (const one of tests)
    if (
      (!wanted.length || wanted.some((pattern) => pattern.test(one.name))) &&
      !leftOut.some((pattern) => pattern.test(one.name))
    )
      report(await runOne(one, shared));
  await shared.close();
}
