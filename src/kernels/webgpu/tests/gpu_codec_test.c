// Ops of codecs: the GPU against the CPU, and a sequence cut in one way against another.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 41

// One token, several at a time, tiles of 32 rows and their remainders.
static rig_batches cuts(void) { return (rig_batches){.n_tokens = {1, 7, 33, 1, 2, 40, 3}}; }

static void check_cuts(rig *r) {
    rig_batches how = cuts(), whole = {.n_tokens = {0}};
    if (!rig_has_gpu()) return;
    for (int i = 0; how.n_tokens[i]; i++) whole.n_tokens[0] += how.n_tokens[i];
    size_t n = (size_t)whole.n_tokens[0] * (size_t)r->n_shown;
    float *a = rig_run(r, RIG_GPU, how, true), *b = rig_run(r, RIG_GPU, whole, true);
    REQUIRE(a && b);
    CHECK_MSG(memcmp(a, b, n * sizeof *a) == 0, "it matters how the sequence was cut");
    tern_free(a);
    tern_free(b);
}

static tern_vid conv1d(rig *r, const tern_causal_attrs *a) {
    tern_vid x = rig_odd_rows(r, a->n_in, fill_normal);
    tern_vid y = tern_g_conv1d(&r->g, x, "conv", a);
    rig_give(r, "conv.weight", a->n_out, fill_normal);
    rig_give(r, "conv.bias", 0, fill_normal);
    return y;
}

static const tern_causal_attrs convolutions[] = {
    {.n_in = 8, .n_out = 12, .taps = 2, .dilation = 1},
    {.n_in = 27, .n_out = 36, .taps = 3, .dilation = 5},
    {.n_in = 54, .n_out = 68, .taps = 11, .dilation = 3},
};

// More outputs than a tile has, and fewer; columns that are not a multiple of four, and more than
// are taken at a time; taps that reach back over several batches. Seen to fail: taps a row later.
TEST(gpu_conv1d) {
    for (size_t i = 0; i < rig_cases(3, 2); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, conv1d(&r, &convolutions[i]));
        rig_compare(&r, cuts(), RIG_OF_ROW, 2e-6);
        check_cuts(&r);
        rig_close(&r);
    }
}

// Seen to fail: snapshots at the end of the batch.
TEST(gpu_conv1d_goes_back_forks_and_swaps) {
    static const int32_t n[] = {30, 8}, kept[] = {13, 3};
    for (size_t i = 0; i < rig_cases(2, 1); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, conv1d(&r, &convolutions[1]));
        rig_replay(&r, RIG_GPU, n[i], kept[i]);
        rig_close(&r);
    }
}

static void fill_far(float *x, int64_t n, int64_t row, uint32_t *seed) {
    static const float scales[] = {1, 100, 1e-4f, 5000, 1e9f};
    for (int64_t i = 0; i < n; i++) x[i] = rig_random(seed) * scales[row % 5];
}
static void fill_rates(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = 0.05f + fabsf(rig_random(seed)) * 3;
}

// Waves of arguments near zero and far from it; rows whose columns are not a multiple of four, also
// added up and scaled. Seen to fail: the middle column as a wave; sums of whole fours alone.
TEST(gpu_half_snakes) {
    static const int64_t cols[] = {27, 54, 64};
    for (size_t i = 0; i < rig_cases(3, 1); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_odd_rows(&r, cols[i], fill_far);
        tern_vid y = tern_g_half_snake(&r.g, x, rig_vector(&r, cols[i] / 2, fill_rates));
        y = tern_g_scale(&r.g, tern_g_add(&r.g, y, x), 1.0f / 3);
        rig_output(&r, y);
        rig_compare(&r, cuts(), RIG_OF_ROW, 2e-5);
        rig_close(&r);
    }
}
