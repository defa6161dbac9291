// How much memory the pages of a Chromium have: their processes' private pages, which hold all that
// JavaScript and WebAssembly allocate, and the browser's own needs for a page (a baseline to subtract).
import { readFileSync } from 'node:fs';

const PERIOD = 20; // ms

function anonymousBytes(pid) {
  try {
    const line = /^RssAnon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return line ? Number(line[1]) * 1024 : 0;
  } catch {
    return 0; // it has ended
  }
}

// The process ids of the pages of a Chromium.
export async function rendererPids(browser) {
  const devtools = await browser.raw.target().createCDPSession();
  const { processInfo } = await devtools.send('SystemInfo.getProcessInfo');
  await devtools.detach();
  return processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
}

// Runs work() and returns how far the pages' memory rose above its beginning: { now, most } in bytes,
// and what work() returned.
export async function watchMemory(browser, work) {
  const pids = await rendererPids(browser);
  const total = () => pids.reduce((n, pid) => n + anonymousBytes(pid), 0);
  const base = total();
  if (!base) throw new Error('no process of a page was found');
  let most = 0;
  const timer = setInterval(() => (most = Math.max(most, total() - base)), PERIOD);
  try {
    const result = await work();
    const now = total() - base;
    return { result, now, most: Math.max(most, now) };
  } finally {
    clearInterval(timer);
  }
}
