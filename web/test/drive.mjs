// Drives the built pages in headless chromium as a person would, with the real engine and the carried model.
// usage: node web/test/drive.mjs [FOLDER] [NAME...]     (FOLDER: default build/web/pages)
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createServer } from '../serve.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(here, '../../packages/tern/package.json'));
const { default: puppeteer } = await import(require.resolve('puppeteer-core'));
const [first, ...names] = process.argv.slice(2);
const root = first ?? path.join(here, '../../build/web/pages');
const scratch = await mkdtemp(path.join(os.tmpdir(), 'tern-drive-'));
const WAIT = { timeout: Number(process.env.WAIT ?? 30000), polling: 100 };

async function serve(options) {
  const server = await createServer({ root, ...options });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    server,
    url: `http://localhost:${server.address().port}/`,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
const text = (page, selector) => page.$eval(selector, (element) => element.textContent);
const ready = (page) =>
  page.waitForFunction(
    () => document.querySelector('#device') && !document.querySelector('#device').hidden,
    WAIT,
  );
const finished = (page, n) =>
  page.waitForFunction(
    (count) =>
      document.querySelectorAll('.message.assistant').length === count &&
      /tokens\/s/.test(document.querySelector('.message.assistant:last-child .stats')?.textContent ?? ''),
    WAIT,
    n,
  );
const button = async (page, label) => {
  const found = await page.evaluateHandle(
    (wanted) =>
      [...document.querySelectorAll('button')]
        .filter((one) => one.offsetParent !== null || one.closest('.menu, dialog'))
        .findLast((one) => one.getAttribute('aria-label') === wanted || one.textContent.trim() === wanted) ??
      null,
    label,
  );
  assert.ok(found.asElement(), `a button “${label}”`);
  return found.asElement();
};
const press = async (page, label) => (await button(page, label)).evaluate((one) => one.click());
async function open(context, url, where) {
  const page = await context.newPage();
  page.wrong = [];
  page.on('pageerror', (error) => page.wrong.push(error.message));
  page.on('console', (message) => message.type() === 'error' && page.wrong.push(message.text()));
  await page.setViewport({ width: 1280, height: 800 });
  await page.goto(url + where);
  return page;
}
async function quiet(page, question = 'Write a bedtime story about a fox.') {
  // short and the same each time
  await page.evaluate(() =>
    localStorage.setItem(
      'tern-chat-settings',
      JSON.stringify({ temperature: 0, maxTokens: 24, pieceTokens: 12 }),
    ),
  );
  await page.reload();
  await ready(page);
  if (question) {
    await page.type('#input', question);
    await page.keyboard.press('Enter');
    await finished(page, 1);
  }
}

// Seen to fail: `stop` without the signal passed on, `chat` with conversations not stored, `offline` with a
// service worker that answers nothing, `update` without its offer, `resume` with a cancel that stops nothing,
// `texts` with a piece that is not taken back.
const TESTS = {
  async chat(context, { url }) {
    const page = await open(context, url, 'chat/');
    await quiet(page);
    const one = await text(page, '.message.assistant .answer');
    assert.ok(one.length > 40, one);
    assert.match(
      await text(page, '.message.assistant .stats'),
      /^cut at the limit · [\d.]+ tokens\/s · 24 tokens · first after/,
    );
    await press(page, 'Answer again');
    await finished(page, 1);
    assert.equal(await text(page, '.message.assistant .answer'), one); // greedy
    await page.keyboard.press('ArrowUp'); // the field is empty: edits the last message
    await page.waitForSelector('.edit textarea');
    await page.$eval('.edit textarea', (field) => (field.value = 'Write a story about a cat.'));
    await page.keyboard.press('Enter');
    await page.waitForFunction(
      (old) =>
        document.querySelector('.message.assistant .answer')?.textContent !== old &&
        /tokens\/s/.test(document.querySelector('.stats')?.textContent),
      WAIT,
      one,
    );
    assert.equal(await text(page, '.message.user .said'), 'Write a story about a cat.');
    await page.focus('#input');
    await page.type('#input', 'And a boat.');
    await page.keyboard.press('Enter');
    await finished(page, 2);
    await page.reload(); // all is kept
    await ready(page);
    assert.equal((await page.$$('.message')).length, 4);
    assert.equal(await text(page, '#talks .open'), 'Write a story about a cat.');
    assert.deepEqual(page.wrong, []);
  },

  async stop(context, { url }) {
    const page = await open(context, url, 'chat/');
    await quiet(page, null);
    await page.evaluate(() => localStorage.setItem('tern-chat-settings', JSON.stringify({ temperature: 0 })));
    await page.reload();
    await ready(page);
    await page.type('#input', 'Write a bedtime story about a fox.');
    await page.keyboard.press('Enter');
    await page.waitForFunction(
      () => document.querySelector('.message.assistant .answer')?.textContent.length > 20,
      WAIT,
    );
    await page.keyboard.press('Escape');
    await page.waitForFunction(
      () => /^stopped/.test(document.querySelector('.stats')?.textContent ?? ''),
      WAIT,
    );
    const part = await text(page, '.message.assistant .answer');
    await new Promise((resolve) => setTimeout(resolve, 300));
    assert.equal(await text(page, '.message.assistant .answer'), part);
    // And it can be asked again. In the page, at once: an answer may be over before a message from here
    // has arrived.
    await page.evaluate(() => {
      const send = document.querySelector('#send');
      const stop = () => {
        if (send.getAttribute('aria-label') !== 'Stop (Escape)') return;
        window.hasStopped = true;
        send.click();
      };
      new MutationObserver(stop).observe(send, { attributes: true });
    });
    await page.type('#input', 'Go on.');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => window.hasStopped, WAIT);
    await page.waitForFunction(
      () => document.querySelector('#send').getAttribute('aria-label') === 'Send',
      WAIT,
    );
  },

  async texts(context, { url }) {
    const page = await open(context, url, 'chat/');
    await quiet(page, null);
    await press(page, 'Continue a text');
    const field = '#page-text textarea';
    await page.type(field, 'Once upon a time');
    await press(page, 'Continue');
    const done = () =>
      page.waitForFunction(
        () =>
          /tokens\/s/.test(document.querySelector('#status').textContent) &&
          !document.querySelector('#page-text textarea').readOnly,
        WAIT,
      );
    await done();
    const value = () => page.$eval(field, (element) => element.value);
    const one = await value();
    assert.match(one, /^Once upon a time./);
    await press(page, 'Continue');
    await page.waitForFunction(
      (old) => document.querySelector('#page-text textarea').value.length > old,
      WAIT,
      one.length,
    );
    await done();
    assert.ok((await value()).startsWith(one));
    await press(page, 'Take back');
    assert.equal(await value(), one);
    await press(page, 'Take back');
    assert.equal(await value(), 'Once upon a time');
    assert.deepEqual(page.wrong, []);
  },

  async conversations(context, { url }) {
    const page = await open(context, url, 'chat/');
    const client = await page.createCDPSession();
    await client
      .send('Browser.setDownloadBehavior', {
        behavior: 'allow',
        downloadPath: scratch,
        browserContextId: context.id,
      })
      .catch(() => client.send('Page.setDownloadBehavior', { behavior: 'allow', downloadPath: scratch }));
    await quiet(page);
    const more = async (label) => {
      await page.$eval('#talks .more', (one) => one.click());
      await press(page, label);
    };
    await more('Rename');
    await page.keyboard.type('A fox');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('#talks .open')?.textContent === 'A fox', WAIT);
    await more('Export as JSON');
    await more('Export as Markdown');
    const saved = async (name) => {
      for (let i = 0; i < 100 && !(await readdir(scratch)).includes(name); i++)
        await new Promise((resolve) => setTimeout(resolve, 100));
      return readFile(path.join(scratch, name), 'utf8');
    };
    const data = JSON.parse(await saved('A fox.json'));
    assert.equal(data.conversations[0].messages.length, 2);
    assert.match(
      await saved('A fox.md'),
      /^# A fox\n[\s\S]*## You\n\nWrite a bedtime story about a fox\.\n\n## Model\n\n./,
    );
    // What another page or a hostile file brings is shown as text.
    data.conversations[0].messages[1].content =
      '<img src=x onerror="document.title=1"> <script>x</script> [a](javascript:alert(1)) ![b](https://example.org/x.png)\n\n<b>raw</b>';
    data.conversations[0].title = '<b>bold</b>';
    await writeFile(path.join(scratch, 'hostile.json'), JSON.stringify(data));
    const [chooser] = await Promise.all([
      page.waitForFileChooser(),
      page.$eval('#sidebar-actions button', (one) => one.click()).then(() => press(page, 'Import a file…')),
    ]);
    await chooser.accept([path.join(scratch, 'hostile.json')]);
    await page.waitForFunction(() => document.querySelectorAll('#talks .open').length === 2, WAIT);
    await page.$$eval('#talks .open', (all) => all.find((one) => one.textContent === '<b>bold</b>').click());
    await page.waitForFunction(
      () => /onerror/.test(document.querySelector('.message.assistant')?.textContent ?? ''),
      WAIT,
    );
    const inside = await page.$eval('.message.assistant .answer', (element) =>
      [...element.querySelectorAll('*')].map(
        (one) => one.tagName.toLowerCase() + (one.getAttribute('href') ?? ''),
      ),
    );
    assert.deepEqual(inside, ['p', 'ahttps://example.org/x.png', 'p']);
    await more('Delete');
    await press(page, 'Delete');
    await page.waitForFunction(() => document.querySelectorAll('#talks .open').length === 1, WAIT);
    assert.deepEqual(page.wrong, []);
  },

  async models(context, { url }) {
    const page = await open(context, url, 'chat/');
    await ready(page);
    await page.click('#model-button');
    await page.waitForFunction(
      () => /11\.2 MB · last used/.test(document.querySelector('.models-dialog')?.textContent ?? ''),
      WAIT,
    );
    assert.match(await text(page, '.models-dialog .quota'), / of the .* that the browser grants/);
    await page.type('#address', 'not a model');
    await page.keyboard.press('Enter');
    assert.match(await text(page, '#address-wrong'), /address of a \.gguf file/);
    await press(page, 'Delete Stories from this device');
    await press(page, 'Delete');
    await page.waitForFunction(
      () => !/last used/.test(document.querySelector('.models-dialog').textContent),
      WAIT,
    );
    assert.equal(await text(page, '#model-name'), 'Choose a model');
    // A file from the disk, which is not copied.
    const [chooser] = await Promise.all([page.waitForFileChooser(), press(page, 'Open a .gguf file…')]);
    await chooser.accept([path.join(root, 'models/stories.gguf')]);
    await page.waitForFunction(
      () =>
        document.querySelector('#model-name').textContent === 'stories' &&
        !document.querySelector('#device').hidden,
      WAIT,
    );
    // Something that is no model, and something that is not there.
    await page.evaluate(() => document.dispatchEvent(new Event('x')));
    await page.click('#model-button');
    await page.type('#address', `${url}manifest.webmanifest`);
    await page.keyboard.press('Enter');
    await page.waitForFunction(
      () => /could not be loaded/.test(document.querySelector('#loading').textContent),
      WAIT,
    );
    await press(page, 'Another model');
    await page.type('#address', `${url}models/none.gguf`);
    await page.keyboard.press('Enter');
    await page.waitForFunction(
      () => /none could not be loaded/.test(document.querySelector('#loading').textContent),
      WAIT,
    );
  },

  // A slow server of models: a download that is cancelled goes on from its last whole piece (4 MiB).
  async resume(context, { url }) {
    const model = await readFile(path.join(root, 'models/stories.gguf'));
    const starts = [];
    const { createServer: plain } = await import('node:http');
    const slow = plain(async (request, response) => {
      const cors = {
        'Access-Control-Allow-Origin': '*',
        'Access-Control-Allow-Headers': '*',
        'Access-Control-Expose-Headers': '*',
        'Cross-Origin-Resource-Policy': 'cross-origin',
      };
      if (request.method === 'OPTIONS') return response.writeHead(204, cors).end();
      const range = /^bytes=(\d+)-(\d*)/.exec(request.headers.range ?? '');
      const at = range ? Number(range[1]) : 0;
      const end = range?.[2] ? Number(range[2]) + 1 : model.length;
      response.writeHead(range ? 206 : 200, {
        ...cors,
        'Accept-Ranges': 'bytes',
        ETag: '"one"',
        'Content-Length': end - at,
        ...(range && { 'Content-Range': `bytes ${at}-${end - 1}/${model.length}` }),
      });
      if (request.method === 'HEAD') return response.end();
      starts.push(at);
      for (let i = at; i < end && !response.destroyed; i += 65536) {
        response.write(model.subarray(i, Math.min(end, i + 65536)));
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
      response.end();
    });
    await new Promise((resolve) => slow.listen(0, '127.0.0.1', resolve));
    try {
      const page = await open(context, url, 'chat/');
      await ready(page);
      await page.click('#model-button');
      await page.type('#address', `http://127.0.0.1:${slow.address().port}/slow.gguf`);
      await page.keyboard.press('Enter');
      await page.waitForFunction(
        () =>
          /slow: Downloading · ([5-9]|10)\.\d MB of 11\.2 MB · .*\/s · .* left/.test(
            document.querySelector('#loading').textContent,
          ),
        WAIT,
      );
      await press(page, 'Cancel');
      await page.waitForFunction(
        () =>
          /What is downloaded stays/.test(document.body.textContent) &&
          document.querySelector('#model-name').textContent === 'Stories', // which was not given up for it
        WAIT,
      );
      await page.click('#model-button');
      await page.waitForFunction(
        () => /not complete: \d\.\d MB of 11\.2 MB/.test(document.querySelector('.models-dialog').textContent),
        WAIT,
      );
      const before = starts.length;
      await press(page, 'Resume slow');
      await page.waitForFunction(
        () =>
          document.querySelector('#model-name').textContent === 'slow' &&
          !document.querySelector('#device').hidden,
        WAIT,
      );
      assert.ok(starts.slice(before).length > 0 && starts.slice(before).every((at) => at > 1e6), `${starts}`);
    } finally {
      slow.closeAllConnections();
      slow.close();
    }
  },

  async dropped(context, { url }) {
    const page = await open(context, url, 'chat/');
    await ready(page);
    await page.evaluate(async () => {
      const data = new DataTransfer();
      data.items.add(new File([await (await fetch('../models/stories.gguf')).blob()], 'mine.gguf'));
      window.dispatchEvent(new DragEvent('dragenter', { dataTransfer: data }));
      if (document.querySelector('#drop').hidden) throw new Error('nothing shows where to drop');
      window.dispatchEvent(new DragEvent('drop', { dataTransfer: data, cancelable: true }));
    });
    await page.waitForFunction(
      () =>
        document.querySelector('#model-name').textContent === 'mine' &&
        !document.querySelector('#device').hidden,
      WAIT,
    );
    assert.equal(await page.$eval('#drop', (element) => element.hidden), true);
    assert.deepEqual(page.wrong, []);
  },

  // A new version waits until the page takes it, and comes whole.
  async update(context) {
    const copy = path.join(scratch, 'copy');
    await cp(root, copy, { recursive: true });
    const site = await serve({ root: copy });
    try {
      const page = await open(context, site.url, 'chat/');
      await ready(page);
      await page.waitForFunction(() => navigator.serviceWorker.controller !== null, WAIT);
      const worker = await readFile(path.join(copy, 'sw.js'), 'utf8');
      assert.match(worker, /"[0-9a-f]{12}"/);
      await writeFile(path.join(copy, 'sw.js'), worker.replace(/"[0-9a-f]{12}"/, '"0123456789ab"'));
      await writeFile(
        path.join(copy, 'chat/index.html'),
        (await readFile(path.join(copy, 'chat/index.html'), 'utf8')).replace(
          'Choose a model',
          'The new page',
        ),
      );
      await page.reload();
      assert.equal(
        await page.evaluate(() => document.documentElement.outerHTML.includes('The new page')),
        false,
      ); // still the old one
      await page.waitForFunction(
        () => /new version/.test(document.querySelector('.toasts')?.textContent ?? ''),
        WAIT,
      );
      await Promise.all([page.waitForNavigation(WAIT), press(page, 'Reload')]);
      assert.match(await (await fetch(`${site.url}chat/`)).text(), /The new page/);
      assert.match(await page.evaluate(async () => (await fetch('./')).text()), /The new page/);
      assert.deepEqual(await page.evaluate(() => caches.keys()), ['tern-pages-0123456789ab']);
    } finally {
      site.close();
    }
  },

  async installable(context, { url }) {
    const page = await open(context, url, 'chat/');
    const client = await page.createCDPSession();
    const { errors, data } = await client.send('Page.getAppManifest');
    assert.deepEqual(errors, []);
    for (const { src } of JSON.parse(data).icons) assert.equal((await fetch(url + src)).status, 200, src);
    const { installabilityErrors } = await client.send('Page.getInstallabilityErrors');
    // A window of a test keeps nothing, which browsers do not install from; all else must be right.
    assert.deepEqual(
      installabilityErrors.filter(({ errorId }) => errorId !== 'in-incognito'),
      [],
    );
  },

  async offline(context, site) {
    const page = await open(context, site.url, 'chat/');
    await quiet(page);
    const answer = await text(page, '.message.assistant .answer');
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null, WAIT);
    site.close(); // the server is gone, not only the network
    await page.reload();
    await ready(page);
    await page.waitForSelector('.message.assistant');
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    await press(page, 'Answer again');
    await finished(page, 1);
    assert.equal(await text(page, '.message.assistant .answer'), answer);
    await page.goto(`${site.url}diagnose/`);
    assert.match(await page.title(), /Diagnose/);
  },

  async tldr(context, { url }) {
    const page = await open(context, url, 'tldr/');
    const carried = await page.$eval('#model option:last-child', (one) => one.value);
    await page.select('#model', carried);
    await page.waitForSelector('.tern-tldr');
    const inside = (call, ...rest) =>
      page.evaluate(`(${call})(document.querySelector('.tern-tldr').shadowRoot, ...${JSON.stringify(rest)})`);
    await inside((shadow) => shadow.querySelector('.open').click());
    await page.waitForFunction(() => {
      const shadow = document.querySelector('.tern-tldr').shadowRoot;
      return (
        /tokens\/s/.test(shadow.querySelector('.note').textContent) ||
        shadow.querySelector('.wrong').textContent
      );
    }, WAIT);
    assert.equal(await inside((shadow) => shadow.querySelector('.wrong').textContent), '');
    assert.ok((await inside((shadow) => shadow.querySelector('.summary').textContent)).length > 40);
    assert.equal(await inside((shadow) => shadow.querySelector('.panel').hidden), false);
    await page.keyboard.press('Escape');
    assert.equal(await inside((shadow) => shadow.querySelector('.panel').hidden), true);
    assert.deepEqual(page.wrong, []);
  },

  // A page of another site, whose policy is its own: the widget's files come with CORS.
  async embedded(context) {
    const site = await serve({ cors: true, isolation: false });
    const folder = await mkdtemp(path.join(scratch, 'other-'));
    await writeFile(
      path.join(folder, 'index.html'),
      `<!doctype html><title>other</title><style>p, button { color: red; display: none }</style><main><p>${'A text of another site, about nothing much. '.repeat(10)}</p></main>
      <script type="module" src="${site.url}tldr/tldr.js" data-model="${site.url}models/stories.gguf" data-label="Sum up" data-position="left"></script>`,
    );
    const { createServer: plain } = await import('node:http');
    const other = plain(async (request, response) => {
      response.setHeader('Content-Type', 'text/html');
      response.end(await readFile(path.join(folder, 'index.html')));
    });
    await new Promise((resolve) => other.listen(0, '127.0.0.1', resolve));
    try {
      const page = await open(context, `http://127.0.0.1:${other.address().port}/`, '');
      await page.waitForSelector('.tern-tldr');
      await page.evaluate(() =>
        document.querySelector('.tern-tldr').shadowRoot.querySelector('.open').click(),
      );
      await page.waitForFunction(() => {
        const shadow = document.querySelector('.tern-tldr').shadowRoot;
        return (
          /tokens\/s/.test(shadow.querySelector('.note').textContent) ||
          shadow.querySelector('.wrong').textContent
        );
      }, WAIT);
      assert.equal(
        await page.evaluate(
          () => document.querySelector('.tern-tldr').shadowRoot.querySelector('.wrong').textContent,
        ),
        '',
      );
    } finally {
      other.closeAllConnections();
      other.close();
      site.close();
    }
  },

  async diagnose(context, { url }) {
    const page = await open(context, url, 'diagnose/?run');
    await page.waitForFunction(() => document.documentElement.dataset.done, {
      timeout: 580000,
      polling: 500,
    });
    const steps = await page.$$eval('.step', (all) =>
      all.map(
        (one) =>
          `${one.className.replace(/step|card|running/g, '').trim()} ${one.querySelector('h2').textContent}: ${one.querySelector('p').textContent}`,
      ),
    );
    console.log(steps.map((step) => '      ' + step).join('\n'));
    assert.equal(await page.evaluate(() => document.documentElement.dataset.done), 'ok', steps.join('\n'));
    // All nine are shown, one under the other (a class of a state once put some above the page).
    const tops = await page.$$eval('.step', (all) => all.map((one) => one.getBoundingClientRect().top));
    assert.ok(tops.length === 9 && tops.every((top, i) => top > (tops[i - 1] ?? 0)), `${tops}`);
    assert.deepEqual(page.wrong, []);
  },

  async phone(context, { url }) {
    const page = await open(context, url, 'chat/');
    await page.setViewport({ width: 360, height: 740, isMobile: true, hasTouch: true });
    await quiet(page, null);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
    assert.ok((await page.$eval('#input', (field) => parseFloat(getComputedStyle(field).fontSize))) >= 16); // else phones zoom in
    const small = await page.$$eval('button', (all) =>
      all
        .filter(
          (one) =>
            one.offsetParent &&
            getComputedStyle(one).visibility === 'visible' &&
            (one.offsetWidth < 40 || one.offsetHeight < 40),
        )
        .map((one) => one.getAttribute('aria-label') ?? one.textContent),
    );
    assert.deepEqual(small, []);
    await page.tap('#top-left button');
    await page.waitForFunction(() => document.activeElement.closest('#sidebar'), WAIT);
    await page.keyboard.press('Escape');
    await page.waitForFunction(() => !document.body.classList.contains('sidebar-open'), WAIT);
    await page.type('#input', 'Write a story about a fox.');
    await page.tap('#send');
    await finished(page, 1);
    assert.deepEqual(page.wrong, []);
  },

  async keyboard(context, { url }) {
    const page = await open(context, url, 'chat/');
    await ready(page);
    const nameless = await page.$$eval('button, input:not([aria-hidden=true]), textarea, select, a', (all) =>
      all
        .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length))
        .map((one) => one.outerHTML.slice(0, 80)),
    );
    assert.deepEqual(nameless, []);
    await page.evaluate(() => document.activeElement.blur());
    const seen = [];
    for (let i = 0; i < 24; i++) {
      await page.keyboard.press('Tab');
      seen.push(
        await page.evaluate(() => {
          const { outlineStyle, boxShadow } = getComputedStyle(document.activeElement);
          const { id, className, tagName } = document.activeElement;
          return {
            name: id || className || tagName,
            marked: outlineStyle !== 'none' || boxShadow !== 'none' || id === 'input',
          };
        }),
      );
    }
    for (const { name, marked } of seen.filter(({ name }) => name !== 'BODY'))
      assert.ok(marked, `${name} shows that it has the focus`);
    assert.ok(
      seen.some(({ name }) => name === 'input') && seen.some(({ name }) => name === 'model-button'),
      JSON.stringify(seen),
    );
    await page.focus('#model-button');
    await page.keyboard.press('Enter');
    await page.waitForSelector('dialog[open]');
    await page.keyboard.press('Escape');
    await page.waitForFunction(
      () => !document.querySelector('dialog') && document.activeElement.id === 'model-button',
      WAIT,
    );
  },

  async oneThread(context) {
    const site = await serve({ isolation: false });
    try {
      const page = await open(context, site.url, 'chat/');
      await quiet(page);
      assert.equal(await page.evaluate(() => crossOriginIsolated), false);
      assert.match(await text(page, '#device'), /1 thread/);
    } finally {
      site.close();
    }
  },
};

const args = [
  '--no-sandbox',
  '--disable-gpu-watchdog',
  ...(process.env.GPU ? ['--enable-unsafe-webgpu'] : []),
];
const browser = await puppeteer.launch({
  executablePath: '/usr/bin/chromium',
  args,
  protocolTimeout: 600000,
});
let failed = 0;
try {
  for (const [name, run] of Object.entries(TESTS)) {
    if (names.length && !names.includes(name)) continue;
    const site = await serve({});
    const context = await browser.createBrowserContext();
    const from = Date.now();
    try {
      await run(context, site);
      console.log(`ok     ${name} (${((Date.now() - from) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed++;
      console.log(`FAILED ${name}: ${error.stack}`);
      for (const page of await context.pages()) {
        if (page.wrong?.length) console.log('      page:', page.wrong.join('\n      page: '));
        if (process.env.SHOTS)
          await page.screenshot({ path: path.join(process.env.SHOTS, `${name}.png`) }).catch(() => {});
      }
    }
    await context.close();
    site.close();
  }
} finally {
  await browser.close();
  await rm(scratch, { recursive: true });
}
process.exitCode = failed ? 1 : 0;
