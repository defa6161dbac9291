// The head's inner loops for WebAssembly: what the variants share. The including file defines
//   dot_add(sum, c, x)  adds codes c up to 15 times numbers x of 8 bits; allowed 8 times
//   dwords(sum)         sums of the four bytes of each dword
//   KERNELS, NAME       the table to define
#include <wasm_simd128.h>
#include "kernels/cpu/head/head_kernels.h"

// One version is enough: it has no products of bytes.
void tern_head_quantize_wasm(tern_head_row *row, float *w, size_t n);

enum { QUARTER = 16, BLOCKS = 4 }; // bytes of a vector in a register, and the blocks they belong to

INLINE v128_t load(const void *p) { return wasm_v128_load(p); }
INLINE v128_t zero(void) { return wasm_i32x4_splat(0); }

// Weak, so that they stay in registers: see ternary/ternary_wasm.inl.
__attribute__((weak, visibility("hidden"))) const uint8_t tern_wasm_head_masks[2] = {15, 1};
INLINE v128_t nibbles(void) { return wasm_v128_load8_splat(tern_wasm_head_masks); }
INLINE v128_t single_bits(void) { return wasm_v128_load8_splat(tern_wasm_head_masks + 1); }

INLINE v128_t scaled(const uint8_t *scales, v128_t dot) {
    v128_t c = wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(scales));
    c = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(c));
    return wasm_f32x4_mul(c, wasm_f32x4_convert_i32x4(dot));
}

INLINE float sum_of(v128_t s) {
    s = wasm_f32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(s, 0) + wasm_f32x4_extract_lane(s, 1);
}

typedef struct x_bytes { // of a vector, for its even and odd codes
    v128_t hi_even, hi_odd, lo_even, lo_odd;
} x_bytes;

INLINE x_bytes load_x(const int8_t *hi, const int8_t *lo) {
    return (x_bytes){load(hi), load(hi + 64), load(lo), load(lo + 64)};
}

// A quarter of the rows of a tile, all groups: each lane is a block. All rows share each load of x.
INLINE void screen_quarter(v128_t sum[TERN_HEAD_TILE], const uint8_t *codes, const uint8_t *scales,
                           const tern_head_vector at, size_t n_vectors) {
    const int8_t *x_hi = at.hi, *x_lo = at.lo;
    const int32_t *sum_x = at.sum_x;
    const v128_t mask = nibbles();
    for (size_t left = n_vectors; left;) {
        v128_t hi[TERN_HEAD_TILE], lo[TERN_HEAD_TILE];
#pragma GCC unroll 4
        for (size_t r = 0; r < TERN_HEAD_TILE; r++) hi[r] = lo[r] = zero();
        for (size_t n = left < 4 ? left : 4; n; n--, left--) {
            x_bytes x = load_x(x_hi, x_lo);
#pragma GCC unroll 4
            for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
                v128_t v = load(codes + 64 * r);
                v128_t even = wasm_v128_and(v, mask);
                v128_t odd = wasm_v128_and(wasm_u16x8_shr(v, 4), mask);
                hi[r] = dot_add(dot_add(hi[r], even, x.hi_even), odd, x.hi_odd);
                lo[r] = dot_add(dot_add(lo[r], even, x.lo_even), odd, x.lo_odd);
            }
            codes += TERN_HEAD_CODE_STEP, x_hi += TERN_HEAD_VECTOR, x_lo += TERN_HEAD_VECTOR;
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
            v128_t twice = wasm_i32x4_add(wasm_i32x4_shl(dwords(hi[r]), 8),
                                          wasm_i32x4_shl(dwords(lo[r]), 1));
            v128_t dot = wasm_i32x4_sub(twice, load(sum_x));
            sum[r] = wasm_f32x4_add(sum[r], scaled(scales + TERN_HEAD_LANES * r, dot));
        }
        scales += TERN_HEAD_SCALE_STEP, sum_x += TERN_HEAD_LANES;
    }
}

static void screen_tile(float out[TERN_HEAD_TILE], const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors) {
    v128_t sum[TERN_HEAD_TILE];
#pragma GCC unroll 4
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) sum[r] = zero();
    for (size_t quarter = 0; quarter < 4; quarter++)
        screen_quarter(sum, codes + QUARTER * quarter, scales + BLOCKS * quarter,
                       (tern_head_vector){.hi = x->hi + QUARTER * quarter,
                                          .lo = x->lo + QUARTER * quarter,
                                          .sum_x = x->sum_x + BLOCKS * quarter},
                       n_vectors);
