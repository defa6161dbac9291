// Qwen3 (arXiv:2505.09388): Llama's decoder, with a norm of each query and key head before RoPE and
// heads whose dimensions are stated. Qwen3-Embedding is the same decoder, of which the last row is
// the embedding.
#include "models/family.h"

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.head_norms = true, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, tern_block_feed_forward(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

// The published tokenizer of the embedding models ends each text with <|endoftext|>; GGUF files
// made by older converters do not say so.
static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(tern_config_pooling(s, c, err));
    c->appends_eos = c->pooling == TERN_POOLING_LAST;
    return TERN_OK;
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    return tern_config_write_pooling(w, name, c);
}

static const char *const gguf_names[] = {"qwen3", NULL};
static const char *const hf_types[] = {"qwen3", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};
static const tern_generation_defaults generation = {
    .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .min_p = -1, .repeat_penalty = -1};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_q_norm", "self_attn.q_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_k_norm", "self_attn.k_norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_qwen3 = {
    .name = "qwen3",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Qwen3ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = write_gguf,
    .write_json = tern_config_write_pooling_json,
    .build = build,
    .generation = &generation,
};
