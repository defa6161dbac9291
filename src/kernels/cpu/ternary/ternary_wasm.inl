// Ternary kernels for WebAssembly: what the variants share. The including file defines `unit_sums`,
// dot_add and so on, see ternary_narrow.inl.
#include <string.h>
#include <wasm_simd128.h>

#include "kernels/cpu/ternary/ternary_kernels.h"

enum { UNIT = 16, ROWS = 8, TOKENS = 4, GEMV_ROWS = 4 };

typedef v128_t bytes, sums;

typedef struct codes {
    bytes c0, c1, c2, c3, c4;
} codes;

TERN_INLINE bytes load_bytes(const void *p) { return wasm_v128_load(p); }
TERN_INLINE void store_bytes(void *p, bytes b) { wasm_v128_store(p, b); }

// Shifts of 16 bits and a mask: x86 has no shifts of bytes.
TERN_INLINE bytes code_at(bytes b, uint32_t bit) {
    return wasm_v128_and(wasm_u16x8_shr(b, bit), wasm_i8x16_splat(3));
}

TERN_INLINE codes unpack_2bit(bytes b) {
    return (codes){code_at(b, 6), code_at(b, 4), code_at(b, 2),
                   wasm_v128_and(b, wasm_i8x16_splat(3)), wasm_i8x16_splat(0)};
}

// 1 + the number of the thresholds 85 and 170 that v reaches, as in ternary_avx2.c.
TERN_INLINE bytes t5_code(bytes v) {
    return code_at(wasm_u8x16_avgr(v, wasm_u8x16_avgr(v, wasm_i8x16_splat(-1))), 6);
}

TERN_INLINE bytes t5_next(bytes v) { // 3 v + 2
    return wasm_i8x16_add(wasm_i8x16_add(v, v), wasm_i8x16_add(v, wasm_i8x16_splat(2)));
}

TERN_INLINE codes unpack_t5(bytes b) {
    codes c;
    c.c0 = t5_code(b);
    bytes v = wasm_i8x16_add(wasm_i8x16_add(b, wasm_i8x16_add(b, b)), // 3 b + 2 + code, and c0 is
                             wasm_i8x16_add(c.c0, wasm_i8x16_splat(1))); // code + 1
    c.c1 = t5_code(v);
    c.c2 = t5_code(v = t5_next(v));
    c.c3 = t5_code(v = t5_next(v));
    c.c4 = t5_code(t5_next(v));
    return c;
}

TERN_INLINE sums no_sums(void) { return wasm_i32x4_splat(0); }
TERN_INLINE int32_t add_up(sums s) {
    s = wasm_i32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 2, 3));
    return wasm_i32x4_extract_lane(s, 0) + wasm_i32x4_extract_lane(s, 1);
}

// 4 rows of 4 dwords.
TERN_INLINE void transpose(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step) {
    v128_t r0 = load_bytes(from), r1 = load_bytes(from + from_step);
    v128_t r2 = load_bytes(from + 2 * from_step), r3 = load_bytes(from + 3 * from_step);
    v128_t low01 = wasm_i32x4_shuffle(r0, r1, 0, 4, 1, 5);
    v128_t high01 = wasm_i32x4_shuffle(r0, r1, 2, 6, 3, 7);
    v128_t low23 = wasm_i32x4_shuffle(r2, r3, 0, 4, 1, 5);
    v128_t high23 = wasm_i32x4_shuffle(r2, r3, 2, 6, 3, 7);
    store_bytes(to, wasm_i64x2_shuffle(low01, low23, 0, 2));
    store_bytes(to + to_step, wasm_i64x2_shuffle(low01, low23, 1, 3));
    store_bytes(to + 2 * to_step, wasm_i64x2_shuffle(high01, high23, 0, 2));
    store_bytes(to + 3 * to_step, wasm_i64x2_shuffle(high01, high23, 1, 3));
}

TERN_INLINE v128_t broadcast4(const int8_t *x) { return wasm_v128_load32_splat(x); }

TERN_INLINE void add_into(int32_t *acc, v128_t s) {
    wasm_v128_store(acc, wasm_i32x4_add(wasm_v128_load(acc), s));
}

#define EACH(X) X(0) X(1) X(2) X(3)

TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens);

// There is no way to tell the compiler that a register has changed, so the step's operands come
// from the first-level cache.
static uint64_t peak_loop(void) {
    enum { LOOPS = 128, STEPS = 64 };
    uint8_t w[4 * ROWS * STEPS];
    int8_t x[4 * TOKENS * STEPS];
    int32_t acc[TOKENS][ROWS] = {{0}};
    volatile int32_t sink = 1;
    memset(w, sink, sizeof w);
    memset(x, sink, sizeof x);
    for (int i = 0; i < LOOPS; i++) {
        x[0] = (int8_t)sink;
        tile(acc, w, x, STEPS, TOKENS);
        sink = acc[0][0] & 1;
    }
    return (uint64_t)LOOPS * STEPS * 4 * ROWS * TOKENS;
}
