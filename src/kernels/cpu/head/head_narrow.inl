// The head's inner loops on registers of 16 bytes, which ARM and WebAssembly share. The including
// file defines
//   bytes, load(p)                  16 numbers of 8 bits
//   even_codes(b), odd_codes(b)     the low and the high nibbles; bits(b, q): bit q of each byte
//   dots, no_dots(), dot_add(d, c, x)    adds codes c up to 15 times numbers x; allowed 8 times
//   ints, dwords(d)                 sums of the four products of each dword
//   screen_dot(hi, lo, sum_x)       256 hi + 2 lo - *sum_x; hi_dot(d, sum_hi): 2 d - 15 *sum_hi;
//   bit_dot(d, sum_hi)              2 d - *sum_hi
//   floats, no_floats(), add_scaled(f, scales, ints)
//   SUMS, add_up(out, sum, n)       out[r] = the sum of all lanes of sum[0 .. SUMS - 1][r], r < n,
//                                   a constant; quarter q of the blocks is in sum[q % SUMS]
//   HI_ROWS                         rows that share loads of x in screen_hi
//   QUANTIZE, KERNELS, NAME         the table to define
#include "kernels/cpu/head/head_kernels.h"

enum { QUARTER = 16, BLOCKS = 4 }; // bytes of a vector in a register, and the blocks they belong to
enum { TILE = TERN_HEAD_TILE };

typedef struct x_bytes { // of a vector, for its even and odd codes
    bytes hi_even, hi_odd, lo_even, lo_odd;
} x_bytes;

INLINE x_bytes load_x(const int8_t *hi, const int8_t *lo) {
    return (x_bytes){load(hi), load(hi + 64), load(lo), load(lo + 64)};
}

// A quarter of the rows of a tile, all groups: each lane is a block. All rows share each load of x.
INLINE void screen_quarter(floats sum[TILE], const uint8_t *codes, const uint8_t *scales,
                           const tern_head_vector at, size_t n_vectors) {
    const int8_t *x_hi = at.hi, *x_lo = at.lo;
    const int32_t *sum_x = at.sum_x;
    for (size_t left = n_vectors; left;) {
        dots hi[TILE], lo[TILE];
#pragma GCC unroll 4
        for (size_t r = 0; r < TILE; r++) hi[r] = lo[r] = no_dots();
        for (size_t n = left < 4 ? left : 4; n; n--, left--) {
            x_bytes x = load_x(x_hi, x_lo);
#pragma GCC unroll 4
            for (size_t r = 0; r < TILE; r++) {
                bytes v = load(codes + 64 * r), even = even_codes(v), odd = odd_codes(v);
                hi[r] = dot_add(dot_add(hi[r], even, x.hi_even), odd, x.hi_odd);
                lo[r] = dot_add(dot_add(lo[r], even, x.lo_even), odd, x.lo_odd);
            }
            codes += TERN_HEAD_CODE_STEP, x_hi += TERN_HEAD_VECTOR, x_lo += TERN_HEAD_VECTOR;
        }
#pragma GCC unroll 4
        for (size_t r = 0; r < TILE; r++) {
            ints dot = screen_dot(dwords(hi[r]), dwords(lo[r]), sum_x);
            sum[r] = add_scaled(sum[r], scales + TERN_HEAD_LANES * r, dot);
        }
        scales += TERN_HEAD_SCALE_STEP, sum_x += TERN_HEAD_LANES;
    }
}

