// The gated delta rule among the rows of a document, and its gradient (graph/differentiate.c has
// the formulas).
//
// States are not kept: for each document and head the gradient computes them again, first those at
// the beginning of each CHUNK rows, then, from the last chunk on, those of its rows. For documents
// of T rows a thread has T / CHUNK + CHUNK + 2 states. It takes all value heads that read one key
// head, so that nobody else adds to that head's gradient.
#include <math.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

enum { CHUNK = 16 };

typedef struct shape {
    size_t n_k, n_v, dk, dv;
    size_t stride, size; // of a row of q|k|v; of a head's state
    bool tiled;
    float eps;
} shape;

static shape shape_of(const tern_node *n) {
    const tern_delta_attrs *a = &n->delta;
    shape h = {.n_k = (size_t)a->n_k_heads,
               .n_v = (size_t)a->n_v_heads,
               .dk = (size_t)a->head_dim,
               .dv = (size_t)a->v_dim,
               .tiled = a->tiled,
               .eps = a->eps};
    h.stride = 2 * h.n_k * h.dk + h.n_v * h.dv;
    h.size = h.dk * h.dv;
    return h;
}

// Value head number i of those that read a key head.
static size_t value_head(const shape *h, size_t k_head, size_t i) {
    return h->tiled ? k_head + i * h->n_k : k_head * (h->n_v / h->n_k) + i;
}

typedef struct operands {
    const float *qkv, *a, *b, *rate, *bias, *dy;
    float *y, *dqkv, *da, *db, *drate; // drate: NULL if it is not trained
} operands;

static operands operands_of(const cpu_train_run *run, const tern_node *n) {
    const float *in[6] = {NULL};
    float *out[TERN_NODE_OUTPUTS] = {NULL};
    for (int i = 0; i < n->n_in; i++) in[i] = cpu_train_value(run, n->in[i]);
    for (int i = 0; i < n->n_out; i++) out[i] = cpu_train_value(run, n->out[i]);
    return (operands){.qkv = in[0],
                      .a = in[1],
                      .b = in[2],
                      .rate = in[3],
                      .bias = in[4],
                      .dy = in[5],
                      .y = out[0],
                      .dqkv = out[0],
                      .da = out[1],
                      .db = out[2],
                      .drate = out[3]};
}

typedef struct head_of {
    const cpu_train_run *run;
    const shape *h;
    const operands *o;
    size_t k_head, v_head;
    float *scratch; // of the kernel
} head_of;

// Rows of a head from `first` on; their results begin at out.
static void advance(const head_of *of, size_t first, size_t n_rows, float *state, float *out,
                    size_t out_stride) {
    const shape *h = of->h;
    const operands *o = of->o;
    const float *row = o->qkv + first * h->stride;
    const size_t gate = first * h->n_v + of->v_head;
    cpu_train_kernels(of->run)->delta_net(
        &(tern_delta_net_args){.out = out,
                               .q = row + of->k_head * h->dk,
                               .k = row + (h->n_k + of->k_head) * h->dk,
                               .v = row + 2 * h->n_k * h->dk + of->v_head * h->dv,
                               .a = o->a + gate,
                               .b = o->b + gate,
                               .stride = h->stride,
                               .out_stride = out_stride,
                               .gate_stride = h->n_v,
                               .n_rows = n_rows,
                               .dk = h->dk,
                               .dv = h->dv,
                               .A = o->rate[of->v_head],
                               .dt_bias = o->bias[of->v_head],
                               .eps = h->eps,
                               .state = state,
                               .state_stride = h->dv,
                               .scratch = of->scratch});
}

static size_t padded(size_t floats) { return (floats + 15) / 16 * 16; }

static void step_forward(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_program *p = run->program;
    const shape h = shape_of(s->node);
    const operands o = operands_of(run, s->node);
    float *scratch = cpu_train_scratch(run, team);
    float *state = scratch + padded(tern_delta_net_scratch_floats(h.dk));
    size_t n = h.n_v * p->n_documents, unit, end;
    while (tern_team_claim(&s->counter, n, 1, &unit, &end)) {
        const size_t head = unit % h.n_v, document = unit / h.n_v;
        const size_t k_head = h.tiled ? head % h.n_k : head / (h.n_v / h.n_k);
        const size_t first = (size_t)p->documents[document];
        const size_t last = (size_t)p->documents[document + 1];
        memset(state, 0, h.size * sizeof *state);
        advance(&(head_of){run, &h, &o, k_head, head, scratch}, first, last - first, state,
                o.y + (first * h.n_v + head) * h.dv, h.n_v * h.dv);
    }
}

