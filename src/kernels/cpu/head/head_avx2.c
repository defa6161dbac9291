#include <immintrin.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load(const void *p) { return _mm256_load_si256(p); }

// Eight blocks (half 0 or 1) of a group of one row. Pairs of products are added up in 16 bits:
// eight times at most 2 * 15 * 127 stay below 2^15.
INLINE __m256i screen_blocks(const uint8_t *codes, const tern_head_vector *x, size_t first,
                             size_t last, size_t half) {
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i hi = _mm256_setzero_si256(), lo = hi;
    for (size_t j = first; j < last; j++) {
        const int8_t *x_hi = x->hi + 128 * j + 32 * half, *x_lo = x->lo + 128 * j + 32 * half;
        __m256i v = load(codes + TERN_HEAD_CODE_STEP * j + 32 * half);
        __m256i even = _mm256_and_si256(v, nibble);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
        hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(even, load(x_hi)));
        lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(even, load(x_lo)));
        hi = _mm256_add_epi16(hi, _mm256_maddubs_epi16(odd, load(x_hi + 64)));
        lo = _mm256_add_epi16(lo, _mm256_maddubs_epi16(odd, load(x_lo + 64)));
    }
    hi = _mm256_slli_epi32(_mm256_madd_epi16(hi, ones), 8);
    return _mm256_add_epi32(hi, _mm256_slli_epi32(_mm256_madd_epi16(lo, ones), 1));
}

INLINE __m256 add_scaled(__m256 sum, const uint8_t *scales, __m256i dot) {
    __m256i c = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)scales));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(c), _mm256_cvtepi32_ps(dot), sum);
}

INLINE float sum_of(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE void screen_group(__m256 sum[2], const uint8_t *codes, const uint8_t *scales,
                         const tern_head_vector *x, size_t g, size_t last) {
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++) {
        __m256i dot = screen_blocks(codes, x, 4 * g, last, half);
        dot = _mm256_sub_epi32(dot, load(x->sum_x + TERN_HEAD_LANES * g + 8 * half));
        sum[half] = add_scaled(sum[half], scales + TERN_HEAD_SCALE_STEP * g + 8 * half, dot);
    }
}

