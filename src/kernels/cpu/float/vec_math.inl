// What every float kernel needs on the 16-lane vector v16 (vec_*.h): ends of rows, rounding, exp,
// tanh, log, asinh.
//
// The kernels are written once, over v16, and compiled for each instruction set by a float_<isa>.c;
// so all variants do the same operations in the same order, and their bits agree by construction.

#ifndef VEC_INLINE
#define VEC_INLINE static inline __attribute__((always_inline))
#endif

// Functions of many steps; an instruction set whose code must be small does not inline them.
#ifndef VEC_FUNCTION
#define VEC_FUNCTION VEC_INLINE
#endif

// The next 16 elements of a row that has `left` more; elements past the end count as zero.
VEC_INLINE v16 load_some(const float *p, size_t left) {
    return left >= 16 ? v16_load(p) : v16_load_n(p, left);
}

VEC_INLINE void store_some(float *p, v16 a, size_t left) {
    if (left >= 16) v16_store(p, a);
    else v16_store_n(p, a, left);
}

// To the nearest whole number, ties to even, for |x| < 2^22: 1.5 * 2^23 leaves no bits for a
// fraction.
VEC_INLINE v16 vec_rint(v16 x) {
    v16 magic = v16_set1(0x1.8p23f);
    return v16_sub(v16_add(x, magic), magic);
}

// e^x with a relative error below 1.3e-7; zero below -87, e^88 above 88, NaN for NaN; exp(0) is 1.
//
// x = n ln 2 + r with |r| <= ln 2 / 2, and e^x = 2^n e^r. The polynomial is 1 + r + r^2 p(r), p of
// degree 4 interpolating (e^r - 1 - r) / r^2 at the Chebyshev nodes (error 1.1e-8). Adding
// 1.5 * 2^23 leaves n in the low bits of the sum, from where it is added to the exponent.
VEC_FUNCTION v16 vec_exp(v16 x) {
    v16 magic = v16_set1(0x1.8p23f), low = v16_set1(-87.0f);
    v16 clamped = v16_max(low, v16_min(v16_set1(88.0f), x));
    v16 shifted = v16_fma(clamped, v16_set1(0x1.715476p+0f), magic);
    v16 n = v16_sub(shifted, magic);
    v16 r = v16_fma(n, v16_set1(-0x1.62e43p-1f), clamped);
    r = v16_fma(n, v16_set1(0x1.05c610p-29f), r);
    v16 p = v16_set1(0x1.6d113cp-10f);
    p = v16_fma(p, r, v16_set1(0x1.120ba2p-7f));
    p = v16_fma(p, r, v16_set1(0x1.55551ap-5f));
    p = v16_fma(p, r, v16_set1(0x1.5554dcp-3f));
    p = v16_fma(p, r, v16_set1(0.5f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return v16_if_less(x, low, v16_set1(0), v16_add_exponent(p, shifted));
}

// tanh with a relative error below 2e-7; NaN for NaN.
//
// Below 0.625 it is x + x^3 p(x^2), p of degree 4 interpolating (tanh(x) / x - 1) / x^2 at the
// Chebyshev nodes (error 1.7e-8); above, 1 - 2 / (e^2x + 1), which would cancel near zero.
VEC_FUNCTION v16 vec_tanh(v16 x) {
    v16 one = v16_set1(1), size = v16_abs(x), square = v16_mul(x, x);
    v16 p = v16_set1(-0x1.8f8de4p-8f);
    p = v16_fma(p, square, v16_set1(0x1.58048ep-6f));
    p = v16_fma(p, square, v16_set1(-0x1.b9258ap-5f));
    p = v16_fma(p, square, v16_set1(0x1.110e1cp-3f));
    p = v16_fma(p, square, v16_set1(-0x1.555552p-2f));
    v16 small = v16_fma(v16_mul(x, square), p, x);
    v16 e = vec_exp(v16_add(size, size));
    v16 large = v16_sub(one, v16_div(v16_set1(2), v16_add(e, one)));
    large = v16_if_less(x, v16_set1(0), v16_mul(large, v16_set1(-1)), large);
    return v16_if_less(size, v16_set1(0.625f), small, large);
}

// log(1 + u) for 0 <= u <= 1, with a relative error below 2.4e-7; NaN for NaN.
//
// With s = u / (2 + u), at most 1/3, it is 2 atanh(s) = s p(s^2): p, of degree 4, interpolates
// 2 atanh(sqrt(z)) / sqrt(z) at the Chebyshev nodes of 0 <= z <= 1/9 (error 7.7e-9). Nothing is
// lost where u is small, as 1 + u would lose it.
VEC_FUNCTION v16 vec_log1p(v16 u) {
    v16 s = v16_div(u, v16_add(v16_set1(2), u)), z = v16_mul(s, s);
    v16 p = v16_set1(0x1.2055eep-2f);
    p = v16_fma(p, z, v16_set1(0x1.1e5cfcp-2f));
    p = v16_fma(p, z, v16_set1(0x1.99da14p-2f));
    p = v16_fma(p, z, v16_set1(0x1.5554e2p-1f));
    p = v16_fma(p, z, v16_set1(2.0f));
    return v16_mul(s, p);
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), with a relative error below 3e-7; zero below -87.
// From 17 on it is x itself, so that a threshold there, which other programs have at 20, changes
// nothing.
VEC_INLINE v16 vec_softplus(v16 x) {
    v16 tail = vec_log1p(vec_exp(v16_mul(v16_abs(x), v16_set1(-1))));
    return v16_add(v16_max(v16_set1(0), x), tail);
}

// log(x + sqrt(x^2 + 1)) with a relative error below 6e-7; that of 1e18 beyond it, NaN for NaN.
//
// It is log(1 + t) with t = x + x^2 / (1 + sqrt(x^2 + 1)), which keeps the digits of a small x.
// Taking the root of 1 + t halves the logarithm: after six roots, t is at most 1.
VEC_FUNCTION v16 vec_asinh(v16 x) {
    v16 one = v16_set1(1), a = v16_min(v16_set1(1e18f), v16_abs(x));
    v16 t = v16_div(v16_mul(a, a), v16_add(one, v16_sqrt(v16_fma(a, a, one))));
    t = v16_add(a, t);
    for (int i = 0; i < 6; i++) t = v16_div(t, v16_add(one, v16_sqrt(v16_add(one, t))));
    v16 y = v16_mul(v16_set1(64), vec_log1p(t));
    return v16_if_less(x, v16_set1(0), v16_mul(y, v16_set1(-1)), y);
}
