// The fused dispatches of few tokens: the GPU against the CPU.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 41

// Codes with a scale for each group, instead of one: the types of a layer's matrices, in turn.
static const tern_dtype *in_groups;
static size_t n_made;
static const tern_dtype two_bits[7] = {TERN_DTYPE_Q2_0, TERN_DTYPE_Q2_0, TERN_DTYPE_Q2_0,
                                       TERN_DTYPE_Q2_0, TERN_DTYPE_Q2_0, TERN_DTYPE_Q2_0,
                                       TERN_DTYPE_Q2_0};
static tern_vid grouped(rig *r, tern_vid x, int64_t n_out, int64_t n_in) {
    tern_dtype type = in_groups[n_made++ % 7];
    rig_fill fill = type == TERN_DTYPE_Q2_0 ? fill_two_bits : fill_normal;
    tern_vid w = rig_matrix(r, n_out, n_in, type, false, fill);
    r->sources[r->n_sources - 1].as_floats = false;
    r->has_ternary = true;
    return tern_g_linear(&r->g, x, w);
}

static tern_vid bitlinear(rig *r, tern_vid x, int64_t n_out, int64_t n_in) {
    if (in_groups) return grouped(r, x, n_out, n_in);
    tern_vid w = rig_matrix(r, n_out, n_in, TERN_DTYPE_F32, true, fill_codes);
    return tern_g_bitlinear(&r->g, x, w);
}

static tern_vid normed(rig *r, tern_vid x, int64_t n, bool norm) {
    return norm ? tern_g_rms_norm(&r->g, x, rig_vector(r, n, fill_normal), 1e-5f) : x;
}

typedef struct layer {
    int64_t n_embd, n_ff;
    int32_t n_heads, n_kv_heads, head_dim;
    bool sub_norms;
    tern_act_kind act;
    int32_t window;
    float soft_cap;
} layer;

// What is done with the product at the end of a block before it is added.
static struct {
    bool norms;
    float scale; // 0: none
    bool apart;  // an op that changes no bit is between a sum and the next norm
} ends;

static tern_vid end_of(rig *r, int64_t n, tern_vid x, tern_vid y) {
    if (ends.scale != 0) y = tern_g_scale(&r->g, y, ends.scale);
    return tern_g_add(&r->g, x, normed(r, y, n, ends.norms));
}

static tern_vid attention_block(rig *r, const layer *l, tern_vid x) {
    tern_rope_attrs a = {
        .n_rot = l->head_dim / 2, .halves = l->sub_norms, .base = 1e4, .factor = 1};
    int64_t q_dim = l->n_heads * l->head_dim, kv_dim = l->n_kv_heads * l->head_dim;
    tern_vid n = normed(r, x, l->n_embd, true);
    tern_vid q = bitlinear(r, n, q_dim, l->n_embd);
    tern_vid k = bitlinear(r, n, kv_dim, l->n_embd), v = bitlinear(r, n, kv_dim, l->n_embd);
    q = tern_g_rope(&r->g, q, -1, l->n_heads, l->head_dim, &a);
    k = tern_g_rope(&r->g, k, -1, l->n_kv_heads, l->head_dim, &a);
    tern_vid ks = tern_g_positional_state(&r->g, "k", kv_dim, l->window);
    tern_vid vs = tern_g_positional_state(&r->g, "v", kv_dim, l->window);
    tern_g_kv_store(&r->g, k, v, ks, vs, l->n_kv_heads, l->head_dim);
    // The elements of q and k have a variance of n_embd / 6. Scores with a spread of 2, as in
    // trained models: with a spread of 100 a unit rounded earlier changes the whole softmax.
    tern_vid o = tern_g_attention(
        &r->g, q, ks, vs,
        &(tern_attention_attrs){.n_heads = l->n_heads,
                                .n_kv_heads = l->n_kv_heads,
                                .head_dim = l->head_dim,
                                .scale = 12 / ((float)l->n_embd * sqrtf((float)l->head_dim)),
                                .window = l->window,
                                .soft_cap = l->soft_cap});
    o = normed(r, o, q_dim, l->sub_norms);
    return end_of(r, l->n_embd, x, bitlinear(r, o, l->n_embd, q_dim));
}

