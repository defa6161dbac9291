// Llama 1 to 3 and its copies; also BitNets that call themselves llama (Falcon-E): ternary tensors
// become BitLinears when the graph is lowered, and masters by quantization_config. Some embed.
#include "models/family.h"

static const char *const gguf_names[] = {"llama", NULL};
static const char *const hf_types[] = {"llama", "mistral", NULL};

const tern_arch tern_arch_llama = {
    .name = "llama",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tern_decoder_tensors,
    .ignored = tern_decoder_ignored,
    .hf_class = "LlamaForCausalLM",
    .gguf_rope_neighbours = true,
    .read = tern_config_pooling,
    .write_gguf = TERN_WRITER(tern_config_write_pooling),
    .write_json = TERN_WRITER(tern_config_write_pooling_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder), TERN_ENCODER(tern_build_decoder)),
    .fresh = TERN_FRESH_FLOATS,
};
