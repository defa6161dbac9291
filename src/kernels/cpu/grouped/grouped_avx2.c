// Products with codes in groups for AVX2. vpmaddubsw adds two neighbouring products to an int16: at
// most 768 in size, 16 times in a group.
#include <stdbool.h>
#include "kernels/cpu/vec_avx2.h"

#define KERNELS tern_grouped_kernels_avx2
#define NAME    "avx2"
#define TOKENS_ 4
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
static inline sums dot_add(sums s, codes c, const int8_t *x) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    s = _mm256_add_epi16(s, _mm256_maddubs_epi16(c, _mm256_set1_epi32(four)));
    __asm__("" : "+x"(s)); // it stays in its register: gcc 12 would also write it to memory
    return s;
}
static inline void store_sums(int32_t *to, sums s) {
    _mm256_storeu_si256((__m256i *)to, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
}

// Codes of up to 6 bits are unsigned factors; those of 8, taken as signed numbers, give their sign
// to the activation: neither sum of two products is greater than an int16.
typedef __m256i sums_32;
enum { WIDE_BIAS = 128 };
static inline sums_32 no_sums_32(void) { return _mm256_setzero_si256(); }
static inline sums_32 add_products(sums_32 s, codes c, const int8_t *x, bool is_big) {
    int32_t four;
    __builtin_memcpy(&four, x, 4);
    __m256i q = _mm256_set1_epi32(four);
    if (is_big) {
        __m256i w = _mm256_xor_si256(c, _mm256_set1_epi8(-128));
        q = _mm256_sign_epi8(q, w);
        c = _mm256_abs_epi8(w);
    }
    __m256i pairs = _mm256_maddubs_epi16(c, q);
    return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline void store_sums_32(int32_t *to, sums_32 s) { _mm256_storeu_si256((__m256i *)to, s); }
static inline void look_up(uint8_t *p, const uint8_t *table) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    for (int i = 0; i < 64; i += 32) {
        __m256i *at = (__m256i *)(p + i);
        _mm256_storeu_si256(at, _mm256_shuffle_epi8(t, _mm256_loadu_si256(at)));
    }
}

#include "kernels/cpu/grouped/grouped_narrow.inl"
