// tern imatrix: sums of squares of each matrix's inputs, over a text.
//
// The text is cut into windows side by side, each begun with BOS if the tokenizer adds one, and the
// model's main graph runs on one after the other, traced: the inputs of matrices are seen as the
// device computes them. Matrices with the same input share its sums. The inputs of an expert are
// the rows routed to it. Embedding and head are left out.
#include "base/cancel.h"
#include "tasks/imatrix/imatrix.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/compute/traced.h"

// The input that some matrices share.
typedef struct source {
    tern_vid x, route; // route -1: all rows, no experts
    int64_t n_cols, n_parts;
    int32_t n_chosen; // experts of a row
    bool own_rows;    // each expert has separate columns in x
    double *sums;     // [n_parts * n_cols]
    double *counts;   // [n_parts]
} source;

// A value that is seen before or after the route that gives its experts.
#define N_KEPT 4 // a layer has three: two inputs of experts, and the route
typedef struct kept {
    tern_vid v;
    int32_t n_rows;
    float *rows;
} kept;

typedef struct job {
    tern_model *model;
    const tern_imatrix_desc *desc;
    tern_traced traced;
    source *sources;
    tern_collected *matrices; // their sums are set at the end
    size_t *of;               // [n_matrices] which source
    size_t n_sources, n_matrices, capacity;
    kept kept[N_KEPT];
    int next_kept;
    int window;
    tern_ids ids;
    int32_t *outputs; // [window] 0, 1, 2 ...
    int64_t n_tokens, n_windows;
    size_t n_all, n_seen, n_each; // windows to come; values of this one, and of one before
    bool was_stopped;
} job;

// ---- Which values ------------------------------------------------------------------------------

// The value before it is rounded for a product.
static tern_vid before(const tern_graph *g, tern_vid v, tern_op op) {
    int32_t producer = g->values[v].producer;
    return producer >= 0 && g->nodes[producer].op == op ? g->nodes[producer].in[0] : v;
}

tern_vid tern_imatrix_input(const tern_graph *g, const tern_node *n) {
    return before(g, n->in[0], TERN_OP_QUANTIZE);
}

const tern_value *tern_imatrix_weight(const tern_arch *arch, const tern_graph *g,
                                      const tern_node *n) {
    const int at = n->op == TERN_OP_EXPERTS ? 2 : 1;
    const tern_value *w = &g->values[before(g, n->in[at], TERN_OP_TERNARIZE)];
    const tern_role role = tern_arch_role(arch, w->name);
    const bool is_other = role == TERN_ROLE_TABLE || role == TERN_ROLE_HEAD;
    return w->kind == TERN_VALUE_WEIGHT && !is_other ? w : NULL;
}

static tern_status add_matrix(job *j, const tern_node *n, tern_error *err) {
    const tern_graph *g = &j->model->graphs[0].lowered;
    bool experts = n->op == TERN_OP_EXPERTS;
    const tern_value *w = tern_imatrix_weight(j->model->arch, g, n);
    tern_vid x = tern_imatrix_input(g, n), route = experts ? n->in[1] : -1;
    if (!w || g->values[x].producer < 0) return TERN_OK;
    source s = {.x = x, .route = route, .n_cols = w->cols, .n_parts = experts ? w->parts : 1};
    s.n_chosen = experts ? (int32_t)(g->values[route].cols / 2) : 1;
    s.own_rows = g->values[x].cols != s.n_cols;
    size_t i = 0;
    while (i < j->n_sources && (j->sources[i].x != x || j->sources[i].route != route)) i++;
    if (i == j->n_sources) {
        size_t n_sums = (size_t)(s.n_parts * s.n_cols);
        s.sums = tern_alloc_array(TERN_MEM_MISC, n_sums, sizeof *s.sums);
        s.counts = tern_alloc_array(TERN_MEM_MISC, (size_t)s.n_parts, sizeof *s.counts);
        j->sources[j->n_sources++] = s;
        if (!s.sums || !s.counts) return tern_fail_memory(err, n_sums * sizeof *s.sums);
    }
    j->of[j->n_matrices] = i;
    j->matrices[j->n_matrices++] =
        (tern_collected){.name = w->name, .n_cols = s.n_cols, .n_parts = s.n_parts};
    return TERN_OK;
}

