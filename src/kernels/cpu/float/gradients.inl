// Kernels of training: derivatives of activations, norms and softmax, the rounding that BitNet
// trains with, and AdamW. The mathematics is in graph/differentiate.c and kernels/train.h.

// The activation and its derivative.
VEC_INLINE v16 activate_both(v16 x, tern_cpu_act act, v16 *slope) {
    v16 one = v16_set1(1);
    if (act == TERN_ACT_RELU2) {
        v16 r = v16_max(v16_set1(0), x);
        *slope = v16_add(r, r);
        return v16_mul(r, r);
    }
    if (act == TERN_ACT_NONE) {
        *slope = one;
        return x;
    }
    if (act == TERN_ACT_GELU) { // x Phi(x): slope Phi + x e^(-x^2 / 2) / sqrt(2 pi)
        v16 e, phi = normal_cdf(x, &e);
        *slope = v16_fma(v16_mul(x, v16_set1(0.3989422804f)), e, phi);
        return v16_mul(x, phi);
    }
    if (act == TERN_ACT_SIGMOID) { // 1 - s = s e^-x, which keeps its digits where s rounds to 1
        v16 s = logistic(x), e = vec_exp(v16_mul(x, v16_set1(-1)));
        *slope = v16_mul(s, v16_mul(s, e));
        return s;
    }
    if (act == TERN_ACT_TANH) { // 1 - y^2 = 4 s(2x) s(-2x), which does not cancel
        v16 two = v16_add(x, x), s = logistic(two);
        v16 e = vec_exp(v16_mul(two, v16_set1(-1)));
        *slope = v16_mul(v16_set1(4), v16_mul(s, v16_mul(s, e)));
        return vec_tanh(x);
    }
    if (act == TERN_ACT_ASINH) {
        *slope = v16_div(one, v16_sqrt(v16_fma(x, x, one)));
        return vec_asinh(x);
    }
    // x s(z), with z = x for SiLU and z = x (a + b x^2) for GELU by tanh: slope s + x s (1 - s) z'.
    v16 z = x, dz = one;
    if (act == TERN_ACT_GELU_TANH) {
        v16 x2 = v16_mul(x, x), a = v16_set1(1.595769122f);
        z = v16_mul(x, v16_fma(x2, v16_set1(0.07135481627f), a));
        dz = v16_fma(x2, v16_set1(3 * 0.07135481627f), a);
    }
    v16 s = logistic(z), y = v16_mul(x, s);
    *slope = v16_fma(v16_mul(y, v16_sub(one, s)), dz, s);
    return y;
}

VEC_INLINE void act_grad_row(float *dx, const float *x, const float *dy, size_t n,
                             tern_cpu_act act) {
    for (size_t i = 0; i < n; i += 16) {
        v16 slope;
        activate_both(load_some(x + i, n - i), act, &slope);
        store_some(dx + i, v16_mul(load_some(dy + i, n - i), slope), n - i);
    }
}

VEC_INLINE void glu_grad_row(const tern_glu_grad_args *a, tern_cpu_act act) {
    const size_t n = a->n;
    for (size_t i = 0; i < n; i += 16) {
        v16 slope, d = load_some(a->dy + i, n - i);
        v16 y = activate_both(load_some(a->gate + i, n - i), act, &slope);
        v16 u = load_some(a->up + i, n - i);
        store_some(a->dgate + i, v16_mul(v16_mul(d, u), slope), n - i);
        store_some(a->dup + i, v16_mul(d, y), n - i);
    }
}

static void act_grad(float *dx, const float *x, const float *dy, size_t n, tern_cpu_act act) {
    switch (act) {
    case TERN_ACT_SILU: act_grad_row(dx, x, dy, n, TERN_ACT_SILU); break;
    case TERN_ACT_RELU2: act_grad_row(dx, x, dy, n, TERN_ACT_RELU2); break;
    case TERN_ACT_GELU: act_grad_row(dx, x, dy, n, TERN_ACT_GELU); break;
    case TERN_ACT_GELU_TANH: act_grad_row(dx, x, dy, n, TERN_ACT_GELU_TANH); break;
    case TERN_ACT_SIGMOID: act_grad_row(dx, x, dy, n, TERN_ACT_SIGMOID); break;
    case TERN_ACT_TANH: act_grad_row(dx, x, dy, n, TERN_ACT_TANH); break;
    case TERN_ACT_ASINH: act_grad_row(dx, x, dy, n, TERN_ACT_ASINH); break;
    case TERN_ACT_NONE: act_grad_row(dx, x, dy, n, TERN_ACT_NONE); break;
    }
}

