// The voice page: the microphone, two models and a voice around a conversation (talk.ts).
import { Microphone, SpeechDetector, joined, loudness } from 'tern-engine/microphone';
import { LoadingPanel } from '../chat/loading_panel.ts';
import { Loader, type Choice } from '../chat/loader.ts';
import { PRESETS, deviceOf, type Preset } from '../chat/models.ts';
import { byId, h, icon } from '../shared/dom.ts';
import { formatBytes } from '../shared/format.ts';
import { startServiceWorker } from '../shared/pwa.ts';
import { BrowserSpeaker, SILENT, localVoices, voiceFor, type Speaker } from './speaker.ts';
import { Talk, type Stage, type Turn } from './talk.ts';

type Hearing = Pick<Preset, 'name' | 'source' | 'size'>;
const HEARING: readonly Hearing[] = [
  { name: 'Moonshine tiny', source: 'hf:UsefulSensors/moonshine-tiny', size: 109_000_000 },
  { name: 'Moonshine base', source: 'hf:UsefulSensors/moonshine-base', size: 247_000_000 },
];
const SYSTEM = 'You speak with the user: answer in one or two short sentences, without lists or marks.';
const LONGEST_ANSWER = 160; // tokens
const LOUDER = 8; // decibels that interrupt what the loudspeaker says, beyond those that begin a turn

const STAGES: Record<Stage, string> = {
  waiting: '',
  hearing: 'Listening…',
  writing: 'Writing down what you said…',
  thinking: 'Thinking…',
  speaking: 'Answering. Speak to interrupt.',
};

class Shelf {
  readonly loader = new Loader();
  private readonly place = h('div', { class: 'card', hidden: true });
  private readonly panel = new LoadingPanel(this.place, {
    cancel: () => this.loader.cancel(),
    load: (choice) => this.load(choice),
    onProcessor: (choice) => this.load(choice, 'wasm'),
    models: () => (byId<HTMLDetailsElement>('settings').open = true),
    close: () => this.loader.dismiss(),
  });

  constructor(
    private readonly select: HTMLSelectElement,
    presets: readonly Hearing[],
    wanted: string | null,
  ) {
    if (wanted) select.append(h('option', { value: wanted }, wanted));
    for (const { name, source, size } of presets)
      select.append(h('option', { value: source }, `${name} · ${formatBytes(size)}`));
    byId('loading').append(this.place);
    this.loader.addEventListener('change', () => {
      this.panel.show(this.loader.state, true);
      byId('loading').hidden = [...byId('loading').children].every((one) => (one as HTMLElement).hidden);
    });
  }

  private load(choice: Choice, device?: 'wasm'): Promise<void> {
    const usual = 'source' in choice ? deviceOf(choice.source) : 'auto';
    return this.loader.load(choice, { thinking: 'off', device: device ?? usual });
  }

  /** Loads what is chosen, unless it is there. */
  async ready(): Promise<boolean> {
    const { state } = this.loader;
    const name = this.select.selectedOptions[0]?.textContent?.split(' · ')[0] ?? '';
    if (state.kind !== 'ready' || state.name !== name) await this.load({ source: this.select.value, name });
    const now = this.loader.state;
    return now.kind === 'ready' && !now.problem;
  }
}

