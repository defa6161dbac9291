// The page of `tern serve`, used as a person would, against the real server with the carried model. Its
// policy is in force: what it forbids is an error in the console, and a failure.
import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { FILES, buildServerPage } from '../../web/server/build.mjs';
import { test } from './harness.mjs';
import { build, greedy, root, stories } from './native.mjs';

const question = 'Write a bedtime story about a fox.';
const words = (text) => text.replace(/[^\p{L}\p{N}]+/gu, ' ').trim();

async function serve(t, model, ...options) {
  const args = ['serve', model, '--port', '0', '-t', '1', ...options];
  const child = spawn(path.join(build, 'tern'), args,
    { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, TERN_DEVICE: 'cpu' } });
  t.cleanup(() => child.kill());
  let log = '';
  return new Promise((done, fail) => {
    child.stderr.on('data', (text) => {
      log += text;
      const found = /listening url=(\S+)/.exec(log);
      if (found) done(found[1]);
    });
    child.on('exit', () => fail(new Error(log)));
  });
}

const SETTINGS = { temperature: 0, maxTokens: 40, repeatPenalty: 1 };

// answer: what the server says to a chat, instead of the model.
// endless: no answer finds an end.
async function open(
  t,
  { which = 'chromium', settings = {}, model = stories, options = [], answer, endless } = {},
) {
  const url = await serve(t, model, ...options);
  const page = await (await t.browser(which)).page();
  const { raw } = page;
  await raw.setViewport({ width: 1200, height: 800 });
  await raw.evaluateOnNewDocument((text) => {
    try {
      localStorage['tern-chat-settings'] ??= text;
    } catch {
      // The empty document before the first one has no storage.
    }
  }, JSON.stringify({ ...SETTINGS, ...settings }));
  if (answer) {
    await raw.setRequestInterception(true);
    raw.on('request', (request) => {
      if (!request.url().endsWith('/v1/chat/completions')) return void request.continue();
      const body = `data: ${JSON.stringify({ choices: [{ delta: { content: answer } }] })}\n\ndata: [DONE]\n\n`;
      return void request.respond({ contentType: 'text/event-stream', body });
    });
  }
  if (endless) {
    await raw.setRequestInterception(true);
    raw.on('request', (request) => {
      if (!request.url().endsWith('/v1/chat/completions')) return void request.continue();
      const body = { ...JSON.parse(request.postData()), ignore_eos: true };
      return void request.continue({ postData: JSON.stringify(body) });
    });
  }
  await page.goto(url + '/');
  return { page, raw, url, person: new Person(raw) };
}

class Person {
  constructor(raw) {
    this.raw = raw;
  }

  waits(seen, ...args) {
    return this.raw.waitForFunction(seen, { timeout: 300_000, polling: 50 }, ...args);
  }

  waitsForModel(name = 'stories') {
    return this.waits((name) => document.querySelector('#model-name')?.textContent === name, name);
  }

  async asks(text) {
    await this.raw.type('#input', text);
    await this.raw.keyboard.press('Enter');
  }

  async answer(n = 1) {
    await this.waits((n) => {
      const all = document.querySelectorAll('.message.assistant');
      return all.length >= n && /\S/.test(all[n - 1].querySelector('.stats')?.textContent ?? '');
    }, n);
    return this.raw.$$eval(
      '.message.assistant',
      (all, n) => ({
        text: [...all[n - 1].querySelectorAll('.answer > *')].map((one) => one.textContent).join(' '),
        stats: all[n - 1].querySelector('.stats').textContent,
      }),
      n,
    );
  }

  press(label) {
    return this.raw.click(`[aria-label^="${label}"]`);
  }

  text(selector) {
    return this.raw.$eval(selector, (one) => one.textContent);
  }
}

function checkClean(t, page, but = /^$/) {
  const errors = page.log.filter((line) => /: (error|uncaught)/.test(line) && !but.test(line));
  t.equal(errors, [], 'errors in the console');
}

// Seen to fail with a space more in apps/serve/page/page.js.
test('served: the files in the repository are those of web/server', {}, async (t) => {
  const out = await t.folder();
  await buildServerPage(out);
  for (const name of FILES) {
    const [made, kept] = await Promise.all(
      [out, path.join(root, 'apps/serve/page')].map((folder) => readFile(path.join(folder, name), 'utf8')),
    );
    t.check(made === kept, `apps/serve/page/${name} is another: run make serve-page`);
  }
});

