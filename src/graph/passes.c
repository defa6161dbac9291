// Passes over a graph. Each looks for a pattern, rewrites the nodes in place, marks unneeded ones
// as dead, and lets sweep() close the gaps.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

#define DEAD TERN_OP_COUNT

static tern_node *producer(const tern_graph *g, tern_vid v) {
    int32_t p = g->values[v].producer;
    return p >= 0 ? &g->nodes[p] : NULL;
}

static int n_readers(const tern_graph *g, tern_vid v) {
    int n = g->values[v].kind == TERN_VALUE_OUTPUT;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; g->nodes[i].op != DEAD && k < g->nodes[i].n_in; k++)
            n += g->nodes[i].in[k] == v;
    return n;
}

// The only live node that reads v; NULL: none or several.
static tern_node *only_reader(const tern_graph *g, tern_vid v) {
    if (n_readers(g, v) != 1) return NULL;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; g->nodes[i].op != DEAD && k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == v) return &g->nodes[i];
    return NULL;
}

static bool has_effect(const tern_node *n) { return n->n_out == 0 || tern_node_stores(n); }

// Removes dead nodes and those whose results are never read; updates the producers.
static void sweep(tern_graph *g) {
    for (size_t i = g->n_nodes; i-- > 0;) {
        tern_node *n = &g->nodes[i];
        if (n->op == DEAD || has_effect(n)) continue;
        bool read = false;
        for (int k = 0; k < n->n_out; k++) read = read || n_readers(g, n->out[k]) > 0;
        if (!read) n->op = DEAD;
    }
    size_t kept = 0;
    for (size_t i = 0; i < g->n_values; i++) g->values[i].producer = -1;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op == DEAD) continue;
        g->nodes[kept] = g->nodes[i];
        for (int k = 0; k < g->nodes[kept].n_out; k++)
            g->values[g->nodes[kept].out[k]].producer = (int32_t)kept;
        kept++;
    }
    g->n_nodes = kept;
}

tern_node *tern_g_insert(tern_graph *g, size_t i) {
    if (tern_array_reserve(TERN_MEM_GRAPH, &g->nodes, &g->nodes_capacity, g->n_nodes, 1) != 0)
        return NULL;
    memmove(&g->nodes[i + 1], &g->nodes[i], (g->n_nodes - i) * sizeof *g->nodes);
    g->n_nodes++;
    for (size_t k = 0; k < g->n_values; k++)
        if (g->values[k].producer >= (int32_t)i) g->values[k].producer++;
    return &g->nodes[i];
}

// ---- Lowering ----------------------------------------------------------------------------------

// What `like`, a node of one input without outputs, makes of it: of an earlier node, or of a new
// one before node i.
static tern_vid rounded(tern_graph *g, tern_node like, tern_value_type type, size_t *i,
                        tern_error *err) {
    const tern_vid x = like.in[0];
    for (size_t k = 0; k < *i; k++)
        if (g->nodes[k].op == like.op && g->nodes[k].in[0] == x &&
            g->values[g->nodes[k].out[0]].type == type)
            return g->nodes[k].out[0];
    tern_value made = g->values[x];
    like.layer = g->nodes[*i].layer;
    if (tern_array_reserve(TERN_MEM_GRAPH, &g->values, &g->values_capacity, g->n_values, 1) != 0 ||
        !tern_g_insert(g, *i)) {
        tern_fail_memory(err, sizeof *g->nodes);
        return -1;
    }
    tern_vid q = (tern_vid)g->n_values++;
    made.kind = TERN_VALUE_TEMP;
    made.type = type;
    made.producer = (int32_t)*i;
    snprintf(made.name, sizeof made.name, "%s.%d", tern_op_name(like.op), (int)q);
    g->values[q] = made;
    like.n_in = like.n_out = 1;
    like.out[0] = q;
    g->nodes[(*i)++] = like;
    return q;
}

static tern_vid quantized(tern_graph *g, tern_vid x, tern_value_type type, size_t *i,
                          tern_error *err) {
    return rounded(g, (tern_node){.op = TERN_OP_QUANTIZE, .in = {x}}, type, i, err);
}

tern_status tern_pass_lower(tern_graph *g, const tern_weight_kind *kinds, tern_error *err) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != TERN_OP_LINEAR) continue;
        tern_vid x = g->nodes[i].in[0], w = g->nodes[i].in[1];
        const tern_node *made_w = producer(g, w), *made_x = producer(g, x);
        if (made_w && made_w->op == TERN_OP_TERNARIZE) w = made_w->in[0];
        if (made_x && made_x->op == TERN_OP_QUANTIZE) x = made_x->in[0];
        if (kinds[w] != TERN_WEIGHT_FLOAT) {
            bool rows = kinds[w] == TERN_WEIGHT_TERNARY;
            x = quantized(g, x, rows ? TERN_VALUE_I8ROWS : TERN_VALUE_I8GROUPS, &i, err);
            if (x < 0) return TERN_ERR_MEMORY;
        }
        g->nodes[i].in[0] = x;
        g->nodes[i].in[1] = w;
    }
    sweep(g);
    return tern_graph_check(g, err);
}

