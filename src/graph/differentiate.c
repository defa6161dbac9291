// From a model's graph to its loss and its gradient.
//
// Reverse-mode differentiation, on the graph itself: for every node y = f(x), last one first, with
// dy = dLoss/dy known, nodes are appended that compute dx = (df/dx)^T dy. If several nodes read a
// value, it gets the sum of their gradients. So a backend trains by running a graph, as in
// inference.
//
// Per op (all row by row, T rows; W is [n_out, n_in]):
//   linear        y = x W^T            dx = dy W               dW += dy^T x
//   rms_norm      y = r x w            r = 1/sqrt(mean x^2 + eps), g = dy w, n columns of a group:
//                                      dx = r (g - x r^2 (x . g) / n)     dw += sum_t dy r x
//   group_norm    the same with w = 1
//   layer_norm    y = rms_norm(x - mean x) + b
//                                      dx = rms_norm's, minus its mean, db += sum_t dy
//   scale_by      y = s x              dx = s dy               ds += sum dy x
//   cap           y = c tanh(x / c)    dx = dy (1 - tanh(x / c)^2)
//   rope          a rotation           dx = dy rotated back
//   attention     P = softmax(s q K^T) dV = P^T dy, dP = dy V^T, dS = P (dP - rowsum(dy * y)),
//                 y = P V              dq = s dS K, dK = s dS^T q
//                                      with a soft cap S = c tanh(s q K^T / c): dS (1 - (S / c)^2)
//   conv          y[t] = sum_j w[j] x[t - last + j]
//                                      dx[t] = sum_j w[j] dy[t + last - j]
//                                      dw[j] += sum_t dy[t] x[t - last + j]
//   cross entropy -log p[target]       dlogits = p - onehot(target)
//   bias          y = x + b            dx = dy                 db += sum_t dy
//   ssm           per head, u = dt x:  G_t = C_t dy_t^T + e^(A dt_(t+1)) G_(t+1), from the last on;
//                 S_t = e^(A dt) S_(t-1) + B u^T,  y = S_t^T C + D x
//                                      du = G^T B, dB = G u, dC = S dy, dx = dt du + D dy
//                                      with q = e^(A dt) sum (G * S_(t-1)):
//                                      ddt = du . x + A q,  dA += dt q,  dD += dy . x
//   delta net     per head, k and q divided by their lengths, e = e^g, u = v - e S_(t-1)^T k:
//                 S_t = e S_(t-1) + k (beta u)^T,  y = S_t^T q
//                                      G = q dy^T + what row t + 1 left,  dq = S_t dy,
//                                      dbeta = k^T G u,  dv = beta G^T k,
//                                      dk = beta G u - e S_(t-1) dv,  G -= k dv^T,
//                                      dg = e sum (G * S_(t-1)), and e G is left to row t - 1
//   pool          v = mean of n rows   dx = dv / n; of the last or first row: dx = dv there, else 0
//   quantize, ternarize: dx = dy       (straight through)
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

// ---- To the loss -------------------------------------------------------------------------------

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

