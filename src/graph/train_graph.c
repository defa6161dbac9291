// From a model's graph of inference to one that ends in a loss: caches and states go, all rows are
// scored. differentiate.c appends its gradient.
#include <stdio.h>
#include "base/alloc.h"
#include "graph/build.h"

// The node that stores into this state of keys and values.
static const tern_node *store_of(const tern_graph *g, tern_vid state) {
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_KV_STORE && g->nodes[i].in[2] == state) return &g->nodes[i];
    return NULL;
}

// Attention over the cache becomes attention among the rows that fill it.
static tern_status without_cache(tern_graph *g, tern_node *n, tern_error *err) {
    const tern_node *store = store_of(g, n->in[1]);
    if (!store)
        return tern_fail(err, TERN_ERR_FORMAT, "graph: nothing stores into %s",
                         g->values[n->in[1]].name);
    n->op = TERN_OP_ATTENTION_SEQ;
    n->in[1] = store->in[0];
    n->in[2] = store->in[1];
    // For the gradient: log of the sum of each row's exponentials, by head.
    tern_g_out(g, n, n->in[0], TERN_VALUE_F32, n->attention.n_heads);
    return TERN_OK;
}

// Node *i makes a new value, from which `next` makes node *i's old result; *i becomes next's index.
static tern_status follow(tern_graph *g, size_t *i, tern_node next, tern_error *err) {
    tern_vid y = g->nodes[*i].out[0];
    if (tern_array_reserve(TERN_MEM_GRAPH, &g->values, &g->values_capacity, g->n_values, 1) != 0 ||
        !tern_g_insert(g, *i + 1))
        return tern_fail_memory(err, sizeof *g->nodes);
    tern_vid between = (tern_vid)g->n_values++;
    tern_value *v = &g->values[between];
    *v = g->values[y];
    v->kind = TERN_VALUE_TEMP;
    v->producer = (int32_t)*i;
    snprintf(v->name, sizeof v->name, "%s.%d", tern_op_name(g->nodes[*i].op), (int)between);
    g->nodes[*i].out[0] = next.in[0] = between;
    next.layer = g->nodes[*i].layer;
    next.out[0] = y;
    next.n_out = 1;
    g->nodes[++*i] = next;
    g->values[y].producer = (int32_t)*i;
    return TERN_OK;
}

// Convolution over the state becomes convolution among the rows; its bias and its activation become
// separate nodes. *i: the convolution's index, then the last node's.
static tern_status without_tail(tern_graph *g, size_t *i, tern_error *err) {
    tern_node *n = &g->nodes[*i];
    tern_act_attrs act = n->act;
    tern_vid bias = tern_node_optional(n, 0);
    n->op = TERN_OP_DEPTHWISE_CONV_SEQ; // which has no attributes
    n->n_in = 2;
    if (bias >= 0)
        TERN_TRY(follow(g, i, (tern_node){.op = TERN_OP_BIAS, .in = {-1, bias}, .n_in = 2}, err));
    if (act.kind != TERN_ACTIVATION_NONE)
        TERN_TRY(follow(g, i, (tern_node){.op = TERN_OP_ACT, .act = act, .n_in = 1}, err));
    return TERN_OK;
}

// Scores are capped by a separate node.
static tern_status without_cap(tern_graph *g, size_t *i, tern_error *err) {
    tern_node *n = &g->nodes[*i];
    float cap = n->soft_cap;
    n->soft_cap = 0;
    return follow(g, i, (tern_node){.op = TERN_OP_CAP, .soft_cap = cap, .n_in = 1}, err);
}

// A state space and a delta net, likewise, begin each document with zeros.
static void without_state(tern_node *n) {
    n->op = n->op == TERN_OP_SSM ? TERN_OP_SSM_SEQ : TERN_OP_DELTA_NET_SEQ;
    n->n_in = 5;
}

// Replaces v by w wherever it is read.
static void redirect(tern_graph *g, tern_vid v, tern_vid w) {
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] == v) g->nodes[i].in[k] = w;
}

