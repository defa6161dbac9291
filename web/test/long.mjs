// How long a conversation of N messages, among N conversations, takes to open, and a key in it: medians, in headless
// chromium. usage: node web/test/long.mjs [N] [FOLDER]     (default: 1000, build/web/pages)
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { createServer } from '../serve.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const require = createRequire(path.join(here, '../../packages/tern/package.json'));
const { default: puppeteer } = await import(require.resolve('puppeteer-core'));
const [n = '1000', root = path.join(here, '../../build/web/pages')] = process.argv.slice(2);
const TIMES = 9;
const KEYS = 100;

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const told = (name, values) =>
  console.log(`${name.padEnd(44)} ${median(values).toFixed(1)} ms, at most ${Math.max(...values).toFixed(1)} ms`);

// In the page: a long conversation, and as many short ones, into the database that it has made.
async function fill(count) {
  const request = indexedDB.open('tern-chat', 1);
  await new Promise((resolve, reject) => Object.assign(request, { onsuccess: resolve, onerror: reject }));
  const table = request.result.transaction('conversations', 'readwrite').objectStore('conversations');
  const answer = '**An answer** with a list:\n\n- one\n- two `code`\n\n```c\nint main(void) { return 0; }\n```\n\n';
  const turn = (i) =>
    i % 2
      ? { role: 'assistant', content: answer + 'It goes on for a while, as answers do. '.repeat(12) }
      : { role: 'user', content: `Question ${i}: what is the weather like where you are, and why?` };
  const put = (id, title, messages, updated) =>
    table.put({ id, kind: 'chat', title, named: true, created: updated, updated, model: '', messages, text: '', pieces: [], revision: 1 });
  put('long', 'The long one', Array.from({ length: count }, (_, i) => turn(i)), Date.now() + 1e6);
  for (let i = 1; i < count; i++) put(`short${i}`, `Conversation ${i}`, [turn(0), turn(1)], i * 1e6);
  await new Promise((resolve) => (table.transaction.oncomplete = resolve));
  request.result.close();
}

// In the page: from a click on a conversation to the frame that shows it.
async function openTalk(title) {
  const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const button = [...document.querySelectorAll('#talks .open')].find((one) => one.textContent === title);
  await painted();
  const from = performance.now();
  button.click();
  while (!document.querySelector('.message') || document.querySelector('#talks .open[aria-current]')?.textContent !== title)
    await painted();
  await painted();
  return performance.now() - from;
}

// In the page: what a key makes the page compute, with its styles and layout, but not the painting.
function keys(count) {
  document.querySelector('#input').focus();
  return Array.from({ length: count }, (_, i) => {
    const from = performance.now();
    document.execCommand('insertText', false, i % 6 ? 'a' : ' ');
    document.body.getBoundingClientRect();
    return performance.now() - from;
  });
}

const server = await createServer({ root });
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const browser = await puppeteer.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 800 });
  const load = async () => {
    await page.goto(`http://localhost:${server.address().port}/chat/`);
    await page.waitForFunction(() => document.querySelector('#device') && !document.querySelector('#device').hidden);
  };
  await load();
  await page.evaluate(fill, Number(n));
  await load();
  const listed = await page.$$eval('#talks .open', (all) => all.length);
  if (listed !== Number(n)) throw new Error(`the list has ${listed} conversations`);
  const opened = [];
  for (let i = 0; i < TIMES; i++) {
    await page.evaluate(openTalk, `Conversation ${i + 1}`);
    opened.push(await page.evaluate(openTalk, 'The long one'));
  }
  told(`a conversation of ${n} messages opens`, opened);
  told('a key in it', await page.evaluate(keys, KEYS));
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
