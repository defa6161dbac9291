// The convolution of every variant against its chain of fmas in plain C, bit for bit, however the
// rows are cut into runs and the columns among threads.
#include "base/alloc.h"
#include "base/dtype/fma.h"
#include "kernels/cpu/float/checks/float_check.h"
#include "tests/support/harness.h"

typedef struct conv_case {
    size_t n_taps, n_cols, n_rows;
    bool bias;
    tern_cpu_act act;
} conv_case;

static const conv_case cases[] = {
    {2, 1, 9, false, TERN_ACT_NONE},  {3, 15, 7, true, TERN_ACT_NONE},
    {3, 64, 6, false, TERN_ACT_NONE}, {4, 17, 12, false, TERN_ACT_SILU},
    {4, 301, 9, true, TERN_ACT_SILU}, {4, 600, 2, false, TERN_ACT_SILU},
    {5, 33, 8, true, TERN_ACT_NONE},  {8, 272, 19, true, TERN_ACT_SILU},
    {8, 16, 3, false, TERN_ACT_NONE},
};

// Everything is allocated to its exact size, so that sanitizers see reads and writes outside. Rows
// of x and y are 3 longer than n_cols.
typedef struct conv_data {
    float *x, *w, *bias, *start, *state, *y, *want, *want_state;
    size_t stride, state_floats;
} conv_data;

static float *numbers(size_t n, int kind, uint32_t seed) {
    float *p = tern_alloc(TERN_MEM_MISC, n * sizeof *p);
    if (p) fill(p, n, kind, seed);
    return p;
}

// The contract in plain C, from the state `start`; the rows of the state and of x as one run of
// n_taps - 1 + n_rows rows.
static void conv_plainly(const conv_case *c, const conv_data *d, const tern_float_kernels *scalar) {
    size_t before = c->n_taps - 1;
    for (size_t t = 0; t < c->n_rows + before; t++) {
        const float *row = t < before ? d->start + t * c->n_cols : d->x + (t - before) * d->stride;
        if (t >= c->n_rows)
            memcpy(d->want_state + (t - c->n_rows) * c->n_cols, row, c->n_cols * sizeof(float));
    }
    for (size_t t = 0; t < c->n_rows; t++) {
        float *y = d->want + t * d->stride;
        for (size_t i = 0; i < c->n_cols; i++) {
            y[i] = c->bias ? d->bias[i] : 0;
            for (size_t j = 0; j < c->n_taps; j++) {
                size_t from = t + j; // counted from the oldest row of the state
                float value = from < before ? d->start[from * c->n_cols + i]
                                            : d->x[(from - before) * d->stride + i];
                y[i] = tern_fma(d->w[i * c->n_taps + j], value, y[i]);
            }
        }
        if (c->act == TERN_ACT_SILU) scalar->act(y, y, c->n_cols, TERN_ACT_SILU);
    }
}

static bool conv_open(const conv_case *c, int kind, conv_data *d) {
    d->stride = c->n_cols + 3;
    d->state_floats = (c->n_taps - 1) * c->n_cols;
    size_t n = c->n_rows * d->stride - 3; // the last row ends with its last column
    d->x = numbers(n, kind, 1);
    d->w = numbers(c->n_cols * c->n_taps, KIND_PLAIN, 2);
    d->bias = numbers(c->n_cols, KIND_PLAIN, 3);
    d->start = numbers(d->state_floats, kind, 4);
    d->state = numbers(d->state_floats, kind, 5);
    d->y = numbers(n, KIND_PLAIN, 6);
    d->want = numbers(n, KIND_PLAIN, 6); // the gaps between rows must stay as they are
    d->want_state = numbers(d->state_floats, KIND_PLAIN, 7);
    return d->x && d->w && d->bias && d->start && d->state && d->y && d->want && d->want_state;
}

static void conv_close(conv_data *d) {
    float *all[] = {d->x, d->w, d->bias, d->start, d->state, d->y, d->want, d->want_state};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tern_free(all[i]);
}

