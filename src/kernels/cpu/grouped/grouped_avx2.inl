// Codes in registers of AVX2, whichever instruction multiplies them.
#include <stdbool.h>
#include "kernels/cpu/vec_avx2.h"

enum { VECTORS = 2, TOKENS = TOKENS_ };

typedef __m256i codes, sums;

static inline codes load_codes(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
static inline codes two_bits(codes c, int s) {
    return _mm256_and_si256(_mm256_srli_epi16(c, 2 * s), _mm256_set1_epi8(3));
}
static inline codes one_bit(codes c, int s) {
    codes twice = s == 0 ? _mm256_add_epi8(c, c) : _mm256_srli_epi16(c, s - 1);
    return _mm256_and_si256(twice, _mm256_set1_epi8(2));
}
static inline sums no_sums(void) { return _mm256_setzero_si256(); }
static inline __m256i broadcast4(const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
}

typedef __m256i sums_32;
static inline sums_32 no_sums_32(void) { return _mm256_setzero_si256(); }
static inline void store_sums_32(int32_t *to, sums_32 s) { _mm256_storeu_si256((__m256i *)to, s); }
static inline void look_up(uint8_t *p, const uint8_t *table) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    for (int i = 0; i < 64; i += 32) {
        __m256i *at = (__m256i *)(p + i);
        _mm256_storeu_si256(at, _mm256_shuffle_epi8(t, _mm256_loadu_si256(at)));
    }
}
