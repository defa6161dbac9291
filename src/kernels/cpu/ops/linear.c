// Products with matrices: ternary ones on int8 rows, others on floats.
#include "kernels/cpu/ops/ops.h"

// Matrix x vector is bound by memory, which wants each thread to read on for as long as possible:
// every new run of rows costs about a microsecond until the prefetchers follow. The last runs are
// short, so that the threads finish together.
#define LEAST_CLAIM_BYTES 32768
static bool claim_matrix_rows(const tern_team *team, atomic_size_t *counter, size_t n_rows,
                              size_t row_bytes, size_t *first, size_t *last) {
    size_t least = LEAST_CLAIM_BYTES / (row_bytes ? row_bytes : 1) / 16 * 16;
    return tern_team_claim_guided(team, counter, (tern_claim){n_rows, 16, least < 16 ? 16 : least},
                                  first, last);
}

static void ternary_linear(cpu_run *run, const cpu_step *step, const tern_team *team,
                           const cpu_product *p) {
    const tern_ternary_kernels *k = kernels(run)->t;
    const tern_ternary_matrix *m = &p->w->ternary;
    atomic_size_t *rows = counter(run, step, p->which);
    int32_t n_rows = cpu_rows(run, p->x);
    tern_product to = {.out = p->out, .stride = m->n_rows, .accumulate = p->accumulate};
    cpu_i8 v;
    cpu_i8_layout(run->plan->device, cols(run, p->x), n_rows, cpu_value(run, p->x), &v);
    if (few_rows(run, n_rows)) {
        while (claim_matrix_rows(team, rows, m->n_rows, m->row_bytes, &to.first, &to.last))
            k->gemv(m, &v.rows, v.prepared, &to);
        return;
    }
    const tern_claim each = {m->n_rows, k->gemm_row_block, k->gemm_row_block};
    while (tern_team_claim_guided(team, rows, each, &to.first, &to.last))
        k->gemm(m, &v.rows, v.panels, scratch(run, team), &to);
}

void cpu_grouped_linear(cpu_run *run, const cpu_step *step, const tern_team *team,
                        const cpu_product *p, const tern_grouped_rows *x) {
    const tern_grouped_matrix *m = &p->w->grouped;
    tern_product to = {.out = p->out, .stride = m->n_rows, .accumulate = p->accumulate};
    size_t row_bytes = m->block_bytes / TERN_GROUPED_ROWS;
    size_t granule = 2 * TERN_GROUPED_ROWS, least = granule; // tiles of two blocks
    if (x->n_tokens == 1 && LEAST_CLAIM_BYTES / row_bytes > granule)
        least = LEAST_CLAIM_BYTES / row_bytes / granule * granule;
    while (tern_team_claim_guided(team, counter(run, step, p->which),
                                  (tern_claim){m->n_rows, granule, least}, &to.first, &to.last))
        kernels(run)->q->multiply(m, x, scratch(run, team), &to);
}

// Rows that are decoded and then multiplied with all tokens: whole tiles of every kernel, however
// long they are, and as many as the second-level cache holds (256 KB) if they are short. All tokens
// are read once a block, so with few long rows memory would be the limit.
enum { FLOAT_BLOCK_FLOATS = 65536, FLOAT_BLOCK_ROWS = 48 };
static size_t float_block_rows(size_t n_in) {
    size_t rows = FLOAT_BLOCK_FLOATS / n_in / FLOAT_BLOCK_ROWS * FLOAT_BLOCK_ROWS;
    return rows < FLOAT_BLOCK_ROWS       ? FLOAT_BLOCK_ROWS
           : rows > 5 * FLOAT_BLOCK_ROWS ? 5 * FLOAT_BLOCK_ROWS
                                         : rows;
}

void cpu_float_linear(cpu_run *run, const cpu_step *step, const tern_team *team,
                      const cpu_product *p, const float *x, int32_t n_rows) {
    const tern_float_kernels *f = kernels(run)->f;
    const tern_weight *w = p->w;
    atomic_size_t *rows = counter(run, step, p->which);
    size_t n_in = (size_t)w->source.n_cols, n_out = (size_t)w->source.n_rows, first, last;
    float scale = w->source.scale;
    if (n_rows == 1) {
        while (claim_matrix_rows(team, rows, n_out, w->row_bytes, &first, &last))
            f->matvec(&(tern_matvec_args){.y = p->out + first,
                                          .x = x,
                                          .w = w->rows + first * w->row_bytes,
                                          .type = w->type,
                                          .row_bytes = w->row_bytes,
                                          .n_rows = last - first,
                                          .n_in = n_in,
                                          .scale = scale,
                                          .accumulate = p->accumulate});
        return;
    }
    float *decoded = scratch(run, team);
    size_t block = float_block_rows(n_in);
    while (tern_team_claim(rows, n_out, block, &first, &last)) {
        f->decode(w->type, w->rows, first * n_in, (last - first) * n_in, scale, decoded);
        f->matmul(&(tern_matmul_args){.y = p->out + first,
                                      .x = x,
                                      .w = decoded,
                                      .y_stride = n_out,
                                      .x_stride = n_in,
                                      .n_tokens = (size_t)n_rows,
                                      .n_rows = last - first,
                                      .n_in = n_in,
                                      .accumulate = p->accumulate});
    }
}

