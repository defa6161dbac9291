// ggml's types of 1.5 to 3.5 bits, whose codes are indexes of a grid: 256 to 2048 of all the
// patterns that four or eight weights may have, chosen once for all models. Signs are apart.
//
// All have blocks of 256 weights with an f16 scale d. A sign pattern of seven bits has an eighth
// that makes the number of minus signs even.
//
//   IQ2_XXS 66 bytes   d; for each 32 weights four indexes of 8 weights (bytes), then a word: four
//                      sign patterns of seven bits, and s:             d (s + 1/2) / 4 * grid
//   IQ2_XS  74 bytes   d; for each 8 weights an index of nine bits and a sign pattern (16 bits); s
//                      of each 16 weights (4 bits):                    the same
//   IQ2_S   82 bytes   d, low bytes of indexes of ten bits, bytes of signs, high bits (2 of each
//                      index), s of each 16 weights (4 bits):          the same
//   IQ3_XXS 98 bytes   d, indexes of 4 weights (bytes), for each 32 weights a word as IQ2_XXS':
//                                                                      d (s + 1/2) / 2 * grid
//   IQ3_S   110 bytes  d, low bytes of indexes of nine bits, high bits, bytes of signs, s of each
//                      32 weights (4 bits):                            d (2 s + 1) * grid
//   IQ1_S   50 bytes   d, low bytes of indexes of eleven bits, for each 32 weights 16 bits: four
//                      times three high bits, s (3), minus:            d (2 s + 1) * (grid +- 1/8)
//   IQ1_M   56 bytes   low bytes of indexes, for each 8 weights 4 bits: three high bits, minus;
//                      four times 16 bits: s of each 16 weights (3), a quarter of d (4):
//                                                                      the same
//
// And two types without a grid that pages do without, too:
//
//   STQ1_0  42 bytes   Sherry (arXiv:2601.07892): three of four trits are not 0. 64 nibbles (low
//   ones
//                      first), 8 bytes of signs, f16 d. Nibble and sign of number g are of the
//                      weights 64 (g / 16) + g % 16 + 16 lane: the nibble's upper bits are the lane
//                      that is 0; of the other lanes the first is +1, the second and third -1 if
//                      its bits 0 and 1 are set; the sign turns all three:      trit * d
//   NVFP4   36 bytes   64 weights: four bytes of E4M3 without sign, s, for 16 weights each; then
//   for
//                      each of these 8 bytes: byte i has weight i (low nibble) and 8 + i, numbers
//                      of e2m1. The matrix has one more scale, in a tensor of its own:
//                                                                      scale * (s * number)
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

#ifdef TERN_NO_GRIDS
bool tern_dtype_has_grid(tern_dtype type) { return (void)type, false; }

void tern_dtype_decode_grid(tern_dtype type, const void *data, uint64_t first, size_t n,
                            float scale, float *out) {
    (void)type, (void)data, (void)first, (void)n, (void)scale, (void)out;
}

void tern_dtype_codes_stq1_0(const uint8_t *block, int8_t *q) { (void)block, (void)q; }
#else
#include "base/dtype/dtype_grids.inc"

static uint32_t read_u32(const uint8_t *p) {
    return tern_read_u16(p) | (uint32_t)tern_read_u16(p + 2) << 16;
}
static float read_f16(const uint8_t *p) { return tern_f16_to_f32(tern_read_u16(p)); }

// The byte of signs that a pattern of seven bits stands for.
static uint32_t signs_of(uint32_t pattern) {
    return pattern | (uint32_t)__builtin_parity(pattern) << 7;
}

// Eight weights of two bits, with one factor.
static void put_eight(uint32_t entry, uint32_t signs, float d, float *y) {
    static const float levels[4] = {8, 25, 43, 0};
    for (int j = 0; j < 8; j++) {
        float value = d * levels[entry >> 2 * j & 3];
        y[j] = signs >> j & 1 ? -value : value;
    }
}

// Eight weights of three bits, of two indexes.
static void put_two_fours(const float levels[8], const uint32_t entries[2], uint32_t signs, float d,
                          float *y) {
    for (int j = 0; j < 8; j++) {
        float value = d * levels[entries[j / 4] >> 3 * (j % 4) & 7];
        y[j] = signs >> j & 1 ? -value : value;
    }
}

// Eight ternary weights, all moved by an eighth.
static void put_trits(uint32_t entry, bool minus, float d, float *y) {
    float delta = minus ? -0.125f : 0.125f;
    for (int j = 0; j < 8; j++) y[j] = d * ((float)(int)(entry >> 2 * j & 3) - 1 + delta);
}

static void decode_iq2_xxs(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int g = 0; g < 8; g++) { // 32 weights each
        const uint8_t *p = b + 2 + 8 * g;
        uint32_t word = read_u32(p + 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int k = 0; k < 4; k++)
            put_eight(grid_iq2_xxs[p[k]], signs_of(word >> 7 * k & 127), scale, y + 32 * g + 8 * k);
    }
}

static void decode_iq2_xs(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int k = 0; k < 32; k++) {
        uint32_t code = tern_read_u16(b + 2 + 2 * k), s = b[66 + k / 4] >> k / 2 % 2 * 4 & 15;
        put_eight(grid_iq2_xs[code & 511], signs_of(code >> 9), d * (0.5f + (float)s) * 0.25f,
                  y + 8 * k);
    }
}

