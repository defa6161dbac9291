// Phi-3 and Phi-4-mini (arXiv:2404.14219, 2503.01743): Llama's decoder with one product for
// queries, keys and values and one for gates and the values they gate. RoPE turns part of a head,
// with other factors for texts longer than those of the first training.
#include "models/core/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {
        .fused = true, .window = (int32_t)c->n_window, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, tern_block_fused_feed_forward(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    return tern_config_window(s, 0, c, err);
}

static const char *const gguf_names[] = {"phi3", NULL};
static const char *const hf_types[] = {"phi3", NULL};
static const tern_config defaults = {.rms_eps = 1e-5};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(24),
                                   .act = TERN_ACTIVATION_SILU};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_ROWS_ROPE_FACTORS,
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_LAYER_MATRIX("attn_qkv", "self_attn.qkv_proj", TERN_ROLE_Q),
    TERN_LAYER_MATRIX("attn_output", "self_attn.o_proj", TERN_ROLE_O),
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_LAYER_MATRIX("ffn_up", "mlp.gate_up_proj", TERN_ROLE_UP),
    TERN_LAYER_MATRIX("ffn_down", "mlp.down_proj", TERN_ROLE_DOWN),
    TERN_ROWS_END,
};

const tern_arch tern_arch_phi3 = {
    .name = "phi3",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Phi3ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .read = read,
    .write_gguf = TERN_WRITER(tern_config_write_window),
    .write_json = TERN_WRITER(tern_config_write_window_json),
    .turns_part = 1,
    .rope_is_long = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .sample = TERN_SAMPLE_CONFIG(sample),
};
