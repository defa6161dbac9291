// EXAONE 4 (arXiv:2507.11407): Llama's decoder with the norms after attention and feed-forward
// instead of before, and norms of each query and key head before RoPE. The larger ones have three
// layers with a window to one without, and that one has no RoPE.
#include <inttypes.h>
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    bool windowed = c->layers[g->layer] == TERN_LAYER_WINDOW;
    const tern_attention_block block = {.head_norms = true,
                                        .window = windowed ? c->window : 0,
                                        .rope = windowed || !c->window ? &c->rope : NULL};
    return tern_block_normed_after(g, c, x, &block);
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

// ---- Config ------------------------------------------------------------------------------------

#define PATTERN 4 // by default, each 4th layer has full attention

// A number, or "LLLG": a letter per layer, repeated.
static tern_status read_pattern(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t every = PATTERN;
    tern_str letters = tern_json_str(tern_config_json(s, "sliding_window_pattern"));
    if (!letters.len) tern_config_int(s, NULL, "sliding_window_pattern", &every);
    if (every < 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: sliding_window_pattern is %" PRId64 ", expected 1 or more",
                         every);
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool local =
            letters.len ? letters.ptr[(size_t)i % letters.len] == 'L' : (i + 1) % every != 0;
        c->layers[i] = local ? TERN_LAYER_WINDOW : TERN_LAYER_FULL;
    }
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool found, gguf = s->file->kind == TERN_FILE_GGUF;
    const tern_json *json = gguf ? NULL : tern_config_json(s, "sliding_window");
    int64_t window = gguf || json ? 0 : 4096; // transformers' default; null means no window
    tern_config_int(s, "attention.sliding_window", "sliding_window", &window);
    if (window == 0) return TERN_OK;
    if (window < 0 || window > INT32_MAX / 2)
        return tern_fail(err, TERN_ERR_FORMAT, "config: sliding_window is %" PRId64, window);
    c->window = (int32_t)window;
    TERN_TRY(tern_config_layer_types(s, c, 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_WINDOW, &found,
                                     err));
    if (found ||
        tern_config_layer_flags(s, c, "attention.sliding_window_pattern", TERN_LAYER_WINDOW))
        return TERN_OK;
    return read_pattern(s, c, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    return c->window ? tern_config_write_windows(w, name, c) : TERN_OK;
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    if (c->window)
        tern_strbuf_printf(out, "  \"sliding_window\": %d,\n", (int)c->window);
    else
        tern_strbuf_puts(out, "  \"sliding_window\": null,\n");
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"exaone4", NULL};
static const char *const hf_types[] = {"exaone4", NULL};
static const tern_config defaults = {.rms_eps = 1e-5};
static const tern_sampling_defaults sampling = {
    .temperature = 0.6f, .top_k = -1, .top_p = 0.95f, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32), .window = 9,
                                   .act = TERN_ACTIVATION_SILU,
                                   .layers = {TERN_LAYER_WINDOW, TERN_LAYER_FULL}};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_ROWS_ROPE_FACTORS,
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_q_norm", "self_attn.q_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_k_norm", "self_attn.k_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("post_attention_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_LAYER_NORM("post_ffw_norm", "post_feedforward_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_exaone4 = {
    .name = "exaone4",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Exaone4ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .mixed_layers = true,
    .windows_by_layer = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