static void linear(cpu_run *run, const cpu_step *step, const tern_team *team, cpu_product p) {
    tern_grouped_rows groups;
    p.x = step->node->in[0];
    p.w = run->plan->weights[step->node->in[1 + p.which]];
    p.out = cpu_value(run, step->node->out[p.which]);
    if (p.w->info.kind == TERN_WEIGHT_TERNARY) {
        ternary_linear(run, step, team, &p);
    } else if (p.w->info.kind == TERN_WEIGHT_GROUPED) {
        cpu_groups_layout(run->plan->device, cols(run, p.x), cpu_rows(run, p.x),
                          cpu_value(run, p.x), &groups);
        cpu_grouped_linear(run, step, team, &p, &groups);
    } else
        cpu_float_linear(run, step, team, &p, cpu_value(run, p.x), cpu_rows(run, p.x));
}

// A linear with a cap has one product: the second counter is free.
static void cap_rows(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->out[0]), n_rows = (size_t)cpu_rows(run, n->out[0]), t, end;
    float *y = cpu_value(run, n->out[0]);
    tern_team_barrier(team);
    while (tern_team_claim(counter(run, step, 1), n_rows, 1, &t, &end))
        kernels(run)->f->soft_cap(y + t * d, y + t * d, n->soft_cap, d);
}

// Some of the scores of a single row.
static void some_scores(cpu_run *run, const cpu_step *step, const tern_team *team,
                        const tern_weight *w, float *out) {
    const float *x = cpu_value(run, step->node->in[0]);
    const size_t begin = (size_t)run->batch->first_score, n = (size_t)run->batch->n_scores;
    size_t first, last;
    while (claim_matrix_rows(team, counter(run, step, 0), n, w->row_bytes, &first, &last))
        kernels(run)->f->matvec(&(tern_matvec_args){.y = out + begin + first,
                                                    .x = x,
                                                    .w = w->rows + (begin + first) * w->row_bytes,
                                                    .type = w->type,
                                                    .row_bytes = w->row_bytes,
                                                    .n_rows = last - first,
                                                    .n_in = (size_t)w->source.n_cols,
                                                    .scale = w->source.scale});
}

static bool wants_some(const cpu_run *run, const tern_node *n, const tern_weight *w) {
    const tern_batch *b = run->batch;
    return b->n_scores > 0 && b->n_outputs == 1 && n->out[0] == run->plan->scores &&
           n->soft_cap == 0 && w->info.kind == TERN_WEIGHT_FLOAT;
}

static void step_linear(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    if (wants_some(run, n, run->plan->weights[n->in[1]])) {
        some_scores(run, step, team, run->plan->weights[n->in[1]], cpu_value(run, n->out[0]));
        return;
    }
    for (int i = 0; i < n->n_out; i++) linear(run, step, team, (cpu_product){.which = i});
    if (n->soft_cap != 0) cap_rows(run, step, team);
}

static void step_linear_add(cpu_run *run, const cpu_step *step, const tern_team *team) {
    linear(run, step, team, (cpu_product){.accumulate = true}); // onto the residual
}

static size_t weight_scratch(const tern_plan *p, tern_vid wv) {
    const tern_weight *w = p->weights[wv];
    size_t n_in = (size_t)w->source.n_cols;
    if (w->info.kind == TERN_WEIGHT_TERNARY) return p->device->kernels.t->gemm_scratch_bytes(n_in);
    if (w->info.kind == TERN_WEIGHT_GROUPED)
        return tern_grouped_scratch_bytes(p->device->kernels.q, &w->grouped);
    return float_block_rows(n_in) * n_in * sizeof(float);
}

static size_t linear_scratch(const tern_plan *p, const tern_node *n) {
    size_t most = 0;
    for (int i = 0; i < n->n_out; i++) {
        size_t bytes = weight_scratch(p, n->in[1 + i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}
const cpu_op cpu_op_LINEAR = {.step = step_linear, .scratch = linear_scratch};
const cpu_op cpu_op_LINEAR_GROUP = {.step = step_linear, .scratch = linear_scratch};
const cpu_op cpu_op_LINEAR_ADD = {.step = step_linear_add, .scratch = linear_scratch};
