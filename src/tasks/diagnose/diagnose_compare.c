// Two devices run the same tokens; every intermediate value is compared, which shows not only a
// wrong answer but also the first wrong tensor.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tasks/diagnose/diagnose.h"

typedef struct traced {
    const tern_graph *g;
    float **values; // by value: the first device's
    double tolerance;
    bool failed; // out of memory
    tern_difference *out;
} traced;

static void keep(void *ctx, tern_vid v, const float *rows, int32_t n_rows) {
    traced *t = ctx;
    size_t n = (size_t)n_rows * (size_t)t->g->values[v].cols;
    tern_free(t->values[v]);
    t->values[v] = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof(float));
    if (t->values[v])
        memcpy(t->values[v], rows, n * sizeof(float));
    else
        t->failed = true;
}

// |a - b| / |b|; infinite if either is not a number.
static double distance_of_row(const float *a, const float *b, size_t n) {
    double difference = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        length += (double)b[i] * (double)b[i];
    }
    if (!isfinite(difference) || !isfinite(length)) return INFINITY;
    if (difference == 0) return 0;
    return length > 0 ? sqrt(difference / length) : INFINITY;
}

// The greatest over the rows: in a sum over all of them one wrong row would be lost.
static double distance(const float *a, const float *b, size_t n_rows, size_t n) {
    double greatest = 0;
    for (size_t i = 0; i < n_rows; i++)
        greatest = fmax(greatest, distance_of_row(a + i * n, b + i * n, n));
    return greatest;
}

static void compare(void *ctx, tern_vid v, const float *rows, int32_t n_rows) {
    traced *t = ctx;
    if (!t->values[v] || t->out->name[0]) return;
    t->out->n_values++;
    double error = distance(rows, t->values[v], (size_t)n_rows, (size_t)t->g->values[v].cols);
    if (error > t->out->error) t->out->error = error;
    if (error > t->tolerance)
        snprintf(t->out->name, sizeof t->out->name, "%s", t->g->values[v].name);
}

static size_t greatest(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

// A row's greatest logit may differ only if the two are nearly the same: errors of up to
// `tolerance` of a row's length are up to `tolerance` of its RMS in most logits, and the difference
// of two logits is allowed four times that. Seen to fail with two far logits swapped.
static bool is_same_choice(const float *wanted, const float *tested, size_t n, double tolerance) {
    size_t theirs = greatest(wanted, n), ours = greatest(tested, n);
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)wanted[i] * (double)wanted[i];
    double gap = (double)wanted[theirs] - (double)wanted[ours];
    return gap <= 4 * tolerance * sqrt(squares / (double)n);
}

static void compare_logits(const float *wanted, const float *tested, size_t n_rows, size_t n_vocab,
                           double tolerance, tern_difference *out) {
    bool near = true;
    out->logits = distance(tested, wanted, n_rows, n_vocab);
    out->same_top = true;
    for (size_t i = 0; i < n_rows; i++) {
        const float *a = wanted + i * n_vocab, *b = tested + i * n_vocab;
        out->same_top = out->same_top && greatest(a, n_vocab) == greatest(b, n_vocab);
        near = near && is_same_choice(a, b, n_vocab, tolerance);
    }
    if ((out->logits > tolerance || !near) && !out->name[0])
        snprintf(out->name, sizeof out->name, "logits");
}

bool tern_compare_is_whole(const tern_graph *g) {
    for (size_t i = 0; i < g->n_nodes; i++)
        if (tern_node_looks_ahead(&g->nodes[i])) return true;
    return false;
}

static int64_t n_scores(const tern_graph *g) {
    tern_vid v = tern_graph_scores(g);
    return v >= 0 ? g->values[v].cols : 0;
}

// Values for a graph's inputs other than ids, the same for both devices: between -1 and 1.
typedef struct given {
    float *rows[TERN_BINDINGS_MAX];
    int n;
} given;

static void given_free(given *x) {
    for (int i = 0; i < x->n; i++) tern_free(x->rows[i]);
    x->n = 0;
}

static tern_status given_make(given *x, const tern_graph *g, tern_batch *b, tern_error *err) {
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *in = &g->values[v];
        if (in->kind != TERN_VALUE_INPUT || in->type != TERN_VALUE_F32) continue;
        size_t n = (size_t)b->n_tokens * (size_t)in->cols;
        float *rows =
            x->n < TERN_BINDINGS_MAX ? tern_alloc_array(TERN_MEM_MISC, n, sizeof *rows) : NULL;
        if (!rows) return tern_fail_memory(err, n * sizeof *rows);
        for (size_t i = 0; i < n; i++)
            rows[i] = (float)((double)(tern_mix64(i) >> 11) * 0x1p-52 - 1);
        x->rows[x->n++] = rows;
        tern_batch_bind(b, (tern_vid)v, rows);
    }
    return TERN_OK;
}

