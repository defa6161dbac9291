// A selective state space among the rows of a document, and its gradient (graph/differentiate.c has
// the formulas).
//
// States are not kept: for each document and head the gradient computes them again, first those at
// the beginning of each CHUNK rows, then, from the last chunk on, those of its rows. The heads of a
// group add to dB and dC in CPU_TRAIN_PARTS parts of consecutive heads, and these are summed in
// order.
#include <math.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

enum {
    CHUNK = 16,
    HEADS_LEAST = 2, // of a part, though fewer threads may then have one
};

typedef struct shape {
    size_t n_heads, n_groups, n_state, dim;
    size_t stride, size; // of a row of x|B|C; of a head's state
} shape;

static shape shape_of(const tern_node *n) {
    shape h = {(size_t)n->ssm.n_heads,
               (size_t)n->ssm.n_groups,
               (size_t)n->ssm.n_state,
               (size_t)n->ssm.head_dim,
               0,
               0};
    h.stride = h.n_heads * h.dim + 2 * h.n_groups * h.n_state;
    h.size = h.n_state * h.dim;
    return h;
}

typedef struct operands {
    const float *xbc, *dt, *a, *d, *bias, *dy;
    float *out[TERN_NODE_OUTPUTS];
} operands;

static operands operands_of(const cpu_train_run *run, const tern_node *n) {
    const float *in[6] = {NULL};
    operands o = {0};
    for (int i = 0; i < n->n_in; i++) in[i] = cpu_train_value(run, n->in[i]);
    for (int i = 0; i < n->n_out; i++) o.out[i] = cpu_train_value(run, n->out[i]);
    o.xbc = in[0];
    o.dt = in[1];
    o.a = in[2];
    o.d = in[3];
    o.bias = in[4];
    o.dy = in[5];
    return o;
}

// Where B of a head's group begins in a row; C is n_groups * n_state later.
static size_t b_of(const shape *h, size_t head) {
    return h->n_heads * h->dim + head / (h->n_heads / h->n_groups) * h->n_state;
}

typedef struct head_of {
    const cpu_train_run *run;
    const shape *h;
    const operands *o;
    size_t head;
} head_of;

// Rows of a head from `first` on; their results, if they are wanted, begin at out.
static void advance(const head_of *of, size_t first, size_t n_rows, float *state, float *out,
                    size_t out_stride) {
    const shape *h = of->h;
    const operands *o = of->o;
    const size_t head = of->head;
    const float *row = o->xbc + first * h->stride, *b = row + b_of(h, head);
    cpu_train_kernels(of->run)->ssm(&(tern_ssm_args){.out = out,
                                                     .x = row + head * h->dim,
                                                     .b = b,
                                                     .c = b + h->n_groups * h->n_state,
                                                     .dt = o->dt + first * h->n_heads + head,
                                                     .out_stride = out_stride,
                                                     .stride = h->stride,
                                                     .dt_stride = h->n_heads,
                                                     .n_rows = n_rows,
                                                     .n_state = h->n_state,
                                                     .n_cols = h->dim,
                                                     .A = o->a[head],
                                                     .D = o->d[head],
                                                     .dt_bias = o->bias[head],
                                                     .state = state,
                                                     .state_stride = h->dim});
}

static void step_forward(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_program *p = run->program;
    const shape h = shape_of(s->node);
    operands o = operands_of(run, s->node);
    float *state = cpu_train_scratch(run, team);
    size_t n = h.n_heads * p->n_documents, unit, end;
    while (tern_team_claim(&s->counter, n, 1, &unit, &end)) {
        size_t head = unit % h.n_heads, first = (size_t)p->documents[unit / h.n_heads];
        size_t last = (size_t)p->documents[unit / h.n_heads + 1];
        memset(state, 0, h.size * sizeof *state);
        advance(&(head_of){run, &h, &o, head}, first, last - first, state,
                o.out[0] + (first * h.n_heads + head) * h.dim, h.n_heads * h.dim);
    }
}

// ---- Backwards ---------------------------------------------------------------------------------

// A thread's memory: [n_state][dim] each.
typedef struct states {
    float *begin;  // of each chunk
    float *rows;   // before each row of the chunk, and after the last
    float *slope;  // G
    float *du, *y; // of a row: [dim]
} states;

static size_t n_chunks(size_t n_rows) { return (n_rows + CHUNK - 1) / CHUNK; }

static states states_in(const shape *h, size_t n_rows, float *memory) {
    states m = {.begin = memory};
    m.rows = m.begin + n_chunks(n_rows) * h->size;
    m.slope = m.rows + (CHUNK + 1) * h->size;
    m.du = m.slope + h->size;
    m.y = m.du + h->dim;
    return m;
}

