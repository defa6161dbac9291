// The 16-lane vector in plain C: the definition that the other vec_*.h are checked against.
//
// Every operation rounds once. Two notes on special numbers: max(a, b) is a > b ? a : b and min(a,
// b) is a < b ? a : b, so that the second operand wins when one is a NaN (as on x86); which NaN
// comes out of arithmetic is unspecified.
#ifndef TERN_KERNELS_CPU_VEC_SCALAR_H
#define TERN_KERNELS_CPU_VEC_SCALAR_H

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "base/dtype/fma.h"
#include "base/dtype/half.h"

#define VEC_NAME scalar
// How many accumulators the kernels keep in registers: see matmul.inl and attention.inl.
enum { VEC_MATMUL_TOKENS = 1, VEC_MATMUL_ROWS = 1, VEC_MATVEC_ROWS = 1 };
enum { VEC_TILE_ROWS = 1, VEC_TILE_COLS = 1, VEC_TILE_4_COLS = 1, VEC_TILE_1_COLS = 1 };
enum { VEC_GEMM_ROWS = 3, VEC_GEMM_VECTORS = 1 }; // rows in thirds: see gemm.inl
enum { VEC_DELTA_GROUPS = 1 };

typedef struct v16 {
    float lane[16];
} v16;

#define VEC_EACH(expression)                                                                       \
    v16 r;                                                                                         \
    for (int i = 0; i < 16; i++) r.lane[i] = (expression);                                         \
    return r

static inline v16 v16_set1(float x) { VEC_EACH(x); }
static inline v16 v16_load(const float *p) { VEC_EACH(p[i]); }
static inline v16 v16_load_n(const float *p, size_t n) { VEC_EACH((size_t)i < n ? p[i] : 0); }
static inline v16 v16_from_bf16(const void *p) {
    uint16_t h[16];
    memcpy(h, p, sizeof h);
    VEC_EACH(tern_bf16_to_f32(h[i]));
}
static inline v16 v16_from_f16(const void *p) {
    uint16_t h[16];
    memcpy(h, p, sizeof h);
    VEC_EACH(tern_f16_to_f32(h[i]));
}
static inline v16 v16_from_i8(const int8_t *p) { VEC_EACH((float)p[i]); }
static inline v16 v16_from_i32(const int32_t *p) { VEC_EACH((float)p[i]); }
static inline float vec_f16(uint16_t h) { return tern_f16_to_f32(h); }

// 16 sums of 32 bits. A dot product adds to each that of its four codes, the low or the high halves
// of 64 bytes, with four numbers of 8 bits. VEC_Q4_ROWS: queries that share a register of codes.
enum { VEC_Q4_ROWS = 1 };
typedef struct vec_codes {
    uint8_t code[64];
} vec_codes;
typedef struct vec_sums {
    int32_t lane[16];
} vec_sums;
static inline vec_codes vec_codes_load(const uint8_t *p, bool high) {
    vec_codes c;
    for (int i = 0; i < 64; i++) c.code[i] = high ? p[i] >> 4 : p[i] & 15;
    return c;
}
static inline vec_sums vec_sums_set1(int32_t x) {
    vec_sums a;
    for (int i = 0; i < 16; i++) a.lane[i] = x;
    return a;
}
static inline vec_sums vec_sums_add(vec_sums a, vec_sums b) {
    for (int i = 0; i < 16; i++) a.lane[i] += b.lane[i];
    return a;
}
static inline vec_sums vec_sums_shift_8(vec_sums a) {
    for (int i = 0; i < 16; i++) a.lane[i] *= 256;
    return a;
}
static inline vec_sums vec_sums_dot(vec_sums sum, vec_codes c, const int8_t *four) {
    for (int i = 0; i < 64; i++) sum.lane[i / 4] += c.code[i] * four[i % 4];
    return sum;
}
// Whole numbers up to 32512 in size as two bytes: 256 high + low.
static inline void v16_store_bytes(int8_t *high, int8_t *low, v16 a) {
    for (int i = 0; i < 16; i++) {
        low[i] = (int8_t)(((int32_t)a.lane[i] + 128 + 65536) % 256 - 128);
        high[i] = (int8_t)(((int32_t)a.lane[i] - low[i]) / 256);
    }
}
static inline v16 v16_from_sums(vec_sums a) { VEC_EACH((float)a.lane[i]); }

static inline void v16_store(float *p, v16 a) { memcpy(p, a.lane, sizeof a.lane); }
static inline void v16_store_n(float *p, v16 a, size_t n) { memcpy(p, a.lane, n * sizeof *p); }
static inline void v16_store_f16(uint16_t *p, v16 a) {
    for (int i = 0; i < 16; i++) p[i] = tern_f32_to_f16(a.lane[i]);
}
// Lanes hold whole numbers in -128..127.
static inline void v16_store_i8(int8_t *p, v16 a) {
    for (int i = 0; i < 16; i++) p[i] = (int8_t)a.lane[i];
}

static inline v16 v16_add(v16 a, v16 b) { VEC_EACH(a.lane[i] + b.lane[i]); }
static inline v16 v16_sub(v16 a, v16 b) { VEC_EACH(a.lane[i] - b.lane[i]); }
static inline v16 v16_mul(v16 a, v16 b) { VEC_EACH(a.lane[i] * b.lane[i]); }
static inline v16 v16_div(v16 a, v16 b) { VEC_EACH(a.lane[i] / b.lane[i]); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) {
    VEC_EACH(tern_fma(a.lane[i], b.lane[i], c.lane[i]));
}
static inline v16 v16_sqrt(v16 a) { VEC_EACH(sqrtf(a.lane[i])); }
static inline v16 v16_abs(v16 a) { VEC_EACH(fabsf(a.lane[i])); }
static inline v16 v16_max(v16 a, v16 b) { VEC_EACH(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]); }
static inline v16 v16_min(v16 a, v16 b) { VEC_EACH(a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]); }
// a < b ? yes : no
static inline v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    VEC_EACH(a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i]);
}
// The bits of a plus the bits of b shifted left by 23: adds the low bits of b to a's exponent.
static inline v16 v16_add_exponent(v16 a, v16 b) {
    VEC_EACH(tern_bits_to_f32(tern_f32_to_bits(a.lane[i]) + (tern_f32_to_bits(b.lane[i]) << 23)));
}

// Rows become columns: to[k * stride + i] = lane k of row i. Stores go up in k.
enum { VEC_TURN_ROWS = 1 };
static inline void v16_turn(float *to, size_t stride, const v16 rows[VEC_TURN_ROWS]) {
    for (size_t k = 0; k < 16; k++) to[k * stride] = rows[0].lane[k];
}

// The contract's order: lanes 8 apart, then 4, 2 and 1 apart.
static inline float v16_sum(v16 a) {
    for (int apart = 8; apart; apart /= 2) {
        for (int i = 0; i < apart; i++) a.lane[i] += a.lane[i + apart];
    }
    return a.lane[0];
}
static inline float v16_top(v16 a) {
    for (int apart = 8; apart; apart /= 2) {
        for (int i = 0; i < apart; i++) {
            if (!(a.lane[i] > a.lane[i + apart])) a.lane[i] = a.lane[i + apart];
        }
    }
    return a.lane[0];
}

#undef VEC_EACH
#endif
