// Ternary kernels for AVX-VNNI, which Intel's processors have that lack AVX-512: vpdpbusd adds four
// neighbouring products to each of eight int32 sums.
#include "kernels/cpu/ternary/ternary_avx2.inl"

#define KERNELS     tern_ternary_kernels_avxvnni
#define NAME        "avxvnni"
#define UNITS_APART // a product waits five clocks for the one before it
#define SIX_TOKENS  // twelve sums, which fit the registers beside two of codes

enum { TOKENS = 6 };
enum { GEMV_TOKENS_2BIT = 24, GEMV_TOKENS_T5 = 11 };

TERN_INLINE unit_sums dot_add(unit_sums u, bytes c, const int8_t *x) {
    return _mm256_dpbusd_avx_epi32(u, c, load_bytes(x));
}

TERN_INLINE sums add_units(sums s, unit_sums u) { return _mm256_add_epi32(s, u); }

#define EACH(X)    X(0) X(1) X(2) X(3) X(4) X(5)
#define DECLARE(t) __m256i a##t = _mm256_setzero_si256(), b##t = a##t;

// Sums of 16 rows and 6 tokens.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        __m256i q = broadcast4(x + 4 * (t));                                                       \
        a##t = _mm256_dpbusd_avx_epi32(a##t, wa, q);                                               \
        b##t = _mm256_dpbusd_avx_epi32(b##t, wb, q);                                               \
        KEEP(a##t);                                                                                \
        KEEP(b##t);                                                                                \
    }
#define STORE(t) store_bytes(acc[t], a##t), store_bytes(acc[t] + 8, b##t);
    EACH(DECLARE)
    for (; steps; steps--, w += 4 * ROWS, x += 4 * TOKENS) {
        __m256i wa = load_bytes(w), wb = load_bytes(w + 32);
        EACH(MULTIPLY)
    }
    EACH(STORE)
}

#define ADD_PRODUCT _mm256_dpbusd_avx_epi32
enum { PEAK_LOOPS = 1 << 13, PEAK_MACS = 12 * 32 };
#include "kernels/cpu/ternary/ternary_peak.inl"

#undef DECLARE
#undef MULTIPLY
#undef STORE
#include "kernels/cpu/ternary/ternary_narrow.inl"
