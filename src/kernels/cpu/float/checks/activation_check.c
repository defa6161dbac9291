// Activations, their gradients and norms of the scalar kernels against arithmetic in double.
#include "kernels/cpu/float/checks/float_check.h"
#include "tests/support/harness.h"

enum { N_MAX = 6912 };
static float x[N_MAX], w[N_MAX], expected[N_MAX], got[N_MAX], other[N_MAX];

static double act_in_double(tern_cpu_act act, double a) {
    switch (act) {
    case TERN_ACT_SILU: return a / (1 + exp(-a));
    case TERN_ACT_RELU2: return a > 0 ? a * a : 0;
    case TERN_ACT_GELU: return 0.5 * a * erfc(-a / sqrt(2));
    case TERN_ACT_GELU_TANH:
        return 0.5 * a * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (a + 0.044715 * a * a * a)));
    case TERN_ACT_SIGMOID: return 1 / (1 + exp(-a));
    case TERN_ACT_TANH: return tanh(a);
    case TERN_ACT_ASINH: return asinh(a);
    case TERN_ACT_NONE: break;
    }
    return a;
}

// Against libm in double, softplus with the bound that vec_math.inl states. Seen to fail with a
// coefficient of the logarithm changed by 1e-5, with e^x for e^-|x|, with a threshold at 10, and
// with s (1 - s) for the slope.
TEST(float_sigmoid_and_softplus_are_accurate) {
    variants v = all_variants();
    double worst[3] = {0, 0, 0};
    for (int i = 0; i < N_MAX; i++) w[i] = 1;
    for (int part = 0; part < 26; part++) { // -87 .. 88.5
        for (int i = 0; i < N_MAX; i++) x[i] = (float)part * 6.75f - 87 + (float)i * 0x1p-10f;
        v.k[0]->act(expected, x, N_MAX, TERN_ACT_SIGMOID);
        v.k[0]->softplus(got, x, N_MAX);
        v.k[0]->act_grad(other, x, w, N_MAX, TERN_ACT_SIGMOID);
        for (int i = 0; i < N_MAX; i++) {
            double a = x[i], sigmoid = 1 / (1 + exp(-a));
            double log_1p = a > 30 ? a : log1p(exp(a));
            worst[0] = fmax(worst[0], fabs(expected[i] - sigmoid) / sigmoid);
            worst[1] = fmax(worst[1], fabs(got[i] - log_1p) / log_1p);
            double slope = sigmoid / (1 + exp(a)); // 0 past 87, where e^-x is
            if (a <= 87) worst[2] = fmax(worst[2], fabs(other[i] - slope) / slope);
        }
    }
    CHECK_MSG(worst[0] <= 2e-7, "sigmoid is off by %g", worst[0]);
    CHECK_MSG(worst[1] <= 3e-7, "softplus is off by %g", worst[1]);
    CHECK_MSG(worst[2] <= 6e-7, "slope of sigmoid is off by %g", worst[2]);
    static const float ends[] = {-INFINITY, -100, 100, INFINITY, NAN};
    v.k[0]->softplus(got, ends, 5);
    v.k[0]->act(expected, ends, 5, TERN_ACT_SIGMOID);
    CHECK(got[0] == 0 && got[1] == 0 && got[2] == 100 && got[3] == INFINITY && isnan(got[4]));
    CHECK(expected[0] < 1e-37f && expected[2] == 1 && expected[3] == 1 && isnan(expected[4]));
}

TEST(float_activations_and_norm_are_accurate) {
    variants v = all_variants();
    for (int i = 0; i < N_MAX; i++) x[i] = (float)(i - N_MAX / 2) * 0.01f; // -34 .. 34
    v.k[0]->act(expected, x, N_MAX, TERN_ACT_SILU);
    v.k[0]->act(got, x, N_MAX, TERN_ACT_GELU_TANH);
    for (int i = 0; i < N_MAX; i++) {
        double a = x[i], silu = a / (1 + exp(-a));
        double gelu = 0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)));
        CHECK_MSG(fabs(expected[i] - silu) <= 4e-7 * fabs(silu) + 1e-37, "silu(%g)", a);
        CHECK_MSG(fabs(got[i] - gelu) <= 1e-5 * fabs(gelu) + 1e-6, "gelu by tanh(%g)", a);
    }
    // The relative error of e^(-x^2 / 2) is that of its argument: x^2 / 2 times 2^-24. Seen to fail
    // with the tanh form, and with one coefficient of the polynomial changed by 1e-6.
    v.k[0]->act(got, x, N_MAX, TERN_ACT_GELU);
    for (int i = 0; i < N_MAX; i++) {
        double a = x[i], gelu = 0.5 * a * erfc(-a / sqrt(2));
        double bound = (4e-7 + a * a * 0x1p-24) * fabs(gelu) + 1e-36;
        CHECK_MSG(fabs(got[i] - gelu) <= bound, "gelu(%g) is %.9g, not %.9g", a, (double)got[i],
                  gelu);
    }
    double squares = 0;
    for (int i = 0; i < 1000; i++) squares += (double)x[i] * x[i];
    fill(w, 1000, KIND_PLAIN, 4);
    v.k[0]->rms_norm(expected, x, w, 1000, 1e-5f);
    for (int i = 0; i < 1000; i++) {
        double y = x[i] / sqrt(squares / 1000 + 1e-5) * (double)w[i];
        CHECK(fabs(expected[i] - y) <= 1e-6 * fabs(y));
    }
}

