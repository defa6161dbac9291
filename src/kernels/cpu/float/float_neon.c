#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/float/float_kernels.inl"
