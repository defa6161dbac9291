// The head's inner loops for ARM: see head_narrow.inl. The including file defines dots, no_dots,
// dot_add, dwords, HI_ROWS, KERNELS and NAME. Sums have the scalar kernels' bits: its 16 lanes stay
// apart, and are added in its order.
#include <string.h>
#include "kernels/cpu/head/head_kernels.h"

// One version is enough: it has no products of bytes.
void tern_head_quantize_neon(tern_head_row *row, float *w, size_t n);
#define QUANTIZE tern_head_quantize_neon
enum { SUMS = 4 };
typedef uint8x16_t bytes;
typedef int32x4_t ints;
typedef float32x4_t floats;

INLINE bytes load(const void *p) { return vld1q_u8(p); }
INLINE bytes even_codes(bytes b) { return vandq_u8(b, vdupq_n_u8(15)); }
INLINE bytes odd_codes(bytes b) { return vshrq_n_u8(b, 4); }
INLINE bytes bits(bytes b, uint32_t q) {
    return vandq_u8(vshlq_u8(b, vdupq_n_s8((int8_t) - (int)q)), vdupq_n_u8(1));
}

INLINE ints screen_dot(ints hi, ints lo, const int32_t *sum_x) {
    return vsubq_s32(vaddq_s32(vshlq_n_s32(hi, 8), vshlq_n_s32(lo, 1)), vld1q_s32(sum_x));
}
INLINE ints hi_dot(ints d, const int32_t *sum_hi) {
    return vmlsq_n_s32(vshlq_n_s32(d, 1), vld1q_s32(sum_hi), 15);
}
INLINE ints bit_dot(ints d, const int32_t *sum_hi) {
    return vsubq_s32(vshlq_n_s32(d, 1), vld1q_s32(sum_hi));
}

INLINE floats no_floats(void) { return vdupq_n_f32(0); }
INLINE floats add_scaled(floats sum, const uint8_t *scales, ints dot) {
    uint32_t four;
    memcpy(&four, scales, 4);
    uint16x8_t c = vmovl_u8(vcreate_u8(four));
    floats scale = vcvtq_f32_u32(vmovl_u16(vget_low_u16(c)));
    return vaddq_f32(sum, vmulq_f32(scale, vcvtq_f32_s32(dot)));
}

// Four rows at once: their lanes 0, then their lanes 1 and so on.
INLINE floats add_lanes(floats sum, floats a, floats b, floats c, floats d) {
    float32x4x2_t ac = vzipq_f32(a, c), bd = vzipq_f32(b, d); // a0 c0 a1 c1, a2 c2 a3 c3
    float32x4x2_t first = vzipq_f32(ac.val[0], bd.val[0]), last = vzipq_f32(ac.val[1], bd.val[1]);
    sum = vaddq_f32(vaddq_f32(sum, first.val[0]), first.val[1]);
    return vaddq_f32(vaddq_f32(sum, last.val[0]), last.val[1]);
}
#define ROW_OR_NONE(sum, q, r, n) ((r) < (n) ? (sum)[q][(r) < (n) ? (r) : 0] : no_floats())
#define add_up(out, sum, n)                                                                        \
    do {                                                                                           \
        float all[4];                                                                              \
        floats total = no_floats();                                                                \
        _Pragma("GCC unroll 4") for (int k = 0; k < SUMS; k++) total =                             \
            add_lanes(total, ROW_OR_NONE(sum, k, 0, n), ROW_OR_NONE(sum, k, 1, n),                 \
                      ROW_OR_NONE(sum, k, 2, n), ROW_OR_NONE(sum, k, 3, n));                       \
        vst1q_f32(all, total);                                                                     \
        memcpy(out, all, (n) * sizeof *all);                                                       \
    } while (0)

#include "kernels/cpu/head/head_narrow.inl"
