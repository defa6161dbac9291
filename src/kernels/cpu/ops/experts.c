// Mixtures of experts: each row is multiplied with a few of many matrices, and only those are read.
#include <string.h>
#include "kernels/cpu/ops/ops.h"

// ---- Routing -----------------------------------------------------------------------------------

// The greatest of scores + bias that is not taken yet; of equals the first. NaN is never chosen
// before a number.
static size_t best_of(const float *scores, const float *bias, size_t n, const float *taken,
                      size_t n_taken) {
    size_t best = n;
    float top = 0;
    for (size_t i = 0; i < n; i++) {
        float value = bias ? scores[i] + bias[i] : scores[i];
        bool is_taken = false;
        for (size_t k = 0; k < n_taken; k++) is_taken |= taken[k] == (float)i;
        if (is_taken || (best < n && !(value > top) && !(top != top && value == value))) continue;
        best = i;
        top = value;
    }
    return best;
}

void cpu_scores_row(const tern_float_kernels *f, const tern_route_attrs *r, const float *x,
                    size_t n_experts, float *scores) {
    float largest;
    if (r->sigmoid) {
        f->act(scores, x, n_experts, TERN_ACT_SIGMOID);
    } else {
        float all = f->exp_sum(x, n_experts, &largest);
        f->exp_scaled(scores, x, largest, 1 / all, n_experts);
    }
}

void cpu_route_row(const tern_float_kernels *f, const tern_route_attrs *r, const cpu_route_args *a,
                   float *out) {
    size_t k = (size_t)r->n_chosen;
    float sum = 0;
    cpu_scores_row(f, r, a->x, a->n_experts, a->scores);
    for (size_t i = 0; i < k; i++) {
        size_t best = best_of(a->scores, a->bias, a->n_experts, out, i);
        out[i] = (float)best;
        out[k + i] = a->scores[best];
        sum += a->scores[best];
    }
    float factor = r->normed ? r->scale / (sum + r->eps) : r->scale;
    for (size_t i = 0; i < k; i++) out[k + i] *= factor;
}

static void step_route(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t n_experts = (size_t)cols(run, n->in[0]), k = (size_t)n->route.n_chosen;
    const float *x = cpu_value(run, n->in[0]);
    const float *bias = n->n_in > 1 ? run->plan->weights[n->in[1]]->vector : NULL;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            cpu_route_row(kernels(run)->f, &n->route,
                          &(cpu_route_args){x + t * n_experts, bias, n_experts, scratch(run, team)},
                          y + t * 2 * k);
}

static size_t route_scratch(const tern_plan *p, const tern_node *n) {
    return (size_t)p->g->values[n->in[0]].cols * sizeof(float);
}
const cpu_op cpu_op_ROUTE = {.step = step_route, .scratch = route_scratch};

// ---- Products ----------------------------------------------------------------------------------

#define BLOCK_BYTES  32768 // of a matrix that a thread takes at least
#define BLOCK_FLOATS 65536 // decoded: what stays in the second-level cache
#define PAIRS        16    // rows that are multiplied with a block at once

typedef struct experts {
    const tern_weight *w;
    const float *x, *route;
    float *y;
    size_t n_rows, k, n_experts;  // rows of x; chosen experts of each
    size_t n_in, n_out, x_stride; // of an expert; from one expert's row of x to the next, or 0
    size_t block;                 // rows of a matrix
} experts;

static size_t block_rows(const tern_weight *w, size_t n_out) {
    size_t n_in = (size_t)w->source.n_cols;
    size_t rows = BLOCK_BYTES / (w->row_bytes ? w->row_bytes : 1), most = BLOCK_FLOATS / n_in;
    if (rows > most) rows = most;
    rows = rows / 16 * 16;
    if (rows < 16) rows = 16;
    return rows < n_out ? rows : n_out;
}

static experts open_experts(const cpu_run *run, const tern_node *n) {
    const tern_weight *w = run->plan->weights[n->in[2]];
    size_t k = (size_t)n->route.n_chosen, n_in = (size_t)w->source.n_cols;
    experts e = {.w = w,
                 .x = cpu_value(run, n->in[0]),
                 .route = cpu_value(run, n->in[1]),
                 .y = cpu_value(run, n->out[0]),
                 .n_rows = (size_t)cpu_rows(run, n->in[0]),
                 .k = k,
                 .n_experts = (size_t)w->source.n_parts,
                 .n_in = n_in,
                 .n_out = (size_t)w->source.n_rows / (size_t)w->source.n_parts,
                 .x_stride = (size_t)cols(run, n->in[0]) == n_in ? 0 : n_in};
    e.block = block_rows(w, e.n_out);
    return e;
}

static const uint8_t *rows_of(const experts *e, size_t expert, size_t row) {
    return (const uint8_t *)e->w->parts[expert].data + row * e->w->row_bytes;
}

static const float *input_of(const experts *e, size_t t, size_t j) {
    return e->x + (e->x_stride ? t * e->k + j : t) * e->n_in;
}

