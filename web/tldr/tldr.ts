// A button that sums up the page it is on, put there by one tag:
//   <script type="module" src="tldr.js" data-model="hf:owner/name/file.gguf"></script>
// The engine is loaded when the button is first used; until then this file is all that a page pays for.
// Nothing leaves the device but the request for the model's file. The widget lives in a shadow root: the
// page's styles do not reach it, nor its styles the page.
//
// Attributes of the tag: data-model (what Tern.load takes), data-target (selector of the text; left out: the
// article is looked for), data-label, data-position="left", data-sentences (2), data-device, data-engine
// (address of the package's index.js, if it does not lie in ../tern/).
import type { Tern } from 'tern-engine';
import { copyText, h, icon } from '../shared/dom.ts';
import { deviceWords, formatRate } from '../shared/format.ts';
import { ProgressBar, progressText } from '../shared/progress.ts';
import { cutToTokens, extractArticle, type PageElement } from './extract.ts';
import css from './widget.css';

export interface TldrOptions {
  model: string;
  target?: string;
  label?: string;
  position?: string;
  sentences?: number;
  device?: 'auto' | 'webgpu' | 'wasm' | undefined;
  engine?: string;
}

const ANSWER_TOKENS = 220; // room for the summary
const FRAME_TOKENS = 96; // and for the words of the request and the template

const capitalize = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

export class TldrWidget {
  readonly host = h('div', { class: 'tern-tldr', 'data-tldr': 'skip' });
  private readonly root = this.host.attachShadow({ mode: 'open' });
  private readonly summary = h('p', { class: 'summary', lang: document.documentElement.lang || undefined });
  private readonly note = h('p', { class: 'note' });
  private readonly wrong = h('p', { class: 'wrong', role: 'alert' });
  private readonly bar = new ProgressBar('Loading of the model');
  private readonly said = h('div', { 'aria-live': 'polite', 'aria-atomic': 'true', class: 'said' });
  private readonly goButton: HTMLButtonElement;
  private readonly stopButton: HTMLButtonElement;
  private readonly copyButton: HTMLButtonElement;
  private readonly openButton: HTMLButtonElement;
  private readonly panel: HTMLElement;
  private tern: Tern | null = null;
  private abort: AbortController | null = null;