// Over all sizes that it is made for, and past them. Seen to fail with one halving fewer, and with
// the square's share of t left out.
TEST(float_asinh_is_accurate) {
    variants v = all_variants();
    double worst = 0;
    for (int i = 0; i < N_MAX; i++) // 1e-20 to 1e18, both signs
        x[i] = (float)(pow(10, (double)i / N_MAX * 38 - 20) * (i % 2 ? -1 : 1));
    v.k[0]->act(got, x, N_MAX, TERN_ACT_ASINH);
    for (int i = 0; i < N_MAX; i++) {
        double y = asinh((double)x[i]);
        worst = fmax(worst, fabs(got[i] - y) / fabs(y));
    }
    CHECK_MSG(worst <= 6e-7, "asinh is off by %g", worst);
    static const float ends[] = {-INFINITY, -0.0f, 0, 3e38f, NAN};
    v.k[0]->act(got, ends, 5, TERN_ACT_ASINH);
    CHECK(got[0] < -42 && got[0] > -43 && got[1] == 0 && got[2] == 0 && got[3] > 42 &&
          got[3] < 43 && isnan(got[4]));
}

// Against differences of the functions in double. Seen to fail with 1 / sqrt(2 pi) cut to 0.39894.
TEST(float_activation_gradients_are_slopes) {
    static const tern_cpu_act acts[] = {TERN_ACT_SILU,      TERN_ACT_RELU2,   TERN_ACT_GELU,
                                        TERN_ACT_GELU_TANH, TERN_ACT_SIGMOID, TERN_ACT_ASINH};
    variants v = all_variants();
    enum { N = 1200 };
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - N / 2) * 0.01f + 0.003f; // -6 .. 6, and no 0: relu2 bends there
        w[i] = 1;
    }
    for (size_t k = 0; k < sizeof acts / sizeof *acts; k++) {
        v.k[0]->act_grad(got, x, w, N, acts[k]);
        v.k[0]->glu_grad(&(tern_glu_grad_args){expected, other, x, w, w, N}, acts[k]);
        for (int i = 0; i < N; i++) {
            double h = 1e-5, a = x[i];
            double above = act_in_double(acts[k], a + h), below = act_in_double(acts[k], a - h);
            double slope = (above - below) / (2 * h);
            CHECK_MSG(fabs(got[i] - slope) <= 1e-6 * fabs(slope) + 1e-6,
                      "%d: slope at %g is %g, not %g", (int)acts[k], a, (double)got[i], slope);
            CHECK(expected[i] == got[i]);
            double y = act_in_double(acts[k], a);
            CHECK(fabs(other[i] - y) <= 1e-5 * fabs(y) + 1e-6);
        }
    }
}

// Seen to fail with 1 + t^2 for the slope, and with x for the capped score.
TEST(float_soft_cap_has_its_slope) {
    variants v = all_variants();
    enum { N = 1200 };
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - N / 2) * 0.02f;
        other[i] = 2;
    }
    v.k[0]->soft_cap(got, x, 3, N);
    v.k[0]->soft_cap_grad(other, got, 3, N);
    for (int i = 0; i < N; i++) {
        double t = tanh((double)x[i] / 3);
        CHECK_MSG(fabs(got[i] - 3 * t) <= 1e-6 * fabs(3 * t), "cap of %g", (double)x[i]);
        // 1 - t^2 loses the digits that t shares with 1.
        CHECK_MSG(fabs(other[i] - 2 * (1 - t * t)) <= 1e-6, "slope at %g", (double)x[i]);
    }
}
