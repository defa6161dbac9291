// BERT (arXiv:1810.04805) and models of its shape: MiniLM, BGE, E5, GTE; RoBERTa and XLM-R (BGE-M3,
// multilingual E5). An encoder: every row sees all of its text.
//
//   x = norm(table[ids] + positions + segments)
//   per layer:  x = norm(x + attention(x));  x = norm(x + act(x Wup + b) Wdown + b)
//
// Norms are LayerNorms, applied to the sum after each half-layer; every product has a bias. A
// segment is a text of a pair; a single text is the first segment.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

typedef struct bert {
    int64_t first; // rows of the table before that of the first position
} bert;
TERN_OWN_CONFIG(bert)

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid norm(tern_graph *g, const tern_config *c, tern_vid x, const char *name) {
    return tern_block_layer_norm(g, c, x, name, true);
}

static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    int64_t n_positions = c->n_context + own(c)->first;
    tern_vid positions = tern_g_table(g, "position_embd.weight", n_positions, c->n_embd);
    x = tern_g_add(g, x, tern_g_positions(g, ids, positions, (int32_t)own(c)->first));
    if (c->n_segments > 0) {
        tern_vid segments = tern_g_table(g, "token_types.weight", c->n_segments, c->n_embd);
        x = tern_g_add(g, x, tern_g_segments(g, ids, segments, (int32_t)c->separator_id));
    }
    return norm(g, c, x, "token_embd_norm");
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.biases = true, .bidirectional = true};
    tern_vid a = tern_block_attention(g, c, x, &block);
    a = tern_g_bias(g, a, tern_g_vector(g, "blk.%d.attn_output.bias", c->n_embd));
    x = norm(g, c, tern_g_add(g, x, a), "blk.%d.attn_output_norm");
    tern_vid f = tern_block_biased(g, c, x, "blk.%d.ffn_up", c->n_ff, c->n_embd);
    f = tern_block_biased(g, c, tern_g_act(g, f, c->act), "blk.%d.ffn_down", c->n_embd, c->n_ff);
    return norm(g, c, tern_g_add(g, x, f), "blk.%d.layer_output_norm");
}

// tanh(x), which is sigmoid(2x) - sigmoid(-2x).
static tern_vid tanh_of(tern_graph *g, tern_vid x) {
    tern_vid up = tern_g_act(g, tern_g_scale(g, x, 2), TERN_ACTIVATION_SIGMOID);
    tern_vid down = tern_g_act(g, tern_g_scale(g, x, -2), TERN_ACTIVATION_SIGMOID);
    return tern_g_add(g, up, tern_g_scale(g, down, -1));
}

// For a pair of texts: the first row goes through another layer, which gives a score for each
// label.
static void end_with_scores(tern_graph *g, const tern_config *c, tern_vid pooled) {
    tern_vid y = tanh_of(g, tern_block_biased(g, c, pooled, "cls", c->n_embd, c->n_embd));
    tern_g_output(g, tern_block_biased(g, c, y, "cls.output", c->n_labels, c->n_embd), "scores");
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {
        .layer = layer, .begin = begin, .end = c->n_labels ? end_with_scores : NULL};
    return tern_build_stack(g, c, &stack, err);
}

// ---- Config ------------------------------------------------------------------------------------

// RoBERTa's first position is the row after the padding token's; a GGUF may lack the rows before.
static tern_status read_positions(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_tensor *t = tern_arch_tensor(s->file, s->arch, "position_embd.weight");
    tern_str type = tern_config_str(s, NULL, "model_type");
    int64_t *first = &own_to_set(c)->first;
    int64_t pad = 1, rows = t ? (int64_t)t->ne[1] : 0;
    bool roberta = tern_str_is(type, "roberta") || tern_str_is(type, "xlm-roberta");
    if (!t || rows < 1)
        return tern_fail(err, TERN_ERR_FORMAT, "tensor position_embd.weight is missing");
    if (s->file->kind == TERN_FILE_GGUF) {
        *first = rows > c->n_context ? rows - c->n_context : 0;
    } else if (roberta) {
        tern_config_int(s, NULL, "pad_token_id", &pad);
        *first = pad + 1;
    }
    tern_config_int(s, NULL, "tern_first_position", first);
    if (*first >= 0 && *first < rows && rows <= INT32_MAX) {
        c->n_context = rows - *first;
        return TERN_OK;
    }
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: positions begin at row %" PRId64 " of a table of %" PRId64, *first,
                     rows);
}

