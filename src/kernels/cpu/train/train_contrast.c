// InfoNCE over the vectors of a step, in float32 on the host.
//
// With unit vectors X [n, d] and Y [m, d], where row i of X belongs to row i of Y, one way of the
// loss is the cross entropy of the rows of S = X Y^T / temperature with target i:
//
//   P = softmax(S),  dS = P - 1,  dX += dS Y,  dY += dS^T X
//
// The queries against all other texts are one way, the positives against the queries the other. The
// gradient of a unit vector u = v / |v| becomes dv = (du - u (u . du)) / |v|. Products are cut into
// blocks by their shape, rows have one thread each: the bits do not depend on the threads.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/train.h"

enum { ROW_BLOCK = 8, STEPS_A_SIZE = 12 };
#define NEVER (-1e30f) // the score of texts that are left out

struct tern_contrast {
    tern_cpu_kernels kernels;
    tern_team *team;
    int32_t n_cols;
    float temperature;
    int32_t sizes[TERN_CONTRAST_SIZES_MAX];
    size_t n_sizes;
    float *units, *slopes; // [n_texts][n_cols]: of length 1; the loss' gradient by these
    float *lengths;        // [n_texts]
    float *scores;         // [n_pairs][n_texts - n_pairs], then the gradient by them
    double *losses;        // [n_pairs]
    float *scratch;        // [n_threads][scratch_floats]
    size_t scratch_floats;
    atomic_size_t counters[TERN_CONTRAST_SIZES_MAX * STEPS_A_SIZE];
};

// ---- Opening -----------------------------------------------------------------------------------

void tern_contrast_close(tern_contrast *c) {
    if (!c) return;
    tern_team_close(c->team);
    tern_free(c->units);
    tern_free(c->slopes);
    tern_free(c->lengths);
    tern_free(c->scores);
    tern_free(c->losses);
    tern_free(c->scratch);
    tern_free(c);
}

static tern_status make_memory(tern_contrast *c, const tern_contrast_desc *desc, tern_error *err) {
    size_t texts = (size_t)desc->n_texts, pairs = (size_t)desc->n_pairs;
    size_t n = texts * (size_t)desc->n_cols;
    c->scratch_floats = (cpu_gemm_scratch_floats() + 15) / 16 * 16;
    c->units = tern_alloc_array(TERN_MEM_ACTIVATIONS, n, sizeof(float));
    c->slopes = tern_alloc_array(TERN_MEM_ACTIVATIONS, n, sizeof(float));
    c->lengths = tern_alloc_array(TERN_MEM_ACTIVATIONS, texts, sizeof(float));
    c->scores = tern_alloc_array(TERN_MEM_ACTIVATIONS, pairs * (texts - pairs), sizeof(float));
    c->losses = tern_alloc_array(TERN_MEM_ACTIVATIONS, pairs, sizeof(double));
    c->scratch = tern_alloc_array(TERN_MEM_ACTIVATIONS,
                                  (size_t)c->team->n_threads * c->scratch_floats, sizeof(float));
    bool ok = c->units && c->slopes && c->lengths && c->scores && c->losses && c->scratch;
    return ok ? TERN_OK : tern_fail_memory(err, n * sizeof(float));
}

static tern_status settle(tern_contrast *c, const tern_contrast_desc *desc, tern_error *err) {
    if (desc->n_pairs < 1 || desc->n_texts < 2 * (int64_t)desc->n_pairs || desc->n_cols < 1)
        return tern_fail(err, TERN_ERR_ARGUMENT, "contrast: %d pairs of %d texts",
                         (int)desc->n_pairs, (int)desc->n_texts);
    if (!(desc->temperature > 0) || !isfinite(desc->temperature))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "contrast: a temperature of %g: expected a number above 0",
                         (double)desc->temperature);
    if (desc->n_sizes > TERN_CONTRAST_SIZES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "contrast: %zu sizes, at most %d", desc->n_sizes,
                         TERN_CONTRAST_SIZES_MAX);
    c->n_cols = desc->n_cols;
    c->temperature = desc->temperature;
    c->n_sizes = desc->n_sizes ? desc->n_sizes : 1;
    c->sizes[0] = desc->n_cols;
    for (size_t i = 0; i < desc->n_sizes; i++) {
        c->sizes[i] = desc->sizes[i];
        if (c->sizes[i] < 1 || c->sizes[i] > desc->n_cols)
            return tern_fail(err, TERN_ERR_ARGUMENT, "contrast: a size of %d of vectors of %d",
                             (int)c->sizes[i], (int)desc->n_cols);
    }
    TERN_TRY(cpu_team_open(desc->cpu_features, desc->n_threads, &c->kernels, &c->team, err));
    return make_memory(c, desc, err);
}

