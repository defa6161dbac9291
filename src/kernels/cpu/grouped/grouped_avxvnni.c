// Products with codes in groups for AVX-VNNI: see ternary/ternary_avxvnni.c.
#define TOKENS_ 6
#include "kernels/cpu/grouped/grouped_avx2.inl"

#define KERNELS tern_grouped_kernels_avxvnni
#define NAME    "avxvnni"

static inline sums dot_add(sums s, codes c, const int8_t *x) {
    s = _mm256_dpbusd_avx_epi32(s, c, broadcast4(x));
    __asm__("" : "+x"(s)); // it stays in its register: gcc 12 would also write it to memory
    return s;
}
static inline void store_sums(int32_t *to, sums s) { _mm256_storeu_si256((__m256i *)to, s); }

enum { WIDE_BIAS = 0 };
static inline sums_32 add_products(sums_32 s, codes c, const int8_t *x, bool is_big) {
    (void)is_big;
    return dot_add(s, c, x);
}

#include "kernels/cpu/grouped/grouped_narrow.inl"
