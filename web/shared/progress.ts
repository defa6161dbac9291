// How far a load is, in words and as a bar.
import type { Progress } from 'tern-engine';
import { h } from './dom.ts';
import { formatBytes, formatLeft } from './format.ts';

const PHASES: Record<string, string> = {
  resolve: 'Looking the model up',
  wait: 'Another tab is downloading this model',
  retry: 'Trying again',
  verify: 'Checking the stored files',
  download: 'Downloading',
  read: 'Reading',
  open: 'Opening',
  load: 'Opening',
};

/** "Downloading · 420 MB of 1.2 GB · 34 MB/s · 25 s left". */
export function progressText(progress: Progress | null): string {
  if (!progress) return 'Starting';
  const { phase, loaded, total, bytesPerSecond, reason } = progress;
  if (phase === 'retry' && reason) return `${reason}. Trying again`;
  const parts = [PHASES[phase] ?? phase.charAt(0).toUpperCase() + phase.slice(1)];
  if (loaded > 0 || phase === 'download')
    parts.push(total > 0 ? `${formatBytes(loaded)} of ${formatBytes(total)}` : formatBytes(loaded));
  if (bytesPerSecond > 0 && phase === 'download') {
    parts.push(`${formatBytes(bytesPerSecond)}/s`);
    if (total > loaded) parts.push(`${formatLeft((total - loaded) / bytesPerSecond)} left`);
  }
  return parts.join(' · ');
}

export class ProgressBar {
  private readonly fill = h('div', null);
  readonly element = h(
    'div',
    { class: 'bar unknown', role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100 },
    this.fill,
  );

  constructor(label: string) {
    this.element.setAttribute('aria-label', label);
  }

  show(progress: Progress | null): void {
    const known = progress !== null && (progress.total > 0 || progress.fraction > 0);
    this.element.classList.toggle('unknown', !known);
    if (known) {
      this.fill.style.transform = `scaleX(${Math.min(1, progress.fraction)})`;
      this.element.setAttribute('aria-valuenow', String(Math.round(progress.fraction * 100)));
    } else {
      this.fill.style.transform = '';
      this.element.removeAttribute('aria-valuenow');
    }
    this.element.setAttribute('aria-valuetext', progressText(progress));
  }
}
