#include "base/hash.h"

// One byte per step needs a table of 256 words, which must not be a mutable global. So a short text
// takes two steps of four bits a byte, with a table small enough to write down, and a long one
// first builds tables for eight bytes at a step ("slicing by 8": Kounavis and Berry 2005), which
// takes a few microseconds and saves three quarters of the time.
#define SLICING_FROM 65536

static const uint32_t nibbles[16] = {
    0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
    0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C, 0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C,
};

static uint32_t step_byte(uint32_t r, uint8_t byte) {
    r ^= byte;
    r = r >> 4 ^ nibbles[r & 15];
    return r >> 4 ^ nibbles[r & 15];
}

// Register r after n bytes, n a multiple of 8.
static uint32_t slice_by_8(uint32_t r, const uint8_t *p, size_t n) {
    uint32_t table[8][256]; // table[k][b]: what byte b does to the register k bytes later
    for (uint32_t b = 0; b < 256; b++) table[0][b] = step_byte(0, (uint8_t)b);
    for (int k = 1; k < 8; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
    for (; n; n -= 8, p += 8) {
        r ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        r = table[7][r & 255] ^ table[6][r >> 8 & 255] ^ table[5][r >> 16 & 255] ^
            table[4][r >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    return r;
}

uint32_t tern_crc32(uint32_t crc, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint32_t r = ~crc;
    if (n >= SLICING_FROM) {
        size_t n_sliced = n & ~(size_t)7;
        r = slice_by_8(r, p, n_sliced);
        p += n_sliced;
        n -= n_sliced;
    }
    while (n--) r = step_byte(r, *p++);
    return ~r;
}

uint64_t tern_hash64(uint64_t seed, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    uint64_t h = tern_mix64(seed ^ (n + 1) * 0x9E3779B97F4A7C15u);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word = 0;
        for (int i = 7; i >= 0; i--) word = word << 8 | p[i]; // a single load where possible
        h = tern_mix64(h ^ word) + 0x9E3779B97F4A7C15u;
    }
    uint64_t rest = 0;
    for (size_t i = 0; i < n; i++) rest |= (uint64_t)p[i] << 8 * i;
    return tern_mix64(h ^ rest);
}
