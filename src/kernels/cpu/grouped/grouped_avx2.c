// Products with codes in groups for AVX2. vpmaddubsw adds two neighbouring products to an int16: at
// most 768 in size, 16 times in a group.
#include "kernels/cpu/vec_avx2.h"

#define KERNELS tern_grouped_kernels_avx2
#define NAME "avx2"
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

#include "kernels/cpu/grouped/grouped_narrow.inl"
