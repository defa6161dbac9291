// The 16-lane vector as four WebAssembly registers. What each operation means: vec_scalar.h.
//
// Two variants, chosen by the compiler's flags. -mrelaxed-simd: fma is f32x4.relaxed_madd, which
// may round once or twice; before loading the module, the caller must have checked that the engine
// rounds once. Without: fma is computed in float64, with the same bits in every engine.
#ifndef TERN_KERNELS_CPU_VEC_WASM_H
#define TERN_KERNELS_CPU_VEC_WASM_H

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <wasm_simd128.h>
#include "base/dtype/half.h"

#define VEC_NAME     wasm
#define VEC_FUNCTION static __attribute__((noinline, unused))
// Engines have 16 registers of 16 bytes on x86, so that a tile may hold two or three v16.
enum { VEC_MATMUL_TOKENS = 2, VEC_MATMUL_ROWS = 1, VEC_MATVEC_ROWS = 2 };
// Modules are small, and weights in blocks are mostly multiplied as integers: one loop unpacks all
// types of them.
#define VEC_ONE_LOOP 1
enum { VEC_TILE_ROWS = 2, VEC_TILE_COLS = 1, VEC_TILE_4_COLS = 1, VEC_TILE_1_COLS = 2 };
enum { VEC_GEMM_ROWS = 3, VEC_GEMM_VECTORS = 1 };
enum { VEC_DELTA_GROUPS = 1 };

typedef struct v16 {
    v128_t q0, q1, q2, q3;
} v16;

#define VEC_1(op, a)                                                                               \
    (v16) { op(a.q0), op(a.q1), op(a.q2), op(a.q3) }
#define VEC_2(op, a, b)                                                                            \
    (v16) { op(a.q0, b.q0), op(a.q1, b.q1), op(a.q2, b.q2), op(a.q3, b.q3) }
#define VEC_3(op, a, b, c)                                                                         \
    (v16) { op(a.q0, b.q0, c.q0), op(a.q1, b.q1, c.q1), op(a.q2, b.q2, c.q2), op(a.q3, b.q3, c.q3) }

static inline v16 v16_set1(float x) {
    v128_t q = wasm_f32x4_splat(x);
    return (v16){q, q, q, q};
}
static inline v16 v16_load(const float *p) {
    return (v16){wasm_v128_load(p), wasm_v128_load(p + 4), wasm_v128_load(p + 8),
                 wasm_v128_load(p + 12)};
}
static inline v16 v16_load_n(const float *p, size_t n) {
    float padded[16] = {0};
    memcpy(padded, p, n * sizeof *p);
    return v16_load(padded);
}
static inline v128_t vec_4_from_bf16(const uint8_t *p) {
    return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16);
}
static inline v16 v16_from_bf16(const void *p) {
    const uint8_t *b = p; // bytes, so that any address will do
    return (v16){vec_4_from_bf16(b), vec_4_from_bf16(b + 8), vec_4_from_bf16(b + 16),
                 vec_4_from_bf16(b + 24)};
}
// The 15 bits after the sign are shifted to where a float has them, which makes the exponent 112
// too small; a product with 2^112 is exact, for subnormals, too. A result of 2^16 or more had the
// greatest exponent, which means infinity or NaN.
static inline v128_t vec_4_from_f16(const uint8_t *p) {
    v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13); // the sign is in bits 31..28
    bits = wasm_v128_and(bits, wasm_i32x4_splat((int32_t)0x8FFFE000u));
    v128_t f = wasm_f32x4_mul(bits, wasm_f32x4_splat(0x1p112f));
    v128_t is_special = wasm_f32x4_ge(wasm_f32x4_abs(f), wasm_f32x4_splat(65536));
    return wasm_v128_or(f, wasm_v128_and(is_special, wasm_i32x4_splat(0x7F800000)));
}
static inline v16 v16_from_f16(const void *p) {
    const uint8_t *b = p;
    return (v16){vec_4_from_f16(b), vec_4_from_f16(b + 8), vec_4_from_f16(b + 16),
                 vec_4_from_f16(b + 24)};
}
static inline v16 vec_from_words(v128_t lo, v128_t hi) {
    return (v16){wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(lo)),
                 wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(lo)),
                 wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(hi)),
                 wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(hi))};
}
static inline v16 v16_from_i8(const int8_t *p) {
    return vec_from_words(wasm_i16x8_load8x8(p), wasm_i16x8_load8x8(p + 8));
}
static inline v16 v16_from_i32(const int32_t *p) {
    return (v16){wasm_f32x4_convert_i32x4(wasm_v128_load(p)),
                 wasm_f32x4_convert_i32x4(wasm_v128_load(p + 4)),
                 wasm_f32x4_convert_i32x4(wasm_v128_load(p + 8)),
                 wasm_f32x4_convert_i32x4(wasm_v128_load(p + 12))};
}
static inline float vec_f16(uint16_t h) { return tern_f16_to_f32(h); }

