#include <immintrin.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 4 }; // share each load of x

typedef struct block_sums {
    __m512i hi[ROWS], lo[ROWS];
} block_sums;

// 128 weights of each row.
INLINE void screen_vector(block_sums *s, const uint8_t *const *row, const tern_head_vector *x,
                          size_t j, int n_rows) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i hi0 = _mm512_load_si512(x->hi + 128 * j), hi1 = _mm512_load_si512(x->hi + 128 * j + 64);
    __m512i lo0 = _mm512_load_si512(x->lo + 128 * j), lo1 = _mm512_load_si512(x->lo + 128 * j + 64);
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        __m512i v = _mm512_load_si512(row[r] + 64 * j);
        __m512i even = _mm512_and_si512(v, nibble);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        s->hi[r] = _mm512_dpbusd_epi32(s->hi[r], even, hi0);
        s->lo[r] = _mm512_dpbusd_epi32(s->lo[r], even, lo0);
        s->hi[r] = _mm512_dpbusd_epi32(s->hi[r], odd, hi1);
        s->lo[r] = _mm512_dpbusd_epi32(s->lo[r], odd, lo1);
    }
}

INLINE __m512 add_scaled(__m512 sum, const uint8_t *scales, __m512i dot) {
    __m512i c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)scales));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(c), _mm512_cvtepi32_ps(dot), sum);
}

INLINE void screen_rows(float *out, const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors, int n_rows) {
    size_t n_groups = (n_vectors + 3) / 4;
    const uint8_t *row[ROWS];
    __m512 sum[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        row[r] = codes + 64 * n_vectors * (size_t)r;
        sum[r] = _mm512_setzero_ps();
    }
    for (size_t g = 0; g < n_groups; g++) {
        block_sums s;
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) s.hi[r] = s.lo[r] = _mm512_setzero_si512();
        if (4 * g + 4 <= n_vectors) {
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++) screen_vector(&s, row, x, 4 * g + j, n_rows);
        } else {
            for (size_t j = 4 * g; j < n_vectors; j++) screen_vector(&s, row, x, j, n_rows);
        }
        __m512i sum_x = _mm512_load_si512(x->sum_x + 16 * g);
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(s.hi[r], 8),
                                           _mm512_slli_epi32(s.lo[r], 1));
            sum[r] = add_scaled(sum[r], scales + 16 * (n_groups * (size_t)r + g),
                                _mm512_sub_epi32(dot, sum_x));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) out[r] = _mm512_reduce_add_ps(sum[r]);
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_rows, size_t n_vectors) {
    size_t r = 0, row_bytes = 64 * n_vectors, row_scales = 16 * ((n_vectors + 3) / 4);
    for (; r + ROWS <= n_rows; r += ROWS)
        screen_rows(out + r, codes + r * row_bytes, scales + r * row_scales, x, n_vectors, ROWS);
    for (; r < n_rows; r++)
        screen_rows(out + r, codes + r * row_bytes, scales + r * row_scales, x, n_vectors, 1);
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
        dot = _mm512_sub_epi32(dot, _mm512_load_si512(x->sum_hi + 16 * g));
        sum = add_scaled(sum, scales + 16 * g, dot);
    }
    return _mm512_reduce_add_ps(sum);
}

const tern_head_kernels tern_head_kernels_avx512 = {"avx512", quantize, screen, refine};
