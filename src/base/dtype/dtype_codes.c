// Readers of the types with codes of four bits or more and a scale for each group, and of types
// read like them; and the description of their layouts (the head of dtype_decode.c explains the
// notation).
//
//   Q8_0  32 weights, 34 bytes   f16 d, int8 q[32]:                          d * q
//   Q4_0  32 weights, 18 bytes   f16 d, 16 bytes; byte i holds weight i in its low nibble and
//                                weight 16 + i in its high one:              d * (nibble - 8)
//   Q4_1  32 weights, 20 bytes   f16 d, f16 m, nibbles as Q4_0:              d * nibble + m
//   Q5_0  32 weights, 22 bytes   f16 d, 4 bytes, nibbles as Q4_0; bit i of the 32 is the fifth of
//                                weight i:                                   d * (q - 16)
//   Q5_1  32 weights, 24 bytes   f16 d, f16 m, 4 bytes and nibbles as Q5_0:  d * q + m
//   IQ4_NL 32 weights, 18 bytes  as Q4_0, a nibble being the number of one of 16 values:
//                                                                            d * value
//   MXFP4 32 weights, 17 bytes   a byte e, nibbles as Q4_0, numbers of the 16 values of e2m1 (here
//                                doubled):                                   2^(e - 128) * value
//   Q2_K  256 weights, 84 bytes  16 bytes of a 4-bit scale (low) and a 4-bit minimum for each 16
//                                weights, 64 bytes, f16 d, f16 d_min; byte i of half h holds
//                                weights 128h + i + 32s in bits 2s:
//                                                           (d * scale) * q - (d_min * min)
//   Q3_K  256 weights, 110 bytes 32 bytes of third bits: bit s of byte i is weight 32s + i's; 64
//                                bytes as in Q2_K; 12 bytes of 16 scales of 6 bits, minus 32: the
//                                low nibbles of scales i and 8 + i in byte i (i < 8), the other two
//                                bits of scale 4k + i in bits 2k of byte 8 + i (i < 4); f16 d:
//                                                           (d * scale) * (q - 4)
//   Q4_K  256 weights, 144 bytes f16 d, f16 d_min, 12 bytes of eight 6-bit scales and eight 6-bit
//                                minima, 4 x 32 bytes; byte i of group g holds weight 64g + i (low
//                                nibble) and 64g + 32 + i (high), of sub-blocks 2g and 2g + 1:
//                                                           (d * scale) * nibble - (d_min * min)
//   Q5_K  256 weights, 176 bytes as Q4_K with 32 more bytes before the nibbles: bit s of byte i is
//                                the fifth bit of weight i of sub-block s
//   Q6_K  256 weights, 210 bytes 128 bytes of low nibbles, 64 bytes of high bit pairs, int8
//                                scales[16], f16 d. Each half (128 weights) takes 64 low bytes and
//                                32 high ones: weights i, 32 + i, 64 + i, 96 + i (i < 32) have
//                                their nibbles in low[i], low[32 + i] (low nibbles), low[i],
//                                low[32 + i] (high nibbles), and bits 1:0, 3:2, 5:4, 7:6 of
//                                high[i]; sixteen weights share a scale: (d * scale) * (q - 32)
//   IQ4_XS 256 weights, 136 bytes f16 d, 2 bytes of the upper two bits of eight scales, 4 bytes of
//                                their nibbles, 8 x 16 bytes of nibbles as IQ4_NL; a scale is 6
//                                bits, minus 32:            (d * scale) * value
#include <string.h>
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

// ---- Forms -------------------------------------------------------------------------------------

// Values plus 128.
#define VALUES_IQ4                                                                                 \
    { 1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241 }
#define VALUES_E2M1                                                                                \
    { 128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116 }

static const tern_dtype_form forms[TERN_DTYPE_COUNT] = {
    [TERN_DTYPE_Q4_0] = {.bits = 4, .group = 32, .zero = 8},
    [TERN_DTYPE_Q4_1] = {.bits = 4, .group = 32, .has_minima = true},
    [TERN_DTYPE_Q5_0] = {.bits = 5, .group = 32, .zero = 16},
    [TERN_DTYPE_Q5_1] = {.bits = 5, .group = 32, .has_minima = true},
    [TERN_DTYPE_Q8_0] = {.bits = 8, .group = 32, .zero = 128},
    [TERN_DTYPE_IQ4_NL] =
        {.bits = 4, .group = 32, .zero = 128, .table = VALUES_IQ4, .has_table = true},
    [TERN_DTYPE_MXFP4] = {.bits = 4,
                          .group = 32,
                          .zero = 128,
                          .table = VALUES_E2M1,
                          .has_table = true,
                          .is_bf16 = true},
    [TERN_DTYPE_Q2_K] = {.bits = 4, .group = 16, .super = 256, .has_minima = true},
    [TERN_DTYPE_Q3_K] = {.bits = 4, .group = 16, .super = 256, .zero = 4},
    [TERN_DTYPE_Q4_K] = {.bits = 4, .group = 32, .super = 256, .has_minima = true},
    [TERN_DTYPE_Q5_K] = {.bits = 5, .group = 32, .super = 256, .has_minima = true},
    [TERN_DTYPE_Q6_K] = {.bits = 6, .group = 16, .super = 256, .zero = 32},
    [TERN_DTYPE_IQ4_XS] =
        {.bits = 4, .group = 32, .super = 256, .zero = 128, .table = VALUES_IQ4, .has_table = true},
};

