// The head's inner loops for WebAssembly: what the variants share. The including file defines
//   dot_add(sum, c, x)  adds codes c up to 15 times numbers x of 8 bits; allowed 8 times
//   dwords(sum)         sums of the four bytes of each dword
//   KERNELS, NAME       the table to define
#include <wasm_simd128.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

enum { QUARTER = 16, BLOCKS = 4 }; // bytes of a vector in a register, and the blocks they belong to

INLINE v128_t load(const void *p) { return wasm_v128_load(p); }
INLINE v128_t zero(void) { return wasm_i32x4_splat(0); }
INLINE v128_t even_codes(v128_t v) { return wasm_v128_and(v, wasm_i8x16_splat(15)); }
INLINE v128_t odd_codes(v128_t v) { return even_codes(wasm_u16x8_shr(v, 4)); }

INLINE void add_scaled(v128_t *sum, const uint8_t *scales, v128_t dot) {
    v128_t c = wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(scales));
    v128_t scale = wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(c));
    *sum = wasm_f32x4_add(*sum, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(dot)));
}

// All lanes of the quarters of a row.
INLINE float sum_of(const v128_t quarters[4]) {
    v128_t s = wasm_f32x4_add(wasm_f32x4_add(quarters[0], quarters[1]),
                              wasm_f32x4_add(quarters[2], quarters[3]));
    s = wasm_f32x4_add(s, wasm_i32x4_shuffle(s, s, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(s, 0) + wasm_f32x4_extract_lane(s, 1);
}

// A quarter of group g of all rows of a tile, vectors first..last - 1: each load of x serves all.
INLINE void screen_quarter(v128_t (*sum)[4], const uint8_t *codes, const uint8_t *scales,
                           const tern_head_vector *x, size_t g, size_t last, size_t quarter) {
    v128_t hi[TERN_HEAD_TILE], lo[TERN_HEAD_TILE];
#pragma GCC unroll 4
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) hi[r] = lo[r] = zero();
#pragma GCC unroll 4
    for (size_t j = 4 * g; j < last; j++) {
        const int8_t *x_hi = x->hi + TERN_HEAD_VECTOR * j + QUARTER * quarter;
        const int8_t *x_lo = x->lo + TERN_HEAD_VECTOR * j + QUARTER * quarter;
        v128_t hi_even = load(x_hi), hi_odd = load(x_hi + 64);
        v128_t lo_even = load(x_lo), lo_odd = load(x_lo + 64);
#pragma GCC unroll 4
        for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
            v128_t v = load(codes + TERN_HEAD_CODE_STEP * j + 64 * r + QUARTER * quarter);
            v128_t even = even_codes(v), odd = odd_codes(v);
            hi[r] = dot_add(dot_add(hi[r], even, hi_even), odd, hi_odd);
            lo[r] = dot_add(dot_add(lo[r], even, lo_even), odd, lo_odd);
        }
    }
    const v128_t sum_x = load(x->sum_x + TERN_HEAD_LANES * g + BLOCKS * quarter);
    scales += TERN_HEAD_SCALE_STEP * g + BLOCKS * quarter;
#pragma GCC unroll 4
    for (size_t r = 0; r < TERN_HEAD_TILE; r++) {
        v128_t dot = wasm_i32x4_add(wasm_i32x4_shl(dwords(hi[r]), 8),
                                    wasm_i32x4_shl(dwords(lo[r]), 1));
        add_scaled(&sum[r][quarter], scales + TERN_HEAD_LANES * r, wasm_i32x4_sub(dot, sum_x));
    }
}

