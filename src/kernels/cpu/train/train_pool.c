// A vector of each document: the mean, the last or the first of its rows. The threads claim
// documents; a mean adds the rows in their order, as it does in inference.
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

enum { BLOCK = 4 };

// Document i of the batch: its first row, how many, and the row of the vectors that it becomes.
typedef struct document {
    size_t first, rows;
    int32_t target;
} document;
static document document_at(const cpu_train_run *run, size_t i) {
    const int32_t *rows = run->program->documents + i;
    return (document){(size_t)rows[0], (size_t)(rows[1] - rows[0]), run->batch->targets[rows[0]]};
}

static void pool(const tern_float_kernels *k, tern_pool_kind kind, float *y, const float *x,
                 size_t rows, size_t n) {
    memcpy(y, kind == TERN_POOL_LAST ? x + (rows - 1) * n : x, n * sizeof *y);
    if (kind != TERN_POOL_MEAN) return;
    for (size_t t = 1; t < rows; t++) k->add(y, y, x + t * n, n);
    k->scale(y, y, 1 / (float)rows, n);
}

void cpu_train_pool(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_node *node = s->node;
    const tern_program *p = run->program;
    size_t n = (size_t)p->g->values[node->in[0]].cols, i, last;
    const float *x = cpu_train_value(run, node->in[0]);
    float *vectors = cpu_train_value(run, node->in[2]);
    while (tern_team_claim(&s->counter, p->n_documents, BLOCK, &i, &last))
        for (; i < last; i++) {
            document d = document_at(run, i);
            if (d.target >= 0)
                pool(cpu_train_kernels(run), node->pool.kind, vectors + (size_t)d.target * n,
                     x + d.first * n, d.rows, n);
        }
}

static void spread(const cpu_train_run *run, tern_pool_kind kind, float *dx, const float *dv,
                   size_t rows, size_t n) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const float scale = run->batch->loss_scale;
    if (kind == TERN_POOL_MEAN) {
        for (size_t t = 0; t < rows; t++) k->scale(dx + t * n, dv, scale / (float)rows, n);
        return;
    }
    memset(dx, 0, rows * n * sizeof *dx);
    k->scale(kind == TERN_POOL_LAST ? dx + (rows - 1) * n : dx, dv, scale, n);
}

void cpu_train_pool_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_node *node = s->node;
    const tern_program *p = run->program;
    size_t n = (size_t)p->g->values[node->out[0]].cols, i, last;
    const float *vectors = cpu_train_value(run, node->in[0]);
    float *dx = cpu_train_value(run, node->out[0]);
    while (tern_team_claim(&s->counter, p->n_documents, BLOCK, &i, &last))
        for (; i < last; i++) {
            document d = document_at(run, i);
            if (d.target < 0)
                memset(dx + d.first * n, 0, d.rows * n * sizeof *dx);
            else
                spread(run, node->pool.kind, dx + d.first * n, vectors + (size_t)d.target * n,
                       d.rows, n);
        }
}