tern_status tern_pass_fake_quantize(tern_graph *g, const tern_dtype *types, tern_error *err) {
    const size_t n_weights = g->n_values;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const bool experts = g->nodes[i].op == TERN_OP_EXPERTS;
        if (g->nodes[i].op != TERN_OP_LINEAR && !experts) continue;
        const int at = experts ? 2 : 1;
        const tern_vid w = g->nodes[i].in[at];
        if ((size_t)w >= n_weights || types[w] == TERN_DTYPE_F32) continue;
        const tern_node of_w = {.op = TERN_OP_FAKE_QUANTIZE, .in = {w}, .dtype = (int32_t)types[w]};
        const tern_node of_x = {
            .op = TERN_OP_QUANTIZE, .in = {g->nodes[i].in[0]}, .group = TERN_QAT_GROUP};
        tern_vid y = rounded(g, of_w, TERN_VALUE_F32, &i, err), x = -1;
        // Experts' products take floats.
        if (y >= 0 && !experts) x = rounded(g, of_x, TERN_VALUE_I8ROWS, &i, err);
        if (y < 0 || (x < 0 && !experts)) return TERN_ERR_MEMORY;
        g->nodes[i].in[at] = y;
        if (!experts) g->nodes[i].in[0] = x;
    }
    return tern_graph_check(g, err);
}

// ---- Fusion ------------------------------------------------------------------------------------

// mul(act(gate), up) -> glu(gate, up)
static void fuse_glu(tern_graph *g, tern_node *mul) {
    for (int side = 0; side < 2; side++) {
        tern_node *act = producer(g, mul->in[side]);
        if (!act || act->op != TERN_OP_ACT || n_readers(g, act->out[0]) != 1) continue;
        tern_vid up = mul->in[1 - side];
        mul->op = TERN_OP_GLU;
        mul->act = act->act;
        mul->in[0] = act->in[0];
        mul->in[1] = up;
        act->op = DEAD;
        return;
    }
}

// quantize(rms_norm(x)) -> norm_quantize(x), and with a glu before it glu_norm_quantize
static void fuse_norm_quantize(tern_graph *g, tern_node *quantize) {
    tern_node *norm = producer(g, quantize->in[0]);
    if (!norm || norm->op != TERN_OP_RMS_NORM || n_readers(g, norm->out[0]) != 1) return;
    if (g->values[norm->in[1]].cols != g->values[norm->in[0]].cols) return; // by groups
    quantize->op = TERN_OP_NORM_QUANTIZE;
    quantize->norm = norm->norm;
    quantize->in[0] = norm->in[0];
    quantize->in[1] = norm->in[1];
    quantize->n_in = 2;
    norm->op = DEAD;
    tern_node *glu = producer(g, quantize->in[0]);
    if (!glu || glu->op != TERN_OP_GLU || n_readers(g, glu->out[0]) != 1) return;
    quantize->op = TERN_OP_GLU_NORM_QUANTIZE; // in: gate, up, norm weight
    quantize->act = (tern_act_attrs){glu->act.kind, norm->norm.eps};
    quantize->in[2] = quantize->in[1];
    quantize->in[0] = glu->in[0];
    quantize->in[1] = glu->in[1];
    quantize->n_in = 3;
    glu->op = DEAD;
}

// Linears with one input become one node in the first one's place: in = x, W0, W1, ...
static void fuse_linear_group(tern_graph *g, size_t first) {
    tern_node *group = &g->nodes[first];
    for (size_t i = first + 1; i < g->n_nodes && group->n_out < TERN_NODE_OUTPUTS; i++) {
        tern_node *n = &g->nodes[i];
        if (n->op != TERN_OP_LINEAR || n->in[0] != group->in[0]) continue;
        if (tern_graph_gain_of(g, n) >= 0) continue;
        if (g->values[n->out[0]].kind == TERN_VALUE_OUTPUT) continue;
        group->in[group->n_in++] = n->in[1];
        group->out[group->n_out++] = n->out[0];
        n->op = DEAD;
    }
    if (group->n_out > 1) group->op = TERN_OP_LINEAR_GROUP;
}

// add(residual, linear(x, W)) -> linear_add(x, W, residual), which overwrites the residual: no
// later node may read it.
static void fuse_linear_add(tern_graph *g, tern_node *add) {
    for (int side = 0; side < 2; side++) {
        tern_node *linear = producer(g, add->in[side]);
        tern_vid residual = add->in[1 - side];
        if (!linear || linear->op != TERN_OP_LINEAR || n_readers(g, linear->out[0]) != 1) continue;
        if (g->values[residual].kind != TERN_VALUE_TEMP) continue;
        bool read_later = false;
        for (tern_node *n = add + 1; n < g->nodes + g->n_nodes; n++)
            for (int k = 0; n->op != DEAD && k < n->n_in; k++)
                read_later = read_later || n->in[k] == residual;
        if (read_later) continue;
        add->op = TERN_OP_LINEAR_ADD;
        add->in[0] = linear->in[0];
        add->in[1] = linear->in[1];
        add->in[2] = residual;
        add->n_in = 3;
        linear->op = DEAD;
        return;
    }
}