tern_status tern_contrast_open(tern_contrast **out, const tern_contrast_desc *desc,
                               tern_error *err) {
    *out = NULL;
    tern_contrast *c = tern_alloc(TERN_MEM_GRAPH, sizeof *c);
    if (!c) return tern_fail_memory(err, sizeof *c);
    tern_status status = settle(c, desc, err);
    if (status == TERN_OK)
        *out = c;
    else
        tern_contrast_close(c);
    return status;
}

// ---- A run -------------------------------------------------------------------------------------

// The state of one thread of the team.
typedef struct worker {
    tern_contrast *c;
    tern_contrast_batch *batch;
    const tern_team *team;
    size_t step; // the same on every thread at the same place
    size_t size; // of the vectors now
} worker;

// One way: n rows x of units, whose targets are the first n of the m rows y.
typedef struct way {
    size_t x, y, n, m;
} way;

static atomic_size_t *begin(worker *w) { return &w->c->counters[w->step++]; }
static size_t cols(const worker *w) { return (size_t)w->c->n_cols; }

// The first numbers of each vector, at length 1.
static void make_units(worker *w) {
    tern_contrast *c = w->c;
    const tern_float_kernels *k = c->kernels.f;
    atomic_size_t *counter = begin(w);
    size_t n = (size_t)w->batch->n_texts, i, last;
    while (tern_team_claim(counter, n, ROW_BLOCK, &i, &last))
        for (; i < last; i++) {
            const float *v = w->batch->vectors + i * cols(w);
            float length = sqrtf(k->dot(v, v, w->size));
            c->lengths[i] = length > 1e-12f ? length : 1e-12f;
            k->scale(c->units + i * cols(w), v, 1 / c->lengths[i], w->size);
            memset(c->slopes + i * cols(w), 0, w->size * sizeof(float));
        }
    tern_team_barrier(w->team);
}

// Other texts that are right, too: the same text as the right one, or that of the same query.
static bool is_left_out(const tern_contrast_batch *b, const way *y, size_t i, size_t j) {
    size_t n = (size_t)b->n_pairs;
    if (i == j) return false;
    if (j >= n) return b->keys[n + i] == b->keys[y->y + j];
    return b->keys[i] == b->keys[j] || b->keys[n + i] == b->keys[n + j];
}

static void score_row(worker *w, const way *y, size_t i, float weight, bool ranks) {
    tern_contrast *c = w->c;
    const tern_float_kernels *k = c->kernels.f;
    float *s = c->scores + i * y->m, largest;
    k->scale(s, s, 1 / c->temperature, y->m);
    float own = s[i];
    int32_t rank = 0;
    for (size_t j = 0; j < y->m; j++) {
        if (is_left_out(w->batch, y, i, j)) s[j] = NEVER;
        rank += j != i && s[j] >= own;
    }
    if (ranks) w->batch->ranks[i] = rank;
    float sum = k->exp_sum(s, y->m, &largest), log_sum = largest + (float)log(sum);
    c->losses[i] += (double)(log_sum - own);
    k->exp_scaled(s, s, log_sum, weight, y->m);
    s[i] -= weight;
}

