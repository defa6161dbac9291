// The families' published sizes against what the GPU's kernels can do. Needs no GPU.
#include <stdlib.h>
#include <string.h>
#include "tests/support/harness.h"
#include "kernels/webgpu/device/gpu.h"
#include "models/models.h"

typedef struct size {
    const char *arch;
    int64_t n_vocab, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    int32_t every;     // so many layers one has attention to everything
    int32_t n_v_heads; // of delta nets, whose keys have 16 heads of 128
    int64_t n_dense;
    void (*more)(tern_config *c); // what only this family has
} size;

static void of_gemma4(tern_config *c) {
    c->full_head_dim = 512;
    c->n_shared = 4;
    c->n_per_layer = 256;
    c->wide_shared = c->n_ff == 6144;
    c->score_cap = 30;
    c->act = TERN_ACTIVATION_GELU_TANH;
}
static void of_experts(tern_config *c, int64_t n, int64_t n_used, int64_t n_ff, int64_t n_dense) {
    c->n_experts = n;
    c->n_experts_used = n_used;
    c->n_ff_expert = n_ff;
    c->n_dense_layers = n_dense;
    c->experts_scale = 1;
}
static void of_qwen3_moe(tern_config *c) { of_experts(c, 128, 8, 768, 0); }
static void of_lfm2_moe(tern_config *c) {
    of_experts(c, 32, 4, 1792, 2);
    c->experts_sigmoid = c->experts_bias = true;
}
static void of_mamba(tern_config *c, int32_t n_heads, int32_t dim, int32_t n_state) {
    c->ssm = (tern_ssm_attrs){n_heads, dim, 1, n_state};
    c->conv_bias = true;
    c->multipliers = (tern_multipliers){1, 1, {1, 1, 1, 1, 1}, 1, 1, 1, 1, 1};
}
static void of_granite(tern_config *c) {
    of_mamba(c, 48, 32, 128);
    c->ssm_norm = true;
}
static void of_falcon(tern_config *c) {
    of_mamba(c, 24, 64, 128);
    c->multipliers.ssm_in = 0.5;
}

static const size sizes[] = {
    {"gemma4", 262144, 1536, 6144, 8, 1, 256, 4, 0, 0, of_gemma4},
    {"gemma4", 262144, 2560, 10240, 8, 2, 256, 4, 0, 0, of_gemma4},
    {"qwen3moe", 151936, 2048, 6144, 32, 4, 128, 1, 0, 0, of_qwen3_moe},
    {"lfm2moe", 65536, 2048, 7168, 32, 8, 64, 3, 0, 0, of_lfm2_moe},
    {"granitehybrid", 100352, 768, 2048, 12, 4, 64, 4, 0, 0, of_granite},
    {"falcon-h1", 32784, 1024, 2048, 8, 2, 64, 1, 0, 0, of_falcon},
    {"qwen3", 151936, 1024, 3072, 16, 8, 128, 1, 0, 0, NULL},
    {"qwen3", 151936, 2560, 9728, 32, 8, 128, 1, 0, 0, NULL},
    {"qwen3", 151936, 4096, 12288, 32, 8, 128, 1, 0, 0, NULL},
    {"qwen35", 248320, 1024, 3584, 8, 2, 256, 4, 16, 0, NULL},
    {"qwen35", 248320, 2560, 9216, 16, 4, 256, 4, 32, 0, NULL},
    {"qwen35", 248320, 4096, 12288, 16, 4, 256, 4, 32, 0, NULL},
    {"lfm2", 65536, 1024, 4608, 16, 8, 64, 3, 0, 0, NULL},
    {"lfm2", 65536, 2048, 8192, 32, 8, 64, 3, 0, 0, NULL},
    {"gemma3", 262144, 640, 2048, 4, 1, 256, 6, 0, 0, NULL},
    {"gemma3", 262144, 1152, 6912, 4, 1, 256, 6, 0, 0, NULL},
    {"gemma3", 262208, 2560, 10240, 8, 4, 256, 6, 0, 0, NULL},
    {"embeddinggemma", 262144, 768, 1152, 3, 1, 256, 6, 0, 3072, NULL},
};
#define N_LAYERS 8

