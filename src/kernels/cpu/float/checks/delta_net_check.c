// The delta net of every variant against its recurrence in plain C, bit for bit, however the rows
// are cut into runs and the columns among threads; and the recurrence against its two forms in
// double: row by row, and in chunks of 64 rows with a triangular solve.
#include "base/alloc.h"
#include "base/dtype/fma.h"
#include "kernels/cpu/float/checks/float_check.h"
#include "tests/support/harness.h"

enum { MAX_ROWS = 150, MAX_DIM = 128, CHUNK = 64 };

typedef struct delta_case {
    size_t dk, dv, n_rows;
} delta_case;

static const delta_case cases[] = {{128, 128, 150}, {128, 72, 40}, {64, 64, 65}, {16, 80, 33},
                                   {20, 7, 40},     {33, 17, 70},  {1, 1, 5},    {96, 144, 3}};

// Everything is allocated to its exact size, so that sanitizers see reads and writes outside. A row
// of qkv is q, k, 1 number, v; a row of `gates` is a, b, 1 number; one of out is 2 longer than dv.
typedef struct delta_data {
    float *qkv, *gates, *start, *state, *out, *want, *want_state, *scratch;
    size_t stride, n_out, n_state;
    float A, dt_bias, eps;
} delta_data;

static float *numbers(size_t n, uint32_t seed) {
    float *p = tern_alloc(TERN_MEM_MISC, n * sizeof *p);
    if (p) fill(p, n, KIND_PLAIN, seed);
    return p;
}

static bool delta_open(const delta_case *c, delta_data *d) {
    *d = (delta_data){.stride = 2 * c->dk + 1 + c->dv, .A = -0.3f, .dt_bias = -1.5f, .eps = 1e-6f};
    d->n_out = c->n_rows * (c->dv + 2) - 2;
    d->n_state = c->dk * c->dv;
    size_t scratch_bytes = tern_delta_net_scratch_floats(c->dk) * sizeof(float);
    d->qkv = numbers(c->n_rows * d->stride, 1);
    d->gates = numbers(c->n_rows * 3 - 1, 2);
    d->start = numbers(d->n_state, 3);
    d->state = numbers(d->n_state, 4);
    d->out = numbers(d->n_out, 5);
    d->want = numbers(d->n_out, 5); // the gaps between rows must stay as they are
    d->want_state = numbers(d->n_state, 4);
    d->scratch = tern_alloc(TERN_MEM_MISC, scratch_bytes);
    if (d->scratch) memset(d->scratch, 0xFF, scratch_bytes); // NaNs, which must not matter
    return d->qkv && d->gates && d->start && d->state && d->out && d->want && d->want_state &&
           d->scratch;
}

