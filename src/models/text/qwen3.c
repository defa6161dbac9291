// Qwen3 (arXiv:2505.09388): Llama's decoder, with a norm of each query and key head before RoPE and
// heads whose dimensions are stated. Qwen3-Embedding is the same decoder; its last row is the
// embedding. Qwen3 MoE has experts in place of the feed-forward part.
#include <inttypes.h>
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    bool windowed = c->layers[g->layer] == TERN_LAYER_WINDOW;
    const tern_attention_block block = {
        .head_norms = true, .window = windowed ? c->window : 0, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, tern_block_experts(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

// Windows are off in every published file. If they are on, the first layers have none.
static tern_status read_json_windows(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool found;
    int64_t window = 0, n_full = 28; // as in transformers
    if (!tern_config_bool(s, "use_sliding_window", false) ||
        !tern_config_int(s, NULL, "sliding_window", &window))
        return TERN_OK;
    if (window < 1 || window > INT32_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "config: sliding_window is %" PRId64, window);
    c->window = (int32_t)window;
    TERN_TRY(tern_config_layer_types(s, c, 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_WINDOW, &found,
                                     err));
    if (!found) tern_config_int(s, NULL, "max_window_layers", &n_full);
    for (int64_t i = n_full < 0 ? 0 : n_full; !found && i < c->n_layers; i++)
        c->layers[i] = TERN_LAYER_WINDOW;
    return TERN_OK;
}

// GGUF has no such windows: a key of our own says which layers.
static tern_status read_gguf_windows(const tern_config_source *s, tern_config *c, tern_error *err) {
    if (!tern_config_layer_flags(s, c, "attention.sliding_window_pattern", TERN_LAYER_WINDOW))
        return TERN_OK;
    int64_t window;
    TERN_TRY(tern_config_need(s, "attention.sliding_window", NULL, 1, INT32_MAX, &window, err));
    c->window = (int32_t)window;
    return TERN_OK;
}

tern_status tern_config_qwen_windows(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    return gguf ? read_gguf_windows(s, c, err) : read_json_windows(s, c, err);
}

tern_status tern_config_write_qwen_gguf(tern_gguf_writer *w, const char *name,
                                        const tern_config *c) {
    TERN_TRY(tern_config_write_pooling(w, name, c));
    return c->window ? tern_config_write_windows(w, name, c) : TERN_OK;
}

void tern_config_write_qwen_json(const tern_config *c, tern_strbuf *out) {
    tern_config_write_pooling_json(c, out);
    if (c->window)
        tern_strbuf_printf(out, "  \"use_sliding_window\": true,\n  \"sliding_window\": %d,\n",
                           (int)c->window);
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(tern_config_qwen_windows(s, c, err));
    return tern_config_pooling(s, c, err);
}

// Single layers without experts: no published file has them, and GGUF cannot express them.
static tern_status read_moe(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t step = 1;
    const tern_json *dense = tern_config_json(s, "mlp_only_layers");
    tern_config_int(s, NULL, "decoder_sparse_step", &step);
    if (step != 1 || (dense && tern_json_first(&s->file->config, dense)))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: decoder_sparse_step and mlp_only_layers: layers without "
                         "experts are not supported");
    TERN_TRY(tern_config_experts(s, c, err));
    return read(s, c, err);
}

static tern_status write_moe_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    TERN_TRY(tern_config_write_experts(w, name, c));
    return tern_config_write_qwen_gguf(w, name, c);
}

static void write_moe_json(const tern_config *c, tern_strbuf *out) {
    tern_config_write_experts_json(c, out);
    tern_config_write_qwen_json(c, out);
}

static const char *const gguf_names[] = {"qwen3", NULL};
static const char *const hf_types[] = {"qwen3", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};
static const tern_sampling_defaults sampling = {
    .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU};

static const char *const moe_gguf_names[] = {"qwen3moe", NULL};
static const char *const moe_hf_types[] = {"qwen3_moe", NULL};
static const tern_config moe_sample = {TERN_SAMPLE,
                                       .rope = TERN_SAMPLE_ROPE(32),
                                       .act = TERN_ACTIVATION_SILU,
                                       .n_experts = 6,
                                       .n_experts_used = 2,
                                       .n_ff_expert = 44,
                                       .experts_normed = true,
                                       .experts_scale = 1};

#define ROWS_BUT_FEED_FORWARD                                                                      \
    TERN_ROWS_TABLE_AND_HEAD, TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),            \
        TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE), TERN_ROWS_ATTENTION,    \
        TERN_LAYER_NORM("attn_q_norm", "self_attn.q_norm", TERN_CHANGE_NONE),                      \
        TERN_LAYER_NORM("attn_k_norm", "self_attn.k_norm", TERN_CHANGE_NONE),                      \
        TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE)

static const tern_tensor_row tensors[] = {ROWS_BUT_FEED_FORWARD, TERN_ROWS_FEED_FORWARD,
                                          TERN_ROWS_INPUT_NORMS, TERN_ROWS_END};
static const tern_tensor_row moe_tensors[] = {
    ROWS_BUT_FEED_FORWARD, TERN_ROWS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
    TERN_ROWS_END};

const tern_arch tern_arch_qwen3 = {
    .name = "qwen3",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Qwen3ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .read = read,
    .write_gguf = TERN_WRITER(tern_config_write_qwen_gguf),
    .write_json = TERN_WRITER(tern_config_write_qwen_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_ENCODER(build)),
    .mixed_layers = true,
    .windows_by_layer = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};

const tern_arch tern_arch_qwen3moe = {
    .name = "qwen3moe",
    .gguf_names = moe_gguf_names,
    .hf_types = moe_hf_types,
    .hf_class = "Qwen3MoeForCausalLM",
    .tensors = moe_tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .read = read_moe,
    .write_gguf = TERN_WRITER(write_moe_gguf),
    .write_json = TERN_WRITER(write_moe_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_ENCODER(build)),
    .mixed_layers = true,
    .windows_by_layer = true,
    .has_experts = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(moe_sample),
};
