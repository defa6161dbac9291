#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/float/float_kernels.inl"
