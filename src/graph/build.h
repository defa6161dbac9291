// Private to the graph's files: the primitives that builders use. All record a failure in the graph
// and return -1 or NULL afterwards, so one check at the end is enough.
#ifndef TERN_GRAPH_BUILD_H
#define TERN_GRAPH_BUILD_H

#include "graph/graph.h"

// For names with "grad." and the like in front; the graph refuses those that are too long.
#define GRAD_NAME_BYTES (TERN_NAME_BYTES + 8)

tern_vid tern_g_value(tern_graph *g, tern_value_kind kind, tern_value_type type, tern_dim dim,
                      int64_t rows, int64_t cols);
// The value of this name (%d: the layer), created if needed.
tern_vid tern_g_named(tern_graph *g, const char *name, tern_value_kind kind, tern_value_type type,
                      tern_dim dim, int64_t rows, int64_t cols);
// " name=value" of each attribute that is not 0.
void tern_g_print_attrs(const tern_node *n, tern_strbuf *out);
tern_node *tern_g_node(tern_graph *g, tern_op op);
static inline bool tern_g_rounds_weight(const tern_node *n) {
    return n->op == TERN_OP_TERNARIZE || n->op == TERN_OP_FAKE_QUANTIZE;
}
// Columns of the first output, by the op's row; -1: it has none.
int64_t tern_g_columns_of(const tern_graph *g, const tern_node *n);
bool tern_g_has_gradient(const tern_node *n); // a rule in differentiate.c
// Opens a gap for one node at index i; NULL: out of memory, which the graph does not record.
tern_node *tern_g_insert(tern_graph *g, size_t i);
void tern_g_in(tern_graph *g, tern_node *n, tern_vid v);
// Adds a temp of `cols` columns, with the rows of `like`, as the node's next output.
tern_vid tern_g_out(tern_graph *g, tern_node *n, tern_vid like, tern_value_type type, int64_t cols);
// Ops of inference become ops of training, for all rows, as far as they lead to `result`
// (train_graph.c).
tern_status tern_g_for_rows(tern_graph *g, tern_vid result, tern_error *err);
// Appends a node that adds the sum of x to the state of one number.
void tern_g_sum_into(tern_graph *g, tern_vid x, const char *state);
// Inserts the take_scored before the head that makes these logits (scored.c); returns the logits of
// the scored rows. Then its gradient, in the rows of `like`.
tern_vid tern_g_take_scored(tern_graph *g, tern_vid logits);
tern_vid tern_g_put_scored(tern_graph *g, tern_vid rows, tern_vid like);

#endif
