// The pass that adds LoRA (arXiv:2106.09685) to the matrices of a graph:
//
//   y = linear(x, W)   becomes   y = linear(linear(x, A), B) + linear(x, W)
//
// with A [rank, n_in] and B [n_out, rank]. The low-rank path reads x itself, in float, even if W is
// ternary and x is quantized for it: an adapter deserves full precision, and costs only rank *
// (n_in + n_out) weights compared to n_in * n_out. It only uses ops that every backend has.
// DoRA (arXiv:2402.09353) multiplies each column of that sum by a factor, which depends on the
// weights alone: with f = m / |W + B A|, by row, y = f (W x + B (A x)). Training computes f in the
// graph (row_factors), in each run.
// Training needs B without its factor s: then linear(., s I) comes between the two. Where each row
// has its own factor, it is between them, too, and every adapter has its own path.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

// The weight that a linear multiplies with, after the op that rounds it.
static const tern_value *weight_of(const tern_graph *g, const tern_node *linear) {
    const tern_value *w = &g->values[linear->in[1]];
    bool rounded = w->producer >= 0 && g->nodes[w->producer].op == TERN_OP_TERNARIZE;
    return rounded ? &g->values[g->nodes[w->producer].in[0]] : w;
}

// The linear's input, before the ops that quantize and rotate it for the weight.
static tern_vid input_of(const tern_graph *g, const tern_node *linear) {
    tern_vid x = linear->in[0];
    for (int32_t p = g->values[x].producer;
         p >= 0 && (g->nodes[p].op == TERN_OP_QUANTIZE ||
                    (g->nodes[p].op == TERN_OP_HADAMARD && !g->nodes[p].rotation.inverse));
         p = g->values[x].producer)
        x = g->nodes[p].in[0];
    return x;
}

// g, and where it goes with its adapters: value v of g is value now[v] of `to`.
typedef struct rebuilt {
    tern_graph *to;
    const tern_graph *g;
    const tern_low_rank *adapters;
    tern_vid gains; // -1: all rows alike
    tern_vid *now;
} rebuilt;

#define NAME_BYTES (TERN_NAME_BYTES + 24)

// What the adapter of a weight is called.
static void name_of(const tern_low_rank *adapters, const tern_value *w, const char *part,
                    char name[static NAME_BYTES]) {
    if (adapters->n_gains)
        snprintf(name, NAME_BYTES, "%s.%d%s", w->name, (int)adapters->gain, part);
    else
        snprintf(name, NAME_BYTES, "%s%s", w->name, part);
}

static int64_t rank_of(const tern_low_rank *adapters, const tern_value *w) {
    char name[NAME_BYTES];
    name_of(adapters, w, "", name);
    return adapters->rank_of(adapters->ctx, name);
}

// y times DoRA's factors, which pages do not have.
static tern_vid scale_rows(const rebuilt *r, tern_vid y, const tern_value *w,
                           const tern_vid in[4]) {
#ifndef TERN_NO_DORA
    char name[NAME_BYTES];
    if (r->adapters->magnitudes) {
        name_of(r->adapters, w, ".lora_m", name);
        tern_vid m = tern_g_vector(r->to, name, w->rows);
        tern_node *n = tern_g_node(r->to, TERN_OP_ROW_FACTORS);
        tern_g_in(r->to, n, m);
        for (int k = 0; k < 4; k++) tern_g_in(r->to, n, in[k]);
        tern_vid f = tern_g_out(r->to, n, m, TERN_VALUE_F32, w->rows);
        tern_g_out(r->to, n, m, TERN_VALUE_F32, w->rows);
        return tern_g_scale_by(r->to, y, f);
    }
    name_of(r->adapters, w, "", name);
    if (!r->adapters->has_factors || !r->adapters->has_factors(r->adapters->ctx, name)) return y;
    name_of(r->adapters, w, ".lora_f", name);
    return tern_g_scale_by(r->to, y, tern_g_vector(r->to, name, w->rows));
#else
    return (void)r, (void)w, (void)in, y;
#endif
}

