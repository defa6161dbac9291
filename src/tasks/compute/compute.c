// One of a model's graphs on named arrays.
#include <string.h>
#include "base/alloc.h"
#include "tasks/compute/traced.h"
#include "tern_tools.h"

#define ROWS_MAX 65536 // rows of a dimension

typedef struct job {
    tern_model *model;
    const tern_model_graph *of;
    const tern_compute_desc *desc;
    tern_traced traced;
    tern_vid *wanted;   // [n_outputs]
    const void **given; // by value: the inputs' data, or NULL
    int64_t counts[TERN_DIMS_MAX];
    int32_t *all_rows; // 0, 1, 2 ...: "outputs" if it is not given
    bool *shown;       // [n_outputs]
} job;

// ---- Names -------------------------------------------------------------------------------------

static bool is_listed(const tern_graph *g, tern_vid v, tern_value_kind kind) {
    const tern_value *value = &g->values[v];
    bool ranks = value->producer >= 0 && g->nodes[value->producer].op == TERN_OP_TOP_K;
    return value->kind == kind && !ranks;
}

static void list(const tern_graph *g, tern_value_kind kind, tern_strbuf *out) {
    const char *between = "";
    for (size_t v = 0; v < g->n_values; v++) {
        if (!is_listed(g, (tern_vid)v, kind)) continue;
        tern_strbuf_printf(out, "%s%s", between, g->values[v].name);
        between = ", ";
    }
}

static tern_status unknown(const job *j, const char *what, const char *name, tern_value_kind kind,
                           tern_error *err) {
    tern_strbuf text = {0};
    list(&j->of->built, kind, &text);
    tern_status status =
        tern_fail(err, TERN_ERR_ARGUMENT, "%s: graph %s has no %s \"%s\": it has %s",
                  j->model->path, j->of->name, what, name, tern_strbuf_text(&text));
    tern_strbuf_free(&text);
    return status;
}

// ---- Inputs ------------------------------------------------------------------------------------

static tern_status check_shape(const job *j, const tern_array *a, tern_vid v, int64_t *rows,
                               tern_error *err) {
    const tern_graph *g = &j->of->built;
    int64_t cols = g->values[v].cols, n = 1;
    bool fits = a->n_dims >= 0 && a->n_dims <= TERN_ARRAY_DIMS;
    for (int32_t i = 0; fits && i < a->n_dims; i++) {
        fits = a->dims[i] >= 0 && (a->dims[i] == 0 || n <= INT64_MAX / a->dims[i]);
        if (fits) n *= a->dims[i];
    }
    // Columns are the last dimension; rows the one before; all others 1.
    bool own = cols > 1 || (a->n_dims > 1 && a->dims[a->n_dims - 1] == 1);
    int32_t last = a->n_dims - 1 - own;
    if (fits && cols > 1) fits = a->n_dims > 0 && a->dims[a->n_dims - 1] == cols;
    for (int32_t i = 0; fits && i < last; i++) fits = a->dims[i] == 1;
    *rows = n / cols;
    if (fits && *rows >= 1 && *rows <= ROWS_MAX) return TERN_OK;
    tern_strbuf text = {0};
    for (int32_t i = 0; i < a->n_dims && i < TERN_ARRAY_DIMS; i++)
        tern_strbuf_printf(&text, "%s%lld", i ? ", " : "", (long long)a->dims[i]);
    tern_strbuf_puts(&text, "]: expected ");
    tern_graph_print_shape(g, v, &text);
    tern_status status =
        tern_fail(err, TERN_ERR_ARGUMENT, "input %s is [%s, with 1 to %d %s", a->name,
                  tern_strbuf_text(&text), ROWS_MAX, g->dims[g->values[v].dim]);
    tern_strbuf_free(&text);
    return status;
}

static tern_status take_input(job *j, const tern_array *a, tern_error *err) {
    static const char *const types[] = {"float", "int32"};
    const tern_graph *g = &j->of->built;
    int64_t rows;
    tern_vid v = tern_graph_find(g, a->name);
    if (v < 0 || g->values[v].kind != TERN_VALUE_INPUT)
        return unknown(j, "input", a->name, TERN_VALUE_INPUT, err);
    bool is_int = g->values[v].type == TERN_VALUE_I32;
    if ((a->type == TERN_ARRAY_I32) != is_int)
        return tern_fail(err, TERN_ERR_ARGUMENT, "input %s is of type %s: expected %s", a->name,
                         types[a->type == TERN_ARRAY_I32], types[is_int]);
    TERN_TRY(check_shape(j, a, v, &rows, err));
    tern_dim dim = g->values[v].dim;
    if (j->given[v]) return tern_fail(err, TERN_ERR_ARGUMENT, "input %s is given twice", a->name);
    if (j->counts[dim] && j->counts[dim] != rows)
        return tern_fail(err, TERN_ERR_ARGUMENT, "input %s has %lld %s, another one %lld", a->name,
                         (long long)rows, g->dims[dim], (long long)j->counts[dim]);
    j->counts[dim] = rows;
    j->given[v] = a->data;
    return TERN_OK;
}