#pragma GCC unroll 4
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) out[r] = sum_of(sum[r]);
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        screen_tile(out + TERN_HEAD_TILE * tile, codes, scales, x, n_vectors);
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// One row against several vectors: codes are unpacked once for all. n_x is a constant.
INLINE void screen_row_hi(float *const *out, size_t at, const uint8_t *codes,
                          const uint8_t *scales, const tern_head_screen *s, size_t n_x) {
    const tern_head_vector *const *x = s->x;
    const size_t n_vectors = s->n_vectors;
    v128_t sum[TERN_HEAD_SHARED], hi[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) sum[i] = zero();
    for (size_t quarter = 0; quarter < 4; quarter++)
        for (size_t j = 0; j < n_vectors;) {
            const size_t block = TERN_HEAD_LANES * (j / 4) + BLOCKS * quarter;
            const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * (j / 4) + BLOCKS * quarter;
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++) hi[i] = zero();
            for (size_t end = j + 4 < n_vectors ? j + 4 : n_vectors; j < end; j++) {
                v128_t v = load(codes + TERN_HEAD_CODE_STEP * j + QUARTER * quarter);
                v128_t even = wasm_v128_and(v, nibbles());
                v128_t odd = wasm_v128_and(wasm_u16x8_shr(v, 4), nibbles());
#pragma GCC unroll 4
                for (size_t i = 0; i < n_x; i++) {
                    const int8_t *to = x[i]->hi + TERN_HEAD_VECTOR * j + QUARTER * quarter;
                    hi[i] = dot_add(dot_add(hi[i], even, load(to)), odd, load(to + 64));
                }
            }
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++) {
                v128_t sum_hi = load(x[i]->sum_hi + block), dot = wasm_i32x4_shl(dwords(hi[i]), 1);
                dot = wasm_i32x4_sub(dot, wasm_i32x4_sub(wasm_i32x4_shl(sum_hi, 4), sum_hi));
                sum[i] = wasm_f32x4_add(sum[i], scaled(scale, dot));
            }
        }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) out[i][at] = sum_of(sum[i]);
}

static void screen_hi(float *const *out, const tern_head_screen *s) {
    const uint8_t *codes = s->codes, *scales = s->scales;
    const size_t n_vectors = s->n_vectors;
    for (size_t at = 0; at < TERN_HEAD_TILE * s->n_tiles; at++) {
        const uint8_t *row = codes + 64 * (at % TERN_HEAD_TILE);
        const uint8_t *row_scales = scales + TERN_HEAD_LANES * (at % TERN_HEAD_TILE);
        switch (s->n_x) {
        case 1: screen_row_hi(out, at, row, row_scales, s, 1); break;
        case 2: screen_row_hi(out, at, row, row_scales, s, 2); break;
        case 3: screen_row_hi(out, at, row, row_scales, s, 3); break;
        default: screen_row_hi(out, at, row, row_scales, s, 4); break;
        }
        if (at % TERN_HEAD_TILE != TERN_HEAD_TILE - 1) continue;
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// n_x is a constant: the bits are unpacked once for that many vectors.
INLINE void refine_some(float *out, const uint8_t *bits, const uint8_t *scales,
                        const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    v128_t sum[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) sum[i] = zero();
    for (size_t b = 0; b < 4 * n_groups; b++) { // quarters of groups
        v128_t v = load(bits + QUARTER * b), dot[TERN_HEAD_SHARED];
        const size_t at = TERN_HEAD_GROUP * (b / 4) + QUARTER * (b % 4);
        const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * (b / 4) + BLOCKS * (b % 4);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) dot[i] = zero();
#pragma GCC unroll 8
        for (uint32_t q = 0; q < 8; q++) {
            v128_t bit = wasm_v128_and(wasm_u16x8_shr(v, q), single_bits());
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++)
                dot[i] = dot_add(dot[i], bit, load(x[i]->hi + at + 64 * q));
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            v128_t twice = wasm_i32x4_shl(dwords(dot[i]), 1);
            v128_t minus = load(x[i]->sum_hi + BLOCKS * b);
            sum[i] = wasm_f32x4_add(sum[i], scaled(scale, wasm_i32x4_sub(twice, minus)));
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) out[i] = sum_of(sum[i]);
}

static void refine(float *out, const uint8_t *bits, const uint8_t *scales,
                   const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    for (; n_x >= 4; n_x -= 4, x += 4, out += 4) refine_some(out, bits, scales, x, 4, n_groups);
    if (n_x >= 2) {
        refine_some(out, bits, scales, x, 2, n_groups);
        n_x -= 2, x += 2, out += 2;
    }
    if (n_x) refine_some(out, bits, scales, x, 1, n_groups);
}

const tern_head_kernels KERNELS = {
    NAME, tern_head_quantize_wasm, screen, screen_hi, refine, NULL};