static void decode_iq2_s(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int k = 0; k < 32; k++) {
        uint32_t high = b[66 + k / 4] >> k % 4 * 2 & 3, s = b[74 + k / 4] >> k / 2 % 2 * 4 & 15;
        put_eight(grid_iq2_s[b[2 + k] | high << 8], b[34 + k], d * (0.5f + (float)s) * 0.25f,
                  y + 8 * k);
    }
}

static void decode_iq3_xxs(const uint8_t *b, float *y) {
    static const float levels[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    float d = read_f16(b);
    for (int k = 0; k < 32; k++) {
        uint32_t word = read_u32(b + 66 + k / 4 * 4);
        const uint32_t entries[2] = {grid_iq3_xxs[b[2 + 2 * k]], grid_iq3_xxs[b[3 + 2 * k]]};
        put_two_fours(levels, entries, signs_of(word >> 7 * (k % 4) & 127),
                      d * (0.5f + (float)(word >> 28)) * 0.5f, y + 8 * k);
    }
}

static void decode_iq3_s(const uint8_t *b, float *y) {
    static const float levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    float d = read_f16(b);
    for (int k = 0; k < 32; k++) {
        uint32_t high = b[66 + k / 4] >> k % 4 * 2, s = b[106 + k / 8] >> k / 4 % 2 * 4 & 15;
        const uint32_t entries[2] = {grid_iq3_s[b[2 + 2 * k] | (high & 1) << 8],
                                     grid_iq3_s[b[3 + 2 * k] | (high >> 1 & 1) << 8]};
        put_two_fours(levels, entries, b[74 + k], d * (float)(1 + 2 * s), y + 8 * k);
    }
}

static void decode_iq1_s(const uint8_t *b, float *y) {
    float d = read_f16(b);
    for (int k = 0; k < 32; k++) {
        uint32_t word = tern_read_u16(b + 34 + k / 4 * 2), high = word >> 3 * (k % 4) & 7;
        put_trits(grid_iq1[b[2 + k] | high << 8], word >> 15, d * (float)(2 * (word >> 12 & 7) + 1),
                  y + 8 * k);
    }
}

static void decode_iq1_m(const uint8_t *b, float *y) {
    const uint8_t *scales = b + 48;
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint32_t)tern_read_u16(scales + 2 * i) >> 12 << 4 * i;
    float d = tern_f16_to_f32((uint16_t)bits);
    for (int k = 0; k < 32; k++) {
        uint32_t part = b[32 + k / 2] >> k % 2 * 4;
        uint32_t s = (uint32_t)tern_read_u16(scales + k / 8 * 2) >> 3 * (k / 2 % 4) & 7;
        put_trits(grid_iq1[b[k] | (part & 7) << 8], part >> 3 & 1, d * (float)(2 * s + 1),
                  y + 8 * k);
    }
}

// ---- Without a grid ----------------------------------------------------------------------------

void tern_dtype_codes_stq1_0(const uint8_t *block, int8_t *q) {
    for (int g = 0; g < 64; g++) {
        const int nibble = block[g / 2] >> g % 2 * 4 & 15, zero = nibble >> 2;
        const int8_t first = block[32 + g / 8] >> g % 8 & 1 ? -1 : 1;
        int8_t *to = q + g / 16 * 64 + g % 16;
        unsigned minus = (unsigned)(nibble & 3) << 1; // of the lanes that are not 0, in their order
        for (int lane = 0; lane < 4; lane++) {
            to[16 * lane] = (int8_t)(lane == zero ? 0 : minus & 1 ? -first : first);
            if (lane != zero) minus >>= 1;
        }
    }
}

static void decode_nvfp4(const uint8_t *b, float *y) {
    static const float numbers[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int g = 0; g < 4; g++) {
        // E4M3's code for "not a number" stands for 0, as in ggml.
        const float s = (b[g] & 127) == 127 ? 0 : tern_e4m3_to_f32(b[g] & 127);
        for (int i = 0; i < 16; i++) {
            const int code = b[4 + 8 * g + i % 8] >> i / 8 * 4 & 15;
            const float value = s * numbers[code & 7];
            y[16 * g + i] = code & 8 ? -value : value;
        }
    }
}

typedef void (*decode_fn)(const uint8_t *block, float *y);
static decode_fn decoder_of(tern_dtype type) {
    switch (type) {
    case TERN_DTYPE_IQ2_XXS: return decode_iq2_xxs;
    case TERN_DTYPE_IQ2_XS: return decode_iq2_xs;
    case TERN_DTYPE_IQ2_S: return decode_iq2_s;
    case TERN_DTYPE_IQ3_XXS: return decode_iq3_xxs;
    case TERN_DTYPE_IQ3_S: return decode_iq3_s;
    case TERN_DTYPE_IQ1_S: return decode_iq1_s;
    case TERN_DTYPE_IQ1_M: return decode_iq1_m;
    case TERN_DTYPE_NVFP4: return decode_nvfp4;
    default: return NULL;
    }
}

bool tern_dtype_has_grid(tern_dtype type) {
    return type == TERN_DTYPE_STQ1_0 || decoder_of(type) != NULL;
}

void tern_dtype_decode_grid(tern_dtype type, const void *data, uint64_t first, size_t n,
                            float scale, float *out) {
    size_t block = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    const uint8_t *b = (const uint8_t *)data + first / block * bytes;
    decode_fn decode = decoder_of(type);
    for (size_t i = 0; i + block <= n; i += block, b += bytes) decode(b, out + i);
    for (size_t i = 0; type == TERN_DTYPE_NVFP4 && scale != 1 && i < n; i++) out[i] *= scale;
}
#endif
