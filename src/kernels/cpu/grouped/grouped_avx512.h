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

#endif
