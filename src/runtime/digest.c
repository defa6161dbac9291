// A hash of all that a text's states depend on besides the text: every weight as it is read, the
// graph, the device's arithmetic, and this library's version. States saved under another hash
// cannot be used here.
#include <string.h>
#include "base/hash.h"
#include "runtime/runtime.h"

#define PIECE ((uint64_t)4 << 20) // bytes of a weight held at once

static uint64_t add(uint64_t h, const void *bytes, size_t n) { return tern_hash64(h, bytes, n); }
static uint64_t add_text(uint64_t h, const char *text) { return add(h, text, strlen(text)); }
static uint64_t add_int(uint64_t h, int64_t x) { return add(h, &x, sizeof x); }
static uint64_t add_float(uint64_t h, float x) { return add(h, &x, sizeof x); }

static uint64_t add_node(uint64_t h, const tern_node *n) {
    const int32_t whole[] = {n->op, n->n_in, n->n_out};
    h = add(h, whole, sizeof whole);
    h = add(h, n->in, (size_t)n->n_in * sizeof *n->in);
    h = add(h, n->out, (size_t)n->n_out * sizeof *n->out);
    return tern_node_hash_attrs(h, n);
}

static uint64_t add_graph(uint64_t h, const tern_graph *g) {
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *x = &g->values[v];
        const int64_t whole[] = {x->kind, x->type, x->dim,   x->times,  x->per,
                                 x->rows, x->cols, x->state, x->window, x->parts};
        h = add(add_text(h, x->name), whole, sizeof whole);
    }
    for (size_t i = 0; i < g->n_nodes; i++) h = add_node(h, &g->nodes[i]);
    return h;
}

static tern_status add_bytes(uint64_t *h, const tern_blob *b, tern_error *err) {
    for (uint64_t at = 0; at < b->n; at += PIECE) {
        TERN_TRY(tern_check_cancelled("reading the weights", err));
        tern_blob part = tern_blob_part(b, at, PIECE);
        tern_hold hold;
        TERN_TRY(tern_blob_hold(&part, &hold, err));
        *h = add(*h, hold.data, (size_t)part.n);
        tern_blob_release(&hold);
    }
    return TERN_OK;
}

static tern_status add_weight(uint64_t *h, const tern_weight_source *s, tern_weight_kind kind,
                              tern_error *err) {
    *h = add_int(add_int(add_text(*h, s->name), s->type), s->n_rows);
    *h = add_int(add_int(*h, s->n_cols), s->ternarize | s->as_floats << 1 | (int)kind << 2);
    *h = add_float(*h, s->scale);
    return add_bytes(h, &s->data, err);
}

static tern_status compute(const tern_model *m, uint64_t *out, tern_error *err) {
    const tern_placement *p = m->now;
    uint64_t h = add_text(0, tern_version());
    // The CPU's kernels give the same bits on all machines (kernels/cpu/kernels.h); a GPU's are
    // only known to be the same on that GPU.
    h = add_text(h, p->backend->name);
    if (p->backend != &tern_backend_cpu) h = add_text(h, p->backend->describe(p->device));
    h = add_int(h, m->device_desc.precise | (int)m->device_desc.products << 1);
    h = add_graph(h, &m->graphs[0].built);
    for (size_t w = 0; w < m->n_weights; w++)
        TERN_TRY(add_weight(&h, &m->sources[w], m->kinds[w], err));
    *out = h ? h : 1;
    return TERN_OK;
}

tern_status tern_model_digest(tern_model *m, uint64_t *out, tern_error *err) {
    tern_status status = TERN_OK;
    tern_mutex_lock(&m->lock);
    // After a loss the arithmetic may differ.
    if (m->digest == 0 || m->digest_of != m->now) status = compute(m, &m->digest, err);
    if (status == TERN_OK) m->digest_of = m->now;
    *out = m->digest;
    tern_mutex_unlock(&m->lock);
    return status;
}
