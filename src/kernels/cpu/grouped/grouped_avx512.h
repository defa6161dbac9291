// AVX-512 (VNNI): what products with narrow and with wide codes share. Only for files with that
// suffix.
#ifndef TERN_KERNELS_CPU_GROUPED_GROUPED_AVX512_H
#define TERN_KERNELS_CPU_GROUPED_GROUPED_AVX512_H

#include <immintrin.h>
#include <string.h>
#include "kernels/cpu/grouped/grouped_kernels.h"

// In assembly for the reason given in ternary/ternary_avx512.h.
GROUPED_INLINE __m512i dot_add(__m512i acc, __m512i codes, __m512i q) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(q));
    return acc;
}

GROUPED_INLINE __m512i broadcast4(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}

GROUPED_INLINE __mmask16 rows_left(size_t row, size_t last_row) {
    size_t n = row < last_row ? last_row - row : 0;
    return (__mmask16)(n >= 16 ? 0xFFFF : (1u << n) - 1);
}

GROUPED_INLINE void put_16(float *y, __m512 sum, __mmask16 mask, bool accumulate) {
    if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
    _mm512_mask_storeu_ps(y, mask, sum);
}

// A stream's lines come to the second-level cache AHEAD bytes ahead. None is left out: a front,
// then units.
enum { AHEAD = 12288 };
GROUPED_INLINE void fetch_line(const uint8_t *p) {
    _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T1);
}
GROUPED_INLINE void fetch(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) fetch_line(p + i);
}

// ---- Codes of a unit ---------------------------------------------------------------------------

// How codes lie in a unit: of 4, 5, 6 or 8 bits, of 4 that index a table, or of 1 or 2.
typedef enum code_kind {
    CODES_4,
    CODES_TABLE,
    CODES_5,
    CODES_6,
    CODES_8,
    CODES_1,
    CODES_2,
} code_kind;

GROUPED_INLINE code_kind kind_of(const tern_grouped_matrix *w) {
    return w->has_table   ? CODES_TABLE
           : w->bits == 1 ? CODES_1
           : w->bits == 2 ? CODES_2
           : w->bits == 4 ? CODES_4
           : w->bits == 5 ? CODES_5
           : w->bits == 6 ? CODES_6
                          : CODES_8;
}

// (a & 15) | (b & mask)
GROUPED_INLINE __m512i join(__m512i a, __m512i b, int mask) {
    a = _mm512_and_si512(a, _mm512_set1_epi8(15));
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8((char)mask), 0xF8);
}

// Bytes shifted up (minus: down) by a constant; bits of neighbours come in.
GROUPED_INLINE __m512i shift(__m512i v, int up) {
    return up > 0   ? _mm512_slli_epi16(v, (unsigned)up)
           : up < 0 ? _mm512_srli_epi16(v, (unsigned)-up)
                    : v;
}

// The codes of step i, a constant: four columns of 16 rows.
GROUPED_INLINE __m512i step_codes(const uint8_t *codes, int i, code_kind kind, __m512i table) {
    if (kind == CODES_8) return _mm512_loadu_si512(codes + 64 * i);
    if (kind == CODES_2) {
        __m512i v = shift(_mm512_loadu_si512(codes + 64 * (i / 4)), -2 * (i % 4));
        return _mm512_and_si512(v, _mm512_set1_epi8(3));
    }
    if (kind == CODES_1) { // taken twice
        __m512i v = shift(_mm512_loadu_si512(codes + 64 * (i / 8)), 1 - i % 8);
        return _mm512_and_si512(v, _mm512_set1_epi8(2));
    }
    const uint8_t *high = codes + WIDE_UNPACKED / 2;
    __m512i v = shift(_mm512_loadu_si512(codes + 64 * (i / 2)), i % 2 * -4);
    if (kind == CODES_5)
        return join(v, shift(_mm512_loadu_si512(high + 64 * (i / 8)), 4 - i % 8), 16);
    if (kind == CODES_6)
        return join(v, shift(_mm512_loadu_si512(high + 64 * (i / 4)), 4 - 2 * (i % 4)), 48);
    v = _mm512_and_si512(v, _mm512_set1_epi8(15));
    return kind == CODES_TABLE ? _mm512_shuffle_epi8(table, v) : v;
}

GROUPED_INLINE __m512i load_table(const tern_grouped_matrix *w) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)w->table));
}

#endif