class VoicePage {
  private readonly button = byId<HTMLButtonElement>('microphone');
  private readonly voices = byId<HTMLSelectElement>('voice');
  private readonly level = byId('level').firstElementChild as HTMLElement;
  private readonly query = new URLSearchParams(location.search);
  private readonly hears = new Shelf(byId('hears'), HEARING, this.query.get('hears'));
  private readonly answers = new Shelf(byId('answers'), PRESETS, this.query.get('answers'));
  private readonly stopButton = h('button', { type: 'button', class: 'button', hidden: true }, icon('stop'), 'Stop');
  private readonly newButton = h('button', { type: 'button', class: 'button', hidden: true }, icon('plus'), 'New conversation');
  private microphone: Microphone | null = null;
  private opening = false;
  private holding: Float32Array[] | null = null;
  private readonly talk = new Talk(
    {
      transcribe: async (samples, signal) => (await this.hears.loader.tern!.transcribe(samples, { signal })).text,
      answer: (turns, signal) => this.answer(turns, signal),
      speaker: () => this.speaker(),
    },
    {
      stage: (stage) => this.show(stage),
      turns: () => this.draw(),
      failed: (why) => this.tell(why),
    },
  );
  private readonly detector = new SpeechDetector({
    onStart: () => this.talk.begins(),
    onEnd: (samples) => void this.talk.heard(samples),
  });
  private readonly calm = this.detector.above;

  start(): void {
    this.button.append(icon('microphone'));
    byId('actions').append(this.stopButton, this.newButton);
    this.stopButton.addEventListener('click', () => this.talk.stop());
    this.newButton.addEventListener('click', () => this.talk.forget());
    this.button.addEventListener('click', () => void this.click());
    this.listenForHolding();
    addEventListener('keydown', (event) => event.key === 'Escape' && this.talk.stop());
    for (const name of ['hears', 'answers'])
      byId(name).addEventListener('change', () => this.microphone && this.close('The model is loaded when you begin again.'));
    for (const mode of document.querySelectorAll('input[name=mode]'))
      mode.addEventListener('change', () => this.show(this.talk.stage));
    byId('answers').addEventListener('change', () => this.noteModel());
    this.noteModel();
    this.listVoices();
    (globalThis as { speechSynthesis?: SpeechSynthesis }).speechSynthesis?.addEventListener?.('voiceschanged', () =>
      this.listVoices(),
    );
    this.voices.addEventListener('change', () => (byId('voice-note').textContent = this.speaker().about));
    addEventListener('pagehide', () => this.close(''));
    this.show('waiting');
    startServiceWorker();
  }

  private get free(): boolean {
    return document.querySelector<HTMLInputElement>('input[name=mode]:checked')?.value === 'free';
  }

  private tell(text: string): void {
    byId('stage').textContent = text;
  }

  // ---- Models ------------------------------------------------------------------------------------------

  private noteModel(): void {
    const source = byId<HTMLSelectElement>('answers').value;
    byId('answers-note').textContent = PRESETS.find((preset) => preset.source === source)?.note ?? '';
  }

  private answer(turns: readonly Turn[], signal: AbortSignal): AsyncIterable<string> {
    const messages = [{ role: 'system', content: SYSTEM }, ...turns.map(({ role, content }) => ({ role, content }))];
    return this.answers.loader.tern!.stream(messages, { signal, maxTokens: LONGEST_ANSWER });
  }

  // ---- The voice ---------------------------------------------------------------------------------------

  private listVoices(): void {
    const voices = localVoices();
    const chosen = this.voices.value || voiceFor(voices, navigator.language)?.voiceURI;
    this.voices.replaceChildren(
      ...voices.map(({ name, lang, voiceURI }) => h('option', { value: voiceURI }, `${name} (${lang})`)),
      h('option', { value: '' }, 'None: show the answers'),
    );
    this.voices.value = chosen ?? '';
    byId('voice-note').textContent = this.speaker().about;
  }

  private speaker(): Speaker {
    const voice = localVoices().find(({ voiceURI }) => voiceURI === this.voices.value);
    if (voice) return new BrowserSpeaker(voice);
    return localVoices().length ? { ...SILENT, about: 'Answers are shown, not spoken.' } : SILENT;
  }

  // ---- The microphone ----------------------------------------------------------------------------------

  private async click(): Promise<void> {
    if (this.opening) return;
    if (!this.microphone) return this.open();
    if (this.free) this.close('');
  }

