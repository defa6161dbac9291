#include "kernels/cpu/vec_wasm.h"

#include "kernels/cpu/gemm/gemm_float.inl"
