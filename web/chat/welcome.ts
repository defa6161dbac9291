// What an empty conversation shows: what this is, the two kinds of writing, and ideas to begin with.
import { h } from '../shared/dom.ts';
import type { Conversation } from './history.ts';
import type { LoaderState } from './loader.ts';
import { CARRIED } from './models.ts';

type Kind = Conversation['kind'];
export interface WelcomeActions {
  kind(kind: Kind): void;
  begin(text: string): void;
}

const STORIES = [
  'Write a bedtime story about a fox.',
  'Tell me a story about a cat and a boat.',
  'Write a story about a girl who finds a key.',
];
const OPENINGS = [
  'Once upon a time, in a small village by the sea,',
  'The old lighthouse keeper had a secret.',
];
const QUESTIONS = [
  'Explain how tides work, to a child.',
  'Write a polite reply that declines an invitation.',
  'Give me three names for a small sailing boat.',
];
const TITLES = { chat: 'A model of your own, in this page', text: 'Begin a text, the model goes on' };

function lead(kind: Kind, guess: string | null): string {
  if (kind === 'text') return 'Write a first sentence, or take one of these.';
  if (!guess)
    return 'It runs on this device. What you write stays here, and no network is needed once it is loaded.';
  return `${guess.charAt(0).toUpperCase()}${guess.slice(1)}. It may be better at continuing text than at chatting.`;
}

export function showWelcome(
  element: HTMLElement,
  kind: Kind,
  state: LoaderState,
  actions: WelcomeActions,
): void {
  const guess = state.kind === 'ready' ? state.tern.info.templateGuess : null;
  const tellsStories = state.kind === 'none' || state.name.toLowerCase() === CARRIED.name.toLowerCase();
  const ideas = kind === 'text' ? OPENINGS : tellsStories ? STORIES : QUESTIONS;
  const either = (value: Kind, label: string) =>
    h(
      'button',
      { type: 'button', 'aria-pressed': String(kind === value), onclick: () => actions.kind(value) },
      label,
    );
  element.style.margin = kind === 'text' ? '0 auto' : 'auto';
  element.replaceChildren(
    h('img', { src: '../icons/icon.svg', alt: '', width: 72, height: 72, hidden: kind === 'text' }),
    h('div', null, h('h1', null, TITLES[kind]), h('p', { class: 'lead' }, lead(kind, guess))),
    h(
      'div',
      { class: 'kinds', role: 'group', 'aria-label': 'Kind of conversation' },
      either('chat', 'Chat'),
      either('text', 'Continue a text'),
    ),
    h(
      'div',
      { class: 'ideas' },
      ...ideas.map((text) => h('button', { type: 'button', onclick: () => actions.begin(text) }, text)),
    ),
  );
}
