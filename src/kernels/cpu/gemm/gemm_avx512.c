#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/gemm/gemm_float.inl"
