#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/gemm/gemm_float.inl"
