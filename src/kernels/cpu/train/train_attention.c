// Attention among the rows of each document, and its gradient.
//
// A task is one document and one key/value head. Its query rows go in blocks; a block multiplies
// with the keys up to the last that it sees as one small matrix product, so that the triangle above
// the diagonal costs half a block, and the full matrix of probabilities never exists. With a window
// the product begins at the first key that the block's first row sees. The backward pass computes
// the probabilities again from the sums that the forward pass kept (FlashAttention,
// arXiv:2205.14135).
#include <math.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

enum { BLOCK_ROWS = 64 };

// Two blocks of scores over the longest document, padded rows, a row of capped scores, and scratch
// for the products.
static size_t score_stride(int32_t n_span) { return ((size_t)n_span + 15) / 16 * 16; }
size_t cpu_train_attention_floats(const tern_program *p, const tern_node *n) {
    (void)n;
    return (2 * BLOCK_ROWS + 1) * score_stride(p->n_span) + cpu_gemm_scratch_floats();
}

// One head's rows of one document, as strided matrices.
typedef struct head {
    const tern_gemm_kernels *products;
    size_t rows, dim, q_stride, kv_stride, lse_stride;
    float scale, soft_cap;
    size_t window; // 0: none
    bool both;     // sides are seen
    size_t ahead;  // of both, in a window: later rows less than this much further
    const float *q, *k, *v, *y, *dy;
    float *out, *lse, *dq, *dk, *dv;
    bool first; // of its group: dk and dv are written, not added to
} head;

// Always in float32: these products are small, and their factors are differences.
static void product(const head *h, float *scratch, cpu_gemm g) {
    cpu_gemm_run(h->products, &g, scratch);
}

// The first row that `row` sees.
static size_t first_seen(const head *h, size_t row) {
    return h->window && row + 1 > h->window ? row + 1 - h->window : 0;
}

// One more than the last.
static size_t end_seen(const head *h, size_t row) {
    if (!h->both) return row + 1;
    return h->window && row + h->ahead < h->rows ? row + h->ahead : h->rows;
}

// Rows first .. first + rows - 1 of queries, with the keys that any of them sees.
typedef struct block {
    size_t first, rows, key, keys; // keys key .. key + keys - 1
    size_t stride;                 // of rows of scores
} block;

// scores [rows, keys] = a b^T, for the block's rows
static void dots(const head *h, const block *b, float *scratch, const float *a, const float *keys,
                 float *scores) {
    product(h, scratch,
            (cpu_gemm){.transpose_b = true,
                       .m = b->rows,
                       .n = b->keys,
                       .k = h->dim,
                       .a = a + b->first * h->q_stride,
                       .lda = h->q_stride,
                       .b = keys + b->key * h->kv_stride,
                       .ldb = h->kv_stride,
                       .c = scores,
                       .ldc = b->stride});
}

// Row i of the block's scores s: the ones that it sees, s[from] .. s[to - 1], are scaled and
// capped; the others become 0.
typedef struct seen {
    size_t from, to;
} seen;
static seen seen_scores(const head *h, const block *b, const tern_float_kernels *k, size_t i,
                        float *s) {
    size_t row = b->first + i;
    seen r = {first_seen(h, row) - b->key, end_seen(h, row) - b->key};
    k->scale(s + r.from, s + r.from, h->scale, r.to - r.from);
    if (h->soft_cap > 0) k->soft_cap(s + r.from, s + r.from, h->soft_cap, r.to - r.from);
    return r;
}
static void clear_unseen(const block *b, seen r, float *s) {
    memset(s, 0, r.from * sizeof *s);
    memset(s + r.to, 0, (b->keys - r.to) * sizeof *s);
}

static void forward_block(const head *h, const tern_float_kernels *k, const block *b, float *scores,
                          float *scratch) {
    dots(h, b, scratch, h->q, h->k, scores);
    for (size_t i = 0; i < b->rows; i++) {
        float *s = scores + i * b->stride, largest;
        seen r = seen_scores(h, b, k, i, s);
        float sum = k->exp_sum(s + r.from, r.to - r.from, &largest);
        float lse = largest + (float)log(sum);
        k->exp_scaled(s + r.from, s + r.from, lse, 1, r.to - r.from);
        clear_unseen(b, r, s);
        h->lse[(b->first + i) * h->lse_stride] = lse;
    }
    product(h, scratch,
            (cpu_gemm){.m = b->rows,
                       .n = h->dim,
                       .k = b->keys,
                       .a = scores,
                       .lda = b->stride,
                       .b = h->v + b->key * h->kv_stride,
                       .ldb = h->kv_stride,
                       .c = h->out + b->first * h->q_stride,
                       .ldc = h->q_stride});
}

// p and ds, for the block's rows, from the scores in p and dy V^T in ds. capped: a row.
static void backward_rows(const head *h, const tern_float_kernels *k, const block *b, float *p,
                          float *ds, float *capped) {
    for (size_t i = 0; i < b->rows; i++) {
        size_t row = b->first + i;
        float *pi = p + i * b->stride, *di = ds + i * b->stride;
        seen r = seen_scores(h, b, k, i, pi);
        size_t n = r.to - r.from;
        if (h->soft_cap > 0) memcpy(capped, pi + r.from, n * sizeof *capped);
        k->exp_scaled(pi + r.from, pi + r.from, h->lse[row * h->lse_stride], 1, n);
        float mean = k->dot(h->y + row * h->q_stride, h->dy + row * h->q_stride, h->dim);
        k->softmax_grad(di + r.from, pi + r.from, di + r.from, mean, h->scale, n);
        if (h->soft_cap > 0) k->soft_cap_grad(di + r.from, capped, h->soft_cap, n);
        clear_unseen(b, r, pi);
        clear_unseen(b, r, di);
    }
}