static void add_loss(tern_graph *g, tern_vid logits) {
    g->values[logits].kind = TERN_VALUE_TEMP;
    tern_vid targets = tern_g_input(g, "targets", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_node *n = tern_g_node(g, TERN_OP_CROSS_ENTROPY);
    tern_g_in(g, n, logits);
    tern_g_in(g, n, targets);
    tern_vid losses = tern_g_out(g, n, logits, TERN_VALUE_F32, 1);
    tern_g_out(g, n, logits, TERN_VALUE_F32, 1); // log of the sum of the exponentials
    n = tern_g_node(g, TERN_OP_SUM_INTO);
    tern_g_in(g, n, losses);
    tern_vid sum = tern_g_named(g, "loss", TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE, 1, 1);
    tern_g_in(g, n, sum);
}

// Ops of inference become ops of training, for all rows, as far as they lead to `result`.
static tern_status for_rows(tern_graph *g, tern_vid result, tern_error *err) {
    const char *op = tern_graph_untrainable(g);
    if (op) return tern_fail(err, TERN_ERR_UNSUPPORTED, "graph: %s has no gradient", op);
    tern_dim tokens = tern_g_dim(g, "tokens"), outputs = tern_g_dim(g, "outputs");
    for (size_t i = 0; i < g->n_nodes; i++) {
        tern_node *n = &g->nodes[i];
        if (n->op == TERN_OP_ATTENTION) TERN_TRY(without_cache(g, n, err));
        if (n->op == TERN_OP_TAKE_ROWS) redirect(g, n->out[0], n->in[0]);
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

tern_status tern_graph_train(tern_graph *g, tern_error *err) {
    tern_vid logits = tern_graph_find(g, "logits");
    TERN_TRY(for_rows(g, logits, err));
    if (logits < 0) return tern_fail(err, TERN_ERR_FORMAT, "graph: it has no logits");
    add_loss(g, logits);
    return tern_graph_check(g, err);
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
    TERN_TRY(for_rows(g, pool.in[0], err));
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

// ---- Backwards ---------------------------------------------------------------------------------

typedef struct gradients {
    tern_graph *g;
    const bool *frozen;
    tern_vid *of;    // [n_values of the forward graph]: gradient so far, -1: none
    bool *reaches;   // the value depends on a weight that is trained
    size_t n_values; // of the forward graph
    int32_t at;      // node whose gradient is being made; later nodes are done
} gradients;

static bool is_trained(const gradients *d, tern_vid w) {
    return d->g->values[w].kind == TERN_VALUE_WEIGHT && !(d->frozen && d->frozen[w]);
}

static void find_reach(gradients *d, size_t n_nodes) {
    for (size_t i = 0; i < n_nodes; i++) {
        const tern_node *n = &d->g->nodes[i];
        bool reaches = false;
        for (int k = 0; k < n->n_in; k++)
            reaches |= d->reaches[n->in[k]] || is_trained(d, n->in[k]);
        for (int k = 0; k < n->n_out; k++) d->reaches[n->out[k]] = reaches;
    }
}

// The state that collects the gradient of weight w (or of its master, if w is ternarized); -1:
// frozen.
static tern_vid sink(gradients *d, tern_vid w) {
    int32_t p = d->g->values[w].producer;
    if (p >= 0 && d->g->nodes[p].op == TERN_OP_TERNARIZE) w = d->g->nodes[p].in[0];
    if (!is_trained(d, w)) return -1;
    char name[GRAD_NAME_BYTES];
    snprintf(name, sizeof name, "grad.%s", d->g->values[w].name);
    return tern_g_named(d->g, name, TERN_VALUE_STATE, TERN_VALUE_F32, TERN_DIM_NONE,
                        d->g->values[w].rows, d->g->values[w].cols);
}

// Adds dv to the gradient of v so far.
static void send(gradients *d, tern_vid v, tern_vid dv) {
    d->of[v] = d->of[v] < 0 ? dv : tern_g_add(d->g, d->of[v], dv);
}

static tern_node *begin(gradients *d, const tern_node *forward, tern_op op) {
    d->g->layer = forward->layer;
    return tern_g_node(d->g, op);
}

static void inputs(gradients *d, tern_node *n, const tern_vid *v, int count) {
    for (int i = 0; i < count; i++) tern_g_in(d->g, n, v[i]);
}

// Whether a result of this op may be added in place to the gradient of x so far: that comes from
// the same op, and is not also, through a sum, the gradient of another value that is still to be
// read.
static bool may_add_to(const gradients *d, tern_vid x, tern_op op) {
    tern_vid dx = d->of[x];
    int32_t p = dx >= 0 ? d->g->values[dx].producer : -1;
    if (p < 0 || d->g->nodes[p].op != op) return false;
    for (size_t v = 0; v < d->n_values; v++)
        if ((tern_vid)v != x && d->of[v] == dx && d->g->values[v].producer < d->at) return false;
    return true;
}

static void linear_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid x = f->in[0], w = f->in[1], dw = sink(d, w);
    if (dw >= 0) inputs(d, begin(d, f, TERN_OP_LINEAR_GRAD_W), (tern_vid[]){dy, x, dw}, 3);
    if (!d->reaches[x]) return;
    bool in_place = may_add_to(d, x, TERN_OP_LINEAR_GRAD_X);
    tern_node *n = begin(d, f, TERN_OP_LINEAR_GRAD_X);
    inputs(d, n, (tern_vid[]){dy, w, d->of[x]}, in_place ? 3 : 2);
    tern_vid dx = tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols);
    if (in_place)
        d->of[x] = dx;
    else
        send(d, x, dx);
}

static void norm_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid x = f->in[0], dw = sink(d, f->in[1]);
    tern_node *n = begin(d, f, TERN_OP_RMS_NORM_GRAD);
    // x, w, dy, dw or none (then w is passed), and the value that the gradient is added to.
    inputs(d, n, (tern_vid[]){x, f->in[1], dy, dw >= 0 ? dw : f->in[1], d->of[x]},
           d->of[x] >= 0 ? 5 : 4);
    if (!n) return;
    n->norm = f->norm;
    d->of[x] = tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols);
}

