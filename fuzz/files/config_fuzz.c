// Fuzzing of config.json: an accepted one builds a graph that goes through every pass, and is
// written again as a config.json that means the same.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/file_private.h"
#include "fuzz/support.h"
#include "models/models.h"

enum { LAYERS_MAX = 4 }; // more layers would only take time

static void use_graph(const tern_graph_row *row, const tern_config *c) {
    tern_graph g;
    tern_error err;
    tern_strbuf out = {0};
    tern_graph_init(&g);
    if (row->build(&g, c, &err) == TERN_OK) {
        tern_weight_kind *kinds = tern_alloc_array(TERN_MEM_MISC, g.n_values + 1, sizeof *kinds);
        if (kinds && tern_pass_lower(&g, kinds, &err) == TERN_OK &&
            tern_pass_fuse(&g, &err) == TERN_OK) {
            tern_graph_print(&g, row->name, "fused", NULL, TERN_FORMAT_JSON, &out);
            fuzz_require(out.failed || fuzz_is_json(tern_strbuf_text(&out), out.len));
        }
        tern_free(kinds);
    }
    tern_strbuf_free(&out);
    tern_graph_free(&g);
}

// A folder with this config.json and the tables that readers look at, under every family's name.
static tern_status open_file(tern_file **f, const char *json, size_t n, tern_error *err) {
#define TABLE(name, from, to)                                                                      \
    "\"" name ".weight\":{\"dtype\":\"F16\",\"shape\":[2,4],\"data_offsets\":[" from "," to "]}"
    // clang-format off
    static const char head[] = "{"
        TABLE("model.embed_tokens", "0", "16") ","
        TABLE("embeddings.word_embeddings", "16", "32") ","
        TABLE("embeddings.position_embeddings", "32", "48") ","
        TABLE("embeddings.token_type_embeddings", "48", "64") ","
        TABLE("embeddings.tok_embeddings", "64", "80") "}";
    // clang-format on
    static uint8_t table[8 + sizeof head - 1 + 80] = {(sizeof head - 1) & 255,
                                                      (sizeof head - 1) >> 8};
    memcpy(table + 8, head, sizeof head - 1);
    TERN_TRY(tern_file_new(f, "fuzz", err));
    (*f)->kind = TERN_FILE_HF;
    tern_status status = tern_json_parse(&(*f)->config, json, n, err);
    const tern_blob all = tern_blob_of(table, sizeof table);
    if (status == TERN_OK) status = tern_safetensors_parse(*f, 0, &all, err);
    return status == TERN_OK ? tern_file_index_tensors(*f, err) : status;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(a); }
// 0 is no factor.
static bool same_factor(double a, double b) { return near(a != 0 ? a : 1, b != 0 ? b : 1); }
static double scalar_of(const tern_config *c) {
    return c->query_scalar > 0 ? c->query_scalar : (double)c->head_dim;
}

// What only some families have.
static bool same_family(const tern_config *a, const tern_config *b) {
    return memcmp(a->layers, b->layers, sizeof a->layers) == 0 && a->window == b->window &&
           a->window_rope.base == b->window_rope.base &&
           a->window_rope.n_rot == b->window_rope.n_rot &&
           memcmp(a->unrotated, b->unrotated, sizeof a->unrotated) == 0 &&
           near(scalar_of(a), scalar_of(b)) && a->bidirectional == b->bidirectional &&
           a->pooling == b->pooling && a->any_length == b->any_length &&
           a->n_segments == b->n_segments && a->n_labels == b->n_labels &&
           a->qkv_biases == b->qkv_biases && same_factor(a->embedding_scale, b->embedding_scale) &&
           same_factor(a->residual_scale, b->residual_scale) &&
           same_factor(a->logit_divisor, b->logit_divisor) && near(a->score_cap, b->score_cap) &&
           a->full_head_dim == b->full_head_dim && a->n_shared == b->n_shared &&
           a->n_per_layer == b->n_per_layer && a->wide_shared == b->wide_shared;
}

static bool same_mixers(const tern_config *a, const tern_config *b) {
    return a->conv_taps == b->conv_taps && a->conv_bias == b->conv_bias &&
           a->delta.n_k_heads == b->delta.n_k_heads && a->delta.n_v_heads == b->delta.n_v_heads &&
           a->delta.head_dim == b->delta.head_dim && a->delta.v_dim == b->delta.v_dim &&
           memcmp(&a->ssm, &b->ssm, sizeof a->ssm) == 0 && a->ssm_norm == b->ssm_norm &&
           memcmp(&a->multipliers, &b->multipliers, sizeof a->multipliers) == 0 &&
           a->n_experts == b->n_experts && a->n_experts_used == b->n_experts_used &&
           a->n_ff_expert == b->n_ff_expert && a->n_dense_layers == b->n_dense_layers &&
           a->experts_sigmoid == b->experts_sigmoid && a->experts_normed == b->experts_normed &&
           a->experts_bias == b->experts_bias && same_factor(a->experts_scale, b->experts_scale);
}

static void write_again(const tern_arch *arch, const tern_config *c) {
    tern_strbuf text = {0};
    tern_file *again = NULL;
    const tern_arch *arch_again;
    tern_config found;
    tern_error err;
    tern_rope_factors factors;
    for (int i = 0; i < TERN_ROPE_PAIRS_MAX; i++) factors.of[0][i] = factors.of[1][i] = 1;
    tern_config_write_json(arch, c, "bfloat16", NULL, &factors, &text);
    if (!text.failed) {
        tern_status status = open_file(&again, text.ptr, text.len, &err);
        if (status == TERN_OK) status = tern_arch_read(again, &arch_again, &found, &err);
        fuzz_require(status == TERN_OK || status == TERN_ERR_MEMORY);
        if (status == TERN_OK)
            fuzz_require(found.n_embd == c->n_embd && found.n_layers == c->n_layers &&
                         found.n_heads == c->n_heads && found.n_ff == c->n_ff &&
                         found.head_dim == c->head_dim && found.act == c->act &&
                         found.rope.n_rot == c->rope.n_rot && found.rope.base == c->rope.base &&
                         found.n_kv_heads == c->n_kv_heads && found.n_context == c->n_context &&
                         same_family(&found, c) && same_mixers(&found, c));
    }
    tern_file_close(again);
    tern_strbuf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_file *file;
    const tern_arch *arch;
    tern_config c;
    tern_error err;
    if (open_file(&file, (const char *)bytes, n, &err) == TERN_OK &&
        tern_arch_read(file, &arch, &c, &err) == TERN_OK) {
        write_again(arch, &c);
        const tern_graph_row *rows[TERN_GRAPHS_MAX];
        int n_graphs = c.n_layers <= LAYERS_MAX ? tern_arch_graphs(arch, &c, rows) : 0;
        fuzz_require(n_graphs > 0 || c.n_layers > LAYERS_MAX); // what can be read can be computed
        for (int i = 0; i < n_graphs; i++) use_graph(rows[i], &c);
    }
    tern_file_close(file);
    return 0;
}