// One row: its experts' blocks one after the other.
static void few(cpu_run *run, const cpu_step *step, const experts *e) {
    size_t blocks = (e->n_out + e->block - 1) / e->block, unit, end;
    while (tern_team_claim(counter(run, step, 0), e->k * blocks, 1, &unit, &end)) {
        size_t j = unit / blocks, first = unit % blocks * e->block;
        size_t n = e->n_out - first < e->block ? e->n_out - first : e->block;
        kernels(run)->f->matvec(&(tern_matvec_args){.y = e->y + j * e->n_out + first,
                                                    .x = input_of(e, 0, j),
                                                    .w = rows_of(e, (size_t)e->route[j], first),
                                                    .type = e->w->type,
                                                    .row_bytes = e->w->row_bytes,
                                                    .n_rows = n,
                                                    .n_in = e->n_in,
                                                    .scale = e->w->source.scale});
    }
}

// Rows of x that have come together for a block of an expert.
typedef struct pairs {
    size_t n, t[PAIRS], j[PAIRS];
    bool is_decoded;
    float *decoded, *x, *y; // [block][n_in], [PAIRS][n_in], [PAIRS][block]
} pairs;

static void multiply(const cpu_run *run, const experts *e, pairs *p, size_t expert, size_t first,
                     size_t n) {
    const tern_float_kernels *f = kernels(run)->f;
    if (!p->is_decoded)
        f->decode(e->w->type, rows_of(e, expert, first), 0, n * e->n_in, e->w->source.scale,
                  p->decoded);
    p->is_decoded = true;
    for (size_t i = 0; i < p->n; i++)
        memcpy(p->x + i * e->n_in, input_of(e, p->t[i], p->j[i]), e->n_in * sizeof *p->x);
    f->matmul(&(tern_matmul_args){.y = p->y,
                                  .x = p->x,
                                  .w = p->decoded,
                                  .y_stride = n,
                                  .x_stride = e->n_in,
                                  .n_tokens = p->n,
                                  .n_rows = n,
                                  .n_in = e->n_in});
    for (size_t i = 0; i < p->n; i++)
        memcpy(e->y + (p->t[i] * e->k + p->j[i]) * e->n_out + first, p->y + i * n,
               n * sizeof *p->y);
    p->n = 0;
}

// Many: a block of an expert is decoded once, if any row has chosen it.
static void many(cpu_run *run, const cpu_step *step, const tern_team *team, const experts *e) {
    size_t blocks = (e->n_out + e->block - 1) / e->block, unit, end;
    pairs p = {.decoded = scratch(run, team)};
    p.x = p.decoded + e->block * e->n_in;
    p.y = p.x + PAIRS * e->n_in;
    while (tern_team_claim(counter(run, step, 0), e->n_experts * blocks, 1, &unit, &end)) {
        size_t expert = unit / blocks, first = unit % blocks * e->block;
        size_t n = e->n_out - first < e->block ? e->n_out - first : e->block;
        p.is_decoded = false;
        for (size_t t = 0; t < e->n_rows; t++)
            for (size_t j = 0; j < e->k; j++) {
                if (e->route[t * 2 * e->k + j] != (float)expert) continue;
                p.t[p.n] = t;
                p.j[p.n++] = j;
                if (p.n == PAIRS) multiply(run, e, &p, expert, first, n);
            }
        if (p.n > 0) multiply(run, e, &p, expert, first, n);
    }
}

static void step_experts(cpu_run *run, const cpu_step *step, const tern_team *team) {
    experts e = open_experts(run, step->node);
    if (e.n_rows == 1)
        few(run, step, &e);
    else
        many(run, step, team, &e);
}

static size_t experts_scratch(const tern_plan *p, const tern_node *n) {
    const tern_weight *w = p->weights[n->in[2]];
    size_t n_in = (size_t)w->source.n_cols, n_out = (size_t)(w->source.n_rows / w->source.n_parts);
    size_t block = block_rows(w, n_out);
    return (block * n_in + PAIRS * (n_in + block)) * sizeof(float);
}
const cpu_op cpu_op_EXPERTS = {.step = step_experts, .scratch = experts_scratch};

// ---- The sum -----------------------------------------------------------------------------------

// Products and sums round one by one, in the order of the route.
static void step_mix(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_float_kernels *f = kernels(run)->f;
    size_t d = (size_t)cols(run, n->out[0]), k = (size_t)n->route.n_chosen;
    const float *x = cpu_value(run, n->in[0]), *route = cpu_value(run, n->in[1]);
    float *y = cpu_value(run, n->out[0]), *part = scratch(run, team);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            for (size_t j = 0; j < k; j++) {
                float weight = route[t * 2 * k + k + j];
                f->scale(j ? part : y + t * d, x + (t * k + j) * d, weight, d);
                if (j) f->add(y + t * d, y + t * d, part, d);
            }
}

static size_t mix_scratch(const tern_plan *p, const tern_node *n) {
    return (size_t)p->g->values[n->out[0]].cols * sizeof(float);
}
const cpu_op cpu_op_MIX = {.step = step_mix, .scratch = mix_scratch};
