// Resampling, piece by piece: a windowed sinc, one set of weights for each position that a new sample can have
// between old ones.
const SIDE = 16; // zeros of the sinc on each side
const PHASES_MAX = 1024;
const PASSES = 0.94; // of the lower Nyquist frequency; the rest is the transition band

const divisor = (a: number, b: number): number => b === 0 ? a : divisor(b, a % b);

export class Resampler {
  #up: number;
  #down: number;
  #reach: number; // old samples on each side
  #weights: Float32Array[];
  #kept: Float32Array; // old samples that new ones still need
  #at = 0; // position of the next new sample: this many old ones after the first kept one, plus phase / up
  #phase = 0;

  constructor(from: number, to: number) {
    const common = divisor(from, to);
    this.#up = to / common;
    this.#down = from / common;
    if (this.#up > PHASES_MAX) throw new RangeError(`${from} samples a second cannot be made ${to}`);
    const cut = PASSES * Math.min(1, to / from);
    this.#reach = Math.ceil(SIDE / cut);
    this.#weights = Array.from({ length: this.#up }, (_, phase) => this.#weightsAt(phase / this.#up, cut));
    this.#kept = new Float32Array(this.#reach); // silence before the first
    this.#at = this.#reach;
  }

  // Weights of the old samples around a position; they sum to 1, so that a constant is preserved.
  #weightsAt(between: number, cut: number): Float32Array {
    const weights = Float32Array.from({ length: 2 * this.#reach }, (_, i) => {
      const x = i - this.#reach + 1 - between, turn = Math.PI * x * cut;
      const window = Math.cos(Math.PI * x / (2 * (this.#reach + 1))) ** 2;
      return (turn === 0 ? 1 : Math.sin(turn) / turn) * window;
    });
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map(weight => weight / sum);
  }

  // Returns the new samples that can be computed after adding these.
  push(samples: Float32Array): Float32Array {
    const all = new Float32Array(this.#kept.length + samples.length);
    all.set(this.#kept);
    all.set(samples, this.#kept.length);
    const out: number[] = [];
    while (this.#at + this.#reach < all.length) {
      const weights = this.#weights[this.#phase]!, first = this.#at - this.#reach + 1;
      let sum = 0;
      for (let i = 0; i < weights.length; i++) sum += weights[i]! * all[first + i]!;
      out.push(sum);
      this.#phase += this.#down;
      this.#at += Math.floor(this.#phase / this.#up);
      this.#phase %= this.#up;
    }
    const gone = Math.min(all.length, Math.max(0, this.#at - this.#reach + 1));
    this.#kept = all.slice(gone);
    this.#at -= gone;
    return Float32Array.from(out);
  }
}
