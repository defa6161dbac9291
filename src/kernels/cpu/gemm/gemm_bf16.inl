// Words of factors rounded to bf16: pairs of neighbours in k, by AVX512-BF16.

#define GEMM_VALUES 2

VEC_INLINE v16 load_or_zero(const float *x, size_t left) {
    return left ? load_some(x, left) : v16_set1(0);
}

VEC_INLINE v16 gemm_along(const float *x, size_t left) {
    v16 high = load_or_zero(x + 16, left > 16 ? left - 16 : 0);
    return (v16)_mm512_cvtne2ps_pbh(high, load_some(x, left));
}

VEC_INLINE v16 gemm_across(const float *x, size_t ld, size_t cols, size_t left) {
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    v16 second = load_or_zero(x + ld, left > 1 ? cols : 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, load_or_zero(x, cols));
    return (v16)_mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
}