static tern_status find_matrices(job *j, tern_error *err) {
    const tern_graph *g = &j->model->graphs[0].lowered;
    size_t n = g->n_nodes + 1;
    j->sources = tern_alloc_array(TERN_MEM_MISC, n, sizeof *j->sources);
    j->matrices = tern_alloc_array(TERN_MEM_MISC, n, sizeof *j->matrices);
    j->of = tern_alloc_array(TERN_MEM_MISC, n, sizeof *j->of);
    if (!j->sources || !j->matrices || !j->of) return tern_fail_memory(err, n * sizeof *j->sources);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR || g->nodes[i].op == TERN_OP_EXPERTS)
            TERN_TRY(add_matrix(j, &g->nodes[i], err));
    if (j->n_matrices > 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: there are no matrices in its graph",
                     j->model->path);
}

// ---- Sums --------------------------------------------------------------------------------------

static void add_row(source *s, int64_t part, const float *x) {
    double *sums = s->sums + part * s->n_cols;
    for (int64_t i = 0; i < s->n_cols; i++) sums[i] += (double)x[i] * (double)x[i];
    s->counts[part]++;
}

static void add_rows(source *s, const float *x, const float *route, int32_t n_rows) {
    int64_t width = s->own_rows ? s->n_cols * s->n_chosen : s->n_cols;
    for (int32_t r = 0; r < n_rows; r++, x += width) {
        if (!route) add_row(s, 0, x);
        for (int32_t k = 0; route && k < s->n_chosen; k++) {
            int64_t part = (int64_t)route[(int64_t)r * 2 * s->n_chosen + k];
            if (part >= 0 && part < s->n_parts)
                add_row(s, part, s->own_rows ? x + k * s->n_cols : x);
        }
    }
}

static const kept *find_kept(const job *j, tern_vid v, int32_t n_rows) {
    for (int i = 0; i < N_KEPT; i++)
        if (j->kept[i].v == v && j->kept[i].n_rows == n_rows) return &j->kept[i];
    return NULL;
}

static void keep(job *j, tern_vid v, const float *rows, int32_t n_rows) {
    kept *k = &j->kept[j->next_kept];
    j->next_kept = (j->next_kept + 1) % N_KEPT;
    k->v = v;
    k->n_rows = n_rows;
    memcpy(k->rows, rows, (size_t)(n_rows * j->traced.graph.values[v].cols) * sizeof *rows);
}

// A window may take a minute: each of its values counts as a part of it.
static void tell(job *j) {
    const tern_imatrix_desc *d = j->desc;
    double part = (double)j->n_seen++ / (double)(j->n_each ? j->n_each : 2 * j->n_sources);
    double done = (double)j->n_windows + (part < 0.99 ? part : 0.99);
    j->was_stopped = j->was_stopped ||
                     !tern_progress(d->on_progress, d->user, "imatrix", done / (double)j->n_all);
}

static void see(void *ctx, tern_vid v, const float *rows, int32_t n_rows) {
    job *j = ctx;
    bool kept_now = false;
    tell(j);
    if (j->was_stopped) return;
    for (size_t i = 0; i < j->n_sources; i++) {
        source *s = &j->sources[i];
        if (s->x != v && s->route != v) continue;
        if (s->route < 0) {
            add_rows(s, rows, NULL, n_rows);
            continue;
        }
        if (!kept_now) keep(j, v, rows, n_rows);
        kept_now = true;
        const kept *x = find_kept(j, s->x, n_rows), *route = find_kept(j, s->route, n_rows);
        if (x && route) add_rows(s, x->rows, route->rows, n_rows);
    }
}

// ---- Windows -----------------------------------------------------------------------------------

