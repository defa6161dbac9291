// The loss, and the rows that are scored: see graph/scored.c. All threads of the team call a
// function with the same step.
#include <math.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

// The rows of this piece in the batch.
static const int32_t *rows_of(const cpu_train_run *run) {
    return run->program->scored + run->first;
}

void cpu_train_take_scored(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_cols(run, s->node->in[0]), first, last;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++)
            memcpy(o.out[0] + t * n, o.in[0] + (size_t)rows_of(run)[t] * n, n * sizeof(float));
}

// A piece's part of the batch begins with its first scored row, the first piece's with row 0.
void cpu_train_put_scored(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_program *p = run->program;
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_cols(run, s->node->in[0]), next = run->first + run->n_rows, first, last;
    size_t begin = run->first > 0 ? (size_t)p->scored[run->first] : 0;
    size_t end =
        next < (size_t)p->n_scored ? (size_t)p->scored[next] : (size_t)run->batch->n_tokens;
    while (tern_team_claim(&s->counter, end - begin, CPU_TRAIN_ROW_BLOCK, &first, &last))
        for (size_t t = begin + first; t < begin + last; t++) {
            float *row = o.out[0] + t * n;
            if (p->places[t] < 0)
                memset(row, 0, n * sizeof *row);
            else
                memcpy(row, o.in[0] + ((size_t)p->places[t] - run->first) * n, n * sizeof *row);
        }
}

void cpu_train_cross_entropy(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_cols(run, s->node->in[0]), first, last;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            const float *logits = o.in[0] + t * n;
            int32_t target = run->batch->targets[rows_of(run)[t]];
            float largest, sum = cpu_train_kernels(run)->exp_sum(logits, n, &largest);
            float lse = largest + (float)log(sum);
            o.out[0][t] = lse - logits[target];
            o.out[1][t] = lse;
        }
}

void cpu_train_cross_entropy_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_cols(run, s->node->in[0]), first, last;
    const float *weights = run->batch->weights;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            float *row = o.out[0] + t * n, scale = run->batch->loss_scale;
            if (weights) scale *= weights[rows_of(run)[t]];
            cpu_train_kernels(run)->exp_scaled(row, o.in[0] + t * n, o.in[2][t], scale, n);
            row[run->batch->targets[rows_of(run)[t]]] -= scale;
        }
}

// ---- Distillation ------------------------------------------------------------------------------

// Three rows of scratch. The teacher's logits beyond the student's are of tokens that no tokenizer
// has.
typedef struct distilled {
    const tern_float_kernels *k;
    const tern_distill_attrs *how;
    size_t n, n_teacher, n_common; // columns
    float *rows[3];
} distilled;

static distilled distilled_of(const cpu_train_run *run, const tern_node *node,
                              const tern_team *team) {
    distilled d = {.k = cpu_train_kernels(run),
                   .how = &node->distill,
                   .n = cpu_train_cols(run, node->in[0]),
                   .n_teacher = cpu_train_cols(run, node->in[2])};
    d.n_common = d.n < d.n_teacher ? d.n : d.n_teacher;
    for (size_t i = 0; i < 3; i++) d.rows[i] = cpu_train_scratch(run, team) + i * d.n;
    return d;
}

// Logits over the temperature: as they are, or in a row of scratch.
static const float *tempered(const distilled *d, const float *x, int row, size_t n) {
    if (d->how->temperature == 1) return x;
    d->k->scale(d->rows[row], x, 1 / d->how->temperature, n);
    return d->rows[row];
}

static float log_sum(const distilled *d, const float *x, size_t n, float *largest) {
    float sum = d->k->exp_sum(x, n, largest);
    return *largest + (float)log(sum);
}

// KL(q || p) of a row: sum of q (log q - log p). 0 if the logits are equal.
static float divergence(const distilled *d, const float *student, const float *teacher,
                        const float sums[2]) {
    float *q = d->rows[2], *gain = d->rows[0];
    d->k->exp_scaled(q, teacher, sums[1], 1, d->n_common);
    for (size_t i = 0; i < d->n_common; i++) gain[i] = teacher[i] - student[i];
    return d->k->dot(q, gain, d->n_common) + (sums[0] - sums[1]);
}