static void screen_tile(float out[TILE], const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors) {
    floats sum[SUMS][TILE];
#pragma GCC unroll 4
    for (size_t r = 0; r < SUMS * TILE; r++) sum[r / TILE][r % TILE] = no_floats();
    for (size_t quarter = 0; quarter < 4; quarter++)
        screen_quarter(sum[quarter % SUMS], codes + QUARTER * quarter, scales + BLOCKS * quarter,
                       (tern_head_vector){.hi = x->hi + QUARTER * quarter,
                                          .lo = x->lo + QUARTER * quarter,
                                          .sum_x = x->sum_x + BLOCKS * quarter},
                       n_vectors);
    add_up(out, sum, TILE);
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        screen_tile(out + TILE * tile, codes, scales, x, n_vectors);
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// HI_ROWS rows against several vectors: codes are unpacked once for all. n_x is a constant.
INLINE void screen_rows_hi(float *const *out, size_t at, const uint8_t *codes,
                           const uint8_t *scales, const tern_head_screen *s, size_t n_x) {
    const tern_head_vector *const *x = s->x;
    const size_t n_vectors = s->n_vectors;
    floats sum[TERN_HEAD_SHARED][SUMS][HI_ROWS];
    dots hi[TERN_HEAD_SHARED][HI_ROWS];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++)
#pragma GCC unroll 16
        for (size_t r = 0; r < SUMS * HI_ROWS; r++) sum[i][r / HI_ROWS][r % HI_ROWS] = no_floats();
    for (size_t quarter = 0; quarter < 4; quarter++)
        for (size_t j = 0; j < n_vectors;) {
            const size_t block = TERN_HEAD_LANES * (j / 4) + BLOCKS * quarter;
            const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * (j / 4) + BLOCKS * quarter;
#pragma GCC unroll 16
            for (size_t i = 0; i < n_x * HI_ROWS; i++) hi[i / HI_ROWS][i % HI_ROWS] = no_dots();
            for (size_t end = j + 4 < n_vectors ? j + 4 : n_vectors; j < end; j++) {
                const uint8_t *from = codes + TERN_HEAD_CODE_STEP * j + QUARTER * quarter;
                bytes even[HI_ROWS], odd[HI_ROWS];
#pragma GCC unroll 4
                for (size_t r = 0; r < HI_ROWS; r++) {
                    bytes v = load(from + 64 * r);
                    even[r] = even_codes(v);
                    odd[r] = odd_codes(v);
                }
#pragma GCC unroll 4
                for (size_t i = 0; i < n_x; i++) {
                    const int8_t *to = x[i]->hi + TERN_HEAD_VECTOR * j + QUARTER * quarter;
                    bytes first = load(to), second = load(to + 64);
#pragma GCC unroll 4
                    for (size_t r = 0; r < HI_ROWS; r++)
                        hi[i][r] = dot_add(dot_add(hi[i][r], even[r], first), odd[r], second);
                }
            }
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++)
#pragma GCC unroll 4
                for (size_t r = 0; r < HI_ROWS; r++) {
                    floats *to = &sum[i][quarter % SUMS][r];
                    ints dot = hi_dot(dwords(hi[i][r]), x[i]->sum_hi + block);
                    *to = add_scaled(*to, scale + TERN_HEAD_LANES * r, dot);
                }
        }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) add_up(out[i] + at, sum[i], HI_ROWS);
}

static void screen_hi(float *const *out, const tern_head_screen *s) {
    const uint8_t *codes = s->codes, *scales = s->scales;
    const size_t n_vectors = s->n_vectors;
    for (size_t at = 0; at < TILE * s->n_tiles; at += HI_ROWS) {
        const uint8_t *row = codes + 64 * (at % TILE);
        const uint8_t *row_scales = scales + TERN_HEAD_LANES * (at % TILE);
        switch (s->n_x) {
        case 1: screen_rows_hi(out, at, row, row_scales, s, 1); break;
        case 2: screen_rows_hi(out, at, row, row_scales, s, 2); break;
        case 3: screen_rows_hi(out, at, row, row_scales, s, 3); break;
        default: screen_rows_hi(out, at, row, row_scales, s, 4); break;
        }
        if (at % TILE != TILE - HI_ROWS) continue;
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// n_x is a constant: the bits are unpacked once for that many vectors.
INLINE void refine_some(float *out, const uint8_t *from, const uint8_t *scales,
                        const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    floats sum[SUMS][TERN_HEAD_SHARED];
#pragma GCC unroll 16
    for (size_t i = 0; i < SUMS * n_x; i++) sum[i / n_x][i % n_x] = no_floats();
    for (size_t b = 0; b < 4 * n_groups; b++) { // quarters of groups
        bytes v = load(from + QUARTER * b);
        dots dot[TERN_HEAD_SHARED];
        const size_t at = TERN_HEAD_GROUP * (b / 4) + QUARTER * (b % 4);
        const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * (b / 4) + BLOCKS * (b % 4);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) dot[i] = no_dots();
#pragma GCC unroll 8
        for (uint32_t q = 0; q < 8; q++) {
            bytes bit = bits(v, q);
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++)
                dot[i] = dot_add(dot[i], bit, load(x[i]->hi + at + 64 * q));
        }
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            floats *to = &sum[b % SUMS][i];
            *to = add_scaled(*to, scale, bit_dot(dwords(dot[i]), x[i]->sum_hi + BLOCKS * b));
        }
    }
    add_up(out, sum, n_x);
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

const tern_head_kernels KERNELS = {NAME, QUANTIZE, screen, screen_hi, refine, NULL};
