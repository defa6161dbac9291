// The weights that a model's graphs read: where the numbers of each are, and what it is used for.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"

void tern_model_mark_uses(const tern_graph *g, const int32_t *weights,
                          tern_weight_source *sources) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (n->op == TERN_OP_TERNARIZE)
            sources[weights ? weights[n->in[0]] : n->in[0]].ternarize = true;
        if (n->op == TERN_OP_LINEAR && g->values[n->out[0]].kind == TERN_VALUE_OUTPUT)
            sources[weights ? weights[n->in[1]] : n->in[1]].is_head = true;
        if (n->op == TERN_OP_CONV1D)
            sources[weights ? weights[n->in[1]] : n->in[1]].n_conv_outputs = n->causal.n_out;
        if (n->op == TERN_OP_EXPERTS) {
            tern_weight_source *s = &sources[weights ? weights[n->in[2]] : n->in[2]];
            s->n_parts = g->values[n->in[2]].parts;
            s->n_parts_read = n->route.n_chosen;
        }
    }
}

// A or B of an adapter, or its factors.
static bool find_adapter_source(const tern_model *m, const tern_value *v, tern_weight_source *s) {
    const char *dot = strrchr(v->name, '.');
    bool is_a = dot && !strcmp(dot, ".lora_a"), is_b = dot && !strcmp(dot, ".lora_b");
    bool is_f = TERN_HAS_DORA && dot && !strcmp(dot, ".lora_f");
    char weight[sizeof v->name];
    if (!is_a && !is_b && !is_f) return false;
    memcpy(weight, v->name, (size_t)(dot - v->name));
    weight[dot - v->name] = 0;
    const tern_adapter *p = tern_adapters_find(&m->adapters, weight);
    if (!p) return false;
    s->name = v->name;
    s->type = TERN_DTYPE_F32;
    s->bytes = (uint64_t)(v->rows * v->cols) * sizeof(float);
    s->data = tern_blob_of(is_a ? p->a : is_b ? p->b : p->factors, s->bytes);
    s->n_rows = v->rows;
    s->n_cols = v->cols;
    s->is_matrix = !is_f;
    return true;
}

// Vectors come before quantizers to int8, which would turn a NaN into an ordinary number, so they
// are checked here. Errors in a matrix show in the scores.
static tern_status look_at(const tern_weight_source *s, bool *damaged, tern_error *err) {
    float part[256];
    uint64_t n_all = (uint64_t)(s->n_rows * s->n_cols);
    tern_hold h;
    TERN_TRY(tern_blob_hold(&s->data, &h, err));
    for (uint64_t first = 0; first < n_all; first += 256) {
        size_t n = n_all - first < 256 ? (size_t)(n_all - first) : 256;
        tern_dtype_decode(s->type, h.data, first, n, s->scale, part);
        for (size_t i = 0; i < n; i++) *damaged |= !isfinite(part[i]);
    }
    tern_blob_release(&h);
    return TERN_OK;
}

static tern_status find_signs(const tern_model *m, const tern_value *v, tern_weight_source *s,
                              float **numbers, tern_error *err) {
    TERN_TRY(tern_arch_signs(m->file, v->cols, numbers, err));
    s->name = v->name;
    s->type = TERN_DTYPE_F32;
    s->n_rows = 1;
    s->n_cols = v->cols;
    s->bytes = (uint64_t)v->cols * sizeof **numbers;
    s->data = tern_blob_of(*numbers, s->bytes);
    return TERN_OK;
}

