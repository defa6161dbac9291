// ERNIE 4.5, the dense ones: Llama's decoder with RoPE's pairs next to each other, in folders too.
// use_bias gives all products of a layer a bias; no published one has them.
#include "models/core/family.h"

// null is not transformers' default, but what follows from the other sizes.
static tern_status sizes(const tern_config_source *s, tern_config *c, tern_error *err) {
    (void)err;
    if (tern_json_is(tern_config_json(s, "head_dim"), TERN_JSON_NULL)) c->head_dim = 0;
    if (tern_json_is(tern_config_json(s, "num_key_value_heads"), TERN_JSON_NULL)) c->n_kv_heads = 0;
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    if (s->file->kind == TERN_FILE_GGUF)
        tern_config_gguf_biases(s, c);
    else
        c->qkv_biases = c->output_biases = c->ff_biases = tern_config_bool(s, "use_bias", false);
    if (c->qkv_biases == c->output_biases && c->qkv_biases == c->ff_biases) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "only some of the products of blk.0 have a bias: in an %s all have, or none",
                     s->arch->name);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out, "  \"use_bias\": %s,\n", c->qkv_biases ? "true" : "false");
}

static const char *differs(const tern_config *c) {
    return c->ff_biases ? "not load it: they know no biases of the feed-forward" : NULL;
}

static const char *const gguf_names[] = {"ernie4_5", NULL};
static const char *const hf_types[] = {"ernie4_5", NULL};
static const tern_config defaults = {.head_dim = 128,
                                     .n_kv_heads = 2,
                                     .n_context = 131072,
                                     .tied_head = true,
                                     .rms_eps = 1e-5,
                                     .rope = {.base = 5e5f}};
static const tern_sampling_defaults sampling = {
    .temperature = 0.8f, .top_k = -1, .top_p = 0.8f, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {
    TERN_SAMPLE, .rope = {.n_rot = 32, .halves = false, .base = 10000, .factor = 1},
    .act = TERN_ACTIVATION_SILU};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_BIASES(SAME),
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_ernie4_5 = {
    .name = "ernie4_5",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Ernie4_5ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .sizes = sizes,
    .read = read,
    .write_json = TERN_WRITER(write_json),
    .differs = differs,
    .gguf_rope_neighbours = true,
    .hf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
