// The results of a device check, for display and for sending to others.
import type { CheckItem, CheckReport, LadderItem } from './engine/types.js';

export class Report implements CheckReport {
  readonly build: CheckReport['build'];
  readonly device: string;
  readonly nFailed: number;
  readonly kernels: CheckItem[];
  readonly ladder: LadderItem[];
  readonly browser: string;
  readonly isolated: boolean; // whether threads are possible
  readonly notes: readonly string[];

  constructor(report: CheckReport, notes: readonly string[] = []) {
    ({ build: this.build, device: this.device, nFailed: this.nFailed, kernels: this.kernels, ladder: this.ladder }
      = report);
    this.browser = (globalThis.navigator as Navigator | undefined)?.userAgent ?? '';
    this.isolated = globalThis.crossOriginIsolated === true;
    this.notes = notes;
  }

  get ok(): boolean {
    return this.nFailed === 0;
  }

  toText(): string {
    const line = (name: string, value: string) => `${name.padEnd(24)} ${value}`;
    const verdict = (ok: boolean, seconds: number, detail: string) =>
      `${ok ? 'ok    ' : 'FAILED'} ${seconds.toFixed(3)} s  ${detail}`;
    return [
      line('browser', this.browser || 'none'),
      line('cross-origin isolated', this.isolated ? 'yes' : 'no: one thread'),
      line('module', this.build),
      line('device', this.device),
      ...this.notes.map(note => line('note', note)),
      ...this.ladder.map(step => step.fact === undefined
        ? line(step.check ?? '', verdict(step.ok === true, step.seconds ?? 0, step.detail ?? ''))
        : line(step.fact, step.value ?? '')),
      ...this.kernels.map(kernel => line(kernel.name, verdict(kernel.ok, kernel.seconds, kernel.detail))),
      line('failed', String(this.nFailed)),
    ].join('\n');
  }

  // `ok`, too, which a getter would keep out of JSON.
  toJSON(): object {
    return { ...this, ok: this.ok };
  }
}