static int64_t count_of(const job *j, const char *dim) {
    for (int32_t d = 0; d < j->of->built.n_dims; d++)
        if (strcmp(j->of->built.dims[d], dim) == 0) return j->counts[d];
    return 0;
}

static tern_status use_all_rows(job *j, tern_vid outputs, tern_error *err) {
    int64_t n = count_of(j, "tokens");
    j->all_rows = tern_alloc_array(TERN_MEM_MISC, (size_t)n + 1, sizeof *j->all_rows);
    if (!j->all_rows) return tern_fail_memory(err, (size_t)n * sizeof *j->all_rows);
    for (int64_t i = 0; i < n; i++) j->all_rows[i] = (int32_t)i;
    j->given[outputs] = j->all_rows;
    j->counts[j->of->built.values[outputs].dim] = n;
    return TERN_OK;
}

// Each index must be a row of the array it selects from; indices of wanted rows must also ascend.
static tern_status check_indices(const job *j, const tern_node *n, tern_error *err) {
    const tern_graph *g = &j->of->built;
    bool ids = n->op == TERN_OP_EMBED;
    tern_vid index = ids ? n->in[0] : n->in[1], from = ids ? n->in[1] : n->in[0];
    const int32_t *list = j->given[index];
    int64_t most = tern_graph_rows(g, from, j->counts), rows = tern_graph_rows(g, index, j->counts);
    for (int64_t i = 0; list && i < rows; i++) {
        bool ascends = ids || i == 0 || list[i] > list[i - 1];
        bool is_given = ids && list[i] < 0 && tern_graph_find(g, "rows") >= 0; // a row of those
        if (is_given || (list[i] >= 0 && list[i] < most && ascends)) continue;
        return tern_fail(err, TERN_ERR_ARGUMENT, "input %s: %d at place %lld: expected 0 to %lld%s",
                         g->values[index].name, (int)list[i], (long long)i, (long long)most - 1,
                         ids ? "" : ", ascending");
    }
    return TERN_OK;
}

// Rows that are merged are the outputs.
static tern_status count_merged(job *j, tern_error *err) {
    const tern_graph *g = &j->of->built;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (n->op != TERN_OP_MERGE) continue;
        int64_t rows = tern_graph_rows(g, n->in[0], j->counts);
        if (rows % n->group != 0)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%lld rows: expected a multiple of %d",
                             (long long)rows, (int)n->group);
        j->counts[g->values[n->out[0]].dim] = rows / n->group;
    }
    return TERN_OK;
}

static tern_status take_inputs(job *j, tern_error *err) {
    const tern_graph *g = &j->of->built;
    for (size_t i = 0; i < j->desc->n_inputs; i++) {
        TERN_NEED(j->desc->inputs[i].name);
        TERN_NEED(j->desc->inputs[i].data);
        TERN_TRY(take_input(j, &j->desc->inputs[i], err));
    }
    for (size_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != TERN_VALUE_INPUT || j->given[v]) continue;
        if (g->values[v].is_optional) continue;
        if (strcmp(g->values[v].name, "outputs") != 0)
            return tern_fail(err, TERN_ERR_ARGUMENT, "input %s of graph %s is missing",
                             g->values[v].name, j->of->name);
        TERN_TRY(use_all_rows(j, (tern_vid)v, err));
    }
    tern_graph_count_windows(g, -1, 0, j->counts);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_EMBED || g->nodes[i].op == TERN_OP_TAKE_ROWS)
            TERN_TRY(check_indices(j, &g->nodes[i], err));
    return count_merged(j, err);
}

// ---- Outputs -----------------------------------------------------------------------------------

