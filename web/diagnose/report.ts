// The report of a diagnosis: plain data, as JSON and as a text for a bug report.

export type Status = 'ok' | 'warn' | 'fail' | 'skip';
export interface Row {
  name: string;
  value: string;
  ok?: boolean;
}
export interface StepResult {
  status: Status;
  summary: string;
  rows: Row[];
}
export interface StepReport extends StepResult {
  id: string;
  title: string;
  seconds: number;
}
export interface Report {
  format: 'tern-web-diagnose';
  version: 1;
  when: string;
  page: string;
  steps: StepReport[];
}

const MARKS: Record<Status, string> = { ok: 'ok    ', warn: 'note  ', fail: 'FAILED', skip: '-     ' };

/** One sentence: what it all comes to. */
export function verdict(steps: readonly StepReport[]): { status: Status; text: string } {
  const failed = steps.filter((step) => step.status === 'fail');
  if (failed.length)
    return {
      status: 'fail',
      text: `${failed.length} of ${steps.length} steps failed: ${failed.map((step) => step.title.toLowerCase()).join(', ')}.`,
    };
  const by = (id: string) => steps.find((step) => step.id === id)?.status === 'ok';
  const on = [by('wasm-kernels') && 'the processor', by('gpu-kernels') && 'WebGPU'].filter(Boolean);
  if (on.length === 0) return { status: 'warn', text: 'Nothing was found wrong, but no kernel was checked.' };
  return { status: 'ok', text: `Models run correctly here on ${on.join(' and on ')}.` };
}

export function reportText(report: Report): string {
  const lines = [`tern diagnose, ${report.when}`, report.page, ''];
  for (const step of report.steps) {
    lines.push(`${MARKS[step.status]} ${step.title}: ${step.summary} (${step.seconds.toFixed(1)} s)`);
    const width = Math.min(34, Math.max(0, ...step.rows.map((row) => row.name.length)));
    for (const { name, value, ok } of step.rows)
      lines.push(
        `         ${name.padEnd(width)}  ${ok === false ? 'FAILED: ' : ''}${value.replace(/\s+/g, ' ')}`,
      );
  }
  lines.push('', `verdict: ${verdict(report.steps).text}`);
  return lines.join('\n') + '\n';
}
