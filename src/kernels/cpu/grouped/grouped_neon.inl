// Codes in registers of NEON.
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
