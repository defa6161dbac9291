// The head's inner loops for WebAssembly: see head_narrow.inl. The including file defines dot_add,
// dwords, KERNELS and NAME.
#include "kernels/cpu/head/head_kernels.h"

// One version is enough: it has no products of bytes.
void tern_head_quantize_wasm(tern_head_row *row, float *w, size_t n);
#define QUANTIZE tern_head_quantize_wasm

enum { SUMS = 1, HI_ROWS = 1 };
typedef v128_t bytes, dots, ints, floats;

INLINE bytes load(const void *p) { return wasm_v128_load(p); }
INLINE dots no_dots(void) { return wasm_i32x4_splat(0); }
INLINE floats no_floats(void) { return wasm_i32x4_splat(0); }

// Weak, so that they stay in registers: see ternary/ternary_wasm.inl.
__attribute__((weak, visibility("hidden"))) const uint8_t tern_wasm_head_masks[2] = {15, 1};
INLINE v128_t nibbles(void) { return wasm_v128_load8_splat(tern_wasm_head_masks); }
INLINE v128_t single_bits(void) { return wasm_v128_load8_splat(tern_wasm_head_masks + 1); }

INLINE bytes even_codes(bytes b) { return wasm_v128_and(b, nibbles()); }
INLINE bytes odd_codes(bytes b) { return wasm_v128_and(wasm_u16x8_shr(b, 4), nibbles()); }
INLINE bytes bits(bytes b, uint32_t q) {
    return wasm_v128_and(wasm_u16x8_shr(b, q), single_bits());
}

INLINE ints screen_dot(ints hi, ints lo, const int32_t *sum_x) {
    ints twice = wasm_i32x4_add(wasm_i32x4_shl(hi, 8), wasm_i32x4_shl(lo, 1));
    return wasm_i32x4_sub(twice, load(sum_x));
}
INLINE ints hi_dot(ints d, const int32_t *sum_hi) {
    v128_t sum = load(sum_hi);
    return wasm_i32x4_sub(wasm_i32x4_shl(d, 1), wasm_i32x4_sub(wasm_i32x4_shl(sum, 4), sum));
}
INLINE ints bit_dot(ints d, const int32_t *sum_hi) {
    return wasm_i32x4_sub(wasm_i32x4_shl(d, 1), load(sum_hi));
}

INLINE floats add_scaled(floats sum, const uint8_t *scales, ints dot) {
    v128_t c = wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(scales));
    c = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(c));
    return wasm_f32x4_add(sum, wasm_f32x4_mul(c, wasm_f32x4_convert_i32x4(dot)));
}

INLINE float sum_of(v128_t s) {
    s = wasm_f32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(s, 0) + wasm_f32x4_extract_lane(s, 1);
}
#define add_up(out, sum, n)                                                                        \
    do {                                                                                           \
        _Pragma("GCC unroll 4") for (size_t k = 0; k < (n); k++)(out)[k] = sum_of((sum)[0][k]);    \
    } while (0)

#include "kernels/cpu/head/head_narrow.inl"
