#include <stdbool.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

// Sums of one group by byte of a vector; four bytes make a block. At most 8 * 15 * 127, so that 16
// bits suffice, and compilers find the vector instructions.
typedef struct byte_sums {
    int16_t hi[64], lo[64];
} byte_sums;

static void screen_vector(byte_sums *restrict s, const uint8_t *restrict codes,
                          const int8_t *restrict hi, const int8_t *restrict lo) {
    for (int i = 0; i < 64; i++) {
        int16_t even = codes[i] & 15, odd = codes[i] >> 4;
        s->hi[i] = (int16_t)(s->hi[i] + even * hi[i] + odd * hi[64 + i]);
        s->lo[i] = (int16_t)(s->lo[i] + even * lo[i] + odd * lo[64 + i]);
    }
}

static int32_t block_sum(const int16_t *sums, int l) {
    return sums[4 * l] + sums[4 * l + 1] + sums[4 * l + 2] + sums[4 * l + 3];
}

// hi_only: for X = hi.
static float screen_row(const uint8_t *codes, const uint8_t *scales, const tern_head_vector *x,
                        size_t n_vectors, bool hi_only) {
    float sum[TERN_HEAD_LANES] = {0};
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        byte_sums s = {0};
        for (size_t j = 4 * g; j < n_vectors && j < 4 * g + 4; j++)
            screen_vector(&s, codes + TERN_HEAD_CODE_STEP * j, x->hi + 128 * j, x->lo + 128 * j);
        const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * g;
        const int32_t *sum_x = x->sum_x + TERN_HEAD_LANES * g;
        const int32_t *sum_hi = x->sum_hi + TERN_HEAD_LANES * g;
        EACH_LANE {
            int32_t hi = 2 * block_sum(s.hi, l), lo = 2 * block_sum(s.lo, l);
            int32_t dot = hi_only ? hi - 15 * sum_hi[l] : 128 * hi + lo - sum_x[l];
            sum[l] += (float)scale[l] * (float)dot;
        }
    }
    return sum_of_lanes(sum);
}

static void screen_tiles(float *out, const tern_head_screen *s, const tern_head_vector *x,
                         bool hi_only) {
    const uint8_t *codes = s->codes, *scales = s->scales;
    const size_t n_vectors = s->n_vectors;
    for (size_t tile = 0; tile < s->n_tiles; tile++) {
        for (size_t r = 0; r < TERN_HEAD_TILE; r++)
            *out++ =
                screen_row(codes + 64 * r, scales + TERN_HEAD_LANES * r, x, n_vectors, hi_only);
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    const tern_head_screen s = {
        .codes = codes, .scales = scales, .n_tiles = n_tiles, .n_vectors = n_vectors};
    screen_tiles(out, &s, x, false);
}

static void screen_hi(float *const *out, const tern_head_screen *s) {
    for (size_t i = 0; i < s->n_x; i++) screen_tiles(out[i], s, s->x[i], true);
}

static void refine_vector(int16_t *restrict sums, const uint8_t *restrict bits,
                          const int8_t *restrict hi, uint8_t bit) {
    for (int i = 0; i < 64; i++) {
        int8_t part = bits[i] & bit ? hi[i] : 0;
        sums[i] = (int16_t)(sums[i] + part);
    }
}

static float refine_row(const uint8_t *bits, const uint8_t *scales, const tern_head_vector *x,
                        size_t n_groups) {
    float sum[TERN_HEAD_LANES] = {0};
    for (size_t g = 0; g < n_groups; g++) {
        int16_t sums[64] = {0};
        for (int q = 0; q < 8; q++)
            refine_vector(sums, bits + 64 * g, x->hi + TERN_HEAD_GROUP * g + 64 * q,
                          (uint8_t)(1 << q));
        const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * g;
        const int32_t *sum_hi = x->sum_hi + TERN_HEAD_LANES * g;
        EACH_LANE sum[l] += (float)scale[l] * (float)(2 * block_sum(sums, l) - sum_hi[l]);
    }
    return sum_of_lanes(sum);
}

static void refine(float *out, const uint8_t *bits, const uint8_t *scales,
                   const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    for (size_t i = 0; i < n_x; i++) out[i] = refine_row(bits, scales, x[i], n_groups);
}

// 2 (4 q + 2 b + b') - 63 = 4 (2 q - 15) + 2 (2 b - 1) + (2 b' - 1).
static void screen_deep(float *const *out, const tern_head_screen *s) {
    const size_t n_groups = (s->n_vectors + 3) / 4;
    const tern_head_vector *const *x = s->x;
    screen_hi(out, s);
    for (size_t row = 0; row < s->n_tiles * TERN_HEAD_TILE; row++) {
        const uint8_t *row_scales = s->scales +
                                    row / TERN_HEAD_TILE * TERN_HEAD_SCALE_STEP * n_groups +
                                    row % TERN_HEAD_TILE * TERN_HEAD_LANES;
        const uint8_t *first = s->bits[0] + row * 64 * n_groups;
        const uint8_t *second = s->bits[1] + row * 64 * n_groups;
        for (size_t i = 0; i < s->n_x; i++)
            out[i][row] = 4 * out[i][row] + 2 * refine_row(first, row_scales, x[i], n_groups) +
                          refine_row(second, row_scales, x[i], n_groups);
    }
}

const tern_head_kernels tern_head_kernels_scalar = {"scalar",  quantize, screen,
                                                    screen_hi, refine,   screen_deep};
