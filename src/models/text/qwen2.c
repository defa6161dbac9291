// Qwen2 and Qwen2.5 (arXiv:2407.10671, 2412.15115): Llama's decoder with biases of queries, keys
// and values. Some of them are in the hundreds: they are added in float32.
#include "models/core/family.h"

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    c->qkv_biases = true;
    TERN_TRY(tern_config_pooling(s, c, err));
    return tern_config_qwen_windows(s, c, err);
}

static const char *const gguf_names[] = {"qwen2", NULL};
static const char *const hf_types[] = {"qwen2", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};
static const tern_sampling_defaults sampling = {
    .temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .min_p = -1, .repeat_penalty = 1.05f};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU, .qkv_biases = true};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_ROW("attn_q.bias", "self_attn.q_proj.bias", .role = TERN_ROLE_VECTOR),
    TERN_LAYER_ROW("attn_k.bias", "self_attn.k_proj.bias", .role = TERN_ROLE_VECTOR),
    TERN_LAYER_ROW("attn_v.bias", "self_attn.v_proj.bias", .role = TERN_ROLE_VECTOR),
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_qwen2 = {
    .name = "qwen2",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Qwen2ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .read = read,
    .write_gguf = TERN_WRITER(tern_config_write_qwen_gguf),
    .write_json = TERN_WRITER(tern_config_write_qwen_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder), TERN_ENCODER(tern_build_decoder)),
    .mixed_layers = true,
    .windows_by_layer = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