static void delta_close(delta_data *d) {
    float *all[] = {d->qkv, d->gates, d->start,      d->state,
                    d->out, d->want,  d->want_state, d->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tern_free(all[i]);
}

// ---- In plain C --------------------------------------------------------------------------------

static void unit(float *y, const float *x, size_t n, float eps, const tern_float_kernels *scalar) {
    scalar->scale(y, x, 1 / sqrtf(scalar->dot(x, x, n) + eps), n);
}

static float chain(const float *column, size_t stride, const float *x, size_t n) {
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum = tern_fma(column[i * stride], x[i], sum);
    return sum;
}

static void delta_plainly(const delta_case *c, const delta_data *d,
                          const tern_float_kernels *scalar) {
    float *s = d->want_state, q[MAX_DIM], k[MAX_DIM], decay, beta;
    memcpy(s, d->start, d->n_state * sizeof *s);
    for (size_t t = 0; t < c->n_rows; t++) {
        const float *row = d->qkv + t * d->stride, *v = row + 2 * c->dk + 1;
        unit(q, row, c->dk, d->eps, scalar);
        scalar->scale(q, q, 1 / sqrtf((float)c->dk), c->dk);
        unit(k, row + c->dk, c->dk, d->eps, scalar);
        float step = d->gates[3 * t] + d->dt_bias;
        scalar->softplus(&step, &step, 1);
        step *= d->A;
        scalar->exp_scaled(&decay, &step, 0, 1, 1);
        scalar->act(&beta, &d->gates[3 * t + 1], 1, TERN_ACT_SIGMOID);
        scalar->scale(s, s, decay, d->n_state);
        for (size_t i = 0; i < c->dv; i++) {
            float delta = beta * (v[i] - chain(s + i, c->dv, k, c->dk));
            for (size_t j = 0; j < c->dk; j++)
                s[j * c->dv + i] = tern_fma(k[j], delta, s[j * c->dv + i]);
            d->want[t * (c->dv + 2) + i] = chain(s + i, c->dv, q, c->dk);
        }
    }
}

// The rows in runs of run, run + step, run + 2 step, ... rows, each with columns [0, cut) and
// [cut, dv) apart.
static void delta_in_runs(const tern_float_kernels *kernels, const delta_case *c,
                          const delta_data *d, size_t run, size_t step, size_t cut) {
    memcpy(d->state, d->start, d->n_state * sizeof(float));
    fill(d->out, d->n_out, KIND_PLAIN, 5);
    size_t n;
    for (size_t t = 0, length = run; t < c->n_rows; t += n, length += step) {
        const float *row = d->qkv + t * d->stride, *v = row + 2 * c->dk + 1;
        n = c->n_rows - t < length ? c->n_rows - t : length;
        tern_delta_net_args a = {.out = d->out + t * (c->dv + 2),
                                 .q = row,
                                 .k = row + c->dk,
                                 .v = v,
                                 .a = d->gates + 3 * t,
                                 .b = d->gates + 3 * t + 1,
                                 .stride = d->stride,
                                 .out_stride = c->dv + 2,
                                 .gate_stride = 3,
                                 .n_rows = n,
                                 .dk = c->dk,
                                 .dv = cut,
                                 .A = d->A,
                                 .dt_bias = d->dt_bias,
                                 .eps = d->eps,
                                 .state = d->state,
                                 .state_stride = c->dv,
                                 .scratch = d->scratch};
        kernels->delta_net(&a);
        a.out += cut, a.v += cut, a.state += cut, a.dv = c->dv - cut;
        kernels->delta_net(&a);
    }
    CHECK_MSG(same_bits(d->out, d->want, d->n_out), "%s: %zu x %zu, runs of %zu + %zu, cut at %zu",
              kernels->name, c->dk, c->dv, run, step, cut);
    CHECK_MSG(same_bits(d->state, d->want_state, d->n_state),
              "%s: state of %zu x %zu, runs of %zu + %zu, cut at %zu", kernels->name, c->dk, c->dv,
              run, step, cut);
}

// Seen to fail with a row's own decay for the next one's, a product that rounds before it is added,
// a tile that begins at row 0 again, and the state of the last, partial group not stored.
TEST(float_delta_net_does_not_depend_on_cuts) {
    // Whole, row by row, 17 rows and the rest, growing runs; columns whole and cut at odd places.
    static const size_t runs[][2] = {{MAX_ROWS, 0}, {1, 0}, {17, MAX_ROWS}, {2, 5}, {32, 0}};
    variants v = all_variants();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const delta_case *c = &cases[i];
        delta_data d;
        REQUIRE(delta_open(c, &d));
        delta_plainly(c, &d, v.k[0]);
        for (size_t j = 0; j < v.n; j++) {
            for (size_t r = 0; r < sizeof runs / sizeof *runs; r++)
                delta_in_runs(v.k[j], c, &d, runs[r][0], runs[r][1], r * 13 % (c->dv + 1));
        }
        delta_close(&d);
    }
}

// ---- In double ---------------------------------------------------------------------------------

typedef struct delta_exact {
    double q[MAX_ROWS][MAX_DIM], k[MAX_ROWS][MAX_DIM], v[MAX_ROWS][MAX_DIM];
    double g[MAX_ROWS], beta[MAX_ROWS]; // g: log of the decay
    double s[MAX_DIM][MAX_DIM], out[MAX_ROWS][MAX_DIM];
} delta_exact;

static void exact_unit(double *y, const float *x, size_t n, double eps, double factor) {
    double squares = eps;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    for (size_t i = 0; i < n; i++) y[i] = x[i] * factor / sqrt(squares);
}

static void exact_begin(delta_exact *e, const delta_case *c, const delta_data *d) {
    for (size_t t = 0; t < c->n_rows; t++) {
        const float *row = d->qkv + t * d->stride;
        exact_unit(e->q[t], row, c->dk, d->eps, 1 / sqrt((double)c->dk));
        exact_unit(e->k[t], row + c->dk, c->dk, d->eps, 1);
        for (size_t i = 0; i < c->dv; i++) e->v[t][i] = row[2 * c->dk + 1 + i];
        e->g[t] = d->A * log1p(exp((double)d->gates[3 * t] + d->dt_bias));
        e->beta[t] = 1 / (1 + exp(-(double)d->gates[3 * t + 1]));
    }
    for (size_t i = 0; i < c->dk; i++)
        for (size_t j = 0; j < c->dv; j++) e->s[i][j] = d->start[i * c->dv + j];
}

static void exact_recurrence(delta_exact *e, const delta_case *c) {
    for (size_t t = 0; t < c->n_rows; t++) {
        for (size_t j = 0; j < c->dv; j++) {
            double sk = 0, o = 0;
            for (size_t i = 0; i < c->dk; i++) sk += (e->s[i][j] *= exp(e->g[t])) * e->k[t][i];
            double delta = e->beta[t] * (e->v[t][j] - sk);
            for (size_t i = 0; i < c->dk; i++) o += (e->s[i][j] += e->k[t][i] * delta) * e->q[t][i];
            e->out[t][j] = o;
        }
    }
}

