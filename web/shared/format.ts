// Numbers for people: sizes, times, speeds.

export { formatBytes } from '../../packages/tern/src/bytes.ts';

/** "3 s", "4 min 5 s", "2 h 3 min". */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return '?';
  if (seconds < 10) return `${seconds < 1 ? seconds.toFixed(2) : seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ''}`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** Of what is still to come, whole seconds are said: "3 s", "4 min". */
export function formatLeft(seconds: number): string {
  const whole = Math.max(1, Math.round(seconds));
  return whole < 10
    ? `${whole} s`
    : whole < 100
      ? formatDuration(whole)
      : formatDuration(Math.round(whole / 60) * 60);
}

/** Tokens a second: "1234", "42.5", "0.83". */
export function formatRate(perSecond: number): string {
  if (!Number.isFinite(perSecond) || perSecond < 0) return '?';
  return perSecond >= 100
    ? String(Math.round(perSecond))
    : perSecond >= 10
      ? perSecond.toFixed(1)
      : perSecond.toFixed(2);
}

/** The heading that a conversation of this time stands under: "Today", ..., "March", "March 2025". */
export function formatDay(time: number, now = Date.now()): string {
  const day = (t: number) => Math.floor((t - new Date(t).getTimezoneOffset() * 60000) / 86400000);
  const ago = day(now) - day(time);
  if (ago <= 0) return 'Today';
  if (ago === 1) return 'Yesterday';
  if (ago < 7) return 'Previous 7 days';
  const date = new Date(time);
  return date.toLocaleDateString(undefined, {
    month: 'long',
    ...(date.getFullYear() !== new Date(now).getFullYear() && { year: 'numeric' }),
  });
}

/** Where a model computes: the engine names instruction sets and drivers, people know the parts of their device. */
export function deviceWords(device: string): string {
  const kind = /^(cpu|wasm)/i.test(device) ? 'Processor' : /^webgpu/i.test(device) ? 'Graphics' : '';
  if (!kind) return device;
  const threads = /\d+ threads?/.exec(device)?.[0];
  return threads ? `${kind}, ${threads}` : kind;
}