static tern_status run_window(job *j, size_t first, tern_error *err) {
    const tern_tokenizer *t = j->model->tokenizer;
    size_t left = j->ids.n - first, n = left < (size_t)j->window ? left : (size_t)j->window;
    tern_batch batch = {.ids = j->ids.ids + first,
                        .n_tokens = (int32_t)n,
                        .outputs = j->outputs,
                        .n_outputs = (int32_t)n};
    if (!j->desc->ids && tern_tokenizer_adds_bos(t)) j->ids.ids[first] = tern_tokenizer_bos(t);
    for (int i = 0; i < N_KEPT; i++) j->kept[i].v = -1;
    j->n_seen = 0;
    TERN_TRY(tern_traced_run(&j->traced, &batch, see, j, err));
    j->n_each = j->n_seen;
    if (j->was_stopped) return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    j->n_windows++;
    j->n_tokens += (int64_t)n;
    return TERN_OK;
}

static tern_status run_windows(job *j, tern_error *err) {
    const tern_imatrix_desc *d = j->desc;
    size_t n = (j->ids.n + (size_t)j->window - 1) / (size_t)j->window;
    if (d->n_windows > 0 && n > (size_t)d->n_windows) n = (size_t)d->n_windows;
    j->n_all = n;
    for (size_t i = 0; i < n; i++) {
        TERN_TRY(run_window(j, i * (size_t)j->window, err));
        if (!tern_progress(d->on_progress, d->user, "imatrix", (double)(i + 1) / (double)n))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    return TERN_OK;
}

// Every computed row was counted, and nothing overflowed.
static tern_status check_sums(const job *j, tern_error *err) {
    for (size_t i = 0; i < j->n_matrices; i++) {
        const source *s = &j->sources[j->of[i]];
        double n = 0, sum = 0;
        for (int64_t k = 0; k < s->n_parts; k++) n += s->counts[k];
        for (int64_t k = 0; k < s->n_parts * s->n_cols; k++) sum += s->sums[k];
        if (n != (double)(j->n_tokens * s->n_chosen))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "%s: what goes into %s is not computed by itself on this device",
                             j->model->path, j->matrices[i].name);
        if (!(sum <= (double)__FLT_MAX__))
            return tern_fail(err, TERN_ERR_FORMAT, "%s: what goes into %s is not finite",
                             j->model->path, j->matrices[i].name);
    }
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

static tern_status make_room(job *j, tern_error *err) {
    const tern_graph *g = &j->model->graphs[0].lowered;
    int64_t widest = 0;
    for (size_t i = 0; i < j->n_sources; i++) {
        const source *s = &j->sources[i];
        if (s->route < 0) continue;
        if (g->values[s->x].cols > widest) widest = g->values[s->x].cols;
        if (g->values[s->route].cols > widest) widest = g->values[s->route].cols;
    }
    size_t n = (size_t)(widest * j->window), bytes = n * sizeof(float);
    for (int i = 0; n && i < N_KEPT; i++) {
        j->kept[i].rows = tern_alloc_array(TERN_MEM_MISC, n, sizeof(float));
        if (!j->kept[i].rows) return tern_fail_memory(err, bytes);
    }
    j->outputs = tern_alloc_array(TERN_MEM_MISC, (size_t)j->window, sizeof *j->outputs);
    if (!j->outputs) return tern_fail_memory(err, (size_t)j->window * sizeof *j->outputs);
    for (int32_t i = 0; i < j->window; i++) j->outputs[i] = i;
    return TERN_OK;
}

static tern_status open_graph(job *j, tern_error *err) {
    tern_vid *wanted = tern_alloc_array(TERN_MEM_MISC, 2 * j->n_sources + 1, sizeof *wanted);
    size_t n = 0;
    if (!wanted) return tern_fail_memory(err, 2 * j->n_sources * sizeof *wanted);
    for (size_t i = 0; i < j->n_sources; i++) {
        wanted[n++] = j->sources[i].x;
        if (j->sources[i].route >= 0) wanted[n++] = j->sources[i].route;
    }
    tern_status status =
        tern_traced_choose(&j->traced, j->model, &j->model->graphs[0], wanted, n, err);
    tern_free(wanted);
    if (status != TERN_OK) return status;
    return tern_traced_open(&j->traced, j->window, j->window, TERN_KV_F32, err);
}

static tern_status check(job *j, tern_error *err) {
    const tern_model *m = j->model;
    int64_t context = m->config.n_context, window = j->desc->window ? j->desc->window : 512;
    if (!m->tokenizer && !j->desc->ids)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    if (!j->desc->window && window > context) window = context;
    if (window < 2 || window > context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a window of %lld tokens: expected 2 to %lld, the model's context",
                         (long long)window, (long long)context);
    if (j->desc->n_windows < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d windows", j->desc->n_windows);
    j->window = (int)window;
    return tern_model_refuse_damaged(m, err);
}

static tern_status take_ids(job *j, tern_error *err) {
    const tern_imatrix_desc *d = j->desc;
    if (!d->ids)
        return tern_tokenizer_encode(j->model->tokenizer, d->n_bytes ? d->text : "", d->n_bytes,
                                     TERN_TOKENIZE_BOS, &j->ids, err);
    j->ids.ids = tern_alloc_array(TERN_MEM_MISC, d->n_ids, sizeof *d->ids);
    if (!j->ids.ids) return tern_fail_memory(err, d->n_ids * sizeof *d->ids);
    for (; j->ids.n < d->n_ids; j->ids.n++) {
        int32_t id = d->ids[j->ids.n];
        if (id < 0 || id >= j->model->config.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d at place %zu: expected 0 to %lld",
                             (int)id, j->ids.n, (long long)j->model->config.n_vocab - 1);
        j->ids.ids[j->ids.n] = id;
    }
    return TERN_OK;
}

static tern_status collect(job *j, const char *out, tern_error *err) {
    TERN_TRY(check(j, err));
    TERN_TRY(take_ids(j, err));
    if (j->ids.n < 2)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the text has %zu token%s: expected 2 or more",
                         j->ids.n, j->ids.n == 1 ? "" : "s");
    TERN_TRY(find_matrices(j, err));
    TERN_TRY(make_room(j, err));
    TERN_TRY(open_graph(j, err));
    TERN_TRY(run_windows(j, err));
    TERN_TRY(check_sums(j, err));
    for (size_t i = 0; i < j->n_matrices; i++) {
        j->matrices[i].sums = j->sources[j->of[i]].sums;
        j->matrices[i].counts = j->sources[j->of[i]].counts;
    }
    return tern_collected_write(&(tern_collection){.list = j->matrices,
                                                   .n = j->n_matrices,
                                                   .dataset = j->desc->dataset,
                                                   .n_chunks = j->n_windows,
                                                   .chunk_size = j->window},
                                out, err);
}

tern_status tern_imatrix(tern_model *m, const char *out, const tern_imatrix_desc *desc,
                         tern_imatrix_stats *stats, tern_error *err) {
    tern_clear(err);
    TERN_NEED(m);
    TERN_NEED(out);
    TERN_NEED(desc);
    TERN_NEED_ARRAY(desc->text, desc->n_bytes);
    TERN_NEED_ARRAY(desc->ids, desc->n_ids);
    job j = {.model = m, .desc = desc};
    tern_model_hold(m);
    tern_status status = collect(&j, out, err);
    if (stats)
        *stats = (tern_imatrix_stats){.n_tokens = j.n_tokens,
                                      .n_windows = j.n_windows,
                                      .window = j.window,
                                      .n_matrices = j.n_matrices};
    tern_traced_close(&j.traced);
    for (size_t i = 0; i < j.n_sources; i++) {
        tern_free(j.sources[i].sums);
        tern_free(j.sources[i].counts);
    }
    for (int i = 0; i < N_KEPT; i++) tern_free(j.kept[i].rows);
    tern_free(j.sources);
    tern_free(j.matrices);
    tern_free(j.of);
    tern_free(j.ids.ids);
    tern_free(j.outputs);
    tern_model_let_go(m);
    return status;
}
