// Ternary kernels for WebAssembly: what the variants share. The including file defines, before,
//   dot(u, c, x)        u + codes c times x, in lanes of 16 or 32 bits; allowed MAX_DOTS times with
//                       codes up to 3, ONE_BLOCKS times with codes up to 12
//   add_lanes(u, v), quarter_lanes(u)    u + v; u / 4, which is whole
//   add_units(s, u), tile(...), KERNELS, NAME     see ternary_narrow.inl
#include <wasm_simd128.h>

#include "kernels/cpu/ternary/ternary_kernels.h"

enum { UNIT = 16, ROWS = 8, TOKENS = 4, DEPTH = 4 };

typedef v128_t bytes, unit_sums, sums;

typedef struct codes {
    bytes c0, c1, c2, c3, c4;
} codes;

TERN_INLINE bytes load_bytes(const void *p) { return wasm_v128_load(p); }
TERN_INLINE void store_bytes(void *p, bytes b) { wasm_v128_store(p, b); }

// V8 makes a constant anew in every step of a loop, by three instructions on x86. The compiler
// cannot assume a weak variable's value, so it loads it, once.
__attribute__((weak, visibility("hidden"))) const uint8_t tern_wasm_masks[2] = {3, 12};
TERN_INLINE bytes low_bits(void) { return wasm_v128_load8_splat(tern_wasm_masks); }
TERN_INLINE bytes next_bits(void) { return wasm_v128_load8_splat(tern_wasm_masks + 1); }

// Shifts of 16 bits and a mask: x86 has no shifts of bytes.
TERN_INLINE bytes code_at(bytes b, uint32_t bit) {
    return wasm_v128_and(wasm_u16x8_shr(b, bit), low_bits());
}

TERN_INLINE codes unpack_2bit(bytes b) {
    return (codes){code_at(b, 6), code_at(b, 4), code_at(b, 2), wasm_v128_and(b, low_bits()),
                   wasm_i8x16_splat(0)};
}

// 1 + the number of the thresholds 85 and 170 that v reaches, as in ternary_avx2.c.
TERN_INLINE bytes t5_code(bytes v) {
    return code_at(wasm_u8x16_avgr(v, wasm_u8x16_avgr(v, wasm_i8x16_splat(-1))), 6);
}

// 3 v + 2. Three times v as sums would become a product of bytes, which WebAssembly lacks.
TERN_INLINE bytes t5_next(bytes v, bytes addend) {
    bytes twice = wasm_v128_and(wasm_i16x8_shl(v, 1), wasm_i8x16_splat(-2));
    return wasm_i8x16_add(twice, wasm_i8x16_add(v, addend));
}

