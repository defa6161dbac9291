// Attention among the rows of each document, and its gradient.
//
// A task is one document and one key/value head. Its query rows go in blocks; a block multiplies
// with the keys up to its last row as one small matrix product, so that the triangle above the
// diagonal costs half a block, and the full matrix of probabilities never exists. The backward pass
// computes the probabilities again from the sums that the forward pass kept (FlashAttention,
// arXiv:2205.14135).
#include <math.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

enum { BLOCK_ROWS = 64 };

// Two blocks of scores over the longest document, padded rows, and scratch for the products.
static size_t score_stride(int32_t n_span) { return ((size_t)n_span + 15) / 16 * 16; }
size_t cpu_train_attention_floats(const tern_program *p, const tern_node *n) {
    (void)n;
    return 2 * BLOCK_ROWS * score_stride(p->n_span) + cpu_gemm_scratch_floats();
}

// One head's rows of one document, as strided matrices.
typedef struct head {
    const tern_gemm_kernels *products;
    size_t rows, dim, q_stride, kv_stride, lse_stride;
    float scale;
    const float *q, *k, *v, *y, *dy;
    float *out, *lse, *dq, *dk, *dv;
    bool first; // of its group: dk and dv are written, not added to
} head;

// Always in float32: these products are small, and their factors are differences.
static void product(const head *h, float *scratch, cpu_gemm g) {
    cpu_gemm_run(h->products, &g, scratch);
}

// scores [rows, keys] = a b^T, for the block's rows
static void dots(const head *h, float *scratch, const float *a, size_t lda, const float *b,
                 size_t first, size_t rows, float *scores, size_t stride) {
    product(h, scratch, (cpu_gemm){.transpose_b = true, .m = rows, .n = first + rows, .k = h->dim,
                                   .a = a + first * lda, .lda = lda, .b = b, .ldb = h->kv_stride,
                                   .c = scores, .ldc = stride});
}

static void forward_block(const head *h, const tern_float_kernels *k, size_t first, size_t rows,
                          float *scores, size_t stride, float *scratch) {
    dots(h, scratch, h->q, h->q_stride, h->k, first, rows, scores, stride);
    for (size_t i = 0; i < rows; i++) {
        float *s = scores + i * stride, largest;
        size_t seen = first + i + 1;
        k->scale(s, s, h->scale, seen);
        float sum = k->exp_sum(s, seen, &largest), lse = largest + (float)log(sum);
        k->exp_scaled(s, s, lse, 1, seen);
        memset(s + seen, 0, (first + rows - seen) * sizeof *s);
        h->lse[(first + i) * h->lse_stride] = lse;
    }
    product(h, scratch, (cpu_gemm){.m = rows, .n = h->dim, .k = first + rows, .a = scores,
                                   .lda = stride, .b = h->v, .ldb = h->kv_stride,
                                   .c = h->out + first * h->q_stride, .ldc = h->q_stride});
}

static void backward_block(const head *h, const tern_float_kernels *k, size_t first, size_t rows,
                           float *p, float *ds, size_t stride, float *scratch) {
    size_t keys = first + rows;
    dots(h, scratch, h->q, h->q_stride, h->k, first, rows, p, stride);
    dots(h, scratch, h->dy, h->q_stride, h->v, first, rows, ds, stride);
    for (size_t i = 0; i < rows; i++) {
        size_t row = first + i, seen = row + 1;
        float *pi = p + i * stride, *di = ds + i * stride;
        k->scale(pi, pi, h->scale, seen);
        k->exp_scaled(pi, pi, h->lse[row * h->lse_stride], 1, seen);
        float mean = k->dot(h->y + row * h->q_stride, h->dy + row * h->q_stride, h->dim);
        k->softmax_grad(di, pi, di, mean, h->scale, seen);
        memset(pi + seen, 0, (keys - seen) * sizeof *pi);
        memset(di + seen, 0, (keys - seen) * sizeof *di);
    }
    const float *q = h->q + first * h->q_stride, *dy = h->dy + first * h->q_stride;
    product(h, scratch, (cpu_gemm){.m = rows, .n = h->dim, .k = keys, .a = ds,
                                   .lda = stride, .b = h->k, .ldb = h->kv_stride,
                                   .c = h->dq + first * h->q_stride, .ldc = h->q_stride});
    product(h, scratch, (cpu_gemm){.transpose_a = true, .m = keys, .n = h->dim, .k = rows,
                                   .accumulate = true, .a = ds, .lda = stride, .b = q,
                                   .ldb = h->q_stride, .c = h->dk, .ldc = h->kv_stride});
    product(h, scratch, (cpu_gemm){.transpose_a = true, .m = keys, .n = h->dim, .k = rows,
                                   .accumulate = true, .a = p, .lda = stride, .b = dy,
                                   .ldb = h->q_stride, .c = h->dv, .ldc = h->kv_stride});
}

