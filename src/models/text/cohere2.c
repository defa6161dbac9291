// Cohere2 (arXiv:2504.00698): Command R7B, Tiny Aya. Attention and feed-forward read the same
// LayerNorm of a layer's rows and are added together. Three layers with a window to one without,
// and that one has no RoPE; the logits have a factor.
#include <inttypes.h>
#include <stdio.h>
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    bool windowed = c->layers[g->layer] == TERN_LAYER_WINDOW;
    const tern_attention_block block = {.window = windowed ? c->window : 0,
                                        .rope = windowed ? &c->rope : NULL};
    tern_vid n = tern_block_layer_norm(g, c, x, "blk.%d.attn_norm", false);
    x = tern_g_add(g, x, tern_block_attention(g, c, n, &block));
    return tern_g_add(g, x, tern_block_feed_forward(g, c, n));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {.layer = layer, .final_norm = "output_norm", .layer_norm = true};
    return tern_build_stack(g, c, &stack, err);
}

// ---- Config ------------------------------------------------------------------------------------

#define PATTERN 4 // by default, each 4th layer has full attention
#define WINDOW  "attention.sliding_window"
#define FLAGS   "attention.sliding_window_pattern" // a number as PATTERN, or a flag per layer

static tern_status read_layers(const tern_config_source *s, tern_config *c, tern_error *err) {
    return tern_config_window_layers(s, c, "sliding_window_pattern", PATTERN, false, err);
}

static tern_status read_window(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t window = 4096; // transformers' default
    bool is_there = tern_config_int(s, WINDOW, "sliding_window", &window);
    if (s->file->kind == TERN_FILE_GGUF && !is_there)
        return tern_fail(err, TERN_ERR_FORMAT, "config: %s." WINDOW " is missing", s->prefix);
    if (window < 1 || window > INT32_MAX / 2)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: sliding_window is %" PRId64 ", expected 1 to %d", window,
                         INT32_MAX / 2);
    c->window = (int32_t)window;
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    double scale = 0.0625; // transformers' default
    bool is_there = tern_config_float(s, "logit_scale", "logit_scale", &scale);
    if (s->file->kind == TERN_FILE_GGUF && !is_there)
        return tern_fail(err, TERN_ERR_FORMAT, "config: %s.logit_scale is missing", s->prefix);
    TERN_TRY(tern_config_check_scale("logit_scale", scale, err));
    c->logit_divisor = 1 / scale;
    TERN_TRY(tern_config_layer_norm_eps(s, "layer_norm_eps", c, err));
    TERN_TRY(read_window(s, c, err));
    return read_layers(s, c, err);
}

// n if each n-th layer and no other has full attention; 0: no number says it.
static int64_t pattern_of(const tern_config *c) {
    int64_t every = 1;
    while (every <= c->n_layers && c->layers[every - 1] == TERN_LAYER_WINDOW) every++;
    for (int64_t i = 0; i < c->n_layers; i++)
        if ((c->layers[i] == TERN_LAYER_WINDOW) != ((i + 1) % every != 0)) return 0;
    return every;
}

// llama.cpp reads a pattern that is a number, but not one of flags.
static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    int64_t every = pattern_of(c);
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", name);
    TERN_TRY(tern_gguf_put_f32(w, key, (float)c->rms_eps));
    snprintf(key, sizeof key, "%s.logit_scale", name);
    TERN_TRY(tern_gguf_put_f32(w, key, (float)(1 / c->logit_divisor)));
    if (every == 0) return tern_config_write_windows(w, name, c);
    snprintf(key, sizeof key, "%s." WINDOW, name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->window));
    snprintf(key, sizeof key, "%s." FLAGS, name);
    return tern_gguf_put_int(w, key, TERN_META_U32, every);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out, "  \"logit_scale\": %.9g,\n  \"sliding_window\": %d,\n",
                       1 / c->logit_divisor, (int)c->window);
}

static const char *differs(const tern_config *c) {
    if (!c->tied_head) return "not load it: they know no head besides the embedding table";
    return pattern_of(c) ? NULL : "compute full attention in each 4th layer and in no other";
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"cohere2", NULL};
static const char *const hf_types[] = {"cohere2", NULL};
static const tern_config defaults = {
    .n_context = 8192, .tied_head = true, .rms_eps = 1e-5, .rope = {.base = 10000}};

static const tern_config sample = {
    TERN_SAMPLE,
    .rope = {.n_rot = 32, .halves = false, .base = 10000, .factor = 1},
    .act = TERN_ACTIVATION_SILU,
    .window = 9,
    .logit_divisor = 4,
    .layers = {TERN_LAYER_WINDOW, TERN_LAYER_FULL}};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_cohere2 = {
    .name = "cohere2",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Cohere2ForCausalLM",
    .hf_eps = "layer_norm_eps",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .differs = differs,
    .gguf_rope_neighbours = true,
    .hf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .mixed_layers = true,
    .windows_by_layer = true,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
