// Fuzzing of config.json: an accepted one builds a graph that goes through every pass, and is
// written again as a config.json that means the same.
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

// A folder with this config.json and an embedding table, which the reader looks at.
static tern_status open_file(tern_file **f, const char *json, size_t n, tern_error *err) {
    static const char head[] = "{\"model.embed_tokens.weight\":{\"dtype\":\"F16\","
                               "\"shape\":[2,4],\"data_offsets\":[0,16]}}";
    static uint8_t table[8 + sizeof head - 1 + 16] = {sizeof head - 1};
    memcpy(table + 8, head, sizeof head - 1);
    TERN_TRY(tern_file_new(f, "fuzz", err));
    (*f)->kind = TERN_FILE_HF;
    tern_status status = tern_json_parse(&(*f)->config, json, n, err);
    const tern_blob all = tern_blob_of(table, sizeof table);
    if (status == TERN_OK) status = tern_safetensors_parse(*f, 0, &all, err);
    return status == TERN_OK ? tern_file_index_tensors(*f, err) : status;
}

// What only some families have.
static bool same_family(const tern_config *a, const tern_config *b) {
    return memcmp(a->layers, b->layers, sizeof a->layers) == 0 && a->window == b->window &&
           a->window_rope.base == b->window_rope.base && a->query_scalar == b->query_scalar &&
           a->bidirectional == b->bidirectional && a->pooling == b->pooling &&
           a->conv_taps == b->conv_taps && a->delta.n_k_heads == b->delta.n_k_heads &&
           a->delta.n_v_heads == b->delta.n_v_heads && a->delta.head_dim == b->delta.head_dim &&
           a->delta.v_dim == b->delta.v_dim;
}

static void write_again(const tern_arch *arch, const tern_config *c) {
    tern_strbuf text = {0};
    tern_file *again = NULL;
    const tern_arch *arch_again;
    tern_config found;
    tern_error err;
    tern_config_write_json(arch, c, "bfloat16", NULL, NULL, &text);
    if (!text.failed) {
        tern_status status = open_file(&again, text.ptr, text.len, &err);
        if (status == TERN_OK) status = tern_model_read(again, &arch_again, &found, &err);
        fuzz_require(status == TERN_OK || status == TERN_ERR_MEMORY);
        if (status == TERN_OK)
            fuzz_require(found.n_embd == c->n_embd && found.n_layers == c->n_layers &&
                         found.head_dim == c->head_dim && found.act == c->act &&
                         found.rope.n_rot == c->rope.n_rot && found.rope.base == c->rope.base &&
                         found.n_kv_heads == c->n_kv_heads && found.n_context == c->n_context &&
                         same_family(&found, c));
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
        tern_model_read(file, &arch, &c, &err) == TERN_OK) {
        write_again(arch, &c);
        const tern_graph_row *rows[TERN_GRAPHS_MAX];
        int n_graphs = c.n_layers <= LAYERS_MAX ? tern_model_graphs(arch, &c, rows) : 0;
        fuzz_require(n_graphs > 0 || c.n_layers > LAYERS_MAX); // what can be read can be computed
        for (int i = 0; i < n_graphs; i++) use_graph(rows[i], &c);
    }
    tern_file_close(file);
    return 0;
}