static void clear(float *x, const head *h) {
    for (size_t i = 0; i < h->rows; i++) memset(x + i * h->kv_stride, 0, h->dim * sizeof *x);
}

static void run_head(const cpu_train_run *run, const head *h, float *scratch) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    size_t stride = score_stride(run->program->n_span);
    float *p = scratch, *ds = p + BLOCK_ROWS * stride, *rest = ds + BLOCK_ROWS * stride;
    if (h->dy && h->first) {
        clear(h->dk, h);
        clear(h->dv, h);
    }
    for (size_t first = 0; first < h->rows; first += BLOCK_ROWS) {
        size_t rows = h->rows - first < BLOCK_ROWS ? h->rows - first : BLOCK_ROWS;
        if (h->dy)
            backward_block(h, k, first, rows, p, ds, stride, rest);
        else
            forward_block(h, k, first, rows, p, stride, rest);
    }
}

// The heads of one group, for the document in rows [start, end).
static void run_group(const cpu_train_run *run, const tern_node *n, int32_t kv_head, int32_t start,
                      int32_t end, float *scratch) {
    bool backward = n->op == TERN_OP_ATTENTION_GRAD;
    size_t dim = (size_t)n->head_dim, group = (size_t)(n->n_heads / n->n_kv_heads);
    size_t kv_stride = (size_t)n->n_kv_heads * dim, q_stride = (size_t)n->n_heads * dim;
    size_t kv_at = (size_t)start * kv_stride + (size_t)kv_head * dim;
    float *of[6];
    for (int i = 0; i < n->n_in; i++) of[i] = cpu_train_value(run, n->in[i]);
    for (size_t j = 0; j < group; j++) {
        size_t q_head = (size_t)kv_head * group + j, q_at = (size_t)start * q_stride + q_head * dim;
        size_t lse_at = (size_t)start * (size_t)n->n_heads + q_head;
        head h = {.products = run->program->device->kernels.g, .rows = (size_t)(end - start),
                  .dim = dim, .q_stride = q_stride, .kv_stride = kv_stride,
                  .lse_stride = (size_t)n->n_heads, .scale = n->scale, .q = of[0] + q_at,
                  .k = of[1] + kv_at, .v = of[2] + kv_at, .first = j == 0};
        if (backward) {
            h.y = of[3] + q_at;
            h.lse = of[4] + lse_at;
            h.dy = of[5] + q_at;
            h.dq = cpu_train_value(run, n->out[0]) + q_at;
            h.dk = cpu_train_value(run, n->out[1]) + kv_at;
            h.dv = cpu_train_value(run, n->out[2]) + kv_at;
        } else {
            h.out = cpu_train_value(run, n->out[0]) + q_at;
            h.lse = cpu_train_value(run, n->out[1]) + lse_at;
        }
        run_head(run, &h, scratch);
    }
}

void cpu_train_attention(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_program *p = run->program;
    size_t n_heads = (size_t)s->node->n_kv_heads, task, end;
    while (tern_team_claim(&s->counter, p->n_documents * n_heads, 1, &task, &end)) {
        const int32_t *rows = p->documents + task / n_heads;
        run_group(run, s->node, (int32_t)(task % n_heads), rows[0], rows[1],
                  cpu_train_scratch(run, team));
    }
}
