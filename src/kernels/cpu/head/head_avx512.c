#include <immintrin.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = TERN_HEAD_TILE }; // share each load of x

typedef struct tile_sums {
    __m512i hi[ROWS], lo[ROWS];
} tile_sums;

// 128 weights of each row of the tile.
INLINE void screen_vectors(tile_sums *s, const uint8_t *codes, const tern_head_vector *x,
                           size_t j) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i hi0 = _mm512_load_si512(x->hi + 128 * j), hi1 = _mm512_load_si512(x->hi + 128 * j + 64);
    __m512i lo0 = _mm512_load_si512(x->lo + 128 * j), lo1 = _mm512_load_si512(x->lo + 128 * j + 64);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) {
        __m512i v = _mm512_load_si512(codes + TERN_HEAD_CODE_STEP * j + 64 * r);
        __m512i even = _mm512_and_si512(v, nibble);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        s->hi[r] = _mm512_dpbusd_epi32(s->hi[r], even, hi0);
        s->lo[r] = _mm512_dpbusd_epi32(s->lo[r], even, lo0);
        s->hi[r] = _mm512_dpbusd_epi32(s->hi[r], odd, hi1);
        s->lo[r] = _mm512_dpbusd_epi32(s->lo[r], odd, lo1);
    }
}

INLINE __m512 add_scaled(__m512 sum, const uint8_t *scales, __m512i dot) {
    __m512i c = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)scales));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(c), _mm512_cvtepi32_ps(dot), sum);
}

INLINE void screen_tile(float *out, const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors) {
    __m512 sum[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sum[r] = _mm512_setzero_ps();
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        tile_sums s;
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) s.hi[r] = s.lo[r] = _mm512_setzero_si512();
        if (4 * g + 4 <= n_vectors) {
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++) screen_vectors(&s, codes, x, 4 * g + j);
        } else {
            for (size_t j = 4 * g; j < n_vectors; j++) screen_vectors(&s, codes, x, j);
        }
        __m512i sum_x = _mm512_load_si512(x->sum_x + TERN_HEAD_LANES * g);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            __m512i dot =
                _mm512_add_epi32(_mm512_slli_epi32(s.hi[r], 8), _mm512_slli_epi32(s.lo[r], 1));
            sum[r] = add_scaled(sum[r], scales + TERN_HEAD_SCALE_STEP * g + TERN_HEAD_LANES * r,
                                _mm512_sub_epi32(dot, sum_x));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) out[r] = _mm512_reduce_add_ps(sum[r]);
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        screen_tile(out + ROWS * tile, codes, scales, x, n_vectors);
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// As _mm512_dpbusd_epi32. In assembly, since gcc 12 copies accumulators to and fro around the
// intrinsic when many are live.
INLINE __m512i dot_add(__m512i acc, __m512i codes, __m512i x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
    return acc;
}

INLINE __m512 scales_of(const uint8_t *scales) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)scales)));
}

// sum + scale * (2 dot + addend): the sum in brackets is a whole number below 2^24.
INLINE __m512 add_twice(__m512 sum, __m512 scale, __m512i dot, __m512 addend) {
    __m512 exact = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(2), addend);
    return _mm512_fmadd_ps(scale, exact, sum);
}

// Several vectors against a tile: codes are unpacked once for all of them, and each load of x
// serves all rows. n_x is a constant.
typedef struct shared_sums {
    __m512i hi[TERN_HEAD_SHARED][ROWS];
} shared_sums;

INLINE void add_shared(shared_sums *s, const uint8_t *codes, const tern_head_vector *const *x,
                       size_t n_x, size_t j) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i even[ROWS], odd[ROWS];
#pragma GCC unroll 4
    for (size_t r = 0; r < ROWS; r++) {
        __m512i v = _mm512_load_si512(codes + TERN_HEAD_CODE_STEP * j + 64 * r);
        even[r] = _mm512_and_si512(v, nibble);
        odd[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) {
        __m512i hi0 = _mm512_load_si512(x[i]->hi + 128 * j);
        __m512i hi1 = _mm512_load_si512(x[i]->hi + 128 * j + 64);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++) s->hi[i][r] = dot_add(s->hi[i][r], even[r], hi0);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++) s->hi[i][r] = dot_add(s->hi[i][r], odd[r], hi1);
    }
}

