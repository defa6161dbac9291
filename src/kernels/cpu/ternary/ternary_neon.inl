// Ternary kernels for NEON: unpacking, which the variants with and without dot products share. The
// including file defines `unit_sums`, dot_add and so on, see ternary_narrow.inl.
#include <arm_neon.h>

#include "kernels/cpu/ternary/ternary_kernels.h"

enum { UNIT = 16, ROWS = 8 };

typedef uint8x16_t bytes;
typedef int32x4_t sums;

typedef struct codes {
    bytes c0, c1, c2, c3, c4;
} codes;

TERN_INLINE bytes load_bytes(const void *p) { return vld1q_u8(p); }
TERN_INLINE void store_bytes(void *p, bytes b) { vst1q_u8(p, b); }

TERN_INLINE codes unpack_2bit(bytes b) {
    const bytes three = vdupq_n_u8(3);
    return (codes){vshrq_n_u8(b, 6), vandq_u8(vshrq_n_u8(b, 4), three),
                   vandq_u8(vshrq_n_u8(b, 2), three), vandq_u8(b, three), vdupq_n_u8(0)};
}

// 1 + the number of the thresholds 85 and 170 that v reaches: with u = 255 - v, a rounding average
// of complements, avg(v, avg(v, 255)) = 255 - floor(3 u / 4), whose upper two bits are
// 3 - floor(3 u / 256).
TERN_INLINE bytes t5_code(bytes v) {
    return vshrq_n_u8(vrhaddq_u8(v, vrhaddq_u8(v, vdupq_n_u8(255))), 6);
}

TERN_INLINE bytes t5_next(bytes v, bytes addend) { return vmlaq_u8(addend, v, vdupq_n_u8(3)); }

TERN_INLINE codes unpack_t5(bytes b) {
    const bytes two = vdupq_n_u8(2);
    codes c;
    c.c0 = t5_code(b);
    bytes v = t5_next(b, vaddq_u8(c.c0, vdupq_n_u8(1))); // 3 b + 2 + code, and c0 is code + 1
    c.c1 = t5_code(v);
    c.c2 = t5_code(v = t5_next(v, two));
    c.c3 = t5_code(v = t5_next(v, two));
    c.c4 = t5_code(t5_next(v, two));
    return c;
}

TERN_INLINE sums no_sums(void) { return vdupq_n_s32(0); }
TERN_INLINE int32_t add_up(sums s) { return vaddvq_s32(s); }

// Codes are small enough to count as signed.
TERN_INLINE int8x16_t load_codes(const uint8_t *p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }

// The accumulator stays in its register, and counts as used as far as the compiler knows.
#define KEEP(a) __asm__("" : "+w"(a))
#define USE(a)  __asm__ volatile("" ::"w"(a))
#define EACH(X) X(0) X(1) X(2) X(3)

#ifndef PAIRS
// The limits of gemv are guesses: only emulated processors have run this with many tokens.
enum { TOKENS = 4, DEPTH = 4, GEMV_TOKENS_2BIT = 20, GEMV_TOKENS_T5 = 8 };

// 4 rows of 4 dwords.
TERN_INLINE void transpose(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step) {
    uint32x4_t r0 = vreinterpretq_u32_u8(vld1q_u8(from));
    uint32x4_t r1 = vreinterpretq_u32_u8(vld1q_u8(from + from_step));
    uint32x4_t r2 = vreinterpretq_u32_u8(vld1q_u8(from + 2 * from_step));
    uint32x4_t r3 = vreinterpretq_u32_u8(vld1q_u8(from + 3 * from_step));
    uint64x2_t even01 = vreinterpretq_u64_u32(vtrn1q_u32(r0, r1)); // dwords 0 and 2 of both
    uint64x2_t odd01 = vreinterpretq_u64_u32(vtrn2q_u32(r0, r1));
    uint64x2_t even23 = vreinterpretq_u64_u32(vtrn1q_u32(r2, r3));
    uint64x2_t odd23 = vreinterpretq_u64_u32(vtrn2q_u32(r2, r3));
    vst1q_u8(to, vreinterpretq_u8_u64(vtrn1q_u64(even01, even23)));
    vst1q_u8(to + to_step, vreinterpretq_u8_u64(vtrn1q_u64(odd01, odd23)));
    vst1q_u8(to + 2 * to_step, vreinterpretq_u8_u64(vtrn2q_u64(even01, even23)));
    vst1q_u8(to + 3 * to_step, vreinterpretq_u8_u64(vtrn2q_u64(odd01, odd23)));
}
#endif