static double dot_exact(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

// One chunk of n rows from row t0 on. With G the running sum of g and L_ij = e^(G_i - G_j):
// (I + A) V' = beta V - beta e^G K S with A_ij = beta_i L_ij k_i . k_j below the diagonal, solved
// downwards; O = e^G Q S + lower(L Q K^T) V'; S = e^(G_last) S + (e^(G_last - G) K)^T V'.
static void exact_chunk(delta_exact *e, const delta_case *c, size_t t0, size_t n) {
    static double fresh[CHUNK][MAX_DIM];
    double sum[CHUNK], before = 0;
    for (size_t i = 0; i < n; i++) before = sum[i] = before + e->g[t0 + i];
    for (size_t i = 0; i < n; i++) {
        const double *k = e->k[t0 + i], *q = e->q[t0 + i];
        for (size_t j = 0; j < c->dv; j++) {
            double sk = 0, sq = 0;
            for (size_t m = 0; m < c->dk; m++) sk += e->s[m][j] * k[m], sq += e->s[m][j] * q[m];
            fresh[i][j] = e->beta[t0 + i] * (e->v[t0 + i][j] - exp(sum[i]) * sk);
            e->out[t0 + i][j] = exp(sum[i]) * sq;
        }
        for (size_t m = 0; m < i; m++) {
            double a = e->beta[t0 + i] * exp(sum[i] - sum[m]) * dot_exact(k, e->k[t0 + m], c->dk);
            for (size_t j = 0; j < c->dv; j++) fresh[i][j] -= a * fresh[m][j];
        }
        for (size_t m = 0; m <= i; m++) {
            double p = exp(sum[i] - sum[m]) * dot_exact(q, e->k[t0 + m], c->dk);
            for (size_t j = 0; j < c->dv; j++) e->out[t0 + i][j] += p * fresh[m][j];
        }
    }
    for (size_t m = 0; m < c->dk; m++)
        for (size_t j = 0; j < c->dv; j++) {
            e->s[m][j] *= exp(sum[n - 1]);
            for (size_t i = 0; i < n; i++)
                e->s[m][j] += exp(sum[n - 1] - sum[i]) * e->k[t0 + i][m] * fresh[i][j];
        }
}

// Greatest differences of outputs and of states, from floats or from the other form.
static void differences(const delta_exact *e, const delta_exact *other, const delta_case *c,
                        const delta_data *d, double worst[2]) {
    worst[0] = worst[1] = 0;
    for (size_t j = 0; j < c->dv; j++) {
        for (size_t t = 0; t < c->n_rows; t++) {
            double y = other ? other->out[t][j] : d->out[t * (c->dv + 2) + j];
            if (!(fabs(y - e->out[t][j]) <= worst[0])) worst[0] = fabs(y - e->out[t][j]);
        }
        for (size_t i = 0; i < c->dk; i++) {
            double y = other ? other->s[i][j] : d->state[i * c->dv + j];
            if (!(fabs(y - e->s[i][j]) <= worst[1])) worst[1] = fabs(y - e->s[i][j]);
        }
    }
}

// Outputs here are up to 0.4, states up to 0.9. Seen to fail with beta left out of A, with the next
// row's g in the decay, and with a coefficient of the logarithm changed by 1e-4.
TEST(float_delta_net_is_its_chunked_form) {
    static delta_exact by_row, by_chunk;
    const delta_case c = {128, 128, MAX_ROWS};
    variants v = all_variants();
    delta_data d;
    double worst[2];
    REQUIRE(delta_open(&c, &d));
    exact_begin(&by_row, &c, &d);
    exact_begin(&by_chunk, &c, &d);
    exact_recurrence(&by_row, &c);
    for (size_t t = 0; t < c.n_rows; t += CHUNK)
        exact_chunk(&by_chunk, &c, t, c.n_rows - t < CHUNK ? c.n_rows - t : CHUNK);
    differences(&by_row, &by_chunk, &c, &d, worst);
    CHECK_MSG(worst[0] < 1e-14 && worst[1] < 1e-14, "forms differ by %g, %g", worst[0], worst[1]);
    delta_plainly(&c, &d, v.k[0]);
    delta_in_runs(v.k[0], &c, &d, 17, 4, 128);
    differences(&by_chunk, NULL, &c, &d, worst);
    CHECK_MSG(worst[0] < 4e-7 && worst[1] < 4e-7, "off by %g, state %g", worst[0], worst[1]);
    delta_close(&d);
}
