// OLMo 2 (arXiv:2501.00656): Llama's decoder with the norms after attention and feed-forward
// instead of before, and norms of all queries together and of all keys together before RoPE.
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.row_norms = true, .rope = &c->rope};
    return tern_block_normed_after(g, c, x, &block);
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

static const char *const gguf_names[] = {"olmo2", NULL};
static const char *const hf_types[] = {"olmo2", NULL};
static const tern_config defaults = {.rms_eps = 1e-5};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_q_norm", "self_attn.q_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_k_norm", "self_attn.k_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("post_attention_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_LAYER_NORM("post_ffw_norm", "post_feedforward_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_END,
};

const tern_arch tern_arch_olmo2 = {
    .name = "olmo2",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Olmo2ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
};
