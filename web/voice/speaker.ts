// Speech output: sentences in, sound out, until it is done or interrupted.

/** One answer that is being spoken. */
export interface Utterance {
  say(sentence: string): void; // queued after those waiting
  end(): Promise<void>; // resolves when everything queued was spoken, or after stop()
  stop(): void; // at once
  readonly begun: readonly string[]; // sentences that were heard at least in part
}

export interface Speaker {
  readonly about: string; // for display: which voice, and where it runs
  begin(): Utterance;
}

/** Shows what it would say. */
export const SILENT: Speaker = {
  about: 'This browser has no voice on this device: answers are shown, not spoken.',
  begin() {
    const begun: string[] = [];
    return { begun, say: (sentence) => void begun.push(sentence), end: async () => {}, stop: () => {} };
  },
};

/** Voices that need no network. */
export function localVoices(): SpeechSynthesisVoice[] {
  const synthesis = (globalThis as { speechSynthesis?: SpeechSynthesis }).speechSynthesis;
  return synthesis?.getVoices().filter((voice) => voice.localService) ?? [];
}

/** The voice for a language: of that place, else of that language, else any. */
export function voiceFor(voices: readonly SpeechSynthesisVoice[], language: string): SpeechSynthesisVoice | null {
  const fits = (wanted: string) =>
    voices.find((voice) => voice.lang.toLowerCase().replace('_', '-').startsWith(wanted));
  const wanted = language.toLowerCase();
  return fits(wanted) ?? fits(wanted.split('-')[0]!) ?? voices[0] ?? null;
}

/** The browser's own synthesis. */
export class BrowserSpeaker implements Speaker {
  constructor(
    private readonly voice: SpeechSynthesisVoice,
    private readonly synthesis: SpeechSynthesis = speechSynthesis,
  ) {}

  get about(): string {
    return `Spoken by this device’s voice “${this.voice.name}”.`;
  }

  begin(): Utterance {
    const { synthesis, voice } = this;
    const begun: string[] = [];
    const waiting = new Set<SpeechSynthesisUtterance>(); // kept: browsers drop utterances without references
    let done = () => {};
    let stopped = false;
    const settle = (utterance: SpeechSynthesisUtterance) => {
      waiting.delete(utterance);
      if (waiting.size === 0) done();
    };
    return {
      begun,
      say(sentence) {
        if (stopped) return;
        const utterance = new SpeechSynthesisUtterance(sentence);
        utterance.voice = voice;
        utterance.lang = voice.lang;
        utterance.onstart = () => void begun.push(sentence);
        utterance.onend = utterance.onerror = () => settle(utterance);
        waiting.add(utterance);
        synthesis.speak(utterance);
      },
      end: () =>
        new Promise((resolve) => {
          done = resolve;
          if (waiting.size === 0) resolve();
        }),
      stop() {
        stopped = true;
        waiting.clear();
        synthesis.cancel();
        done();
      },
    };
  }
}