// ---- Backwards ---------------------------------------------------------------------------------

// A thread's memory. begin, rows and slope: [dk][dv] for each state.
typedef struct states {
    float *begin;                 // of each chunk
    float *rows;                  // before each row of the chunk, and after the last
    float *slope;                 // G
    float *q, *k;                 // [dk]: of a row, divided by their lengths
    float *missing, *found, *out; // [dv]: u; G^T k, then dv
} states;

static size_t n_chunks(size_t n_rows) { return (n_rows + CHUNK - 1) / CHUNK; }

static states states_in(const shape *h, size_t n_rows, float *memory) {
    states m = {.begin = memory};
    m.rows = m.begin + n_chunks(n_rows) * h->size;
    m.slope = m.rows + (CHUNK + 1) * h->size;
    m.q = m.slope + h->size;
    m.k = m.q + h->dk;
    m.missing = m.k + h->dk;
    m.found = m.missing + h->dv;
    m.out = m.found + h->dv;
    return m;
}

static float inverse_length(const head_of *of, const float *x) {
    return 1 / sqrtf(cpu_train_kernels(of->run)->dot(x, x, of->h->dk) + of->h->eps);
}

static void unit(const head_of *of, float *y, const float *x, float factor) {
    const float scale = inverse_length(of, x) * factor;
    for (size_t i = 0; i < of->h->dk; i++) y[i] = scale * x[i];
}

// From the gradient of unit(x) to that of x, in its place.
static void unit_back(const head_of *of, float *dx, const float *x, float factor) {
    const float r = inverse_length(of, x);
    const float along = r * r * cpu_train_kernels(of->run)->dot(x, dx, of->h->dk);
    for (size_t i = 0; i < of->h->dk; i++) dx[i] = r * factor * (dx[i] - along * x[i]);
}

// u = v - e S^T k, and G^T k with G = slope + q dy^T; the row's share of dq.
static void row_reads(const head_of *of, const states *m, const float *before, float decay,
                      const float *v, const float *dy, float *dq) {
    const size_t dv = of->h->dv;
    const float *after = before + of->h->size;
    memset(m->missing, 0, dv * sizeof *m->missing);
    memset(m->found, 0, dv * sizeof *m->found);
    for (size_t i = 0; i < of->h->dk; i++) {
        float *g = m->slope + i * dv;
        const float *s = before + i * dv, k = m->k[i], q = m->q[i];
        for (size_t j = 0; j < dv; j++) m->missing[j] += k * s[j];
        for (size_t j = 0; j < dv; j++) g[j] += q * dy[j];
        for (size_t j = 0; j < dv; j++) m->found[j] += k * g[j];
        dq[i] += cpu_train_kernels(of->run)->dot(after + i * dv, dy, dv);
    }
    for (size_t j = 0; j < dv; j++) m->missing[j] = v[j] - decay * m->missing[j];
}

// before: the row's state, which that after it follows. Its shares of dq and dk are added to those
// of the value heads before, as gradients of the vectors divided by their lengths.
static void row_back(const head_of *of, size_t row, const float *before, const states *m) {
    const shape *h = of->h;
    const operands *o = of->o;
    const tern_float_kernels *kernels = cpu_train_kernels(of->run);
    const size_t at = row * h->n_v + of->v_head, q_at = row * h->stride + of->k_head * h->dk,
                 k_at = q_at + h->n_k * h->dk,
                 v_at = row * h->stride + 2 * h->n_k * h->dk + of->v_head * h->dv;
    const double raw = (double)o->a[at] + (double)o->bias[of->v_head];
    const double step = raw > 0 ? raw + log1p(exp(-raw)) : log1p(exp(raw));
    const float rate = o->rate[of->v_head], decay = (float)exp((double)rate * step);
    const float beta = (float)(1 / (1 + exp(-(double)o->b[at])));
    unit(of, m->q, o->qkv + q_at, 1 / sqrtf((float)h->dk));
    unit(of, m->k, o->qkv + k_at, 1);
    row_reads(of, m, before, decay, o->qkv + v_at, o->dy + at * h->dv, o->dqkv + q_at);
    const float dbeta = kernels->dot(m->found, m->missing, h->dv);
    float *dv = o->dqkv + v_at, *dk = o->dqkv + k_at, dg = 0;
    for (size_t j = 0; j < h->dv; j++) dv[j] = beta * m->found[j];
    for (size_t i = 0; i < h->dk; i++) {
        const float *s = before + i * h->dv, k = m->k[i];
        float *g = m->slope + i * h->dv;
        dk[i] += beta * kernels->dot(g, m->missing, h->dv) - decay * kernels->dot(s, dv, h->dv);
        for (size_t j = 0; j < h->dv; j++) g[j] -= k * dv[j];
        dg += kernels->dot(g, s, h->dv);
        for (size_t j = 0; j < h->dv; j++) g[j] *= decay;
    }
    dg *= decay;
    o->da[at] = (float)((double)(dg * rate) / (1 + exp(-raw)));
    o->db[at] = dbeta * beta * (1 - beta);
    if (o->drate) o->drate[at] = (float)((double)dg * step);
}

