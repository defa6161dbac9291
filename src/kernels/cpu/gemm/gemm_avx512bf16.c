// Products whose factors are rounded to bf16 (8 bits of mantissa) and whose sums are float32: up to
// twice the multiply-adds of float32 on processors that have the instruction. A word is a pair of
// neighbours in k, as the instruction needs them; panels of words are moved like floats.
#include <math.h>
#include <string.h>
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/float/vec_math.inl"
#include "kernels/cpu/gemm/gemm.h"

#define GEMM_TABLE tern_gemm_kernels_bf16
#define GEMM_NAME  "bf16 products"

#include "kernels/cpu/gemm/gemm_bf16.inl"

VEC_INLINE v16 gemm_step(v16 a, v16 b, v16 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#include "kernels/cpu/gemm/gemm.inl"
