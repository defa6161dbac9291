// What the server does now: looked at once a second while the dialog is open.
import { openDialog } from '../chat/dialogs.ts';
import { h } from '../shared/dom.ts';
import { formatBytes, formatDuration, formatRate } from '../shared/format.ts';
import type { Client, Props } from './client.ts';
import { mean, rate, readMetrics, type Sample } from './metrics.ts';

const SECONDS = 60; // of the curve
const WIDTH = 600;
const HEIGHT = 90;

export interface Slot {
  id: number;
  is_processing?: boolean;
}

/** The points of a curve of the last values, the newest at the right; the highest one touches the top. */
export function curve(values: readonly number[]): string {
  const top = Math.max(...values, 1e-9);
  return values
    .map((value, i) => {
      const x = WIDTH - ((values.length - 1 - i) * WIDTH) / (SECONDS - 1);
      return `${x.toFixed(1)},${(HEIGHT - 2 - ((HEIGHT - 4) * value) / top).toFixed(1)}`;
    })
    .join(' ');
}

function svg(name: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

class StatusView {
  private readonly samples: Sample[] = [];
  private readonly speeds: number[] = [];
  private readonly line = svg('polyline', { class: 'line' });
  private readonly image = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: 'none',
    class: 'curve',
    role: 'img',
  });
  private readonly speed = h('p', { class: 'speed number' });
  private readonly slots = h('ul', { class: 'slots', 'aria-label': 'Sequences' });
  private readonly facts = h('dl', { class: 'facts number' });
  private readonly failure = h('p', { class: 'failure', role: 'alert', hidden: true });
  readonly body: HTMLElement[];
  private props: Props | null = null;

  constructor(private readonly client: Client) {
    this.image.append(this.line);
    this.body = [this.failure, this.speed, this.image as unknown as HTMLElement, this.slots, this.facts];
  }

  async look(): Promise<void> {
    try {
      this.props ??= await this.client.props();
      const [text, slots] = await Promise.all([
        this.client.text('metrics'),
        this.client.json<Slot[]>('slots'),
      ]);
      this.samples.push({ at: performance.now(), metrics: readMetrics(text) });
      if (this.samples.length > 6) this.samples.shift();
      this.failure.hidden = true;
      this.draw(slots);
    } catch (error) {
      this.failure.textContent = (error as Error).message;
      this.failure.hidden = false;
    }
  }

  private draw(slots: Slot[]): void {
    const now = this.samples.at(-1)!;
    const before = this.samples.at(-2); // none: the first look
    if (before) this.speeds.push(rate('tern_generated_tokens_total', before, now));
    if (this.speeds.length > SECONDS) this.speeds.shift();
    const speed = this.speeds.at(-1) ?? 0;
    this.speed.replaceChildren(h('strong', null, formatRate(speed)), ' tokens/s now');
    this.line.setAttribute('points', curve(this.speeds));
    const top = Math.max(0, ...this.speeds);
    this.image.setAttribute(
      'aria-label',
      `Tokens a second over the last minute: now ${formatRate(speed)}, at most ${formatRate(top)}`,
    );
    this.drawSlots(slots);
    this.facts.replaceChildren(
      ...this.rows(now).flatMap(([name, value]) => [h('dt', null, name), h('dd', null, value)]),
    );
  }

  private drawSlots(slots: Slot[]): void {
    this.slots.replaceChildren(
      ...slots.slice(0, 256).map(({ id, is_processing: busy }) => {
        const label = `Sequence ${id}: ${busy ? 'writing' : 'free'}`;
        return h('li', { class: busy ? 'busy' : '', title: label, 'aria-label': label });
      }),
    );
  }

  private rows(now: Sample): [string, string][] {
    const oldest = this.samples[0]!;
    const value = (name: string) => now.metrics.get(name) ?? 0;
    const whole = (name: string) => value(name).toLocaleString();
    const prompt = value('tern_prompt_tokens_total');
    const cached = value('tern_prompt_cached_tokens_total');
    const first = mean('tern_time_to_first_token_seconds', oldest, now);
    const between = mean('tern_inter_token_seconds', oldest, now);
    const started = value('process_start_time_seconds');
    return [
      ['Sequences', `${whole('tern_requests_running')} running, ${whole('tern_requests_waiting')} waiting`],
      ['Prompts', `${formatRate(rate('tern_prompt_tokens_total', oldest, now))} tokens/s`],
      ['First token', first === null ? '–' : `after ${formatDuration(first)}`],
      ['Between tokens', between === null ? '–' : `${(1000 * between).toFixed(1)} ms`],
      ['From the cache', prompt > 0 ? `${((100 * cached) / prompt).toFixed(0)}% of prompts` : '–'],
      ['Cache', formatBytes(value('tern_kv_bytes'))],
      ['Memory', formatBytes(value('process_resident_memory_bytes'))],
      ['Tokens so far', `${whole('tern_generated_tokens_total')} written, ${prompt.toLocaleString()} read`],
      ['Context', `${(this.props?.default_generation_settings?.n_ctx ?? 0).toLocaleString()} tokens`],
      ['Connections', whole('tern_connections')],
      ['Up for', started ? formatDuration(Math.max(0, Date.now() / 1000 - started)) : '–'],
      ['Version', this.props?.build_info ?? '–'],
    ];
  }
}

export function openStatusDialog(client: Client): void {
  const view = new StatusView(client);
  const dialog = openDialog('Server', view.body);
  dialog.classList.add('status');
  void view.look();
  let looking = false;
  const timer = setInterval(async () => {
    if (looking || document.hidden) return; // a slow server is not asked twice at once
    looking = true;
    await view.look();
    looking = false;
  }, 1000);
  dialog.addEventListener('close', () => clearInterval(timer));
}