static void attention_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_node *n = begin(d, f, TERN_OP_ATTENTION_GRAD);
    inputs(d, n, (tern_vid[]){f->in[0], f->in[1], f->in[2], f->out[0], f->out[1], dy}, 6);
    if (!n) return;
    n->attention = f->attention;
    tern_vid dx[3];
    for (int i = 0; i < 3; i++)
        dx[i] = tern_g_out(d->g, n, f->in[i], TERN_VALUE_F32, d->g->values[f->in[i]].cols);
    for (int i = 0; i < 3; i++) send(d, f->in[i], dx[i]);
}

static void conv_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid x = f->in[0], w = f->in[1], dw = sink(d, w);
    if (dw >= 0) inputs(d, begin(d, f, TERN_OP_DEPTHWISE_CONV_GRAD_W), (tern_vid[]){dy, x, dw}, 3);
    if (!d->reaches[x]) return;
    tern_node *n = begin(d, f, TERN_OP_DEPTHWISE_CONV_GRAD_X);
    inputs(d, n, (tern_vid[]){dy, w}, 2);
    send(d, x, tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols));
}

static void columns_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid x = f->in[0];
    bool in_place = may_add_to(d, x, TERN_OP_COLUMNS_GRAD);
    tern_node *n = begin(d, f, TERN_OP_COLUMNS_GRAD);
    inputs(d, n, (tern_vid[]){dy, d->of[x]}, in_place ? 2 : 1);
    if (!n) return;
    n->columns = f->columns;
    tern_vid dx = tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols);
    if (in_place)
        d->of[x] = dx;
    else
        send(d, x, dx);
}

static void rope_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid dx = tern_g_long_rope(d->g, dy, tern_node_optional(f, 0), tern_node_optional(f, 1),
                                   f->rope.n_heads, f->rope.head_dim, &f->rope.angles);
    if (dx < 0) return;
    d->g->nodes[d->g->n_nodes - 1].rope.inverse = !f->rope.inverse;
    send(d, f->in[0], dx);
}

static void mul_back(gradients *d, const tern_node *f, tern_vid dy) {
    for (int i = 0; i < 2; i++)
        if (d->reaches[f->in[i]]) send(d, f->in[i], tern_g_mul(d->g, dy, f->in[1 - i]));
}

// act_grad and glu_grad read the inputs of the forward node and dy, and yield one gradient for
// each.
static void both_back(gradients *d, const tern_node *f, tern_vid dy, tern_op op) {
    tern_node *n = begin(d, f, op);
    inputs(d, n, f->in, f->n_in);
    tern_g_in(d->g, n, dy);
    if (!n) return;
    n->act = f->act;
    tern_vid dx[2];
    for (int i = 0; i < f->n_in; i++)
        dx[i] = tern_g_out(d->g, n, f->in[i], TERN_VALUE_F32, d->g->values[f->in[i]].cols);
    for (int i = 0; i < f->n_in; i++) send(d, f->in[i], dx[i]);
}

static void cross_entropy_back(gradients *d, const tern_node *f, tern_vid dy) {
    (void)dy;
    tern_node *n = begin(d, f, TERN_OP_CROSS_ENTROPY_GRAD);
    inputs(d, n, (tern_vid[]){f->in[0], f->in[1], f->out[1]}, 3);
    d->of[f->in[0]] = tern_g_out(d->g, n, f->in[0], TERN_VALUE_F32, d->g->values[f->in[0]].cols);
}

// The gradient of the vectors comes from outside.
static void pool_back(gradients *d, const tern_node *f, tern_vid dy) {
    (void)dy;
    const tern_value *v = &d->g->values[f->in[2]];
    tern_vid dv = tern_g_named(d->g, "vectors.grad", TERN_VALUE_STATE, TERN_VALUE_F32,
                               TERN_DIM_NONE, v->rows, v->cols);
    tern_node *n = begin(d, f, TERN_OP_POOL_GRAD);
    inputs(d, n, (tern_vid[]){dv, f->in[1]}, 2);
    if (!n) return;
    n->pool = f->pool;
    tern_vid x = f->in[0];
    d->of[x] = tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols);
}

static void bias_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid db = sink(d, f->in[1]);
    if (db >= 0) inputs(d, begin(d, f, TERN_OP_BIAS_GRAD), (tern_vid[]){dy, db}, 2);
    send(d, f->in[0], dy);
}