void cpu_train_distill(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    if (cpu_train_has_top(run, s->node)) {
        cpu_train_distill_top(run, s, team);
        return;
    }
    cpu_operands o = cpu_train_operands(run, s->node);
    const distilled d = distilled_of(run, s->node, team);
    size_t first, last;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            const float *logits = o.in[0] + t * d.n, *wanted = o.in[2] + t * d.n_teacher;
            float best, best_wanted, unused, *sums = o.out[3] + 3 * t;
            bool agree = false;
            sums[0] = log_sum(&d, logits, d.n, &best);
            const float *a = tempered(&d, logits, 0, d.n);
            const float *b = tempered(&d, wanted, 1, d.n_common);
            sums[1] = a == logits ? sums[0] : log_sum(&d, a, d.n, &unused);
            sums[2] = log_sum(&d, b, d.n_common, &best_wanted);
            for (size_t i = 0; i < d.n_common; i++)
                agree |= logits[i] == best && b[i] == best_wanted;
            o.out[0][t] = sums[0] - logits[run->batch->targets[rows_of(run)[t]]];
            o.out[1][t] = divergence(&d, a, b, sums + 1);
            o.out[2][t] = agree;
        }
}

// In the logits' place.
static void distilled_back(const distilled *d, float *row, const float *wanted, const float sums[3],
                           int32_t target, float scale) {
    const float hard = (1 - d->how->ratio) * scale;
    const float soft = d->how->ratio * d->how->temperature * scale;
    const float *b = tempered(d, wanted, 1, d->n_common);
    d->k->exp_scaled(d->rows[2], b, sums[2], soft, d->n_common);
    if (d->how->temperature == 1)
        d->k->exp_scaled(row, row, sums[0], hard + soft, d->n);
    else {
        d->k->exp_scaled(d->rows[0], tempered(d, row, 0, d->n), sums[1], soft, d->n);
        d->k->exp_scaled(row, row, sums[0], hard, d->n);
        d->k->add(row, row, d->rows[0], d->n);
    }
    for (size_t i = 0; i < d->n_common; i++) row[i] -= d->rows[2][i];
    row[target] -= hard;
}

void cpu_train_distill_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    if (cpu_train_has_top(run, s->node)) {
        cpu_train_distill_top_grad(run, s, team);
        return;
    }
    cpu_operands o = cpu_train_operands(run, s->node);
    const distilled d = distilled_of(run, s->node, team);
    const float *weights = run->batch->weights;
    size_t first, last;
    while (cpu_train_claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            int32_t at = rows_of(run)[t];
            float scale = run->batch->loss_scale * (weights ? weights[at] : 1);
            distilled_back(&d, o.out[0] + t * d.n, o.in[2] + t * d.n_teacher, o.in[3] + 3 * t,
                           run->batch->targets[at], scale);
        }
}

// ---- Sums --------------------------------------------------------------------------------------

void cpu_train_keep_scored(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_cols(run, s->node->in[0]);
    if (team->thread == 0)
        memcpy(o.in[1] + run->first * n, o.in[0], run->n_rows * n * sizeof(float));
}

// The sum of all pieces is rounded once, so that it does not depend on their size.
void cpu_train_sum_into(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    if (team->thread != 0) return;
    const tern_program *p = run->program;
    const tern_node *node = s->node;
    cpu_operands o = cpu_train_operands(run, node);
    bool in_pieces = p->head.end > 0 && p->g->values[node->in[0]].dim == p->head.dim;
    if (!in_pieces || run->first == 0) s->sum = 0;
    size_t n = run->n_rows * cpu_train_cols(run, node->in[0]);
    for (size_t t = 0; t < n; t++) s->sum += o.in[0][t];
    if (!in_pieces || run->first + run->n_rows == (size_t)p->n_scored) o.in[1][0] += (float)s->sum;
}