  private async open(): Promise<void> {
    this.opening = true;
    this.button.disabled = true;
    try {
      this.tell('Asking for the microphone…');
      // First, as long as it is an answer to a click.
      const microphone = await Microphone.open({
        onFrame: (frame) => this.hear(frame),
        onEnd: () => this.close('The microphone is gone.'),
      });
      byId('without').hidden = true;
      this.tell('Loading the models…');
      if (!(await this.hears.ready()) || !(await this.answers.ready())) {
        microphone.close();
        return this.tell('A model is missing.');
      }
      if (!this.hears.loader.tern!.media.isAsr) {
        microphone.close();
        return this.tell(`${this.hears.loader.tern!.info.name || 'The model'} does not transcribe.`);
      }
      this.microphone = microphone;
      this.detector.reset();
      this.show('waiting');
    } catch (error) {
      this.tell((error as Error).message);
      byId('without').hidden = false;
    } finally {
      this.opening = false;
      this.button.disabled = false;
    }
  }

  private close(why: string): void {
    this.microphone?.close();
    this.microphone = null;
    this.holding = null;
    this.detector.reset();
    this.talk.stop();
    this.show('waiting');
    this.level.style.transform = '';
    if (why) this.tell(why);
  }

  private hear(frame: Float32Array): void {
    if (!this.microphone) return;
    this.level.style.transform = `scaleX(${Math.min(1, Math.max(0, (loudness(frame) + 60) / 50))})`;
    if (!this.free) return void this.holding?.push(frame);
    this.detector.above = this.talk.stage === 'speaking' ? this.calm + LOUDER : this.calm;
    this.detector.push(frame);
  }

  private listenForHolding(): void {
    const press = () => {
      if (this.free || !this.microphone || this.holding) return;
      this.talk.begins();
      this.holding = [];
    };
    const release = () => {
      const { holding } = this;
      this.holding = null;
      if (!holding) return;
      if (holding.length) void this.talk.heard(joined(holding));
      else this.talk.stop();
    };
    this.button.addEventListener('pointerdown', (event) => {
      this.button.setPointerCapture(event.pointerId);
      press();
    });
    for (const name of ['pointerup', 'pointercancel', 'lostpointercapture'] as const)
      this.button.addEventListener(name, release);
    const isSpace = (event: KeyboardEvent) => {
      const on = event.target as HTMLElement;
      return event.key === ' ' && !this.free && (on === this.button || !on.matches('input, select, button, summary'));
    };
    addEventListener('keydown', (event) => {
      if (!isSpace(event) || !this.microphone) return;
      event.preventDefault();
      if (!event.repeat) press();
    });
    addEventListener('keyup', (event) => {
      if (!isSpace(event) || !this.microphone) return;
      event.preventDefault();
      release();
    });
    addEventListener('blur', release);
  }

  // ---- What is shown -----------------------------------------------------------------------------------

  private show(stage: Stage): void {
    const { microphone, free } = this;
    const label = !microphone ? 'Begin' : free ? 'Switch the microphone off' : 'Hold to speak';
    const waiting = microphone ? (free ? 'Speak whenever you like.' : 'Hold the button, or the space bar, and speak.') : 'Press to begin.';
    this.button.setAttribute('aria-label', label);
    this.button.title = label;
    this.button.classList.toggle('on', microphone !== null);
    this.button.classList.toggle('hearing', stage === 'hearing');
    this.stopButton.hidden = !['writing', 'thinking', 'speaking'].includes(stage);
    if (!this.opening) this.tell(STAGES[stage] || waiting);
  }

  private draw(): void {
    const { turns } = this.talk;
    byId('hint').hidden = turns.length > 0;
    this.newButton.hidden = turns.length === 0;
    const thread = byId('thread');
    thread.replaceChildren(
      ...turns.map(({ role, content, cut }) =>
        h('p', { class: `turn ${role}${cut ? ' cut' : ''}`, 'aria-label': role === 'user' ? 'You' : 'Answer' }, content),
      ),
    );
    thread.scrollTop = thread.scrollHeight;
  }
}

new VoicePage().start();
