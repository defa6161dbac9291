// SHA-256 (FIPS 180-4), by which hubs identify large files, and SHA-1, by which git identifies
// small ones.
#include <stdio.h>
#include <string.h>
#include "apps/hub/hub_private.h"

static uint32_t left(uint32_t x, int n) { return x << n | x >> (32 - n); }
static uint32_t right(uint32_t x, int n) { return x >> n | x << (32 - n); }

static uint32_t read_word(const unsigned char *b) {
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void sha256_block(uint32_t state[8], const unsigned char *block) {
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2};
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = read_word(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (right(a, 7) ^ right(a, 18) ^ a >> 3) + w[i - 7] +
               (right(b, 17) ^ right(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t = v[7] + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) +
                     ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t u =
            (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

static void sha1_block(uint32_t state[8], const unsigned char *block) {
    static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++) w[i] = read_word(block + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20              ? (b & c) | (~b & d)
                     : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d)
                                         : b ^ c ^ d;
        uint32_t t = left(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = left(b, 30);
        b = a;
        a = t;
    }
    const uint32_t v[5] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++) state[i] += v[i];
}

static void add_block(hub_digest *d, const unsigned char *block) {
    if (d->is_sha1)
        sha1_block(d->state, block);
    else
        sha256_block(d->state, block);
}

void hub_digest_begin(hub_digest *d, bool is_sha1) {
    static const uint32_t of_sha1[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    static const uint32_t of_sha256[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *d = (hub_digest){.is_sha1 = is_sha1};
    if (is_sha1)
        memcpy(d->state, of_sha1, sizeof of_sha1);
    else
        memcpy(d->state, of_sha256, sizeof of_sha256);
}

void hub_digest_add(hub_digest *d, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    while (n > 0) {
        size_t have = d->n % 64, more = 64 - have < n ? 64 - have : n;
        d->n += more;
        if (more == 64) {
            add_block(d, b);
        } else {
            memcpy(d->block + have, b, more);
            if (have + more == 64) add_block(d, d->block);
        }
        b += more;
        n -= more;
    }
}

void hub_digest_end(hub_digest *d, char hex[65]) {
    static const unsigned char pad[64] = {0x80};
    uint64_t bits = d->n * 8;
    unsigned char length[8];
    hub_digest_add(d, pad, 1 + (119 - d->n % 64) % 64);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    hub_digest_add(d, length, 8);
    for (int i = 0; i < (d->is_sha1 ? 5 : 8); i++) snprintf(hex + 8 * i, 9, "%08x", d->state[i]);
}
