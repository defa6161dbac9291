// Codes in registers of WebAssembly.
#include <stdbool.h>
#include "kernels/cpu/vec_wasm.h"

#define TOKENS_ 2 // x86 has 16 registers, and pages wait for the module to arrive
enum { VECTORS = 4, TOKENS = TOKENS_ };

#define WIDE tern_grouped_wide_wasm // one for all: pages wait

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