// The rows in runs of at most `run`, each with columns [0, cut) and [cut, n_cols) apart.
static void conv_in_runs(const tern_float_kernels *k, const conv_case *c, const conv_data *d,
                         size_t run, size_t cut) {
    size_t n = c->n_rows * d->stride - 3;
    memcpy(d->state, d->start, d->state_floats * sizeof(float));
    fill(d->y, n, KIND_PLAIN, 6);
    for (size_t t = 0; t < c->n_rows; t += run) {
        tern_conv_args a = {.y = d->y + t * d->stride,
                            .x = d->x + t * d->stride,
                            .y_stride = d->stride,
                            .x_stride = d->stride,
                            .w = d->w,
                            .bias = c->bias ? d->bias : NULL,
                            .state = d->state,
                            .n_rows = c->n_rows - t < run ? c->n_rows - t : run,
                            .n_cols = c->n_cols,
                            .n_taps = c->n_taps,
                            .act = c->act};
        a.first = cut, a.last = c->n_cols;
        k->conv(&a);
        a.first = 0, a.last = cut;
        k->conv(&a);
    }
    CHECK_MSG(same_bits(d->y, d->want, n), "%s: %zu taps, %zu columns, runs of %zu, cut at %zu",
              k->name, c->n_taps, c->n_cols, run, cut);
    CHECK_MSG(same_bits(d->state, d->want_state, d->state_floats),
              "%s: state of %zu taps, %zu columns, runs of %zu", k->name, c->n_taps, c->n_cols,
              run);
}

// Seen to fail with the state left as it was, with y kept for x, with runs shorter than the state
// overwriting all of it, with taps from the newest to the oldest, and with the bias added last.
TEST(float_conv_does_not_depend_on_cuts) {
    variants v = all_variants();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const conv_case *c = &cases[i];
        for (int kind = 0; kind < N_KINDS; kind++) {
            conv_data d = {0};
            REQUIRE(conv_open(c, kind, &d));
            conv_plainly(c, &d, v.k[0]);
            for (size_t j = 0; j < v.n; j++) {
                for (size_t run = 1; run <= c->n_rows; run++)
                    conv_in_runs(v.k[j], c, &d, run, run * 37 % (c->n_cols + 1));
            }
            conv_close(&d);
        }
    }
}

// ---- Gradients ---------------------------------------------------------------------------------

// The contract in plain C, on rows without gaps.
static void gradients_plainly(const conv_case *c, const float *x, const float *dy, const float *w,
                              float *dx, float *dw) {
    size_t d = c->n_cols, back = c->n_taps - 1;
    for (size_t i = 0; i < d; i++)
        for (size_t t = 0; t < c->n_rows; t++) {
            dx[t * d + i] = 0;
            for (size_t j = 0; j < c->n_taps; j++)
                if (t + back - j < c->n_rows)
                    dx[t * d + i] =
                        tern_fma(w[i * c->n_taps + j], dy[(t + back - j) * d + i], dx[t * d + i]);
            for (size_t j = 0; j < c->n_taps; j++)
                if (t + j >= back)
                    dw[i * c->n_taps + j] =
                        tern_fma(dy[t * d + i], x[(t + j - back) * d + i], dw[i * c->n_taps + j]);
        }
}

// Seen to fail with taps of dx in reverse, with the last row left out of dw, and with dw begun at
// 0.
TEST(float_conv_gradients_do_not_depend_on_cuts) {
    variants v = all_variants();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const conv_case *c = &cases[i];
        size_t n = c->n_rows * c->n_cols, n_w = c->n_cols * c->n_taps, cut = c->n_cols * 2 / 3;
        float *x = numbers(n, KIND_PLAIN, 1), *dy = numbers(n, KIND_PLAIN, 2);
        float *w = numbers(n_w, KIND_PLAIN, 3), *dw = numbers(n_w, KIND_PLAIN, 4);
        float *dx = numbers(n, KIND_PLAIN, 5), *want = numbers(n, KIND_PLAIN, 6);
        float *want_w = numbers(n_w, KIND_PLAIN, 4);
        REQUIRE(x && dy && w && dw && dx && want && want_w);
        gradients_plainly(c, x, dy, w, want, want_w);
        for (size_t j = 0; j < v.n; j++) {
            const tern_float_kernels *k = v.k[j];
            fill(dw, n_w, KIND_PLAIN, 4);
            for (int side = 0; side < 2; side++) {
                size_t first = side ? 0 : cut, last = side ? cut : c->n_cols;
                const tern_conv_grad_args a = {dx,        dw,        dy,        x,     w,
                                               c->n_rows, c->n_cols, c->n_taps, first, last};
                k->conv_grad_x(&a);
                k->conv_grad_w(&a);
            }
            CHECK_MSG(same_bits(dx, want, n) && same_bits(dw, want_w, n_w),
                      "%s: gradients of %zu taps, %zu columns", k->name, c->n_taps, c->n_cols);
        }
        float *all[] = {x, dy, w, dw, dx, want, want_w};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) tern_free(all[j]);
    }
}
