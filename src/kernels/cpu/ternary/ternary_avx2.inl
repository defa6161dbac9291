// Ternary codes in registers of AVX2, whichever instruction multiplies them.
#include <immintrin.h>

#include "kernels/cpu/ternary/ternary_kernels.h"

enum { UNIT = 32, ROWS = 16, DEPTH = 4 };

typedef __m256i bytes, unit_sums, sums;

typedef struct codes {
    bytes c0, c1, c2, c3, c4;
} codes;

TERN_INLINE bytes load_bytes(const void *p) { return _mm256_loadu_si256(p); }
TERN_INLINE void store_bytes(void *p, bytes b) { _mm256_storeu_si256(p, b); }

TERN_INLINE codes unpack_2bit(bytes b) {
    const bytes three = _mm256_set1_epi8(3);
    return (codes){_mm256_and_si256(_mm256_srli_epi16(b, 6), three),
                   _mm256_and_si256(_mm256_srli_epi16(b, 4), three),
                   _mm256_and_si256(_mm256_srli_epi16(b, 2), three), _mm256_and_si256(b, three),
                   _mm256_setzero_si256()};
}

// 1 + the number of the thresholds 85 and 170 that v reaches. vpavgb rounds up; as an average of
// complements it rounds down: with u = 255 - v, avg(v, avg(v, 255)) = 255 - floor(3 u / 4), whose
// upper two bits are 3 - floor(3 u / 256).
TERN_INLINE bytes t5_code(bytes v) {
    bytes a = _mm256_avg_epu8(v, _mm256_avg_epu8(v, _mm256_set1_epi8(-1)));
    return _mm256_and_si256(_mm256_srli_epi16(a, 6), _mm256_set1_epi8(3));
}

TERN_INLINE bytes t5_next(bytes v) { // 3 v + 2
    return _mm256_add_epi8(_mm256_add_epi8(v, v), _mm256_add_epi8(v, _mm256_set1_epi8(2)));
}

TERN_INLINE codes unpack_t5(bytes b) {
    codes c;
    c.c0 = t5_code(b);
    bytes twice = _mm256_add_epi8(b, b); // 3 b + 2 + code, and c0 is code + 1
    bytes v =
        _mm256_add_epi8(_mm256_add_epi8(b, twice), _mm256_add_epi8(c.c0, _mm256_set1_epi8(1)));
    c.c1 = t5_code(v);
    c.c2 = t5_code(v = t5_next(v));
    c.c3 = t5_code(v = t5_next(v));
    c.c4 = t5_code(t5_next(v));
    return c;
}

TERN_INLINE unit_sums no_units(void) { return _mm256_setzero_si256(); }
TERN_INLINE sums no_sums(void) { return _mm256_setzero_si256(); }

TERN_INLINE int32_t add_up(sums s) {
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xB1)));
}

// 8 rows of 8 dwords.
TERN_INLINE void transpose(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step) {
    __m256i v[8], a[8];
#pragma GCC unroll 8
    for (size_t r = 0; r < 8; r++) v[r] = load_bytes(from + r * from_step);
#pragma GCC unroll 4
    for (size_t r = 0; r < 8; r += 2) {
        a[r] = _mm256_unpacklo_epi32(v[r], v[r + 1]);
        a[r + 1] = _mm256_unpackhi_epi32(v[r], v[r + 1]);
    }
#pragma GCC unroll 2
    for (size_t r = 0; r < 8; r += 4) { // v[r + k]: dwords k and 4 + k of rows r..r + 3
        v[r] = _mm256_unpacklo_epi64(a[r], a[r + 2]);
        v[r + 1] = _mm256_unpackhi_epi64(a[r], a[r + 2]);
        v[r + 2] = _mm256_unpacklo_epi64(a[r + 1], a[r + 3]);
        v[r + 3] = _mm256_unpackhi_epi64(a[r + 1], a[r + 3]);
    }
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
        store_bytes(to + k * to_step, _mm256_permute2x128_si256(v[k], v[4 + k], 0x20));
        store_bytes(to + (4 + k) * to_step, _mm256_permute2x128_si256(v[k], v[4 + k], 0x31));
    }
}

TERN_INLINE __m256i broadcast4(const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}

// The accumulator stays in its register: gcc 12 would also write it to memory in every step.
#define KEEP(a) __asm__("" : "+x"(a))
#define USE(a)  __asm__ volatile("" ::"x"(a)) // as far as the compiler knows

#define FACTOR bytes // of ternary_peak.inl
#define ONES   _mm256_set1_epi8(1)
