// The 16-lane vector as one AVX-512 register. What each operation means: vec_scalar.h.
#ifndef TERN_KERNELS_CPU_VEC_AVX512_H
#define TERN_KERNELS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_NAME avx512
enum { VEC_MATMUL_TOKENS = 4, VEC_MATMUL_ROWS = 6, VEC_MATVEC_ROWS = 4 };
enum { VEC_TILE_ROWS = 12, VEC_TILE_COLS = 2, VEC_TILE_4_COLS = 4, VEC_TILE_1_COLS = 4 };
enum { VEC_GEMM_ROWS = 12, VEC_GEMM_VECTORS = 2 };
enum { VEC_DELTA_GROUPS = 4 };

typedef __m512 v16;

static inline v16 v16_set1(float x) { return _mm512_set1_ps(x); }
static inline v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline v16 v16_load_n(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline v16 v16_from_bf16(const void *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline v16 v16_from_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline v16 v16_from_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline v16 v16_from_i32(const int32_t *p) {
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(p));
}
static inline float vec_f16(uint16_t h) { return _cvtsh_ss(h); }

// Sums of 32 bits, and products of codes with numbers of 8: see vec_scalar.h.
enum { VEC_Q4_ROWS = 4 };
typedef __m512i vec_codes, vec_sums;
static inline vec_codes vec_codes_load(const uint8_t *p, bool high) {
    __m512i codes = _mm512_loadu_si512(p);
    return _mm512_and_si512(high ? _mm512_srli_epi16(codes, 4) : codes, _mm512_set1_epi8(15));
}
static inline vec_sums vec_sums_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vec_sums vec_sums_add(vec_sums a, vec_sums b) { return _mm512_add_epi32(a, b); }
static inline vec_sums vec_sums_shift_8(vec_sums a) { return _mm512_slli_epi32(a, 8); }
static inline vec_sums vec_sums_dot(vec_sums sum, vec_codes c, const int8_t *four) {
    int32_t x;
    memcpy(&x, four, 4);
    // In assembly for the reason given in ternary/ternary_avx512.h.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(c), "v"(_mm512_set1_epi32(x)));
    return sum;
}
static inline void v16_store_bytes(int8_t *high, int8_t *low, v16 a) {
    __m512i n = _mm512_cvtps_epi32(a);
    __m512i up = _mm512_srai_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((__m128i *)high, _mm512_cvtepi32_epi8(up));
    _mm_storeu_si128((__m128i *)low, _mm512_cvtepi32_epi8(n));
}
static inline v16 v16_from_sums(vec_sums a) { return _mm512_cvtepi32_ps(a); }

static inline void v16_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
static inline void v16_store_n(float *p, v16 a, size_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
static inline void v16_store_f16(uint16_t *p, v16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v16_store_i8(int8_t *p, v16 a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

static inline v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v16_abs(v16 a) { return _mm512_abs_ps(a); }
static inline v16 v16_sqrt(v16 a) { return _mm512_sqrt_ps(a); }
static inline v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
static inline v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
static inline v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
static inline v16 v16_add_exponent(v16 a, v16 b) {
    __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(b), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), shifted));
}

// Pairs, then fours change places inside of 128 bits, then the quarters of registers.
enum { VEC_TURN_ROWS = 16 };
static inline void v16_turn(float *to, size_t stride, const v16 rows[VEC_TURN_ROWS]) {
    __m512 t[16], u[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) { // u[4 g + c]: rows 4 g to 4 g + 3 of columns c, c + 4, c + 8, ...
        __m512d a = _mm512_castps_pd(t[i / 2 * 4 + i % 2]);
        __m512d b = _mm512_castps_pd(t[i / 2 * 4 + i % 2 + 2]);
        u[i / 2 * 4 + i % 2 * 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        u[i / 2 * 4 + i % 2 * 2 + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512 low = _mm512_shuffle_f32x4(u[c], u[c + 4], 0x44);
        __m512 high = _mm512_shuffle_f32x4(u[c], u[c + 4], 0xee);
        __m512 low2 = _mm512_shuffle_f32x4(u[c + 8], u[c + 12], 0x44);
        __m512 high2 = _mm512_shuffle_f32x4(u[c + 8], u[c + 12], 0xee);
        t[c] = _mm512_shuffle_f32x4(low, low2, 0x88);
        t[c + 4] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        t[c + 8] = _mm512_shuffle_f32x4(high, high2, 0x88);
        t[c + 12] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
#pragma GCC unroll 16
    for (size_t k = 0; k < 16; k++) _mm512_storeu_ps(to + k * stride, t[k]);
}

static inline float v16_sum(v16 a) {
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
// The sums of VEC_MATMUL_ROWS vectors, each in v16_sum's order, in the first lanes. Halves,
// quarters and pairs of several vectors share a register: six sums take few more steps than one.
#define VEC_HAS_SUMS 1
static inline v16 v16_sums(const v16 a[VEC_MATMUL_ROWS]) {
    v16 half[3], quarter[2];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        half[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x44),
                                _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xee));
    quarter[0] = _mm512_add_ps(_mm512_shuffle_f32x4(half[0], half[1], 0x88),
                               _mm512_shuffle_f32x4(half[0], half[1], 0xdd));
    quarter[1] = _mm512_add_ps(_mm512_shuffle_f32x4(half[2], half[2], 0x88),
                               _mm512_shuffle_f32x4(half[2], half[2], 0xdd));
    v16 pairs = _mm512_add_ps(_mm512_shuffle_ps(quarter[0], quarter[1], 0x44),
                              _mm512_shuffle_ps(quarter[0], quarter[1], 0xee));
    v16 sums = _mm512_add_ps(pairs, _mm512_movehdup_ps(pairs));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(order, sums);
}
static inline float v16_top(v16 a) {
    __m256 t8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
}

#endif