static void layer_norm_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid x = f->in[0], dw = sink(d, f->in[1]), db = f->n_in > 2 ? sink(d, f->in[2]) : -1;
    if (db >= 0) inputs(d, begin(d, f, TERN_OP_BIAS_GRAD), (tern_vid[]){dy, db}, 2);
    tern_node *n = begin(d, f, TERN_OP_LAYER_NORM_GRAD);
    // x, w, dy, dw or none (then w is passed)
    inputs(d, n, (tern_vid[]){x, f->in[1], dy, dw >= 0 ? dw : f->in[1]}, 4);
    if (!n) return;
    n->norm = f->norm;
    send(d, x, tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols));
}

static void embed_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_vid dw = sink(d, f->in[1]);
    if (dw >= 0) inputs(d, begin(d, f, TERN_OP_EMBED_GRAD), (tern_vid[]){f->in[0], dy, dw}, 3);
}

static void glu_back(gradients *d, const tern_node *f, tern_vid dy) {
    both_back(d, f, dy, TERN_OP_GLU_GRAD);
}
static void act_back(gradients *d, const tern_node *f, tern_vid dy) {
    both_back(d, f, dy, TERN_OP_ACT_GRAD);
}
static void add_back(gradients *d, const tern_node *f, tern_vid dy) {
    send(d, f->in[0], dy);
    send(d, f->in[1], dy);
}
// dx of an op whose gradient depends only on x and dy, with the same attributes.
static void plain_back(gradients *d, const tern_node *f, tern_vid dy, tern_op op) {
    tern_node n = *f;
    n.op = op;
    n.in[1] = dy;
    n.n_in = 2;
    n.n_out = 0;
    d->g->layer = f->layer;
    send(d, f->in[0], tern_g_op(d->g, &n));
}
static void group_norm_back(gradients *d, const tern_node *f, tern_vid dy) {
    plain_back(d, f, dy, TERN_OP_GROUP_NORM_GRAD);
}
static void cap_back(gradients *d, const tern_node *f, tern_vid dy) {
    plain_back(d, f, dy, TERN_OP_CAP_GRAD);
}

static void scale_by_back(gradients *d, const tern_node *f, tern_vid dy) {
    const tern_vid x = f->in[0], s = f->in[1];
    tern_vid ds = sink(d, s);
    if (ds >= 0) {
        tern_vid products = tern_g_mul(d->g, dy, x);
        inputs(d, begin(d, f, TERN_OP_SUM_INTO), (tern_vid[]){products, ds}, 2);
    }
    if (d->reaches[x]) send(d, x, tern_g_scale_by(d->g, dy, s));
}

static void pieces_back(gradients *d, const tern_node *f, tern_vid dy) {
    tern_node *n = begin(d, f, TERN_OP_SCALE_PIECES);
    inputs(d, n, &dy, 1);
    if (!n) return;
    n->pieces = f->pieces;
    send(d, f->in[0], tern_g_out(d->g, n, dy, TERN_VALUE_F32, d->g->values[dy].cols));
}

// Adds the sum of all rows to the gradient of a weight that is trained.
static void sum_rows(gradients *d, const tern_node *f, tern_vid rows, tern_vid w) {
    tern_vid dw = sink(d, w);
    if (dw >= 0) inputs(d, begin(d, f, TERN_OP_BIAS_GRAD), (tern_vid[]){rows, dw}, 2);
}

static void ssm_back(gradients *d, const tern_node *f, tern_vid dy) {
    const tern_vid xbc = f->in[0], dt = f->in[1];
    bool rates = is_trained(d, f->in[2]) || is_trained(d, f->in[3]);
    tern_node *n = begin(d, f, TERN_OP_SSM_GRAD);
    inputs(d, n, f->in, 5);
    tern_g_in(d->g, n, dy);
    if (!n) return;
    n->ssm = f->ssm;
    tern_vid dx = tern_g_out(d->g, n, xbc, TERN_VALUE_F32, d->g->values[xbc].cols);
    tern_vid rows[3] = {tern_g_out(d->g, n, dt, TERN_VALUE_F32, f->ssm.n_heads)};
    for (int i = 1; rates && i < 3; i++)
        rows[i] = tern_g_out(d->g, n, dt, TERN_VALUE_F32, f->ssm.n_heads);
    send(d, xbc, dx);
    send(d, dt, rows[0]);
    sum_rows(d, f, rows[0], f->in[4]);
    for (int i = 1; rates && i < 3; i++) sum_rows(d, f, rows[i], f->in[1 + i]);
}

