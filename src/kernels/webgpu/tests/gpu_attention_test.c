// Rotary embedding, the cache and attention: the GPU against the CPU.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 41

TEST(gpu_ropes) {
    static const struct {
        int32_t n_heads, head_dim, n_rot;
        bool halves;
        tern_rope_scaling scaling;
        int32_t first_pos;
    } cases[] = {{1, 4, 4, true, TERN_ROPE_NONE, 0},
                 {3, 20, 12, false, TERN_ROPE_NONE, 100},
                 {2, 128, 128, true, TERN_ROPE_LLAMA3, 3800},
                 {5, 64, 32, true, TERN_ROPE_YARN, 8000},
                 {2, 8, 8, false, TERN_ROPE_LINEAR, 17}};
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        tern_rope_attrs a = {.n_rot = cases[i].n_rot,
                             .halves = cases[i].halves,
                             .base = 10000,
                             .scaling = cases[i].scaling,
                             .factor = 4,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .attn_factor = 1,
                             .n_context_orig = 2048};
        rig_batches how = rig_counts();
        how.first_pos = cases[i].first_pos;
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, cases[i].n_heads * cases[i].head_dim, fill_normal);
        rig_show(&r, tern_g_rope(&r.g, x, -1, cases[i].n_heads, cases[i].head_dim, &a));
        rig_compare(&r, how, RIG_OF_ROW, 1e-6);
        rig_close(&r);
    }
}

// Great scores of both signs, so that one position has all the weight; or all positions the same.
static void fill_sharp(float *x, int64_t n, int64_t row, uint32_t *seed) {
    for (int64_t i = 0; i < n; i++)
        x[i] = row % 3 == 0 ? 0 : rig_random(seed) * (row % 3 == 1 ? 40.0f : 1.0f);
}

// Numbers that Q8_0 holds exactly: -127 to 127 times a power of two, the first of each 32 being
// -127 or 127. So no step of 1/127 depends on the last bit of a float.
static void fill_q8_0(float *x, int64_t n, int64_t row, uint32_t *seed) {
    for (int64_t i = 0; i < n; i++) {
        float whole = i % 32 ? rintf(rig_random(seed) * 127) : rig_random(seed) < 0 ? -127 : 127;
        x[i] = ldexpf(whole, -5 - (int)((row + i / 32) % 4));
    }
}

typedef struct heads {
    int32_t n_heads, n_kv_heads, head_dim;
    bool rope;
    rig_fill fill, values;
    int32_t window;
    float soft_cap;
    bool bidirectional;
    int32_t ahead;
    bool images;
} heads;

static void check_attention(const heads *h, rig_batches how, double tolerance) {
    rig r;
    rig_open(&r, test_is_long() ? 211 : 41);
    tern_rope_attrs a = {.n_rot = h->head_dim, .halves = true, .base = 10000, .factor = 1};
    tern_vid q = rig_rows(&r, h->n_heads * h->head_dim, h->fill);
    tern_vid k = rig_rows(&r, h->n_kv_heads * h->head_dim, h->fill);
    tern_vid v = rig_rows(&r, h->n_kv_heads * h->head_dim, h->values);
    if (h->rope) {
        q = tern_g_rope(&r.g, q, -1, h->n_heads, h->head_dim, &a);
        k = tern_g_rope(&r.g, k, -1, h->n_kv_heads, h->head_dim, &a);
    }
    tern_vid ks = tern_g_positional_state(&r.g, "k", h->n_kv_heads * h->head_dim, h->window);
    tern_vid vs = tern_g_positional_state(&r.g, "v", h->n_kv_heads * h->head_dim, h->window);
    tern_g_kv_store(&r.g, k, v, ks, vs, h->n_kv_heads, h->head_dim);
    rig_show(&r, tern_g_attention(&r.g, q, ks, vs,
                                  &(tern_attention_attrs){.n_heads = h->n_heads,
                                                          .n_kv_heads = h->n_kv_heads,
                                                          .head_dim = h->head_dim,
                                                          .scale = 1 / sqrtf((float)h->head_dim),
                                                          .window = h->window,
                                                          .ahead = h->ahead,
                                                          .soft_cap = h->soft_cap,
                                                          .bidirectional = h->bidirectional,
                                                          .images = h->images}));
    rig_compare(&r, how, RIG_OF_ROW, tolerance);
    rig_close(&r);
}