// What queries and keys go through between their products and attention: norms of heads (Qwen3);
// these, and gates of attention's output, which the queries come with (Qwen3.5); biases (Qwen2);
// norms after the rotation (Hunyuan); nothing (SmolLM3); columns of one product (Phi-3).
typedef enum way { NORMED, GATED, BIASED, NORMED_LAST, UNROTATED, FUSED, WAYS } way;

enum { EMBD = 192, HEADS = 4, KV_HEADS = 2, DIM = 32, Q = HEADS * DIM, KV = KV_HEADS * DIM };

// apart: each value passes through an op that changes no bit, and that attention cannot include.
static tern_vid prepared(rig *r, way how, bool apart, tern_vid x, int32_t n_heads) {
    tern_rope_attrs a = {.n_rot = DIM, .halves = how != FUSED, .base = 1e4, .factor = 1};
    if (how == BIASED) x = tern_g_bias(&r->g, x, rig_vector(r, n_heads * DIM, fill_normal));
    x = normed(r, x, DIM, how == NORMED || how == GATED);
    if (apart && how != NORMED_LAST) x = tern_g_scale(&r->g, x, 1);
    if (how != UNROTATED) x = tern_g_rope(&r->g, x, -1, n_heads, DIM, &a);
    x = normed(r, x, DIM, how == NORMED_LAST);
    return apart && how == NORMED_LAST ? tern_g_scale(&r->g, x, 1) : x;
}

static tern_vid heads_block(rig *r, way how, bool apart, tern_vid x) {
    tern_vid n = normed(r, x, EMBD, true), q, k, v, gate = -1;
    if (how == FUSED) {
        tern_vid all = bitlinear(r, n, Q + 2 * KV, EMBD);
        q = tern_g_columns(&r->g, all, Q + 2 * KV, 0, Q);
        k = tern_g_columns(&r->g, all, Q + 2 * KV, Q, KV);
        v = tern_g_columns(&r->g, all, Q + 2 * KV, Q + KV, KV);
    } else {
        q = bitlinear(r, n, how == GATED ? 2 * Q : Q, EMBD);
        k = bitlinear(r, n, KV, EMBD), v = bitlinear(r, n, KV, EMBD);
    }
    if (how == GATED) gate = tern_g_columns(&r->g, q, 2 * DIM, DIM, DIM);
    if (how == GATED) q = tern_g_columns(&r->g, q, 2 * DIM, 0, DIM);
    q = prepared(r, how, apart, q, HEADS);
    k = prepared(r, how, apart, k, KV_HEADS);
    if (how == BIASED) v = tern_g_bias(&r->g, v, rig_vector(r, KV, fill_normal));
    tern_vid ks = tern_g_positional_state(&r->g, "k", KV, 0);
    tern_vid vs = tern_g_positional_state(&r->g, "v", KV, 0);
    tern_g_kv_store(&r->g, k, v, ks, vs, KV_HEADS, DIM);
    tern_vid o = tern_g_attention(
        &r->g, q, ks, vs,
        &(tern_attention_attrs){
            .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM, .scale = 0.1f});
    if (how == GATED) o = tern_g_mul(&r->g, tern_g_act(&r->g, gate, TERN_ACTIVATION_SIGMOID), o);
    return tern_g_add(&r->g, x, bitlinear(r, o, EMBD, Q));
}

static tern_vid feed_forward_block(rig *r, const layer *l, tern_vid x) {
    tern_vid n = normed(r, ends.apart ? tern_g_scale(&r->g, x, 1) : x, l->n_embd, true);
    tern_vid gate = bitlinear(r, n, l->n_ff, l->n_embd), up = bitlinear(r, n, l->n_ff, l->n_embd);
    tern_vid h = tern_g_mul(&r->g, tern_g_act(&r->g, gate, l->act), up);
    h = normed(r, h, l->n_ff, l->sub_norms);
    return end_of(r, l->n_embd, x, bitlinear(r, h, l->n_embd, l->n_ff));
}

static const layer layers[] = {
    // Eight rows of 1604 do not fit in the workgroup's memory with the least limits.
    {192, 1604, 6, 2, 32, true, TERN_ACTIVATION_RELU2, 0, 0}, // two tiles to a team of one token
    {132, 1028, 3, 1, 44, false, TERN_ACTIVATION_SILU, 0, 0},
    {640, 1792, 5, 5, 128, true, TERN_ACTIVATION_RELU2, 0, 0},
    {64, 3076, 2, 1, 32, true, TERN_ACTIVATION_GELU, 0, 0},   // four
    {2056, 644, 2, 1, 32, true, TERN_ACTIVATION_RELU2, 0, 0}, // three tiles to a team of few tokens
};
// Its window begins and ends within pages and tiles of positions.
static const layer windowed = {192, 256, 6, 2, 32, true, TERN_ACTIVATION_RELU2, 45, 1.5f};
#define N_LAYERS rig_cases(sizeof layers / sizeof *layers, 1)

