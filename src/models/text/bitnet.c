// BitNet b1.58: BitLinears with SiLU and no sub-norms (arXiv:2402.17764), or with sub-norms and
// squared ReLU (2B-4T, arXiv:2504.12285); the config and tensors say which. In GGUF it has had
// three names.
#include <string.h>
#include "models/core/family.h"

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

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    c->bitlinear = true;
    c->sub_norms = tern_arch_tensor(s->file, s->arch, "blk.0.attn_sub_norm.weight") != NULL;
    return tern_config_pooling(s, c, err);
}

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_sub_norm", "self_attn.attn_sub_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_LAYER_NORM("ffn_sub_norm", "mlp.ffn_sub_norm", TERN_CHANGE_NONE),
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

static const tern_config defaults = {.rms_eps = 1e-5, .rope = {.base = 5e5f}};

const tern_arch tern_arch_bitnet = {
    .name = "bitnet",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .act = TERN_ACTIVATION_RELU2,
    .gguf_act = gguf_act,
    .defaults = &defaults,
    .hf_class = "BitNetForCausalLM",
    .read = read,
    .write_gguf = TERN_WRITER(tern_config_write_pooling),
    .write_json = TERN_WRITER(tern_config_write_pooling_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder), TERN_ENCODER(tern_build_decoder)),
    .fresh = TERN_FRESH_TERNARY,
};