static const tern_arch *arch_named(const char *name) {
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0) return list[i];
    return NULL;
}

static void make_config(const size *s, tern_config *c) {
    bool encodes = s->n_dense > 0;
    tern_rope_attrs rope = {.n_rot = (int32_t)s->head_dim, .halves = true, .base = 1e6f};
    *c = (tern_config){.n_vocab = s->n_vocab,
                       .n_layers = N_LAYERS,
                       .n_embd = s->n_embd,
                       .n_ff = s->n_ff,
                       .n_heads = s->n_heads,
                       .n_kv_heads = s->n_kv_heads,
                       .head_dim = s->head_dim,
                       .n_context = 2048,
                       .rms_eps = 1e-6,
                       .final_rms_eps = 1e-6,
                       .act = TERN_ACTIVATION_SILU,
                       .rope = rope,
                       .window_rope = rope,
                       .window = 512,
                       .tied_head = true,
                       .conv_taps = 4,
                       .n_dense = s->n_dense,
                       .bidirectional = encodes,
                       .pooling = encodes ? TERN_POOLING_MEAN : TERN_POOLING_NONE,
                       .delta = {16, s->n_v_heads, 128, 128, true, 1e-6f}};
    bool convolves = strncmp(s->arch, "lfm2", 4) == 0;
    tern_layer_kind other = s->n_v_heads ? TERN_LAYER_DELTA
                            : convolves  ? TERN_LAYER_CONV
                                         : TERN_LAYER_WINDOW;
    if (s->more) s->more(c);
    if (c->ssm.n_heads > 0) other = TERN_LAYER_MAMBA;
    for (int i = 0; i < N_LAYERS; i++)
        c->layers[i] = (uint8_t)((i + 1) % s->every ? other : TERN_LAYER_FULL);
}

static void check_size(const size *s, bool ternary) {
    tern_error err = {0};
    tern_config c;
    tern_graph g;
    const tern_arch *arch = arch_named(s->arch);
    REQUIRE(arch);
    make_config(s, &c);
    c.bitlinear = ternary;
    tern_graph_init(&g);
    REQUIRE_OK(tern_arch_build_main(&g, arch, &c, &err), err);
    tern_weight_kind *kinds = calloc(g.n_values, sizeof *kinds);
    for (size_t v = 0; v < g.n_values; v++)
        if (ternary && g.values[v].is_matrix && strncmp(g.values[v].name, "blk.", 4) == 0)
            kinds[v] = TERN_WEIGHT_TERNARY;
    REQUIRE_OK(tern_pass_lower(&g, kinds, &err), err);
    for (int fused = 0; fused < 2; fused++) {
        if (fused) REQUIRE_OK(tern_pass_fuse(&g, &err), err);
        CHECK_MSG(gpu_check_graph(&g, &err) == TERN_OK, "%s, %lld columns: %s", s->arch,
                  (long long)s->n_embd, err.message);
    }
    free(kinds);
    tern_graph_free(&g);
}

// Seen to catch: at most 8192 columns; logits that must be few.
TEST(webgpu_takes_the_sizes_of_the_families) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int ternary = 0; ternary < 2; ternary++) check_size(&sizes[i], ternary);
}

// One more column than kernels that go by four can do, and one that others can.
TEST(webgpu_refuses_odd_columns_where_they_matter) {
    for (int64_t odd = 0; odd < 2; odd++) {
        tern_error err = {0};
        tern_graph g;
        tern_graph_init(&g);
        tern_vid ids = tern_g_input(&g, "ids", tern_g_dim(&g, "tokens"), 1, TERN_VALUE_I32);
        tern_vid x = tern_g_embed(&g, ids, tern_g_table(&g, "table", 8, 32));
        tern_vid a = tern_g_linear(&g, x, tern_g_matrix(&g, "a", 6, 32));
        tern_g_output(&g, odd ? tern_g_act(&g, a, TERN_ACTIVATION_SILU) : a, "y");
        CHECK((gpu_check_graph(&g, &err) == TERN_OK) == !odd);
        tern_graph_free(&g);
    }
}