// mul(act(gate), up) -> glu: one pass over memory instead of two, and likewise in its gradient.
static bool becomes_glu(tern_graph *g, tern_node *mul) {
    for (int side = 0; side < 2; side++) {
        int32_t p = g->values[mul->in[side]].producer;
        if (p < 0 || g->nodes[p].op != TERN_OP_ACT) continue;
        tern_vid up = mul->in[1 - side];
        *mul = (tern_node){.op = TERN_OP_GLU,
                           .layer = mul->layer,
                           .act = g->nodes[p].act,
                           .in = {g->nodes[p].in[0], up},
                           .out = {mul->out[0]},
                           .n_in = 2,
                           .n_out = 1};
        return true;
    }
    return false;
}

// Drops the nodes that only inference needs, and those whose results are no longer read, except
// `kept_value`.
static void drop_unread(tern_graph *g, tern_vid kept_value) {
    for (bool again = true; again;) {
        again = false;
        size_t kept = 0;
        for (size_t i = 0; i < g->n_nodes; i++) {
            const tern_node *n = &g->nodes[i];
            bool read = n->n_out > 0 && n->out[0] == kept_value;
            for (size_t j = i + 1; j < g->n_nodes; j++)
                for (int k = 0; k < g->nodes[j].n_in; k++)
                    for (int o = 0; o < n->n_out; o++) read |= g->nodes[j].in[k] == n->out[o];
            if (read && n->op != TERN_OP_KV_STORE) g->nodes[kept++] = *n;
        }
        again = kept != g->n_nodes;
        g->n_nodes = kept;
    }
    for (size_t i = 0; i < g->n_values; i++) g->values[i].producer = -1;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_out; k++)
            g->values[g->nodes[i].out[k]].producer = (int32_t)i;
}

void tern_g_sum_into(tern_graph *g, tern_vid x, const char *state) {
    tern_vid sum = tern_g_named(g, state, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, 1, 1);
    tern_node *n = tern_g_node(g, TERN_OP_SUM_INTO);
    tern_g_in(g, n, x);
    tern_g_in(g, n, sum);
}

// The losses of the rows are added up, or kept, where there is a state for them.
static void add_loss(tern_graph *g, tern_vid logits, tern_vid kept) {
    g->values[logits].kind = TERN_VALUE_TEMP;
    logits = tern_g_take_scored(g, logits);
    tern_vid targets = tern_g_input(g, "targets", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_node *n = tern_g_node(g, TERN_OP_CROSS_ENTROPY);
    tern_g_in(g, n, logits);
    tern_g_in(g, n, targets);
    tern_vid losses = tern_g_out(g, n, logits, TERN_VALUE_F32, 1);
    tern_g_out(g, n, logits, TERN_VALUE_F32, 1); // log of the sum of the exponentials
    tern_vid sum = tern_g_named(g, "loss", TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, 1, 1);
    n = tern_g_node(g, kept >= 0 ? TERN_OP_KEEP_SCORED : TERN_OP_SUM_INTO);
    tern_g_in(g, n, losses);
    tern_g_in(g, n, kept >= 0 ? kept : sum);
}

// Rows of images take the place of ids below 0, which a text has not.
static bool is_of_images(const tern_node *n) {
    return n->op == TERN_OP_REPLACE || n->op == TERN_OP_ADD_INPUT_EMBEDS;
}

// Ops that only serve caches or results are replaced or dropped.
static bool is_replaced(const tern_node *n) {
    switch (n->op) {
    case TERN_OP_KV_STORE:
    case TERN_OP_TAKE_ROWS:
    case TERN_OP_DEPTHWISE_CONV:
    case TERN_OP_SSM:
    case TERN_OP_DELTA_NET:
    case TERN_OP_ATTENTION:
    case TERN_OP_TOP_K: return true;
    default: return is_of_images(n);
    }
}

const char *tern_graph_untrainable(const tern_graph *g) {
    const tern_node *found = NULL;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (!found && !tern_g_has_gradient(n) && !is_replaced(n)) found = n;
    }
    return found ? tern_op_name(found->op) : NULL;
}