static tern_status want(job *j, size_t i, tern_error *err) {
    const char *name = j->desc->outputs[i].name;
    TERN_NEED(name);
    tern_vid v = tern_graph_find(&j->of->built, name);
    if (v < 0 || j->of->built.values[v].producer < 0)
        return unknown(j, "value", name, TERN_VALUE_OUTPUT, err);
    const tern_graph *g = &j->of->lowered;
    const tern_value *value = &g->values[v];
    if (value->producer < 0 || value->type != TERN_VALUE_F32 || value->cols < 1 ||
        g->nodes[value->producer].op == TERN_OP_TOP_K)
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "%s: %s is not an array of floats here (the graph's report shows how it is lowered)",
            j->model->path, name);
    j->wanted[i] = v;
    return TERN_OK;
}

static tern_status make_room(job *j, size_t i, tern_error *err) {
    tern_array *a = &j->desc->outputs[i];
    const tern_graph *g = &j->traced.graph;
    const tern_value *v = &g->values[j->wanted[i]];
    int64_t rows = tern_graph_rows(g, j->wanted[i], j->counts);
    *a = (tern_array){.name = a->name, .n_dims = 2, .dims = {rows, v->cols}};
    a->data = tern_alloc_array(TERN_MEM_MISC, (size_t)(rows * v->cols), sizeof(float));
    return a->data ? TERN_OK : tern_fail_memory(err, (size_t)(rows * v->cols) * sizeof(float));
}

static void show(void *ctx, tern_vid v, const float *rows, int32_t n_rows) {
    const job *j = ctx;
    for (size_t i = 0; i < j->desc->n_outputs; i++) {
        const tern_array *a = &j->desc->outputs[i];
        if (j->wanted[i] != v || a->dims[0] != n_rows) continue;
        memcpy(a->data, rows, (size_t)(a->dims[0] * a->dims[1]) * sizeof *rows);
        j->shown[i] = true;
    }
}

// ---- Running -----------------------------------------------------------------------------------

static tern_batch batch_of(const job *j) {
    const tern_graph *g = &j->traced.graph;
    tern_batch b = {.n_tokens = (int32_t)count_of(j, "tokens")};
    b.n_outputs = b.n_tokens ? (int32_t)count_of(j, "outputs") : 0;
    memcpy(b.counts, j->counts, sizeof b.counts);
    for (size_t v = 0; v < j->of->built.n_values; v++) {
        if (!j->given[v]) continue;
        if (strcmp(g->values[v].name, "ids") == 0)
            b.ids = j->given[v];
        else if (strcmp(g->values[v].name, "places") == 0)
            b.places = j->given[v];
        else if (strcmp(g->values[v].name, "outputs") == 0)
            b.outputs = j->given[v];
        else
            tern_batch_bind(&b, (tern_vid)v, (void *)(uintptr_t)j->given[v]); // only read
    }
    return b;
}

static tern_status run(job *j, tern_error *err) {
    tern_traced *t = &j->traced;
    tern_batch batch = batch_of(j);
    int64_t n_rows = 1;
    for (int32_t d = 0; d < t->graph.n_dims; d++)
        if (j->counts[d] > n_rows) n_rows = j->counts[d];
    tern_kv_type kv_type = j->desc->kv_type == TERN_KV_AUTO ? TERN_KV_F32 : j->desc->kv_type;
    TERN_TRY(
        tern_traced_open(t, (int32_t)n_rows, batch.n_tokens ? batch.n_tokens : 1, kv_type, err));
    TERN_TRY(tern_traced_run(t, &batch, show, j, err));
    for (size_t i = 0; i < j->desc->n_outputs; i++)
        if (!j->shown[i])
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "%s: %s is not computed by itself on this device for so few rows",
                             j->model->path, j->desc->outputs[i].name);
    return TERN_OK;
}

static tern_status prepare(job *j, tern_error *err) {
    size_t n = j->of->built.n_values, n_outputs = j->desc->n_outputs;
    j->wanted = tern_alloc_array(TERN_MEM_MISC, n_outputs, sizeof *j->wanted);
    j->shown = tern_alloc_array(TERN_MEM_MISC, n_outputs, sizeof *j->shown);
    j->given = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *j->given);
    if (!j->wanted || !j->shown || !j->given) return tern_fail_memory(err, n * sizeof *j->given);
    TERN_TRY(take_inputs(j, err));
    if (count_of(j, "tokens"))
        for (int32_t d = 0; d < j->of->built.n_dims; d++)
            if (strcmp(j->of->built.dims[d], "sequences") == 0) j->counts[d] = 1;
    for (size_t i = 0; i < n_outputs; i++) TERN_TRY(want(j, i, err));
    TERN_TRY(tern_traced_choose(&j->traced, j->model, j->of, j->wanted, n_outputs, err));
    for (size_t i = 0; i < n_outputs; i++) TERN_TRY(make_room(j, i, err));
    return TERN_OK;
}

