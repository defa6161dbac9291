// Ternary kernels for WebAssembly, with sums of 16 bits: products of codes up to 3 and activations
// are at most 384 in size, so that 80 of them fit; they are widened in time.
#include <stdint.h>
#include <wasm_simd128.h>

#define KERNELS tern_ternary_kernels_wasm
#define NAME    "wasm"

enum { ONE_BLOCKS = 10, GEMV_TOKENS_2BIT = 8, GEMV_TOKENS_T5 = 4 };

// Adds to each lane two products: neighbours or not, which differs between the variants.
static inline v128_t dot(v128_t u, v128_t c, v128_t x) {
#if defined(__wasm_relaxed_simd__)
    // Engines may take the second factor as signed or unsigned and may saturate the sum of two
    // products. Codes are neither negative nor is 2 * 12 * 128 near a limit.
    return wasm_i16x8_add(u, wasm_i16x8_relaxed_dot_i8x16_i7x16(x, c));
#else
    u = wasm_i16x8_add(u, wasm_i16x8_extmul_low_i8x16(c, x));
    return wasm_i16x8_add(u, wasm_i16x8_extmul_high_i8x16(c, x));
#endif
}

static inline v128_t add_lanes(v128_t u, v128_t v) { return wasm_i16x8_add(u, v); }
static inline v128_t quarter_lanes(v128_t u) { return wasm_i16x8_shr(u, 2); }
static inline v128_t widen(v128_t u) { return wasm_i32x4_dot_i16x8(u, wasm_i16x8_splat(1)); }
static inline v128_t add_units(v128_t s, v128_t u) { return wasm_i32x4_add(s, widen(u)); }

#include "kernels/cpu/ternary/ternary_wasm.inl"

// Neighbours, whose sums belong to one row.
TERN_INLINE v128_t dot_neighbours(v128_t u, bytes c, v128_t x) {
#if defined(__wasm_relaxed_simd__)
    return dot(u, c, x);
#else
    // The first of every two bytes, then the second, as 16 bits.
    v128_t x0 = wasm_i16x8_shr(wasm_i16x8_shl(x, 8), 8), x1 = wasm_i16x8_shr(x, 8);
    v128_t c0 = wasm_v128_and(c, wasm_i16x8_splat(255)), c1 = wasm_u16x8_shr(c, 8);
    return wasm_i16x8_add(wasm_i16x8_add(u, wasm_i16x8_mul(x0, c0)), wasm_i16x8_mul(x1, c1));
#endif
}

// Sums of 8 rows and 4 tokens. Sums of 16 bits live in registers for 40 steps.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define DECLARE(t) v128_t a##t = zero_lanes(), b##t = zero_lanes();
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        v128_t q = broadcast4(x + 4 * (t));                                                        \
        a##t = dot_neighbours(a##t, wa, q);                                                        \
        b##t = dot_neighbours(b##t, wb, q);                                                        \
    }
#define WIDEN(t)                                                                                   \
    if ((t) < n_tokens) add_into(acc[t], widen(a##t)), add_into(acc[t] + 4, widen(b##t));
    while (steps) {
        size_t n = tern_min_size(steps, 40);
        EACH(DECLARE)
        for (size_t i = 0; i < n; i++, w += 4 * ROWS, x += 4 * TOKENS) {
            v128_t wa = load_bytes(w), wb = load_bytes(w + 16);
            EACH(MULTIPLY)
        }
        EACH(WIDEN)
        steps -= n;
    }
}

#undef DECLARE
#undef MULTIPLY
#include "kernels/cpu/ternary/ternary_narrow.inl"
