// The head for WebAssembly where relaxed SIMD's dot product is one instruction; see
// ternary/ternary_dot_wasm.c.
#if defined(__wasm_relaxed_simd__)
#include <wasm_simd128.h>

#define INLINE  static inline __attribute__((always_inline))
#define KERNELS tern_head_kernels_wasm_dot
#define NAME    "wasm dot"

INLINE v128_t dot_add(v128_t sum, v128_t c, v128_t x) {
    return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, c, sum);
}

INLINE v128_t dwords(v128_t sum) { return sum; }

#include "kernels/cpu/head/head_wasm.inl"
#endif