// Seen to fail: with the seed and temperature left out of requests; with usage not asked for (the meter).
for (const which of ['chromium', 'firefox'])
  test(`served: a chat in ${which}, kept over a reload`, { seconds: 90 }, async (t) => {
    const { person, page, raw } = await open(t, { which });
    await person.waitsForModel();
    await person.asks(question);
    const { text, stats } = await person.answer();
    const args = ['--chat', '--repeat-penalty', '1'];
    const native = await greedy(stories, question, SETTINGS.maxTokens, { args });
    t.equal(words(text), words(native.text), 'answer');
    t.check(/\d tokens\/s · 40 tokens/.test(stats), stats);
    const used = /^(\d+) of 1,024 tokens of context$/.exec(await person.text('#context span'))?.[1];
    t.check(used > 50 && used < 90, `meter: ${used}`); // 40 of the answer, and those of the question
    await person.press('Answer again');
    await person.waits(() => /cut at the limit/.test(document.querySelector('.stats')?.textContent));
    t.equal(words((await person.answer()).text), words(native.text), 'the answer, written again');
    await page.reload();
    t.equal(words((await person.answer()).text), words(native.text), 'the answer after a reload');
    await person.waitsForModel();
    await person.press('Edit message');
    await raw.type('.edit textarea', ' It is red.');
    await raw.keyboard.press('Enter');
    await person.waits(() => document.querySelector('.said')?.textContent.endsWith('It is red.'));
    await person.answer();
    await person.press('New conversation');
    await person.asks('A cat.');
    await person.answer();
    t.equal(await raw.$$eval('#talks .open', (all) => all.length), 2, 'conversations');
    checkClean(t, page);
  });

// Seen to fail with a request that is not given the signal.
test('served: stop ends the work in the server', { seconds: 60 }, async (t) => {
  const settings = { maxTokens: 60000, temperature: 1, seed: 3 };
  const { person, page, url } = await open(t, { settings, endless: true, options: ['-c', '64K'] });
  await person.waitsForModel();
  await person.asks(question);
  await person.waits(() => document.querySelector('.message.assistant')?.textContent.length > 40);
  await person.press('Stop');
  t.check(/stopped/.test((await person.answer()).stats), 'the answer is not stopped');
  for (let i = 0; i < 12000; i++) {
    const text = await (await fetch(`${url}/metrics`)).text();
    if (/tern_requests_running\S* 0\n/.test(text) && /reason="cancelled"} 1\n/.test(text)) break;
    t.check(i < 11999, 'the server goes on');
    await new Promise((done) => setTimeout(done, 25));
  }
  checkClean(t, page);
});

// Seen to fail with answers set as innerHTML, with the policy and without it.
test('served: what a model writes never becomes HTML', { seconds: 60 }, async (t) => {
  const answer = [
    '<script>window.broken = 1</script><img src=x onerror="window.broken = 2">',
    '[link](javascript:window.broken=3) <a href="javascript:window.broken=4">a</a>',
    '```html\n<script>window.broken = 5</script>\n```',
    '| <b>cell</b> | b |\n|--|--|\n| <iframe src="/v1/models"></iframe> | <svg onload="window.broken=6"> |',
    '<style>body { display: none }</style>',
  ].join('\n\n');
  const { person, page, raw } = await open(t, { answer });
  await person.waitsForModel();
  await person.asks('<b id="bold">hello</b><script>window.broken = 7</script>');
  const said = await person.answer();
  for (const word of ['<script>window.broken = 1</script>', 'onerror=', '<iframe', '<svg', '<style>'])
    t.check(said.text.includes(word), `${word} is not text`);
  const made = 'script, img, iframe, b, style, [onerror], [onload], a[href^="javascript"]';
  const found = await raw.$$eval('.message', (all, made) => all.map((one) => one.querySelector(made)?.outerHTML), made);
  t.equal(found, [null, null], 'elements');
  t.equal(await page.run(() => window.broken ?? 0), 0, 'a script ran');
  // The policy by itself: a page that tried would fail.
  const tried = await page.run(() => {
    try {
      document.body.innerHTML = '<b>x</b>';
      return 'done';
    } catch (error) {
      return error.name;
    }
  });
  t.equal(tried, 'TypeError', 'text as HTML, tried by the page');
  checkClean(t, page, /TrustedHTML/);
});

// Seen to fail with the key left out of requests, and with a wrong one that is not asked for again.
test('served: the page asks for a key', { seconds: 120 }, async (t) => {
  const { person, page, raw } = await open(t, { options: ['--api-key', 'secret'] });
  for (const key of ['wrong', 'secret']) {
    await raw.waitForSelector('#key');
    await raw.type('#key', key);
    await raw.keyboard.press('Enter');
    if (key === 'wrong') await person.waits(() => document.querySelector('#key')?.value === '');
  }
  await person.waitsForModel();
  await person.asks(question);
  t.check((await person.answer()).text.length > 20, 'answer');
  await page.reload();
  await person.waitsForModel();
  checkClean(t, page, /401/);
});