const tern_dtype_form *tern_dtype_form_of(tern_dtype type) {
    return forms[type].bits ? &forms[type] : NULL;
}

// ---- Blocks ------------------------------------------------------------------------------------

// 16 bytes of nibbles; high: the fifth bits of 32 codes, or NULL.
static void read_nibbles(const uint8_t *b, const uint8_t *high, uint8_t *codes) {
    for (int i = 0; i < 16; i++) {
        codes[i] = b[i] & 15;
        codes[16 + i] = b[i] >> 4;
    }
    for (int i = 0; high && i < 32; i++) codes[i] |= (uint8_t)((high[i / 8] >> i % 8 & 1) << 4);
}

// Blocks of 32: a scale, perhaps a minimum (files add it), perhaps fifth bits, codes.
static void read_32(tern_dtype type, const uint8_t *b, const tern_dtype_codes *to) {
    const tern_dtype_form *f = &forms[type];
    if (type == TERN_DTYPE_MXFP4) {
        *to->scales = (uint16_t)(b[0] < 2 ? 0x20 << b[0] : (b[0] - 1) << 7);
        read_nibbles(b + 1, NULL, to->codes);
        return;
    }
    *to->scales = tern_read_u16(b);
    b += 2;
    if (f->has_minima) {
        *to->minima = tern_read_u16(b) ^ 0x8000;
        b += 2;
    }
    if (f->bits == 8)
        for (int i = 0; i < 32; i++) to->codes[i] = b[i] ^ 128;
    else
        read_nibbles(f->bits == 5 ? b + 4 : b, f->bits == 5 ? b : NULL, to->codes);
}

