// SHA-256. The platform's digest takes a whole buffer at once and exists only in secure contexts;
// this one is incremental and works everywhere.

const K = /* @__PURE__ */ constants();

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
function constants(): Int32Array {
  const k = new Int32Array(64);
  for (let n = 2, i = 0; i < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
    if (prime) k[i++] = fraction(BigInt(n));
  }
  return k;
}

// In whole numbers, since a browser may round Math.cbrt differently: floor(cbrt(n) * 2^32) mod 2^32.
function fraction(n: bigint): number {
  const cube = n << 96n;
  let root = 0n;
  for (let bit = 1n << 35n; bit > 0n; bit >>= 1n) {
    const next = root | bit;
    if (next * next * next <= cube) root = next;
  }
  return Number(root & 0xffffffffn) | 0;
}

const INITIAL = [
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

export class Sha256 {
  length = 0; // bytes so far
  #h = Int32Array.from(INITIAL);
  #w = new Int32Array(64);
  #rest = new Uint8Array(64);

  update(bytes: Uint8Array): this {
    let at = 0;
    const held = this.length % 64;
    this.length += bytes.length;
    if (held > 0) {
      at = Math.min(64 - held, bytes.length);
      this.#rest.set(bytes.subarray(0, at), held);
      if (held + at < 64) return this;
      this.#block(this.#rest, 0);
    }
    for (; at + 64 <= bytes.length; at += 64) this.#block(bytes, at);
    this.#rest.set(bytes.subarray(at));
    return this;
  }

  // Ends it: nothing can be added afterwards.
  hex(): string {
    const bits = this.length * 8;
    const end = new Uint8Array(this.length % 64 < 56 ? 64 - (this.length % 64) : 128 - (this.length % 64));
    end[0] = 0x80;
    const view = new DataView(end.buffer);
    view.setUint32(end.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(end.length - 4, bits >>> 0);
    this.update(end);
    return Array.from(this.#h, x => (x >>> 0).toString(16).padStart(8, '0')).join('');
  }

  #block(bytes: Uint8Array, at: number): void {
    const w = this.#w;
    const h = this.#h;
    for (let i = 0; i < 16; i++, at += 4)
      w[i] = (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15]!;
      const y = w[i - 2]!;
      w[i] = (w[i - 16]! + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + w[i - 7]!
        + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10)) | 0;
    }
    let a = h[0]!, b = h[1]!, c = h[2]!, d = h[3]!, e = h[4]!, f = h[5]!, g = h[6]!, z = h[7]!;
    for (let i = 0; i < 64; i++) {
      const t = (z + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7))
        + (g ^ (e & (f ^ g))) + K[i]! + w[i]!) | 0;
      const u = (((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10))
        + ((a & b) | (c & (a | b)))) | 0;
      z = g; g = f; f = e; e = (d + t) | 0; d = c; c = b; b = a; a = (t + u) | 0;
    }
    h[0] = h[0]! + a; h[1] = h[1]! + b; h[2] = h[2]! + c; h[3] = h[3]! + d;
    h[4] = h[4]! + e; h[5] = h[5]! + f; h[6] = h[6]! + g; h[7] = h[7]! + z;
  }
}

// The hash of bytes in memory, by the platform if it can.
export async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  if (!globalThis.crypto?.subtle) return new Sha256().update(bytes).hex();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return Array.from(digest, x => x.toString(16).padStart(2, '0')).join('');
}
