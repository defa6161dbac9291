// ModernBERT (arXiv:2412.13663). An encoder with RoPE and gated feed-forwards. LayerNorms, without
// biases, come before attention and feed-forward (the first layer's attention has none: its rows
// are normed already). One of three layers has full attention, the others see half a window to each
// side, with their own RoPE.
#include <inttypes.h>
#include <stdio.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    (void)ids;
    return tern_block_layer_norm(g, c, x, "token_embd_norm", false);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    bool windowed = c->layers[g->layer] == TERN_LAYER_WINDOW;
    const tern_attention_block block = {.fused = true,
                                        .bidirectional = true,
                                        .window = windowed ? c->window : 0,
                                        .rope = windowed ? &c->window_rope : &c->rope};
    tern_vid a = x;
    if (g->layer > 0) a = tern_block_layer_norm(g, c, x, "blk.%d.attn_norm", false);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_layer_norm(g, c, x, "blk.%d.ffn_norm", false);
    return tern_g_add(g, x, tern_block_fused_feed_forward(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {
        .layer = layer, .begin = begin, .final_norm = "output_norm", .layer_norm = true};
    return tern_build_stack(g, c, &stack, err);
}

// ---- Config ------------------------------------------------------------------------------------

#define PERIOD     3 // each 3rd layer, from the first on, has full attention
#define WINDOW_MAX (INT32_MAX / 2)

static tern_status read_layers(const tern_config_source *s, tern_config *c, tern_error *err) {
    return tern_config_window_layers(s, c, "global_attn_every_n_layers", PERIOD, true, err);
}

static tern_status refuse_biases(const tern_config_source *s, tern_error *err) {
    static const char *const names[] = {"norm_bias", "attention_bias", "mlp_bias"};
    for (size_t i = 0; i < 3; i++)
        if (tern_config_bool(s, names[i], false))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "config.json: a ModernBERT with %s is not supported", names[i]);
    return TERN_OK;
}

// Older folders have the bases under other names.
static tern_status read_ropes(const tern_config_source *s, tern_config *c, tern_error *err) {
    double base;
    TERN_TRY(tern_config_rope(s, c, "sliding_attention", &c->window_rope, err));
    if (c->rope.scaling != TERN_ROPE_NONE || c->window_rope.scaling != TERN_ROPE_NONE)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: a ModernBERT whose RoPE is scaled is not supported");
    if (tern_config_float(s, NULL, "global_rope_theta", &base) && base > 0)
        c->rope.base = (float)base;
    if (tern_config_float(s, NULL, "local_rope_theta", &base) && base > 0)
        c->window_rope.base = (float)base;
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t window;
    TERN_TRY(refuse_biases(s, err));
    TERN_TRY(tern_config_layer_norm_eps(s, "norm_eps", c, err));
    TERN_TRY(read_layers(s, c, err));
    TERN_TRY(tern_config_need(s, "attention.sliding_window", "local_attention", 1, WINDOW_MAX,
                              &window, err));
    c->window = (int32_t)(window / 2 + 1); // to each side, itself included
    TERN_TRY(read_ropes(s, c, err));
    c->bidirectional = true;
    TERN_TRY(tern_config_pooling(s, c, err));
    if (c->pooling == TERN_POOLING_NONE) c->pooling = TERN_POOLING_MEAN;
    return TERN_OK;
}

// The window as files count it: half of it, rounded down, to each side; 0: none.
static int32_t both_sides(const tern_config *c) { return c->window > 1 ? 2 * (c->window - 1) : 1; }

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    uint8_t flags[TERN_LAYERS_MAX];
    for (int64_t i = 0; i < c->n_layers; i++) flags[i] = c->layers[i] == TERN_LAYER_WINDOW;
    snprintf(key, sizeof key, "%s.attention.sliding_window", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, both_sides(c)));
    snprintf(key, sizeof key, "%s.rope.freq_base_swa", name);
    TERN_TRY(tern_gguf_put_f32(w, key, c->window_rope.base));
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", name);
    TERN_TRY(tern_gguf_put_array(w, key, TERN_META_BOOL, flags, (size_t)c->n_layers));
    return tern_config_write_encoder(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"local_attention\": %d,\n  \"global_rope_theta\": %.9g,\n"
                       "  \"local_rope_theta\": %.9g,\n",
                       both_sides(c), (double)c->rope.base, (double)c->window_rope.base);
    tern_config_write_pooling_json(c, out);
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"modern-bert", NULL};
static const char *const hf_types[] = {"modernbert", NULL};
static const tern_config defaults = {.rms_eps = 1e-5, .rope = {.base = 160000}};

static const tern_config sample = {TERN_SAMPLE,
                                   .rope = TERN_SAMPLE_ROPE(32),
                                   .window_rope = TERN_SAMPLE_ROPE(32),
                                   .window = 9,
                                   .act = TERN_ACTIVATION_GELU,
                                   .layers = {TERN_LAYER_FULL, TERN_LAYER_WINDOW},
                                   .bidirectional = true,
                                   .pooling = TERN_POOLING_FIRST};

#define LAYER(gguf_, hf_, role_) TERN_MATRIX("blk.%d." gguf_, "layers.%d." hf_, role_)

static const tern_tensor_row tensors[] = {
    TERN_MATRIX("token_embd", "embeddings.tok_embeddings", TERN_ROLE_TABLE),
    TERN_NORM("token_embd_norm", "embeddings.norm", TERN_CHANGE_NONE),
    TERN_NORM("output_norm", "final_norm", TERN_CHANGE_NONE),
    LAYER("attn_norm", "attn_norm", TERN_ROLE_VECTOR),
    LAYER("attn_qkv", "attn.Wqkv", TERN_ROLE_Q),
    LAYER("attn_output", "attn.Wo", TERN_ROLE_O),
    LAYER("ffn_norm", "mlp_norm", TERN_ROLE_VECTOR),
    LAYER("ffn_up", "mlp.Wi", TERN_ROLE_UP),
    LAYER("ffn_down", "mlp.Wo", TERN_ROLE_DOWN),
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {
    TERN_IGNORED_ROPE,
    {"head.", NULL, "of the training's task: vectors are pooled rows"},
    {"decoder.", NULL, "of the training's task: vectors are pooled rows"},
    {NULL, NULL, NULL},
};

const tern_arch tern_arch_modernbert = {
    .name = "modernbert",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "ModernBertModel",
    .hf_prefix = "",
    .hf_eps = "norm_eps",
    .hf_act = "hidden_activation",
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_ENCODER(build)),
    .act = TERN_ACTIVATION_GELU,
    .mixed_layers = true,
    .windows_by_layer = true,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
