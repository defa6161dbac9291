// Ternary kernels for ARM processors with dot products (ARMv8.2): sdot adds four neighbouring
// products to each of four int32 sums.
#include "kernels/cpu/ternary/ternary_neon.inl"

#define KERNELS tern_ternary_kernels_dotprod
#define NAME    "dotprod"

typedef int32x4_t unit_sums;

TERN_INLINE unit_sums no_units(void) { return vdupq_n_s32(0); }

TERN_INLINE unit_sums dot_add(unit_sums u, bytes c, const int8_t *x) {
    return vdotq_s32(u, vreinterpretq_s8_u8(c), vld1q_s8(x));
}

TERN_INLINE sums add_units(sums s, unit_sums u) { return vaddq_s32(s, u); }

#define DECLARE(t) int32x4_t a##t = vdupq_n_s32(0), b##t = a##t;

// Sums of 8 rows and 4 tokens.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        a##t = vdotq_laneq_s32(a##t, wa, tokens, t);                                               \
        b##t = vdotq_laneq_s32(b##t, wb, tokens, t);                                               \
        KEEP(a##t);                                                                                \
        KEEP(b##t);                                                                                \
    }
#define STORE(t) vst1q_s32(acc[t], a##t), vst1q_s32(acc[t] + 4, b##t);
    EACH(DECLARE)
    for (; steps; steps--, w += 4 * ROWS, x += 4 * TOKENS) {
        int8x16_t wa = load_codes(w), wb = load_codes(w + 16), tokens = vld1q_s8(x);
        EACH(MULTIPLY)
    }
    EACH(STORE)
}

static uint64_t peak_loop(void) {
    enum { LOOPS = 1 << 11 };
    int8x16_t w = vdupq_n_s8(1), q = w;
#define ADD(sum)                                                                                   \
    KEEP(q); /* or one product would do for all */                                                 \
    sum = vdotq_s32(sum, w, q);                                                                    \
    KEEP(sum);
#define ADD_BOTH(t)                                                                                \
    ADD(a##t)                                                                                      \
    ADD(b##t)
    EACH(DECLARE)
    for (int i = 0; i < LOOPS; i++) {
        EACH(ADD_BOTH)
    }
#define USE_BOTH(t)                                                                                \
    USE(a##t);                                                                                     \
    USE(b##t);
    EACH(USE_BOTH)
    return (uint64_t)LOOPS * 8 * 16;
}

#undef DECLARE
#undef MULTIPLY
#undef STORE
#include "kernels/cpu/ternary/ternary_narrow.inl"
