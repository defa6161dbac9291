// Kernels that walk over rows once or twice: norms, quantization, activations, rotation, argmax.

static void rms_norm(float *y, const float *x, const float *w, size_t n, float eps) {
    v16 squares = v16_set1(0);
    for (size_t i = 0; i < n; i += 16) {
        v16 a = load_some(x + i, n - i);
        squares = v16_fma(a, a, squares);
    }
    v16 r = v16_set1(1 / sqrtf(v16_sum(squares) / (float)n + eps));
    for (size_t i = 0; i < n; i += 16) {
        v16 a = v16_mul(load_some(x + i, n - i), r);
        store_some(y + i, v16_mul(a, load_some(w + i, n - i)), n - i);
    }
}

static void layer_norm(float *y, const float *x, const float *w, const float *b, size_t n,
                       float eps) {
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    v16 sum = v16_set1(0), squares = v16_set1(0);
    for (size_t i = 0; i < n; i += 16) sum = v16_add(load_some(x + i, n - i), sum);
    v16 mean = v16_set1(v16_sum(sum) / (float)n);
    for (size_t i = 0; i < n; i += 16) {
        v16 d = v16_sub(load_some(x + i, n - i), mean);
        if (n - i < 16) d = v16_mul(d, load_some(ones, n - i)); // no column, no deviation
        squares = v16_fma(d, d, squares);
    }
    v16 r = v16_set1(1 / sqrtf(v16_sum(squares) / (float)n + eps));
    for (size_t i = 0; i < n; i += 16) {
        v16 a = v16_mul(v16_sub(load_some(x + i, n - i), mean), r);
        if (w) a = v16_mul(a, load_some(w + i, n - i));
        store_some(y + i, b ? v16_add(a, load_some(b + i, n - i)) : a, n - i);
    }
}

static void quantize_i8(int8_t *q, float *inv_scale, int32_t *sum, const float *x, size_t n) {
    v16 top = v16_set1(0); // a NaN never gets into it: the second operand of max wins
    for (size_t i = 0; i < n; i += 16) top = v16_max(v16_abs(load_some(x + i, n - i)), top);
    float largest = v16_top(top), scale = 127 / (largest > 1e-5f ? largest : 1e-5f);
    for (size_t i = 0; i < n; i += 16) {
        v16 a = vec_rint(v16_mul(load_some(x + i, n - i), v16_set1(scale)));
        a = v16_max(v16_min(a, v16_set1(127)), v16_set1(-128)); // NaN, from infinity * 0, is 127
        int8_t end[16];
        v16_store_i8(n - i >= 16 ? q + i : end, a);
        if (n - i < 16) memcpy(q + i, end, n - i);
    }
    int32_t total = 0;
    for (size_t i = 0; i < n; i++) total += q[i];
    *sum = total;
    *inv_scale = 1 / scale;
}

static void add(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        v16 s = v16_add(load_some(a + i, n - i), load_some(b + i, n - i));
        store_some(y + i, s, n - i);
    }
}

static void mul(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        v16 p = v16_mul(load_some(a + i, n - i), load_some(b + i, n - i));
        store_some(y + i, p, n - i);
    }
}

static void scale_row(float *y, const float *x, float factor, size_t n) {
    v16 f = v16_set1(factor);
    for (size_t i = 0; i < n; i += 16) {
        store_some(y + i, v16_mul(load_some(x + i, n - i), f), n - i);
    }
}

// x / (1 + e^-z): SiLU with z = x. The tanh form of GELU, 0.5 x (1 + tanh(u)) with
// u = sqrt(2 / pi) (x + 0.044715 x^3), is the same with z = 2u.
VEC_INLINE v16 gate_by_logistic(v16 x, v16 z) {
    v16 e = vec_exp(v16_mul(z, v16_set1(-1)));
    return v16_div(x, v16_add(v16_set1(1), e));
}

// 1 / (1 + e^-z)
VEC_INLINE v16 logistic(v16 z) { return gate_by_logistic(v16_set1(1), z); }

// Phi(-|x|) = erfc(z) / 2 with z = |x| / sqrt(2), the lower tail of the normal distribution, and
// *e = e^(-z^2). The tail is e t p(t) with t = 2 / (2 + z): p, of degree 8, interpolates
// e^(z^2) erfc(z) / 2t at the Chebyshev nodes of 0 <= z <= 9.4, where e^(-z^2) ends (relative error
// 5.1e-8). Being relative, it does not grow where the tail is small, as the error of 1 + erf does.
VEC_INLINE v16 normal_tail(v16 x, v16 *e) {
    *e = vec_exp(v16_mul(v16_mul(x, v16_set1(-0.5f)), x));
    v16 t = v16_div(v16_set1(1), v16_fma(v16_abs(x), v16_set1(0x1.6a09e6p-2f), v16_set1(1)));
    v16 p = v16_set1(-0x1.e56428p-6f);
    p = v16_fma(p, t, v16_set1(0x1.246bcep-3f));
    p = v16_fma(p, t, v16_set1(-0x1.f5308ap-3f));
    p = v16_fma(p, t, v16_set1(0x1.1f8e16p-3f));
    p = v16_fma(p, t, v16_set1(-0x1.d4cbaep-7f));
    p = v16_fma(p, t, v16_set1(0x1.a0def4p-4f));
    p = v16_fma(p, t, v16_set1(0x1.f16dc8p-4f));
    p = v16_fma(p, t, v16_set1(0x1.212eacp-3f));
    p = v16_fma(p, t, v16_set1(0x1.20dad8p-3f));
    return v16_mul(v16_mul(p, t), *e);
}

