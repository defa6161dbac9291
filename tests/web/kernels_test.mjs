// Every kernel of every module against the plain one, where the browsers run them: a fused
// multiply-add or a dot product that a browser compiles wrongly would be seen here first.
import { builds, enginePage } from './engine.mjs';
import { test } from './harness.mjs';

// One module of checks, of relaxed's objects, is for relaxed and threads.
for (const [which, names] of Object.entries(builds))
  for (const build of names.filter((name) => name !== 'threads'))
    test(`kernels: ${build} in ${which}`, { seconds: 120 }, async (t) => {
      const { ask } = await enginePage(t, which);
      const report = await ask({ job: 'check', build, device: 'cpu', threads: 2 });
      t.equal(report.engine.build, build, 'module');
      t.check(report.kernels.length > 30, `${report.kernels.length} checks`);
      t.equal(report.nFailed, 0, 'failed checks');
      for (const { name, ok, detail } of report.kernels) t.check(ok, `${name}: ${detail}`);
    });
