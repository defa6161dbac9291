// The browsers themselves, and the server's faults: what every other test here builds on.
import { execFileSync } from 'node:child_process';
import { test } from './harness.mjs';
import { build } from './native.mjs';

const roots = { '/tests/': new URL('pages', import.meta.url).pathname };
const probe = async () => (await import('/tests/ask.js')).ask('/tests/probe.js', 0);

const expected = {
  chromium: { simd: true, relaxed: true, isolated: true, shared: true, opfs: 'sync' },
  firefox: { simd: true, relaxed: true, isolated: true, shared: true, opfs: 'sync' },
  webkit: { simd: true, relaxed: false },
};
for (const [which, features] of Object.entries(expected))
  test(`browsers: ${which} has what the engine needs`, { seconds: 60 }, async (t) => {
    const server = await t.serve({ roots });
    const page = await (await t.browser(which)).page();
    await page.goto(`${server.url}/tests/blank.html`);
    const report = await page.run(probe);
    for (const [name, want] of Object.entries(features)) t.equal(report[name], want, name);
  });

test(
  'browsers: chromium has an adapter where it is asked for, and none elsewhere',
  {},
  async (t) => {
    const server = await t.serve({ roots });
    for (const webgpu of [true, false]) {
      const page = await (await t.browser('chromium', { webgpu })).page();
      await page.goto(`${server.url}/tests/blank.html`);
      const { adapter } = await page.run(probe);
      t.equal(/swiftshader/.test(adapter), webgpu, `adapter "${adapter}"`);
    }
  },
);

// tools/web/wasm_loops.c says why. The other modules, which WebKit does not run, show that it sees such functions.
test('browsers: no module for WebKit leaves floats to its interpreter', {}, async (t) => {
  const built = `${build}/web/`;
  const left = (name) => Number(execFileSync(`${built}wasm_loops`, ['-c', built + name]));
  for (const name of ['tern.wasm', 'tern-check.wasm']) t.equal(left(name), 0, name);
  t.check(left('tern-relaxed.wasm') > 50, `tern-relaxed.wasm: only ${left('tern-relaxed.wasm')}`);
});
