// The front page: the carried model writes a story at once. Where data is to be saved it waits to be asked.
import { Tern } from 'tern-engine';
import { CARRIED } from './chat/models.ts';
import { write } from './chat/answer.ts';
import { statsText } from './chat/thread.ts';
import { byId } from './shared/dom.ts';
import { deviceWords } from './shared/format.ts';
import { progressText } from './shared/progress.ts';
import { startServiceWorker } from './shared/pwa.ts';

const BEGINNINGS = [
  'Once upon a time, in a small village',
  'One windy evening, a little tern',
  'Far away, where the sea meets the sky,',
  'There was once a fox who',
];
const story = byId('story');
const state = byId('state');
const again = byId<HTMLButtonElement>('again');
let model: Promise<Tern> | null = null;
let stories = 0;

function load(): Promise<Tern> {
  return (model ??= Tern.load(CARRIED.source, {
    device: CARRIED.device!,
    onProgress: (progress) => (state.textContent = progressText(progress)),
  }));
}

async function tell(): Promise<void> {
  again.hidden = true;
  try {
    const tern = await load();
    const beginning = BEGINNINGS[stories++ % BEGINNINGS.length]!;
    state.textContent = 'Writing';
    story.textContent = beginning;
    const outcome = await write(
      { name: CARRIED.name, device: deviceWords(tern.info.device) },
      (options) => tern.generate(beginning, { maxTokens: 120, temperature: 0.7, ...options }),
      new AbortController().signal,
      (piece) => story.append(piece),
    );
    state.textContent = outcome.error ?? (outcome.stats ? statsText(outcome.stats) : '');
  } catch (error) {
    model = null;
    state.textContent = `The model could not be loaded. ${(error as Error).message}`;
  }
  again.textContent = 'Another story';
  again.hidden = false;
}

again.addEventListener('click', () => void tell());
if ((navigator as { connection?: { saveData?: boolean } }).connection?.saveData) {
  state.textContent = 'Your browser saves data: the model is loaded when you ask for it.';
  again.textContent = 'Tell a story';
  again.hidden = false;
} else void tell();
startServiceWorker();
