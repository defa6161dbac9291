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
