// The convolutions of codecs in every variant against their chains of fmas in plain C, bit for bit,
// and the half snake against libm.
#include "base/alloc.h"
#include "base/dtype/fma.h"
#include "kernels/cpu/float/checks/float_check.h"

static float *numbers(size_t n, int kind, uint32_t seed) {
    float *p = tern_alloc_array(TERN_MEM_MISC, n ? n : 1, sizeof *p);
    if (p) fill(p, n, kind, seed);
    return p;
}

typedef struct causal_case {
    size_t n_rows, n_in, n_taps, dilation, n_out;
} causal_case;

// Outputs of one vector and of two, whole and with an end; rows of every tile and its remainders.
static const causal_case causal_cases[] = {
    {1, 1, 2, 1, 1},    {7, 27, 3, 1, 27},  {12, 5, 7, 3, 32},  {13, 9, 3, 5, 16},
    {23, 33, 2, 2, 17}, {24, 16, 11, 5, 8}, {31, 4, 3, 1, 31},  {5, 54, 11, 1, 30},
    {3, 7, 3, 1, 15},   {11, 16, 7, 1, 1},  {17, 20, 5, 2, 29},
};

static void causal_plainly(const tern_conv1d_args *a, float *y) {
    for (size_t t = 0; t < a->n_rows; t++)
        for (size_t o = 0; o < a->n_out; o++) {
            float sum = a->bias[o];
            for (size_t j = 0; j < a->n_taps; j++)
                for (size_t i = 0; i < a->n_in; i++)
                    sum = tern_fma(a->x[(t + j * a->dilation) * a->n_in + i],
                                   a->w[(j * a->n_in + i) * TERN_CONV_OUTPUTS + o], sum);
            y[t * a->y_stride + o] = sum;
        }
}

TEST(float_conv1d_is_its_chain_of_fmas) {
    variants v = all_variants();
    for (size_t i = 0; i < sizeof causal_cases / sizeof *causal_cases; i++) {
        const causal_case *c = &causal_cases[i];
        size_t before = (c->n_taps - 1) * c->dilation, stride = c->n_out + 3;
        size_t n_y = c->n_rows * stride - 3, n_w = c->n_taps * c->n_in * TERN_CONV_OUTPUTS;
        float *x = numbers((c->n_rows + before) * c->n_in, KIND_PLAIN, 1);
        float *w = numbers(n_w, KIND_PLAIN, 2), *bias = numbers(c->n_out, KIND_PLAIN, 3);
        float *y = numbers(n_y, KIND_PLAIN, 4), *want = numbers(n_y, KIND_PLAIN, 4);
        REQUIRE(x && w && bias && y && want);
        tern_conv1d_args a = {.x = x,
                              .y_stride = stride,
                              .n_rows = c->n_rows,
                              .n_in = c->n_in,
                              .n_taps = c->n_taps,
                              .dilation = c->dilation,
                              .n_out = c->n_out,
                              .w = w,
                              .bias = bias};
        causal_plainly(&a, want);
        for (size_t k = 0; k < v.n; k++) {
            fill(y, n_y, KIND_PLAIN, 4); // the gaps between rows must stay as they are
            a.y = y;
            v.k[k]->conv1d(&a);
            CHECK_MSG(same_bits(y, want, n_y), "%s: %zu rows, %zu to %zu, %zu taps", v.k[k]->name,
                      c->n_rows, c->n_in, c->n_out, c->n_taps);
        }
        float *all[] = {x, w, bias, y, want};
        for (size_t k = 0; k < 5; k++) tern_free(all[k]);
    }
}

// Against torch's definition: x[t] adds w[i][o][k] to row t * rate + k.
TEST(float_upsample_conv_is_the_transpose) {
    enum { IN = 6, OUT = 4, RATE = 3, TAPS = 2 * RATE };
    variants v = all_variants();
    for (size_t groups = 1; groups <= 2; groups++) {
        size_t each = OUT / groups, in_each = IN / groups;
        float *x = numbers(2 * IN, KIND_PLAIN, 1), *w = numbers(IN * each * TAPS, KIND_PLAIN, 2);
        float *bias = numbers(OUT, KIND_PLAIN, 3), y[RATE * OUT], first[RATE * OUT];
        REQUIRE(x && w && bias);
        for (size_t k = 0; k < v.n; k++) {
            const tern_upsample_args a = {.y = y,
                                          .before = x,
                                          .x = x + IN,
                                          .w = w,
                                          .bias = bias,
                                          .n_in = IN,
                                          .n_out = OUT,
                                          .n_groups = groups,
                                          .rate = RATE};
            v.k[k]->upsample_conv(&a);
            if (k == 0) memcpy(first, y, sizeof y);
            CHECK_MSG(same_bits(y, first, RATE * OUT), "%s", v.k[k]->name);
        }
        for (size_t p = 0; p < RATE; p++)
            for (size_t o = 0; o < OUT; o++) {
                double sum = (double)bias[o];
                for (size_t i = o / each * in_each; i < (o / each + 1) * in_each; i++) {
                    const float *taps = w + (i * each + o % each) * TAPS;
                    sum += (double)taps[p + RATE] * (double)x[i];
                    sum += (double)taps[p] * (double)x[IN + i];
                }
                CHECK(fabs(sum - (double)y[p * OUT + o]) < 1e-5);
            }
        tern_free(x);
        tern_free(w);
        tern_free(bias);
    }
}

TEST(float_half_snake_is_near_libms) {
    variants v = all_variants();
    static const size_t widths[] = {1, 2, 27, 32, 54, 65};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        size_t n = widths[i], half = n / 2;
        for (int kind = 0; kind < N_KINDS; kind++) {
            float *x = numbers(n, kind, 1), *alpha = numbers(half, KIND_PLAIN, 2);
            float *y = numbers(n, KIND_PLAIN, 3), *first = numbers(n, KIND_PLAIN, 3);
            REQUIRE(x && alpha && y && first);
            v.k[0]->half_snake(first, x, alpha, n);
            for (size_t k = 1; k < v.n; k++) {
                v.k[k]->half_snake(y, x, alpha, n);
                CHECK_MSG(same_bits(y, first, n), "%s: %zu columns", v.k[k]->name, n);
            }
            for (size_t j = 0; j < n && kind <= KIND_TINY; j++) {
                double u = (double)x[j], a = j < half ? (double)alpha[j] : 0;
                double want = j < half ? u + pow(sin(a * u), 2) / (a + 1e-9) : fmax(u, 0.01 * u);
                double room = j < half ? 1e-6 / fmax(fabs(a), 1e-3) + 1e-6 * fabs(want) : 1e-6;
                CHECK_MSG(fabs((double)first[j] - want) <= room, "%g of %g, %g", (double)first[j],
                          u, a);
            }
            float *all[] = {x, alpha, y, first};
            for (size_t k = 0; k < 4; k++) tern_free(all[k]);
        }
    }
}
