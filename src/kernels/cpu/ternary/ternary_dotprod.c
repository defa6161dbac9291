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

// ---- Few tokens --------------------------------------------------------------------------------

// Each chain of sums has codes of one place in a byte, so that no product waits for the one before.
// Two-bit codes stay where they are in their byte: their products are 16 and 4 times too great,
// which an int32 bears for 2^22 columns, and which is taken off once a row.
typedef struct chains {
    int32x4_t s[5];
} chains;

TERN_INLINE codes codes_in_place(bytes b) {
    return (codes){vshrq_n_u8(b, 6), vandq_u8(b, vdupq_n_u8(48)), vandq_u8(b, vdupq_n_u8(12)),
                   vandq_u8(b, vdupq_n_u8(3)), vdupq_n_u8(0)};
}

TERN_INLINE void add_to_chains(chains *to, codes c, const int8_t *x, size_t step, bool is_2bit) {
    to->s[0] = dot_add(to->s[0], c.c0, x);
    to->s[1] = dot_add(to->s[1], c.c1, x + step);
    to->s[2] = dot_add(to->s[2], c.c2, x + 2 * step);
    to->s[3] = dot_add(to->s[3], c.c3, x + 3 * step);
    if (!is_2bit) to->s[4] = dot_add(to->s[4], c.c4, x + 4 * step);
}

TERN_INLINE int32_t add_up_chains(const chains *c, bool is_2bit) {
    int32x4_t s1 = is_2bit ? vshrq_n_s32(c->s[1], 4) : c->s[1];
    int32x4_t s2 = is_2bit ? vshrq_n_s32(c->s[2], 2) : c->s[2];
    int32x4_t sum = vaddq_s32(vaddq_s32(c->s[0], s1), vaddq_s32(s2, c->s[3]));
    return add_up(is_2bit ? sum : vaddq_s32(sum, c->s[4]));
}

// A piece of a row (32 bytes of two-bit codes) times n tokens, a constant, from x.q on.
TERN_INLINE void add_piece(chains *c, const uint8_t *row, size_t n_bytes, const tern_i8_rows x,
                           bool is_2bit, int n) {
#pragma GCC unroll 2
    for (size_t at = 0; at < n_bytes; at += UNIT) {
        bytes b = load_bytes(row + at);
        codes k = is_2bit ? codes_in_place(b) : unpack_t5(b);
#pragma GCC unroll 4
        for (int t = 0; t < n; t++)
            add_to_chains(&c[t], k, x.q + (size_t)t * x.stride + at, n_bytes, is_2bit);
    }
}

// dot_row for up to CHAINED tokens: more do not wait for each other.
TERN_INLINE void dot_chains(int32_t *acc, const uint8_t *row, size_t n_bytes, const tern_i8_rows x,
                            bool is_2bit, int n) {
    const size_t most = is_2bit ? TERN_I2S_BYTES : TERN_T5_BYTES, n_codes = is_2bit ? 4 : 5;
    chains c[4];
#pragma GCC unroll 20
    for (int i = 0; i < 5 * n; i++) c[i / 5].s[i % 5] = vdupq_n_s32(0);
    tern_i8_rows at = x;
    for (const uint8_t *end = row + n_bytes; row < end;) {
        const size_t piece = is_2bit ? most : tern_min_size(most, (size_t)(end - row));
        __builtin_prefetch(row + TERN_AHEAD, 0, 2); // to the second-level cache
        add_piece(c, row, piece, at, is_2bit, n);
        row += piece, at.q += n_codes * piece;
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) acc[t] = add_up_chains(&c[t], is_2bit);
}
#define CHAINED(is_2bit) ((is_2bit) ? 4 : 2)

// ---- Prompts -----------------------------------------------------------------------------------

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

#define FACTOR      int8x16_t
#define ONES        vdupq_n_s8(1)
#define ADD_PRODUCT vdotq_s32
enum { PEAK_LOOPS = 1 << 11, PEAK_MACS = 8 * 16 };
#include "kernels/cpu/ternary/ternary_peak.inl"

#undef DECLARE
#undef MULTIPLY
#undef STORE
#include "kernels/cpu/ternary/ternary_narrow.inl"
