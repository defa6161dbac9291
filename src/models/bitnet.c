// BitNet b1.58: BitLinears with SiLU and no sub-norms (arXiv:2402.17764), or with sub-norms and
// squared ReLU (2B-4T, arXiv:2504.12285); config and tensors say which. GGUF has had three names.
#include <string.h>
#include "models/models.h"

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_decoder(g, c,
                              (tern_decoder_style){.sub_norms = c->sub_norms, .bitlinear = true},
                              err);
}

static const char *const gguf_names[] = {"bitnet-b1.58", "bitnet-25", "bitnet", NULL};

// The names with a version belong to 2B-4T's converter, and bitnet.cpp computes squared ReLU for
// them. Plain "bitnet" is llama.cpp's, made for the older models, with SiLU; but 2B-4T is also
// found under it. No key says which, so the shape decides.
static tern_act_kind gguf_act(const char *gguf_name, const tern_config *c, const char **guess) {
    if (strcmp(gguf_name, "bitnet") != 0) return TERN_ACTIVATION_RELU2;
    if (c->n_embd != 2560 || c->n_layers != 30 || c->n_ff != 6912 || c->n_vocab < 128256)
        return TERN_ACTIVATION_SILU;
    *guess = "squared ReLU is guessed by the shape, BitNet 2B-4T's";
    return TERN_ACTIVATION_RELU2;
}
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
    {"blk.%d.attn_q_norm_in.weight", "model.layers.%d.self_attn.q_proj.rms_norm.weight"},
    {"blk.%d.attn_k_norm_in.weight", "model.layers.%d.self_attn.k_proj.rms_norm.weight"},
    {"blk.%d.attn_v_norm_in.weight", "model.layers.%d.self_attn.v_proj.rms_norm.weight"},
    {"blk.%d.attn_output_norm_in.weight", "model.layers.%d.self_attn.o_proj.rms_norm.weight"},
    {"blk.%d.ffn_gate_norm_in.weight", "model.layers.%d.mlp.gate_proj.rms_norm.weight"},
    {"blk.%d.ffn_up_norm_in.weight", "model.layers.%d.mlp.up_proj.rms_norm.weight"},
    {"blk.%d.ffn_down_norm_in.weight", "model.layers.%d.mlp.down_proj.rms_norm.weight"},
    {NULL, NULL},
};

const tern_arch tern_arch_bitnet = {
    .name = "bitnet",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .gguf_act = gguf_act,
    .hf_class = "BitNetForCausalLM",
    .always_ternary = true,
    .build = build,
};