typedef struct areas {
    float *p, *ds, *capped, *scratch;
} areas;

static void backward_block(const head *h, const tern_float_kernels *k, const block *b, areas to) {
    float *p = to.p, *ds = to.ds, *capped = to.capped, *scratch = to.scratch;
    dots(h, b, scratch, h->q, h->k, p);
    dots(h, b, scratch, h->dy, h->v, ds);
    backward_rows(h, k, b, p, ds, capped);
    size_t at = b->first * h->q_stride, kv_at = b->key * h->kv_stride;
    product(h, scratch,
            (cpu_gemm){.m = b->rows,
                       .n = h->dim,
                       .k = b->keys,
                       .a = ds,
                       .lda = b->stride,
                       .b = h->k + kv_at,
                       .ldb = h->kv_stride,
                       .c = h->dq + at,
                       .ldc = h->q_stride});
    product(h, scratch,
            (cpu_gemm){.transpose_a = true,
                       .m = b->keys,
                       .n = h->dim,
                       .k = b->rows,
                       .accumulate = true,
                       .a = ds,
                       .lda = b->stride,
                       .b = h->q + at,
                       .ldb = h->q_stride,
                       .c = h->dk + kv_at,
                       .ldc = h->kv_stride});
    product(h, scratch,
            (cpu_gemm){.transpose_a = true,
                       .m = b->keys,
                       .n = h->dim,
                       .k = b->rows,
                       .accumulate = true,
                       .a = p,
                       .lda = b->stride,
                       .b = h->dy + at,
                       .ldb = h->q_stride,
                       .c = h->dv + kv_at,
                       .ldc = h->kv_stride});
}

static void clear(float *x, const head *h) {
    for (size_t i = 0; i < h->rows; i++) memset(x + i * h->kv_stride, 0, h->dim * sizeof *x);
}

static void run_head(const cpu_train_run *run, const head *h, float *scratch) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    size_t stride = score_stride(run->program->n_span);
    float *p = scratch, *ds = p + BLOCK_ROWS * stride, *capped = ds + BLOCK_ROWS * stride;
    float *rest = capped + stride;
    if (h->dy && h->first) {
        clear(h->dk, h);
        clear(h->dv, h);
    }
    for (size_t first = 0; first < h->rows; first += BLOCK_ROWS) {
        size_t rows = h->rows - first < BLOCK_ROWS ? h->rows - first : BLOCK_ROWS;
        size_t key = first_seen(h, first);
        block b = {first, rows, key, end_seen(h, first + rows - 1) - key, stride};
        if (h->dy)
            backward_block(h, k, &b, (areas){p, ds, capped, rest});
        else
            forward_block(h, k, &b, p, rest);
    }
}

// The heads of one group, for the document in rows [start, end).
static void run_group(const cpu_train_run *run, const tern_node *n, int32_t kv_head, int32_t start,
                      int32_t end, float *scratch) {
    const tern_attention_attrs *a = &n->attention;
    bool backward = n->op == TERN_OP_ATTENTION_GRAD;
    size_t dim = (size_t)a->head_dim, group = (size_t)(a->n_heads / a->n_kv_heads);
    size_t kv_stride = (size_t)a->n_kv_heads * dim, q_stride = (size_t)a->n_heads * dim;
    size_t kv_at = (size_t)start * kv_stride + (size_t)kv_head * dim;
    float *of[6];
    for (int i = 0; i < n->n_in; i++) of[i] = cpu_train_value(run, n->in[i]);
    for (size_t j = 0; j < group; j++) {
        size_t q_head = (size_t)kv_head * group + j, q_at = (size_t)start * q_stride + q_head * dim;
        size_t lse_at = (size_t)start * (size_t)a->n_heads + q_head;
        head h = {.products = run->program->device->kernels.g,
                  .rows = (size_t)(end - start),
                  .dim = dim,
                  .q_stride = q_stride,
                  .kv_stride = kv_stride,
                  .lse_stride = (size_t)a->n_heads,
                  .scale = a->scale,
                  .soft_cap = a->soft_cap,
                  .window = (size_t)a->window,
                  .both = a->bidirectional,
                  .ahead = (size_t)(a->ahead ? a->ahead : a->window),
                  .q = of[0] + q_at,
                  .k = of[1] + kv_at,
                  .v = of[2] + kv_at,
                  .first = j == 0};
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
    size_t n_heads = (size_t)s->node->attention.n_kv_heads, task, end;
    while (tern_team_claim(&s->counter, p->n_documents * n_heads, 1, &task, &end)) {
        const int32_t *rows = p->documents + task / n_heads;
        run_group(run, s->node, (int32_t)(task % n_heads), rows[0], rows[1],
                  cpu_train_scratch(run, team));
    }
}
