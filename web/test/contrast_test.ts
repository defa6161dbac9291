// Colours that text is written in have a contrast of 4.5 or more (WCAG AA) on each surface that they stand
// on, and lines that mark a field 3 or more; in both schemes, in the pages and in the widget.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';

const root = process.env.TERN_WEB!; // web/test/run.mjs says where the sources are
const tokens = (text: string) =>
  Object.fromEntries(
    [...text.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6})\b/g)].map(([, name, value]) => [name!, value!]),
  );

function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const value = parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}
function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high! + 0.05) / (low! + 0.05);
}

// Seen to fail with --muted of the light scheme made #7b898f.
function check(css: string, pairs: [string, string[], number][]): void {
  const at = css.indexOf('@media (prefers-color-scheme: dark)');
  const light = tokens(css.slice(0, at));
  for (const [scheme, set] of [
    ['light', light],
    ['dark', { ...light, ...tokens(css.slice(at)) }],
  ] as const) {
    for (const [front, backs, least] of pairs) {
      for (const back of backs) {
        const found = contrast(set[front]!, set[back]!);
        assert.ok(found >= least, `${scheme}: ${front} on ${back} has ${found.toFixed(2)}, not ${least}`);
      }
    }
  }
}

test('contrast of the pages', () =>
  check(readFileSync(path.join(root, 'shared/base.css'), 'utf8'), [
    ['ink', ['bg', 'surface', 'raised', 'line', 'code', 'accent-soft'], 4.5],
    ['muted', ['bg', 'surface', 'raised', 'code'], 4.5],
    ['on-accent', ['accent', 'accent-strong'], 4.5],
    ['accent', ['bg', 'surface', 'raised'], 4.5],
    ['accent-strong', ['bg', 'surface', 'raised'], 4.5],
    ['bad', ['bg', 'surface', 'raised'], 4.5],
    ['bg', ['ink'], 4.5],
    ['good', ['surface'], 3],
    ['warn', ['surface'], 3],
    ['line-strong', ['bg', 'surface'], 3],
    ['accent', ['raised'], 3],
  ]));
test('contrast of the widget', () =>
  check(readFileSync(path.join(root, 'tldr/widget.css'), 'utf8'), [
    ['ink', ['bg', 'raised'], 4.5],
    ['muted', ['bg'], 4.5],
    ['on', ['accent', 'strong'], 4.5],
    ['bad', ['bg'], 4.5],
    ['accent', ['bg'], 3],
  ]));
