// Detects what this WebAssembly engine supports, with tiny modules that are validated and run.
import { TernError } from './error.js';
import type { Build } from './types.js';

// One function that returns whether one of SIMD128's instructions is true.
const SIMD = 'AGFzbQEAAAABBQFgAAF/AwIBAAcFAQFmAAAKGAEWAP0MAQEBAQEBAQEBAQEBAQEBAf1TCw==';

// One function that returns 1 if relaxed SIMD computes as the kernels need it, where the standard
// leaves a choice (or an engine is wrong): f32x4.relaxed_madd of a*a - (1 + 2^-11), a = 1 + 2^-12, is
// not 0, as it is when the product is rounded; i16x8.relaxed_dot_i8x16_i7x16 of -3 and 2 is -12; and
// i32x4.relaxed_dot_i8x16_i7x16_add of them and 5 is -19 (V8 11, in Node 20, says -48).
const RELAXED =
  'AGFzbQEAAAABBQFgAAF/AwIBAAcFAQFmAAAKtQEBsgEA/QwACIA/AAiAPwAIgD8ACIA//QwACIA/AAiAPwAIgD8ACIA//QwAEIC/' +
  'ABCAvwAQgL8AEIC//YUC/R8AQwAAAABc/Qz9/f39/f39/f39/f39/f39/QwCAgICAgICAgICAgICAgIC/ZIC/RgAQXRGcf0M/f39/f39' +
  '/f39/f39/f39/f0MAgICAgICAgICAgICAgICAv0MBQAAAAUAAAAFAAAABQAAAP2TAv0bAEFtRnEL';

function holds(base64: string): boolean {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  if (!WebAssembly.validate(bytes)) return false;
  const { f } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
  return (f as () => number)() === 1;
}

// A page's main thread must not block.
function sharesMemory(): boolean {
  if ('document' in globalThis || typeof SharedArrayBuffer === 'undefined' || globalThis.crossOriginIsolated === false) return false;
  try {
    return new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer instanceof SharedArrayBuffer;
  } catch {
    return false;
  }
}

// The builds that work here, the best one first.
export function workingBuilds(): Build[] {
  if (typeof WebAssembly === 'undefined') throw new TernError('unsupported', 'there is no WebAssembly here');
  if (!holds(SIMD)) throw new TernError('unsupported', 'this browser is too old: its WebAssembly has no SIMD');
  if (!holds(RELAXED)) return ['simd'];
  return sharesMemory() ? ['threads', 'relaxed', 'simd'] : ['relaxed', 'simd'];
}
