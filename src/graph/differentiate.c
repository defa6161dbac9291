// The gradient of a graph that ends in a loss (train_graph.c): reverse-mode differentiation, on the
// graph itself: for every node y = f(x), last one first, with dy = dLoss/dy known, nodes are
// appended that compute dx = (df/dx)^T dy. If several nodes read a value, it gets the sum of their
// gradients. So a backend trains by running a graph, as in inference.
//
// Per op (all row by row, T rows; W is [n_out, n_in]):
//   linear        y = x W^T            dx = dy W               dW += dy^T x
//   rms_norm      y = r x w            r = 1/sqrt(mean x^2 + eps), g = dy w, n columns of a group:
//                                      dx = r (g - x r^2 (x . g) / n)     dw += sum_t dy r x
//   group_norm    the same with w = 1
//   layer_norm    y = rms_norm(x - mean x) + b
//                                      dx = rms_norm's, minus its mean, db += sum_t dy
//   scale_by      y = s x              dx = s dy               ds += sum dy x
//                 s = m / |row|        the length is a constant (arXiv:2402.09353, 4.3):
//                                                              dm += sum dy x / |row|
//   cap           y = c tanh(x / c)    dx = dy (1 - tanh(x / c)^2)
//   rope          a rotation           dx = dy rotated back
//   attention     P = softmax(s q K^T) dV = P^T dy, dP = dy V^T, dS = P (dP - rowsum(dy * y)),
//                 y = P V              dq = s dS K, dK = s dS^T q
//                                      with a soft cap S = c tanh(s q K^T / c): dS (1 - (S / c)^2)
//   conv          y[t] = sum_j w[j] x[t - last + j]
//                                      dx[t] = sum_j w[j] dy[t + last - j]
//                                      dw[j] += sum_t dy[t] x[t - last + j]
//   cross entropy -log p[target]       dlogits = p - onehot(target)
//   distill       (1 - r) CE + r T^2 KL(q || p_T), where p_T and q are the softmaxes of the logits
//   / T
//                 and of the teacher's / T, which is constant
//                                      dlogits = (1 - r) (p - onehot(target)) + r T (p_T - q)
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
//   mix           y = sum_j w_j x_j    dx_j = w_j dy           dw_j = x_j . dy
//   experts       y_j = x W_e^T        dx = sum_j dy_j W_e     dW_e += sum_t dy_j^T x
//   route         w_j = s_j c: if normed c = scale / (sum_j s_j + eps), else scale
//                                      ds_j = c (dw_j - [normed] sum_i dw_i w_i / scale)
//                 s = softmax(x)       dx = s (ds - s . ds)    of sigmoid: dx = ds s (1 - s)
//   pool          v = mean of n rows   dx = dv / n; of the last or first row: dx = dv there, else 0
//   quantize, ternarize, fake_quantize: dx = dy   (straight through)
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "graph/build.h"

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

// The state that collects the gradient of weight w (or of its master, if w is rounded); -1: frozen.
static tern_vid sink(gradients *d, tern_vid w) {
    int32_t p = d->g->values[w].producer;
    if (p >= 0 && tern_g_rounds_weight(&d->g->nodes[p])) w = d->g->nodes[p].in[0];
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

// The transform is its own transpose, so only the order of it, of signs and of columns is turned.
static void hadamard_back(gradients *d, const tern_node *f, tern_vid dy) {
    const tern_rotation *r = &f->rotation;
    const tern_rotation back = {
        .block = r->block, .has_signs = r->has_signs, .inverse = !r->inverse};
    const tern_rotation columns = {
        .block = 1, .repeats = r->groups, .groups = r->repeats, .each = r->each};
    d->g->layer = f->layer;
    tern_vid dx = tern_g_hadamard(d->g, dy, tern_node_optional(f, 0), &back);
    if (r->groups) dx = tern_g_hadamard(d->g, dx, -1, &columns);
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

static void distill_back(gradients *d, const tern_node *f, tern_vid dy) {
    (void)dy;
    tern_node *n = begin(d, f, TERN_OP_DISTILL_GRAD);
    inputs(d, n, (tern_vid[]){f->in[0], f->in[1], f->in[2], f->out[3]}, 4);
    if (!n) return;
    n->distill = f->distill;
    d->of[f->in[0]] = tern_g_out(d->g, n, f->in[0], TERN_VALUE_F32, d->g->values[f->in[0]].cols);
}

static void take_scored_back(gradients *d, const tern_node *f, tern_vid dy) {
    d->g->layer = f->layer;
    send(d, f->in[0], tern_g_put_scored(d->g, dy, f->in[0]));
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
    const int32_t p = d->g->values[s].producer;
    const bool is_dora = p >= 0 && d->g->nodes[p].op == TERN_OP_ROW_FACTORS;
    const tern_vid inverse = is_dora ? d->g->nodes[p].out[1] : -1;
    tern_vid ds = sink(d, is_dora ? d->g->nodes[p].in[0] : s);
    if (ds >= 0) {
        const tern_op op = d->g->values[s].cols > 1 ? TERN_OP_BIAS_GRAD : TERN_OP_SUM_INTO;
        tern_vid products = tern_g_mul(d->g, dy, x);
        if (is_dora) products = tern_g_scale_by(d->g, products, inverse);
        inputs(d, begin(d, f, op), (tern_vid[]){products, ds}, 2);
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

static void mix_back(gradients *d, const tern_node *f, tern_vid dy) {
    const tern_vid x = f->in[0], route = f->in[1];
    tern_node *n = begin(d, f, TERN_OP_MIX_GRAD);
    inputs(d, n, (tern_vid[]){x, route, dy}, 3);
    if (!n) return;
    n->route = f->route;
    tern_vid dx = tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols), droute = -1;
    if (d->reaches[route])
        droute = tern_g_out(d->g, n, route, TERN_VALUE_F32, d->g->values[route].cols);
    send(d, x, dx);
    if (droute >= 0) send(d, route, droute);
}

static void experts_back(gradients *d, const tern_node *f, tern_vid dy) {
    const tern_vid x = f->in[0], w = f->in[2], dw = sink(d, w);
    if (dw >= 0) {
        tern_node *n = begin(d, f, TERN_OP_EXPERTS_GRAD_W);
        inputs(d, n, (tern_vid[]){dy, f->in[1], x, dw}, 4);
        if (n) n->route = f->route;
    }
    if (!d->reaches[x]) return;
    const bool shared = d->g->values[x].cols == d->g->values[w].cols;
    tern_node *n = begin(d, f, shared ? TERN_OP_EXPERTS_GRAD_SUM : TERN_OP_EXPERTS_GRAD_X);
    inputs(d, n, (tern_vid[]){dy, f->in[1], w}, 3);
    if (!n) return;
    n->route = f->route;
    send(d, x, tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols));
}

static void route_back(gradients *d, const tern_node *f, tern_vid dy) {
    const tern_vid x = f->in[0];
    tern_node *n = begin(d, f, TERN_OP_ROUTE_GRAD);
    inputs(d, n, (tern_vid[]){x, f->out[0], dy}, 3);
    if (!n) return;
    n->route = f->route;
    send(d, x, tern_g_out(d->g, n, x, TERN_VALUE_F32, d->g->values[x].cols));
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

bool tern_g_has_gradient(const tern_node *n) { return gradient_of(n) != NULL; }

static tern_status node_back(gradients *d, const tern_node *f, tern_error *err) {
    bool is_loss =
        f->op == TERN_OP_CROSS_ENTROPY || f->op == TERN_OP_DISTILL || f->op == TERN_OP_POOL_SEQ;
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
