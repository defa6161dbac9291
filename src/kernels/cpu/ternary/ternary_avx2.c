// Ternary kernels for AVX2.
//
// vpmaddubsw multiplies unsigned codes with signed activations and adds two neighbouring products
// to an int16: at most 2 * 3 * 128 = 768 in size, so that 42 of them fit. They are added up as
// int16 and widened in time.
#include "kernels/cpu/ternary/ternary_avx2.inl"

#define KERNELS tern_ternary_kernels_avx2
#define NAME    "avx2"

enum { TOKENS = 4 };
enum { GEMV_TOKENS_2BIT = 64, GEMV_TOKENS_T5 = 8 };

TERN_INLINE unit_sums dot_add(unit_sums u, bytes c, const int8_t *x) {
    return _mm256_add_epi16(u, _mm256_maddubs_epi16(c, load_bytes(x)));
}

TERN_INLINE __m256i widen(unit_sums u) { return _mm256_madd_epi16(u, _mm256_set1_epi16(1)); }

TERN_INLINE sums add_units(sums s, unit_sums u) { return _mm256_add_epi32(s, widen(u)); }

TERN_INLINE void widen_into(int32_t *acc, __m256i a) {
    __m256i *to = (__m256i *)acc;
    *to = _mm256_add_epi32(*to, widen(a));
}

// Sums of 16 rows and 4 tokens; int16 sums live in registers for 40 steps.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define EACH(X)    X(0) X(1) X(2) X(3)
#define DECLARE(t) __m256i a##t = _mm256_setzero_si256(), b##t = a##t;
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        __m256i q = broadcast4(x + 4 * (t));                                                       \
        a##t = _mm256_add_epi16(a##t, _mm256_maddubs_epi16(wa, q));                                \
        b##t = _mm256_add_epi16(b##t, _mm256_maddubs_epi16(wb, q));                                \
        KEEP(a##t);                                                                                \
        KEEP(b##t);                                                                                \
    }
#define WIDEN(t)                                                                                   \
    if ((t) < n_tokens) widen_into(acc[t], a##t), widen_into(acc[t] + 8, b##t);
    while (steps) {
        size_t n = tern_min_size(steps, 40);
        EACH(DECLARE)
        for (size_t i = 0; i < n; i++, w += 4 * ROWS, x += 4 * TOKENS) {
            __m256i wa = load_bytes(w), wb = load_bytes(w + 32);
            EACH(MULTIPLY)
        }
        EACH(WIDEN)
        steps -= n;
    }
}

#define ADD_PRODUCT(s, w, q) _mm256_add_epi16(s, _mm256_maddubs_epi16(w, q))
enum { PEAK_LOOPS = 1 << 13, PEAK_MACS = 8 * 32 };
#include "kernels/cpu/ternary/ternary_peak.inl"

#undef DECLARE
#undef MULTIPLY
#include "kernels/cpu/ternary/ternary_narrow.inl"