static void glu_grad(const tern_glu_grad_args *args, tern_cpu_act act) {
    switch (act) {
    case TERN_ACT_SILU: glu_grad_row(args, TERN_ACT_SILU); break;
    case TERN_ACT_RELU2: glu_grad_row(args, TERN_ACT_RELU2); break;
    case TERN_ACT_GELU: glu_grad_row(args, TERN_ACT_GELU); break;
    case TERN_ACT_GELU_TANH: glu_grad_row(args, TERN_ACT_GELU_TANH); break;
    case TERN_ACT_SIGMOID: glu_grad_row(args, TERN_ACT_SIGMOID); break;
    case TERN_ACT_TANH: glu_grad_row(args, TERN_ACT_TANH); break;
    case TERN_ACT_ASINH: glu_grad_row(args, TERN_ACT_ASINH); break;
    case TERN_ACT_NONE: glu_grad_row(args, TERN_ACT_NONE); break;
    }
}

static void rms_norm_grad(const tern_rms_norm_grad_args *args) {
    const float *x = args->x, *w = args->w, *dy = args->dy, *residual = args->residual;
    float *dx = args->dx, *dw = args->dw;
    const size_t n = args->n;
    v16 squares = v16_set1(0), products = v16_set1(0);
    for (size_t i = 0; i < n; i += 16) {
        v16 a = load_some(x + i, n - i);
        v16 g = v16_mul(load_some(dy + i, n - i), load_some(w + i, n - i));
        squares = v16_fma(a, a, squares);
        products = v16_fma(a, g, products);
    }
    float r = 1 / sqrtf(v16_sum(squares) / (float)n + args->eps);
    v16 vr = v16_set1(r), along = v16_set1(-(v16_sum(products) * r * r / (float)n));
    for (size_t i = 0; i < n; i += 16) {
        v16 a = load_some(x + i, n - i), d = load_some(dy + i, n - i);
        v16 g = v16_mul(d, load_some(w + i, n - i));
        v16 y = v16_mul(v16_fma(a, along, g), vr);
        if (residual) y = v16_add(y, load_some(residual + i, n - i));
        if (dw)
            store_some(dw + i, v16_fma(v16_mul(a, vr), d, load_some(dw + i, n - i)), n - i);
        store_some(dx + i, y, n - i);
    }
}

static void softmax_grad(float *ds, const float *p, const float *dp, float minus, float factor,
                         size_t n) {
    v16 m = v16_set1(minus), f = v16_set1(factor);
    for (size_t i = 0; i < n; i += 16) {
        v16 d = v16_mul(v16_sub(load_some(dp + i, n - i), m), f);
        store_some(ds + i, v16_mul(d, load_some(p + i, n - i)), n - i);
    }
}

static void soft_cap_grad(float *ds, const float *y, float cap, size_t n) {
    v16 c = v16_set1(cap), one = v16_set1(1), minus = v16_set1(-1);
    for (size_t i = 0; i < n; i += 16) {
        v16 t = v16_div(load_some(y + i, n - i), c);
        v16 slope = v16_fma(v16_mul(t, minus), t, one);
        store_some(ds + i, v16_mul(load_some(ds + i, n - i), slope), n - i);
    }
}

// Tap j of 16 columns, or fewer, whose taps lie one after the other.
VEC_INLINE v16 taps_of(const float *w, size_t j, size_t n_taps, size_t n) {
    float some[16] = {0};
    for (size_t i = 0; i < 16 && i < n; i++) some[i] = w[i * n_taps + j];
    return load_some(some, n);
}

