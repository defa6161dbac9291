// Products with codes in groups, in plain C: the specification.
#include <string.h>
#include "base/half.h"
#include "kernels/cpu/grouped/grouped_kernels.h"

static float scale_of(const tern_grouped_matrix *w, size_t row, size_t column) {
    uint16_t bits;
    const uint8_t *block = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
    size_t at = column / w->group * TERN_GROUPED_ROWS + row % TERN_GROUPED_ROWS;
    memcpy(&bits, block + tern_grouped_code_bytes(w) + 2 * at, 2);
    return tern_f16_to_f32(bits);
}

// Row r times the token number `at` of a block of n.
static float dot(const tern_grouped_matrix *w, size_t r, const int8_t *q, const float *scale,
                 size_t at, size_t n) {
    float sum = 0;
    for (size_t g = 0; g < w->n_in / TERN_GROUP; g++) {
        int32_t acc = 0;
        for (size_t i = g * TERN_GROUP; i < (g + 1) * TERN_GROUP; i++)
            acc += tern_grouped_number(w, r, i) * q[(i / 4 * n + at) * 4 + i % 4];
        float product = (float)acc * scale[g * n + at];
        sum = sum + scale_of(w, r, g * TERN_GROUP) * product;
    }
    return sum;
}

static void multiply(const tern_grouped_matrix *w, size_t first_row, size_t last_row,
                     const tern_grouped_rows *x, float *out, size_t out_stride, bool accumulate) {
    for (size_t t = 0; t < x->n_tokens; t++) {
        size_t first = t / x->block * x->block, n = tern_grouped_min(x->n_tokens - first, x->block);
        const int8_t *q = x->q + first * w->n_in;
        const float *scale = x->scale + first * (w->n_in / TERN_GROUP);
        for (size_t r = first_row; r < last_row; r++) {
            float *y = out + t * out_stride + r, sum = dot(w, r, q, scale, t - first, n);
            *y = accumulate ? *y + sum : sum;
        }
    }
}

const tern_grouped_kernels tern_grouped_kernels_scalar = {
    .name = "scalar", .block_tokens = 1, .multiply = multiply};
