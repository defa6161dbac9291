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

tern_status tern_graph_optimizer(const tern_graph *g, tern_graph *update, tern_error *err) {
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
            tern_vid weight = tern_g_named(update, w->name, TERN_VALUE_WEIGHT, TERN_VALUE_F32,
                                           TERN_DIM_NONE, w->rows, w->cols);
            tern_vid in[] = {weight, grad, state_like(update, "m.", w), state_like(update, "v.", w),
                             norm2};
            tern_node *n = tern_g_node(update, TERN_OP_ADAMW);
            for (int k = 0; k < 5; k++) tern_g_in(update, n, in[k]);
            if (n) n->decays = w->is_matrix || w->is_table;
            simple_node(update, TERN_OP_ZERO, grad, -1);
        }
    return tern_graph_check(update, err);
}
