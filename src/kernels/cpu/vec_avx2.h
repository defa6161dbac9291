// The 16-lane vector as two AVX2 registers. What each operation means: vec_scalar.h.
#ifndef TERN_KERNELS_CPU_VEC_AVX2_H
#define TERN_KERNELS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VEC_NAME avx2
enum { VEC_MATMUL_TOKENS = 2, VEC_MATMUL_ROWS = 3, VEC_MATVEC_ROWS = 4 };
enum { VEC_TILE_ROWS = 6, VEC_TILE_COLS = 1, VEC_TILE_4_COLS = 1, VEC_TILE_1_COLS = 4 };
enum { VEC_GEMM_ROWS = 6, VEC_GEMM_VECTORS = 1 };
enum { VEC_DELTA_GROUPS = 1 };

typedef struct v16 {
    __m256 lo, hi;
} v16;

static inline v16 v16_set1(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline __m256i vec_first_n(size_t n, int from) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - from), lane);
}
static inline v16 v16_load_n(const float *p, size_t n) {
    return (v16){_mm256_maskload_ps(p, vec_first_n(n, 0)),
                 _mm256_maskload_ps(p + 8, vec_first_n(n, 8))};
}
static inline v16 v16_from_bf16(const void *p) {
    const __m128i *h = p;
    __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(h));
    __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1));
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
                 _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}
static inline v16 v16_from_f16(const void *p) {
    const __m128i *h = p;
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
static inline v16 v16_from_i8(const int8_t *p) {
    __m256i lo = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
    __m256i hi = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)));
    return (v16){_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)};
}
static inline v16 v16_from_i32(const int32_t *p) {
    const __m256i *v = (const __m256i *)p;
    return (v16){_mm256_cvtepi32_ps(_mm256_loadu_si256(v)),
                 _mm256_cvtepi32_ps(_mm256_loadu_si256(v + 1))};
}
static inline float vec_f16(uint16_t h) { return _cvtsh_ss(h); }

// Sums of 32 bits, and products of codes with numbers of 8: see vec_scalar.h.
enum { VEC_Q4_ROWS = 1 };
typedef struct vec_codes {
    __m256i lo, hi;
} vec_codes, vec_sums;
static inline vec_codes vec_codes_load(const uint8_t *p, bool high) {
    __m256i lo = _mm256_loadu_si256((const __m256i *)p), hi, four_bits = _mm256_set1_epi8(15);
    hi = _mm256_loadu_si256((const __m256i *)(p + 32));
    if (high) lo = _mm256_srli_epi16(lo, 4), hi = _mm256_srli_epi16(hi, 4);
    return (vec_codes){_mm256_and_si256(lo, four_bits), _mm256_and_si256(hi, four_bits)};
}
static inline vec_sums vec_sums_set1(int32_t x) {
    return (vec_sums){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
static inline vec_sums vec_sums_add(vec_sums a, vec_sums b) {
    return (vec_sums){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
static inline vec_sums vec_sums_shift_8(vec_sums a) {
    return (vec_sums){_mm256_slli_epi32(a.lo, 8), _mm256_slli_epi32(a.hi, 8)};
}
static inline vec_sums vec_sums_dot(vec_sums sum, vec_codes c, const int8_t *four) {
    int32_t x;
    memcpy(&x, four, 4);
    const __m256i ones = _mm256_set1_epi16(1), q = _mm256_set1_epi32(x);
    __m256i lo = _mm256_madd_epi16(_mm256_maddubs_epi16(c.lo, q), ones);
    __m256i hi = _mm256_madd_epi16(_mm256_maddubs_epi16(c.hi, q), ones);
    return vec_sums_add(sum, (vec_sums){lo, hi});
}
static inline void v16_store_bytes(int8_t *high, int8_t *low, v16 a) {
    __m256i n = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
    n = _mm256_permute4x64_epi64(n, 0xD8);
    __m256i up = _mm256_srai_epi16(_mm256_add_epi16(n, _mm256_set1_epi16(128)), 8);
    __m256i both = _mm256_packs_epi16(up, _mm256_srai_epi16(_mm256_slli_epi16(n, 8), 8));
    both = _mm256_permute4x64_epi64(both, 0xD8);
    _mm_storeu_si128((__m128i *)high, _mm256_castsi256_si128(both));
    _mm_storeu_si128((__m128i *)low, _mm256_extracti128_si256(both, 1));
}
static inline v16 v16_from_sums(vec_sums a) {
    return (v16){_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

static inline void v16_store(float *p, v16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
static inline void v16_store_n(float *p, v16 a, size_t n) {
    _mm256_maskstore_ps(p, vec_first_n(n, 0), a.lo);
    _mm256_maskstore_ps(p + 8, vec_first_n(n, 8), a.hi);
}
static inline void v16_store_f16(uint16_t *p, v16 a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v16_store_i8(int8_t *p, v16 a) {
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
    words = _mm256_permute4x64_epi64(words, _MM_SHUFFLE(3, 1, 2, 0));
    __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}

static inline v16 v16_add(v16 a, v16 b) {
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline v16 v16_sub(v16 a, v16 b) {
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline v16 v16_mul(v16 a, v16 b) {
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline v16 v16_div(v16 a, v16 b) {
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline v16 v16_fma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline v16 v16_sqrt(v16 a) { return (v16){_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
static inline v16 v16_abs(v16 a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
static inline v16 v16_max(v16 a, v16 b) {
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline v16 v16_min(v16 a, v16 b) {
    return (v16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
                 _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
static inline v16 v16_add_exponent(v16 a, v16 b) {
    __m256i lo = _mm256_slli_epi32(_mm256_castps_si256(b.lo), 23);
    __m256i hi = _mm256_slli_epi32(_mm256_castps_si256(b.hi), 23);
    return (v16){_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.lo), lo)),
                 _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.hi), hi))};
}

// Eight rows of eight: pairs, fours, then halves change places.
static inline void vec_turn_8(float *to, size_t stride, const __m256 r[8]) {
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            __m256d a = _mm256_castps_pd(t[i + j]), b = _mm256_castps_pd(t[i + j + 2]);
            u[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            u[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    for (size_t k = 0; k < 4; k++)
        _mm256_storeu_ps(to + k * stride, _mm256_permute2f128_ps(u[k], u[k + 4], 0x20));
    for (size_t k = 0; k < 4; k++)
        _mm256_storeu_ps(to + (k + 4) * stride, _mm256_permute2f128_ps(u[k], u[k + 4], 0x31));
}
enum { VEC_TURN_ROWS = 8 };
static inline void v16_turn(float *to, size_t stride, const v16 rows[VEC_TURN_ROWS]) {
    __m256 half[8];
    for (int i = 0; i < 8; i++) half[i] = rows[i].lo;
    vec_turn_8(to, stride, half);
    for (int i = 0; i < 8; i++) half[i] = rows[i].hi;
    vec_turn_8(to + 8 * stride, stride, half);
}

static inline float v16_sum(v16 a) {
    __m256 s8 = _mm256_add_ps(a.lo, a.hi);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
static inline float v16_top(v16 a) {
    __m256 t8 = _mm256_max_ps(a.lo, a.hi);
    __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_movehdup_ps(t2)));
}

#endif