INLINE void screen_tile_hi(float *const *out, size_t at, const uint8_t *codes,
                           const uint8_t *scales, const tern_head_vector *const *x, size_t n_x,
                           size_t n_vectors) {
    __m512 sum[TERN_HEAD_SHARED][ROWS];
    for (size_t i = 0; i < n_x; i++)
        for (size_t r = 0; r < ROWS; r++) sum[i][r] = _mm512_setzero_ps();
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        shared_sums s;
        __m512 c[ROWS];
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++)
#pragma GCC unroll 4
            for (size_t r = 0; r < ROWS; r++) s.hi[i][r] = _mm512_setzero_si512();
        size_t last = 4 * g + 4 < n_vectors ? 4 * g + 4 : n_vectors;
        for (size_t j = 4 * g; j < last; j++) add_shared(&s, codes, x, n_x, j);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++)
            c[r] = scales_of(scales + TERN_HEAD_SCALE_STEP * g + TERN_HEAD_LANES * r);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            __m512i sum_hi = _mm512_load_si512(x[i]->sum_hi + TERN_HEAD_LANES * g);
            __m512 minus = _mm512_mul_ps(_mm512_cvtepi32_ps(sum_hi), _mm512_set1_ps(-15));
#pragma GCC unroll 4
            for (size_t r = 0; r < ROWS; r++)
                sum[i][r] = add_twice(sum[i][r], c[r], s.hi[i][r], minus);
        }
    }
    for (size_t i = 0; i < n_x; i++)
        for (size_t r = 0; r < ROWS; r++) out[i][at + r] = _mm512_reduce_add_ps(sum[i][r]);
}

static void screen_hi(float *const *out, const uint8_t *codes, const uint8_t *scales,
                      const tern_head_vector *const *x, size_t n_x, size_t n_tiles,
                      size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        switch (n_x) {
        case 1: screen_tile_hi(out, ROWS * tile, codes, scales, x, 1, n_vectors); break;
        case 2: screen_tile_hi(out, ROWS * tile, codes, scales, x, 2, n_vectors); break;
        case 3: screen_tile_hi(out, ROWS * tile, codes, scales, x, 3, n_vectors); break;
        default: screen_tile_hi(out, ROWS * tile, codes, scales, x, 4, n_vectors); break;
        }
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// n_x is a constant: the bits are unpacked once for that many vectors.
INLINE void refine_some(float *out, const uint8_t *bits, const uint8_t *scales,
                        const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512 sum[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) sum[i] = _mm512_setzero_ps();
    for (size_t g = 0; g < n_groups; g++) {
        __m512i v = _mm512_load_si512(bits + 64 * g), bit[8];
#pragma GCC unroll 8
        for (unsigned q = 0; q < 8; q++)
            bit[q] = _mm512_and_si512(_mm512_srli_epi16(v, q), one);
        const __m512 c = scales_of(scales + TERN_HEAD_SCALE_STEP * g);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            const int8_t *hi = x[i]->hi + TERN_HEAD_GROUP * g;
            __m512i even = _mm512_setzero_si512(), odd = even;
#pragma GCC unroll 4
            for (int q = 0; q < 8; q += 2) {
                even = dot_add(even, bit[q], _mm512_load_si512(hi + 64 * q));
                odd = dot_add(odd, bit[q + 1], _mm512_load_si512(hi + 64 * q + 64));
            }
            __m512i sum_hi = _mm512_load_si512(x[i]->sum_hi + TERN_HEAD_LANES * g);
            __m512 minus = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), sum_hi));
            sum[i] = add_twice(sum[i], c, _mm512_add_epi32(even, odd), minus);
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) out[i] = _mm512_reduce_add_ps(sum[i]);
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

const tern_head_kernels tern_head_kernels_avx512 = {"avx512", quantize, screen, screen_hi, refine};