TEST(gpu_token_feed_forward) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1}};
    for (size_t i = 0; i < N_LAYERS; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, layers[i].n_embd, fill_normal);
        rig_show(&r, feed_forward_block(&r, &layers[i], x));
        rig_compare(&r, how, RIG_BEHIND_QUANTIZED, 5e-3);
        rig_same_bits(&r, TERN_KV_AUTO, 0);
        rig_close(&r);
    }
}

// Tokens before and after the borders of the attention's tiles.
TEST(gpu_token_attention) {
    static const struct {
        const layer *layer;
        rig_batches how;
        int32_t n_before; // in front of the borders of the others' tiles
    } cases[] = {
        {&layers[0], {.n_tokens = {1, 2, 61, 1, 3}, .kv_type = TERN_KV_Q8_0}, 0},
        // Seen to fail with scores that are not capped and with a window one position longer.
        {&windowed, {.n_tokens = {120, 2, 8, 1, 9, 1}, .kv_type = TERN_KV_F16}, 43},
        {&layers[0], {.n_tokens = {1, 2, 30, 1}, .kv_type = TERN_KV_F16}, 0},
        {&layers[1], {.n_tokens = {121, 1, 8, 1}, .kv_type = TERN_KV_F16}, 250},
        {&layers[2], {.n_tokens = {126, 1, 1, 1, 500, 8, 1, 700, 1}, .kv_type = TERN_KV_F16}, 1020},
        {&layers[2], {.n_tokens = {126, 1, 8, 300, 1}, .kv_type = TERN_KV_Q8_0}, 123},
        {&layers[2], {.n_tokens = {124, 8, 1}, .kv_type = TERN_KV_F32}, 252},
    };
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        const layer *l = cases[i].layer;
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, attention_block(&r, l, rig_rows(&r, l->n_embd, fill_normal)));
        // A step of a Q8_0 cache, 1/127 of its block, may fall either way too.
        double tolerance = cases[i].how.kv_type == TERN_KV_Q8_0 ? 1e-2 : 5e-3;
        rig_compare(&r, cases[i].how, RIG_BEHIND_QUANTIZED, tolerance);
        rig_same_bits(&r, cases[i].how.kv_type, cases[i].n_before);
        rig_close(&r);
    }
}

// Ops between the fused patterns take kernels of their own, for one token and for several. Seen to
// catch: four to eight tokens left to the kernels of prompts; no sigmoid; keys normed by the size
// of queries.
TEST(gpu_token_norms_and_gates_of_heads) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 30, 1}};
    for (int i = 0; i < WAYS; i++) {
        if (i > GATED && !test_is_long()) break;
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, heads_block(&r, (way)i, false, rig_rows(&r, EMBD, fill_normal)));
        rig_compare(&r, how, RIG_BEHIND_QUANTIZED, 5e-3);
        rig_same_bits(&r, TERN_KV_F16, 0);
        rig_close(&r);
    }
}

// Attention that norms heads, adds biases and picks columns has the bits of attention after ops
// that do it. Seen to fail with a query's norm for keys, a key's factor for those of the tokens
// after it, biases of another head, and columns of the first head for all.
TEST(gpu_token_attention_prepares_heads_to_the_bit) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 30, 1}, .kv_type = TERN_KV_F16};
    size_t bytes = 0;
    for (int i = 0; rig_has_gpu() && i < WAYS; i++)
        for (int device = RIG_GPU; device < (test_is_long() ? RIG_DEVICES : RIG_GPU_LEAST);
             device++) {
            float *out[2];
            for (int apart = 0; apart < 2; apart++) {
                rig r;
                rig_open(&r, N_ROWS);
                tern_vid x = rig_rows(&r, EMBD, fill_normal);
                rig_show(&r, heads_block(&r, (way)i, apart, x));
                bytes = 40 * (size_t)r.n_shown * sizeof(float);
                out[apart] = rig_run(&r, (rig_device)device, how, true);
                rig_close(&r);
            }
            if (out[0] && out[1])
                CHECK_MSG(memcmp(out[0], out[1], bytes) == 0, "way %d, device %d", i, device);
            tern_free(out[0]);
            tern_free(out[1]);
        }
}

