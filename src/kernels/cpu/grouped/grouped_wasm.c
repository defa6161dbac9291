// Products with codes in groups for WebAssembly, with sums of 16 bits: two neighbouring products of
// codes up to 3 are at most 768 in size, 16 times in a group.
#include "kernels/cpu/grouped/grouped_wasm.inl"

#define KERNELS tern_grouped_kernels_wasm
#define NAME    "wasm"

static inline sums dot_add(sums s, codes c, const int8_t *x) {
    v128_t q = wasm_v128_load32_splat(x);
#if defined(__wasm_relaxed_simd__)
    return wasm_i16x8_add(s, wasm_i16x8_relaxed_dot_i8x16_i7x16(q, c));
#else
    v128_t x0 = wasm_i16x8_shr(wasm_i16x8_shl(q, 8), 8), x1 = wasm_i16x8_shr(q, 8);
    v128_t c0 = wasm_v128_and(c, wasm_i16x8_splat(255)), c1 = wasm_u16x8_shr(c, 8);
    return wasm_i16x8_add(wasm_i16x8_add(s, wasm_i16x8_mul(x0, c0)), wasm_i16x8_mul(x1, c1));
#endif
}
static inline void store_sums(int32_t *to, sums s) {
    wasm_v128_store(to, wasm_i32x4_dot_i16x8(s, wasm_i16x8_splat(1)));
}

#include "kernels/cpu/grouped/grouped_narrow.inl"
