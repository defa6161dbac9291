// A teacher's best tokens instead of all of its logits. With S the K best, q the teacher's
// probabilities, p the student's, and r all tokens but S, taken as one:
//
//   KL = sum over S of q (log q - log p) + q_r (log q_r - log p_r),
//   dKL/dz = p - q in S,   p - q_r p / p_r elsewhere,
//
// which for K = vocabulary is the KL of all tokens. p / p_r is the softmax of the rest's logits, so
// a rest that the student thinks impossible has a gradient all the same.
//
// This teaches how likely the rest is, and nothing of what is in it. With N tokens drawn from it by
// their probability, each stands for q_r / N of it:
//
//   KL ~ sum over S of q (log q - log p) + q_r / N sum over the drawn of (log q - log p),
//   dKL/dz = p - q',   q' = q in S, q_r / N elsewhere for each time that it was drawn,
//
// whose means over the draws are KL and gradient of all tokens, since that of q' is q
// (arXiv:2503.16870, there without the K best, which would be drawn most often). The draws
// are N equal steps through the rest's running sum from a random beginning: so a token is drawn
// N q / q_r times, rounded up or down, which scatters less than N independent draws.
#include <math.h>
#include <string.h>
#include "base/hash.h"
#include "kernels/cpu/train/cpu_train.h"

#define LEFT_OUT (-1e30f) // a logit that adds nothing

bool cpu_train_has_top(const cpu_train_run *run, const tern_node *distill) {
    return run->program->g->values[distill->in[2]].kind == TERN_VALUE_STATE;
}

// A row of the state: ids (as floats), log-probabilities, that of the rest.
typedef struct top {
    float *ids, *logs, *rest;
    size_t n, n_all; // the best; and those drawn, which follow them
} top;

// Row t of this piece.
static top top_of(const cpu_train_run *run, tern_vid state, int32_t n_tail, size_t t) {
    size_t cols = cpu_train_cols(run, state), n = cols / 2;
    float *row = cpu_train_value(run, state) + (run->first + t) * cols;
    return (top){row, row + n, row + 2 * n, n - (size_t)n_tail, n};
}

// The logits, but for those of the top.
static void leave_out(float *out, const float *logits, size_t n, const top *x) {
    memcpy(out, logits, n * sizeof *out);
    for (size_t i = 0; i < x->n; i++) out[(size_t)x->ids[i]] = LEFT_OUT;
}

static float log_sum(const tern_float_kernels *k, const float *x, size_t n, float *largest) {
    float sum = k->exp_sum(x, n, largest);
    return *largest + (float)log(sum);
}

// ---- Keeping -----------------------------------------------------------------------------------

static void swap(const top *x, size_t i, size_t j) {
    float id = x->ids[i], log = x->logs[i];
    x->ids[i] = x->ids[j];
    x->logs[i] = x->logs[j];
    x->ids[j] = id;
    x->logs[j] = log;
}

// The earlier of equal ones is better.
static bool is_worse(const top *x, size_t i, size_t j) {
    return x->logs[i] < x->logs[j] || (x->logs[i] == x->logs[j] && x->ids[i] > x->ids[j]);
}

// In a heap of n whose first is the worst.
static void sink(const top *x, size_t i, size_t n) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_worse(x, child + 1, child)) child++;
        if (!is_worse(x, child, i)) return;
        swap(x, i, child);
    }
}

static void find_best(const top *x, const float *logits, size_t n) {
    for (size_t i = 0; i < x->n; i++) {
        x->ids[i] = (float)i;
        x->logs[i] = logits[i];
    }
    for (size_t i = x->n / 2; i-- > 0;) sink(x, i, x->n);
    for (size_t v = x->n; v < n; v++) {
        if (!(logits[v] > x->logs[0])) continue;
        x->ids[0] = (float)v;
        x->logs[0] = logits[v];
        sink(x, 0, x->n);
    }
    for (size_t end = x->n; end-- > 1;) { // the best first
        swap(x, 0, end);
        sink(x, 0, end);
    }
}

// From 0 to 1, for a row of the batch.
static double random_of(const tern_train_batch *b, int32_t row) {
    uint64_t place = b->place + (uint64_t)row;
    return (double)(tern_mix64(tern_mix64(b->seed) + place) >> 11) * 0x1p-53;
}

// Draws from all but the best, whose logits become probabilities.
static void draw(const tern_float_kernels *k, const top *x, const float *logits, float *others,
                 size_t n, double random) {
    const size_t n_tail = x->n_all - x->n;
    double sum = 0, below = 0;
    size_t i = 0, last = 0;
    float largest;
    if (n_tail == 0) return;
    k->exp_sum(others, n, &largest);
    k->exp_scaled(others, others, largest, 1, n);
    for (size_t v = 0; v < n; v++) sum += (double)others[v];
    for (size_t v = 0; v < n; v++) {
        below += (double)others[v];
        if (others[v] > 0) last = v;
        for (; i < n_tail && ((double)i + random) / (double)n_tail * sum < below; i++)
            x->ids[x->n + i] = (float)v;
    }
    for (; i < n_tail; i++) x->ids[x->n + i] = (float)last; // a rounding
    for (i = x->n; i < x->n_all; i++) x->logs[i] = logits[(size_t)x->ids[i]];
}