// Steps computed ahead equal those computed on request.
TEST(gpu_greedy_steps_ahead) {
    enum { N = 34 };
    static const double seconds[] = {-1, INFINITY, 0}; // none, unlimited, one step
    int n_ways = test_is_long() ? 3 : 2, n_devices = test_is_long() ? RIG_DEVICES : RIG_GPU_LEAST;
    rig_step steps[3][N];
    if (!rig_has_gpu()) return;
    for (int device = RIG_GPU; device < n_devices; device++) {
        rig r;
        rig_open(&r, 200);
        r.screens = true;
        tern_vid x = attention_block(&r, &layers[0], rig_rows(&r, 192, fill_normal));
        rig_head(&r, x, 200, TERN_DTYPE_F16, fill_normal);
        for (int i = 0; i < n_ways; i++) {
            if (!rig_walk(&r, (rig_device)device, seconds[i], steps[i], N)) break;
            CHECK_MSG(memcmp(steps[i], steps[0], sizeof steps[0]) == 0, "device %d, way %d", device,
                      i);
            int n = (int)r.n_launches;
            bool as_thought = i == 0 ? n == N : i == 1 ? n < N * 3 / 4 : n > N;
            CHECK_MSG(as_thought, "way %d: %d launches", i, n);
        }
        rig_close(&r);
    }
}

// The shader texts for GPUs with subgroups; the last layers in groups, of narrow and of wide codes.
TEST(gpu_texts_for_subgroups_are_valid) {
    static const layer narrow = {128, 384, 4, 2, 32, true, TERN_ACTIVATION_SILU, 0, 0};
    static const layer wide = {256, 512, 4, 2, 64, false, TERN_ACTIVATION_SILU, 0, 0};
    static const tern_dtype mixed[7] = {TERN_DTYPE_Q4_K, TERN_DTYPE_Q4_K, TERN_DTYPE_Q6_K,
                                        TERN_DTYPE_Q5_K, TERN_DTYPE_Q4_0, TERN_DTYPE_Q4_0,
                                        TERN_DTYPE_Q8_0};
    enum { N = sizeof layers / sizeof *layers };
    if (!rig_has_gpu()) return;
    for (size_t i = 0; i <= N + 1; i++) {
        rig r;
        in_groups = i == N ? two_bits : i > N ? mixed : NULL;
        n_made = 0;
        const layer *l = i == N ? &narrow : i > N ? &wide : &layers[i];
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, l->n_embd, fill_normal);
        x = feed_forward_block(&r, l, attention_block(&r, l, x));
        x = normed(&r, x, l->n_embd, true);
        tern_dtype type = l->n_embd % 64 ? TERN_DTYPE_F16 : TERN_DTYPE_Q8_0;
        if (in_groups) type = i == N ? TERN_DTYPE_Q2_0 : TERN_DTYPE_Q6_K;
        rig_head(&r, x, 20000, type, i == N ? fill_two_bits : fill_normal);
        rig_translate(&r);
        rig_close(&r);
    }
    in_groups = NULL;
}

// The fused dispatches in groups, against the CPU and against one token at a time; with several
// steps of blocks to a thread. Seen to fail with the scale of the step before, and, in
// ternary_few.wgsl, with those of the first step for all.
TEST(gpu_token_layers_in_groups) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 11}};
    static const layer cases[] = {{6144, 64, 2, 1, 32, true, TERN_ACTIVATION_SILU, 0, 0},
                                  {192, 1664, 6, 2, 32, false, TERN_ACTIVATION_SILU, 0, 0},
                                  {128, 2560, 4, 2, 32, true, TERN_ACTIVATION_SILU, 0, 0}};
    in_groups = two_bits;
    for (size_t i = 0; i < rig_cases(3, 2); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, cases[i].n_embd, fill_normal);
        rig_show(&r, feed_forward_block(&r, &cases[i], attention_block(&r, &cases[i], x)));
        r.has_ternary = true;
        rig_compare(&r, how, RIG_BEHIND_QUANTIZED, 5e-3);
        rig_same_bits(&r, TERN_KV_F16, 0);
        rig_close(&r);
    }
    in_groups = NULL;
}

