// Images of the pages in a headless browser, light and dark, on a desk and on a phone: to be looked at.
// usage: node web/test/look.mjs URL OUT [NAME...]     (URL: where the pages are served)
import { mkdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(
  path.join(path.dirname(fileURLToPath(import.meta.url)), '../../packages/tern/package.json'),
);
const { default: puppeteer } = await import(require.resolve('puppeteer-core'));
const [base, out, ...wanted] = process.argv.slice(2);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const ready = (page) =>
  page.waitForFunction(() => document.getElementById('loading').hidden, { timeout: 60000 });
const ask = async (page, text) => {
  await ready(page);
  await page.type('#input', text);
  await page.click('#send');
  await sleep(300);
  await page.waitForFunction(() => document.querySelector('.message.assistant:last-child .stats'), {
    timeout: 60000,
  });
};
const SCENES = {
  home: [
    '',
    async (page) => {
      await page.waitForFunction(() => !document.getElementById('again').hidden, { timeout: 60000 });
    },
  ],
  welcome: ['chat/', ready],
  answer: ['chat/', (page) => ask(page, 'Write a bedtime story about a fox.')],
  top: [
    'chat/',
    async (page) => {
      await ask(page, 'Hello');
      await page.$eval('#scroller', (e) => (e.scrollTop = 0));
    },
  ],
  text: [
    'chat/',
    async (page) => {
      await ready(page);
      await page.$$eval('.kinds button', (all) => all[1].click());
      await page.$eval('.ideas button', (idea) => idea.click());
      await page.waitForFunction(() => !document.querySelector('#text-actions button').hidden, {
        timeout: 60000,
      });
    },
  ],
  models: [
    'chat/',
    async (page) => {
      await ready(page);
      await page.click('#model-button');
      await sleep(400);
    },
  ],
  loading: [
    'chat/',
    async (page) => {
      await ready(page);
      await page.click('#model-button');
      await page.$$eval('.models-dialog .models button', (all) =>
        all.find((b) => /BitNet/.test(b.getAttribute('aria-label'))).click(),
      );
      await sleep(700);
    },
  ],
  settings: [
    'chat/',
    async (page) => {
      await ready(page);
      await page.$eval('#top-right button', (b) => b.click());
      await sleep(200);
    },
  ],
  sidebar: [
    'chat/',
    async (page) => {
      await ask(page, 'Hello');
      if (await page.$eval('#top-left', (e) => e.offsetWidth > 0)) await page.click('#top-left button');
      await page.$eval('#talks .more', (b) => b.click());
      await sleep(300);
    },
  ],
  tldr: [
    'tldr/',
    async (page) => {
      await page.waitForSelector('.tern-tldr');
      await page.evaluate(() =>
        document.querySelector('.tern-tldr').shadowRoot.querySelector('.open').click(),
      );
      await page.waitForFunction(
        () =>
          document
            .querySelector('.tern-tldr')
            .shadowRoot.querySelector('.note')
            .textContent.includes('tokens/s'),
        { timeout: 60000 },
      );
    },
  ],
  voice: ['voice/', (page) => page.$eval('#settings', (one) => (one.open = true))],
  diagnose: [
    'diagnose/',
    async (page) => {
      await page.click('#go');
      await page.waitForFunction(() => document.documentElement.dataset.done, { timeout: 180000 });
    },
  ],
};

await mkdir(out, { recursive: true });
const browser = await puppeteer.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu-watchdog'],
});
try {
  for (const [name, [where, act]] of Object.entries(SCENES)) {
    if (wanted.length && !wanted.includes(name)) continue;
    for (const [size, width, height, mobile] of [
      ['desk', 1280, 800, false],
      ['phone', 360, 740, true],
    ]) {
      for (const scheme of ['light', 'dark']) {
        const context = await browser.createBrowserContext();
        const page = await context.newPage();
        page.on('pageerror', (error) => console.log(`${name} ${size}: ${error.message}`));
        page.on(
          'console',
          (message) =>
            ['error', 'warn'].includes(message.type()) && console.log(`${name} ${size}: ${message.text()}`),
        );
        await page.setViewport({ width, height, isMobile: mobile, hasTouch: mobile, deviceScaleFactor: 1 });
        await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
        try {
          await page.goto(new URL(where, base).href);
          await act(page);
          await sleep(250);
        } catch (error) {
          console.log(`${name} ${size} ${scheme}: ${error.message}`);
        }
        const wide = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        if (wide > 0) console.log(`${name} ${size}: ${wide} pixels too wide`);
        await page.screenshot({ path: path.join(out, `${name}-${size}-${scheme}.png`) });
        await context.close();
      }
    }
  }
} finally {
  await browser.close();
}
