// A conversation by voice: speech is transcribed and answered, and the answer is spoken while it is being
// generated. Speaking meanwhile interrupts it. The models for hearing, answering and speaking are passed in;
// nothing here displays anything.
import { splitThought } from '../chat/history.ts';
import { Sentences, speakable } from './sentences.ts';
import type { Speaker, Utterance } from './speaker.ts';

export type Stage = 'waiting' | 'hearing' | 'writing' | 'thinking' | 'speaking';

export interface Turn {
  role: 'user' | 'assistant';
  content: string;
  cut?: boolean; // it was interrupted: this is what was heard of it
}

export interface Parts {
  transcribe(samples: Float32Array, signal: AbortSignal): Promise<string>;
  answer(turns: readonly Turn[], signal: AbortSignal): AsyncIterable<string>;
  speaker(): Speaker;
}

export interface Watcher {
  stage(stage: Stage): void;
  turns(): void; // one came, or grew
  failed(why: string): void;
}

export class Talk {
  readonly turns: Turn[] = [];
  private running: AbortController | null = null;
  private current: Stage = 'waiting';
  private unwritten: Float32Array[] = []; // said before a pause, after which the user continued

  constructor(
    private readonly parts: Parts,
    private readonly watcher: Watcher,
  ) {}

  get stage(): Stage {
    return this.current;
  }

  private set(stage: Stage): void {
    if (stage === this.current) return;
    this.current = stage;
    this.watcher.stage(stage);
  }

  /** Somebody begins to speak: what is being said or done ends. */
  begins(): void {
    if (this.current !== 'writing') this.unwritten = [];
    this.stop();
    this.set('hearing');
  }

  /** What was said, from begins() on. */
  async heard(samples: Float32Array): Promise<void> {
    this.stop();
    const running = (this.running = new AbortController());
    this.unwritten.push(samples);
    try {
      this.set('writing');
      const text = await this.parts.transcribe(together(this.unwritten), running.signal);
      if (running.signal.aborted) return;
      this.unwritten = [];
      if (!text.trim()) return;
      this.turns.push({ role: 'user', content: text.trim() });
      this.watcher.turns();
      await this.answer(running.signal);
    } catch (error) {
      if (!running.signal.aborted) this.watcher.failed((error as Error).message);
    } finally {
      if (this.running === running) {
        this.running = null;
        this.set('waiting');
      }
    }
  }

  /** Ends what runs; what was heard of an answer stays. */
  stop(): void {
    const { running } = this;
    this.running = null;
    running?.abort();
    this.set('waiting');
  }

  forget(): void {
    this.stop();
    this.unwritten = [];
    this.turns.length = 0;
    this.watcher.turns();
  }

  private async answer(signal: AbortSignal): Promise<void> {
    const asked = [...this.turns];
    const turn: Turn = { role: 'assistant', content: '' };
    const voice = this.parts.speaker().begin();
    const cut = () => this.cut(turn, voice);
    signal.addEventListener('abort', cut, { once: true });
    this.set('thinking');
    this.turns.push(turn);
    try {
      await this.speak(turn, voice, this.parts.answer(asked, signal), signal);
      await voice.end();
    } catch (error) {
      if (!signal.aborted) voice.stop();
      throw error;
    } finally {
      signal.removeEventListener('abort', cut);
      if (!turn.content.trim()) this.turns.splice(this.turns.indexOf(turn), 1);
      this.watcher.turns();
    }
  }

  private async speak(turn: Turn, voice: Utterance, pieces: AsyncIterable<string>, signal: AbortSignal): Promise<void> {
    const sentences = new Sentences();
    let written = '';
    const say = (whole: string[]) => {
      for (const sentence of whole.map(speakable).filter(Boolean)) {
        voice.say(sentence);
        this.set('speaking');
      }
    };
    for await (const piece of pieces) {
      if (signal.aborted) return;
      written += piece;
      const { answer } = splitThought(written); // reasoning is not spoken
      const more = answer.slice(turn.content.length);
      turn.content = answer;
      this.watcher.turns();
      say(sentences.push(more));
    }
    if (!signal.aborted) say(sentences.end());
  }

  // The model must know what the user heard.
  private cut(turn: Turn, voice: Utterance): void {
    voice.stop();
    turn.content = voice.begun.join(' ');
    turn.cut = true;
  }
}

function together(pieces: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(pieces.reduce((n, piece) => n + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