// Phi(x), *e as above.
VEC_INLINE v16 normal_cdf(v16 x, v16 *e) {
    v16 tail = normal_tail(x, e);
    return v16_if_less(x, v16_set1(0), tail, v16_sub(v16_set1(1), tail));
}

VEC_INLINE v16 activate(v16 x, tern_cpu_act act) {
    if (act == TERN_ACT_SILU) return gate_by_logistic(x, x);
    if (act == TERN_ACT_SIGMOID) return logistic(x);
    if (act == TERN_ACT_TANH) return vec_tanh(x);
    if (act == TERN_ACT_ASINH) return vec_asinh(x);
    if (act == TERN_ACT_RELU2) {
        v16 r = v16_max(v16_set1(0), x);
        return v16_mul(r, r);
    }
    if (act == TERN_ACT_GELU) {
        v16 e;
        return v16_mul(x, normal_cdf(x, &e));
    }
    if (act == TERN_ACT_GELU_TANH) {
        v16 slope = v16_fma(v16_mul(x, x), v16_set1(0.07135481627f), v16_set1(1.595769122f));
        return gate_by_logistic(x, v16_mul(x, slope));
    }
    return x;
}

// y = act(x), times `up` if that is not NULL; act is a constant in each use.
VEC_INLINE void activate_row(float *y, const float *x, const float *up, size_t n,
                             tern_cpu_act act) {
    for (size_t i = 0; i < n; i += 16) {
        v16 a = activate(load_some(x + i, n - i), act);
        if (up) a = v16_mul(a, load_some(up + i, n - i));
        store_some(y + i, a, n - i);
    }
}

static void glu(float *y, const float *gate, const float *up, size_t n, tern_cpu_act act) {
    switch (act) {
    case TERN_ACT_SILU: activate_row(y, gate, up, n, TERN_ACT_SILU); break;
    case TERN_ACT_RELU2: activate_row(y, gate, up, n, TERN_ACT_RELU2); break;
    case TERN_ACT_GELU: activate_row(y, gate, up, n, TERN_ACT_GELU); break;
    case TERN_ACT_GELU_TANH: activate_row(y, gate, up, n, TERN_ACT_GELU_TANH); break;
    case TERN_ACT_SIGMOID: activate_row(y, gate, up, n, TERN_ACT_SIGMOID); break;
    case TERN_ACT_TANH: activate_row(y, gate, up, n, TERN_ACT_TANH); break;
    case TERN_ACT_ASINH: activate_row(y, gate, up, n, TERN_ACT_ASINH); break;
    case TERN_ACT_NONE: activate_row(y, gate, up, n, TERN_ACT_NONE); break;
    }
}

static void act_row(float *y, const float *x, size_t n, tern_cpu_act act) {
    glu(y, x, NULL, n, act);
}

static void softplus(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 16)
        store_some(y + i, vec_softplus(load_some(x + i, n - i)), n - i);
}

static void rope(float *x, const float *cos, const float *sin, size_t n_rot, bool halves) {
    size_t half = n_rot / 2;
    if (!halves) {
        for (size_t i = 0; i < half; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = tern_fma(a, cos[i], -(b * sin[i]));
            x[2 * i + 1] = tern_fma(b, cos[i], a * sin[i]);
        }
        return;
    }
    for (size_t i = 0; i < half; i += 16) {
        size_t left = half - i;
        v16 a = load_some(x + i, left), b = load_some(x + half + i, left);
        v16 c = load_some(cos + i, left), s = load_some(sin + i, left);
        v16 minus_s = v16_mul(s, v16_set1(-1));
        store_some(x + i, v16_fma(a, c, v16_mul(b, minus_s)), left);
        store_some(x + half + i, v16_fma(b, c, v16_mul(a, s)), left);
    }
}

static float exp_sum(const float *x, size_t n, float *largest) {
    v16 top = v16_set1(-INFINITY), sum = v16_set1(0);
    float top_end = -INFINITY;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) top = v16_max(v16_load(x + i), top);
    for (; i < n; i++) top_end = x[i] > top_end ? x[i] : top_end;
    float m = v16_top(top);
    if (top_end > m) m = top_end;
    for (i = 0; i + 16 <= n; i += 16)
        sum = v16_add(sum, vec_exp(v16_sub(v16_load(x + i), v16_set1(m))));
    if (i < n) {
        float end[16];
        v16_store(end, vec_exp(v16_sub(load_some(x + i, n - i), v16_set1(m))));
        sum = v16_add(sum, load_some(end, n - i));
    }
    *largest = m;
    return v16_sum(sum);
}

static void exp_scaled(float *y, const float *x, float minus, float factor, size_t n) {
    v16 m = v16_set1(minus), f = v16_set1(factor);
    for (size_t i = 0; i < n; i += 16)
        store_some(y + i, v16_mul(vec_exp(v16_sub(load_some(x + i, n - i), m)), f), n - i);
}

static void soft_cap(float *y, const float *x, float cap, size_t n) {
    v16 c = v16_set1(cap);
    for (size_t i = 0; i < n; i += 16)
        store_some(y + i, v16_mul(c, vec_tanh(v16_div(load_some(x + i, n - i), c))), n - i);
}

static size_t argmax(const float *x, size_t n) {
    v16 lowest = v16_set1(-INFINITY), top[4] = {lowest, lowest, lowest, lowest};
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (size_t j = 0; j < 4; j++) top[j] = v16_max(v16_load(x + i + 16 * j), top[j]);
    }
    float best = v16_top(v16_max(v16_max(top[0], top[1]), v16_max(top[2], top[3])));
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (i = 0; i < n; i++) {
        if (x[i] == best) return i;
    }
    return 0; // all are NaN
}