static void screen_tile(float *out, const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors) {
    __m256 sum[TERN_HEAD_TILE][2];
    for (int r = 0; r < TERN_HEAD_TILE; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        for (int r = 0; r < TERN_HEAD_TILE; r++) {
            const uint8_t *row = codes + 64 * r, *row_scales = scales + TERN_HEAD_LANES * r;
            if (4 * g + 4 <= n_vectors)
                screen_group(sum[r], row, row_scales, x, g, 4 * g + 4);
            else
                screen_group(sum[r], row, row_scales, x, g, n_vectors);
        }
    }
    for (int r = 0; r < TERN_HEAD_TILE; r++) out[r] = sum_of(_mm256_add_ps(sum[r][0], sum[r][1]));
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        screen_tile(out + TERN_HEAD_TILE * tile, codes, scales, x, n_vectors);
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// Half of group g, whose vectors of codes end before `last`.
typedef struct half_group {
    size_t g, last, half;
} half_group;

// Several vectors against it, of one row: codes are unpacked once for all. n_x is a constant.
INLINE void add_shared(__m256 (*sum)[2], const uint8_t *codes, const uint8_t *scales,
                       const tern_head_vector *const *x, size_t n_x, const half_group of) {
    const size_t g = of.g, last = of.last, half = of.half;
    const __m256i nibble = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i hi[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) hi[i] = _mm256_setzero_si256();
    for (size_t j = 4 * g; j < last; j++) {
        __m256i v = load(codes + TERN_HEAD_CODE_STEP * j + 32 * half);
        __m256i even = _mm256_and_si256(v, nibble);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            const int8_t *at = x[i]->hi + 128 * j + 32 * half;
            hi[i] = _mm256_add_epi16(hi[i], _mm256_maddubs_epi16(even, load(at)));
            hi[i] = _mm256_add_epi16(hi[i], _mm256_maddubs_epi16(odd, load(at + 64)));
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) {
        __m256i sum_hi = load(x[i]->sum_hi + TERN_HEAD_LANES * g + 8 * half);
        __m256i dot = _mm256_slli_epi32(_mm256_madd_epi16(hi[i], ones), 1);
        dot = _mm256_sub_epi32(dot, _mm256_sub_epi32(_mm256_slli_epi32(sum_hi, 4), sum_hi));
        sum[i][half] = add_scaled(sum[i][half], scales + TERN_HEAD_SCALE_STEP * g + 8 * half, dot);
    }
}

INLINE void screen_row_hi(float *const *out, size_t at, const uint8_t *codes, const uint8_t *scales,
                          const tern_head_screen *s, size_t n_x) {
    const size_t n_vectors = s->n_vectors;
    __m256 sum[TERN_HEAD_SHARED][2];
    for (size_t i = 0; i < n_x; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        size_t last = 4 * g + 4 < n_vectors ? 4 * g + 4 : n_vectors;
        add_shared(sum, codes, scales, s->x, n_x, (half_group){g, last, 0});
        add_shared(sum, codes, scales, s->x, n_x, (half_group){g, last, 1});
    }
    for (size_t i = 0; i < n_x; i++) out[i][at] = sum_of(_mm256_add_ps(sum[i][0], sum[i][1]));
}

static void screen_hi(float *const *out, const tern_head_screen *s) {
    const uint8_t *codes = s->codes, *scales = s->scales;
    const size_t n_vectors = s->n_vectors;
    for (size_t at = 0; at < TERN_HEAD_TILE * s->n_tiles; at++) {
        const uint8_t *row = codes + 64 * (at % TERN_HEAD_TILE);
        const uint8_t *row_scales = scales + TERN_HEAD_LANES * (at % TERN_HEAD_TILE);
        switch (s->n_x) {
        case 1: screen_row_hi(out, at, row, row_scales, s, 1); break;
        case 2: screen_row_hi(out, at, row, row_scales, s, 2); break;
        case 3: screen_row_hi(out, at, row, row_scales, s, 3); break;
        default: screen_row_hi(out, at, row, row_scales, s, 4); break;
        }
        if (at % TERN_HEAD_TILE != TERN_HEAD_TILE - 1) continue;
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// n_x is a constant: the bits are unpacked once for that many vectors.
INLINE void refine_some(float *out, const uint8_t *bits, const uint8_t *scales,
                        const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    const __m256i one = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
    __m256 sum[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) sum[i] = _mm256_setzero_ps();
    for (size_t b = 0; b < 2 * n_groups; b++) { // half a group
        __m256i v = load(bits + 32 * b), dot[TERN_HEAD_SHARED];
        const size_t at = TERN_HEAD_GROUP * (b / 2) + 32 * (b % 2);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) dot[i] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int q = 0; q < 8; q++) {
            __m256i bit = _mm256_and_si256(_mm256_srli_epi16(v, q), one);
#pragma GCC unroll 4
            for (size_t i = 0; i < n_x; i++)
                dot[i] = _mm256_add_epi16(dot[i],
                                          _mm256_maddubs_epi16(bit, load(x[i]->hi + at + 64 * q)));
        }
        const uint8_t *scale = scales + TERN_HEAD_SCALE_STEP * (b / 2) + 8 * (b % 2);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            __m256i twice = _mm256_slli_epi32(_mm256_madd_epi16(dot[i], ones), 1);
            sum[i] = add_scaled(sum[i], scale, _mm256_sub_epi32(twice, load(x[i]->sum_hi + 8 * b)));
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) out[i] = sum_of(sum[i]);
}

static void refine(float *out, const uint8_t *bits, const uint8_t *scales,
                   const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    for (; n_x >= 4; n_x -= 4, x += 4, out += 4) refine_some(out, bits, scales, x, 4, n_groups);
    if (n_x >= 2) {
        refine_some(out, bits, scales, x, 2, n_groups);
        n_x -= 2, x += 2, out += 2;
    }
    if (n_x) refine_some(out, bits, scales, x, 1, n_groups);
}

const tern_head_kernels tern_head_kernels_avx2 = {"avx2",    quantize, screen,
                                                  screen_hi, refine,   NULL};
