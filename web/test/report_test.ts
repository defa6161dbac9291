// The report of a diagnosis, and what the source of the pages must not have.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { type Report, reportText, type StepReport, verdict } from '../diagnose/report.ts';

const step = (id: string, status: StepReport['status'], rows: StepReport['rows'] = []): StepReport => ({
  id,
  title: `Step ${id}`,
  status,
  summary: `about ${id}`,
  seconds: 1.25,
  rows,
});

// Seen to fail with steps that were left out counted as good.
test('the verdict', () => {
  assert.deepEqual(verdict([step('wasm-kernels', 'ok'), step('gpu-kernels', 'skip')]), {
    status: 'ok',
    text: 'Models run correctly here on the processor.',
  });
  assert.deepEqual(
    verdict([step('wasm-kernels', 'ok'), step('gpu-kernels', 'ok')]).text,
    'Models run correctly here on the processor and on WebGPU.',
  );
  assert.deepEqual(verdict([step('wasm-kernels', 'ok'), step('gpu-kernels', 'fail')]), {
    status: 'fail',
    text: '1 of 2 steps failed: step gpu-kernels.',
  });
  assert.equal(verdict([step('browser', 'ok')]).status, 'warn');
});

test('the report as text', () => {
  const report: Report = {
    format: 'tern-web-diagnose',
    version: 1,
    when: '2026-01-01T00:00:00Z',
    page: 'https://a.b/diagnose/',
    steps: [
      step('browser', 'warn', [
        { name: 'cores', value: '4' },
        { name: 'isolated', value: 'no\nreally', ok: false },
      ]),
      step('gpu', 'skip'),
    ],
  };
  assert.equal(
    reportText(report),
    `tern diagnose, 2026-01-01T00:00:00Z
https://a.b/diagnose/

note   Step browser: about browser (1.3 s)
         cores     4
         isolated  FAILED: no really
-      Step gpu: about gpu (1.3 s)

verdict: Nothing was found wrong, but no kernel was checked.
`,
  );
});

// Seen to fail with an innerHTML put into thread.ts, and with an onclick into an index.html.
test('no source makes HTML of text, and no page has script or style in it', () => {
  const root = process.env.TERN_WEB!;
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
    (name) => /\.(ts|html)$/.test(name) && !name.startsWith('test'),
  );
  assert.ok(files.length > 25, `${files.length}`);
  for (const name of files) {
    const text = readFileSync(path.join(root, name), 'utf8');
    if (name.endsWith('.ts'))
      assert.doesNotMatch(
        text,
        /innerHTML|outerHTML|insertAdjacentHTML|document\.write\b|DOMParser|createContextualFragment|setHTML|\beval\(|new Function\b|blob:/,
        name,
      );
    else {
      assert.doesNotMatch(text, /<style|\sstyle=|\son[a-z]+=|javascript:/i, name);
      for (const [tag] of text.matchAll(/<script[^>]*>/g)) assert.match(tag, / src="/, name);
      assert.doesNotMatch(text, /(src|href)="(https?:)?\/\//, name); // all that a page loads is its own
    }
  }
});
