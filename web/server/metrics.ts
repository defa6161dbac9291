// What /metrics says, and how fast that changes.

export type Metrics = Map<string, number>; // by name; series that differ in labels are added up

/** Reads Prometheus's text format. Lines that are none are left out. */
export function readMetrics(text: string): Metrics {
  const all: Metrics = new Map();
  for (const line of text.split('\n')) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})? (\S+)/.exec(line);
    if (!found) continue;
    const value = Number(found[2] === '+Inf' ? Infinity : found[2]);
    if (!Number.isNaN(value)) all.set(found[1]!, (all.get(found[1]!) ?? 0) + value);
  }
  return all;
}

export interface Sample {
  at: number; // milliseconds
  metrics: Metrics;
}

/** How much a counter grew a second between two samples; a server that began anew counts from 0. */
export function rate(name: string, from: Sample, to: Sample): number {
  const seconds = (to.at - from.at) / 1000;
  const [before, after] = [from.metrics.get(name) ?? 0, to.metrics.get(name) ?? 0];
  return seconds > 0 ? (after >= before ? after - before : after) / seconds : 0;
}

/** The mean of a histogram's values between two samples; null: there were none. */
export function mean(name: string, from: Sample, to: Sample): number | null {
  const grown = (end: string) =>
    (to.metrics.get(name + end) ?? 0) - (from.metrics.get(name + end) ?? 0);
  const n = grown('_count');
  return n > 0 ? grown('_sum') / n : null;
}
