#include "tests/library/models/families_fixture.h"

#include <math.h>
#include <string.h>
#include "base/dtype/half.h"
#include "tern_tools.h"

// A number that bfloat16 holds, of the element i of a tensor.
static float number_of(const char *name, uint64_t i) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    h = (h ^ (uint32_t)i) * 2654435761u;
    return (float)((int)(h >> 24) - 128) / 64;
}

bool family_write_tensors(const char *folder, const char *config, const made_tensor *list, int n) {
    tern_error err = {0};
    tern_st_writer *w = NULL;
    bool ok = tern_st_writer_open(&w, folder, 0, &err) == TERN_OK;
    for (int i = 0; ok && i < n; i++)
        ok = tern_st_declare(w, list[i].name, TERN_DTYPE_BF16, list[i].n_dims, list[i].shape) ==
             TERN_OK;
    for (int i = 0; ok && i < n; i++) {
        uint64_t count = 1;
        for (int k = 0; k < list[i].n_dims; k++) count *= list[i].shape[k];
        for (uint64_t e = 0; ok && e < count; e++) {
            uint16_t half = tern_f32_to_bf16(number_of(list[i].name, e));
            ok = tern_st_write(w, &half, sizeof half, &err) == TERN_OK;
        }
    }
    ok = ok && tern_st_put_file(w, "config.json", config, strlen(config), &err) == TERN_OK &&
         tern_st_writer_finish(w, &err) == TERN_OK;
    tern_st_writer_free(w);
    CHECK_MSG(ok, "%s: %s", folder, err.message);
    return ok;
}

bool family_open_config(opened *o, const char *path, tern_error *err) {
    *o = (opened){0};
    if (tern_file_open(&o->file, path, err) != TERN_OK) return false;
    return tern_arch_read(o->file, &o->arch, &o->c, err) == TERN_OK;
}

bool family_make_folder(const char *folder, const char *config, int64_t n_embd, const char *prefix,
                        const char *extra) {
    static made_tensor list[128];
    opened o;
    tern_error err = {0};
    tern_graph g;
    int n = 1;
    list[0] = (made_tensor){.shape = {N_VOCAB, (uint64_t)n_embd}, .n_dims = 2};
    snprintf(list[0].name, sizeof list[0].name, "%sembed_tokens.weight", prefix);
    if (!family_write_tensors(folder, config, list, 1)) return false;
    bool ok = family_open_config(&o, folder, &err);
    CHECK_MSG(ok, "%s: %s", folder, err.message);
    tern_graph_init(&g);
    ok = ok && tern_arch_build_main(&g, o.arch, &o.c, &err) == TERN_OK;
    for (size_t v = 0; ok && v < g.n_values; v++) {
        const tern_value *x = &g.values[v];
        made_tensor *t = &list[n];
        if (x->kind != TERN_VALUE_WEIGHT || strcmp(x->name, "token_embd.weight") == 0) continue;
        bool vector = x->rows == 1 && !x->is_matrix && !x->is_table;
        char hf[128];
        ok = n < 127 && tern_arch_name_to_hf(o.arch, x->name, hf, sizeof hf);
        CHECK_MSG(ok, "%s has no name in folders", x->name);
        const char *tail = strncmp(hf, "model.", 6) ? hf : hf + 6;
        bool decoder = strncmp(tail, "lm_head", 7) != 0;
        snprintf(t->name, sizeof t->name, "%s%s", decoder ? prefix : "", tail);
        t->n_dims = vector ? 1 : 2;
        t->shape[0] = vector ? (uint64_t)x->cols : (uint64_t)x->rows;
        t->shape[1] = (uint64_t)x->cols;
        if (strstr(hf, "conv1d") || strstr(hf, "conv.conv")) {
            t->n_dims = 3;
            t->shape[2] = t->shape[1];
            t->shape[1] = 1;
        }
        n++;
    }
    if (extra) {
        snprintf(list[n].name, sizeof list[n].name, "%s", extra);
        list[n].n_dims = 1;
        list[n++].shape[0] = 3;
    }
    tern_graph_free(&g);
    tern_file_close(o.file);
    return ok && family_write_tensors(folder, config, list, n);
}

static char layer_letter(const tern_config *c, int64_t i) { return "FWCDM"[c->layers[i]]; }

// Whether the layer, if it attends, rotates: in what is computed.
static bool has_rope(const tern_graph *g, int64_t layer) {
    bool attends = false;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].layer != layer) continue;
        if (g->nodes[i].op == TERN_OP_ROPE) return true;
        attends |= g->nodes[i].op == TERN_OP_ATTENTION;
    }
    return !attends;
}

void family_check_facts(const char *what, const opened *o, const spelling *s) {
    const tern_config *c = &o->c;
    char layers[32] = {0};
    tern_graph g;
    tern_error err = {0};
    tern_graph_init(&g);
    REQUIRE_OK(tern_arch_build_main(&g, o->arch, c, &err), err);
    bool windows = strchr(s->layers, 'W') != NULL;
    for (int64_t i = 0; i < c->n_layers && i < 31; i++)
        layers[i] = has_rope(&g, i) ? layer_letter(c, i) : 'f';
    tern_graph_free(&g);
    CHECK_MSG(!strcmp(o->arch->name, s->arch), "%s: a %s", what, o->arch->name);
    CHECK_MSG(!strcmp(layers, s->layers), "%s: layers %s, not %s", what, layers, s->layers);
    CHECK_MSG(c->window == s->window, "%s: window %d", what, c->window);
    bool halves = !(o->file->kind == TERN_FILE_HF ? o->arch->hf_rope_neighbours
                                                  : o->arch->gguf_rope_neighbours);
    CHECK_MSG(c->rope.base == (float)s->base && c->rope.n_rot == s->n_rot &&
                  c->rope.halves == halves,
              "%s: base %g, %d rotated", what, (double)c->rope.base, c->rope.n_rot);
    CHECK_MSG(c->rope.scaling == (s->factor == 1 ? TERN_ROPE_NONE : TERN_ROPE_LINEAR) &&
                  c->rope.factor == (float)s->factor,
              "%s: factor %g", what, (double)c->rope.factor);
    CHECK_MSG(c->window_rope.scaling == TERN_ROPE_NONE, "%s: a window's RoPE is scaled", what);
    CHECK_MSG(!windows || c->window_rope.base == (float)s->window_base, "%s: window's base %g",
              what, (double)c->window_rope.base);
    CHECK_MSG(fabs(c->query_scalar - s->query_scalar) < 1e-5 * (1 + s->query_scalar),
              "%s: query scalar %g", what, c->query_scalar);
    CHECK_MSG(c->n_heads == s->n_heads && c->head_dim == s->head_dim, "%s: heads", what);
    CHECK_MSG(c->pooling == s->pooling, "%s: pooling %d", what, (int)c->pooling);
    CHECK_MSG(c->n_vocab == N_VOCAB && c->tied_head, "%s: table", what);
}

bool family_open_model(opened *o, const char *path) {
    tern_error err = {0};
    bool ok = family_open_config(o, path, &err) &&
              tern_arch_check(o->file, o->arch, &o->c, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    if (!ok) tern_file_close(o->file);
    return ok;
}

void family_convert(const char *in, const char *out) {
    tern_error err = {0};
    CHECK_MSG(tern_convert(in, out, NULL, &err) == TERN_OK, "%s", err.message);
}
