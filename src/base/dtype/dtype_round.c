// Rounding that is done again in every step of training: quick rules, in place of the searches of
// dtype_quantize.c. What a model learns to live with must be what its file holds, so the scale is
// rounded to f16 before it is used.
//
// Trits. For a given scale s the nearest of -s, 0 and s is 0 below s/2; for given trits the best
// scale is the mean size of the numbers that are not 0. The two rules in turn (Lloyd's algorithm)
// lower the squared error each time, and end at the best support for numbers whose density falls
// with their size, as weights' does. 54% of normal numbers are then not 0, and the error is 0.19 of
// their square, against 0.26 with BitNet's rule (scale: the mean of all).
//
// Bits. The best scale of signs is the mean size of all numbers.
//
// Where numbers matter differently, the means are weighted; which numbers are 0 depends on the
// scale alone.
#include <math.h>
#include <string.h>
#include "base/dtype/dtype.h"
#include "base/dtype/half.h"

enum { GROUP_MAX = 256, LANES = 16, N_TURNS = 8 };

static bool is_one_bit(tern_dtype type) { return type == TERN_DTYPE_Q1_0; }

bool tern_dtype_is_rounded_to(tern_dtype type) {
    switch (type) {
    case TERN_DTYPE_Q1_0:
    case TERN_DTYPE_Q2_0:
    case TERN_DTYPE_PQ2_0:
    case TERN_DTYPE_PTQ1_0:
    case TERN_DTYPE_TQ1_0:
    case TERN_DTYPE_TQ2_0:
    case TERN_DTYPE_Q4_0:
    case TERN_DTYPE_Q8_0: return true;
    default: return false;
    }
}

// Weighted mean of the sizes above `least`; 0: there are none. In 16 sums, added in their order.
static float mean_above(const float *size, const float *weight, size_t n, float least) {
    float sums[LANES] = {0}, counts[LANES] = {0}, sum = 0, count = 0;
    for (size_t i = 0; i < n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            float in = size[i + k] > least ? weight[i + k] : 0.0f;
            sums[k] += in * size[i + k];
            counts[k] += in;
        }
    for (size_t k = 0; k < LANES; k++) {
        sum += sums[k];
        count += counts[k];
    }
    return count > 0 ? sum / count : 0;
}

static float as_half(float x) { return tern_f16_to_f32(tern_f32_to_f16(fminf(x, 65504))); }

// n: a multiple of 16. Numbers that are not finite count as 0. Without importance all weigh 1.
static void round_group(tern_dtype type, const float *x, const float *importance, size_t n,
                        float *y) {
    float size[GROUP_MAX] = {0}, weight[GROUP_MAX] = {0};
    for (size_t i = 0; i < n; i++) {
        size[i] = fabsf(x[i]) <= 3e38f ? fabsf(x[i]) : 0;
        weight[i] = importance && importance[i] > 0 ? importance[i] : importance ? 1e-30f : 1;
    }
    float scale = mean_above(size, weight, n, -1);
    if (is_one_bit(type)) {
        scale = as_half(scale);
        for (size_t i = 0; i < n; i++) y[i] = x[i] < 0 ? -scale : scale;
        return;
    }
    scale *= 1.5f; // near the last one of normal numbers
    for (int turn = 0; turn < N_TURNS; turn++) scale = mean_above(size, weight, n, scale / 2);
    scale = as_half(scale);
    for (size_t i = 0; i < n; i++) y[i] = size[i] > scale / 2 ? copysignf(scale, x[i]) : 0;
}

static void encode_trits(tern_dtype type, const float *y, size_t n, void *block) {
    int8_t q[GROUP_MAX];
    float scale = 0;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)((y[i] > 0) - (y[i] < 0));
        if (y[i] != 0) scale = fabsf(y[i]); // all that are not 0 have one size
    }
    tern_dtype_encode_ternary(type, q, n, scale, block);
}

void tern_dtype_round(tern_dtype type, const float *x, const float *importance, size_t n, float *y,
                      void *blocks) {
    const size_t group = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    uint8_t room[128], *out = blocks;
    for (size_t i = 0; i + group <= n; i += group) {
        uint8_t *block = out ? out + i / group * bytes : room;
        if (!tern_dtype_group_n(type)) {
            if (importance)
                tern_dtype_quantize(type, x + i, importance + i, group, block);
            else
                tern_dtype_encode(type, x + i, group, block);
            tern_dtype_decode(type, block, 0, group, 0, y + i);
            continue;
        }
        round_group(type, x + i, importance ? importance + i : NULL, group, y + i);
        if (!out) continue;
        if (tern_dtype_is_ternary(type))
            encode_trits(type, y + i, group, block);
        else
            tern_dtype_encode_groups(type, y + i, group, block);
    }
}