// The 2-bit codes of 256 weights of Q2_K and Q3_K.
static void read_pairs(const uint8_t *b, uint8_t *codes) {
    for (int i = 0; i < 256; i++) codes[i] = b[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

static void read_q2_k(const uint8_t *b, const tern_dtype_codes *to) {
    *to->scales = tern_read_u16(b + 80);
    *to->minima = tern_read_u16(b + 82);
    for (int i = 0; i < 16; i++) {
        to->sub_scales[i] = (int8_t)(b[i] & 15);
        to->sub_minima[i] = (int8_t)(b[i] >> 4);
    }
    read_pairs(b + 16, to->codes);
}

static void read_q3_k(const uint8_t *b, const tern_dtype_codes *to) {
    const uint8_t *s = b + 96;
    *to->scales = tern_read_u16(b + 108);
    for (int i = 0; i < 16; i++) {
        int low = s[i % 8] >> i / 8 * 4 & 15, high = s[8 + i % 4] >> i / 4 * 2 & 3;
        to->sub_scales[i] = (int8_t)((low | high << 4) - 32);
    }
    read_pairs(b + 32, to->codes);
    for (int i = 0; i < 256; i++) to->codes[i] |= (uint8_t)((b[i % 32] >> i / 32 & 1) << 2);
}

// The 12 bytes k of Q4_K and Q5_K: scales 0..3 and minima 0..3 in the low six bits of bytes 0..3
// and 4..7; scale and minimum 4 + i in the nibbles of byte 8 + i, their upper two bits on top of
// bytes i and 4 + i.
static void read_q45_k(const uint8_t *b, bool fifth, const tern_dtype_codes *to) {
    const uint8_t *k = b + 4, *high = b + 16, *low = fifth ? b + 48 : b + 16;
    *to->scales = tern_read_u16(b);
    *to->minima = tern_read_u16(b + 2);
    for (int i = 0; i < 4; i++) {
        to->sub_scales[i] = (int8_t)(k[i] & 63);
        to->sub_minima[i] = (int8_t)(k[4 + i] & 63);
        to->sub_scales[4 + i] = (int8_t)((k[8 + i] & 15) | k[i] >> 6 << 4);
        to->sub_minima[4 + i] = (int8_t)(k[8 + i] >> 4 | k[4 + i] >> 6 << 4);
    }
    for (int s = 0; s < 8; s += 2) {
        uint8_t *codes = to->codes + 32 * s;
        for (int i = 0; i < 32; i++) {
            codes[i] = low[16 * s + i] & 15;
            codes[32 + i] = low[16 * s + i] >> 4;
        }
        for (int i = 0; fifth && i < 32; i++) {
            codes[i] |= (uint8_t)((high[i] >> s & 1) << 4);
            codes[32 + i] |= (uint8_t)((high[i] >> s & 2) << 3);
        }
    }
}

static void read_q6_k(const uint8_t *b, const tern_dtype_codes *to) {
    *to->scales = tern_read_u16(b + 208);
    memcpy(to->sub_scales, b + 192, 16);
    for (int s = 0; s < 8; s++) { // four in each half
        const uint8_t *low = b + s / 4 * 64 + s % 2 * 32, *high = b + 128 + s / 4 * 32;
        const int down = s % 4 / 2 * 4, at = s % 4 * 2;
        uint8_t *codes = to->codes + 32 * s;
        for (int i = 0; i < 32; i++)
            codes[i] = (uint8_t)((low[i] >> down & 15) | (high[i] >> at & 3) << 4);
    }
}

static void read_iq4_xs(const uint8_t *b, const tern_dtype_codes *to) {
    const unsigned high = tern_read_u16(b + 2);
    *to->scales = tern_read_u16(b);
    for (int i = 0; i < 8; i++) {
        int scale = (b[4 + i / 2] >> i % 2 * 4 & 15) | (int)(high >> 2 * i & 3) << 4;
        to->sub_scales[i] = (int8_t)(scale - 32);
        read_nibbles(b + 8 + 16 * i, NULL, to->codes + 32 * i);
    }
}

static void read_block(tern_dtype type, const uint8_t *b, const tern_dtype_codes *to) {
    switch (type) {
    case TERN_DTYPE_Q2_K: read_q2_k(b, to); break;
    case TERN_DTYPE_Q3_K: read_q3_k(b, to); break;
    case TERN_DTYPE_Q4_K: read_q45_k(b, false, to); break;
    case TERN_DTYPE_Q5_K: read_q45_k(b, true, to); break;
    case TERN_DTYPE_Q6_K: read_q6_k(b, to); break;
    case TERN_DTYPE_IQ4_XS: read_iq4_xs(b, to); break;
    default: read_32(type, b, to); break;
    }
}

// ---- Rows --------------------------------------------------------------------------------------

bool tern_dtype_decode_codes(tern_dtype type, const void *data, uint64_t first, size_t n,
                             const tern_dtype_codes *out) {
    const tern_dtype_form *f = tern_dtype_form_of(type);
    if (!f) return false;
    const size_t block_n = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    const uint8_t *b = (const uint8_t *)data + first / block_n * bytes;
    tern_dtype_codes to = *out;
    for (size_t i = 0; i + block_n <= n; i += block_n, b += bytes) {
        read_block(type, b, &to);
        to.codes += block_n;
        to.scales++;
        if (f->has_minima) to.minima++;
        if (f->super) to.sub_scales += block_n / f->group;
        if (f->super && f->has_minima) to.sub_minima += block_n / f->group;
    }
    return true;
}

// The published formulas: each product and difference rounds once.
void tern_dtype_decode_form(tern_dtype type, const void *data, uint64_t first, size_t n, float *y) {
    const tern_dtype_form *f = &forms[type];
    const size_t block_n = tern_dtype_block_n(type), n_groups = block_n / f->group;
    uint8_t codes[256];
    int8_t sub_scales[16], sub_minima[16];
    uint16_t scale, minimum = 0;
    const tern_dtype_codes to = {codes, &scale, &minimum, sub_scales, sub_minima};
    for (size_t i = 0; i + block_n <= n; i += block_n, y += block_n) {
        tern_dtype_decode_codes(type, data, first + i, block_n, &to);
        float d = f->is_bf16 ? tern_bf16_to_f32(scale) : tern_f16_to_f32(scale);
        float d_min = tern_f16_to_f32(minimum);
        for (size_t g = 0; g < n_groups; g++) {
            float s = f->super ? d * (float)sub_scales[g] : d;
            float m = f->super && f->has_minima ? d_min * (float)sub_minima[g] : d_min;
            for (size_t k = g * f->group; k < (g + 1) * f->group; k++) {
                int q = (f->has_table ? f->table[codes[k]] : codes[k]) - f->zero;
                y[k] = f->has_minima ? s * (float)q - m : s * (float)q;
            }
        }
    }
}
