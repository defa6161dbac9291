// Gradient checkpointing (arXiv:1604.06174): a differentiated graph keeps of each layer what other
// layers read, and computes the rest again before that layer's gradient.
//
//   forward    x0 -> layer 0 -> x1 -> layer 1 -> x2 -> loss
//   backward   layer 1 again from x1, its gradient; layer 0 again from x0, its gradient
//
// The copied nodes have the same inputs, so their numbers have the same bits; the memory plan then
// finds that the first results of a layer die before the next layer. It costs a second forward
// pass, without what no gradient reads.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

typedef struct recompute {
    tern_graph *g, to; // to: the new list of nodes, and the values of both
    size_t n_forward, n_values;
    int32_t *layer_of; // [n_values]: of the node that makes it, -1: is kept, or made elsewhere
    bool *is_needed;   // [n_values]: the gradient reads it
    bool *is_again;    // [n_forward]: the node is computed again
    tern_vid *again;   // [n_values]: its second copy, -1: none
} recompute;

// What a layer makes for itself alone can be made again.
static void find_layers(recompute *r) {
    const tern_graph *g = r->g;
    const tern_scored_nodes head = tern_graph_scored(g);
    for (size_t v = 0; v < r->n_values; v++) r->layer_of[v] = r->again[v] = -1;
    for (size_t i = 0; i < r->n_forward; i++)
        for (int k = 0; k < g->nodes[i].n_out; k++) {
            const tern_value *v = &g->values[g->nodes[i].out[k]];
            bool in_pieces = head.end > 0 && v->dim == head.dim;
            if (v->kind == TERN_VALUE_TEMP && !in_pieces)
                r->layer_of[g->nodes[i].out[k]] = g->nodes[i].layer;
        }
    for (size_t i = 0; i < r->n_forward; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            tern_vid v = g->nodes[i].in[k];
            if (r->layer_of[v] != g->nodes[i].layer) r->layer_of[v] = -1;
        }
}

static void need_inputs(recompute *r, const tern_node *n) {
    for (int k = 0; k < n->n_in; k++) r->is_needed[n->in[k]] |= r->layer_of[n->in[k]] >= 0;
}

static void find_needed(recompute *r) {
    const tern_graph *g = r->g;
    for (size_t i = r->n_forward; i < g->n_nodes; i++) need_inputs(r, &g->nodes[i]);
    for (size_t i = r->n_forward; i-- > 0;) {
        for (int k = 0; k < g->nodes[i].n_out; k++)
            r->is_again[i] |= r->is_needed[g->nodes[i].out[k]];
        if (r->is_again[i]) need_inputs(r, &g->nodes[i]);
    }
}

static tern_vid now(const recompute *r, tern_vid v) { return r->again[v] >= 0 ? r->again[v] : v; }

static tern_vid copy_value(tern_graph *to, tern_vid v, const tern_node *n) {
    const tern_value old = to->values[v];
    tern_vid copy = tern_g_value(to, old.kind, old.type, old.dim, old.rows, old.cols);
    if (copy < 0) return -1;
    tern_value *c = &to->values[copy];
    *c = old;
    c->producer = (int32_t)to->n_nodes - 1;
    snprintf(c->name, sizeof c->name, "%s.%d", tern_op_name(n->op), (int)copy);
    return copy;
}

// n is of the old list, which does not move; inputs as they are at this point.
static void append(recompute *r, const tern_node *n, bool is_copy) {
    tern_node *node = tern_g_node(&r->to, n->op);
    if (!node) return;
    *node = *n;
    for (int k = 0; k < n->n_in; k++) node->in[k] = now(r, n->in[k]);
    for (int k = 0; k < n->n_out; k++) {
        tern_vid v = n->out[k];
        if (is_copy) node->out[k] = copy_value(&r->to, v, n);
        if (is_copy && r->layer_of[v] >= 0) r->again[v] = node->out[k];
        if (!is_copy) r->to.values[v].producer = (int32_t)r->to.n_nodes - 1;
    }
}

// Before the first node that reads of it.
static void append_layer(recompute *r, int32_t layer) {
    for (size_t i = 0; i < r->n_forward; i++)
        if (r->is_again[i] && r->g->nodes[i].layer == layer) append(r, &r->g->nodes[i], true);
}

static void rebuild(recompute *r) {
    const tern_graph *g = r->g;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        for (int k = 0; i >= r->n_forward && k < n->n_in; k++) {
            tern_vid v = n->in[k];
            if (r->layer_of[v] >= 0 && r->again[v] < 0) append_layer(r, r->layer_of[v]);
        }
        append(r, n, false);
    }
}

tern_status tern_graph_recompute(tern_graph *g, size_t n_forward, tern_error *err) {
    recompute r = {.g = g, .n_forward = n_forward, .n_values = g->n_values};
    TERN_TRY(tern_graph_copy(&r.to, g, err));
    r.to.n_nodes = 0; // the values keep their numbers, the nodes are added again
    r.layer_of = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *r.layer_of);
    r.again = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *r.again);
    r.is_needed = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *r.is_needed);
    r.is_again = tern_alloc_array(TERN_MEM_GRAPH, n_forward + 1, sizeof *r.is_again);
    tern_status status = TERN_OK;
    if (!r.layer_of || !r.again || !r.is_needed || !r.is_again)
        status = tern_fail_memory(err, g->n_values * sizeof *r.again);
    if (status == TERN_OK) {
        find_layers(&r);
        find_needed(&r);
        rebuild(&r);
        status = tern_graph_check(&r.to, err);
    }
    tern_free(r.layer_of);
    tern_free(r.again);
    tern_free(r.is_needed);
    tern_free(r.is_again);
    if (status == TERN_OK) {
        tern_graph old = *g;
        *g = r.to;
        r.to = old;
    }
    tern_graph_free(&r.to);
    return status;
}
