// Products with codes in groups for AVX2. vpmaddubsw adds two neighbouring products to an int16: at
// most 768 in size, 16 times in a group.
#define TOKENS_ 4
#include "kernels/cpu/grouped/grouped_avx2.inl"

#define KERNELS tern_grouped_kernels_avx2
#define NAME    "avx2"

static inline sums dot_add(sums s, codes c, const int8_t *x) {
    s = _mm256_add_epi16(s, _mm256_maddubs_epi16(c, broadcast4(x)));
    __asm__("" : "+x"(s)); // it stays in its register: gcc 12 would also write it to memory
    return s;
}
static inline void store_sums(int32_t *to, sums s) {
    _mm256_storeu_si256((__m256i *)to, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
}

// Codes of up to 6 bits are unsigned factors; those of 8, taken as signed numbers, give their sign
// to the activation: neither sum of two products is greater than an int16.
enum { WIDE_BIAS = 128 };
static inline sums_32 add_products(sums_32 s, codes c, const int8_t *x, bool is_big) {
    __m256i q = broadcast4(x);
    if (is_big) {
        __m256i w = _mm256_xor_si256(c, _mm256_set1_epi8(-128));
        q = _mm256_sign_epi8(q, w);
        c = _mm256_abs_epi8(w);
    }
    __m256i pairs = _mm256_maddubs_epi16(c, q);
    return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#include "kernels/cpu/grouped/grouped_narrow.inl"