static void screen_tile(float *out, const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors) {
    v128_t sum[TERN_HEAD_TILE][4];
    memset(sum, 0, sizeof sum);
    for (size_t g = 0; 4 * g < n_vectors; g++)
        for (size_t quarter = 0; quarter < 4; quarter++) {
            if (4 * g + 4 <= n_vectors)
                screen_quarter(sum, codes, scales, x, g, 4 * g + 4, quarter);
            else
                screen_quarter(sum, codes, scales, x, g, n_vectors, quarter);
        }
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

// Several vectors against a quarter of a group of one row: codes are unpacked once for all. n_x is
// a constant.
INLINE void add_shared(v128_t (*sum)[4], const uint8_t *codes, const uint8_t *scales,
                       const tern_head_vector *const *x, size_t n_x, size_t g, size_t last,
                       size_t quarter) {
    v128_t hi[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) hi[i] = zero();
    for (size_t j = 4 * g; j < last; j++) {
        v128_t v = load(codes + TERN_HEAD_CODE_STEP * j + QUARTER * quarter);
        v128_t even = even_codes(v), odd = odd_codes(v);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            const int8_t *at = x[i]->hi + TERN_HEAD_VECTOR * j + QUARTER * quarter;
            hi[i] = dot_add(dot_add(hi[i], even, load(at)), odd, load(at + 64));
        }
    }
    const size_t block = TERN_HEAD_LANES * g + BLOCKS * quarter;
    scales += TERN_HEAD_SCALE_STEP * g + BLOCKS * quarter;
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) {
        v128_t sum_hi = load(x[i]->sum_hi + block), dot = wasm_i32x4_shl(dwords(hi[i]), 1);
        dot = wasm_i32x4_sub(dot, wasm_i32x4_sub(wasm_i32x4_shl(sum_hi, 4), sum_hi));
        add_scaled(&sum[i][quarter], scales, dot);
    }
}

INLINE void screen_row_hi(float *const *out, size_t at, const uint8_t *codes,
                          const uint8_t *scales, const tern_head_vector *const *x, size_t n_x,
                          size_t n_vectors) {
    v128_t sum[TERN_HEAD_SHARED][4];
    memset(sum, 0, sizeof sum);
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        size_t last = 4 * g + 4 < n_vectors ? 4 * g + 4 : n_vectors;
        for (size_t quarter = 0; quarter < 4; quarter++)
            add_shared(sum, codes, scales, x, n_x, g, last, quarter);
    }
    for (size_t i = 0; i < n_x; i++) out[i][at] = sum_of(sum[i]);
}

static void screen_hi(float *const *out, const uint8_t *codes, const uint8_t *scales,
                      const tern_head_vector *const *x, size_t n_x, size_t n_tiles,
                      size_t n_vectors) {
    for (size_t at = 0; at < TERN_HEAD_TILE * n_tiles; at++) {
        const uint8_t *row = codes + 64 * (at % TERN_HEAD_TILE);
        const uint8_t *row_scales = scales + TERN_HEAD_LANES * (at % TERN_HEAD_TILE);
        switch (n_x) {
        case 1: screen_row_hi(out, at, row, row_scales, x, 1, n_vectors); break;
        case 2: screen_row_hi(out, at, row, row_scales, x, 2, n_vectors); break;
        case 3: screen_row_hi(out, at, row, row_scales, x, 3, n_vectors); break;
        default: screen_row_hi(out, at, row, row_scales, x, 4, n_vectors); break;
        }
        if (at % TERN_HEAD_TILE != TERN_HEAD_TILE - 1) continue;
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// n_x is a constant: the bits are unpacked once for that many vectors.
INLINE void refine_some(float *out, const uint8_t *bits, const uint8_t *scales,
                        const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    v128_t sum[TERN_HEAD_SHARED][4];
    memset(sum, 0, sizeof sum);
    for (size_t b = 0; b < 4 * n_groups; b++) { // quarters of groups
        v128_t v = load(bits + QUARTER * b), dot[TERN_HEAD_SHARED];
        const size_t at = TERN_HEAD_GROUP * (b / 4) + QUARTER * (b % 4);
        const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * (b / 4) + BLOCKS * (b % 4);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) dot[i] = zero();
#pragma GCC unroll 8
        for (uint32_t q = 0; q < 8; q++) {
            v128_t bit = wasm_v128_and(wasm_u16x8_shr(v, q), wasm_i8x16_splat(1));
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++)
                dot[i] = dot_add(dot[i], bit, load(x[i]->hi + at + 64 * q));
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            v128_t twice = wasm_i32x4_shl(dwords(dot[i]), 1);
            add_scaled(&sum[i][0], scale, wasm_i32x4_sub(twice, load(x[i]->sum_hi + BLOCKS * b)));
        }
    }
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

const tern_head_kernels KERNELS = {NAME, quantize, screen, screen_hi, refine};