tern_status tern_compare(const tern_comparison *c, const int32_t *ids, int32_t n_ids,
                         tern_difference *out, tern_error *err) {
    const tern_graph *g = c->g;
    *out = (tern_difference){.is_whole = tern_compare_is_whole(g)};
    tern_status status = TERN_OK;
    int64_t n_vocab = n_scores(g);
    size_t n_logits = (size_t)n_ids * (size_t)n_vocab;
    float *logits = tern_alloc_array(TERN_MEM_MISC, 2 * n_logits, sizeof *logits);
    traced t = {.g = g, .tolerance = c->tolerance, .out = out};
    given inputs = {.n = 0};
    t.values = tern_alloc_array(TERN_MEM_MISC, g->n_values + 1, sizeof *t.values);
    if (!logits || !t.values) {
        status = tern_fail_memory(err, n_logits * sizeof *logits);
        goto fail;
    }
    tern_batch b = {.ids = ids, .n_tokens = n_ids, .n_outputs = n_ids};
    TERN_TRY_GOTO(given_make(&inputs, g, &b, err));
    tern_batch again = b;
    tern_batch_bind(&b, tern_graph_scores(g), logits);
    tern_batch_bind(&again, tern_graph_scores(g), logits + n_logits);
    TERN_TRY_GOTO(tern_runner_trace(c->wanted, &b, 0, keep, &t, err));
    if (t.failed) {
        status = tern_fail_memory(err, n_logits);
        goto fail;
    }
    TERN_TRY_GOTO(tern_runner_trace(c->tested, &again, 0, compare, &t, err));
    compare_logits(logits, logits + n_logits, (size_t)n_ids, (size_t)n_vocab, c->tolerance, out);
    if (out->n_values == 0) // an empty comparison proves nothing
        snprintf(out->name, sizeof out->name, "no value on the way was seen, which");
fail:
    for (size_t v = 0; t.values && v < g->n_values; v++) tern_free(t.values[v]);
    tern_free(t.values);
    given_free(&inputs);
    tern_free(logits);
    return status;
}

// The results of a run: a row for each token, and for an encoder the text's vector.
typedef struct results {
    size_t n_rows, n_cols, n_vector;
    float *rows, *vector;
} results;

static tern_status run(const tern_graph *g, tern_runner *s, tern_batch b, int32_t pos,
                       const results *r, tern_error *err) {
    given inputs = {.n = 0};
    tern_status status = given_make(&inputs, g, &b, err);
    tern_batch_bind(&b, tern_graph_scores(g), r->rows);
    tern_batch_bind(&b, tern_graph_find(g, "embedding"), r->n_vector ? r->vector : NULL);
    if (status == TERN_OK) status = tern_runner_wait(s, &b, pos, err);
    given_free(&inputs);
    return status;
}

tern_status tern_compare_run(const tern_comparison *c, const int32_t *ids, int32_t n_ids,
                             int32_t pos, tern_difference *out, tern_error *err) {
    const tern_graph *g = c->g;
    const tern_batch batch = {.ids = ids, .n_tokens = n_ids, .n_outputs = n_ids};
    tern_vid v = tern_graph_find(g, "embedding");
    results a = {.n_rows = (size_t)n_ids, .n_cols = (size_t)n_scores(g)}, b;
    *out = (tern_difference){.is_whole = tern_compare_is_whole(g)};
    a.n_vector = v >= 0 ? (size_t)g->values[v].cols : 0;
    size_t n = a.n_rows * a.n_cols + a.n_vector;
    float *room = tern_alloc_array(TERN_MEM_MISC, 2 * n, sizeof *room);
    if (!room) return tern_fail_memory(err, 2 * n * sizeof *room);
    a.rows = room;
    a.vector = room + a.n_rows * a.n_cols;
    b = a;
    b.rows += n;
    b.vector += n;
    tern_status status = run(g, c->wanted, batch, pos, &a, err);
    if (status == TERN_OK) status = run(g, c->tested, batch, pos, &b, err);
    if (status == TERN_OK) compare_logits(a.rows, b.rows, a.n_rows, a.n_cols, c->tolerance, out);
    if (status == TERN_OK && a.n_vector) {
        out->error = distance_of_row(b.vector, a.vector, a.n_vector);
        if (out->error > c->tolerance && !out->name[0])
            snprintf(out->name, sizeof out->name, "embedding");
    }
    tern_free(room);
    return status;
}

void tern_report_difference(tern_report *r, const char *name, const tern_difference *d,
                            double tolerance) {
    char detail[200];
    bool ok = !d->name[0] && (tolerance > 0 || d->same_top);
    char values[40] = "";
    const char *rows = d->is_whole ? "rows" : "logits";
    if (d->n_values > 0) snprintf(values, sizeof values, "values within %.1e, ", d->error);
    if (ok)
        snprintf(detail, sizeof detail, "%s%s within %.1e%s", values, rows, d->logits,
                 d->same_top ? "" : "; of two that are nearly the same the other is the greatest");
    else
        snprintf(detail, sizeof detail, "%s is the first that differs, by %.3g of its length",
                 d->name[0] ? d->name : rows, d->error > d->logits ? d->error : d->logits);
    tern_report_check(r, name, ok, detail);
}