static tern_status refuse_others(const tern_config_source *s, tern_error *err) {
    tern_str kind = tern_config_str(s, NULL, "position_embedding_type");
    if (kind.ptr && !tern_str_is(kind, "absolute"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: position_embedding_type \"%.*s\" is not supported",
                         (int)(kind.len < 40 ? kind.len : 40), kind.ptr);
    if (!tern_config_bool(s, "is_decoder", false)) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config.json: a decoder of this kind is not supported");
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_tensor *segments = tern_arch_tensor(s->file, s->arch, "token_types.weight");
    TERN_TRY(refuse_others(s, err));
    TERN_TRY(tern_config_layer_norm_eps(s, "layer_norm_eps", c, err));
    TERN_TRY(read_positions(s, c, err));
    c->n_segments = segments && segments->n_dims == 2 ? (int64_t)segments->ne[1] : 0;
    c->separator_id = -1;
    c->bidirectional = true;
    const tern_tensor *labels = tern_arch_tensor(s->file, s->arch, "cls.output.weight");
    if (labels) { // a classifier of pairs
        c->n_labels = labels->n_dims == 2 ? (int64_t)labels->ne[1] : 1;
        c->pooling = TERN_POOLING_FIRST;
        return TERN_OK;
    }
    TERN_TRY(tern_config_pooling(s, c, err));
    if (c->pooling == TERN_POOLING_NONE) c->pooling = TERN_POOLING_MEAN;
    return TERN_OK;
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    if (!c->n_labels) return tern_config_write_encoder(w, name, c);
    tern_config ranks = *c; // GGUF has another pooling_type for it
    ranks.pooling = TERN_POOLING_NONE;
    TERN_TRY(tern_config_write_encoder(w, name, &ranks));
    snprintf(key, sizeof key, "%s.pooling_type", name);
    return tern_gguf_put_int(w, key, TERN_META_U32, 4); // ranks
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out, "  \"type_vocab_size\": %" PRId64 ",\n", c->n_segments);
    if (own(c)->first) // BERT, the folder's model_type, has no member for it
        tern_strbuf_printf(out, "  \"tern_first_position\": %" PRId64 ",\n", own(c)->first);
    if (!c->n_labels) tern_config_write_pooling_json(c, out);
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"bert", NULL};
static const char *const hf_types[] = {"bert", "xlm-roberta", "roberta", NULL};
static const tern_config defaults = {.rms_eps = 1e-12};

static const tern_config sample = {
    TERN_SAMPLE,           .rope = TERN_SAMPLE_ROPE(32), .act = TERN_ACTIVATION_GELU,
    .bidirectional = true, .pooling = TERN_POOLING_MEAN, .n_segments = 2,
    .separator_id = 7};

#define BOTH(gguf_, hf_, role_)                                                                    \
    TERN_ROW(gguf_ ".weight", hf_ ".weight", .role = (role_)), TERN_ROW(gguf_ ".bias", hf_ ".bia"  \
                                                                                           "s")
#define LAYER(gguf_, hf_, role_) BOTH("blk.%d." gguf_, "encoder.layer.%d." hf_, role_)

static const tern_tensor_row tensors[] = {
    TERN_MATRIX("token_embd", "embeddings.word_embeddings", TERN_ROLE_TABLE),
    TERN_MATRIX("position_embd", "embeddings.position_embeddings", TERN_ROLE_TABLE),
    TERN_MATRIX("token_types", "embeddings.token_type_embeddings", TERN_ROLE_TABLE),
    BOTH("token_embd_norm", "embeddings.LayerNorm", TERN_ROLE_VECTOR),
    LAYER("attn_q", "attention.self.query", TERN_ROLE_Q),
    LAYER("attn_k", "attention.self.key", TERN_ROLE_K),
    LAYER("attn_v", "attention.self.value", TERN_ROLE_V),
    LAYER("attn_output", "attention.output.dense", TERN_ROLE_O),
    LAYER("attn_output_norm", "attention.output.LayerNorm", TERN_ROLE_VECTOR),
    LAYER("ffn_up", "intermediate.dense", TERN_ROLE_UP),
    LAYER("ffn_down", "output.dense", TERN_ROLE_DOWN),
    LAYER("layer_output_norm", "output.LayerNorm", TERN_ROLE_VECTOR),
    // BERT's classifier, and RoBERTa's.
    TERN_ROW("cls.weight", "pooler.dense.weight", .role = TERN_ROLE_MATRIX,
             .hf_also = "classifier.dense.weight"),
    TERN_ROW("cls.bias", "pooler.dense.bias", .hf_also = "classifier.dense.bias"),
    TERN_ROW("cls.output.weight", "classifier.weight", .role = TERN_ROLE_MATRIX,
             .hf_also = "classifier.out_proj.weight"),
    TERN_ROW("cls.output.bias", "classifier.bias", .hf_also = "classifier.out_proj.bias"),
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {
    {NULL, "embeddings.position_ids", "the numbers 0, 1, 2 ..."},
    {"cls.predictions.", NULL, "of the training's task: vectors are pooled rows"},
    {"cls.seq_relationship.", NULL, "of the training's task: vectors are pooled rows"},
    {"lm_head.", NULL, "of the training's task: vectors are pooled rows"},
    {NULL, NULL, NULL},
};

// Encoders' files keep the pooler of a classifier that they lack.
static const char *ignores(const tern_config *c, const char *name) {
    bool pooler = strcmp(name, "cls.weight") == 0 || strcmp(name, "cls.bias") == 0;
    return pooler && !c->n_labels ? "of a classifier: vectors are pooled rows" : NULL;
}

const tern_arch tern_arch_bert = {
    .name = "bert",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "BertModel",
    .hf_prefix = "",
    .hf_eps = "layer_norm_eps",
    .tensors = tensors,
    .ignored = ignored,
    .ignores = ignores,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_ENCODER(build)),
    .act = TERN_ACTIVATION_GELU,
    .windows_by_layer = true,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
