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

static float refine(const uint8_t *bits, const uint8_t *scales, const tern_head_vector *x,
                    size_t n_groups) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512 sum = _mm512_setzero_ps();
    for (size_t g = 0; g < n_groups; g++) {
        __m512i v = _mm512_load_si512(bits + 64 * g);
        __m512i even = _mm512_setzero_si512(), odd = even;
        const int8_t *hi = x->hi + TERN_HEAD_GROUP * g;
#pragma GCC unroll 4
        for (int q = 0; q < 8; q += 2) {
            __m512i b0 = _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)q), one);
            __m512i b1 = _mm512_and_si512(_mm512_srli_epi16(v, (unsigned)q + 1), one);
            even = _mm512_dpbusd_epi32(even, b0, _mm512_load_si512(hi + 64 * q));
            odd = _mm512_dpbusd_epi32(odd, b1, _mm512_load_si512(hi + 64 * q + 64));
        }
        __m512i dot = _mm512_slli_epi32(_mm512_add_epi32(even, odd), 1);
        dot = _mm512_sub_epi32(dot, _mm512_load_si512(x->sum_hi + TERN_HEAD_LANES * g));
        sum = add_scaled(sum, scales + TERN_HEAD_SCALE_STEP * g, dot);
    }
    return _mm512_reduce_add_ps(sum);
}

const tern_head_kernels tern_head_kernels_avx512 = {"avx512", quantize, screen, refine};
