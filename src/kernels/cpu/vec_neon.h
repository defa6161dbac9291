// The 16-lane vector as four NEON registers (ARMv8.0). What each operation means: vec_scalar.h.
#ifndef TERN_KERNELS_CPU_VEC_NEON_H
#define TERN_KERNELS_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_NAME neon
enum { VEC_MATMUL_TOKENS = 2, VEC_MATMUL_ROWS = 3, VEC_MATVEC_ROWS = 4 };
enum { VEC_TILE_ROWS = 6, VEC_TILE_COLS = 1, VEC_TILE_4_COLS = 1, VEC_TILE_1_COLS = 4 };
enum { VEC_GEMM_ROWS = 6, VEC_GEMM_VECTORS = 1 };
enum { VEC_DELTA_GROUPS = 1 };

typedef struct v16 {
    float32x4_t q0, q1, q2, q3;
} v16;

#define VEC_1(op, a)                                                                               \
    (v16) { op(a.q0), op(a.q1), op(a.q2), op(a.q3) }
#define VEC_2(op, a, b)                                                                            \
    (v16) { op(a.q0, b.q0), op(a.q1, b.q1), op(a.q2, b.q2), op(a.q3, b.q3) }

static inline v16 v16_set1(float x) {
    float32x4_t q = vdupq_n_f32(x);
    return (v16){q, q, q, q};
}
static inline v16 v16_load(const float *p) {
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
static inline v16 v16_load_n(const float *p, size_t n) {
    float padded[16] = {0};
    memcpy(padded, p, n * sizeof *p);
    return v16_load(padded);
}
static inline v16 v16_from_bf16(const void *p) {
    const uint8_t *b = p; // bytes, so that any address will do
    uint16x8_t lo = vreinterpretq_u16_u8(vld1q_u8(b)), hi = vreinterpretq_u16_u8(vld1q_u8(b + 16));
    return (v16){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(lo), 16)),
                 vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(lo), 16)),
                 vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(hi), 16)),
                 vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(hi), 16))};
}
static inline v16 v16_from_f16(const void *p) {
    const uint8_t *b = p;
    float16x8_t lo = vreinterpretq_f16_u8(vld1q_u8(b)), hi = vreinterpretq_f16_u8(vld1q_u8(b + 16));
    return (v16){vcvt_f32_f16(vget_low_f16(lo)), vcvt_f32_f16(vget_high_f16(lo)),
                 vcvt_f32_f16(vget_low_f16(hi)), vcvt_f32_f16(vget_high_f16(hi))};
}
static inline v16 vec_from_bytes(int8x16_t bytes) {
    int16x8_t lo = vmovl_s8(vget_low_s8(bytes)), hi = vmovl_s8(vget_high_s8(bytes));
    return (v16){
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))),
        vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi)))};
}
static inline v16 v16_from_i8(const int8_t *p) { return vec_from_bytes(vld1q_s8(p)); }
static inline v16 v16_from_i32(const int32_t *p) {
    return (v16){vcvtq_f32_s32(vld1q_s32(p)), vcvtq_f32_s32(vld1q_s32(p + 4)),
                 vcvtq_f32_s32(vld1q_s32(p + 8)), vcvtq_f32_s32(vld1q_s32(p + 12))};
}
static inline float vec_f16(uint16_t h) {
    __fp16 f;
    memcpy(&f, &h, 2);
    return f;
}

// Sums of 32 bits, and products of codes with numbers of 8: see vec_scalar.h.
enum { VEC_Q4_ROWS = 1 };
typedef struct vec_codes {
    int8x16_t q[4];
} vec_codes;
typedef struct vec_sums {
    int32x4_t q[4];
} vec_sums;
static inline vec_codes vec_codes_load(const uint8_t *p, bool high) {
    vec_codes c;
    for (int i = 0; i < 4; i++) {
        uint8x16_t bytes = vld1q_u8(p + 16 * i);
        bytes = high ? vshrq_n_u8(bytes, 4) : vandq_u8(bytes, vdupq_n_u8(15));
        c.q[i] = vreinterpretq_s8_u8(bytes);
    }
    return c;
}
static inline vec_sums vec_sums_set1(int32_t x) {
    int32x4_t v = vdupq_n_s32(x);
    return (vec_sums){{v, v, v, v}};
}
static inline vec_sums vec_sums_add(vec_sums a, vec_sums b) {
    for (int i = 0; i < 4; i++) a.q[i] = vaddq_s32(a.q[i], b.q[i]);
    return a;
}
static inline vec_sums vec_sums_shift_8(vec_sums a) {
    for (int i = 0; i < 4; i++) a.q[i] = vshlq_n_s32(a.q[i], 8);
    return a;
}
static inline vec_sums vec_sums_dot(vec_sums sum, vec_codes c, const int8_t *four) {
    int32_t x;
    memcpy(&x, four, 4);
    const int8x16_t q = vreinterpretq_s8_s32(vdupq_n_s32(x));
    for (int i = 0; i < 4; i++) { // pairs of products, then pairs of these
        int16x8_t lo = vmull_s8(vget_low_s8(c.q[i]), vget_low_s8(q));
        int16x8_t hi = vmull_high_s8(c.q[i], q);
        sum.q[i] = vpadalq_s16(sum.q[i], vpaddq_s16(lo, hi));
    }
    return sum;
}
static inline void v16_store_bytes(int8_t *high, int8_t *low, v16 a) {
    int16x8_t n[2] = {
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.q0)), vmovn_s32(vcvtnq_s32_f32(a.q1))),
        vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.q2)), vmovn_s32(vcvtnq_s32_f32(a.q3)))};
    for (int i = 0; i < 2; i++) {
        vst1_s8(high + 8 * i, vshrn_n_s16(vaddq_s16(n[i], vdupq_n_s16(128)), 8));
        vst1_s8(low + 8 * i, vmovn_s16(n[i]));
    }
}
static inline v16 v16_from_sums(vec_sums a) {
    return (v16){vcvtq_f32_s32(a.q[0]), vcvtq_f32_s32(a.q[1]), vcvtq_f32_s32(a.q[2]),
                 vcvtq_f32_s32(a.q[3])};
}

