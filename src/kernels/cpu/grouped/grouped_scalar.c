// Products with codes in groups, in plain C: the specification.
#include <string.h>
#include "base/dtype/fma.h"
#include "base/dtype/half.h"
#include "kernels/cpu/grouped/grouped_kernels.h"

static float scale_of(const tern_grouped_matrix *w, size_t row, size_t column) {
    uint16_t bits;
    const uint8_t *block = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
    size_t at = column / w->group * TERN_GROUPED_ROWS + row % TERN_GROUPED_ROWS;
    memcpy(&bits, block + tern_grouped_code_bytes(w) + 2 * at, 2);
    return tern_f16_to_f32(bits);
}

// Codes of 64 columns of a row, which begin at p, times activations n tokens of 4 apart.
static int32_t dot_codes(const uint8_t *p, int bits, const int8_t *q, size_t n) {
    int32_t acc = 0;
    const int mask = bits == 2 ? 3 : 1;
    for (int vector = 0; vector < 4 * bits / 2; vector++, p += 64)
        for (int shift = 0; shift < 8; shift += bits, q += 4 * n)
            for (int j = 0; j < 4; j++) {
                int code = p[j] >> shift & mask;
                acc += (bits == 2 ? code - 1 : 2 * code - 1) * q[j];
            }
    return acc;
}

// Row r times the token number `at` of a block of n.
static float dot(const tern_grouped_matrix *w, size_t r, const int8_t *q, const float *scale,
                 size_t at, size_t n) {
    const uint8_t *codes =
        w->data + r / TERN_GROUPED_ROWS * w->block_bytes + 4 * (r % TERN_GROUPED_ROWS);
    float sum = 0;
    for (size_t g = 0; g < w->n_in / TERN_GROUP; g++, codes += 128 * (size_t)w->bits) {
        int32_t acc = dot_codes(codes, w->bits, q + (g * TERN_GROUP * n + 4 * at), n);
        float product = (float)acc * scale[g * n + at];
        sum = sum + scale_of(w, r, g * TERN_GROUP) * product;
    }
    return sum;
}

// The same for wide codes.
static float dot_wide(const tern_grouped_matrix *w, size_t r, const int8_t *q, const float *scale,
                      size_t at, size_t n) {
    const size_t group = tern_grouped_min(w->group, TERN_GROUP);
    float sum = 0;
    for (size_t first = 0; first < w->n_in; first += group) {
        int32_t acc = 0, minus_sum = 0;
        for (size_t i = first; i < first + group; i++) {
            int x = q[i / 4 * 4 * n + 4 * at + i % 4];
            acc += tern_grouped_number(w, r, i) * x;
            minus_sum -= x;
        }
        float x_scale = scale[first / TERN_GROUP * n + at];
        sum = tern_fma(tern_grouped_scale(w, r, first), (float)acc * x_scale, sum);
        if (w->has_minima)
            sum = tern_fma(tern_grouped_minimum(w, r, first), (float)minus_sum * x_scale, sum);
    }
    return sum;
}

static void multiply(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                     const tern_product *to) {
    (void)scratch;
    for (size_t t = 0; t < x->n_tokens; t++) {
        size_t first = t / x->block * x->block, n = tern_grouped_min(x->n_tokens - first, x->block);
        const int8_t *q = x->q + first * w->n_in;
        const float *scale = x->scale + first * (w->n_in / TERN_GROUP);
        for (size_t r = to->first; r < to->last; r++) {
            float *y = to->out + t * to->stride + r;
            float sum = tern_grouped_is_wide(w) ? dot_wide(w, r, q, scale, t - first, n)
                                                : dot(w, r, q, scale, t - first, n);
            *y = to->accumulate ? *y + sum : sum;
        }
    }
}

const tern_grouped_kernels tern_grouped_kernels_scalar = {
    .name = "scalar", .block_tokens = 1, .few_tokens = 1, .multiply = multiply};
