// The engine in a browser's worker, for tests: no package around it, files from the test server.
import path from 'node:path';
import { build, root } from './native.mjs';

export const webRoots = {
  '/': path.join(build, 'web/pages'),
  '/tests/': path.join(root, 'tests/web/pages'),
  '/models/': path.join(root, 'models'),
  '/oracles/': path.join(root, 'tests/oracles'),
  '/build/': build,
  '/package/': path.join(root, 'packages/tern/dist'), // with what the pages do not use
  '/sqlite/': path.join(root, 'packages/tern/node_modules/@sqlite.org/sqlite-wasm/dist'),
};
export const storiesFile = {
  files: [{ name: 'stories.gguf', url: '/models/stories.gguf' }],
  path: 'stories.gguf',
};

// A page of the browser on a server of its own, and a function that asks its engine (engine.js).
export async function enginePage(t, which, { isolated = true, ...options } = {}) {
  const server = await t.serve({ roots: webRoots, isolated });
  const page = await (await t.browser(which, options)).page();
  await page.goto(`${server.url}/tests/blank.html`);
  const work = async (question) =>
    (await import('/tests/ask.js')).ask('/tests/engine.js', question);
  return { server, page, ask: (question) => page.run(work, question) };
}

// Which modules run where: WebKitGTK refuses relaxed SIMD, and shares no memory.
export const builds = {
  chromium: ['simd', 'relaxed', 'threads'],
  firefox: ['simd', 'relaxed', 'threads'],
  webkit: ['simd'],
};
