// BitNet b1.58: BitLinears with SiLU and no sub-norms (arXiv:2402.17764), or with sub-norms and
// squared ReLU (2B-4T, arXiv:2504.12285); config and tensors say which. GGUF has had three names.
#include "models/models.h"

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_decoder(g, c,
                              (tern_decoder_style){.sub_norms = c->sub_norms, .bitlinear = true},
                              err);
}

static const char *const gguf_names[] = {"bitnet-b1.58", "bitnet-25", "bitnet", NULL};
static const char *const hf_types[] = {"bitnet", NULL};

static const tern_tensor_name tensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.%d.attn_norm.weight", "model.layers.%d.input_layernorm.weight"},
    {"blk.%d.attn_q.weight", "model.layers.%d.self_attn.q_proj.weight"},
    {"blk.%d.attn_k.weight", "model.layers.%d.self_attn.k_proj.weight"},
    {"blk.%d.attn_v.weight", "model.layers.%d.self_attn.v_proj.weight"},
    {"blk.%d.attn_sub_norm.weight", "model.layers.%d.self_attn.attn_sub_norm.weight"},
    {"blk.%d.attn_output.weight", "model.layers.%d.self_attn.o_proj.weight"},
    {"blk.%d.ffn_norm.weight", "model.layers.%d.post_attention_layernorm.weight"},
    {"blk.%d.ffn_gate.weight", "model.layers.%d.mlp.gate_proj.weight"},
    {"blk.%d.ffn_up.weight", "model.layers.%d.mlp.up_proj.weight"},
    {"blk.%d.ffn_sub_norm.weight", "model.layers.%d.mlp.ffn_sub_norm.weight"},
    {"blk.%d.ffn_down.weight", "model.layers.%d.mlp.down_proj.weight"},
    {NULL, NULL},
};

const tern_arch tern_arch_bitnet = {
    .name = "bitnet",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tensors,
    .always_ternary = true,
    .build = build,
};
