// The tables of float kernels, one for each instruction set that the library was built with.
#ifndef TERN_KERNELS_CPU_FLOAT_KERNELS_H
#define TERN_KERNELS_CPU_FLOAT_KERNELS_H

#include "kernels/cpu/kernels.h"

extern const tern_float_kernels tern_float_kernels_scalar;
extern const tern_float_kernels tern_float_kernels_avx2;
extern const tern_float_kernels tern_float_kernels_avx512;
extern const tern_float_kernels tern_float_kernels_neon;
extern const tern_float_kernels tern_float_kernels_wasm;

#endif