static inline void v16_store(float *p, v16 a) {
    wasm_v128_store(p, a.q0);
    wasm_v128_store(p + 4, a.q1);
    wasm_v128_store(p + 8, a.q2);
    wasm_v128_store(p + 12, a.q3);
}
static inline void v16_store_n(float *p, v16 a, size_t n) {
    float all[16];
    v16_store(all, a);
    memcpy(p, all, n * sizeof *p);
}
static inline v128_t vec_if(v128_t mask, v128_t yes, v128_t no) { // mask: all bits of a lane
#if defined(__wasm_relaxed_simd__)
    return wasm_i32x4_relaxed_laneselect(yes, no, mask);
#else
    return wasm_v128_bitselect(yes, no, mask);
#endif
}
// As tern_f32_to_f16, in dwords.
static inline v128_t vec_f16_bits(v128_t f) {
    v128_t rest = wasm_f32x4_abs(f), sign = wasm_u32x4_shr(wasm_v128_xor(f, rest), 16);
    v128_t small =
        wasm_i32x4_sub(wasm_f32x4_add(rest, wasm_f32x4_splat(0.5f)), wasm_i32x4_splat(0x3F000000));
    v128_t odd = wasm_v128_and(wasm_u32x4_shr(rest, 13), wasm_i32x4_splat(1));
    v128_t h = wasm_i32x4_add(wasm_i32x4_add(rest, odd), wasm_i32x4_splat(0xFFF - (112 << 23)));
    h = vec_if(wasm_i32x4_lt(rest, wasm_i32x4_splat(0x38800000)), small, wasm_u32x4_shr(h, 13));
    h = vec_if(wasm_i32x4_lt(rest, wasm_i32x4_splat(0x477FF000)), h, wasm_i32x4_splat(0x7C00));
    h = vec_if(wasm_i32x4_gt(rest, wasm_i32x4_splat(0x7F800000)), wasm_i32x4_splat(0x7E00), h);
    return wasm_v128_or(h, sign);
}
static inline void v16_store_f16(uint16_t *p, v16 a) {
    v16 h = VEC_1(vec_f16_bits, a);
    wasm_v128_store(p, wasm_u16x8_narrow_i32x4(h.q0, h.q1));
    wasm_v128_store(p + 8, wasm_u16x8_narrow_i32x4(h.q2, h.q3));
}
// Adding 1.5 * 2^23 leaves a whole number in the low bits of the sum.
static inline v128_t vec_int(v128_t f) {
    v128_t magic = wasm_f32x4_splat(0x1.8p23f);
    return wasm_i32x4_sub(wasm_f32x4_add(f, magic), magic);
}
static inline void v16_store_i8(int8_t *p, v16 a) {
    v128_t lo = wasm_i16x8_narrow_i32x4(vec_int(a.q0), vec_int(a.q1));
    v128_t hi = wasm_i16x8_narrow_i32x4(vec_int(a.q2), vec_int(a.q3));
    wasm_v128_store(p, wasm_i8x16_narrow_i16x8(lo, hi));
}

// ---- fma ---------------------------------------------------------------------------------------

