// One step of the optimizer as a graph of its own: it reads the gradients that the first left.
#include <stdio.h>
#include "graph/build.h"

static tern_vid state_like(tern_graph *g, const char *prefix, const tern_value *w) {
    char name[GRAD_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", prefix, w->name);
    return tern_g_named(g, name, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, w->rows, w->cols);
}

static void simple_node(tern_graph *g, tern_op op, tern_vid a, tern_vid b) {
    tern_node *n = tern_g_node(g, op);
    tern_g_in(g, n, a);
    if (b >= 0) tern_g_in(g, n, b);
}

// Whether a layer multiplies with this weight, perhaps rounded: no table, no head, no experts.
static bool is_hidden_matrix(const tern_graph *g, tern_vid w) {
    const tern_value *v = &g->values[w];
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        bool reads = n->n_in > 1 && n->in[1] == w;
        if (n->op == TERN_OP_EMBED && reads) return false;
        if (n->op == TERN_OP_LINEAR && reads && n->layer < 0) return false;
    }
    return v->is_matrix && !v->is_table && v->parts <= 1 && v->rows > 1 && v->cols > 1;
}

static tern_op op_for(const tern_graph *g, tern_update_kind kind, tern_vid w) {
    const tern_value *v = &g->values[w];
    if (kind == TERN_UPDATE_ADAMW8 && v->rows * v->cols >= TERN_ADAMW8_LEAST) return TERN_OP_ADAMW8;
    return kind == TERN_UPDATE_MUON && is_hidden_matrix(g, w) ? TERN_OP_MUON : TERN_OP_ADAMW;
}

static tern_vid blocks_like(tern_graph *g, const char *prefix, const tern_value *w) {
    char name[GRAD_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", prefix, w->name);
    int64_t n_blocks = (w->rows * w->cols + TERN_ADAMW8_BLOCK - 1) / TERN_ADAMW8_BLOCK;
    return tern_g_named(g, name, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, n_blocks,
                        TERN_ADAMW8_FLOATS);
}

static void update_weight(tern_graph *update, tern_op op, const tern_value *w, tern_vid grad,
                          tern_vid norm2) {
    tern_vid (*moment)(tern_graph * g, const char *prefix, const tern_value *w) =
        op == TERN_OP_ADAMW8 ? blocks_like : state_like;
    tern_vid weight = tern_g_named(update, w->name, TERN_VALUE_WEIGHT, TERN_VALUE_F32,
                                   TERN_DIM_NONE, w->rows, w->cols);
    tern_vid m = moment(update, "m.", w), v = op == TERN_OP_MUON ? -1 : moment(update, "v.", w);
    tern_node *n = tern_g_node(update, op);
    tern_g_in(update, n, weight);
    tern_g_in(update, n, grad);
    tern_g_in(update, n, m);
    if (v >= 0) tern_g_in(update, n, v);
    tern_g_in(update, n, norm2);
    if (n) n->update = (tern_update_attrs){w->is_matrix || w->is_table, 1};
}

static bool decodes(const tern_node *n, int k) {
    switch (n->op) {
    case TERN_OP_TERNARIZE:
    case TERN_OP_FAKE_QUANTIZE: return k == 0;
    case TERN_OP_EMBED:
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_GRAD_X:
    case TERN_OP_ROW_FACTORS: return k == 1;
    case TERN_OP_EXPERTS:
    case TERN_OP_EXPERTS_GRAD_X:
    case TERN_OP_EXPERTS_GRAD_SUM: return k == 2;
    default: return false;
    }
}

bool tern_graph_decodes(const tern_graph *g, tern_vid v) {
    bool any = false;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k] != v) continue;
            if (!decodes(&g->nodes[i], k)) return false;
            any = true;
        }
    return any;
}

tern_status tern_graph_optimizer(const tern_graph *g, tern_update_kind kind, tern_graph *update,
                                 tern_error *err) {
    tern_vid norm2 =
        tern_g_named(update, "grad_norm2", TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, 1, 1);
    simple_node(update, TERN_OP_ZERO, norm2, -1);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < g->n_values; i++) {
            const tern_value *w = &g->values[i];
            char name[GRAD_NAME_BYTES];
            snprintf(name, sizeof name, "grad.%s", w->name);
            if (w->kind != TERN_VALUE_WEIGHT || tern_graph_find(g, name) < 0) continue;
            tern_vid grad = state_like(update, "grad.", w);
            if (pass == 0) {
                simple_node(update, TERN_OP_SQUARES_INTO, grad, norm2);
                continue;
            }
            update_weight(update, op_for(g, kind, (tern_vid)i), w, grad, norm2);
            simple_node(update, TERN_OP_ZERO, grad, -1);
        }
    return tern_graph_check(update, err);
}
