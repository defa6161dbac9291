// Ops with fixed states: the GPU against the CPU, and a sequence cut in one way against another.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 41

// One token, several at a time, tiles of rows and their remainders.
static rig_batches cuts(void) {
    if (!test_is_long()) return (rig_batches){.n_tokens = {1, 7, 1, 30, 2}};
    return (rig_batches){.n_tokens = {1, 7, 64, 1, 2, 9, 17, 3}};
}

// Whether all of how's tokens in one batch give the bits that its batches give. Both kernels of a
// convolution and any tile of a delta net do the same steps in the same order.
static void check_cuts(rig *r, rig_batches how) {
    if (!rig_has_gpu()) return;
    rig_batches whole = {.n_tokens = {0}};
    for (int i = 0; how.n_tokens[i]; i++) whole.n_tokens[0] += how.n_tokens[i];
    size_t n = (size_t)whole.n_tokens[0] * (size_t)r->n_shown;
    float *a = rig_run(r, RIG_GPU, how, true), *b = rig_run(r, RIG_GPU, whole, true);
    REQUIRE(a && b);
    size_t n_other = 0;
    for (size_t i = 0; i < n; i++) n_other += memcmp(a + i, b + i, sizeof *a) != 0;
    CHECK_MSG(n_other == 0, "%zu of %zu values depend on how the sequence was cut", n_other, n);
    tern_free(a);
    tern_free(b);
}

// Seen to catch: taps in falling order; a state that is kept after the first row.
TEST(gpu_convolutions) {
    static const struct {
        int64_t n_cols, taps;
        bool biased;
        tern_act_kind act;
    } cases[] = {{36, 3, false, TERN_ACTIVATION_NONE},
                 {260, 4, true, TERN_ACTIVATION_SILU},
                 {8, 2, true, TERN_ACTIVATION_NONE},
                 {64, 8, false, TERN_ACTIVATION_SILU}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        int64_t n = cases[i].n_cols, taps = cases[i].taps;
        tern_vid x = rig_rows(&r, n, fill_normal), w = rig_array(&r, n, taps, fill_normal);
        tern_vid bias = cases[i].biased ? rig_vector(&r, n, fill_normal) : -1;
        tern_vid state = tern_g_fixed_state(&r.g, "tail", taps - 1, n);
        rig_show(&r, tern_g_depthwise_conv(&r.g, x, w, bias, state, cases[i].act));
        rig_compare(&r, cuts(), RIG_OF_ROW, 1e-6);
        check_cuts(&r, cuts());
        rig_close(&r);
    }
}

// -exp(A_log) and dt_bias as in trained models: some heads forget at once, some hardly ever.
static void fill_decay(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = -expf(3 * rig_random(seed) - 1);
}
static void fill_bias(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = 5 * rig_random(seed) - 3;
}

static tern_vid delta_net(rig *r, const tern_delta_attrs *d) {
    int64_t k = (int64_t)d->n_k_heads * d->head_dim, v = (int64_t)d->n_v_heads * d->v_dim;
    tern_vid qkv = rig_rows(r, 2 * k + v, fill_normal);
    tern_vid a = rig_rows(r, d->n_v_heads, fill_normal), b = rig_rows(r, d->n_v_heads, fill_normal);
    tern_vid decay = rig_vector(r, d->n_v_heads, fill_decay);
    tern_vid bias = rig_vector(r, d->n_v_heads, fill_bias);
    tern_vid state =
        tern_g_fixed_state(&r->g, "delta", (int64_t)d->n_v_heads * d->head_dim, d->v_dim);
    return tern_g_delta_net(&r->g, qkv, a, b, decay, bias, state, d);
}

// Seen to catch: another key head where heads are tiled; S^T q before the row's own k d^T; q
// without 1 / sqrt(dk); a tile's rows counted from the chunk's first; a coefficient of exp.
TEST(gpu_delta_nets) {
    static const tern_delta_attrs cases[] = {
        {.n_k_heads = 2, .n_v_heads = 4, .head_dim = 16, .v_dim = 8, .eps = 1e-6f},
        {.n_k_heads = 2, .n_v_heads = 4, .head_dim = 16, .v_dim = 20, .tiled = true, .eps = 1e-6f},
        {.n_k_heads = 4, .n_v_heads = 4, .head_dim = 10, .v_dim = 6, .eps = 1e-6f},
        {.n_k_heads = 1, .n_v_heads = 4, .head_dim = 128, .v_dim = 128, .eps = 1e-6f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, delta_net(&r, &cases[i]));
        rig_compare(&r, cuts(), RIG_OF_ROW, 1e-5);
        check_cuts(&r, cuts());
        rig_close(&r);
    }
}

