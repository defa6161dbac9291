// Nomic's BERT (arXiv:2402.01613): nomic-embed-text. BERT's encoder with RoPE in place of learned
// positions, one product for queries, keys and values, gated feed-forwards, and no biases except
// the norms'.
#include <inttypes.h>
#include "models/core/family.h"

static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    if (c->n_segments > 0) {
        tern_vid segments = tern_g_table(g, "token_types.weight", c->n_segments, c->n_embd);
        x = tern_g_add(g, x, tern_g_segments(g, ids, segments, (int32_t)c->separator_id));
    }
    return tern_block_layer_norm(g, c, x, "token_embd_norm", true);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.fused = true, .bidirectional = true, .rope = &c->rope};
    x = tern_g_add(g, x, tern_block_attention(g, c, x, &block));
    x = tern_block_layer_norm(g, c, x, "blk.%d.attn_output_norm", true);
    x = tern_g_add(g, x, tern_block_feed_forward(g, c, x));
    return tern_block_layer_norm(g, c, x, "blk.%d.layer_output_norm", true);
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .begin = begin}, err);
}

// Values of nomic-embed-text-v1 and v1.5; other models' files state theirs.
static tern_status refuse_others(const tern_config_source *s, tern_error *err) {
    static const struct {
        const char *name;
        bool usual;
    } flags[] = {{"prenorm", false},        {"use_rms_norm", false},
                 {"parallel_block", false}, {"rotary_emb_interleaved", false},
                 {"qkv_proj_bias", false},  {"mlp_fc1_bias", false},
                 {"mlp_fc2_bias", false},   {"causal", false}};
    double fraction = 1;
    tern_str act = tern_config_str(s, NULL, "activation_function");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (tern_config_bool(s, flags[i].name, flags[i].usual) != flags[i].usual)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "config.json: a nomic_bert with another %s is not supported",
                             flags[i].name);
    tern_config_float(s, NULL, "rotary_emb_fraction", &fraction);
    if (fraction != 1 || (act.ptr && !tern_str_is(act, "swiglu")))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: a nomic_bert with another %s is not supported",
                         fraction != 1 ? "rotary_emb_fraction" : "activation_function");
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_tensor *segments = tern_arch_tensor(s->file, s->arch, "token_types.weight");
    double base;
    TERN_TRY(refuse_others(s, err));
    TERN_TRY(tern_config_layer_norm_eps(s, "layer_norm_epsilon", c, err));
    if (tern_config_float(s, NULL, "rotary_emb_base", &base) && base > 0)
        c->rope.base = (float)base;
    c->n_segments = segments && segments->n_dims == 2 ? (int64_t)segments->ne[1] : 0;
    c->separator_id = -1;
    c->bidirectional = true;
    TERN_TRY(tern_config_pooling(s, c, err));
    if (c->pooling == TERN_POOLING_NONE) c->pooling = TERN_POOLING_MEAN;
    return TERN_OK;
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"rotary_emb_base\": %.9g,\n  \"activation_function\": \"swiglu\",\n"
                       "  \"type_vocab_size\": %" PRId64 ",\n",
                       (double)c->rope.base, c->n_segments);
    tern_config_write_pooling_json(c, out);
}

static const char *const gguf_names[] = {"nomic-bert", NULL};
static const char *const hf_types[] = {"nomic_bert", NULL};
static const tern_config defaults = {.rms_eps = 1e-12, .rope = {.base = 10000}};
static const char *const renamed[][2] = {{"hidden_size", "n_embd"},
                                         {"num_hidden_layers", "n_layer"},
                                         {"num_attention_heads", "n_head"},
                                         {"intermediate_size", "n_inner"},
                                         {"max_position_embeddings", "n_positions"},
                                         {NULL, NULL}};

static const tern_config sample = {
    TERN_SAMPLE,           .rope = TERN_SAMPLE_ROPE(32), .act = TERN_ACTIVATION_SILU,
    .bidirectional = true, .pooling = TERN_POOLING_MEAN, .n_segments = 2,
    .separator_id = 7};

#define LAYER(gguf_, hf_, role_) TERN_MATRIX("blk.%d." gguf_, "encoder.layers.%d." hf_, role_)
#define NORM(gguf_, hf_)                                                                           \
    TERN_ROW(gguf_ ".weight", hf_ ".weight"), TERN_ROW(gguf_ ".bias", hf_ ".bias")

static const tern_tensor_row tensors[] = {
    TERN_MATRIX("token_embd", "embeddings.word_embeddings", TERN_ROLE_TABLE),
    TERN_MATRIX("token_types", "embeddings.token_type_embeddings", TERN_ROLE_TABLE),
    NORM("token_embd_norm", "emb_ln"),
    LAYER("attn_qkv", "attn.Wqkv", TERN_ROLE_Q),
    LAYER("attn_output", "attn.out_proj", TERN_ROLE_O),
    NORM("blk.%d.attn_output_norm", "encoder.layers.%d.norm1"),
    LAYER("ffn_up", "mlp.fc11", TERN_ROLE_UP),
    LAYER("ffn_gate", "mlp.fc12", TERN_ROLE_GATE),
    LAYER("ffn_down", "mlp.fc2", TERN_ROLE_DOWN),
    NORM("blk.%d.layer_output_norm", "encoder.layers.%d.norm2"),
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {
    TERN_IGNORED_ROPE,
    {"cls.", NULL, "of the training's task: vectors are pooled rows"},
    {NULL, NULL, NULL},
};

const tern_arch tern_arch_nomic_bert = {
    .name = "nomic-bert",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "NomicBertModel",
    .hf_prefix = "",
    .hf_eps = "layer_norm_epsilon",
    .hf_act = "tern_activation",
    .hf_renamed = renamed,
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(tern_config_write_encoder),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_ENCODER(build)),
    .act = TERN_ACTIVATION_SILU,
    .windows_by_layer = true,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
