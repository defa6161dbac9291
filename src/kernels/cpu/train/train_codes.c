// Products with frozen matrices that stay as their file has them, as in QLoRA (arXiv:2305.14314): a
// stripe of rows at a time is decoded into memory that the team shares, and multiplied. Stripes
// have whole chains of a product's sums (TERN_GEMM_DEPTH rows), so that the bits are those of a
// product with the whole matrix as floats.
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

// A stripe stays in the cache that all cores share, and is worth the barriers before and after it.
enum { STRIPE_FLOATS = 1 << 20 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t stripe_rows(const tern_value *w) {
    size_t steps = STRIPE_FLOATS / TERN_GEMM_DEPTH / (size_t)w->cols;
    return least((steps > 0 ? steps : 1) * TERN_GEMM_DEPTH, (size_t)w->rows);
}

void cpu_train_decode(const cpu_train_run *run, tern_vid w, size_t row, float *room, float *out) {
    const tern_train_codes *c = &run->program->arrays[w]->codes;
    c->decode(c->ctx, row, room, out);
}

void cpu_train_rewind(cpu_train_step *s, const tern_team *team) {
    tern_team_barrier(team);
    if (team->thread == 0) atomic_store_explicit(&s->counter, 0, memory_order_relaxed);
    tern_team_barrier(team);
}

const float *cpu_train_decode_rows(cpu_train_run *run, cpu_train_step *s, const tern_team *team,
                                   const cpu_train_stripe *of) {
    float *to = run->program->shared, *room = cpu_train_scratch(run, team);
    size_t n_cols = cpu_train_cols(run, of->w), first, last;
    while (tern_team_claim(&s->counter, of->n, CPU_TRAIN_ROW_BLOCK, &first, &last))
        for (size_t i = first; i < last; i++)
            cpu_train_decode(run, of->w, of->first + i, room, to + i * n_cols);
    cpu_train_rewind(s, team);
    return to;
}

// y = x W^T, a stripe being some columns of y; dx (+)= dy W, to which all stripes add.
void cpu_train_linear_codes(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_node *node = s->node;
    const tern_vid w = node->in[1];
    const tern_value *value = &run->program->g->values[w];
    const bool back = node->op == TERN_OP_LINEAR_GRAD_X;
    cpu_operands o = cpu_train_operands(run, node);
    size_t n_in = cpu_train_cols(run, node->in[0]), n_out = cpu_train_cols(run, node->out[0]);
    size_t n_rows = (size_t)value->rows, each = stripe_rows(value);
    for (size_t first = 0; first < n_rows; first += each) {
        const cpu_train_stripe of = {w, first, least(each, n_rows - first)};
        const float *rows = cpu_train_decode_rows(run, s, team, &of);
        cpu_gemm g = {.transpose_b = !back,
                      .accumulate = back && (node->n_in > 2 || first > 0),
                      .m = run->n_rows,
                      .n = back ? n_out : of.n,
                      .k = back ? of.n : n_in,
                      .a = o.in[0] + (back ? first : 0),
                      .lda = n_in,
                      .b = rows,
                      .ldb = (size_t)value->cols,
                      .c = o.out[0] + (back ? 0 : first),
                      .ldc = n_out};
        cpu_gemm_team(run->program->device->gemm, &g, team, &s->counter,
                      cpu_train_scratch(run, team));
        cpu_train_rewind(s, team);
    }
}

// ---- Memory ------------------------------------------------------------------------------------

// The matrix that a node decodes; NULL: none.
static const tern_value *coded(const tern_program *p, const tern_node *n) {
    for (int k = 0; k < n->n_in; k++)
        if (p->g->values[n->in[k]].is_coded) return &p->g->values[n->in[k]];
    return NULL;
}

size_t cpu_train_room_floats(const tern_program *p, const tern_node *n) {
    const tern_value *w = n->op == TERN_OP_ROW_FACTORS ? &p->g->values[n->in[1]] : coded(p, n);
    size_t rows = n->op == TERN_OP_ROW_FACTORS ? 2 * (size_t)w->cols : 0;
    return w ? rows + TERN_TRAIN_ROOM((size_t)w->cols) : 0;
}

// Experts are decoded one at a time.
size_t cpu_train_stripe_floats(const tern_program *p, const tern_node *n) {
    const tern_value *w = coded(p, n);
    if (!w || n->op == TERN_OP_EMBED || n->op == TERN_OP_ROW_FACTORS) return 0;
    size_t rows = w->parts > 1 ? (size_t)(w->rows / w->parts) : stripe_rows(w);
    return rows * (size_t)w->cols;
}
