#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/float/float_kernels.inl"
