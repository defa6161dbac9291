#include "kernels/cpu/vec_scalar.h"

// Inlining all of it under a sanitizer takes a compiler minutes; pages that load a module want it
// small, and never run this.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__wasm__)
#define VEC_INLINE static inline
#endif
#include "kernels/cpu/float/float_kernels.inl"
