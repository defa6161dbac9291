// Ternary kernels for WebAssembly where relaxed SIMD's dot product is one instruction (ARM's sdot,
// x86's vpdpbusd): it adds four neighbouring products to each of four sums of 32 bits.
//
// Engines may take the second factor as signed or unsigned and may saturate the sum of two
// products. Codes are neither negative nor is 2 * 12 * 128 near a limit.
#if defined(__wasm_relaxed_simd__)
#include <stdint.h>
#include <wasm_simd128.h>

#define KERNELS tern_ternary_kernels_wasm_dot
#define NAME    "wasm dot"

// 4096 blocks of 128 products up to 12 * 128 stay below 2^30.
enum { ONE_BLOCKS = 4096, GEMV_TOKENS_2BIT = 8, GEMV_TOKENS_T5 = 4 };

static inline v128_t dot(v128_t sum, v128_t c, v128_t x) {
    return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, c, sum);
}

static inline v128_t add_lanes(v128_t u, v128_t v) { return wasm_i32x4_add(u, v); }
static inline v128_t quarter_lanes(v128_t u) { return wasm_i32x4_shr(u, 2); }
static inline v128_t add_units(v128_t s, v128_t u) { return wasm_i32x4_add(s, u); }

#include "kernels/cpu/ternary/ternary_wasm.inl"

#define DECLARE(t) v128_t a##t = zero_lanes(), b##t = zero_lanes();

// Sums of 8 rows and 4 tokens.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        v128_t q = broadcast4(x + 4 * (t));                                                        \
        a##t = dot(a##t, wa, q);                                                                   \
        b##t = dot(b##t, wb, q);                                                                   \
    }
#define STORE(t) wasm_v128_store(acc[t], a##t), wasm_v128_store(acc[t] + 4, b##t);
    EACH(DECLARE)
    for (; steps; steps--, w += 4 * ROWS, x += 4 * TOKENS) {
        v128_t wa = load_bytes(w), wb = load_bytes(w + 16);
        EACH(MULTIPLY)
    }
    EACH(STORE)
}

#undef DECLARE
#undef MULTIPLY
#undef STORE
#include "kernels/cpu/ternary/ternary_narrow.inl"
#endif
