// Rounding of a matrix by what it multiplies (GPTQ, arXiv:2210.17323): not each weight's own error
// is made small but that of the products, (w - q)^T H (w - q) of each row w, with H = X^T X.
//
//   1. Feedback. With H = R R^T, R upper triangular, that is the sum over columns j of
//      R_jj^2 (e_j + sum over i < j of e_i R_ij / R_jj)^2, where e = w - q. So columns are rounded
//      one after the other, each after the errors of those before it are added to it. A group's
//      scale is that which fits its weights as they are when it begins.
//   2. Descent. Each trit is then moved to where the error is least while all others stay, and each
//      scale likewise, group by group, some times.
//
// A block of columns is a group; what other columns do to it is one product of matrices, what its
// own do is done row by row.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/cpu/gemm/gemm.h"
#include "train/ternarize/gptq.h"

enum { GROUP_MAX = 256, N_SWEEPS = 4, N_TURNS = 2, N_DAMPINGS = 8 };
static const double damping = 0.01; // of the mean of H's diagonal

struct tern_gptq {
    const tern_gemm_kernels *kernels;
    tern_team *team;
    float *scratch; // for each thread
    atomic_size_t counter, rows_left;
    cpu_gemm product;
    bool has_product;
    // The matrix.
    tern_dtype type;
    size_t n_rows, n, group, begin, end; // columns of the current block
    float *q, *e;                        // [n_rows, n] rounded so far, floats after that; w - q
    float *from_others;                  // [n_rows, group]
    float *h, *r;                        // [n, n] damped; its factor, then its rows divided
    float *minus;                        // [n, group]
    float *weights;                      // [n] R_jj^2
    bool is_definite;
};

static void multiply(tern_gptq *s, const tern_team *team) {
    if (!s->has_product) return;
    cpu_gemm_team(s->kernels, &s->product, team, &s->counter,
                  s->scratch + (size_t)team->thread * cpu_gemm_scratch_floats());
    tern_team_barrier(team);
}

static void run(tern_gptq *s, tern_team_fn fn) {
    atomic_store(&s->counter, 0);
    atomic_store(&s->rows_left, 0);
    tern_team_run(s->team, fn, s);
}

// ---- H = R R^T ---------------------------------------------------------------------------------

// R_ij for the columns of the block, by those of it that are right of j.
static float solve(const tern_gptq *s, size_t i, size_t j) {
    const float *ri = s->r + i * s->n, *rj = s->r + j * s->n;
    double sum = (double)ri[j];
    for (size_t k = j + 1; k < s->end; k++) sum -= (double)ri[k] * (double)rj[k];
    return (float)(i == j ? sum : sum / (double)rj[j]);
}

static void factor_corner(tern_gptq *s) {
    for (size_t j = s->end; j-- > s->begin;) {
        const float square = solve(s, j, j);
        s->is_definite &= square > 1e-6f;
        s->r[j * s->n + j] = sqrtf(s->is_definite ? square : 1);
        for (size_t i = s->begin; i < j; i++) s->r[i * s->n + j] = solve(s, i, j);
    }
}

static void solve_rows(void *ctx, const tern_team *team) {
    tern_gptq *s = ctx;
    (void)team;
    for (size_t i, end; tern_team_claim(&s->rows_left, s->begin, 1, &i, &end);)
        for (size_t j = s->end; j-- > s->begin;) {
            const float x = solve(s, i, j);
            s->r[i * s->n + j] = x;
            s->minus[i * s->group + j - s->begin] = -x;
        }
}

static void take_away(void *ctx, const tern_team *team) { multiply(ctx, team); }

// The columns before the block without what it explains.
static void reduce(tern_gptq *s) {
    run(s, solve_rows);
    s->has_product = true;
    s->product = (cpu_gemm){.transpose_b = true,
                            .accumulate = true,
                            .m = s->begin,
                            .n = s->begin,
                            .k = s->end - s->begin,
                            .a = s->minus,
                            .b = s->r + s->begin,
                            .c = s->r,
                            .lda = s->group,
                            .ldb = s->n,
                            .ldc = s->n};
    run(s, take_away);
}

// Mean of the diagonal, which becomes 1.
static void normalize(tern_gptq *s, const float *sums) {
    const size_t n = s->n;
    double trace = 0;
    for (size_t i = 0; i < n; i++) trace += (double)sums[i * n + i];
    const double factor = trace > 0 ? (double)n / trace : 0;
    for (size_t i = 0; i < n * n; i++) s->h[i] = (float)((double)sums[i] * factor);
}

