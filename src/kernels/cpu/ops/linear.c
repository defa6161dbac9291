// Products with matrices: ternary ones on int8 rows, others on floats.
#include "kernels/cpu/ops/ops.h"

// Matrix x vector is bound by memory, which wants each thread to read on for as long as possible:
// every new run of rows costs about a microsecond until the prefetchers follow. The last runs are
// short, so that the threads finish together.
#define LEAST_CLAIM_BYTES 32768
static bool claim_matrix_rows(const tern_team *team, atomic_size_t *counter, size_t n_rows,
                              size_t row_bytes, size_t *first, size_t *last) {
    size_t least = LEAST_CLAIM_BYTES / (row_bytes ? row_bytes : 1) / 16 * 16;
    return tern_team_claim_guided(team, counter, n_rows, 16, least < 16 ? 16 : least, first, last);
}

static void ternary_linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which,
                           const tern_weight *w, tern_vid x, float *out, bool accumulate) {
    const tern_ternary_kernels *k = kernels(run)->t;
    const tern_ternary_matrix *m = &w->ternary;
    int32_t n_rows = cpu_rows(run, x);
    cpu_i8 v;
    size_t first, last;
    cpu_i8_layout(run->plan->device, cols(run, x), n_rows, cpu_value(run, x), &v);
    if (few_rows(run, n_rows)) {
        while (claim_matrix_rows(team, counter(run, step, which), m->n_rows, m->row_bytes, &first,
                                 &last))
            k->gemv(m, first, last, &v.rows, v.prepared, out, m->n_rows, accumulate);
        return;
    }
    while (tern_team_claim_guided(team, counter(run, step, which), m->n_rows, k->gemm_row_block,
                                  k->gemm_row_block, &first, &last))
        k->gemm(m, first, last, &v.rows, v.panels, scratch(run, team), out, m->n_rows, accumulate);
}

void cpu_grouped_linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which,
                        const tern_weight *w, const tern_grouped_rows *x, float *out,
                        bool accumulate) {
    const tern_grouped_matrix *m = &w->grouped;
    size_t first, last, row_bytes = m->block_bytes / TERN_GROUPED_ROWS;
    size_t granule = 2 * TERN_GROUPED_ROWS, least = granule; // tiles of two blocks
    if (x->n_tokens == 1 && LEAST_CLAIM_BYTES / row_bytes > granule)
        least = LEAST_CLAIM_BYTES / row_bytes / granule * granule;
    while (tern_team_claim_guided(team, counter(run, step, which), m->n_rows, granule, least,
                                  &first, &last))
        kernels(run)->q->multiply(m, first, last, x, scratch(run, team), out, m->n_rows,
                                  accumulate);
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

void cpu_float_linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which,
                      const tern_weight *w, const float *x, int32_t n_rows, float *out,
                      bool accumulate) {
    const tern_float_kernels *f = kernels(run)->f;
    size_t n_in = (size_t)w->source.n_cols, n_out = (size_t)w->source.n_rows, first, last;
    float scale = w->source.scale;
    if (n_rows == 1) {
        while (
            claim_matrix_rows(team, counter(run, step, which), n_out, w->row_bytes, &first, &last))
            f->matvec(out + first, x, w->type, w->rows + first * w->row_bytes, w->row_bytes,
                      last - first, n_in, scale, accumulate);
        return;
    }
    float *decoded = scratch(run, team);
    size_t block = float_block_rows(n_in);
    while (tern_team_claim(counter(run, step, which), n_out, block, &first, &last)) {
        f->decode(w->type, w->rows, first * n_in, (last - first) * n_in, scale, decoded);
        f->matmul(out + first, n_out, x, n_in, (size_t)n_rows, decoded, last - first, n_in,
                  accumulate);
    }
}

static void linear(cpu_run *run, const cpu_step *step, const tern_team *team, int which, tern_vid x,
                   tern_vid wv, float *out, bool accumulate) {
    const tern_weight *w = run->plan->weights[wv];
    tern_grouped_rows groups;
    if (w->info.kind == TERN_WEIGHT_TERNARY) {
        ternary_linear(run, step, team, which, w, x, out, accumulate);
    } else if (w->info.kind == TERN_WEIGHT_GROUPED) {
        cpu_groups_layout(run->plan->device, cols(run, x), cpu_rows(run, x), cpu_value(run, x),
                          &groups);
        cpu_grouped_linear(run, step, team, which, w, &groups, out, accumulate);
    } else
        cpu_float_linear(run, step, team, which, w, cpu_value(run, x), cpu_rows(run, x), out,
                         accumulate);
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
        kernels(run)->f->matvec(out + begin + first, x, w->type,
                                w->rows + (begin + first) * w->row_bytes, w->row_bytes,
                                last - first, (size_t)w->source.n_cols, w->source.scale, false);
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
    for (int i = 0; i < n->n_out; i++)
        linear(run, step, team, i, n->in[0], n->in[1 + i], cpu_value(run, n->out[i]), false);
    if (n->soft_cap != 0) cap_rows(run, step, team);
}

static void step_linear_add(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node; // the output is where the residual is
    linear(run, step, team, 0, n->in[0], n->in[1], cpu_value(run, n->out[0]), true);
}

static size_t weight_scratch(const tern_plan *p, tern_vid wv) {
    const tern_weight *w = p->weights[wv];
    size_t n_in = (size_t)w->source.n_cols;
    if (w->info.kind == TERN_WEIGHT_TERNARY) return p->device->kernels.t->gemm_scratch_bytes(n_in);
    if (w->info.kind == TERN_WEIGHT_GROUPED) return tern_grouped_scratch_bytes(&w->grouped);
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