// Adds the path for linear i of g, which is already in `to`; y's readers find the sum in now[y].
static tern_status add_path(const rebuilt *r, size_t i, int64_t rank, tern_error *err) {
    tern_graph *to = r->to;
    const tern_graph *g = r->g;
    const char *scale = r->adapters->scale;
    const tern_node *linear = &g->nodes[i];
    tern_value w = *weight_of(g, linear);
    tern_vid y = linear->out[0], x = r->now[input_of(g, linear)];
    char name[NAME_BYTES];
    if (g->values[y].kind == TERN_VALUE_OUTPUT)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "an adapter of %s, the output head, is not supported", w.name);
    to->layer = linear->layer;
    name_of(r->adapters, &w, ".lora_a", name);
    tern_vid a = tern_g_matrix(to, name, rank, w.cols), s = -1;
    tern_vid low = tern_g_linear(to, x, a);
    if (scale) low = tern_g_linear(to, low, s = tern_g_matrix(to, scale, rank, rank));
    if (r->gains >= 0) low = tern_g_gain(to, low, r->gains, r->adapters->gain);
    name_of(r->adapters, &w, ".lora_b", name);
    tern_vid b = tern_g_matrix(to, name, w.rows, rank);
    low = tern_g_linear(to, low, b);
    // This order lets the sum be fused with the product before it, and W stay in its group.
    const tern_vid in[] = {(tern_vid)(weight_of(g, linear) - g->values), a, b, s};
    r->now[y] = scale_rows(r, tern_g_add(to, low, y), &w, in);
    return TERN_OK;
}

static tern_status rebuild(const rebuilt *r, tern_error *err) {
    tern_graph *to = r->to;
    const tern_graph *g = r->g;
    tern_vid *now = r->now;
    for (size_t v = 0; v < g->n_values; v++) now[v] = (tern_vid)v;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        tern_node *copy = tern_g_node(to, n->op);
        if (!copy) break;
        *copy = *n;
        for (int k = 0; k < n->n_in; k++) copy->in[k] = now[n->in[k]];
        for (int k = 0; k < n->n_out; k++)
            to->values[n->out[k]].producer = (int32_t)(to->n_nodes - 1);
        int64_t rank = n->op == TERN_OP_LINEAR ? rank_of(r->adapters, weight_of(g, n)) : 0;
        if (rank > 0) TERN_TRY(add_path(r, i, rank, err));
    }
    return tern_graph_check(to, err);
}

tern_status tern_pass_low_rank(tern_graph *g, const tern_low_rank *adapters, tern_error *err) {
    tern_graph to;
    TERN_TRY(tern_graph_copy(&to, g, err));
    to.n_nodes = 0; // the values keep their numbers, the nodes are added again
    tern_vid gains = -1;
    if (adapters->n_gains)
        gains = tern_g_input(&to, TERN_LORA_GAINS, tern_g_dim(&to, "tokens"), adapters->n_gains,
                             TERN_VALUE_F32);
    tern_vid *now = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *now);
    tern_status status = now ? rebuild(&(rebuilt){&to, g, adapters, gains, now}, err)
                             : tern_fail_memory(err, g->n_values * sizeof *now);
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

// ---- Which nodes a gain is for -----------------------------------------------------------------

static const tern_node *only_reader(const tern_graph *g, tern_vid v) {
    const tern_node *reader = NULL;
    if (g->values[v].kind == TERN_VALUE_OUTPUT) return NULL;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k] != v) continue;
            if (reader) return NULL;
            reader = &g->nodes[i];
        }
    return reader;
}

// The product with A, the gain, and the product with B, which adds to what is there already.
int32_t tern_graph_gain_of(const tern_graph *g, const tern_node *n) {
    if (n->op == TERN_OP_GAIN) {
        const tern_node *reader = only_reader(g, n->out[0]);
        return reader && reader->op == TERN_OP_LINEAR_ADD ? n->first : -1;
    }
    if (n->op == TERN_OP_LINEAR) {
        const tern_node *reader = only_reader(g, n->out[0]);
        return reader && reader->op == TERN_OP_GAIN ? tern_graph_gain_of(g, reader) : -1;
    }
    if (n->op != TERN_OP_LINEAR_ADD || g->values[n->in[0]].producer < 0) return -1;
    const tern_node *before = &g->nodes[g->values[n->in[0]].producer];
    return before->op == TERN_OP_GAIN ? tern_graph_gain_of(g, before) : -1;
}