static void multiply(worker *w, const cpu_gemm *g) {
    tern_contrast *c = w->c;
    cpu_gemm_team(c->kernels.g, g, w->team, begin(w),
                  c->scratch + (size_t)w->team->thread * c->scratch_floats);
    tern_team_barrier(w->team);
}

static void one_way(worker *w, const way *y, bool ranks) {
    tern_contrast *c = w->c;
    size_t ld = cols(w), d = w->size, i, last;
    float *x = c->units + y->x * ld, *dx = c->slopes + y->x * ld;
    float *other = c->units + y->y * ld, *d_other = c->slopes + y->y * ld;
    float weight = 1 / (c->temperature * 2 * (float)c->n_sizes * (float)y->n);
    multiply(w, &(cpu_gemm){.transpose_b = true,
                            .m = y->n,
                            .n = y->m,
                            .k = d,
                            .a = x,
                            .lda = ld,
                            .b = other,
                            .ldb = ld,
                            .c = c->scores,
                            .ldc = y->m});
    atomic_size_t *counter = begin(w);
    while (tern_team_claim(counter, y->n, ROW_BLOCK, &i, &last))
        for (; i < last; i++) score_row(w, y, i, weight, ranks);
    tern_team_barrier(w->team);
    if (!w->batch->gradient) return;
    multiply(w, &(cpu_gemm){.accumulate = true,
                            .m = y->n,
                            .n = d,
                            .k = y->m,
                            .a = c->scores,
                            .lda = y->m,
                            .b = other,
                            .ldb = ld,
                            .c = dx,
                            .ldc = ld});
    multiply(w, &(cpu_gemm){.transpose_a = true,
                            .accumulate = true,
                            .m = y->m,
                            .n = d,
                            .k = y->n,
                            .a = c->scores,
                            .lda = y->m,
                            .b = x,
                            .ldb = ld,
                            .c = d_other,
                            .ldc = ld});
}

static void add_gradient(worker *w) {
    tern_contrast *c = w->c;
    const tern_float_kernels *k = c->kernels.f;
    atomic_size_t *counter = begin(w);
    size_t n = (size_t)w->batch->n_texts, i, last;
    while (tern_team_claim(counter, n, ROW_BLOCK, &i, &last))
        for (; i < last; i++) {
            const float *u = c->units + i * cols(w), *du = c->slopes + i * cols(w);
            float *dv = w->batch->gradient + i * cols(w), along = k->dot(u, du, w->size);
            for (size_t j = 0; j < w->size; j++) dv[j] += (du[j] - u[j] * along) / c->lengths[i];
        }
    tern_team_barrier(w->team);
}

static void run(void *ctx, const tern_team *team) {
    worker w = *(worker *)ctx;
    w.team = team;
    size_t n = (size_t)w.batch->n_pairs, n_texts = (size_t)w.batch->n_texts;
    const way there = {0, n, n, n_texts - n}, back = {n, 0, n, n};
    for (size_t i = 0; i < w.c->n_sizes; i++) {
        w.size = (size_t)w.c->sizes[i];
        w.step = i * STEPS_A_SIZE;
        make_units(&w);
        one_way(&w, &there, w.batch->ranks && i + 1 == w.c->n_sizes);
        one_way(&w, &back, false);
        if (w.batch->gradient) add_gradient(&w);
    }
}

void tern_contrast_run(tern_contrast *c, tern_contrast_batch *batch) {
    size_t n = (size_t)batch->n_pairs;
    worker w = {.c = c, .batch = batch};
    for (size_t i = 0; i < sizeof c->counters / sizeof *c->counters; i++)
        atomic_store_explicit(&c->counters[i], 0, memory_order_relaxed);
    memset(c->losses, 0, n * sizeof *c->losses);
    if (batch->gradient)
        memset(batch->gradient, 0,
               (size_t)batch->n_texts * (size_t)c->n_cols * sizeof *batch->gradient);
    tern_team_run(c->team, run, &w);
    batch->loss = 0;
    for (size_t i = 0; i < n; i++) batch->loss += c->losses[i];
    batch->loss /= 2 * (double)c->n_sizes * (double)n;
}