// The same with codes of four bits and more: all of one type; queries and keys of another type than
// values, down of another than up, as Q4_K_M files have them. Seen to fail with the first group's
// sum of x for all minima, and with scales that only the fifth to eighth token's threads keep.
TEST(gpu_token_layers_in_wide_codes) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 11}};
#define A TERN_DTYPE_Q4_K
#define B TERN_DTYPE_Q6_K
#define C TERN_DTYPE_Q8_0
#define D TERN_DTYPE_Q4_0
    static const struct {
        layer layer;
        tern_dtype types[7];
    } cases[] = {{{256, 768, 4, 2, 64, false, TERN_ACTIVATION_SILU, 0, 0}, {A, A, B, A, A, A, B}},
                 {{192, 1664, 6, 2, 32, true, TERN_ACTIVATION_SILU, 0, 0}, {C, C, C, C, C, C, C}},
                 {{2816, 320, 4, 1, 32, false, TERN_ACTIVATION_SILU, 0, 0}, {D, C, D, D, D, D, C}},
                 {{512, 8192, 4, 2, 64, true, TERN_ACTIVATION_SILU, 0, 0}, {B, B, B, B, A, A, A}}};
#undef A
#undef B
#undef C
#undef D
    for (size_t i = 0; i < rig_cases(4, 1); i++) {
        const layer *l = &cases[i].layer;
        rig r;
        rig_open(&r, N_ROWS);
        in_groups = cases[i].types;
        n_made = 0;
        tern_vid x = rig_rows(&r, l->n_embd, fill_normal);
        rig_show(&r, feed_forward_block(&r, l, attention_block(&r, l, x)));
        rig_compare(&r, how, RIG_BEHIND_QUANTIZED, 5e-3);
        rig_same_bits(&r, TERN_KV_F16, 0);
        rig_close(&r);
    }
    in_groups = NULL;
}

// Whether fused dispatches have the bits of separate ones, on the CPU and on the GPUs.
static void same_without_fusion(rig *r, rig_batches how) {
    int64_t n = 0;
    for (int i = 0; how.n_tokens[i]; i++) n += how.n_tokens[i];
    for (int i = RIG_CPU; rig_has_gpu() && i < RIG_DEVICES; i++) {
        float *apart = rig_run(r, (rig_device)i, how, false);
        float *fused = rig_run(r, (rig_device)i, how, true);
        size_t bytes = (size_t)(n * r->n_shown) * sizeof *fused;
        if (apart && fused)
            CHECK_MSG(memcmp(apart, fused, bytes) == 0, "device %d, %d columns", i,
                      (int)r->n_shown);
        tern_free(apart);
        tern_free(fused);
    }
}

// Seen to fail with the norm of the sum, with the residual left out and with another factor.
TEST(gpu_ends_of_blocks_have_the_bits_of_their_parts) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 11}};
    for (int i = 0; i < 4; i++) {
        int64_t n = i % 2 ? 1300 : 188;
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, n, fill_normal), y = rig_rows(&r, n, fill_kinds);
        y = i < 2 ? normed(&r, y, n, true) : tern_g_scale(&r.g, y, 0.22f);
        rig_show(&r, tern_g_add(&r.g, x, y));
        rig_compare(&r, how, RIG_OF_ROW, 1e-6);
        same_without_fusion(&r, how);
        rig_close(&r);
    }
}

// A product that is added times a factor, one that is normed first and one that stands alone, of
// ternary, narrow and wide codes. Seen to fail with the factor, and with the other value, left out
// by one token's kernel, and by that of several.
TEST(gpu_token_products_at_the_ends_of_blocks) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 11}};
    static const tern_dtype wide[7] = {TERN_DTYPE_Q4_K, TERN_DTYPE_Q4_K, TERN_DTYPE_Q4_K,
                                       TERN_DTYPE_Q4_K, TERN_DTYPE_Q4_K, TERN_DTYPE_Q4_K,
                                       TERN_DTYPE_Q4_K};
    static const tern_dtype *const types[] = {NULL, two_bits, wide};
    for (size_t i = 0; i < rig_cases(9, 3); i++) {
        size_t end = (i + i / 3) % 3;
        rig r;
        rig_open(&r, N_ROWS);
        in_groups = types[i % 3];
        n_made = 0;
        ends.scale = end == 0 ? 0.22f : 0;
        ends.norms = end == 1;
        tern_vid x = rig_rows(&r, 256, fill_normal);
        tern_vid y = bitlinear(&r, rig_rows(&r, 512, fill_normal), 256, 512);
        y = end == 2 ? tern_g_act(&r.g, y, TERN_ACTIVATION_SILU) : y;
        rig_show(&r, end_of(&r, 256, x, y));
        rig_compare(&r, how, RIG_BEHIND_QUANTIZED, 5e-3);
        rig_same_bits(&r, TERN_KV_F16, 0);
        same_without_fusion(&r, how);
        rig_close(&r);
    }
    in_groups = NULL;
    memset(&ends, 0, sizeof ends);
}

