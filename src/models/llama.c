// Llama 1 to 3 and its copies; also BitNets that call themselves llama (Falcon-E): ternary tensors
// become BitLinears when the graph is lowered, and masters by quantization_config.
#include "models/family.h"

static const char *const gguf_names[] = {"llama", NULL};
static const char *const hf_types[] = {"llama", "mistral", NULL};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_ROWS_ROPE_FACTORS,
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION_NEIGHBOURS,
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_llama = {
    .name = "llama",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .hf_class = "LlamaForCausalLM",
    .gguf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder)),
    .fresh = TERN_FRESH_FLOATS,
};