#if defined(__wasm_relaxed_simd__)
static inline v128_t vec_fma(v128_t a, v128_t b, v128_t c) {
    return wasm_f32x4_relaxed_madd(a, b, c);
}
#else
// The product of two floats is exact in float64: 48 bits, and no exponent is out of its range. The
// sum s of it and c is rounded to 53 bits, then to 24 (fewer if the result is subnormal). The two
// roundings differ from one only where s lies exactly half way between two floats, as the first may
// have moved it there. Such an s has one bit more than a float, so that its last 28 bits are zero:
// only then is more work needed, which random numbers see once in 2^28 times, and short ones (zero,
// small whole numbers) more often.
#define VEC_HIGH(x) wasm_i32x4_shuffle(x, x, 2, 3, 2, 3)
static inline v128_t vec_sum_f64(v128_t a, v128_t b, v128_t c) { // of the first two lanes
    return wasm_f64x2_add(
        wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b)),
        wasm_f64x2_promote_low_f32x4(c));
}
// The same rounded to odd: a sum that is not exact becomes that of its two neighbours whose last
// bit is 1. It then lies on the right side of every half way, and as 53 bits are at least two more
// than 24, the second rounding does what one alone would have done (Boldo and Melquiond, IEEE
// Transactions on Computers 57, 2008). Knuth's TwoSum gives the error of a sum exactly.
static inline v128_t vec_odd_sum_f64(v128_t a, v128_t b, v128_t c) {
    v128_t x = wasm_f64x2_promote_low_f32x4(c);
    v128_t p = wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b));
    v128_t s = wasm_f64x2_add(p, x), p_part = wasm_f64x2_sub(s, x);
    v128_t x_part = wasm_f64x2_sub(s, p_part);
    v128_t error = wasm_f64x2_add(wasm_f64x2_sub(p, p_part), wasm_f64x2_sub(x, x_part));
    // Infinities and NaN have an error of NaN and stay.
    v128_t is_rounded = wasm_f64x2_gt(wasm_f64x2_abs(error), wasm_f64x2_splat(0));
    v128_t is_even = wasm_i64x2_eq(wasm_v128_and(s, wasm_i64x2_splat(1)), wasm_i64x2_splat(0));
    // Numbers of one sign are in order as whole numbers are: one step away from zero if the error
    // has the sum's sign, else towards it.
    v128_t step = wasm_v128_or(wasm_i64x2_shr(wasm_v128_xor(s, error), 63), wasm_i64x2_splat(1));
    return wasm_i64x2_add(s, wasm_v128_and(step, wasm_v128_and(is_rounded, is_even)));
}
static inline v128_t vec_floats(v128_t low, v128_t high) {
    return wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(low), wasm_f32x4_demote_f64x2_zero(high),
                              0, 1, 4, 5);
}
static __attribute__((noinline)) v128_t vec_fma_by_odd(v128_t a, v128_t b, v128_t c) {
    return vec_floats(vec_odd_sum_f64(a, b, c),
                      vec_odd_sum_f64(VEC_HIGH(a), VEC_HIGH(b), VEC_HIGH(c)));
}
static inline v128_t vec_fma(v128_t a, v128_t b, v128_t c) {
    v128_t low = vec_sum_f64(a, b, c), high = vec_sum_f64(VEC_HIGH(a), VEC_HIGH(b), VEC_HIGH(c));
    v128_t last =
        wasm_v128_and(wasm_i32x4_shuffle(low, high, 0, 2, 4, 6), wasm_i32x4_splat(0x0FFFFFFF));
    if (__builtin_expect(!wasm_i32x4_all_true(last), 0)) return vec_fma_by_odd(a, b, c);
    return vec_floats(low, high);
}
#undef VEC_HIGH
#endif

// ---- Lane by lane ------------------------------------------------------------------------------

