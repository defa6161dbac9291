// Speech detection in microphone frames by loudness: what lasts and is well above the quietest recent sound is
// speech.
import { FRAME, RATE } from './rate.js';

export interface SpeechOptions {
  onStart?: () => void; // speech begins
  onEnd?: (samples: Float32Array) => void; // the whole utterance, with a little silence around it
  pause?: number; // seconds of silence that end it (0.7)
  least?: number; // loud seconds that an utterance needs at least (0.2)
  longest?: number; // seconds after which an utterance is cut (28)
  above?: number; // decibels above the quietest sound (9)
}

const BEFORE = 0.3; // seconds that are kept from before the beginning
const AFTER = 0.25; // and from after the end
const LOUD_OF = 5; // frames, of which LOUD must be loud for a beginning
const LOUD = 3;
const FLOOR_LEAST = -70; // decibels of full scale: quieter is as good as silence
const BLOCKS = 10; // of half a second, whose quietest frames are remembered
const frames = (seconds: number): number => Math.round(seconds * RATE / FRAME);

export function loudness(samples: Float32Array): number { // decibels of full scale
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return 10 * Math.log10(sum / Math.max(1, samples.length) + 1e-12);
}

export class SpeechDetector {
  above: number; // may be raised while a loudspeaker plays
  #options: SpeechOptions;
  #said: Float32Array[] = []; // during silence: the last frames
  #levels: number[] = []; // their levels
  #speaking = false;
  #quiet = 0; // frames since the last loud one
  #loud = 0; // loud frames of the current utterance
  #floors: number[] = []; // the quietest of each block, the last one still growing
  #inBlock = 0;

  constructor(options: SpeechOptions) {
    this.#options = options;
    this.above = options.above ?? 9;
  }

  get speaking(): boolean { return this.#speaking; }

  push(frame: Float32Array): void {
    const level = loudness(frame);
    this.#hearFloor(level);
    const isLoud = level > Math.max(FLOOR_LEAST, Math.min(...this.#floors)) + this.above;
    this.#said.push(frame);
    this.#levels.push(isLoud ? 1 : 0);
    if (!this.#speaking) return this.#wait();
    this.#quiet = isLoud ? 0 : this.#quiet + 1;
    this.#loud += isLoud ? 1 : 0;
    const { pause = 0.7, longest = 28 } = this.#options;
    if (this.#quiet >= frames(pause) || this.#said.length >= frames(longest)) this.finish();
  }

  // Ends the current utterance, or discards it.
  finish(): void {
    const { least = 0.2, onEnd } = this.#options;
    const spoke = this.#speaking && this.#loud >= frames(least);
    const kept = this.#said.length - Math.max(0, this.#quiet - frames(AFTER));
    const said = this.#said.slice(0, kept);
    // Sound that was loud all the time is the room's noise level.
    if (this.#speaking && this.#quiet === 0) this.#floors = [Math.min(...said.slice(said.length >> 1).map(loudness))];
    this.reset();
    if (spoke) onEnd?.(joined(said));
  }

  reset(): void {
    this.#said = [];
    this.#levels = [];
    this.#speaking = false;
    this.#quiet = this.#loud = 0;
  }

  // Speech does not raise the noise level, but quieter frames lower it.
  #hearFloor(level: number): void {
    if (this.#floors.length === 0) this.#floors.push(level);
    const last = this.#floors.length - 1;
    this.#floors[last] = Math.min(this.#floors[last]!, level);
    if (this.#speaking || ++this.#inBlock < frames(0.5)) return;
    this.#inBlock = 0;
    this.#floors.push(level);
    if (this.#floors.length > BLOCKS) this.#floors.shift();
  }

  #wait(): void {
    const loud = this.#levels.slice(-LOUD_OF).reduce((a, b) => a + b, 0);
    if (loud >= LOUD) {
      this.#speaking = true;
      this.#loud = loud;
      this.#options.onStart?.();
      return;
    }
    while (this.#said.length > frames(BEFORE) + LOUD_OF) {
      this.#said.shift();
      this.#levels.shift();
    }
  }
}

export function joined(pieces: readonly Float32Array[]): Float32Array {
  const all = new Float32Array(pieces.reduce((n, { length }) => n + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
