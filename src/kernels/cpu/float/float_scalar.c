#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/float/float_kernels.inl"