static bool factorize(tern_gptq *s, double more) {
    const size_t n = s->n;
    for (size_t i = 0; i < n; i++) s->h[i * n + i] += (float)more;
    memcpy(s->r, s->h, n * n * sizeof *s->r);
    s->is_definite = true;
    for (size_t block = n / s->group; block-- > 0 && s->is_definite;) {
        s->begin = block * s->group;
        s->end = s->begin + s->group;
        factor_corner(s);
        if (s->begin) reduce(s);
    }
    if (!s->is_definite) return false;
    for (size_t j = 0; j < n; j++) {
        const float divisor = s->r[j * n + j];
        s->weights[j] = divisor * divisor;
        for (size_t i = 0; i < j; i++) s->r[i * n + j] /= divisor;
    }
    return true;
}

// ---- Feedback ----------------------------------------------------------------------------------

static bool is_one_bit(const tern_gptq *s) { return s->type == TERN_DTYPE_Q1_0; }

static float nearest(const tern_gptq *s, float x, float scale) {
    if (is_one_bit(s)) return x < 0 ? -scale : scale;
    return fabsf(x) > scale / 2 ? copysignf(scale, x) : 0;
}

static float scale_of(const float *q, size_t n) {
    float scale = 0;
    for (size_t i = 0; i < n; i++) scale = fmaxf(scale, fabsf(q[i]));
    return scale;
}

static void feed_row(const tern_gptq *s, size_t row) {
    const size_t g = s->group, n = s->n;
    float x[GROUP_MAX] = {0}, rounded[GROUP_MAX];
    float *q = s->q + row * n + s->begin, *e = s->e + row * n + s->begin;
    for (size_t j = 0; j < g; j++) x[j] = q[j] + (s->has_product ? s->from_others[row * g + j] : 0);
    tern_dtype_round(s->type, x, s->weights + s->begin, g, rounded, NULL);
    const float scale = scale_of(rounded, g);
    for (size_t i = 0; i < g; i++) {
        const float *factors = s->r + (s->begin + i) * n + s->begin, to = nearest(s, x[i], scale);
        e[i] = q[i] - to;
        q[i] = to;
        for (size_t j = i + 1; j < g; j++) x[j] += e[i] * factors[j];
    }
}

static void feed(void *ctx, const tern_team *team) {
    tern_gptq *s = ctx;
    multiply(s, team);
    for (size_t row, end; tern_team_claim(&s->rows_left, s->n_rows, 1, &row, &end);)
        feed_row(s, row);
}

// ---- Descent -----------------------------------------------------------------------------------

// pull: (w - q) H of the block. A step of column j by d changes the error by
// -2 d pull_j + d^2 H_jj.
static void move_scale(const tern_gptq *s, float *q, float *e, float *pull) {
    const size_t g = s->group;
    const float scale = scale_of(q, g);
    float along[GROUP_MAX];
    double slope = 0, curve = 0;
    if (scale <= 0) return;
    for (size_t i = 0; i < g; i++) {
        const float *h = s->h + (s->begin + i) * s->n + s->begin;
        float sum = 0;
        for (size_t j = 0; j < g; j++) sum += h[j] * (q[j] > 0 ? 1.0f : q[j] < 0 ? -1.0f : 0.0f);
        const double sign = q[i] > 0 ? 1 : q[i] < 0 ? -1 : 0;
        along[i] = sum;
        slope += sign * (double)pull[i];
        curve += sign * (double)sum;
    }
    const float to = tern_f16_to_f32(tern_f32_to_f16((float)((double)scale + slope / curve)));
    const float d = to - scale;
    if (!(to > 0 && to < 65504) || -2 * d * slope + d * d * curve >= 0) return;
    for (size_t i = 0; i < g; i++) {
        const float sign = q[i] > 0 ? 1 : q[i] < 0 ? -1 : 0;
        e[i] -= d * sign;
        q[i] = sign * to;
        pull[i] -= d * along[i];
    }
}

static void move_trits(const tern_gptq *s, float *q, float *e, float *pull) {
    const size_t g = s->group;
    const float scale = scale_of(q, g);
    for (size_t i = 0; i < g; i++) {
        const float *h = s->h + (s->begin + i) * s->n + s->begin;
        const float best = nearest(s, q[i] + pull[i] / h[i], scale), d = best - q[i];
        if (d == 0 || d * (d * h[i] - 2 * pull[i]) >= 0) continue;
        q[i] = best;
        e[i] -= d;
        for (size_t j = 0; j < g; j++) pull[j] -= d * h[j];
    }
}

