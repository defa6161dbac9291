// The turns of a conversation: the last ones, and earlier ones as somebody scrolls to them. The last answer grows
// while it is written; the others stay as they are.
import { copyText, h, icon, iconButton } from '../shared/dom.ts';
import { formatDuration, formatRate } from '../shared/format.ts';
import { MarkdownView } from '../shared/markdown_view.ts';
import {
  type AnswerStats,
  type AttachedFile,
  type ChatMessage,
  type Conversation,
  lastUserIndex,
  splitThought,
} from './history.ts';

export interface ThreadActions {
  regenerate(): void;
  edit(content: string): void;
}

export function statsText({ tokens, perSecond, firstSeconds, device, dropped }: AnswerStats): string {
  return [
    `${formatRate(perSecond)} tokens/s`,
    `${tokens} tokens`,
    `first after ${formatDuration(firstSeconds)}`,
    device,
    dropped ? `${dropped} older messages left out` : '',
  ]
    .filter(Boolean)
    .join(' · ');
}

const ENDS = {
  length: 'cut at the limit',
  stopped: 'stopped',
  failed: 'failed',
  cut: 'cut: the page was closed before it ended',
};
const AT_ONCE = 30; // turns that are drawn together

class AnswerView {
  private readonly markdown = new MarkdownView();
  private readonly thought = new MarkdownView();
  private readonly thinking = h('summary', null, 'Thinking');
  private readonly details = h(
    'details',
    { class: 'thought', hidden: true },
    this.thinking,
    this.thought.element,
  );
  private readonly under = h('div', { class: 'under' });
  private readonly failure = h('p', { class: 'failure', role: 'alert', hidden: true });
  readonly element = h(
    'article',
    { class: 'message assistant', 'aria-label': 'Answer' },
    this.details,
    this.markdown.element,
    this.failure,
    this.under,
  );

  constructor(
    private readonly message: ChatMessage,
    private readonly last: boolean,
    private readonly actions: ThreadActions,
  ) {
    this.markdown.element.classList.add('answer');
  }

  update(writing: boolean): void {
    const { thought, answer, open } = splitThought(this.message.content);
    this.details.hidden = !thought;
    if (thought) {
      this.thinking.textContent = open && writing ? 'Thinking…' : 'What it thought';
      this.thought.show(thought);
    }
    this.markdown.show(answer);
    this.markdown.element.classList.toggle('waiting', writing && !answer);
    this.element.classList.toggle('writing', writing);
    this.failure.hidden = !this.message.error;
    this.failure.textContent = this.message.error ?? '';
    this.under.hidden = writing;
    if (!writing) this.finish(answer);
  }

  private finish(answer: string): void {
    const copy = iconButton('copy', 'Copy answer', () => void copyText(answer, copy), 'small');
    const { stats, end } = this.message;
    const text = [end ? ENDS[end] : '', stats ? statsText(stats) : ''].filter(Boolean).join(' · ');
    this.under.replaceChildren(copy);
    if (this.last)
      this.under.append(iconButton('retry', 'Answer again', () => this.actions.regenerate(), 'small'));
    this.under.append(
      h(
        'span',
        {
          class: 'stats number',
          title: stats
            ? `${stats.model}; prompt of ${stats.promptTokens} tokens, ${stats.cachedTokens} of them kept from the last turn`
            : '',
        },
        text,
      ),
    );
  }
}

function attached({ name, text, image }: AttachedFile): HTMLElement {
  if (image) return h('img', { class: 'image', src: image, alt: name, title: name });
  const shown = h('pre', { tabindex: 0 }, text);
  return h('details', { class: 'attached' }, h('summary', null, icon('file'), name), shown);
}

export class Thread {
  private answer: AnswerView | null = null;
  private talk: Conversation | null = null;
  private writing = false;
  private from = 0; // the first turn that is drawn
  private readonly earlier = h(
    'button',
    { type: 'button', class: 'button small earlier', onclick: () => this.drawEarlier() },
    'Earlier messages',
  );
  private readonly watcher: IntersectionObserver;

