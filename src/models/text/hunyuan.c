// Hunyuan, the dense ones: Llama's decoder with a norm of each query and key head after RoPE, whose
// base is raised by a fixed factor ("alpha").
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {
        .head_norms = true, .norms_after_rope = true, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, tern_block_feed_forward(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

static const char *const gguf_names[] = {"hunyuan-dense", NULL};
static const char *const hf_types[] = {"hunyuan_v1_dense", NULL};
static const tern_config defaults = {.rms_eps = 1e-5};
static const tern_sampling_defaults sampling = {
    .temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .min_p = -1, .repeat_penalty = 1.05f};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_q_norm", "self_attn.query_layernorm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_k_norm", "self_attn.key_layernorm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_hunyuan = {
    .name = "hunyuan",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "HunYuanDenseV1ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .rope_has_alpha = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
