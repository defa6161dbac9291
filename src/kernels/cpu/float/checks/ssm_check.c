// The state space of every variant against its recurrence in plain C, bit for bit, however the rows
// are cut into runs and the columns among threads.
#include "base/alloc.h"
#include "base/dtype/fma.h"
#include "kernels/cpu/float/checks/float_check.h"
#include "tests/support/harness.h"

typedef struct ssm_case {
    size_t n_state, n_cols, n_rows;
} ssm_case;

static const ssm_case cases[] = {{128, 64, 40}, {16, 24, 33}, {5, 12, 17},
                                 {256, 16, 7},  {1, 1, 5},    {31, 80, 16}};

// Everything is allocated to its exact size, so that sanitizers see reads and writes outside. A row
// is x, B and C one after the other.
typedef struct ssm_data {
    float *rows, *dt, *start, *state, *want_state, *out, *want;
    size_t stride, state_floats;
} ssm_data;

static float *numbers(size_t n, int kind, uint32_t seed) {
    float *p = tern_alloc(TERN_MEM_MISC, n * sizeof *p);
    if (p) fill(p, n, kind, seed);
    return p;
}

static bool ssm_open(const ssm_case *c, ssm_data *d) {
    d->stride = c->n_cols + 2 * c->n_state;
    d->state_floats = c->n_state * c->n_cols;
    d->rows = numbers(c->n_rows * d->stride, KIND_PLAIN, 1);
    d->dt = numbers(c->n_rows, KIND_PLAIN, 2);
    d->start = numbers(d->state_floats, KIND_PLAIN, 3);
    d->state = numbers(d->state_floats, KIND_PLAIN, 3);
    d->want_state = numbers(d->state_floats, KIND_PLAIN, 3);
    d->out = numbers(c->n_rows * c->n_cols, KIND_PLAIN, 4);
    d->want = numbers(c->n_rows * c->n_cols, KIND_PLAIN, 5);
    return d->rows && d->dt && d->start && d->state && d->want_state && d->out && d->want;
}

static void ssm_close(ssm_data *d) {
    float *all[] = {d->rows, d->dt, d->start, d->state, d->want_state, d->out, d->want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tern_free(all[i]);
}

#define RATE    (-0.7f)
#define SKIP    0.4f
#define DT_BIAS (-0.3f)

// The contract in plain C.
static void ssm_plainly(const ssm_case *c, const ssm_data *d, const tern_float_kernels *scalar) {
    for (size_t t = 0; t < c->n_rows; t++) {
        const float *x = d->rows + t * d->stride, *b = x + c->n_cols, *to = b + c->n_state;
        float step = d->dt[t] + DT_BIAS, decay;
        scalar->softplus(&step, &step, 1);
        decay = RATE * step;
        scalar->exp_scaled(&decay, &decay, 0, 1, 1);
        for (size_t i = 0; i < c->n_cols; i++) {
            float y = 0, in = step * x[i];
            for (size_t j = 0; j < c->n_state; j++) {
                float *s = &d->want_state[j * c->n_cols + i];
                *s = tern_fma(b[j], in, *s * decay);
                y = tern_fma(*s, to[j], y);
            }
            d->want[t * c->n_cols + i] = tern_fma(SKIP, x[i], y);
        }
    }
}

// The rows in runs of at most `run`, each with columns [0, cut) and the rest apart.
static void ssm_in_runs(const tern_float_kernels *k, const ssm_case *c, const ssm_data *d,
                        size_t run, size_t cut) {
    memcpy(d->state, d->start, d->state_floats * sizeof *d->state);
    for (size_t t = 0; t < c->n_rows; t += run) {
        const float *x = d->rows + t * d->stride;
        for (int half = 0; half < 2; half++) {
            size_t first = half ? cut : 0, n = half ? c->n_cols - cut : cut;
            tern_ssm_args a = {.out = d->out + t * c->n_cols + first,
                               .x = x + first,
                               .b = x + c->n_cols,
                               .c = x + c->n_cols + c->n_state,
                               .dt = d->dt + t,
                               .out_stride = c->n_cols,
                               .stride = d->stride,
                               .dt_stride = 1,
                               .n_rows = c->n_rows - t < run ? c->n_rows - t : run,
                               .n_state = c->n_state,
                               .n_cols = n,
                               .A = RATE,
                               .D = SKIP,
                               .dt_bias = DT_BIAS,
                               .state = d->state + first,
                               .state_stride = c->n_cols};
            if (n > 0) k->ssm(&a);
        }
    }
}

// Seen to fail with: B and C exchanged.
TEST(float_ssm_does_not_depend_on_cuts) {
    const char *names[8];
    size_t n_names = tern_cpu_kernels_list(names);
    tern_cpu_kernels scalar, k;
    CHECK(tern_cpu_kernels_select("scalar", &scalar));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ssm_case *c = &cases[i];
        ssm_data d;
        bool ok = ssm_open(c, &d);
        CHECK(ok);
        if (ok) ssm_plainly(c, &d, scalar.f);
        for (size_t v = 0; ok && v < n_names; v++)
            for (size_t run = 1; run <= 40; run += run == 1 ? 6 : 33) {
                CHECK(tern_cpu_kernels_select(names[v], &k));
                ssm_in_runs(k.f, c, &d, run, v % 2 ? c->n_cols : c->n_cols / 3);
                bool same = memcmp(d.out, d.want, c->n_rows * c->n_cols * sizeof(float)) == 0 &&
                            memcmp(d.state, d.want_state, d.state_floats * sizeof(float)) == 0;
                CHECK_MSG(same, "%s: case %zu in runs of %zu", names[v], i, run);
            }
        ssm_close(&d);
    }
}
