// Products with wide codes for WebAssembly: one text for all variants that a module may choose
// from, since pages wait for the module to arrive. Where relaxed SIMD's dot product is not one
// instruction, it is exact all the same.
#include "kernels/cpu/grouped/grouped_wasm.inl"

#define SMALL
#define UNPACKS_WIDE
#define WIDE_LINKAGE

typedef v128_t sums_32;
enum { WIDE_BIAS = 0 };
static inline sums_32 no_sums_32(void) { return wasm_i32x4_splat(0); }
static inline void store_sums_32(int32_t *to, sums_32 s) { wasm_v128_store(to, s); }
static inline void look_up(uint8_t *p, const uint8_t *table) {
    v128_t t = wasm_v128_load(table);
    for (int i = 0; i < 64; i += 16)
        wasm_v128_store(p + i, wasm_i8x16_swizzle(t, wasm_v128_load(p + i)));
}
// Exact for all codes: sums of two products of 16 bits.
static inline sums_32 add_any_products(sums_32 s, codes c, const int8_t *x) {
    v128_t q = wasm_v128_load32_splat(x);
    v128_t x0 = wasm_i16x8_shr(wasm_i16x8_shl(q, 8), 8), x1 = wasm_i16x8_shr(q, 8);
    v128_t c0 = wasm_v128_and(c, wasm_i16x8_splat(255)), c1 = wasm_u16x8_shr(c, 8);
    return wasm_i32x4_add(wasm_i32x4_add(s, wasm_i32x4_dot_i16x8(x0, c0)),
                          wasm_i32x4_dot_i16x8(x1, c1));
}
static inline sums_32 add_products(sums_32 s, codes c, const int8_t *x, bool is_big) {
#if defined(__wasm_relaxed_simd__)
    if (!is_big) return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_v128_load32_splat(x), c, s);
#endif
    (void)is_big;
    return add_any_products(s, c, x);
}

#include "kernels/cpu/grouped/grouped_lanes.inl"

#include "kernels/cpu/grouped/grouped_wide.inl"