static inline void v16_store(float *p, v16 a) {
    vst1q_f32(p, a.q0);
    vst1q_f32(p + 4, a.q1);
    vst1q_f32(p + 8, a.q2);
    vst1q_f32(p + 12, a.q3);
}
static inline void v16_store_n(float *p, v16 a, size_t n) {
    float all[16];
    v16_store(all, a);
    memcpy(p, all, n * sizeof *p);
}
static inline void v16_store_f16(uint16_t *p, v16 a) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(a.q0), vcvt_f16_f32(a.q1))));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(a.q2), vcvt_f16_f32(a.q3))));
}
static inline void v16_store_i8(int8_t *p, v16 a) {
    int16x8_t lo = vcombine_s16(vmovn_s32(vcvtq_s32_f32(a.q0)), vmovn_s32(vcvtq_s32_f32(a.q1)));
    int16x8_t hi = vcombine_s16(vmovn_s32(vcvtq_s32_f32(a.q2)), vmovn_s32(vcvtq_s32_f32(a.q3)));
    vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
}

// vmaxq_f32 would give the NaN.
static inline float32x4_t vec_max(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline float32x4_t vec_min(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
static inline float32x4_t vec_add_exponent(float32x4_t a, float32x4_t b) {
    uint32x4_t shifted = vshlq_n_u32(vreinterpretq_u32_f32(b), 23);
    return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), shifted));
}

static inline v16 v16_add(v16 a, v16 b) { return VEC_2(vaddq_f32, a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return VEC_2(vsubq_f32, a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return VEC_2(vmulq_f32, a, b); }
static inline v16 v16_div(v16 a, v16 b) { return VEC_2(vdivq_f32, a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) {
    return (v16){vfmaq_f32(c.q0, a.q0, b.q0), vfmaq_f32(c.q1, a.q1, b.q1),
                 vfmaq_f32(c.q2, a.q2, b.q2), vfmaq_f32(c.q3, a.q3, b.q3)};
}
static inline v16 v16_sqrt(v16 a) { return VEC_1(vsqrtq_f32, a); }
static inline v16 v16_abs(v16 a) { return VEC_1(vabsq_f32, a); }
static inline v16 v16_max(v16 a, v16 b) { return VEC_2(vec_max, a, b); }
static inline v16 v16_min(v16 a, v16 b) { return VEC_2(vec_min, a, b); }
static inline v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    return (v16){vbslq_f32(vcltq_f32(a.q0, b.q0), yes.q0, no.q0),
                 vbslq_f32(vcltq_f32(a.q1, b.q1), yes.q1, no.q1),
                 vbslq_f32(vcltq_f32(a.q2, b.q2), yes.q2, no.q2),
                 vbslq_f32(vcltq_f32(a.q3, b.q3), yes.q3, no.q3)};
}
static inline v16 v16_add_exponent(v16 a, v16 b) { return VEC_2(vec_add_exponent, a, b); }

static inline void vec_turn_4(float *to, size_t stride, float32x4_t a, float32x4_t b, float32x4_t c,
                              float32x4_t d) {
    float32x4x2_t ac = vzipq_f32(a, c), bd = vzipq_f32(b, d); // a0 c0 a1 c1, a2 c2 a3 c3
    float32x4x2_t first = vzipq_f32(ac.val[0], bd.val[0]), last = vzipq_f32(ac.val[1], bd.val[1]);
    vst1q_f32(to, first.val[0]);
    vst1q_f32(to + stride, first.val[1]);
    vst1q_f32(to + 2 * stride, last.val[0]);
    vst1q_f32(to + 3 * stride, last.val[1]);
}
enum { VEC_TURN_ROWS = 4 };
static inline void v16_turn(float *to, size_t stride, const v16 r[VEC_TURN_ROWS]) {
    vec_turn_4(to, stride, r[0].q0, r[1].q0, r[2].q0, r[3].q0);
    vec_turn_4(to + 4 * stride, stride, r[0].q1, r[1].q1, r[2].q1, r[3].q1);
    vec_turn_4(to + 8 * stride, stride, r[0].q2, r[1].q2, r[2].q2, r[3].q2);
    vec_turn_4(to + 12 * stride, stride, r[0].q3, r[1].q3, r[2].q3, r[3].q3);
}

static inline float v16_sum(v16 a) {
    float32x4_t s4 = vaddq_f32(vaddq_f32(a.q0, a.q2), vaddq_f32(a.q1, a.q3));
    float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
static inline float v16_top(v16 a) {
    float t[4];
    vst1q_f32(t, vec_max(vec_max(a.q0, a.q2), vec_max(a.q1, a.q3)));
    float t0 = t[0] > t[2] ? t[0] : t[2], t1 = t[1] > t[3] ? t[1] : t[3];
    return t0 > t1 ? t0 : t1;
}

#undef VEC_1
#undef VEC_2
#endif
