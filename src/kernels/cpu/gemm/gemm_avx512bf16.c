// Products whose factors are rounded to bf16 (8 bits of mantissa) and whose sums are float32: up to
// twice the multiply-adds of float32 on processors that have the instruction. A word is a pair of
// neighbours in k, as the instruction needs them; panels of words are moved like floats.
#include <math.h>
#include <string.h>
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/float/vec_math.inl"
#include "kernels/cpu/gemm/gemm.h"

#define GEMM_TABLE  tern_gemm_kernels_bf16
#define GEMM_NAME   "bf16 products"
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

VEC_INLINE v16 gemm_step(v16 a, v16 b, v16 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#include "kernels/cpu/gemm/gemm.inl"