// pmax(b, a) is b < a ? a : b: the second operand of v16_max wins when one is a NaN.
static inline v128_t vec_max(v128_t a, v128_t b) { return wasm_f32x4_pmax(b, a); }
static inline v128_t vec_min(v128_t a, v128_t b) { return wasm_f32x4_pmin(b, a); }
static inline v128_t vec_add_exponent(v128_t a, v128_t b) {
    return wasm_i32x4_add(a, wasm_i32x4_shl(b, 23));
}
static inline v128_t vec_if_less(v128_t a, v128_t b, v128_t yes, v128_t no) {
    return vec_if(wasm_f32x4_lt(a, b), yes, no);
}

static inline v16 v16_add(v16 a, v16 b) { return VEC_2(wasm_f32x4_add, a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return VEC_2(wasm_f32x4_sub, a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return VEC_2(wasm_f32x4_mul, a, b); }
static inline v16 v16_div(v16 a, v16 b) { return VEC_2(wasm_f32x4_div, a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return VEC_3(vec_fma, a, b, c); }
static inline v16 v16_sqrt(v16 a) { return VEC_1(wasm_f32x4_sqrt, a); }
static inline v16 v16_abs(v16 a) { return VEC_1(wasm_f32x4_abs, a); }
static inline v16 v16_max(v16 a, v16 b) { return VEC_2(vec_max, a, b); }
static inline v16 v16_min(v16 a, v16 b) { return VEC_2(vec_min, a, b); }
static inline v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    return (v16){vec_if_less(a.q0, b.q0, yes.q0, no.q0), vec_if_less(a.q1, b.q1, yes.q1, no.q1),
                 vec_if_less(a.q2, b.q2, yes.q2, no.q2), vec_if_less(a.q3, b.q3, yes.q3, no.q3)};
}
static inline v16 v16_add_exponent(v16 a, v16 b) { return VEC_2(vec_add_exponent, a, b); }

// ---- Across lanes ------------------------------------------------------------------------------

static inline void vec_turn_4(float *to, size_t stride, v128_t a, v128_t b, v128_t c, v128_t d) {
    v128_t ab_low = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5);
    v128_t ab_high = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
    v128_t cd_low = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5);
    v128_t cd_high = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
    wasm_v128_store(to, wasm_i64x2_shuffle(ab_low, cd_low, 0, 2));
    wasm_v128_store(to + stride, wasm_i64x2_shuffle(ab_low, cd_low, 1, 3));
    wasm_v128_store(to + 2 * stride, wasm_i64x2_shuffle(ab_high, cd_high, 0, 2));
    wasm_v128_store(to + 3 * stride, wasm_i64x2_shuffle(ab_high, cd_high, 1, 3));
}
enum { VEC_TURN_ROWS = 4 };
static inline void v16_turn(float *to, size_t stride, const v16 r[VEC_TURN_ROWS]) {
    vec_turn_4(to, stride, r[0].q0, r[1].q0, r[2].q0, r[3].q0);
    vec_turn_4(to + 4 * stride, stride, r[0].q1, r[1].q1, r[2].q1, r[3].q1);
    vec_turn_4(to + 8 * stride, stride, r[0].q2, r[1].q2, r[2].q2, r[3].q2);
    vec_turn_4(to + 12 * stride, stride, r[0].q3, r[1].q3, r[2].q3, r[3].q3);
}

static inline float v16_sum(v16 a) {
    v128_t s4 = wasm_f32x4_add(wasm_f32x4_add(a.q0, a.q2), wasm_f32x4_add(a.q1, a.q3));
    v128_t s2 = wasm_f32x4_add(s4, wasm_i32x4_shuffle(s4, s4, 2, 3, 2, 3));
    return wasm_f32x4_extract_lane(s2, 0) + wasm_f32x4_extract_lane(s2, 1);
}
static inline float v16_top(v16 a) {
    v128_t t4 = vec_max(vec_max(a.q0, a.q2), vec_max(a.q1, a.q3));
    v128_t t2 = vec_max(t4, wasm_i32x4_shuffle(t4, t4, 2, 3, 2, 3));
    float t0 = wasm_f32x4_extract_lane(t2, 0), t1 = wasm_f32x4_extract_lane(t2, 1);
    return t0 > t1 ? t0 : t1;
}

#undef VEC_1
#undef VEC_2
#undef VEC_3
#endif
