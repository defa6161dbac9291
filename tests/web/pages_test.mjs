// The pages, used as a person would: typing, clicking, reloading, without a network. Their content
// security policy is in force, and every violation of it is a failure.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { cspHeader } from '../../web/csp.mjs';
import { webRoots } from './engine.mjs';
import { test } from './harness.mjs';
import { build, greedy, root, stories } from './native.mjs';

const question = 'Write a bedtime story about a fox.';
const N_TOKENS = 60;
let native;
const nativeAnswer = () =>
  (native ??= greedy(stories, question, N_TOKENS, { args: ['--chat'] }).then(({ text }) =>
    words(text),
  ));
// Markdown is shown without its marks.
const words = (text) => text.replace(/[^\p{L}\p{N}]+/gu, ' ').trim();

// A page of ours with settings that make its answers repeatable; { page, server, person }.
async function open(t, where, { which = 'chromium', settings = {}, ...options } = {}) {
  const server = options.server ?? (await t.serve({ roots: webRoots, csp: cspHeader }));
  const page = await (await t.browser(which, options)).page();
  await page.raw.setViewport({ width: 1200, height: 800 });
  const chosen = { temperature: 0, maxTokens: N_TOKENS, device: 'wasm', ...settings };
  await page.raw.evaluateOnNewDocument((text) => {
    try {
      if (!localStorage['tern-chat-settings']) localStorage['tern-chat-settings'] = text;
    } catch {
      // The empty document before the first one has no storage.
    }
  }, JSON.stringify(chosen));
  await page.goto(server.url + where);
  return { page, server, person: new Person(page.raw) };
}

// What somebody in front of the chat does and sees.
class Person {
  constructor(raw) {
    this.raw = raw;
  }

  waits(seen, ...args) {
    return this.raw.waitForFunction(seen, { timeout: 300_000, polling: 50 }, ...args);
  }

  waitsForModel() {
    return this.waits(() => document.querySelector('#device')?.textContent?.length > 3);
  }

  async asks(text) {
    await this.raw.type('#input', text);
    await this.raw.click('#send');
  }

  async answer(n = 1) {
    await this.waits((n) => {
      const all = document.querySelectorAll('.message.assistant');
      return (
        all.length >= n && all[n - 1].querySelector('.stats')?.textContent.includes('tokens/s')
      );
    }, n);
    const show = (all, n) => {
      const paragraphs = [...all[n - 1].querySelectorAll('.answer > *')];
      const stats = all[n - 1].querySelector('.stats').textContent;
      return { text: paragraphs.map((one) => one.textContent).join(' '), stats };
    };
    const { text, stats } = await this.raw.$$eval('.message.assistant', show, n);
    return { text: words(text), stats };
  }

  press(label) {
    return this.raw.click(`main [aria-label^="${label}"], dialog [aria-label^="${label}"]`);
  }
}

function checkClean(t, { page, server }) {
  t.equal(
    server.violations.map((v) => `${v['violated-directive']} ${v['blocked-uri']}`),
    [],
    'policy',
  );
  const errors = page.log.filter(
    (line) => /: (error|uncaught)/.test(line) && !/favicon/.test(line),
  );
  t.equal(errors, [], 'errors in the console');
}

for (const which of ['chromium', 'firefox'])
  test(`pages: a chat in ${which}`, { seconds: 120 }, async (t) => {
    const opened = await open(t, '/chat/', { which });
    const { person, page } = opened;
    await person.waitsForModel();
    await person.asks(question);
    const { text, stats } = await person.answer();
    t.equal(text, await nativeAnswer(), 'answer');
    t.check(/\d tokens\/s · 60 tokens/.test(stats), `"${stats}"`);
    await page.raw.evaluate(() => { // an answer may be over before anybody looks twice
      const look = () => (window.begun ||= !document.querySelector('.message.assistant .stats')?.textContent);
      const what = { subtree: true, childList: true, characterData: true };
      new MutationObserver(look).observe(document.body, what);
    });
    await person.press('Answer again');
    await person.waits(() => window.begun);
    t.equal((await person.answer()).text, await nativeAnswer(), 'the answer, written again');
    await page.reload();
    t.equal((await person.answer()).text, await nativeAnswer(), 'the answer after a reload');
    const talks = await page.raw.$$eval('#talks .open', (all) => all.map((one) => one.textContent));
    t.equal(talks.length, 1, `conversations: ${talks}`);
    await person.waitsForModel();
    await person.asks('Tell me a story about a bear who lives in a forest.');
    t.check((await person.answer(2)).text.length > 20, 'a second answer');
    checkClean(t, opened);
  });

