#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/gemm/gemm_float.inl"
