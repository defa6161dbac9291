// Ternary kernels for every 64-bit ARM. Products of codes up to 3 and activations are at most 384
// in size: 85 of them fit an int16, and they are widened in time.
#include "kernels/cpu/ternary/ternary_neon.inl"

#define KERNELS tern_ternary_kernels_neon
#define NAME    "neon"

typedef int16x8_t unit_sums;

TERN_INLINE unit_sums no_units(void) { return vdupq_n_s16(0); }

TERN_INLINE unit_sums dot_add(unit_sums u, bytes c, const int8_t *x) {
    int8x16_t q = vld1q_s8(x), w = vreinterpretq_s8_u8(c);
    u = vmlal_s8(u, vget_low_s8(w), vget_low_s8(q));
    return vmlal_high_s8(u, w, q);
}

TERN_INLINE sums add_units(sums s, unit_sums u) { return vpadalq_s16(s, u); }

// Sums of 8 rows and 4 tokens. Four products of a row stay apart in a register of int16, two rows
// to a register, for 80 steps.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define DECLARE(t) int16x8_t a##t = vdupq_n_s16(0), b##t = a##t, c##t = a##t, d##t = a##t;
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        int8x16_t q = vreinterpretq_s8_s32(vdupq_n_s32(vgetq_lane_s32(tokens, t)));                \
        a##t = vmlal_s8(a##t, vget_low_s8(wa), vget_low_s8(q));                                    \
        b##t = vmlal_high_s8(b##t, wa, q);                                                         \
        c##t = vmlal_s8(c##t, vget_low_s8(wb), vget_low_s8(q));                                    \
        d##t = vmlal_high_s8(d##t, wb, q);                                                         \
        KEEP(a##t);                                                                                \
        KEEP(b##t);                                                                                \
        KEEP(c##t);                                                                                \
        KEEP(d##t);                                                                                \
    }
#define WIDEN(t)                                                                                   \
    if ((t) < n_tokens) {                                                                          \
        int32x4_t ab = vpaddq_s32(vpaddlq_s16(a##t), vpaddlq_s16(b##t));                           \
        int32x4_t cd = vpaddq_s32(vpaddlq_s16(c##t), vpaddlq_s16(d##t));                           \
        vst1q_s32(acc[t], vaddq_s32(vld1q_s32(acc[t]), ab));                                       \
        vst1q_s32(acc[t] + 4, vaddq_s32(vld1q_s32(acc[t] + 4), cd));                               \
    }
    while (steps) {
        size_t n = tern_min_size(steps, 80);
        EACH(DECLARE)
        for (size_t i = 0; i < n; i++, w += 4 * ROWS, x += 4 * TOKENS) {
            int8x16_t wa = load_codes(w), wb = load_codes(w + 16);
            int32x4_t tokens = vreinterpretq_s32_s8(vld1q_s8(x));
            EACH(MULTIPLY)
        }
        EACH(WIDEN)
        steps -= n;
    }
}

static uint64_t peak_loop(void) {
    enum { LOOPS = 1 << 11 };
    int8x16_t w = vdupq_n_s8(1), q = w;
#define ADD(sum, half)                                                                             \
    KEEP(q); /* or one product would do for all */                                                 \
    sum = vmlal_s8(sum, half(w), half(q));                                                         \
    KEEP(sum);
#define ADD_FOUR(t)                                                                                \
    ADD(a##t, vget_low_s8)                                                                         \
    ADD(b##t, vget_high_s8)                                                                        \
    ADD(c##t, vget_low_s8)                                                                         \
    ADD(d##t, vget_high_s8)
    EACH(DECLARE)
    for (int i = 0; i < LOOPS; i++) {
        EACH(ADD_FOUR)
    }
#define USE_FOUR(t)                                                                                \
    USE(a##t);                                                                                     \
    USE(b##t);                                                                                     \
    USE(c##t);                                                                                     \
    USE(d##t);
    EACH(USE_FOUR)
    return (uint64_t)LOOPS * 16 * 8;
}

#undef DECLARE
#undef MULTIPLY
#include "kernels/cpu/ternary/ternary_narrow.inl"
