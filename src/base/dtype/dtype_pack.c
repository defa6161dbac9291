// Writers of the blocks that dtype_codes.c reads, from the same parts; the layouts are described
// there.
#include <string.h>
#include "base/dtype/dtype.h"

static void write_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

// 16 bytes of nibbles; high: gets the fifth bits of 32 codes, or is NULL.
static void write_nibbles(const uint8_t *codes, uint8_t *high, uint8_t *b) {
    for (int i = 0; i < 16; i++) b[i] = (uint8_t)((codes[i] & 15) | (codes[16 + i] & 15) << 4);
    for (int i = 0; high && i < 32; i++) high[i / 8] |= (uint8_t)((codes[i] >> 4 & 1) << i % 8);
}

// The exponent of MXFP4 whose power, halved, has these bits as BF16.
static uint8_t exponent_of(uint16_t scale) {
    return (uint8_t)(scale >= 0x80 ? (scale >> 7) + 1 : scale == 0x40);
}

static void write_32(tern_dtype type, const tern_dtype_form *f, const tern_dtype_codes *from,
                     uint8_t *b) {
    if (type == TERN_DTYPE_MXFP4) {
        b[0] = exponent_of(*from->scales);
        write_nibbles(from->codes, NULL, b + 1);
        return;
    }
    write_u16(b, *from->scales);
    b += 2;
    if (f->has_minima) { // files add it
        write_u16(b, *from->minima ^ 0x8000);
        b += 2;
    }
    if (f->bits == 8)
        for (int i = 0; i < 32; i++) b[i] = from->codes[i] ^ 128;
    else
        write_nibbles(from->codes, f->bits == 5 ? b : NULL, f->bits == 5 ? b + 4 : b);
}

// The 2-bit codes of 256 weights.
static void write_pairs(const uint8_t *codes, uint8_t *b) {
    for (int i = 0; i < 256; i++)
        b[i / 128 * 32 + i % 32] |= (uint8_t)((codes[i] & 3) << i % 128 / 32 * 2);
}

static void write_q2_k(const tern_dtype_codes *from, uint8_t *b) {
    for (int i = 0; i < 16; i++)
        b[i] = (uint8_t)((from->sub_scales[i] & 15) | (from->sub_minima[i] & 15) << 4);
    write_pairs(from->codes, b + 16);
    write_u16(b + 80, *from->scales);
    write_u16(b + 82, *from->minima);
}

static void write_q3_k(const tern_dtype_codes *from, uint8_t *b) {
    uint8_t *s = b + 96;
    for (int i = 0; i < 256; i++) b[i % 32] |= (uint8_t)((from->codes[i] >> 2 & 1) << i / 32);
    write_pairs(from->codes, b + 32);
    for (int i = 0; i < 16; i++) {
        int scale = from->sub_scales[i] + 32;
        s[i % 8] |= (uint8_t)((scale & 15) << i / 8 * 4);
        s[8 + i % 4] |= (uint8_t)((scale >> 4 & 3) << i / 4 * 2);
    }
    write_u16(b + 108, *from->scales);
}

static void write_q45_k(const tern_dtype_codes *from, bool fifth, uint8_t *b) {
    uint8_t *k = b + 4, *high = b + 16, *low = fifth ? b + 48 : b + 16;
    write_u16(b, *from->scales);
    write_u16(b + 2, *from->minima);
    for (int i = 0; i < 4; i++) {
        int s = from->sub_scales[4 + i], m = from->sub_minima[4 + i];
        k[i] = (uint8_t)((from->sub_scales[i] & 63) | s >> 4 << 6);
        k[4 + i] = (uint8_t)((from->sub_minima[i] & 63) | m >> 4 << 6);
        k[8 + i] = (uint8_t)((s & 15) | (m & 15) << 4);
    }
    for (int i = 0; i < 256; i++) {
        int s = i / 32, at = i % 32;
        low[s / 2 * 32 + at] |= (uint8_t)((from->codes[i] & 15) << s % 2 * 4);
        if (fifth) high[at] |= (uint8_t)((from->codes[i] >> 4 & 1) << s);
    }
}

static void write_q6_k(const tern_dtype_codes *from, uint8_t *b) {
    for (int i = 0; i < 256; i++) {
        int half = i / 128, part = i % 128 / 32, at = i % 32, code = from->codes[i];
        b[half * 64 + part % 2 * 32 + at] |= (uint8_t)((code & 15) << part / 2 * 4);
        b[128 + half * 32 + at] |= (uint8_t)(code >> 4 << part * 2);
    }
    memcpy(b + 192, from->sub_scales, 16);
    write_u16(b + 208, *from->scales);
}

static void write_iq4_xs(const tern_dtype_codes *from, uint8_t *b) {
    unsigned high = 0;
    write_u16(b, *from->scales);
    for (int i = 0; i < 8; i++) {
        int scale = from->sub_scales[i] + 32;
        b[4 + i / 2] |= (uint8_t)((scale & 15) << i % 2 * 4);
        high |= (unsigned)(scale >> 4 & 3) << 2 * i;
        write_nibbles(from->codes + 32 * i, NULL, b + 8 + 16 * i);
    }
    write_u16(b + 2, (uint16_t)high);
}

bool tern_dtype_encode_codes(tern_dtype type, const tern_dtype_codes *parts, void *out) {
    const tern_dtype_form *f = tern_dtype_form_of(type);
    uint8_t *b = out;
    if (!f) return false;
    memset(b, 0, tern_dtype_block_bytes(type));
    switch (type) {
    case TERN_DTYPE_Q2_K: write_q2_k(parts, b); break;
    case TERN_DTYPE_Q3_K: write_q3_k(parts, b); break;
    case TERN_DTYPE_Q4_K: write_q45_k(parts, false, b); break;
    case TERN_DTYPE_Q5_K: write_q45_k(parts, true, b); break;
    case TERN_DTYPE_Q6_K: write_q6_k(parts, b); break;
    case TERN_DTYPE_IQ4_XS: write_iq4_xs(parts, b); break;
    default: write_32(type, f, parts, b); break;
    }
    return true;
}
