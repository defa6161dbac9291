// Which values may share memory: two values whose lifetimes, from the node that writes them to the
// last node that reads them, do not overlap. Placing the largest first at the lowest offset that is
// free during its life is within a few percent of the optimum for chains like these.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/graph.h"

typedef struct life {
    tern_vid v;
    int32_t from, to;
    uint64_t bytes, offset;
} life;

static int by_size(const void *a, const void *b) {
    const life *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->v - y->v;
}

// The input that a node overwrites with its first output; -1: none.
static tern_vid in_place_of(const tern_node *n) {
    int i = tern_op_info(n->op)->in_place;
    return i >= 0 && i < n->n_in ? n->in[i] : -1;
}

// The value whose memory v uses: follows values computed in place to their root.
static tern_vid root_of(const tern_graph *g, tern_vid v) {
    for (;;) {
        int32_t p = g->values[v].producer;
        tern_vid from = p >= 0 && g->nodes[p].out[0] == v ? in_place_of(&g->nodes[p]) : -1;
        if (from < 0) return v;
        v = from;
    }
}

static bool quantizes(tern_op op) {
    return op == TERN_OP_QUANTIZE || op == TERN_OP_NORM_QUANTIZE || op == TERN_OP_GLU_NORM_QUANTIZE;
}
static bool multiplies(tern_op op) {
    return op == TERN_OP_LINEAR || op == TERN_OP_LINEAR_GROUP || op == TERN_OP_LINEAR_ADD;
}

// Whether one dispatch may compute both, which follow each other: norms of queries and of keys, or
// a row, its products and what becomes of these.
static bool may_be_one(tern_op a, tern_op b) {
    switch (a) {
    case TERN_OP_RMS_NORM: return b == TERN_OP_RMS_NORM;
    case TERN_OP_NORM_ADD: return quantizes(b);
    case TERN_OP_GLU: return b == TERN_OP_QUANTIZE;
    default: break;
    }
    if (quantizes(a)) return multiplies(b);
    return multiplies(a) &&
           (b == TERN_OP_GLU || b == TERN_OP_GLU_NORM_QUANTIZE || b == TERN_OP_SCALE_ADD);
}

// The last of the nodes that may be computed at once with node i: its inputs live until then.
static size_t read_until(const tern_graph *g, size_t i) {
    if (multiplies(g->nodes[i].op)) return i;
    while (i + 1 < g->n_nodes && may_be_one(g->nodes[i].op, g->nodes[i + 1].op)) i++;
    return i;
}

// Nodes that are run once for each piece of the scored rows: what they read from before, or leave
// for later, is there in all of their runs.
static void outlive_pieces(const tern_graph *g, life *lives) {
    const tern_scored_nodes s = tern_graph_scored(g);
    const int32_t first = (int32_t)s.first, end = (int32_t)s.end;
    for (size_t v = 0; v < g->n_values; v++) {
        life *l = &lives[v];
        if (g->values[v].dim == s.dim || l->from >= end || l->to < first) continue;
        if (l->from >= first) l->from = first;
        if (l->to < end - 1) l->to = end - 1;
    }
}

static void find_lives(const tern_graph *g, life *lives) {
    for (size_t v = 0; v < g->n_values; v++) {
        lives[v] = (life){.v = (tern_vid)v, .from = g->values[v].producer, .to = -1};
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        int32_t last = (int32_t)read_until(g, i);
        for (int k = 0; k < n->n_in; k++) {
            life *l = &lives[root_of(g, n->in[k])];
            if (l->to < last) l->to = last;
        }
        for (int k = 0; k < n->n_out; k++) {
            life *l = &lives[root_of(g, n->out[k])];
            if (l->to < (int32_t)i) l->to = (int32_t)i;
            if (g->values[n->out[k]].kind == TERN_VALUE_OUTPUT) l->to = INT32_MAX;
        }
    }
}

static void place(life *lives, size_t n_placed, life *l) {
    // Try offset 0 and the end of every neighbour in time, lowest first: few values, so no index.
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n_placed; i++) {
            const life *o = &lives[i];
            if (o->to < l->from || o->from > l->to) continue;
            if (at < o->offset + o->bytes && o->offset < at + l->bytes) {
                at = o->offset + o->bytes;
                moved = true;
            }
        }
    }
    l->offset = at;
}

tern_status tern_graph_plan_memory(const tern_graph *g, tern_value_bytes_fn value_bytes,
                                   const void *ctx, tern_memory_plan *plan, tern_error *err) {
    *plan = (tern_memory_plan){0};
    life *lives = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *lives);
    plan->spans = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *plan->spans);
    if (!lives || !plan->spans) {
        tern_free(lives);
        tern_memory_plan_free(plan);
        return tern_fail_memory(err, g->n_values * sizeof *lives);
    }
    find_lives(g, lives);
    if (tern_graph_scored(g).end > 0) outlive_pieces(g, lives);
    size_t n_planned = 0;
    for (size_t v = 0; v < g->n_values; v++) {
        life l = lives[v];
        bool temp = g->values[v].kind == TERN_VALUE_TEMP || g->values[v].kind == TERN_VALUE_OUTPUT;
        l.bytes = temp && l.from >= 0 && root_of(g, l.v) == l.v ? value_bytes(ctx, g, l.v) : 0;
        l.bytes = (l.bytes + 63) / 64 * 64;
        if (l.bytes > 0) lives[n_planned++] = l;
    }
    qsort(lives, n_planned, sizeof *lives, by_size);
    for (size_t i = 0; i < n_planned; i++) {
        place(lives, i, &lives[i]);
        plan->spans[lives[i].v] = (tern_span){lives[i].offset, lives[i].bytes};
        plan->bytes_sum += lives[i].bytes;
        if (plan->bytes < lives[i].offset + lives[i].bytes)
            plan->bytes = lives[i].offset + lives[i].bytes;
    }
    for (size_t v = 0; v < g->n_values; v++)
        if (root_of(g, (tern_vid)v) != (tern_vid)v)
            plan->spans[v] = plan->spans[root_of(g, (tern_vid)v)];
    tern_free(lives);
    return TERN_OK;
}

void tern_memory_plan_free(tern_memory_plan *plan) {
    tern_free(plan->spans);
    *plan = (tern_memory_plan){0};
}
