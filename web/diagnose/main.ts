// The page: runs the steps one after the other and shows each result as it comes.
import { byId, copyText, h, icon, type IconName, saveFile, toast } from '../shared/dom.ts';
import { startServiceWorker } from '../shared/pwa.ts';
import { type Report, reportText, type Status, type StepReport, verdict } from './report.ts';
import { STEPS, type Step } from './steps.ts';

const STEP_MINUTES = 10; // the kernels' checks on a software adapter take a few

const WORDS: Record<Status, string> = { ok: 'good', warn: 'note', fail: 'failed', skip: 'left out' };
const MARKS: Record<Status, IconName> = { ok: 'check', warn: 'more', fail: 'close', skip: 'more' };

class DiagnosePage {
  private readonly list = byId('steps');
  private readonly go = byId<HTMLButtonElement>('go');
  private abort: AbortController | null = null;
  private report: Report | null = null;

  constructor() {
    this.go.addEventListener('click', () => (this.abort ? this.abort.abort() : void this.run()));
    byId('copy').addEventListener(
      'click',
      () =>
        void copyText(this.text(), byId('copy')).then((done) =>
          toast(done ? 'Copied.' : 'The browser did not allow it.'),
        ),
    );
    byId('save-json').addEventListener('click', () =>
      saveFile('tern-diagnose.json', JSON.stringify(this.report, null, 2) + '\n', 'application/json'),
    );
    byId('save-text').addEventListener('click', () =>
      saveFile('tern-diagnose.txt', this.text(), 'text/plain'),
    );
    byId('share').addEventListener('click', () => void this.share());
    byId('share').hidden = !('share' in navigator);
    this.list.replaceChildren(...STEPS.map((step) => this.waiting(step)));
  }

  private text(): string {
    return this.report ? reportText(this.report) : '';
  }

  private async share(): Promise<void> {
    try {
      await navigator.share({ title: 'tern diagnose', text: this.text() });
    } catch (error) {
      if ((error as Error).name !== 'AbortError') toast('The browser could not share it: copy it instead.');
    }
  }

  private waiting(step: Step): HTMLElement {
    return h(
      'li',
      { class: 'step card', id: `step-${step.id}` },
      h(
        'div',
        { class: 'head' },
        h('span', { class: 'mark' }),
        h('div', { class: 'grow' }, h('h2', null, step.title), h('p', { class: 'small muted' }, step.about)),
      ),
    );
  }

  async run(): Promise<void> {
    const abort = (this.abort = new AbortController());
    this.go.replaceChildren(icon('stop'), 'Stop');
    byId('results').hidden = true;
    this.list.replaceChildren(...STEPS.map((step) => this.waiting(step)));
    this.report = {
      format: 'tern-web-diagnose',
      version: 1,
      when: new Date().toISOString(),
      page: location.origin + location.pathname,
      steps: [],
    };
    for (const step of STEPS) {
      if (abort.signal.aborted) break;
      this.report.steps.push(await this.one(step, abort.signal));
    }
    this.abort = null;
    this.go.replaceChildren(icon('wave'), 'Run again');
    const { status, text } = abort.signal.aborted
      ? { status: 'warn', text: 'Stopped before its end.' }
      : verdict(this.report.steps);
    byId('verdict').textContent = text;
    byId('results').className = `card ${status}`;
    byId('results').hidden = false;
    document.documentElement.dataset.done = status; // for tests and scripts
  }

  private async one(step: Step, signal: AbortSignal): Promise<StepReport> {
    const element = byId(`step-${step.id}`);
    element.classList.add('running');
    element.setAttribute('aria-busy', 'true');
    const from = performance.now();
    // Stopped: the step is not waited for, since not all of its parts can be.
    const tell = (line: string) => (element.querySelector('p')!.textContent = line);
    const own = new AbortController(); // of this step alone: one that never ends is given up
    const stopped = new Promise<never>((_, reject) =>
      own.signal.addEventListener('abort', () => reject(own.signal.reason), { once: true }),
    );
    const stop = () => own.abort(new Error('stopped'));
    signal.addEventListener('abort', stop, { once: true });
    const timer = setTimeout(
      () => own.abort(new Error(`no result after ${STEP_MINUTES} minutes`)),
      STEP_MINUTES * 60000,
    );
    const result = await Promise.race([step.run(own.signal, tell), stopped]).catch((error: unknown) => ({
      status: (signal.aborted ? 'skip' : 'fail') as Status,
      summary: (error as Error).message,
      rows: [],
    }));
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
    const report = { id: step.id, title: step.title, seconds: (performance.now() - from) / 1000, ...result };
    element.replaceWith(this.finished(report));
    byId('now').textContent = `${report.title}: ${WORDS[report.status]}, ${report.summary}`;
    return report;
  }

  private finished({ id, title, status, summary, seconds, rows }: StepReport): HTMLElement {
    const failed = rows.filter((row) => row.ok === false);
    return h(
      'li',
      { class: `step card ${status}`, id: `step-${id}` },
      h(
        'div',
        { class: 'head' },
        h(
          'span',
          { class: 'mark' },
          icon(MARKS[status]),
          h('span', { class: 'visually-hidden' }, WORDS[status]),
        ),
        h('div', { class: 'grow' }, h('h2', null, title), h('p', { class: 'small' }, summary)),
        h('span', { class: 'took tiny muted number' }, `${seconds.toFixed(1)} s`),
      ),
      rows.length > 0 &&
        h(
          'details',
          { open: failed.length > 0 || (status !== 'ok' && rows.length <= 8) },
          h('summary', { class: 'small' }, rows.length > 8 ? `${rows.length} results` : 'Details'),
          h(
            'dl',
            null,
            ...rows.flatMap((row) => [
              h('dt', { class: row.ok === false ? 'bad' : '' }, row.name),
              h('dd', { class: row.ok === false ? 'bad' : '' }, row.value),
            ]),
          ),
        ),
    );
  }
}

const page = new DiagnosePage();
if (new URLSearchParams(location.search).has('run')) void page.run();
startServiceWorker();