static tern_status find_source(tern_model *m, const tern_value *v, tern_weight_source *s,
                               float **numbers, tern_error *err) {
    if (find_adapter_source(m, v, s)) return TERN_OK;
    tern_tensor found;
    const tern_tensor *t = &found;
    if (tern_tensor_is_sign(v->name)) return find_signs(m, v, s, numbers, err);
    TERN_TRY(tern_arch_weight(m->file, m->arch, v, &found, err));
    TERN_TRY(tern_arch_numbers(m->file, m->arch, t, v->name, numbers, err));
    s->name = t->name;
    s->type = *numbers ? TERN_DTYPE_F32 : t->type;
    s->n_rows = v->rows;
    s->n_cols = v->cols;
    s->bytes = *numbers ? (uint64_t)(v->rows * v->cols) * sizeof **numbers : t->bytes;
    s->data = *numbers ? tern_blob_of(*numbers, s->bytes) : t->data;
    s->scale = t->scale;
    s->is_matrix = v->is_matrix;
    s->is_table = v->is_table;
    s->on_host = v->on_host;
    bool damaged = false;
    if (!m->damaged && !v->is_matrix && !v->is_table) TERN_TRY(look_at(s, &damaged, err));
    if (damaged) m->damaged = t->name;
    return TERN_OK;
}

// The index of the weight with this name in an earlier graph; -1: none.
static int32_t find_earlier(const tern_model *m, int graph, const char *name) {
    for (int i = 0; i < graph; i++) {
        tern_vid v = tern_graph_find(&m->graphs[i].built, name);
        if (v >= 0 && m->graphs[i].weights[v] >= 0) return m->graphs[i].weights[v];
    }
    return -1;
}

// For a weight that several graphs read: all uses in any of them.
static tern_status add_use(tern_weight_source *s, const tern_value *v, tern_error *err) {
    if (s->n_rows != v->rows || s->n_cols != v->cols)
        return tern_fail(err, TERN_ERR_FORMAT, "graph: %s has two shapes in two graphs", v->name);
    s->is_matrix |= v->is_matrix;
    s->is_table |= v->is_table;
    s->on_host &= v->on_host;
    return TERN_OK;
}

static tern_status find_sources_of(tern_model *m, int graph, tern_head_mode head, tern_error *err) {
    tern_model_graph *mg = &m->graphs[graph];
    const tern_graph *g = &mg->built;
    for (size_t v = 0; v < g->n_values; v++) {
        mg->weights[v] = -1;
        if (g->values[v].kind != TERN_VALUE_WEIGHT) continue;
        mg->weights[v] = find_earlier(m, graph, g->values[v].name);
        if (mg->weights[v] >= 0) {
            TERN_TRY(add_use(&m->sources[mg->weights[v]], &g->values[v], err));
            continue;
        }
        size_t w = m->n_weights++;
        tern_weight_source *s = &m->sources[w];
        TERN_TRY(find_source(m, &g->values[v], s, &m->numbers[w], err));
        s->head = head;
        m->info.n_params += (uint64_t)(s->n_rows * s->n_cols);
        mg->weights[v] = (int32_t)w;
    }
    tern_model_mark_uses(g, mg->weights, m->sources);
    return TERN_OK;
}

tern_status tern_model_find_weights(tern_model *m, tern_head_mode head, tern_error *err) {
    size_t n = 1;
    for (int i = 0; i < m->n_graphs; i++) n += m->graphs[i].built.n_values;
    m->sources = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *m->sources);
    m->numbers = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *m->numbers);
    m->kinds = tern_alloc_array(TERN_MEM_GRAPH, n, sizeof *m->kinds);
    if (!m->sources || !m->numbers || !m->kinds)
        return tern_fail_memory(err, n * sizeof *m->sources);
    for (int i = 0; i < m->n_graphs; i++) {
        tern_model_graph *g = &m->graphs[i];
        g->weights = tern_alloc_array(TERN_MEM_GRAPH, g->built.n_values + 1, sizeof *g->weights);
        if (!g->weights) return tern_fail_memory(err, g->built.n_values * sizeof *g->weights);
        TERN_TRY(find_sources_of(m, i, head, err));
    }
    return TERN_OK;
}

tern_status tern_model_refuse_damaged(const tern_model *m, tern_error *err) {
    if (!m->damaged) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s: tensor %s: some of its numbers are not numbers (NaN or infinite)",
                     m->path, m->damaged);
}
