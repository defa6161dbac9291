// "Continue a text": one field; the model goes on where it ends. Each continuation can be taken back.
import { h, icon } from '../shared/dom.ts';
import type { Conversation } from './history.ts';

export interface TextActions {
  go(): void;
  stop(): void;
  changed(): void; // the user typed
}

export class TextView {
  private readonly field = h('textarea', {
    'aria-label': 'Text that the model continues',
    placeholder: 'Begin a text here; the model goes on with it.',
    spellcheck: 'false',
    maxlength: 400000,
  });
  private readonly goButton = h(
    'button',
    { type: 'button', class: 'button primary', title: 'Ctrl+Enter' },
    icon('spark'),
    'Continue',
  );
  private readonly stopButton = h(
    'button',
    { type: 'button', class: 'button primary', hidden: true },
    icon('stop'),
    'Stop',
  );
  private readonly undoButton = h('button', { type: 'button', class: 'button' }, icon('undo'), 'Take back');
  private readonly againButton = h('button', { type: 'button', class: 'button' }, icon('retry'), 'Another');
  private talk: Conversation | null = null;

  constructor(
    private readonly element: HTMLElement,
    private readonly bar: HTMLElement,
    private readonly scroller: HTMLElement,
    actions: TextActions,
  ) {
    element.append(this.field);
    bar.append(this.goButton, this.stopButton, this.againButton, this.undoButton);
    this.goButton.addEventListener('click', () => actions.go());
    this.stopButton.addEventListener('click', () => actions.stop());
    this.undoButton.addEventListener('click', () => {
      this.takeBack();
      actions.changed();
      this.field.focus();
    });
    this.againButton.addEventListener('click', () => {
      this.takeBack();
      actions.go();
    });
    this.field.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        actions.go();
      }
    });
    this.field.addEventListener('input', () => {
      if (!this.talk) return;
      this.talk.text = this.field.value;
      this.talk.pieces = this.talk.pieces.filter((at) => at < this.talk!.text.length);
      this.fit();
      this.buttons(false);
      actions.changed();
    });
  }

  show(talk: Conversation | null, writing: boolean): void {
    this.talk = talk;
    this.element.hidden = this.bar.hidden = talk === null;
    if (!talk) return;
    if (this.field.value !== talk.text) this.field.value = talk.text;
    this.field.readOnly = writing;
    this.field.setAttribute('aria-busy', String(writing));
    this.fit();
    this.buttons(writing);
  }

  focus(): void {
    this.field.focus();
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
  }

  private takeBack(): void {
    const at = this.talk?.pieces.pop();
    if (this.talk && at !== undefined) this.talk.text = this.talk.text.slice(0, at);
    this.show(this.talk, false);
  }

  private buttons(writing: boolean): void {
    const focused = document.activeElement === this.goButton || document.activeElement === this.stopButton;
    this.goButton.hidden = writing;
    this.stopButton.hidden = !writing;
    this.goButton.disabled = !this.talk?.text.trim();
    this.undoButton.disabled = this.againButton.disabled = writing || !this.talk?.pieces.length;
    if (focused) (writing ? this.stopButton : this.goButton).focus();
  }

  // As high as its text: the page scrolls, not the field in it.
  private fit(): void {
    if (CSS.supports('field-sizing: content')) return;
    const top = this.scroller.scrollTop;
    this.field.style.height = 'auto';
    this.field.style.minHeight = `${this.field.scrollHeight}px`;
    this.scroller.scrollTop = top;
  }
}