static void descend(void *ctx, const tern_team *team) {
    tern_gptq *s = ctx;
    multiply(s, team);
    for (size_t row, end; tern_team_claim(&s->rows_left, s->n_rows, 1, &row, &end);) {
        float *q = s->q + row * s->n + s->begin, *e = s->e + row * s->n + s->begin,
              *pull = s->from_others + row * s->group;
        for (int turn = 0; turn < N_TURNS; turn++) {
            move_scale(s, q, e, pull);
            move_trits(s, q, e, pull);
        }
    }
}

// ---- The whole ---------------------------------------------------------------------------------

// For each block: the errors of the first k columns times these rows of a [n, n] matrix.
static void run_blocks(tern_gptq *s, const float *factors, bool all_columns, tern_team_fn fn) {
    for (s->begin = 0; s->begin < s->n; s->begin = s->end) {
        s->end = s->begin + s->group;
        s->product = (cpu_gemm){.m = s->n_rows,
                                .n = s->group,
                                .k = all_columns ? s->n : s->begin,
                                .a = s->e,
                                .b = factors + s->begin,
                                .c = s->from_others,
                                .lda = s->n,
                                .ldb = s->n,
                                .ldc = s->group};
        s->has_product = s->product.k > 0;
        run(s, fn);
    }
}

static bool make_room(tern_gptq *s) {
    const size_t n = s->n;
    s->e = tern_alloc_array(TERN_MEM_MISC, s->n_rows, n * sizeof *s->e);
    s->from_others = tern_alloc_array(TERN_MEM_MISC, s->n_rows, s->group * sizeof *s->from_others);
    s->h = tern_alloc_array(TERN_MEM_MISC, n, n * sizeof *s->h);
    s->r = tern_alloc_array(TERN_MEM_MISC, n, n * sizeof *s->r);
    s->minus = tern_alloc_array(TERN_MEM_MISC, n, s->group * sizeof *s->minus);
    s->weights = tern_alloc_array(TERN_MEM_MISC, n, sizeof *s->weights);
    return s->e && s->from_others && s->h && s->r && s->minus && s->weights;
}

uint64_t tern_gptq_bytes(tern_dtype type, uint64_t n_rows, uint64_t n_cols) {
    const uint64_t group = tern_dtype_block_n(type);
    return ((n_rows + n_cols) * (n_cols + group) + n_cols * (n_cols + 1)) * sizeof(float);
}

static void free_room(tern_gptq *s) {
    float **room[] = {&s->e, &s->from_others, &s->h, &s->r, &s->minus, &s->weights};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        tern_free(*room[i]);
        *room[i] = NULL;
    }
}

tern_status tern_gptq_round(tern_gptq *s, tern_dtype type, float *rows, const size_t shape[2],
                            const float *products, tern_error *err) {
    s->type = type;
    s->q = rows;
    s->n_rows = shape[0];
    s->n = shape[1];
    s->group = tern_dtype_block_n(type);
    const bool has_room = make_room(s);
    if (has_room) {
        double more = damping;
        int i = 0;
        normalize(s, products);
        while (!factorize(s, more) && ++i < N_DAMPINGS) more *= 9;
        run_blocks(s, s->r, false, feed);
        for (int sweep = 0; sweep < N_SWEEPS; sweep++) run_blocks(s, s->h, true, descend);
    }
    free_room(s);
    return has_room ? TERN_OK
                    : tern_fail_memory(err, (size_t)tern_gptq_bytes(type, s->n_rows, s->n));
}

tern_status tern_gptq_open(tern_gptq **out, int n_threads, tern_error *err) {
    tern_cpu_kernels kernels;
    tern_gptq *s = tern_alloc(TERN_MEM_MISC, sizeof *s);
    *out = s;
    if (!s) return tern_fail_memory(err, sizeof *s);
    tern_cpu_kernels_select(NULL, &kernels);
    s->kernels = kernels.g;
    TERN_TRY(tern_team_open(&s->team, n_threads, err));
    const size_t n = (size_t)s->team->n_threads * cpu_gemm_scratch_floats();
    s->scratch = tern_alloc_array(TERN_MEM_MISC, n, sizeof *s->scratch);
    return s->scratch ? TERN_OK : tern_fail_memory(err, n * sizeof *s->scratch);
}

void tern_gptq_close(tern_gptq *s) {
    if (!s) return;
    tern_team_close(s->team);
    tern_free(s->scratch);
    tern_free(s);
}
