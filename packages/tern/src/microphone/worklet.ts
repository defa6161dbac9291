// The part of the microphone that runs in the audio thread: frames of one channel at the models' sample rate.
import { FRAME, RATE } from './rate.js';
import { Resampler } from './resampler.js';

declare const sampleRate: number;
declare const registerProcessor: (name: string, processor: new () => AudioWorkletProcessor) => void;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}

class Frames extends AudioWorkletProcessor {
  #resampler = new Resampler(sampleRate, RATE);
  #frame = new Float32Array(FRAME);
  #n = 0;

  process([channels]: Float32Array[][]): boolean {
    if (!channels || channels.length === 0) return true;
    const mean = channels.length === 1 ? channels[0]!
      : channels[0]!.map((_, i) => channels.reduce((sum, channel) => sum + channel[i]!, 0) / channels.length);
    for (const sample of this.#resampler.push(mean)) {
      this.#frame[this.#n++] = sample;
      if (this.#n < FRAME) continue;
      this.port.postMessage(this.#frame, [this.#frame.buffer]);
      this.#frame = new Float32Array(FRAME);
      this.#n = 0;
    }
    return true;
  }
}
registerProcessor('tern-microphone', Frames);