// Seen to fail with the file left out of what the model is given.
test('served: a text goes with the question', { seconds: 60 }, async (t) => {
  const { person, page, raw } = await open(t);
  await person.waitsForModel();
  const asked = new Promise((done) =>
    raw.on('request', (request) => {
      if (request.url().endsWith('/chat/completions')) done(JSON.parse(request.postData()));
    }),
  );
  const [chooser] = await Promise.all([raw.waitForFileChooser(), person.press('Attach a text or an image')]);
  await chooser.accept([path.join(root, 'LICENSE')]);
  await raw.waitForSelector('#files li');
  t.check((await person.text('#files')).includes('LICENSE'), 'chip');
  await person.asks('What is this?');
  await raw.waitForSelector('.attached');
  t.equal(await raw.$$eval('#files li', (all) => all.length), 0, 'chips that stay');
  const { content } = (await asked).messages.at(-1);
  const license = await readFile(path.join(root, 'LICENSE'), 'utf8');
  t.check(content.includes(license) && content.endsWith('\n\nWhat is this?'), content.slice(0, 200));
  checkClean(t, page, /400/); // it is longer than this model's context
});

// Seen to fail with img-src 'self' alone in the policy.
test('served: an image goes with the question', { seconds: 60 }, async (t) => {
  const model = path.join(root, 'tests/oracles/qwen35_sees');
  const { person, page, raw } = await open(t, { model, settings: { maxTokens: 4 } });
  await person.waitsForModel('qwen35_sees');
  const asked = new Promise((done) =>
    raw.on('request', (request) => {
      if (request.url().endsWith('/chat/completions')) done(JSON.parse(request.postData()));
    }),
  );
  const bytes = await readFile(path.join(model, 'image.png'));
  const shown = (where) =>
    person.waits((query) => document.querySelector(query)?.naturalWidth > 0, `${where} img.image`);
  // As it comes from a clipboard.
  await raw.evaluate((base64) => {
    const data = new DataTransfer();
    const file = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    data.items.add(new File([file], 'image.png', { type: 'image/png' }));
    const event = new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true });
    document.getElementById('input').dispatchEvent(event);
  }, bytes.toString('base64'));
  await shown('#files');
  await person.asks('What is it?');
  await shown('.said');
  const { content } = (await asked).messages.at(-1);
  const url = `data:image/png;base64,${bytes.toString('base64')}`;
  t.equal(content[0].image_url.url, url, 'the image that is sent');
  t.equal(content[1].text, 'What is it?', 'the text behind it');
  await person.waits(() => document.querySelector('.message.assistant .stats')?.textContent);
  t.equal(await raw.$$eval('.failure:not([hidden])', (all) => all.length), 0, 'failures');
  await page.reload();
  await shown('.said');
  checkClean(t, page);
});

// Seen to fail with tokens that are counted when their answer is over.
test('served: the status says what the server does now', { seconds: 60 }, async (t) => {
  const { person, page, raw, url } = await open(t, { options: ['--parallel', '3', '-c', '64K'] });
  await person.waitsForModel();
  const left = new AbortController();
  t.cleanup(() => left.abort());
  await fetch(`${url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'Once', max_tokens: 60000, ignore_eos: true, stream: true }),
    signal: left.signal,
  });
  await person.press('What the server does');
  await person.waits(() => document.querySelector('.slots .busy'));
  await person.waits(() => parseFloat(document.querySelector('.speed strong')?.textContent) > 0);
  t.equal(await raw.$$eval('.slots li', (all) => all.length), 3, 'slots');
  const facts = await raw.$eval('.facts', (one) => one.innerText.replace(/\s+/g, ' '));
  t.check(/1 running, 0 waiting/.test(facts), facts);
  t.check(/Memory [\d.]+ MB/.test(facts) && /Context 65,536 tokens/.test(facts), facts);
  checkClean(t, page);
});

// Seen to fail with a button without a name, and a field of 400 pixels.
test('served: by keyboard, on a phone, dark', { seconds: 60 }, async (t) => {
  const { person, page, raw } = await open(t);
  await person.waitsForModel();
  const light = await page.run(() => getComputedStyle(document.body).backgroundColor);
  await raw.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
  t.check((await page.run(() => getComputedStyle(document.body).backgroundColor)) !== light, 'dark');
  await raw.setViewport({ width: 360, height: 740, isMobile: true, hasTouch: true });
  await page.reload();
  await person.waitsForModel();
  const wide = await page.run(() => document.scrollingElement.scrollWidth - 360);
  t.check(wide <= 0, `${wide} pixels wider than the screen`);
  const nameless = [];
  const walk = ({ role, name, children = [] }) => {
    if (['button', 'link', 'textbox', 'meter'].includes(role) && !name) nameless.push(role);
    children.forEach(walk);
  };
  walk(await raw.accessibility.snapshot());
  t.equal(nameless, [], 'without a name');
  await raw.setViewport({ width: 1200, height: 800 });
  await page.reload();
  await person.waitsForModel();
  await raw.focus('.skip-link');
  await raw.keyboard.press('Enter');
  await raw.keyboard.type('A cat.');
  await raw.keyboard.press('Enter');
  await person.answer();
  const told = () => /^Answer: /.test(document.querySelector('#announce').textContent);
  t.check(await page.run(told), 'the answer is not read aloud');
  await raw.keyboard.press('ArrowUp');
  t.equal(await page.run(() => document.activeElement.getAttribute('aria-label')), 'Edit your message', 'focus');
  checkClean(t, page);
});
