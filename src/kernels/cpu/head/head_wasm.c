// The head for WebAssembly, with sums of 16 bits: 8 times 2 products of at most 15 * 128 stay below
// 2^15.
#include <wasm_simd128.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

#define INLINE  static inline __attribute__((always_inline))
#define KERNELS tern_head_kernels_wasm
#define NAME    "wasm"

INLINE v128_t dot_add(v128_t sum, v128_t c, v128_t x) {
#if defined(__wasm_relaxed_simd__)
    // Codes are not negative and sums not near a limit: see ternary/ternary_wasm.c.
    return wasm_i16x8_add(sum, wasm_i16x8_relaxed_dot_i8x16_i7x16(x, c));
#else
    // The first of every two bytes, then the second, as 16 bits.
    v128_t x0 = wasm_i16x8_shr(wasm_i16x8_shl(x, 8), 8), x1 = wasm_i16x8_shr(x, 8);
    v128_t c0 = wasm_v128_and(c, wasm_i16x8_splat(255)), c1 = wasm_u16x8_shr(c, 8);
    return wasm_i16x8_add(wasm_i16x8_add(sum, wasm_i16x8_mul(x0, c0)), wasm_i16x8_mul(x1, c1));
#endif
}

INLINE v128_t dwords(v128_t sum) { return wasm_i32x4_dot_i16x8(sum, wasm_i16x8_splat(1)); }

#include "kernels/cpu/head/head_wasm.inl"

// Only while a model is loaded: small rather than fast.
__attribute__((minsize)) void tern_head_quantize_wasm(tern_head_row *row, float *w, size_t n) {
    quantize(row, w, n);
}
