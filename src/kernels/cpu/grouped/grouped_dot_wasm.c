// Products with codes in groups for WebAssembly where relaxed SIMD's dot product is one
// instruction: see ternary/ternary_dot_wasm.c.
#if defined(__wasm_relaxed_simd__)
#include "kernels/cpu/grouped/grouped_wasm.inl"

#define KERNELS tern_grouped_kernels_wasm_dot
#define NAME    "wasm dot"

static inline sums dot_add(sums s, codes c, const int8_t *x) {
    return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_v128_load32_splat(x), c, s);
}
static inline void store_sums(int32_t *to, sums s) { wasm_v128_store(to, s); }

#include "kernels/cpu/grouped/grouped_narrow.inl"
#endif