// Scores are some hundreds: exp turns an error in their last bits into a relative error.
TEST(gpu_attention_over_every_shape) {
    static const heads cases[] = {
        {6, 2, 16, true, fill_sharp, fill_normal, 0, 0, false, 0, false},
        {3, 1, 20, false, fill_normal, fill_normal, 0, 0, false, 0, false},
        {2, 1, 256, true, fill_sharp, fill_normal, 0, 0, false, 0, false},
        {20, 5, 128, true, fill_normal, fill_normal, 0, 0, false, 0, false},
        {4, 2, 2, false, fill_normal, fill_normal, 0, 0, false, 0, false},
        {4, 2, 80, false, fill_sharp, fill_normal, 0, 0, false, 0, false},
    };
    rig_batches how = {.n_tokens = {1, 9, 2, 70, 1, 1}, .kv_type = TERN_KV_F32};
    if (test_is_long())
        how = (rig_batches){.n_tokens = {1, 9, 2, 130, 1, 8, 70, 5, 1, 1}, .kv_type = TERN_KV_F32};
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) check_attention(&cases[i], how, 2e-4);
}

// Windows that end in a page, at its end, and within a tile of a prompt; both directions; caps;
// heads of up to 512. Seen to fail with a window one position longer, or that begins where its
// prompt's tile does; with a row of an encoder that sees no row after it; with scores that are not
// capped; and with the values of a prompt's second 128 dimensions taken from the first.
TEST(gpu_attention_sees_what_it_should) {
    static const struct {
        heads h;
        int32_t n_tokens[6];
    } cases[] = {
        {{4, 2, 64, true, fill_sharp, fill_normal, 21, 0, false, 0, false}, {1, 40, 3, 70, 1}},
        {{2, 1, 256, true, fill_normal, fill_normal, 32, 3, false, 0, false}, {45, 1, 50, 2}},
        {{2, 2, 32, true, fill_normal, fill_normal, 0, 0, true, 0, false}, {70}},
        {{2, 1, 512, false, fill_normal, fill_normal, 0, 0, false, 0, false}, {1, 44, 2}},
        {{3, 1, 48, true, fill_sharp, fill_normal, 10, 0, true, 0, false}, {75}},
        {{2, 1, 48, true, fill_normal, fill_normal, 3, 0, true, 0, false}, {8}},
        {{4, 4, 16, false, fill_sharp, fill_normal, 16, 0, true, 4, false}, {75}},
        {{2, 1, 300, true, fill_normal, fill_normal, 65, 30, false, 0, false}, {130, 1, 1}},
        {{2, 2, 128, true, fill_sharp, fill_normal, 1, 0, false, 0, false}, {9, 1, 130}},
    };
    size_t n = rig_cases(sizeof cases / sizeof *cases, 7);
    for (size_t i = 0; i < n; i++) {
        rig_batches how = {.kv_type = TERN_KV_F32};
        memcpy(how.n_tokens, cases[i].n_tokens, sizeof cases[i].n_tokens);
        check_attention(&cases[i].h, how, 2e-4);
    }
}

// Rows of images see to their end, also where that is in another tile or further than a window is
// wide: one alone, two side by side, one of three rows in a batch of five, longer ones than a tile,
// and texts around them. Seen to fail: with the end of the first of four rows for all of them, with
// batches of five as steps, and with windows that do not cut images in front.
TEST(gpu_attention_sees_whole_images) {
    static const struct {
        heads h;
        int32_t n_tokens[6], spans[RIG_SPANS][2];
    } cases[] = {
        {{.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .rope = true, .window = 5},
         {3, 40, 5, 1, 20},
         {{4, 20}, {20, 37}, {44, 47}, {60, 69}}},
        {{.n_heads = 2, .n_kv_heads = 1, .head_dim = 256, .rope = true},
         {110, 1, 6, 2},
         {{2, 90}, {112, 116}}},
        {{.n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .window = 70},
         {12, 130, 1},
         {{0, 4}, {20, 120}, {125, 142}}},
        {{.n_heads = 2, .n_kv_heads = 2, .head_dim = 512, .window = 9, .soft_cap = 20},
         {2, 45},
         {{3, 43}}},
    };
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        rig_batches how = {.kv_type = i == 1 ? TERN_KV_F16 : TERN_KV_F32, .plain = i == 0};
        heads h = cases[i].h;
        h.fill = i % 2 ? fill_normal : fill_sharp;
        h.values = fill_normal;
        h.images = true;
        memcpy(how.n_tokens, cases[i].n_tokens, sizeof cases[i].n_tokens);
        memcpy(how.spans, cases[i].spans, sizeof cases[i].spans);
        check_attention(&h, how, i == 1 ? 2e-3 : 2e-4);
    }
}

// Longer than any tile of positions, in an f16 cache, token by token at the end.
TEST(gpu_attention_over_long_contexts) {
    static const heads h = {4, 2, 64, true, fill_sharp, fill_normal, 0, 0, false, 0, false};
    rig_batches how = {.n_tokens = {270, 1, 1, 3}, .kv_type = TERN_KV_F16};
    if (test_is_long())
        how = (rig_batches){.n_tokens = {300, 300, 1, 1, 7, 420, 1}, .kv_type = TERN_KV_F16};
    check_attention(&h, how, 2e-3);
}