  constructor(
    private readonly element: HTMLElement,
    private readonly scroller: HTMLElement,
    private readonly actions: ThreadActions,
  ) {
    const seen = (entries: IntersectionObserverEntry[]) => entries.some((one) => one.isIntersecting) && this.drawEarlier();
    this.watcher = new IntersectionObserver(seen, { root: scroller, rootMargin: '800px 0px 0px' });
  }

  /** Whether somebody edits a message. */
  get isEditing(): boolean {
    return this.element.querySelector('.edit') !== null;
  }

  /** Shows the last turns; `writing`: the last answer is being written. */
  show(talk: Conversation, writing: boolean): void {
    const last = Math.max(0, talk.messages.length - AT_ONCE);
    this.from = talk === this.talk ? Math.min(this.from, last) : last;
    this.talk = talk;
    this.writing = writing;
    this.answer = null;
    const turns = talk.messages.slice(this.from).map((message, i) => this.turn(message, this.from + i));
    this.element.replaceChildren(...(this.from > 0 ? [this.earlier, ...turns] : turns));
    this.element.setAttribute('aria-busy', String(writing));
    this.watch();
  }

  clear(): void {
    this.talk = this.answer = null;
    this.from = 0;
    this.watch();
    this.element.replaceChildren();
  }

  private turn(message: ChatMessage, at: number): HTMLElement {
    const { messages } = this.talk!;
    if (message.role === 'user') return this.question(message, !this.writing && at === lastUserIndex(this.talk!));
    const last = at === messages.length - 1;
    const view = new AnswerView(message, last, this.actions);
    view.update(this.writing && last);
    if (last) this.answer = view;
    return view.element;
  }

  // An observer tells once: again, if the button is still in sight afterwards.
  private watch(): void {
    this.watcher.disconnect();
    if (this.from > 0) this.watcher.observe(this.earlier);
  }

  // What is in sight stays where it is.
  private drawEarlier(): void {
    if (!this.talk || this.from === 0) return;
    const below = this.scroller.scrollHeight - this.scroller.scrollTop;
    const to = this.from;
    this.from = Math.max(0, to - AT_ONCE);
    this.earlier.after(...this.talk.messages.slice(this.from, to).map((message, i) => this.turn(message, this.from + i)));
    if (this.from === 0) this.earlier.remove();
    this.scroller.scrollTop = this.scroller.scrollHeight - below;
    this.watch();
  }

  /** The last answer has more text. */
  grow(): void {
    this.answer?.update(true);
  }

  private question(message: ChatMessage, editable: boolean): HTMLElement {
    const copy = iconButton('copy', 'Copy message', () => void copyText(message.content, copy), 'small');
    const element = h(
      'article',
      { class: 'message user', 'aria-label': 'You' },
      h('div', { class: 'said' }, ...(message.files ?? []).map(attached), message.content),
      h(
        'div',
        { class: 'under' },
        copy,
        editable &&
          iconButton('edit', 'Edit message', () => this.edit(element, message), 'small edit-button'),
      ),
    );
    return element;
  }

  /** Opens the last message of the user for editing. */
  editLast(): void {
    this.element.querySelector<HTMLElement>('.edit-button')?.click();
  }

  private edit(element: HTMLElement, message: ChatMessage): void {
    const before = [...element.childNodes];
    const input = h('textarea', {
      class: 'input',
      rows: Math.min(10, message.content.split('\n').length + 1),
      value: message.content,
      'aria-label': 'Edit your message',
    });
    const cancel = () => {
      element.replaceChildren(...before);
      element.querySelector<HTMLElement>('.edit-button')?.focus();
    };
    const send = () => {
      if (input.value.trim()) this.actions.edit(input.value.trim());
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        cancel();
      }
      if (
        event.key === 'Enter' &&
        !event.shiftKey &&
        !event.isComposing &&
        !matchMedia('(pointer: coarse)').matches
      ) {
        event.preventDefault();
        send();
      }
    });
    element.replaceChildren(
      h(
        'div',
        { class: 'edit' },
        input,
        h(
          'div',
          { class: 'row' },
          h('button', { type: 'button', class: 'button small', onclick: cancel }, 'Cancel'),
          h('button', { type: 'button', class: 'button small primary', onclick: send }, 'Send'),
        ),
      ),
    );
    input.focus();
    input.setSelectionRange(input.value.length, input.value.length);
  }
}