// The norm of whole rows, or the product with a number, that is only added to something.
static tern_node *norm_or_scale(const tern_graph *g, tern_vid v) {
    tern_node *n = producer(g, v);
    if (!n || n_readers(g, v) != 1) return NULL;
    bool whole = n->op == TERN_OP_RMS_NORM && g->values[n->in[1]].cols == g->values[v].cols;
    return whole || n->op == TERN_OP_SCALE ? n : NULL;
}

// add(residual, rms_norm(x)) -> norm_add(x, residual); add(residual, scale(x)) ->
// scale_add(residual, x)
static void fuse_add(tern_graph *g, tern_node *add) {
    for (int side = 0; side < 2; side++) {
        tern_node *made = norm_or_scale(g, add->in[side]);
        tern_vid residual = add->in[1 - side];
        // The same value for both would be two bindings of one place, which WebGPU refuses.
        if (!made || made->in[0] == residual) continue;
        bool is_norm = made->op == TERN_OP_RMS_NORM;
        add->op = is_norm ? TERN_OP_NORM_ADD : TERN_OP_SCALE_ADD;
        add->in[0] = is_norm ? made->in[0] : residual;
        add->in[1] = is_norm ? residual : made->in[0];
        if (is_norm) add->in[add->n_in++] = made->in[1];
        if (is_norm)
            add->norm = made->norm;
        else
            add->scale = made->scale;
        made->op = DEAD;
        return;
    }
}

// rope(q), rope(k), kv_store(k, v) -> rope_store: in = q, k, v, k_state, v_state and the rope's
// factors, if any; out = rotated q
static void fuse_rope_store(tern_graph *g, tern_node *store) {
    tern_node *rope_k = producer(g, store->in[0]), *rope_q = NULL, *attention = NULL;
    if (!rope_k || rope_k->op != TERN_OP_ROPE || n_readers(g, rope_k->out[0]) != 1) return;
    for (tern_node *n = store; n < g->nodes + g->n_nodes && !attention; n++)
        if (n->op == TERN_OP_ATTENTION && n->in[1] == store->in[2]) attention = n;
    if (attention) rope_q = producer(g, attention->in[0]);
    if (!rope_q || rope_q->op != TERN_OP_ROPE || rope_q > store ||
        only_reader(g, rope_q->out[0]) != attention ||
        !tern_rope_same(&rope_q->rope.angles, &rope_k->rope.angles))
        return;
    store->op = TERN_OP_ROPE_STORE;
    store->rope.n_heads = rope_q->rope.n_heads;
    store->rope.angles = rope_q->rope.angles;
    store->in[4] = store->in[3];
    store->in[3] = store->in[2];
    store->in[2] = store->in[1];
    store->in[1] = rope_k->in[0];
    store->in[0] = rope_q->in[0];
    store->n_in = 5;
    for (int k = 1; k < rope_q->n_in; k++) store->in[store->n_in++] = rope_q->in[k];
    store->out[0] = rope_q->out[0];
    store->n_out = 1;
    rope_q->op = rope_k->op = DEAD;
}

static void fuse_top_k(tern_graph *g, tern_node *top_k) {
    tern_node *linear = producer(g, top_k->in[0]);
    if (!linear || linear->op != TERN_OP_LINEAR) return;
    top_k->op = TERN_OP_LINEAR_TOP_K;
    top_k->soft_cap = linear->soft_cap;
    top_k->in[0] = linear->in[0];
    top_k->in[1] = linear->in[1];
    top_k->n_in = 2;
}

tern_status tern_pass_fuse(tern_graph *g, tern_error *err) {
    for (size_t i = 0; i < g->n_nodes; i++) {
        tern_node *n = &g->nodes[i];
        switch (n->op) {
        case TERN_OP_MUL: fuse_glu(g, n); break;
        case TERN_OP_QUANTIZE: fuse_norm_quantize(g, n); break;
        case TERN_OP_ADD:
            fuse_linear_add(g, n);
            if (n->op == TERN_OP_ADD) fuse_add(g, n);
            break;
        case TERN_OP_TOP_K: fuse_top_k(g, n); break;
        default: break;
        }
    }
    sweep(g);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_KV_STORE) fuse_rope_store(g, &g->nodes[i]);
    sweep(g);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR && tern_graph_gain_of(g, &g->nodes[i]) < 0 &&
            g->values[g->nodes[i].out[0]].kind != TERN_VALUE_OUTPUT)
            fuse_linear_group(g, i);
    sweep(g);
    return tern_graph_check(g, err);
}