// The norm and the addition before a feed-forward are part of its first dispatch for one token.
// Seen to fail with the sum not kept.
TEST(gpu_token_feed_forward_adds_first_to_the_bit) {
    static const rig_batches how = {.n_tokens = {1, 1, 5, 2, 1, 11}};
    static const layer l = {.n_embd = 256, .n_ff = 512, .act = TERN_ACTIVATION_GELU_TANH};
    static const tern_dtype wide[7] = {TERN_DTYPE_Q4_0, TERN_DTYPE_Q4_0, TERN_DTYPE_Q4_0};
    size_t bytes = 0;
    for (size_t i = 0; rig_has_gpu() && i < rig_cases(4, 1); i++) {
        float *out[2];
        in_groups = i % 2 ? NULL : wide;
        for (int apart = 0; apart < 2; apart++) {
            rig r;
            rig_open(&r, N_ROWS);
            n_made = 0;
            ends.apart = apart;
            tern_vid x = rig_rows(&r, l.n_embd, fill_normal);
            tern_vid y = normed(&r, rig_rows(&r, l.n_embd, fill_kinds), l.n_embd, true);
            rig_show(&r, feed_forward_block(&r, &l, tern_g_add(&r.g, x, y)));
            bytes = 21 * (size_t)r.n_shown * sizeof(float);
            out[apart] = rig_run(&r, i < 2 ? RIG_GPU : RIG_GPU_LEAST, how, true);
            rig_close(&r);
        }
        if (out[0] && out[1]) CHECK_MSG(memcmp(out[0], out[1], bytes) == 0, "case %zu", i);
        tern_free(out[0]);
        tern_free(out[1]);
    }
    in_groups = NULL;
    memset(&ends, 0, sizeof ends);
}

// Layers as in Gemma and in Granite, and one whose product down has no room in a workgroup of the
// least device. Seen to fail with the sum before a feed-forward not kept.
TEST(gpu_token_layers_with_other_ends) {
    static const rig_batches how = {.n_tokens = {1, 5, 2, 1, 11}};
    static const tern_dtype wide[7] = {TERN_DTYPE_Q8_0, TERN_DTYPE_Q8_0, TERN_DTYPE_Q8_0,
                                       TERN_DTYPE_Q8_0, TERN_DTYPE_Q8_0, TERN_DTYPE_Q8_0,
                                       TERN_DTYPE_Q8_0};
    static const struct {
        layer layer;
        bool norms;
        float scale;
    } cases[] = {
        {{256, 512, 4, 1, 64, false, TERN_ACTIVATION_GELU_TANH, 45, 0}, true, 0},
        {{192, 384, 6, 2, 32, false, TERN_ACTIVATION_SILU, 0, 0}, false, 0.22f},
        {{192, 9216, 6, 2, 32, false, TERN_ACTIVATION_SILU, 0, 0}, false, 0},
    };
    for (size_t i = 0; i < rig_cases(6, 1); i++) {
        const layer *l = &cases[i / 2].layer;
        rig r;
        rig_open(&r, N_ROWS);
        in_groups = i % 2 ? NULL : wide;
        n_made = 0;
        ends.norms = cases[i / 2].norms;
        ends.scale = cases[i / 2].scale;
        tern_vid x = rig_rows(&r, l->n_embd, fill_normal);
        rig_show(&r, feed_forward_block(&r, l, attention_block(&r, l, x)));
        rig_compare(&r, how, RIG_BEHIND_QUANTIZED, 5e-3);
        rig_same_bits(&r, TERN_KV_F16, 0);
        rig_close(&r);
    }
    in_groups = NULL;
    memset(&ends, 0, sizeof ends);
}
