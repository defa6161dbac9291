// The output head of a graph for training: computed for the scored rows alone, and for some of them
// at a time.
//
// A row of logits is as long as the vocabulary, so all rows of a batch would need more memory than
// everything else. Between take_scored and put_scored every value has rows of the dimension
// "scored"; a device goes over those nodes once for each piece of the scored rows, forwards and
// backwards, before it goes on. The gradient takes the logits' place, and what a piece adds to the
// gradient of a weight is added before the next piece.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

static const char scored[] = "scored";

// Ops between the head's product and the loss, each row by itself.
static bool is_of_head(tern_op op) {
    switch (op) {
    case TERN_OP_LINEAR:
    case TERN_OP_CAP:
    case TERN_OP_SCALE:
    case TERN_OP_SCALE_BY:
    case TERN_OP_BIAS: return true;
    default: return false;
    }
}

// The first of these nodes, after which all values get the dimension; n_nodes: there is none.
static size_t first_of_head(tern_graph *g, tern_vid logits, tern_dim dim) {
    size_t first = g->n_nodes;
    for (tern_vid v = logits;;) {
        int32_t p = g->values[v].producer;
        if (p < 0 || !is_of_head(g->nodes[p].op)) return first;
        g->values[v].dim = dim;
        v = g->nodes[p].in[0];
        first = (size_t)p;
        if (g->nodes[p].op == TERN_OP_LINEAR) return first;
    }
}

tern_vid tern_g_take_scored(tern_graph *g, tern_vid logits) {
    tern_dim dim = tern_g_dim(g, scored);
    if (g->failed) return -1;
    size_t at = first_of_head(g, logits, dim);
    tern_vid x = at < g->n_nodes ? g->nodes[at].in[0] : logits;
    tern_vid taken = tern_g_value(g, TERN_VALUE_TEMP, TERN_VALUE_F32, dim, 0, g->values[x].cols);
    if (taken < 0 || !tern_g_insert(g, at)) {
        g->failed = true;
        return -1;
    }
    tern_value *v = &g->values[taken];
    v->producer = (int32_t)at;
    snprintf(v->name, sizeof v->name, "take_scored.%d", (int)taken);
    g->nodes[at] = (tern_node){
        .op = TERN_OP_TAKE_SCORED, .layer = -1, .in = {x}, .out = {taken}, .n_in = 1, .n_out = 1};
    if (x == logits) return taken;
    g->nodes[at + 1].in[0] = taken;
    return logits;
}

tern_vid tern_g_put_scored(tern_graph *g, tern_vid rows, tern_vid like) {
    tern_node *n = tern_g_node(g, TERN_OP_PUT_SCORED);
    tern_g_in(g, n, rows);
    return tern_g_out(g, n, like, TERN_VALUE_F32, g->values[rows].cols);
}

static bool touches(const tern_graph *g, const tern_node *n, tern_dim dim) {
    bool found = false;
    for (int k = 0; k < n->n_in; k++) found |= g->values[n->in[k]].dim == dim;
    for (int k = 0; k < n->n_out; k++) found |= g->values[n->out[k]].dim == dim;
    return found;
}

tern_scored_nodes tern_graph_scored(const tern_graph *g) {
    tern_scored_nodes s = {.dim = TERN_DIM_NONE};
    for (int32_t d = 0; d < g->n_dims; d++)
        if (strcmp(g->dims[d], scored) == 0) s.dim = d;
    if (s.dim == TERN_DIM_NONE) return s;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (!touches(g, &g->nodes[i], s.dim)) continue;
        if (s.end == 0) s.first = i;
        s.end = i + 1;
    }
    return s;
}

int64_t tern_graph_scored_cols(const tern_graph *g) {
    const tern_scored_nodes s = tern_graph_scored(g);
    int64_t widest = 0;
    for (size_t v = 0; s.end > 0 && v < g->n_values; v++)
        if (g->values[v].dim == s.dim && g->values[v].cols > widest) widest = g->values[v].cols;
    return widest;
}

int64_t tern_graph_logits_cols(const tern_graph *g) {
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_DISTILL) {
            const tern_value *teacher = &g->values[g->nodes[i].in[2]];
            bool is_kept = teacher->kind == TERN_VALUE_STATE; // no logits
            return g->values[g->nodes[i].in[0]].cols + (is_kept ? 0 : teacher->cols);
        }
    return tern_graph_scored_cols(g);
}

int32_t tern_graph_scored_rows(const tern_graph *g, uint64_t bytes, int32_t step, int32_t n_rows) {
    uint64_t widest = (uint64_t)tern_graph_scored_cols(g);
    if (widest == 0) return n_rows;
    uint64_t steps = bytes / sizeof(float) / widest / (uint64_t)step;
    uint64_t rows = (steps > 0 ? steps : 1) * (uint64_t)step;
    return rows < (uint64_t)n_rows ? (int32_t)rows : n_rows;
}