tern_status tern_g_for_rows(tern_graph *g, tern_vid result, tern_error *err) {
    const char *op = tern_graph_untrainable(g);
    if (op) return tern_fail(err, TERN_ERR_UNSUPPORTED, "graph: %s has no gradient", op);
    tern_dim tokens = tern_g_dim(g, "tokens"), outputs = tern_g_dim(g, "outputs");
    for (size_t i = 0; i < g->n_nodes; i++) {
        tern_node *n = &g->nodes[i];
        if (n->op == TERN_OP_ATTENTION) TERN_TRY(without_cache(g, n, err));
        if (n->op == TERN_OP_TAKE_ROWS || is_of_images(n)) redirect(g, n->out[0], n->in[0]);
        if (n->op == TERN_OP_MUL) becomes_glu(g, n);
        if (n->op == TERN_OP_SSM || n->op == TERN_OP_DELTA_NET) without_state(n);
        if (n->op == TERN_OP_DEPTHWISE_CONV)
            TERN_TRY(without_tail(g, &i, err));
        else if (n->op == TERN_OP_LINEAR && n->soft_cap != 0)
            TERN_TRY(without_cap(g, &i, err));
    }
    drop_unread(g, result);
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_out; k++) {
            tern_value *v = &g->values[g->nodes[i].out[k]];
            if (v->dim == outputs) v->dim = tokens;
            if (v->type == TERN_VALUE_I8ROWS) v->type = TERN_VALUE_F32;
        }
    g->layer = -1;
    return TERN_OK;
}

static tern_status train_rows(tern_graph *g, int64_t n_kept, tern_error *err) {
    tern_vid logits = tern_graph_find(g, "logits"), kept = -1;
    TERN_TRY(tern_g_for_rows(g, logits, err));
    if (logits < 0) return tern_fail(err, TERN_ERR_FORMAT, "graph: it has no logits");
    if (n_kept > 0)
        kept =
            tern_g_named(g, "losses", TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, n_kept, 1);
    add_loss(g, logits, kept);
    return tern_graph_check(g, err);
}

tern_status tern_graph_train(tern_graph *g, tern_error *err) { return train_rows(g, 0, err); }

tern_status tern_graph_train_rows(tern_graph *g, int64_t n_rows, tern_error *err) {
    return train_rows(g, n_rows, err);
}

// The graph then ends before its pooling node, which is copied to *pool.
static tern_status cut_at_pooling(tern_graph *g, tern_node *pool, tern_error *err) {
    size_t at = 0;
    while (at < g->n_nodes && g->nodes[at].op != TERN_OP_POOL) at++;
    if (at == g->n_nodes) return tern_fail(err, TERN_ERR_FORMAT, "graph: it pools nothing");
    for (size_t i = at; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "graph: products after the pooling have no gradient");
    *pool = g->nodes[at];
    g->n_nodes = at;
    return TERN_OK;
}

tern_status tern_graph_train_vectors(tern_graph *g, int64_t n_vectors, tern_error *err) {
    tern_node pool = {0};
    TERN_TRY(cut_at_pooling(g, &pool, err));
    TERN_TRY(tern_g_for_rows(g, pool.in[0], err));
    tern_vid targets = tern_g_input(g, "targets", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid vectors = tern_g_named(g, "vectors", TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE,
                                    n_vectors, g->values[pool.in[0]].cols);
    tern_g_named(g, "loss", TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, 1, 1);
    tern_node *n = tern_g_node(g, TERN_OP_POOL_SEQ);
    if (n) n->pool = pool.pool;
    tern_g_in(g, n, pool.in[0]);
    tern_g_in(g, n, targets);
    tern_g_in(g, n, vectors);
    return tern_graph_check(g, err);
}