// Prompts from a cache in f16, whose halves the CPU has, too. A GPU with matrix units for halves
// reads these with them. Seen to fail there: without the second halves of queries, or of weights;
// without the scale of a new reference; with zeros for no value after the end.
TEST(gpu_attention_of_prompts_over_an_f16_cache) {
    static const heads cases[] = {
        {4, 2, 64, false, fill_normal, fill_normal, 0, 0, false, 0, false},
        {5, 1, 128, false, fill_normal, fill_normal, 0, 0, false, 0, false},
        {2, 1, 16, false, fill_normal, fill_normal, 40, 0, false, 0, false},
        {2, 2, 80, false, fill_normal, fill_normal, 0, 4, false, 0, false},
        {3, 1, 112, false, fill_normal, fill_normal, 70, 0, false, 0, false},
        {4, 4, 32, false, fill_sharp, fill_normal, 0, 0, false, 0, false},
        {2, 1, 128, false, fill_sharp, fill_normal, 0, 0, false, 0, false},
        {2, 1, 48, false, fill_normal, fill_normal, 0, 0, true, 0, false},
        {2, 1, 96, false, fill_normal, fill_normal, 12, 0, true, 5, false},
    };
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        rig_batches how = {.n_tokens = {40, 9, 2, 70, 1, 131}, .kv_type = TERN_KV_F16};
        if (cases[i].bidirectional) how = (rig_batches){.n_tokens = {131}, .kv_type = TERN_KV_F16};
        check_attention(&cases[i], how, cases[i].fill == fill_sharp ? 2e-4 : 1e-5);
    }
    const rig_batches large = {.n_tokens = {1100, 3, 20}, .kv_type = TERN_KV_F16}; // GPU_TILE_LARGE
    for (size_t i = 0; test_is_long() && i < 3; i++) check_attention(&cases[i], large, 1e-5);
}

TEST(gpu_attention_over_a_q8_0_cache) {
    static const heads cases[] = {
        {4, 2, 64, false, fill_q8_0, fill_q8_0, 0, 0, false, 0, false},
        {2, 1, 256, false, fill_q8_0, fill_q8_0, 0, 0, false, 0, false},
        {3, 3, 96, false, fill_q8_0, fill_q8_0, 0, 0, false, 0, false},
        {20, 5, 128, false, fill_q8_0, fill_q8_0, 0, 0, false, 0, false},
        {4, 1, 32, false, fill_q8_0, fill_q8_0, 0, 0, false, 0, false},
    };
    rig_batches how = {.n_tokens = {1, 9, 2, 70, 1, 1}, .kv_type = TERN_KV_Q8_0};
    size_t n = rig_cases(sizeof cases / sizeof *cases, 2);
    for (size_t i = 0; i < n; i++) check_attention(&cases[i], how, 2e-4);
    // Rotation makes keys that Q8_0 must round.
    static const heads rotated = {4, 2, 64, true, fill_normal, fill_q8_0, 0, 0, false, 0, false};
    check_attention(&rotated, how, 5e-3);
}

// A small layer, with everything that a session may add: a cache of blocks, a profile.
TEST(gpu_survives_failing_allocations) {
    if (!rig_has_gpu()) return;
    rig r;
    rig_open(&r, N_ROWS);
    tern_rope_attrs a = {.n_rot = 16, .halves = true, .base = 10000, .factor = 1};
    tern_vid x = rig_rows(&r, 64, fill_normal), v[3];
    tern_vid n = tern_g_rms_norm(&r.g, x, rig_vector(&r, 64, fill_normal), 1e-5f);
    for (int i = 0; i < 3; i++)
        v[i] = tern_g_bitlinear(&r.g, n,
                                rig_matrix(&r, i ? 32 : 64, 64, TERN_DTYPE_F32, true, fill_codes));
    tern_vid ks = tern_g_positional_state(&r.g, "k", 32, 0);
    tern_vid vs = tern_g_positional_state(&r.g, "v", 32, 0);
    tern_vid k = tern_g_rope(&r.g, v[1], -1, 1, 32, &a), q = tern_g_rope(&r.g, v[0], -1, 2, 32, &a);
    tern_g_kv_store(&r.g, k, v[2], ks, vs, 1, 32);
    tern_vid y = tern_g_attention(
        &r.g, q, ks, vs,
        &(tern_attention_attrs){.n_heads = 2, .n_kv_heads = 1, .head_dim = 32, .scale = 0.25f});
    tern_vid w = rig_matrix(&r, 64, 64, TERN_DTYPE_F16, false, fill_normal);
    rig_show(&r, tern_g_add(&r.g, x, tern_g_linear(&r.g, y, w)));
    rig_fail_allocations(&r);
    rig_close(&r);
}
