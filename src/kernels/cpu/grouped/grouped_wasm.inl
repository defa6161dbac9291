// Codes in registers of WebAssembly.
#include <stdbool.h>
#include "kernels/cpu/vec_wasm.h"

#define SMALL
#define TOKENS_ 2 // x86 has 16 registers, and pages wait for the module to arrive
enum { VECTORS = 4, TOKENS = TOKENS_ };

typedef v128_t codes, sums;

static inline codes load_codes(const uint8_t *p) { return wasm_v128_load(p); }
static inline codes two_bits(codes c, int s) { // x86 has no shifts of bytes
    return wasm_v128_and(wasm_u16x8_shr(c, (uint32_t)(2 * s)), wasm_i8x16_splat(3));
}
static inline codes one_bit(codes c, int s) {
    codes twice = s == 0 ? wasm_i8x16_add(c, c) : wasm_u16x8_shr(c, (uint32_t)(s - 1));
    return wasm_v128_and(twice, wasm_i8x16_splat(2));
}
static inline sums no_sums(void) { return wasm_i32x4_splat(0); }

typedef v128_t sums_32; // of wide codes
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