static void conv_grad_x(const tern_conv_grad_args *args) {
    const size_t n_rows = args->n_rows, n_cols = args->n_cols, n_taps = args->n_taps;
    const size_t first = args->first, last = args->last;
    const float *dy = args->dy, *w = args->w;
    float *dx = args->dx;
    for (size_t c = first; c < last; c += 16) {
        v16 taps[TERN_CONV_TAPS];
        size_t n = last - c;
        for (size_t j = 0; j < n_taps; j++) taps[j] = taps_of(w + c * n_taps, j, n_taps, n);
        for (size_t t = 0; t < n_rows; t++) {
            v16 sum = v16_set1(0);
            for (size_t j = 0; j < n_taps; j++) {
                size_t row = t + n_taps - 1 - j;
                if (row < n_rows)
                    sum = v16_fma(taps[j], load_some(dy + row * n_cols + c, n), sum);
            }
            store_some(dx + t * n_cols + c, sum, n);
        }
    }
}

static void conv_grad_w(const tern_conv_grad_args *args) {
    const size_t n_rows = args->n_rows, n_cols = args->n_cols, n_taps = args->n_taps;
    const size_t first = args->first, last = args->last;
    const float *dy = args->dy, *x = args->x;
    float *dw = args->dw;
    for (size_t c = first; c < last; c += 16) {
        size_t n = last - c;
        for (size_t j = 0; j < n_taps; j++) {
            v16 sum = taps_of(dw + c * n_taps, j, n_taps, n);
            size_t back = n_taps - 1 - j;
            for (size_t t = back; t < n_rows; t++)
                sum = v16_fma(load_some(dy + t * n_cols + c, n),
                              load_some(x + (t - back) * n_cols + c, n), sum);
            float some[16];
            store_some(some, sum, n);
            for (size_t i = 0; i < 16 && i < n; i++) dw[(c + i) * n_taps + j] = some[i];
        }
    }
}

static float sum_abs(const float *x, size_t n) {
    v16 sum = v16_set1(0);
    for (size_t i = 0; i < n; i += 16) sum = v16_add(sum, v16_abs(load_some(x + i, n - i)));
    return v16_sum(sum);
}

static void fake_quantize(float *y, const float *x, size_t n) {
    v16 top = v16_set1(0);
    for (size_t i = 0; i < n; i += 16) top = v16_max(v16_abs(load_some(x + i, n - i)), top);
    float largest = v16_top(top), scale = 127 / (largest > 1e-5f ? largest : 1e-5f);
    v16 inverse = v16_set1(1 / scale);
    for (size_t i = 0; i < n; i += 16) {
        v16 q = vec_rint(v16_mul(load_some(x + i, n - i), v16_set1(scale)));
        q = v16_max(v16_min(q, v16_set1(127)), v16_set1(-128));
        store_some(y + i, v16_mul(q, inverse), n - i);
    }
}

static void ternarize(float *y, const float *w, float gamma, size_t n) {
    v16 divisor = v16_set1(gamma + 1e-6f), scale = v16_set1(gamma);
    for (size_t i = 0; i < n; i += 16) {
        v16 q = v16_div(load_some(w + i, n - i), divisor);
        q = vec_rint(v16_max(v16_min(q, v16_set1(1)), v16_set1(-1)));
        store_some(y + i, v16_mul(q, scale), n - i);
    }
}

static void adamw(float *w, float *m, float *v, const float *g, size_t n, const tern_adamw *a) {
    v16 b1 = v16_set1(a->beta1), c1 = v16_set1(1 - a->beta1), scale = v16_set1(a->grad_scale);
    v16 b2 = v16_set1(a->beta2), c2 = v16_set1(1 - a->beta2), eps = v16_set1(a->eps);
    v16 rate = v16_set1(-a->rate_1), over = v16_set1(a->inverse_2), keep = v16_set1(a->keep);
    for (size_t i = 0; i < n; i += 16) {
        v16 grad = v16_mul(load_some(g + i, n - i), scale);
        v16 m1 = v16_fma(load_some(m + i, n - i), b1, v16_mul(grad, c1));
        v16 v1 = v16_fma(load_some(v + i, n - i), b2, v16_mul(v16_mul(grad, grad), c2));
        v16 size = v16_add(v16_sqrt(v16_mul(v1, over)), eps);
        v16 kept = v16_mul(load_some(w + i, n - i), keep);
        store_some(m + i, m1, n - i);
        store_some(v + i, v1, n - i);
        store_some(w + i, v16_add(kept, v16_mul(rate, v16_div(m1, size))), n - i);
    }
}