// dB and dC of the row are added to what other heads have there. before, after: the row's states.
static void row_back(const head_of *of, size_t row, const float *before, const float *after,
                     const states *m, float *db) {
    const shape *h = of->h;
    const operands *o = of->o;
    const size_t head = of->head;
    const tern_float_kernels *k = cpu_train_kernels(of->run);
    size_t at = row * h->n_heads + head, dim = h->dim;
    const float *x = o->xbc + row * h->stride + head * dim, *dy = o->dy + at * dim;
    const float *b = o->xbc + row * h->stride + b_of(h, head), *c = b + h->n_groups * h->n_state;
    float *dc = db + h->n_groups * h->n_state, *dx = o->out[0] + row * h->stride + head * dim;
    double raw = (double)o->dt[at] + (double)o->bias[head];
    double step = raw > 0 ? raw + log1p(exp(-raw)) : log1p(exp(raw));
    float dt = (float)step, decay = (float)exp((double)o->a[head] * step), q = 0;
    for (size_t p = 0; p < dim; p++) m->y[p] = dt * x[p]; // u
    memset(m->du, 0, dim * sizeof *m->du);
    for (size_t i = 0; i < h->n_state; i++) {
        float *g = m->slope + i * dim;
        for (size_t p = 0; p < dim; p++) g[p] += c[i] * dy[p];
        for (size_t p = 0; p < dim; p++) m->du[p] += b[i] * g[p];
        dc[i] += k->dot(after + i * dim, dy, dim);
        db[i] += k->dot(g, m->y, dim);
        q += k->dot(g, before + i * dim, dim);
        for (size_t p = 0; p < dim; p++) g[p] *= decay;
    }
    q *= decay;
    for (size_t p = 0; p < dim; p++) dx[p] = o->d[head] * dy[p] + dt * m->du[p];
    float slope = k->dot(m->du, x, dim) + o->a[head] * q;
    o->out[1][at] = (float)(slope / (1 + exp(-raw)));
    if (!o->out[2]) return;
    o->out[2][at] = dt * q;
    o->out[3][at] = k->dot(dy, x, dim);
}

// sums: [n_tokens][dB|dC of all groups].
static void head_back(const head_of *of, size_t first, size_t last, const states *m, float *sums) {
    const shape *h = of->h;
    size_t chunks = n_chunks(last - first), size = h->size, wide = 2 * h->n_groups * h->n_state;
    size_t b = b_of(h, of->head) - h->n_heads * h->dim;
    memset(m->rows, 0, size * sizeof *m->rows);
    for (size_t i = 0; i < chunks; i++) {
        size_t row = first + i * CHUNK;
        memcpy(m->begin + i * size, m->rows, size * sizeof *m->rows);
        if (i + 1 < chunks) advance(of, row, CHUNK, m->rows, m->y, 0);
    }
    memset(m->slope, 0, size * sizeof *m->slope);
    for (size_t i = chunks; i-- > 0;) {
        size_t row = first + i * CHUNK, n = last - row < CHUNK ? last - row : CHUNK;
        memcpy(m->rows, m->begin + i * size, size * sizeof *m->rows);
        for (size_t t = 0; t < n; t++) {
            float *next = m->rows + (t + 1) * size;
            memcpy(next, next - size, size * sizeof *next);
            advance(of, row + t, 1, next, m->y, 0);
        }
        for (size_t t = n; t-- > 0;)
            row_back(of, row + t, m->rows + t * size, m->rows + (t + 1) * size, m,
                     sums + (row + t) * wide + b);
    }
}

static void step_backward(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_program *p = run->program;
    const shape h = shape_of(s->node);
    operands o = operands_of(run, s->node);
    size_t n_tokens = (size_t)run->batch->n_tokens, wide = 2 * h.n_groups * h.n_state, part, end;
    size_t each = (h.n_heads + CPU_TRAIN_PARTS - 1) / CPU_TRAIN_PARTS;
    if (each < HEADS_LEAST) each = HEADS_LEAST;
    size_t n_parts = (h.n_heads + each - 1) / each, first, last;
    const states m = states_in(&h, (size_t)p->n_span, cpu_train_scratch(run, team));
    while (tern_team_claim(&s->counter, n_parts, 1, &part, &end)) {
        float *sums = p->parts + part * p->part_floats;
        memset(sums, 0, n_tokens * wide * sizeof *sums);
        for (size_t head = part * each; head < h.n_heads && head < (part + 1) * each; head++)
            for (size_t i = 0; i < p->n_documents; i++)
                head_back(&(head_of){run, &h, &o, head}, (size_t)p->documents[i],
                          (size_t)p->documents[i + 1], &m, sums);
    }
    tern_team_barrier(team);
    first = n_tokens * (size_t)team->thread / (size_t)team->n_threads;
    last = n_tokens * (size_t)(team->thread + 1) / (size_t)team->n_threads;
    for (size_t t = first; t < last; t++) {
        float *to = o.out[0] + t * h.stride + h.n_heads * h.dim;
        memset(to, 0, wide * sizeof *to);
        for (size_t i = 0; i < n_parts; i++)
            cpu_train_kernels(run)->add(to, to, p->parts + i * p->part_floats + t * wide, wide);
    }
}

void cpu_train_ssm(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    if (s->node->op == TERN_OP_SSM_GRAD)
        step_backward(run, s, team);
    else
        step_forward(run, s, team);
}

size_t cpu_train_ssm_floats(const tern_program *p, const tern_node *n) {
    const shape h = shape_of(n);
    if (n->op == TERN_OP_SSM_SEQ) return h.size;
    return (n_chunks((size_t)p->n_span) + CHUNK + 2) * h.size + 2 * h.dim;
}

size_t cpu_train_ssm_part_floats(const tern_program *p, const tern_node *n) {
    return (size_t)p->n_rows * 2 * (size_t)n->ssm.n_groups * (size_t)n->ssm.n_state;
}