// Another tab of the same browser and site.
async function openTab(browser, server, where) {
  const page = await browser.page();
  await page.raw.setViewport({ width: 1200, height: 800 });
  await page.goto(server.url + where);
  return { page, server, person: new Person(page.raw) };
}
const storedTalks = () =>
  new Promise((done, fail) => {
    const request = indexedDB.open('tern-chat', 1);
    request.onerror = fail;
    request.onsuccess = () => {
      const all = request.result.transaction('conversations').objectStore('conversations').getAll();
      all.onsuccess = () => done(all.result);
    };
  });
// As another page, or an older version of this one, would have left it.
const storeTalk = (talk) =>
  new Promise((done, fail) => {
    const request = indexedDB.open('tern-chat', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
    request.onerror = fail;
    request.onsuccess = () => {
      const transaction = request.result.transaction('conversations', 'readwrite');
      transaction.objectStore('conversations').put(talk);
      transaction.oncomplete = () => done(request.result.close());
    };
  });
const talkOf = (id, messages, more) => ({
  id, kind: 'chat', title: '', named: false, created: 1, updated: Date.now(), model: '', messages, text: '', pieces: [], ...more,
});
const said = (page) => page.raw.$$eval('.message .said', (all) => all.map((one) => one.textContent));

// Nothing here asks a model: the pages open none (data is to be saved), and the turns are stored ones. Seen to fail: the
// first tab, closed, put its old copy over the second tab's; a reload lost what was typed; back and forward left the page;
// all turns were drawn; an answer that a reload had cut looked whole.
for (const which of ['chromium', 'firefox'])
  test(`pages: conversations in two tabs, drafts, back and forward, 1,000 messages, in ${which}`, { seconds: 90 }, async (t) => {
    const server = await t.serve({ roots: webRoots, csp: cspHeader });
    const browser = await t.browser(which);
    const blank = await browser.page();
    await blank.goto(`${server.url}/tests/blank.html`);
    const turns = (n) => Array.from({ length: n }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', content: `turn ${i} **bold**` }));
    await blank.run(storeTalk, talkOf('one', turns(2)));
    await blank.run(storeTalk, talkOf('long', turns(1000)));
    const broken = [...turns(2), { role: 'robot', content: 'x' }, { role: 'user', content: 7 }, null];
    await blank.run(storeTalk, talkOf('cut', [...broken, { role: 'assistant', content: 'half an ans' }], { writing: true, updated: 'soon' }));
    await blank.run(() => (localStorage['tern-chat-settings'] = JSON.stringify({ lastModel: '/models/none.gguf', topK: 2.5 })));
    const one = await openTab(browser, server, '/chat/#talk=one');
    const two = await openTab(browser, server, '/chat/#talk=one');
    await one.person.waits(() => document.querySelectorAll('.message').length === 2);
    await two.person.waits(() => document.querySelectorAll('.message').length === 2);

    // Renamed in one, shown in the other; and what the second one wrote survives the first.
    await blank.run(storeTalk, talkOf('one', turns(4), { revision: 7 }));
    await blank.run(() => new BroadcastChannel('tern-chat').postMessage({ id: 'one', gone: false }));
    for (const { person } of [one, two]) await person.waits(() => document.querySelectorAll('.message').length === 4);
    await one.page.close();
    const kept = (await blank.run(storedTalks)).find(({ id }) => id === 'one');
    t.equal([kept.messages.length, kept.revision], [4, 7], 'after the first tab is closed');

    // A tab that did not hear of the change does not replace it: what it says is kept beside.
    const { page, person } = two;
    await blank.run(storeTalk, talkOf('one', [...turns(4), { role: 'user', content: 'from elsewhere' }], { revision: 8 }));
    await page.raw.$eval('#talks .open[data-talk=one]', (row) => row.nextElementSibling.click());
    await page.raw.$$eval('.menu button', (all) => all.find((one) => one.textContent.includes('Rename')).click());
    await page.raw.type('#talks input', 'Renamed');
    await page.raw.keyboard.press('Enter');
    await person.waits(() => document.querySelectorAll('.message').length === 5);
    const after = await blank.run(storedTalks);
    t.check(after.find(({ id }) => id === 'one').messages.some(({ content }) => content === 'from elsewhere'), 'the other tab’s turn is there');

    // Drafts belong to conversations; back and forward go through these.
    await page.raw.type('#input', 'half a thought');
    await page.raw.click('#talks .open[data-talk=long]');
    await person.waits(() => document.querySelector('.message.user:last-of-type, .message:last-child')?.textContent.includes('turn 999'));
    t.equal(await page.raw.$eval('#input', (field) => field.value), '', 'another conversation has no draft');
    await page.raw.goBack();
    await person.waits(() => document.querySelector('#input').value === 'half a thought');
    t.check((await said(page)).includes('from elsewhere'), 'back at the first one');
    await page.raw.goForward();
    await person.waits(() => document.querySelectorAll('.message').length > 10);
    // Only what is seen is drawn, and the rest when it is looked for.
    const drawn = () => document.querySelectorAll('.message').length;
    t.check((await page.run(drawn)) <= 90, `${await page.run(drawn)} of 1,000 messages are drawn`);
    await page.raw.$eval('.earlier', (button) => button.click());
    await person.waits(() => document.querySelectorAll('.message').length >= 60);
    t.equal(await page.raw.$eval('.message:last-child .answer', (one) => one.textContent), 'turn 999 bold', 'the end is still there');
    await page.raw.type('#input', 'typed');
    await page.reload();
    await person.waits(() => document.querySelector('#input')?.value === 'typed');

    // An answer that no page writes any more was cut; what is no turn is left out.
    await page.raw.click('#talks .open[data-talk=cut]');
    await person.waits(() => document.querySelector('.message:last-child .stats')?.textContent.includes('the page was closed'));
    t.equal(await page.raw.$$eval('.message', (all) => all.length), 3, 'turns');
    t.equal(await page.raw.$$eval('h1', (all) => all.filter((one) => one.checkVisibility()).length), 1, 'one heading');
    t.equal(await page.raw.$$eval('button', (all) => all.filter((one) => /^New conv/.test(one.getAttribute('aria-label'))).length), 1, 'one "+"');
    // Deleted elsewhere.
    await blank.run(() => new BroadcastChannel('tern-chat').postMessage({ id: 'cut', gone: true }));
    await person.waits(() => !location.hash && !document.querySelector('.message'));
    t.equal(server.violations.map((v) => v['violated-directive']), [], 'policy');
  });

test('pages: an answer is stopped, and a new conversation begun', { seconds: 60 }, async (t) => {
  const opened = await open(t, '/chat/', { settings: { maxTokens: 1000, repeatPenalty: 1 } });
  const { person, page } = opened;
  await person.waitsForModel();
  await person.asks(question);
  await person.waits(() => document.querySelector('.message.assistant')?.textContent.length > 40);
  await page.raw.click('#send');
  const { stats } = await person.answer();
  t.check(/stopped/.test(stats), `"${stats}"`);
  await person.press('New conversation');
  await person.waits(() => !document.querySelector('.message'));
  await person.asks('Tell me a story about a cat.');
  t.check((await person.answer()).text.length > 10, 'the next answer');
  t.equal(await page.raw.$$eval('#talks .open', (all) => all.length), 2, 'conversations');
  checkClean(t, opened);
});

// In the page: when its service worker answers it.
async function isKept() {
  await navigator.serviceWorker.ready;
  if (!navigator.serviceWorker.controller)
    await new Promise((done) => (navigator.serviceWorker.oncontrollerchange = done));
}

test('pages: the chat opens and writes without a network', { seconds: 90 }, async (t) => {
  const opened = await open(t, '/chat/');
  const { person, page, server } = opened;
  await person.waitsForModel();
  await page.run(isKept);
  await server.close();
  await page.reload();
  await person.waitsForModel();
  await person.asks(question);
  t.equal((await person.answer()).text, await nativeAnswer(), 'answer');
  t.equal(await page.run(() => crossOriginIsolated), true, 'isolated');
});

test('pages: models are picked, kept and deleted', { seconds: 90 }, async (t) => {
  const opened = await open(t, '/chat/');
  const { person, page, server } = opened;
  await person.waitsForModel();
  await page.raw.click('#model-button');
  await page.raw.waitForSelector('dialog [aria-label="On this device"] li');
  await person.press('Delete Stories');
  await page.raw.waitForSelector('dialog .button.danger');
  await page.raw.click('dialog .button.danger');
  await person.waits(() => !document.querySelector('dialog [aria-label="On this device"] li'));
  const left = await page.run(async () => (await import('/tests/package.js')).storedFiles());
  t.check(
    left.every(({ size }) => size < 10_000),
    `files that stay: ${JSON.stringify(left)}`,
  );
  await page.raw.type('#address', `${server.url}/models/stories.gguf`);
  await page.raw.keyboard.press('Enter');
  await person.waitsForModel();
  await page.raw.click('#model-button');
  const [chooser] = await Promise.all([
    page.raw.waitForFileChooser(),
    page.raw.evaluate(() => {
      const all = [...document.querySelectorAll('dialog button')];
      all.find((one) => one.textContent.includes('.gguf file')).click();
    }),
  ]);
  await chooser.accept([stories]);
  await person.waits(() => document.querySelector('#model-name')?.textContent === 'stories');
  await person.waitsForModel();
  await person.asks(question);
  t.equal((await person.answer()).text, await nativeAnswer(), 'answer of a file');
  checkClean(t, opened);
});

test(
  'pages: a download that fails is said, and resumed by a button',
  { seconds: 90 },
  async (t) => {
    const server = await t.serve({ roots: webRoots, csp: cspHeader });
    server.fault('/models/stories.gguf', { status: 404 });
    const { person, page } = await open(t, '/chat/', { server });
    await page.raw.waitForSelector('#loading [role=alert]', { timeout: 300_000 });
    const said = await page.raw.$eval('#loading', (one) => one.textContent);
    t.check(/404/.test(said), `"${said}"`);
    server.fault('/models/stories.gguf');
    await page.raw.click('#loading .primary');
    await person.waitsForModel();
    // Another one that is none. Seen to fail: the page was stored, and no model was left.
    await page.raw.click('#model-button');
    await page.raw.type('#address', `${server.url}/chat/index.html`);
    await page.raw.keyboard.press('Enter');
    await page.raw.waitForSelector('#loading [role=alert]', { timeout: 300_000 });
    const refused = await page.raw.$eval('#loading', (one) => one.textContent);
    t.check(/answers with a web page.*Stories is still there/.test(refused), `"${refused}"`);
    t.equal(await page.raw.$eval('#model-name', (one) => one.textContent), 'Stories', 'model');
    await person.asks(question);
    t.equal((await person.answer()).text, await nativeAnswer(), 'answer');
    const stored = await page.run(async () => (await (await import('/tern/index.js')).Tern.models.list()).map(({ id }) => id));
    t.equal(stored, [`${server.url}/models/stories.gguf`], 'stored models');
  },
);

test('pages: the summary widget', { seconds: 90 }, async (t) => {
  const opened = await open(t, '/tldr/');
  const { person } = opened;
  const inWidget = (selector) => `.tern-tldr >>> ${selector}`;
  t.check(!(await opened.page.raw.$('.tern-tldr')), 'no button before a model is chosen');
  const carried = await opened.page.raw.$eval('#model option:last-child', (one) => one.value);
  await opened.page.raw.select('#model', carried);
  await opened.page.raw.waitForSelector('.tern-tldr');
  // The same by a tag, as other pages have it.
  await opened.page.raw.evaluate((model) => {
    document.querySelector('.tern-tldr').remove();
    const tag = document.createElement('script');
    Object.assign(tag, { type: 'module', src: '/tldr/tldr.js' });
    Object.assign(tag.dataset, { model, target: 'article', device: 'wasm' });
    document.head.append(tag);
  }, carried);
  await opened.page.raw.waitForSelector(inWidget('.open'));
  await opened.page.raw.click(inWidget('.open'));
  await person.waits(() => {
    const { shadowRoot } = document.querySelector('.tern-tldr');
    return /tokens\/s/.test(shadowRoot.querySelector('.note').textContent);
  });
  const text = await opened.page.raw.$eval(inWidget('.summary'), (one) => one.textContent);
  t.check(text.length > 0, "nothing was written"); // the carried model is not made for articles
  t.equal(await opened.page.raw.$eval(inWidget('.wrong'), (one) => one.textContent), '', 'failure');
  checkClean(t, opened);
});

async function checkDiagnosis(t, page) {
  await page.raw.click('#go');
  const done = () => document.documentElement.dataset.done;
  await page.raw.waitForFunction(done, { timeout: 300_000, polling: 200 }).catch(() => {});
  t.check(/^(ok|warn)$/.test(await page.run(done)), `verdict: ${await page.run(done)}`);
  const steps = await page.raw.$$eval('#steps li', (all) =>
    all.map(({ id, className, textContent }) => ({ id, className, textContent })),
  );
  t.check(steps.length >= 5, `${steps.length} steps`);
  for (const { id, className, textContent } of steps)
    t.check(
      / (ok|warn|skip)$/.test(className),
      `${id}: ${className}: ${textContent.slice(0, 300)}`,
    );
}

// Seen to fail when what a diagnosis alone needs is not kept.
test('pages: diagnose reports every step, and so without a network', { seconds: 240 }, async (t) => {
  const opened = await open(t, '/diagnose/');
  const { page, server } = opened;
  await page.run(isKept);
  await checkDiagnosis(t, page);
  checkClean(t, opened);
  await server.close();
  await page.reload();
  await checkDiagnosis(t, page);
});

test(
  'pages: on a phone nothing is wider than the screen, and all has a name',
  { seconds: 90 },
  async (t) => {
    const opened = await open(t, '/');
    const { page, server } = opened;
    await page.raw.setViewport({ width: 360, height: 740, isMobile: true, hasTouch: true });
    for (const where of ['/', '/chat/', '/tldr/', '/diagnose/']) {
      await page.goto(server.url + where);
      // Not innerWidth, which grows with what is too wide. Seen to fail with a line of 400 pixels.
      const wide = await page.run(() => document.scrollingElement.scrollWidth - 360);
      t.check(wide <= 0, `${where} is ${wide} pixels wider than the screen`);
      const nameless = [];
      const walk = ({ role, name, children = [] }) => {
        if (['button', 'link', 'textbox', 'combobox'].includes(role) && !name) nameless.push(role);
        children.forEach(walk);
      };
      walk(await page.raw.accessibility.snapshot());
      t.equal(nameless, [], `${where}: without a name`);
    }
    checkClean(t, opened);
  },
);

test('pages: web/serve.mjs serves them as they want it', { seconds: 60 }, async (t) => {
  const program = [path.join(root, 'web/serve.mjs'), path.join(build, 'web/pages'), '--port', '0'];
  const child = spawn(process.execPath, program, { stdio: ['ignore', 'pipe', 'inherit'] });
  t.cleanup(() => child.kill());
  const url = await new Promise((done, fail) => {
    child.stdout.on('data', (text) => done(String(text).trim().replace(/\/$/, '')));
    child.on('exit', () => fail(new Error('the server has ended')));
  });
  const served = { url, violations: [] };
  const opened = await open(t, '/chat/', { server: served });
  await opened.person.waitsForModel();
  t.equal(await opened.page.run(() => crossOriginIsolated), true, 'isolated');
  await opened.person.asks(question);
  t.equal((await opened.person.answer()).text, await nativeAnswer(), 'answer');
  const answer = await fetch(`${url}/chat/`);
  t.equal(answer.headers.get('content-security-policy'), cspHeader, 'policy');
  checkClean(t, opened);
});
