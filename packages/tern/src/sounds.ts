// The user's sounds as samples of one channel at the models' rate. The browser decodes and resamples, which it does
// only in pages.
import type { SoundSource } from './api.js';
import { TernError } from './errors.js';

export async function samplesOf(sound: SoundSource, given: number | undefined, rate: number): Promise<Float32Array> {
  if (sound instanceof Float32Array) {
    if (given === undefined || given === rate) return sound;
    const buffer = new (audio())(1, Math.max(1, sound.length), given).createBuffer(1, Math.max(1, sound.length), given);
    buffer.getChannelData(0).set(sound);
    return resampled(buffer, rate);
  }
  if (sound instanceof Blob || sound instanceof ArrayBuffer) {
    const bytes = sound instanceof Blob ? await sound.arrayBuffer() : sound.slice(0); // decoding detaches the buffer
    try {
      return mean(await new (audio())(1, 1, rate).decodeAudioData(bytes));
    } catch (cause) {
      if (cause instanceof TernError) throw cause;
      throw new TernError('format', `the sound cannot be decoded: ${(cause as Error).message}`, { cause });
    }
  }
  if (typeof (sound as AudioBuffer | undefined)?.getChannelData === 'function') return resampled(sound, rate);
  throw new TernError('argument', 'a sound is given as samples (Float32Array), an AudioBuffer, a Blob, or the bytes of a file');
}

function audio(): typeof OfflineAudioContext {
  if (typeof OfflineAudioContext === 'function') return OfflineAudioContext;
  throw new TernError('unsupported',
    'nothing decodes or resamples sounds here: give samples, a Float32Array of one channel, of 16,000 a second');
}

// Channels are averaged, as when the engine reads files.
function mean(buffer: AudioBuffer): Float32Array {
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, i) => buffer.getChannelData(i));
  if (channels.length === 1) return channels[0]!;
  return Float32Array.from({ length: buffer.length }, (_, i) => channels.reduce((sum, c) => sum + c[i]!, 0) / channels.length);
}

async function resampled(buffer: AudioBuffer, rate: number): Promise<Float32Array> {
  const samples = mean(buffer);
  if (buffer.sampleRate === rate) return samples;
  const context = new (audio())(1, Math.max(1, Math.round(buffer.duration * rate)), rate);
  const one = context.createBuffer(1, samples.length, buffer.sampleRate);
  one.getChannelData(0).set(samples);
  const source = context.createBufferSource();
  source.buffer = one;
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
}
