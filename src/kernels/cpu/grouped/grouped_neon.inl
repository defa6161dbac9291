// Codes in registers of NEON.
#include <stdbool.h>
#include "kernels/cpu/vec_neon.h"

typedef uint8x16_t codes;

static inline codes load_codes(const uint8_t *p) { return vld1q_u8(p); }
static inline codes two_bits(codes c, int s) {
    return vandq_u8(vshlq_u8(c, vdupq_n_s8((int8_t)(-2 * s))), vdupq_n_u8(3));
}
static inline codes one_bit(codes c, int s) {
    return vandq_u8(vshlq_u8(c, vdupq_n_s8((int8_t)(1 - s))), vdupq_n_u8(2));
}
static inline int8x16_t broadcast4(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

typedef int32x4_t sums_32; // of wide codes; those of 8 bits are taken as numbers with a sign
enum { WIDE_BIAS = 128 };
static inline sums_32 no_sums_32(void) { return vdupq_n_s32(0); }
static inline int8x16_t wide_factors(codes c, bool is_big) {
    return vreinterpretq_s8_u8(is_big ? veorq_u8(c, vdupq_n_u8(128)) : c);
}
static inline void store_sums_32(int32_t *to, sums_32 s) { vst1q_s32(to, s); }
static inline void look_up(uint8_t *p, const uint8_t *table) {
    for (int i = 0; i < 64; i += 16) vst1q_u8(p + i, vqtbl1q_u8(vld1q_u8(table), vld1q_u8(p + i)));
}