tern_status tern_compute(tern_model *m, const tern_compute_desc *desc, tern_error *err) {
    tern_clear(err);
    TERN_NEED(m);
    TERN_NEED(desc);
    TERN_NEED_ARRAY(desc->inputs, desc->n_inputs);
    TERN_NEED_ARRAY(desc->outputs, desc->n_outputs);
    for (size_t i = 0; i < desc->n_outputs; i++) desc->outputs[i].data = NULL;
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    if (desc->n_outputs == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: no output is asked for", m->path);
    TERN_TRY(tern_model_refuse_damaged(m, err));
    int graph = tern_model_graph_find(m, desc->graph, err);
    if (graph < 0) return TERN_ERR_ARGUMENT;
    job j = {.model = m, .of = &m->graphs[graph], .desc = desc};
    tern_model_hold(m);
    tern_status status = prepare(&j, err);
    if (status == TERN_OK) status = run(&j, err);
    for (size_t i = 0; status != TERN_OK && i < desc->n_outputs; i++)
        tern_array_free(&desc->outputs[i]);
    tern_free(j.wanted);
    tern_free(j.shown);
    tern_free(j.given);
    tern_free(j.all_rows);
    tern_traced_close(&j.traced);
    tern_model_let_go(m);
    return status;
}

// ---- What there is -----------------------------------------------------------------------------

static const char *type_name(const tern_value *v) {
    return v->type == TERN_VALUE_I32 ? "i32" : "f32";
}

static void report_value(const tern_model *m, int graph, tern_vid v, bool json, tern_strbuf *out) {
    const tern_graph *g = &m->graphs[graph].built;
    const tern_value *value = &g->values[v];
    int from = tern_model_flow_from(m, graph, v);
    if (!json) {
        tern_strbuf_printf(out, "  %-4s%-16s", value->kind == TERN_VALUE_INPUT ? "in" : "out",
                           value->name);
        tern_graph_print_shape(g, v, out);
        if (from >= 0) tern_strbuf_printf(out, "  from %s", m->graphs[from].name);
        tern_strbuf_putc(out, '\n');
        return;
    }
    tern_strbuf_puts(out, "{\"name\": ");
    tern_strbuf_json(out, value->name, strlen(value->name));
    tern_strbuf_printf(out, ", \"type\": \"%s\", \"rows\": \"", type_name(value));
    tern_graph_print_rows(g, v, out);
    tern_strbuf_printf(out, "\", \"columns\": %lld", (long long)value->cols);
    if (from >= 0) tern_strbuf_printf(out, ", \"from\": \"%s\"", m->graphs[from].name);
    tern_strbuf_putc(out, '}');
}

static void report_kind(const tern_model *m, int graph, tern_value_kind kind, bool json,
                        tern_strbuf *out) {
    const tern_graph *g = &m->graphs[graph].built;
    const char *between = "";
    for (size_t v = 0; v < g->n_values; v++) {
        if (!is_listed(g, (tern_vid)v, kind)) continue;
        if (json) tern_strbuf_puts(out, between);
        report_value(m, graph, (tern_vid)v, json, out);
        between = ", ";
    }
}

static void report_graph(const tern_model *m, int graph, bool json, tern_strbuf *out) {
    tern_strbuf_printf(out, json ? "{\"graph\": \"%s\", \"inputs\": [" : "%s\n",
                       m->graphs[graph].name);
    report_kind(m, graph, TERN_VALUE_INPUT, json, out);
    if (json) tern_strbuf_puts(out, "], \"outputs\": [");
    report_kind(m, graph, TERN_VALUE_OUTPUT, json, out);
    if (json) tern_strbuf_puts(out, "]}");
}

tern_status tern_compute_report(const tern_model *m, const char *graph, tern_format format,
                                tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    tern_strbuf text = {0};
    bool json = format == TERN_FORMAT_JSON;
    TERN_NEED(m);
    TERN_NEED(on_text);
    TERN_NEED_ENUM(format, TERN_FORMAT_JSON);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    int only = tern_model_graph_find(m, graph, err);
    if (only < 0) return TERN_ERR_ARGUMENT;
    if (json) tern_strbuf_putc(&text, '[');
    for (int i = only; i < (graph ? only + 1 : m->n_graphs); i++) {
        if (json && i > only) tern_strbuf_puts(&text, ",\n");
        report_graph(m, i, json, &text);
    }
    if (json) tern_strbuf_puts(&text, "]\n");
    return tern_text_give(&text, on_text, user, err);
}
