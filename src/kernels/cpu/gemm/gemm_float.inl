// Products of unrounded floats: included by gemm_<isa>.c after its vec_<isa>.h.
#include <math.h>
#include <string.h>
#include "kernels/cpu/float/vec_math.inl"
#include "kernels/cpu/gemm/gemm.h"

#define GEMM_JOIN_(a, b) a##b
#define GEMM_JOIN(a, b) GEMM_JOIN_(a, b)
#define GEMM_TABLE GEMM_JOIN(tern_gemm_kernels_, VEC_NAME)
#define GEMM_NAME "float32 products"
#define GEMM_VALUES 1

VEC_INLINE v16 gemm_along(const float *x, size_t left) { return load_some(x, left); }
VEC_INLINE v16 gemm_across(const float *x, size_t ld, size_t cols, size_t left) {
    (void)ld, (void)left;
    return load_some(x, cols);
}
VEC_INLINE v16 gemm_step(v16 a, v16 b, v16 sum) { return v16_fma(a, b, sum); }

#include "kernels/cpu/gemm/gemm.inl"