static tern_vid state_space(rig *r, const tern_ssm_attrs *s) {
    int64_t dim = (int64_t)s->n_heads * s->head_dim, group = (int64_t)s->n_groups * s->n_state;
    tern_vid xbc = rig_odd_rows(r, dim + 2 * group, fill_normal);
    tern_vid dt = rig_odd_rows(r, s->n_heads, fill_normal);
    tern_vid a = rig_vector(r, s->n_heads, fill_decay), d = rig_vector(r, s->n_heads, fill_normal);
    tern_vid bias = rig_vector(r, s->n_heads, fill_bias);
    tern_vid state =
        tern_g_fixed_state(&r->g, "ssm", (int64_t)s->n_heads * s->n_state, s->head_dim);
    return tern_g_ssm(&r->g, xbc, dt, a, d, bias, state, s);
}

// Heads wider and narrower than a block of a workgroup, states with more rows than it has memory
// for at 32 columns. Seen to catch: B of the head's number where groups share it; the state before
// the row's own B x; D left out; a block's columns counted from the head's first.
TEST(gpu_state_spaces) {
    static const tern_ssm_attrs cases[] = {
        {.n_heads = 4, .head_dim = 8, .n_groups = 2, .n_state = 16},
        {.n_heads = 6, .head_dim = 36, .n_groups = 1, .n_state = 10},
        {.n_heads = 3, .head_dim = 20, .n_groups = 3, .n_state = 7},
        {.n_heads = 2, .head_dim = 64, .n_groups = 1, .n_state = 256},
    };
    for (size_t i = 0; i < rig_cases(4, 3); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, state_space(&r, &cases[i]));
        rig_compare(&r, cuts(), RIG_OF_ROW, 1e-5);
        check_cuts(&r, cuts());
        rig_close(&r);
    }
}

// ---- Going back, going on ----------------------------------------------------------------------

static const tern_delta_attrs small = {
    .n_k_heads = 2, .n_v_heads = 4, .head_dim = 8, .v_dim = 8, .eps = 1e-6f};

// A convolution of a delta net's output: both kinds of fixed states, of different sizes.
static tern_vid recurrent_block(rig *r) {
    tern_vid x = delta_net(r, &small), tail = tern_g_fixed_state(&r->g, "tail", 3, 32);
    return tern_g_depthwise_conv(&r->g, x, rig_array(r, 32, 4, fill_normal), -1, tail,
                                 TERN_ACTIVATION_SILU);
}

// In tiles, at their borders, and in batches of few tokens. Seen to catch: snapshots at the end of
// the batch, of either state; slot 0 for all; a copy to the place that it is from; old buffers in
// the bind groups after the slots have grown.
TEST(gpu_fixed_states_go_back_fork_and_swap) {
    static const int32_t n[] = {30, 30, 8, 30}, kept[] = {16, 13, 3, 29};
    for (size_t i = 0; i < rig_cases(4, 3); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, recurrent_block(&r));
        rig_replay(&r, RIG_GPU, n[i], kept[i]);
        rig_close(&r);
    }
}

// Seen to catch: snapshots of a state space at the end of the batch.
TEST(gpu_state_spaces_go_back_fork_and_swap) {
    static const tern_ssm_attrs s = {.n_heads = 4, .head_dim = 8, .n_groups = 2, .n_state = 16};
    static const int32_t n[] = {30, 8}, kept[] = {13, 3};
    for (size_t i = 0; i < rig_cases(2, 1); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, state_space(&r, &s));
        rig_replay(&r, RIG_GPU, n[i], kept[i]);
        rig_close(&r);
    }
}

// After a text changes course, its fixed states are as if the other course had never been computed.
// Seen to catch: steps ahead in spite of fixed states.
TEST(gpu_greedy_steps_with_fixed_states) {
    enum { N = 34 };
    static const double seconds[] = {-1, INFINITY};
    rig_step steps[2][N];
    rig r;
    if (!rig_has_gpu()) return;
    rig_open(&r, 200);
    rig_head(&r, recurrent_block(&r), 200, TERN_DTYPE_F16, fill_normal);
    for (int i = 0; i < 2; i++) {
        if (!rig_walk(&r, RIG_GPU, seconds[i], steps[i], N)) break;
        CHECK_MSG(memcmp(steps[i], steps[0], sizeof steps[0]) == 0, "way %d", i);
    }
    rig_close(&r);
}

TEST(gpu_recurrent_texts_for_subgroups_are_valid) {
    if (!rig_has_gpu()) return;
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = tern_g_l2_norm(&r.g, recurrent_block(&r));
    x = tern_g_scale(&r.g, tern_g_columns(&r.g, x, 16, 4, 8), 3);
    rig_show(&r, tern_g_rms_norm(&r.g, x, rig_vector(&r, 8, fill_normal), 1e-6f));
    rig_translate(&r);
    rig_close(&r);
}

// The buffers of constants and of slots are freed when memory runs out at any place.
TEST(gpu_recurrent_memory_that_runs_out) {
    if (!rig_has_gpu()) return;
    rig r;
    rig_open(&r, N_ROWS);
    rig_show(&r, recurrent_block(&r));
    rig_fail_allocations(&r);
    rig_close(&r);
}
