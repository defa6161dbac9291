// What codecs that make sound of codes need: convolutions along rows of all columns, and the half
// snake. Contracts in kernels.h.

// Rows t.. of `rows` and outputs first.. of `vectors` vectors; both are constants in each use.
VEC_INLINE void causal_tile(const tern_conv1d_args *a, size_t t, size_t first, int rows,
                            int vectors) {
    v16 sum[VEC_GEMM_ROWS][VEC_GEMM_VECTORS];
    const float *w = a->w + first;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            sum[i][j] = load_some(a->bias + first + 16 * j, a->n_out - first - 16 * (size_t)j);
    }
    for (size_t tap = 0; tap < a->n_taps; tap++) {
        const float *x = a->x + (t + tap * a->dilation) * a->n_in;
        for (size_t k = 0; k < a->n_in; k++, w += TERN_CONV_OUTPUTS) {
            v16 col[VEC_GEMM_VECTORS];
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) col[j] = v16_load(w + 16 * j);
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                v16 row = v16_set1(x[(size_t)i * a->n_in + k]);
#pragma GCC unroll 4
                for (int j = 0; j < vectors; j++) sum[i][j] = v16_fma(row, col[j], sum[i][j]);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        float *y = a->y + (t + (size_t)i) * a->y_stride + first;
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            store_some(y + 16 * j, sum[i][j], a->n_out - first - 16 * (size_t)j);
    }
}

// All rows, the last ones in a tile that begins earlier: the sums computed twice come out the same.
VEC_INLINE void causal_rows(const tern_conv1d_args *a, size_t first, int vectors) {
    enum { ROWS = VEC_GEMM_ROWS, THIRD = VEC_GEMM_ROWS / 3 };
    size_t t = 0, n = a->n_rows;
    for (; t + ROWS <= n; t += ROWS) causal_tile(a, t, first, ROWS, vectors);
    if (t < n && t > 0 && n - t > THIRD) {
        causal_tile(a, n - ROWS, first, ROWS, vectors);
        return;
    }
    for (; THIRD > 1 && t + THIRD <= n; t += THIRD) causal_tile(a, t, first, THIRD, vectors);
    for (; t < n; t++) causal_tile(a, t, first, 1, vectors);
}

static void conv1d(const tern_conv1d_args *a) {
    for (size_t first = 0; first < a->n_out; first += 16 * VEC_GEMM_VECTORS) {
        if (VEC_GEMM_VECTORS == 1 || a->n_out - first <= 16) causal_rows(a, first, 1);
        else causal_rows(a, first, VEC_GEMM_VECTORS);
    }
}

static void upsample_conv(const tern_upsample_args *a) {
    size_t in_each = a->n_in / a->n_groups, out_each = a->n_out / a->n_groups, taps = 2 * a->rate;
    for (size_t o = 0; o < a->n_out; o++) {
        size_t first = o / out_each * in_each;
        const float *w = a->w + first * out_each * taps + o % out_each * taps;
        for (size_t p = 0; p < a->rate; p++) {
            float sum = a->bias[o];
            for (size_t i = 0; i < in_each; i++) {
                const float *from = w + i * out_each * taps + p;
                sum = tern_fma(from[a->rate], a->before[first + i], sum);
                sum = tern_fma(from[0], a->x[first + i], sum);
            }
            a->y[p * a->n_out + o] = sum;
        }
    }
}

// sin(x)^2, whose period is pi, with an error below 3e-7.
//
// r = x - n pi, |r| <= pi / 2, by pi in three parts; sin r = r + r^3 p(r^2), p of degree 4
// interpolating at the Chebyshev nodes (error 1.9e-8). Numbers beyond 2^22 pi have lost their place
// in the period: r stays in its bounds all the same.
VEC_FUNCTION v16 vec_sin_squared(v16 x) {
    v16 n = vec_rint(v16_mul(x, v16_set1(0x1.45f306p-2f)));
    v16 r = v16_fma(n, v16_set1(-0x1.921fb4p+1f), x);
    r = v16_fma(n, v16_set1(-0x1.4442d0p-23f), r);
    r = v16_fma(n, v16_set1(-0x1.846988p-47f), r);
    r = v16_max(v16_set1(-1.5708f), v16_min(v16_set1(1.5708f), r));
    v16 square = v16_mul(r, r);
    v16 p = v16_set1(-0x1.9db1ccp-26f);
    p = v16_fma(p, square, v16_set1(0x1.719692p-19f));
    p = v16_fma(p, square, v16_set1(-0x1.a01906p-13f));
    p = v16_fma(p, square, v16_set1(0x1.11111p-7f));
    p = v16_fma(p, square, v16_set1(-0x1.555556p-3f));
    v16 s = v16_fma(v16_mul(r, square), p, r);
    return v16_mul(s, s);
}

static void half_snake(float *y, const float *x, const float *alpha, size_t n) {
    size_t half = n / 2;
    for (size_t i = 0; i < half; i += 16) {
        v16 a = load_some(alpha + i, half - i), u = load_some(x + i, half - i);
        v16 wave = vec_sin_squared(v16_mul(a, u));
        v16 sum = v16_add(u, v16_div(wave, v16_add(a, v16_set1(1e-9f))));
        store_some(y + i, sum, half - i);
    }
    for (size_t i = half; i < n; i += 16) {
        v16 u = load_some(x + i, n - i);
        store_some(y + i, v16_max(u, v16_mul(u, v16_set1(0.01f))), n - i);
    }
}