void cpu_train_keep_top(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const float *logits = cpu_train_value(run, s->node->in[0]);
    size_t cols = cpu_train_cols(run, s->node->in[0]), n = (size_t)s->node->top.n_cols, first, last;
    const int32_t *rows = run->program->scored + run->first;
    float *others = cpu_train_scratch(run, team), unused;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            const float *row = logits + t * cols;
            const top x = top_of(run, s->node->in[1], s->node->top.n_tail, t);
            float all = log_sum(k, row, n, &unused);
            find_best(&x, row, n);
            leave_out(others, row, n, &x);
            *x.rest = x.n < n ? log_sum(k, others, n, &unused) - all : TERN_TOP_NONE;
            draw(k, &x, row, others, n, random_of(run->batch, rows[t]));
            for (size_t i = 0; i < x.n_all; i++) x.logs[i] -= all;
        }
}

// ---- Learning ----------------------------------------------------------------------------------

static float rest_of(const top *x) {
    return *x->rest > TERN_TOP_NONE ? (float)exp((double)*x->rest) : 0;
}

// Both like the same token best.
static bool agree(const top *x, const float *logits, float best) {
    for (size_t i = 0; i < x->n && x->logs[i] == x->logs[0]; i++)
        if (logits[(size_t)x->ids[i]] == best) return true;
    return false;
}

// KL of a row whose sums are known; room: two rows.
static float divergence(const tern_float_kernels *k, const top *x, const float *logits,
                        const float *sums, float *room, size_t n) {
    const size_t n_tail = x->n_all - x->n;
    const float rest = rest_of(x);
    float *q = room, *gain = room + n, drawn = 0;
    k->exp_scaled(q, x->logs, 0, 1, x->n);
    for (size_t i = 0; i < x->n_all; i++)
        gain[i] = x->logs[i] - (logits[(size_t)x->ids[i]] - sums[0]);
    const float best = k->dot(q, gain, x->n);
    if (!(rest > 0)) return best;
    if (n_tail == 0) return best + rest * (*x->rest - (sums[1] - sums[0]));
    for (size_t i = x->n; i < x->n_all; i++) drawn += gain[i];
    return best + rest * drawn / (float)n_tail;
}

void cpu_train_distill_top(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_cols(run, s->node->in[0]), first, last;
    const int32_t *rows = run->program->scored + run->first;
    float *others = cpu_train_scratch(run, team);
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            const float *logits = o.in[0] + t * n;
            const top x = top_of(run, s->node->in[2], s->node->distill.n_tail, t);
            float best, unused, *sums = o.out[3] + 3 * t;
            sums[0] = log_sum(k, logits, n, &best);
            sums[1] = sums[2] = 0;
            if (x.n_all == x.n) {
                leave_out(others, logits, n, &x);
                sums[1] = log_sum(k, others, n, &unused);
            }
            o.out[0][t] = sums[0] - logits[run->batch->targets[rows[t]]];
            o.out[1][t] = divergence(k, &x, logits, sums, others + n, n);
            o.out[2][t] = agree(&x, logits, best);
        }
}

// A row's gradient in the logits' place; room: two rows.
static void learn_row(const cpu_train_run *run, const tern_node *node, size_t t, float *room) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const tern_train_batch *b = run->batch;
    const top x = top_of(run, node->in[2], node->distill.n_tail, t);
    size_t n = cpu_train_cols(run, node->in[0]), n_tail = x.n_all - x.n;
    int32_t at = run->program->scored[run->first + t];
    float *row = cpu_train_value(run, node->out[0]) + t * n, *others = room, *q = room + n;
    const float *sums = cpu_train_value(run, node->in[3]) + 3 * t;
    const float scale = b->loss_scale * (b->weights ? b->weights[at] : 1);
    const float soft = node->distill.ratio * scale, hard = scale - soft, rest = rest_of(&x);
    const bool is_grouped = rest > 0 && n_tail == 0;
    if (is_grouped) {
        leave_out(others, row, n, &x);
        k->exp_scaled(others, others, sums[1], soft * rest, n);
        for (size_t i = 0; i < x.n; i++) others[(size_t)x.ids[i]] = 0;
    }
    k->exp_scaled(q, x.logs, 0, soft, x.n);
    k->exp_scaled(row, row, sums[0], hard + soft, n);
    for (size_t i = 0; is_grouped && i < n; i++) row[i] -= others[i];
    for (size_t i = 0; i < x.n; i++) row[(size_t)x.ids[i]] -= q[i];
    for (size_t i = x.n; i < x.n_all; i++) row[(size_t)x.ids[i]] -= soft * rest / (float)n_tail;
    row[b->targets[at]] -= hard;
}

void cpu_train_distill_top_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    float *room = cpu_train_scratch(run, team);
    size_t first, last;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) learn_row(run, s->node, t, room);
}
