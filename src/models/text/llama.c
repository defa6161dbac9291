// Llama 1 to 3 and its copies; also BitNets that call themselves llama (Falcon-E): ternary tensors
// become BitLinears when the graph is lowered, and masters by quantization_config. Some embed.
#include "models/core/family.h"

// transformers' Llama has biases if config.json says so, its Mistral never.
static void read_biases(const tern_config_source *s, bool is_mistral, tern_config *c) {
    if (s->file->kind == TERN_FILE_GGUF) {
        tern_config_gguf_biases(s, c);
    } else if (!is_mistral) {
        c->qkv_biases = c->output_biases = tern_config_bool(s, "attention_bias", false);
        c->ff_biases = tern_config_bool(s, "mlp_bias", false);
    }
}

// Mistral's layers have a window, 4096 by default; Llama's have none, whatever config.json says. In
// GGUF it is a key of our own, which other programs ignore.
static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool is_mistral = tern_config_is_text_of(s, "mistral");
    if (is_mistral || s->file->kind == TERN_FILE_GGUF)
        TERN_TRY(tern_config_window(s, is_mistral ? 4096 : 0, c, err));
    read_biases(s, is_mistral, c);
    return tern_config_pooling(s, c, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    TERN_TRY(tern_config_write_window(w, name, c));
    return tern_config_write_pooling(w, name, c);
}

// A model with a window is written to folders as a Mistral.
static void write_json(const tern_config *c, tern_strbuf *out) {
    if (c->n_window) tern_config_write_window_json(c, out);
    if (c->ff_biases) tern_strbuf_puts(out, "  \"mlp_bias\": true,\n");
    tern_config_write_pooling_json(c, out);
}

static const tern_tensor_row tensors[] = {TERN_ROWS_LLAMA, TERN_ROWS_BIASES(ROPE), TERN_ROWS_END};
static const tern_config defaults = {.rms_eps = 1e-6};
static const char *const gguf_names[] = {"llama", NULL};
static const char *const hf_types[] = {"llama", "mistral", NULL};
static const tern_model_folder mistral = {"mistral", "MistralForCausalLM"};

const tern_arch tern_arch_llama = {
    .name = "llama",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .hf_class = "LlamaForCausalLM",
    .gguf_rope_neighbours = true,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .hf_windowed = &mistral,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder), TERN_ENCODER(tern_build_decoder)),
    .fresh = TERN_FRESH_FLOATS,
};