static void head_back(const head_of *of, size_t first, size_t last, const states *m) {
    const size_t chunks = n_chunks(last - first), size = of->h->size;
    memset(m->rows, 0, size * sizeof *m->rows);
    for (size_t i = 0; i < chunks; i++) {
        memcpy(m->begin + i * size, m->rows, size * sizeof *m->rows);
        if (i + 1 < chunks) advance(of, first + i * CHUNK, CHUNK, m->rows, m->out, 0);
    }
    memset(m->slope, 0, size * sizeof *m->slope);
    for (size_t i = chunks; i-- > 0;) {
        const size_t row = first + i * CHUNK, n = last - row < CHUNK ? last - row : CHUNK;
        memcpy(m->rows, m->begin + i * size, size * sizeof *m->rows);
        for (size_t t = 0; t < n; t++) {
            float *next = m->rows + (t + 1) * size;
            memcpy(next, next - size, size * sizeof *next);
            advance(of, row + t, 1, next, m->out, 0);
        }
        for (size_t t = n; t-- > 0;) row_back(of, row + t, m->rows + t * size, m);
    }
}

// All value heads of a key head, in a document.
static void key_head_back(head_of *of, size_t first, size_t last, const states *m) {
    const shape *h = of->h;
    const operands *o = of->o;
    const size_t q = of->k_head * h->dk, k = q + h->n_k * h->dk;
    for (size_t t = first; t < last; t++) {
        memset(o->dqkv + t * h->stride + q, 0, h->dk * sizeof(float));
        memset(o->dqkv + t * h->stride + k, 0, h->dk * sizeof(float));
    }
    for (size_t i = 0; i < h->n_v / h->n_k; i++) {
        of->v_head = value_head(h, of->k_head, i);
        head_back(of, first, last, m);
    }
    for (size_t at = first * h->stride; at < last * h->stride; at += h->stride) {
        unit_back(of, o->dqkv + at + q, o->qkv + at + q, 1 / sqrtf((float)h->dk));
        unit_back(of, o->dqkv + at + k, o->qkv + at + k, 1);
    }
}

static void step_backward(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_program *p = run->program;
    const shape h = shape_of(s->node);
    const operands o = operands_of(run, s->node);
    float *scratch = cpu_train_scratch(run, team);
    const states m =
        states_in(&h, (size_t)p->n_span, scratch + padded(tern_delta_net_scratch_floats(h.dk)));
    size_t n = h.n_k * p->n_documents, unit, end;
    while (tern_team_claim(&s->counter, n, 1, &unit, &end)) {
        const size_t document = unit / h.n_k;
        head_of of = {.run = run, .h = &h, .o = &o, .k_head = unit % h.n_k, .scratch = scratch};
        key_head_back(&of, (size_t)p->documents[document], (size_t)p->documents[document + 1], &m);
    }
}

void cpu_train_delta(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    if (s->node->op == TERN_OP_DELTA_NET_GRAD)
        step_backward(run, s, team);
    else
        step_forward(run, s, team);
}

size_t cpu_train_delta_floats(const tern_program *p, const tern_node *n) {
    const shape h = shape_of(n);
    const size_t kernel = padded(tern_delta_net_scratch_floats(h.dk));
    if (n->op == TERN_OP_DELTA_NET_SEQ) return kernel + h.size;
    return kernel + (n_chunks((size_t)p->n_span) + CHUNK + 2) * h.size + 2 * h.dk + 3 * h.dv;
}