  constructor(private readonly options: TldrOptions) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(
      css + '.said{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}',
    );
    this.root.adoptedStyleSheets = [sheet];
    if (options.position === 'left') this.host.dataset.position = 'left';
    const label = options.label ?? 'Summarise this page';
    const button = (text: string, first: boolean, onclick: () => void) =>
      h('button', { type: 'button', class: first ? 'action first' : 'action', onclick }, text);
    this.goButton = button('Summarise', true, () => void this.run());
    this.stopButton = button('Stop', true, () => this.abort?.abort());
    this.copyButton = button(
      'Copy',
      false,
      () =>
        void copyText(this.summary.textContent ?? '').then((done) => {
          if (done) this.say('Copied');
        }),
    );
    this.openButton = h(
      'button',
      { type: 'button', class: 'open', 'aria-expanded': 'false', onclick: () => this.open() },
      icon('spark'),
      label,
    );
    this.bar.element.hidden = true;
    this.panel = h(
      'section',
      {
        class: 'panel',
        role: 'dialog',
        'aria-label': label,
        hidden: true,
        tabindex: -1,
        onkeydown: (event: KeyboardEvent) => {
          if (event.key === 'Escape') this.close();
        },
      },
      h(
        'header',
        null,
        h('h2', null, label),
        h(
          'button',
          { type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => this.close() },
          icon('close'),
        ),
      ),
      h('div', { class: 'body' }, this.summary, this.wrong, this.note, this.bar.element),
      h('footer', null, this.goButton, this.stopButton, this.copyButton),
      this.said,
    );
    this.root.append(this.openButton, this.panel);
    this.buttons();
  }

  private open(): void {
    this.panel.hidden = false;
    this.openButton.hidden = true;
    this.openButton.setAttribute('aria-expanded', 'true');
    this.panel.focus();
    if (!this.abort && !this.summary.textContent) void this.run();
  }

  private close(): void {
    this.abort?.abort();
    this.panel.hidden = true;
    this.openButton.hidden = false;
    this.openButton.setAttribute('aria-expanded', 'false');
    this.openButton.focus();
  }

  private say(text: string): void {
    this.said.textContent = text;
  }

  private buttons(): void {
    const busy = this.abort !== null;
    this.stopButton.hidden = !busy;
    this.goButton.hidden = busy;
    this.goButton.textContent = this.wrong.textContent
      ? 'Try again'
      : this.summary.textContent
        ? 'Again'
        : 'Summarise';
    this.copyButton.hidden = busy || !this.summary.textContent;
  }

  /** Reads the page, loads the model if it is not there yet, and writes the summary. */
  async run(): Promise<void> {
    this.abort?.abort();
    const abort = (this.abort = new AbortController());
    this.summary.textContent = this.note.textContent = this.wrong.textContent = '';
    this.buttons();
    try {
      const blocks = this.pageText();
      const tern = await this.load(abort.signal);
      await this.write(tern, blocks, abort.signal);
    } catch (error) {
      if (this.abort !== abort) return;
      const { code, message } = error as { code?: string; message: string };
      if (code === 'aborted') this.note.textContent = 'Stopped.';
      else this.wrong.textContent = message;
    } finally {
      if (this.abort === abort) {
        this.abort = null;
        this.bar.element.hidden = true;
        this.buttons();
      }
    }
  }

  private pageText(): string[] {
    const { target } = this.options;
    const root = target ? document.querySelector(target) : document.body;
    if (!root) throw new Error(`There is no element “${target}” on this page.`);
    const blocks = extractArticle(root as unknown as PageElement);
    if (blocks.length === 0) throw new Error('There is hardly any text on this page.');
    return blocks;
  }

  private async load(signal: AbortSignal): Promise<Tern> {
    if (this.tern) return this.tern;
    this.bar.element.hidden = false;
    this.bar.show(null);
    this.note.textContent = 'The model is loaded once and kept on this device. The page’s text stays here.';
    const { engine, model, device } = this.options;
    // Left as an import, not bundled: it is wanted only now.
    const module = (
      engine ? await import(new URL(engine, document.baseURI).href) : await import('tern-engine')
    ) as typeof import('tern-engine');
    const tern = await module.Tern.load(
      model.startsWith('hf:') ? model : new URL(model, document.baseURI).href,
      {
        signal,
        ...(device && { device }),
        onProgress: (progress) => {
          this.bar.show(progress);
          this.note.textContent = progressText(progress);
        },
      },
    );
    this.bar.element.hidden = true;
    this.note.textContent = '';
    return (this.tern = tern);
  }

  private async write(tern: Tern, blocks: string[], signal: AbortSignal): Promise<void> {
    const { context, templateGuess, temperature } = tern.info;
    const answer = Math.min(ANSWER_TOKENS, Math.floor(context / 4));
    const { text, share } = await cutToTokens(blocks, context - answer - FRAME_TOKENS, (part) =>
      tern.countTokens(part),
    );
    this.note.textContent =
      share < 1 ? `Reading the first ${Math.max(1, Math.round(share * 100))}% of the text` : 'Reading';
    let written = '';
    const options = {
      signal,
      maxTokens: answer,
      temperature: Math.min(0.3, temperature ?? 0.3),
      topK: 20,
      repeatPenalty: 1.1,
      onText: (piece: string) => {
        written = (written + piece).replace(/^\s*(<think>\s*<\/think>)?\s*/, '');
        this.summary.textContent = written.startsWith('<think>') ? '' : written;
        this.summary.parentElement!.scrollTop = this.summary.parentElement!.scrollHeight;
      },
    };
    const n = this.options.sentences ?? 2;
    const request = `Summarise the following text in ${n === 1 ? 'one sentence' : `${n} sentences`}. Answer with the summary alone.`;
    // A model without a chat template continues text, so the text ends where a summary would begin.
    const output = templateGuess
      ? await tern.generate(`${text}\n\nSummary in ${n} sentences:`, options)
      : await tern.chat([{ role: 'user', content: `${request}\n\n${text}` }], options);
    this.summary.textContent = output.text.replace(/^\s*<think>[\s\S]*?<\/think>/, '').trim();
    if (!this.summary.textContent) throw new Error('The model wrote nothing.');
    this.note.textContent = [
      share < 1 ? `of the first ${Math.max(1, Math.round(share * 100))}% of the text` : '',
      `${formatRate(output.timings.predicted_per_second)} tokens/s`,
      deviceWords(tern.info.device),
    ]
      .filter(Boolean)
      .map((part, i) => (i ? part : capitalize(part)))
      .join(' · ');
    this.say(this.summary.textContent);
  }
}

/** Puts the button into the page; called with the tag's attributes when the file is loaded by a tag. */
export function mount(options: TldrOptions): TldrWidget {
  const widget = new TldrWidget(options);
  document.body.append(widget.host);
  return widget;
}

// The tag that loaded this file. A module has no document.currentScript; its address tells which it is.
const tag = [...document.querySelectorAll<HTMLScriptElement>('script[type="module"][data-model]')].find(
  (script) => script.src === import.meta.url,
);
if (tag) {
  const { model, target, label, position, sentences, device, engine } = tag.dataset;
  const count = Number(sentences);
  mount({
    model: model!,
    target,
    label,
    position,
    engine,
    sentences: count >= 1 && count <= 20 ? Math.round(count) : undefined,
    device: device === 'wasm' || device === 'webgpu' ? device : undefined,
  });
}
