// Headless browsers with a profile of their own: Chromium and Firefox by puppeteer, WebKitGTK by
// webkit.mjs. All give the same few functions:
//
//     const browser = await openBrowser('firefox', { profile, pages });
//     const page = await browser.page();          // its console is collected in page.log
//     await page.goto(url);
//     await page.run(async (a, b) => ..., 1, 2);  // in the page; arguments and result are JSON
//     await browser.close();                      // ends its processes, too
//
// Pages of Chromium and Firefox have puppeteer's own page as page.raw.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { openWebKit } from './webkit.mjs';

const root = path.resolve(fileURLToPath(import.meta.url), '../../..');
const programs = {
  chromium: [process.env.TERN_CHROMIUM, '/usr/bin/chromium', '/usr/bin/google-chrome'],
  firefox: [process.env.TERN_FIREFOX, '/usr/bin/firefox-esr', '/usr/bin/firefox'],
  webkit: [process.env.TERN_WEBKIT_DRIVER, '/usr/bin/WebKitWebDriver'],
};

// Options: profile (a folder that is removed by the caller), pages (an array to which every page is
// added), webgpu (Chromium: with SwiftShader's adapter; without it no WebGPU), flags, prefs, extensions (Chromium:
// their folders).
// { missing: why } where the browser is not installed.
export async function openBrowser(which, options) {
  const program = programs[which].find((file) => file && existsSync(file));
  if (!program) return { missing: `${which} is not installed` };
  if (which === 'webkit') return openWebKit(program, options);
  const puppeteer = await loadPuppeteer();
  const launch = which === 'firefox' ? firefoxOptions(options) : chromiumOptions(options);
  const raw = await puppeteer.launch({
    ...launch,
    executablePath: program,
    headless: true,
    userDataDir: options.profile,
    timeout: 300_000,
    protocolTimeout: 900_000, // tests have limits of their own
    handleSIGINT: true,
  });
  return new Browser(which, raw, options.pages ?? []);
}

async function loadPuppeteer() {
  const require = createRequire(path.join(root, 'packages/tern/package.json'));
  return (await import(pathToFileURL(require.resolve('puppeteer-core')))).default;
}

function chromiumOptions({ webgpu = false, flags = [], extensions }) {
  // Root may not use the sandbox. SwiftShader compiles pipelines for longer than the GPU process's
  // watchdog waits. Throttled timers of pages that nobody sees would slow the tests of two tabs.
  const args = [
    '--disable-gpu-watchdog',
    '--disable-background-timer-throttling',
    '--disable-renderer-backgrounding',
    ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
    ...(webgpu ? ['--enable-unsafe-webgpu'] : ['--disable-features=WebGPU']),
    ...flags,
  ];
  return { browser: 'chrome', args, ...(extensions && { enableExtensions: extensions, pipe: true }) };
}

function firefoxOptions({ prefs = {}, flags = [] }) {
  return { browser: 'firefox', args: flags, extraPrefsFirefox: prefs };
}

class Browser {
  constructor(which, raw, pages) {
    this.which = which;
    this.raw = raw;
    this.pages = pages;
  }

  async page() {
    const page = new Page(await this.raw.newPage(), this);
    this.pages.push(page);
    return page;
  }

  // A browser that does not end in time is killed, with the processes of its group.
  async close() {
    const process_ = this.raw.process();
    let timer;
    const late = new Promise((done) => (timer = setTimeout(done, 60_000, 'late')));
    const how = await Promise.race([this.raw.close().catch(() => 'late'), late]);
    clearTimeout(timer);
    if (how !== 'late' || !process_?.pid) return;
    try {
      process.kill(-process_.pid, 'SIGKILL');
    } catch {
      process_.kill('SIGKILL');
    }
  }
}

class Page {
  log = [];

  constructor(raw, browser) {
    this.raw = raw;
    this.browser = browser;
    raw.setDefaultTimeout(300_000); // what never comes is a fault; the machine may be busy
    const add = (line) => this.log.push(`${browser.which}: ${line}`.slice(0, 500));
    raw.on('console', (message) => add(`${message.type()}: ${message.text()}`));
    raw.on('pageerror', (error) => add(`uncaught: ${error?.stack ?? error}`));
    raw.on('requestfailed', (request) =>
      add(`request failed: ${request.url()}: ${request.failure()?.errorText}`),
    );
    raw.on('error', (error) => add(`the page is gone: ${error}`));
  }

  goto(url) {
    return this.raw.goto(url, { waitUntil: 'load', timeout: 300_000 });
  }

  reload() {
    return this.raw.reload({ waitUntil: 'load', timeout: 300_000 });
  }

  run(work, ...args) {
    return this.raw.evaluate(work, ...args);
  }

  async close() {
    if (!this.raw.isClosed()) await this.raw.close();
  }
}
