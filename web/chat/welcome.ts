// What an empty conversation shows: what this is, the two kinds of writing, and ideas to begin with.
import { h } from '../shared/dom.ts';
import type { Conversation } from './history.ts';

type Kind = Conversation['kind'];
/** What is said of the model; `stories`: it tells stories and knows nothing else. */
export interface Greeting {
  title: string;
  lead: string;
  stories: boolean;
  icon: string; // its address
}
export interface WelcomeActions {
  kind(kind: Kind): void;
  begin(text: string): void;
}

const STORIES = [
  'Write a bedtime story about a fox.',
  'Tell me a story about a cat and a boat.',
  'Molly has a small brown dog called Biscuit. What colour is the dog?',
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
export function showWelcome(
  element: HTMLElement,
  kind: Kind,
  greeting: Greeting,
  actions: WelcomeActions,
): void {
  const text = kind === 'text';
  const ideas = text ? OPENINGS : greeting.stories ? STORIES : QUESTIONS;
  const either = (value: Kind, label: string) =>
    h(
      'button',
      { type: 'button', 'aria-pressed': String(kind === value), onclick: () => actions.kind(value) },
      label,
    );
  element.style.margin = text ? '0 auto' : 'auto';
  element.replaceChildren(
    h('img', { src: greeting.icon, alt: '', width: 72, height: 72, hidden: text }),
    h(
      'div',
      null,
      h('h1', null, text ? 'Begin a text, the model goes on' : greeting.title),
      h('p', { class: 'lead' }, text ? 'Write a first sentence, or take one of these.' : greeting.lead),
    ),
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
