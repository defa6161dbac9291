// Qwen3-VL (arXiv:2511.21631): Qwen3's decoder for texts with images.
//
//   x = table[ids], and for images the tower's rows (qwen_vision.c)
//   per layer:  x = x + attention(norm(x));  x = x + feed_forward(norm(x))
//               and in the first layers, for images, x = x + rows of a layer of the tower
//
// RoPE turns pairs by time, row or column by turns.
#include <inttypes.h>
#include <stdio.h>
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.head_norms = true, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, tern_block_feed_forward(g, c, f));
    return tern_block_deep(g, c, x);
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(
        g, c,
        &(tern_stack){.layer = layer,
                      .begin = tern_config_has_vision(c) ? tern_block_given : NULL,
                      .final_norm = "output_norm.weight"},
        err);
}

// The text model's file says how many layers of the tower it reads; the tower's file says which.
static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t n_deep = -1;
    TERN_TRY(tern_config_qwen_vision(s, c, err));
    tern_config_int(s, "n_deepstack_layers", NULL, &n_deep);
    if (!tern_config_has_vision(c) || n_deep < 0 || n_deep == c->vision.n_deep) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "n_deepstack_layers is %" PRId64 ", but its part that sees has %" PRId64,
                     n_deep, c->vision.n_deep);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    TERN_TRY(tern_config_write_sections(w, name, c));
    snprintf(key, sizeof key, "%s.n_deepstack_layers", name);
    return tern_gguf_put_int(w, key, TERN_META_U32, c->vision.n_deep);
}

static const char *const gguf_names[] = {"qwen3vl", NULL};
// Without its tower it is a Qwen3, and is written to folders as one.
static const char *const hf_types[] = {"qwen3", "qwen3_vl", "qwen3_vl_text", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};
static const tern_sampling_defaults sampling = {
    .temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .min_p = -1, .repeat_penalty = -1};
static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_q_norm", "self_attn.q_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_k_norm", "self_attn.k_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_QWEN_VISION,
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {TERN_IGNORED_ROPE, TERN_IGNORED_IMAGES, {NULL, NULL, NULL}};

const tern_arch tern_arch_qwen3vl = {
    .name = "qwen3vl",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Qwen3ForCausalLM",
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_VISION(tern_build_qwen_vision)),
    .media = &(const tern_arch_media){.tower = &tern_tower_qwen},
    .hf_sees = &(const tern_seeing_names){"qwen3_vl", "Qwen3VLForConditionalGeneration",
                                          "qwen3_vl_text", "qwen3_vl", "Qwen2VLImageProcessorFast"},
    .reads_deep = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
