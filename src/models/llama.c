// Llama 1 to 3 and its copies; also BitNets that call themselves llama (Falcon-E): ternary tensors
// become BitLinears when the graph is lowered, and masters by quantization_config.
#include "models/models.h"

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_decoder(g, c, (tern_decoder_style){.bitlinear = c->bitlinear}, err);
}

static const char *const gguf_names[] = {"llama", NULL};
static const char *const hf_types[] = {"llama", "mistral", NULL};

static const tern_tensor_name tensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"rope_freqs.weight", NULL}, // computed from config.json's rope parameters there
    {"blk.%d.attn_norm.weight", "model.layers.%d.input_layernorm.weight"},
    {"blk.%d.attn_q.weight", "model.layers.%d.self_attn.q_proj.weight"},
    {"blk.%d.attn_k.weight", "model.layers.%d.self_attn.k_proj.weight"},
    {"blk.%d.attn_v.weight", "model.layers.%d.self_attn.v_proj.weight"},
    {"blk.%d.attn_output.weight", "model.layers.%d.self_attn.o_proj.weight"},
    {"blk.%d.ffn_norm.weight", "model.layers.%d.post_attention_layernorm.weight"},
    {"blk.%d.ffn_gate.weight", "model.layers.%d.mlp.gate_proj.weight"},
    {"blk.%d.ffn_up.weight", "model.layers.%d.mlp.up_proj.weight"},
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

const tern_arch tern_arch_llama = {
    .name = "llama",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .hf_class = "LlamaForCausalLM",
    .gguf_rope_neighbours = true,
    .build = build,
};
