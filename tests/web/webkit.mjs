// WebKitGTK through WebKitWebDriver (the W3C's WebDriver over HTTP), on an X server of its own: the
// MiniBrowser has no mode without a screen. One page a browser.
import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';

const XVFB = '/usr/bin/Xvfb';

export async function openWebKit(driver, { profile, pages }) {
  const mini = findMiniBrowser();
  if (!mini) return { missing: 'webkit is not installed: there is no MiniBrowser' };
  if (!existsSync(XVFB)) return { missing: 'webkit needs Xvfb, which is not installed' };
  const started = [];
  try {
    const display = await startX(started);
    const port = await freePort();
    started.push(
      spawn(driver, [`--port=${port}`, '--host=127.0.0.1'], {
        stdio: 'ignore',
        env: browserEnvironment(profile, display),
      }),
    );
    const session = await openSession(port, mini);
    return new WebKit(session, started, pages ?? []);
  } catch (e) {
    endAll(started);
    throw e;
  }
}

// Nothing of the profile is shared, and no screen is composed by a GPU. Root may not use the sandbox.
function browserEnvironment(profile, display) {
  return {
    ...process.env,
    DISPLAY: `:${display}`,
    HOME: profile,
    XDG_CACHE_HOME: path.join(profile, 'cache'),
    XDG_DATA_HOME: path.join(profile, 'data'),
    XDG_CONFIG_HOME: path.join(profile, 'config'),
    GDK_BACKEND: 'x11',
    WEBKIT_DISABLE_COMPOSITING_MODE: '1',
    ...(process.getuid() === 0 && { WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: '1' }),
  };
}

function findMiniBrowser() {
  for (const lib of ['/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/libexec']) {
    if (!existsSync(lib)) continue;
    for (const folder of readdirSync(lib).filter((name) => name.startsWith('webkit2gtk-4')))
      if (existsSync(path.join(lib, folder, 'MiniBrowser')))
        return path.join(lib, folder, 'MiniBrowser');
  }
  return undefined;
}

// The number of a display that nobody uses: Xvfb chooses it and writes it to file 3.
async function startX(started) {
  const x = spawn(XVFB, ['-displayfd', '3', '-screen', '0', '1280x800x24', '-nolisten', 'tcp'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  });
  started.push(x);
  let text = '';
  for await (const piece of x.stdio[3]) {
    text += piece;
    if (text.includes('\n')) return Number(text);
  }
  throw new Error('Xvfb ended before it had a display');
}

function freePort() {
  return new Promise((done, fail) => {
    const probe = createServer();
    probe.once('error', fail);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}

async function openSession(port, mini) {
  const options = { binary: mini, args: ['--automation'] };
  const body = { capabilities: { alwaysMatch: { 'webkitgtk:browserOptions': options } } };
  const base = `http://127.0.0.1:${port}/session`;
  for (let tries = 0; ; tries++) {
    try {
      const { sessionId } = await command('POST', base, body);
      return `${base}/${sessionId}`;
    } catch (e) {
      // The driver is not listening yet.
      if (tries === 3000 || e.cause?.code !== 'ECONNREFUSED') throw e;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}

async function command(method, url, body) {
  const answer = await fetch(url, {
    method,
    body: body && JSON.stringify(body),
    headers: { 'Content-Type': 'application/json' },
  });
  const { value } = await answer.json();
  if (value?.error) throw new Error(`${value.error}: ${value.message}`);
  return value;
}

function endAll(started) {
  for (const child of started.reverse()) child.kill('SIGTERM');
}

class WebKit {
  which = 'webkit';
  #session;
  #started;

  constructor(session, started, pages) {
    this.#session = session;
    this.#started = started;
    this.pages = pages;
  }

  async page() {
    const page = new WebKitPage(this.#session);
    await command('POST', `${this.#session}/timeouts`, { script: 900_000, pageLoad: 300_000 });
    this.pages.push(page);
    return page;
  }

  async close() {
    await command('DELETE', this.#session).catch(() => {});
    endAll(this.#started);
  }
}

// WebDriver has no console: what fails comes as the failure of run().
class WebKitPage {
  log = [];
  #session;

  constructor(session) {
    this.#session = session;
  }

  goto(url) {
    return command('POST', `${this.#session}/url`, { url });
  }

  reload() {
    return command('POST', `${this.#session}/refresh`, {});
  }

  async run(work, ...args) {
    const script = `
      const done = arguments[arguments.length - 1];
      (async () => (${work})(...arguments[0]))().then(
        (value) => done(JSON.stringify({ value })),
        (error) => done(JSON.stringify({ error: error + '\\n' + error?.stack })));`;
    const text = await command('POST', `${this.#session}/execute/async`, { script, args: [args] });
    const { value, error } = JSON.parse(text);
    if (error !== undefined) throw new Error(error);
    return value;
  }

  close() {}
}
