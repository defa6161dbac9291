// Makes the images of the page in docs/images again: real answers of the carried model in Chromium.
// usage: node web/server/images.mjs [TERN]     (after `make`; images of the same build are alike, not equal)
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(fileURLToPath(import.meta.url), '../../..');
const require = createRequire(path.join(root, 'packages/tern/package.json'));
const { default: puppeteer } = await import(require.resolve('puppeteer-core'));
const tern = process.argv[2] ?? path.join(root, 'build/tern');
const SETTINGS = { temperature: 0.7, seed: 4, maxTokens: 160 };

const args = ['serve', path.join(root, 'models/stories.gguf'), '--port', '0', '-c', '16K', '--parallel', '12'];
const server = spawn(tern, args, { stdio: ['ignore', 'ignore', 'pipe'] });
process.on('exit', () => server.kill());
const url = await new Promise((done, fail) => {
  server.stderr.on('data', (text) => {
    const found = /listening url=(\S+)/.exec(String(text));
    if (found) done(found[1]);
  });
  server.on('exit', () => fail(new Error('the server has ended')));
});

const browser = await puppeteer.launch({
  executablePath: process.env.TERN_CHROMIUM ?? '/usr/bin/chromium',
  headless: true,
  args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});
const page = await browser.newPage();
await page.setViewport({ width: 1100, height: 700 });
await page.evaluateOnNewDocument((text) => {
  try {
    localStorage['tern-chat-settings'] ??= text;
  } catch {
    // The empty document before the first one has no storage.
  }
}, JSON.stringify(SETTINGS));
const shoot = (name) => page.screenshot({ path: path.join(root, `docs/images/${name}.png`) });
const scheme = (value) => page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value }]);
await scheme('light');
await page.goto(url);
await page.waitForFunction(() => document.querySelector('#model-name').textContent === 'stories');
for (const [n, question] of ['Write a story about a key.', 'Write a bedtime story about a fox.'].entries()) {
  if (n) await page.click('main [aria-label="New conversation"]');
  await page.type('#input', question);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.stats')?.textContent.includes('tokens/s'));
}
await shoot('server-chat');

const left = new AbortController();
for (let seed = 1; seed <= 5; seed++)
  await fetch(`${url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ prompt: 'Once', seed, max_tokens: 15000, ignore_eos: true, stream: true }),
    signal: left.signal,
  });
await scheme('dark');
await page.click('[aria-label="What the server does"]');
await new Promise((done) => setTimeout(done, 10_000));
await shoot('server-status');
left.abort();
await browser.close();
server.kill();
