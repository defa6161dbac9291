#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/gemm/gemm_float.inl"