static void delta_back(gradients *d, const tern_node *f, tern_vid dy) {
    const bool rates = is_trained(d, f->in[3]);
    tern_node *n = begin(d, f, TERN_OP_DELTA_NET_GRAD);
    inputs(d, n, f->in, 5);
    tern_g_in(d->g, n, dy);
    if (!n) return;
    n->delta = f->delta;
    tern_vid dx[4];
    for (int i = 0; i < (rates ? 4 : 3); i++) {
        const tern_vid like = f->in[i < 3 ? i : 1];
        dx[i] = tern_g_out(d->g, n, like, TERN_VALUE_F32, d->g->values[like].cols);
    }
    for (int i = 0; i < 3; i++) send(d, f->in[i], dx[i]);
    if (rates) sum_rows(d, f, dx[3], f->in[3]);
    sum_rows(d, f, dx[1], f->in[4]);
}

static void scale_back(gradients *d, const tern_node *f, tern_vid dy) {
    send(d, f->in[0], tern_g_scale(d->g, dy, f->scale));
}
static void straight_back(gradients *d, const tern_node *f, tern_vid dy) { send(d, f->in[0], dy); }
// Nothing to do: the gradient of a ternarized weight goes to its master, see sink(), and the sum of
// the losses is the function that is differentiated.
static void sunk_back(gradients *d, const tern_node *f, tern_vid dy) {
    (void)d;
    (void)f;
    (void)dy;
}
#define loss_back sunk_back
#define none_back NULL

typedef void (*gradient_fn)(gradients *d, const tern_node *f, tern_vid dy);

// dy is -1 only for the losses, whose gradient is 1, and for vectors, whose gradient is given.
// NULL: it has none, as a layer_norm without weights, which no language model has.
static gradient_fn gradient_of(const tern_node *n) {
#define TERN_OP_ROW(id, text, inputs, outputs, rule, attrs, place, stores, check, gradient)        \
    [TERN_OP_##id] = gradient##_back,
    static const gradient_fn rules[] = {
#include "graph/ops.inc"
    };
    if (n->op == TERN_OP_LAYER_NORM && n->n_in < 2) return NULL;
    return rules[n->op];
}

// Ops that only serve caches or results are replaced or dropped.
static bool is_replaced(const tern_node *n) {
    switch (n->op) {
    case TERN_OP_KV_STORE:
    case TERN_OP_TAKE_ROWS:
    case TERN_OP_DEPTHWISE_CONV:
    case TERN_OP_SSM:
    case TERN_OP_DELTA_NET:
    case TERN_OP_TOP_K: return true;
    case TERN_OP_ATTENTION: return !n->attention.bidirectional;
    default: return false;
    }
}

const char *tern_graph_untrainable(const tern_graph *g) {
    const tern_node *found = NULL;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        bool partly = found && found->op == TERN_OP_ATTENTION;
        if (!gradient_of(n) && !is_replaced(n) && (!found || partly)) found = n;
    }
    if (!found) return NULL;
    if (found->op == TERN_OP_ATTENTION) return "attention to both sides";
    return tern_op_name(found->op);
}

static tern_status node_back(gradients *d, const tern_node *f, tern_error *err) {
    bool is_loss = f->op == TERN_OP_CROSS_ENTROPY || f->op == TERN_OP_POOL_SEQ;
    tern_vid dy = f->n_out > 0 ? d->of[f->out[0]] : -1;
    if (!is_loss && (dy < 0 || !d->reaches[f->out[0]])) return TERN_OK;
    gradient_fn back = gradient_of(f);
    if (!back)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "graph: %s has no gradient",
                         tern_op_name(f->op));
    back(d, f, dy);
    return TERN_OK;
}

tern_status tern_graph_differentiate(tern_graph *g, const bool *frozen, tern_error *err) {
    size_t n_nodes = g->n_nodes, n_values = g->n_values;
    gradients d = {.g = g, .frozen = frozen, .n_values = n_values};
    d.of = tern_alloc_array(TERN_MEM_GRAPH, n_values + 1, sizeof *d.of);
    d.reaches = tern_alloc_array(TERN_MEM_GRAPH, n_values + 1, sizeof *d.reaches);
    tern_status status = d.of && d.reaches ? TERN_OK : tern_fail_memory(err, n_values);
    if (status == TERN_OK) {
        for (size_t i = 0; i < n_values; i++) d.of[i] = -1;
        find_reach(&d, n_nodes);
    }
    for (size_t i = n_nodes; status == TERN_OK && i-- > 0 && !g->failed;) {
        tern_node forward = g->nodes[i]; // a copy: the array moves as it grows
        d.at = (int32_t)i;
        status = node_back(&d, &forward, err);
    }
    tern_free(d.of);
    tern_free(d.reaches);
    g->layer = -1;
    return status == TERN_OK ? tern_graph_check(g, err) : status;
}
