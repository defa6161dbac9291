#include "kernels/cpu/vec_scalar.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VEC_INLINE static inline // inlining all of it under a sanitizer takes a compiler minutes
#endif
#include "kernels/cpu/float/float_kernels.inl"
