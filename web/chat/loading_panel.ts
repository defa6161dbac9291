// The strip under the top line while a model is loaded, and when that failed: why, and what can be done.
import { h } from '../shared/dom.ts';
import { ProgressBar, progressText } from '../shared/progress.ts';
import type { Choice, LoaderState, Problem } from './loader.ts';

export interface LoadingActions {
  cancel(): void;
  load(choice: Choice): void;
  onProcessor(choice: Choice): void;
  models(): void;
  close(): void;
}

const button = (label: string, onclick: () => void, first = false) =>
  h('button', { type: 'button', class: `button small ${first ? 'primary' : ''}`, onclick }, label);

export class LoadingPanel {
  private readonly bar = new ProgressBar('Loading of the model');
  private readonly words = h('span', { class: 'grow small number' });

  constructor(
    private readonly element: HTMLElement,
    private readonly actions: LoadingActions,
  ) {}

  /** `other`: whether the processor would be another device than the one that was tried. */
  show(state: LoaderState, other: boolean): void {
    const problem = state.kind === 'failed' ? state : state.kind === 'ready' ? state.problem : undefined;
    this.element.hidden = state.kind === 'none' || (state.kind === 'ready' && !problem);
    this.element.className = problem ? 'card failed' : 'card';
    if (problem) this.failed(problem, other, state.kind === 'ready' ? state.name : '');
    else if (state.kind !== 'loading') this.element.replaceChildren();
    else {
      const cancel = () => button('Cancel', () => this.actions.cancel());
      if (!this.bar.element.isConnected) {
        this.element.replaceChildren(h('div', { class: 'row' }, this.words, cancel()), this.bar.element);
      }
      this.words.textContent = `${state.name}: ${progressText(state.progress)}`;
      this.bar.show(state.progress);
    }
  }

  private failed({ choice, code, name, message }: Problem, other: boolean, still: string): void {
    const { actions } = this;
    const processor = other && (code === 'device' || code === 'memory');
    this.element.replaceChildren(
      h('p', { role: 'alert' }, h('strong', null, `${name} could not be loaded. `), message, still && ` ${still} is still there.`),
      h(
        'div',
        { class: 'row' },
        button(code === 'network' ? 'Resume' : 'Try again', () => actions.load(choice), true),
        code === 'quota' && button('Make room', () => actions.models()),
        processor && button('Use the processor', () => actions.onProcessor(choice)),
        button('Another model', () => actions.models()),
        button('Close', () => actions.close()),
      ),
    );
  }
}
