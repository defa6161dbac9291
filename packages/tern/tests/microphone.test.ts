// What the microphone's frames go through: another rate, and the search for speech.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Resampler } from '../src/microphone/resampler.js';
import { FRAME, joined, SpeechDetector, type SpeechOptions } from '../src/microphone/index.js';

const tone = (n: number, rate: number, hertz: number, loud = 1) =>
  Float32Array.from({ length: n }, (_, i) => loud * Math.sin(2 * Math.PI * hertz * i / rate));
function resample(samples: Float32Array, from: number, to: number, each = 128): Float32Array {
  const resampler = new Resampler(from, to), out: Float32Array[] = [];
  for (let i = 0; i < samples.length; i += each) out.push(resampler.push(samples.subarray(i, i + each)));
  return joined(out);
}
const power = (samples: Float32Array) => samples.reduce((sum, x) => sum + x * x, 0) / samples.length;

test('another rate has the same tones', () => {
  for (const from of [44100, 48000, 16000, 8000, 22050]) {
    const out = resample(tone(from, from, 440), from, 16000);
    const want = tone(16000, 16000, 440);
    assert.ok(Math.abs(out.length - 16000) < 80, `${from}: ${out.length} samples`);
    let worst = 0; // the beginning comes out of the silence before it
    for (let i = 200; i < out.length; i++) worst = Math.max(worst, Math.abs(out[i]! - want[i]!));
    assert.ok(worst < 1e-3, `${from}: off by ${worst}`); // seen to fail with a phase that is one too late
    assert.deepEqual(resample(tone(from, from, 440), from, 16000, 1000), out, 'pieces of another length');
  }
});

test('what is above half the rate is gone', () => {
  assert.ok(power(resample(tone(48000, 48000, 9000), 48000, 16000).subarray(400)) < 1e-6);
  assert.ok(Math.abs(power(resample(tone(48000, 48000, 6000), 48000, 16000).subarray(400)) - 0.5) < 0.01);
});

// Frames of hum, and of a voice that is that much louder; [voice, seconds] each.
function hear(parts: readonly [number, number][], options: SpeechOptions = {}): { starts: number[]; said: number[] } {
  const starts: number[] = [], said: number[] = [];
  let at = 0;
  const detector = new SpeechDetector({ ...options, onStart: () => starts.push(at), onEnd: samples => said.push(samples.length / 16000) });
  for (const [decibels, seconds] of parts)
    for (const end = at + seconds; at < end; at += FRAME / 16000) {
      const frame = tone(FRAME, 16000, 200, 0.003 * 10 ** (decibels / 20) * (0.9 + 0.1 * Math.sin(at * 40)));
      detector.push(frame);
    }
  return { starts, said };
}

test('speech is found, with its edges', () => {
  const { starts, said } = hear([[0, 1], [20, 1], [0, 0.4], [20, 0.5], [0, 2], [25, 0.8], [0, 1]]);
  assert.equal(said.length, 2); // the short pause divides nothing; seen to fail with pause: 0.3
  assert.ok(starts[0]! > 1 && starts[0]! < 1.2, `begins at ${starts[0]}`);
  assert.ok(said[0]! > 2.2 && said[0]! < 2.6, `${said[0]} seconds`);
  assert.ok(said[1]! > 1.1 && said[1]! < 1.5, `${said[1]} seconds`);
});

test('a click is no speech, and neither is a fan that begins', () => {
  assert.deepEqual(hear([[0, 1], [30, 0.06], [0, 2]]).said, []);
  const fan = hear([[0, 1], [20, 70]], { longest: 10 });
  assert.equal(fan.said.length, 1, 'what goes on for ever was taken for speech again and again');
});
