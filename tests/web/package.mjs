// The package in a page of a browser, for tests: pages/package.js and how to ask it.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { webRoots } from './engine.mjs';
import { greedy, stories } from './native.mjs';

export const modelBytes = readFileSync(stories);
export const modelHash = createHash('sha256').update(modelBytes).digest('hex');
export const modelPath = '/models/stories.gguf';
export const text = { prompt: 'Once upon a time', maxTokens: 32 };

let native;
export async function nativeText() {
  native ??= greedy(stories, text.prompt, text.maxTokens);
  return (await native).text;
}

// call(name, ...args): a function of pages/package.js, in a page of `browser`. reopen(): another page
// of the same browser, the old one gone.
export class PackagePage {
  constructor(browser, server) {
    this.browser = browser;
    this.server = server;
  }

  static async open(t, which, { server, ...options } = {}) {
    server ??= await t.serve({ roots: webRoots });
    const page = new PackagePage(await t.browser(which, options), server);
    await page.reopen();
    return page;
  }

  async reopen() {
    await this.page?.close();
    this.page = await this.browser.page();
    await this.page.goto(`${this.server.url}/tests/blank.html`);
  }

  call(name, ...args) {
    return this.page.run(
      async (name, args) => (await import('/tests/package.js'))[name](...args),
      name,
      args,
    );
  }

  get modelUrl() {
    return this.server.url + modelPath;
  }
}
