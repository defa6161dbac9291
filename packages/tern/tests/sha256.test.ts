import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { Sha256, sha256 } from '../src/store/sha256.js';
import { noise } from './server.js';

const reference = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

// Every length around a block and its padding, in uneven pieces. Seen to fail with `< 56` made `<= 56`,
// and with a K off by one bit.
test('SHA-256 by pieces is that of the whole', () => {
  for (const n of [0, 1, 55, 56, 63, 64, 65, 119, 120, 127, 128, 1000, 100_003]) {
    const bytes = noise(n);
    for (const step of [1, 7, 64, 100, 4096]) {
      if (n / step > 20_000) continue;
      const hash = new Sha256();
      for (let at = 0; at < n; at += step) hash.update(bytes.subarray(at, at + step));
      assert.equal(hash.hex(), reference(bytes), `${n} bytes by ${step}`);
    }
  }
});

test('with and without the platform', async () => {
  const bytes = noise(1234);
  assert.equal(await sha256(bytes), reference(bytes));
  assert.equal(new Sha256().update(bytes).hex(), reference(bytes));
});