TERN_INLINE codes unpack_t5(bytes b) {
    const bytes two = wasm_i8x16_splat(2);
    codes c;
    c.c0 = t5_code(b);
    bytes v = t5_next(b, wasm_i8x16_add(c.c0, wasm_i8x16_splat(1))); // 3 b + 2 + code, c0 - 1
    c.c1 = t5_code(v);
    c.c2 = t5_code(v = t5_next(v, two));
    c.c3 = t5_code(v = t5_next(v, two));
    c.c4 = t5_code(t5_next(v, two));
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

// ---- One token ---------------------------------------------------------------------------------
//
// One row at a time, so that memory is read as one stream: nothing here can prefetch. Sums are kept
// apart so that none waits for another.

TERN_INLINE unit_sums zero_lanes(void) { return wasm_i32x4_splat(0); }

TERN_INLINE v128_t load_x(const int8_t *x) { return wasm_v128_load(x); }

// Blocks of 32 bytes, at most ONE_BLOCKS. One shift moves two codes of a byte down; the sums of the
// other two are four times as great, which is taken back at the end.
TERN_INLINE sums add_blocks_2bit(sums s, const uint8_t *row, const int8_t *x, size_t n_bytes) {
    const bytes low = low_bits(), high = next_bits();
    unit_sums a0 = zero_lanes(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
    for (const uint8_t *end = row + n_bytes; row < end; row += TERN_I2S_BYTES) {
        bytes a = load_bytes(row), a_up = wasm_u16x8_shr(a, 4);
        bytes b = load_bytes(row + UNIT), b_up = wasm_u16x8_shr(b, 4);
        a0 = dot(a0, wasm_v128_and(a_up, high), load_x(x));
        b0 = dot(b0, wasm_v128_and(b_up, high), load_x(x + UNIT));
        a1 = dot(a1, wasm_v128_and(a_up, low), load_x(x + 32));
        b1 = dot(b1, wasm_v128_and(b_up, low), load_x(x + 32 + UNIT));
        a2 = dot(a2, wasm_v128_and(a, high), load_x(x + 64));
        b2 = dot(b2, wasm_v128_and(b, high), load_x(x + 64 + UNIT));
        a3 = dot(a3, wasm_v128_and(a, low), load_x(x + 96));
        b3 = dot(b3, wasm_v128_and(b, low), load_x(x + 96 + UNIT));
        x += TERN_I2S_WEIGHTS;
    }
    s = add_units(s, add_lanes(add_lanes(a1, a3), add_lanes(b1, b3)));
    return add_units(s, add_lanes(add_lanes(quarter_lanes(a0), quarter_lanes(a2)),
                                  add_lanes(quarter_lanes(b0), quarter_lanes(b2))));
}

// The first n_bytes of a piece whose codes are `step` apart, a multiple of 32.
TERN_INLINE sums add_piece_t5(sums s, const uint8_t *row, const int8_t *x, size_t n_bytes,
                              size_t step) {
    unit_sums u0 = zero_lanes(), u1 = u0, u2 = u0, u3 = u0, u4 = u0;
#pragma GCC unroll 4
    for (size_t at = 0; at < n_bytes; at += UNIT) {
        codes c = unpack_t5(load_bytes(row + at));
        u0 = dot(u0, c.c0, load_x(x + at));
        u1 = dot(u1, c.c1, load_x(x + at + step));
        u2 = dot(u2, c.c2, load_x(x + at + 2 * step));
        u3 = dot(u3, c.c3, load_x(x + at + 3 * step));
        u4 = dot(u4, c.c4, load_x(x + at + 4 * step));
    }
    return add_units(s, add_lanes(add_lanes(add_lanes(u0, u1), add_lanes(u2, u3)), u4));
}

TERN_INLINE int32_t dot_one(const uint8_t *row, size_t n_bytes, const int8_t *x, bool is_2bit) {
    sums s = no_sums();
    if (is_2bit) {
        const size_t most = ONE_BLOCKS * TERN_I2S_BYTES;
        for (size_t at = 0; at < n_bytes; at += most)
            s = add_blocks_2bit(s, row + at, x + 4 * at, tern_min_size(n_bytes - at, most));
        return add_up(s);
    }
    size_t at = 0;
    for (; at + TERN_T5_BYTES <= n_bytes; at += TERN_T5_BYTES)
        s = add_piece_t5(s, row + at, x + 5 * at, TERN_T5_BYTES, TERN_T5_BYTES);
    if (at < n_bytes) s = add_piece_t5(s, row + at, x + 5 * at, 32, 32); // the last, of 32 bytes
    return add_up(s);
}
#define DOT_ONE dot_one
#define SMALL   // pages wait for the module to arrive

// ---- Others ------------------------------------------------------------------------------------

TERN_INLINE unit_sums no_units(void) { return zero_lanes(); }

TERN_INLINE unit_sums dot_add(unit_sums u, bytes c, const int8_t *x) {
    return dot(u, c, load_x(x));
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
    for (size_t i = 0; i < sizeof w; i++) w[i] = (uint8_t)(i * (size_t)sink % 3);
    for (size_t i = 0; i < sizeof x; i++) x[i] = (int8_t)(i * (size_t)sink);
    for (int i = 0; i < LOOPS; i++) {
        x[i] = (int8_t)sink;
        tile(acc, w, x, STEPS, TOKENS);
        sink = acc[0][0] & 1;
    }
    return (uint64_t)LOOPS * STEPS * 4 * ROWS * TOKENS;
}
