// The pass that rotates the inputs of products with rotated weights.
//
// Weights multiplied with an orthogonal matrix from the right, W R^T, have fewer outliers, and so
// lose less in quantization; the product then needs R x instead of x. Products that read the same x
// share its rotation. Rows of a rotated table are rotated back when they are looked up.
#include <stdio.h>
#include "base/alloc.h"
#include "graph/build.h"

typedef struct rotating {
    tern_graph *to;
    tern_vid *now; // the value that readers of each value now read
    tern_rotation_fn rotation_of;
    void *ctx;
} rotating;

static tern_vid rotated(tern_graph *to, tern_vid x, const tern_rotation *r) {
    char name[64];
    for (size_t i = 0; i < to->n_nodes; i++)
        if (to->nodes[i].op == TERN_OP_HADAMARD && to->nodes[i].in[0] == x &&
            tern_rotation_same(&to->nodes[i].rotation, r))
            return to->nodes[i].out[0];
    int64_t n = to->values[x].cols;
    snprintf(name, sizeof name, "hadamard.sign.%lld", (long long)n);
    return tern_g_hadamard(to, x, r->has_signs ? tern_g_vector(to, name, n) : -1, r);
}

// The node is not in `to` yet.
static tern_status rotate_input(rotating *p, const tern_graph *g, const tern_node *n, tern_vid *x,
                                tern_error *err) {
    const tern_value *w = &g->values[n->in[1]];
    tern_rotation r = {0};
    bool is = false;
    if (w->kind != TERN_VALUE_WEIGHT) return TERN_OK;
    TERN_TRY(p->rotation_of(p->ctx, w, false, &is, &r, err));
    p->to->layer = n->layer;
    if (is) *x = rotated(p->to, *x, &r);
    return TERN_OK;
}

// The rows after rotating back take over the name of the table's rows.
static tern_status rotate_rows(rotating *p, const tern_graph *g, const tern_node *n,
                               tern_error *err) {
    tern_rotation r = {0};
    bool is = false;
    TERN_TRY(p->rotation_of(p->ctx, &g->values[n->in[1]], true, &is, &r, err));
    if (!is) return TERN_OK;
    tern_vid raw = n->out[0], y = rotated(p->to, raw, &r);
    if (y < 0) return TERN_OK; // out of memory, which the graph's check reports
    for (size_t i = 0; i < sizeof p->to->values[y].name; i++) {
        char c = p->to->values[raw].name[i];
        p->to->values[raw].name[i] = p->to->values[y].name[i];
        p->to->values[y].name[i] = c;
    }
    p->now[raw] = y;
    return TERN_OK;
}

static tern_status rebuild(rotating *p, const tern_graph *g, tern_error *err) {
    for (size_t v = 0; v < g->n_values; v++) p->now[v] = (tern_vid)v;
    for (size_t i = 0; i < g->n_nodes && !p->to->failed; i++) {
        const tern_node *n = &g->nodes[i];
        tern_vid in[TERN_NODE_INPUTS];
        for (int k = 0; k < n->n_in; k++) in[k] = p->now[n->in[k]];
        if (n->op == TERN_OP_LINEAR) TERN_TRY(rotate_input(p, g, n, &in[0], err));
        tern_node *copy = tern_g_node(p->to, n->op);
        if (!copy) break;
        *copy = *n;
        for (int k = 0; k < n->n_in; k++) copy->in[k] = in[k];
        for (int k = 0; k < n->n_out; k++)
            p->to->values[n->out[k]].producer = (int32_t)(p->to->n_nodes - 1);
        if (n->op == TERN_OP_EMBED) TERN_TRY(rotate_rows(p, g, n, err));
    }
    return tern_graph_check(p->to, err);
}

tern_status tern_pass_rotate(tern_graph *g, tern_rotation_fn rotation_of, void *ctx,
                             tern_error *err) {
    tern_graph to;
    TERN_TRY(tern_graph_copy(&to, g, err));
    to.n_nodes = 0; // the values keep their numbers, the nodes are added again
    tern_vid *now = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *now);
    rotating p = {&to, now, rotation_of, ctx};
    tern_status status =
        now ? rebuild(&p, g, err) : tern_fail_memory(err, g->n_values * sizeof *now);
    tern_free(now);
    to.layer = g->layer;
    if (status == TERN_OK) {
        tern_graph old = *g;
        *g = to;
        to = old;
    }
    tern_graph_free(&to);
    return status;
}
