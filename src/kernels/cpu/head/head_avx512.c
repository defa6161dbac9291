#include <immintrin.h>
#include "kernels/cpu/head/head_kernels.h"

#include "kernels/cpu/head/head_quantize.inl"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = TERN_HEAD_TILE }; // share each load of x

typedef struct tile_sums {
    __m512i hi[ROWS], lo[ROWS];
} tile_sums;

// 128 weights of each row of the tile.
INLINE void screen_vectors(tile_sums *s, const uint8_t *codes, const tern_head_vector *x,
                           size_t j) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i hi0 = _mm512_load_si512(x->hi + 128 * j), hi1 = _mm512_load_si512(x->hi + 128 * j + 64);
    __m512i lo0 = _mm512_load_si512(x->lo + 128 * j), lo1 = _mm512_load_si512(x->lo + 128 * j + 64);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) {
        __m512i v = _mm512_load_si512(codes + TERN_HEAD_CODE_STEP * j + 64 * r);
        __m512i even = _mm512_and_si512(v, nibble);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        s->hi[r] = _mm512_dpbusd_epi32(s->hi[r], even, hi0);
        s->lo[r] = _mm512_dpbusd_epi32(s->lo[r], even, lo0);
        s->hi[r] = _mm512_dpbusd_epi32(s->hi[r], odd, hi1);
        s->lo[r] = _mm512_dpbusd_epi32(s->lo[r], odd, lo1);
    }
}

INLINE __m512 add_scaled(__m512 sum, const uint8_t *scales, __m512i dot) {
    __m512i c = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)scales));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(c), _mm512_cvtepi32_ps(dot), sum);
}

INLINE void screen_tile(float *out, const uint8_t *codes, const uint8_t *scales,
                        const tern_head_vector *x, size_t n_vectors) {
    __m512 sum[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sum[r] = _mm512_setzero_ps();
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        tile_sums s;
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) s.hi[r] = s.lo[r] = _mm512_setzero_si512();
        if (4 * g + 4 <= n_vectors) {
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++) screen_vectors(&s, codes, x, 4 * g + j);
        } else {
            for (size_t j = 4 * g; j < n_vectors; j++) screen_vectors(&s, codes, x, j);
        }
        __m512i sum_x = _mm512_load_si512(x->sum_x + TERN_HEAD_LANES * g);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            __m512i dot =
                _mm512_add_epi32(_mm512_slli_epi32(s.hi[r], 8), _mm512_slli_epi32(s.lo[r], 1));
            sum[r] = add_scaled(sum[r], scales + TERN_HEAD_SCALE_STEP * g + TERN_HEAD_LANES * r,
                                _mm512_sub_epi32(dot, sum_x));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) out[r] = _mm512_reduce_add_ps(sum[r]);
}

static void screen(float *out, const uint8_t *codes, const uint8_t *scales,
                   const tern_head_vector *x, size_t n_tiles, size_t n_vectors) {
    for (size_t tile = 0; tile < n_tiles; tile++) {
        screen_tile(out + ROWS * tile, codes, scales, x, n_vectors);
        codes += TERN_HEAD_CODE_STEP * n_vectors;
        scales += TERN_HEAD_SCALE_STEP * ((n_vectors + 3) / 4);
    }
}

// As _mm512_dpbusd_epi32. In assembly, since gcc 12 copies accumulators to and fro around the
// intrinsic when many are live.
INLINE __m512i dot_add(__m512i acc, __m512i codes, __m512i x) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(x));
    return acc;
}

INLINE __m512 scales_of(const uint8_t *scales) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)scales)));
}

// sum + scale * (2 dot + addend): the sum in brackets is a whole number below 2^24.
INLINE __m512 add_twice(__m512 sum, __m512 scale, __m512i dot, __m512 addend) {
    __m512 exact = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(2), addend);
    return _mm512_fmadd_ps(scale, exact, sum);
}

// Several vectors against a tile: codes are unpacked once for all of them, and each load of x
// serves all rows. n_x is a constant.
typedef struct shared_sums {
    __m512i hi[TERN_HEAD_SHARED][ROWS];
} shared_sums;

INLINE void add_shared(shared_sums *s, const uint8_t *codes, const tern_head_vector *const *x,
                       size_t n_x, size_t j) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i even[ROWS], odd[ROWS];
#pragma GCC unroll 4
    for (size_t r = 0; r < ROWS; r++) {
        __m512i v = _mm512_load_si512(codes + TERN_HEAD_CODE_STEP * j + 64 * r);
        even[r] = _mm512_and_si512(v, nibble);
        odd[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) {
        __m512i hi0 = _mm512_load_si512(x[i]->hi + 128 * j);
        __m512i hi1 = _mm512_load_si512(x[i]->hi + 128 * j + 64);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++) s->hi[i][r] = dot_add(s->hi[i][r], even[r], hi0);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++) s->hi[i][r] = dot_add(s->hi[i][r], odd[r], hi1);
    }
}

INLINE void screen_tile_hi(float *const *out, size_t at, const tern_head_screen *of, size_t n_x) {
    const uint8_t *codes = of->codes, *scales = of->scales;
    const tern_head_vector *const *x = of->x;
    const size_t n_vectors = of->n_vectors;
    __m512 sum[TERN_HEAD_SHARED][ROWS];
    for (size_t i = 0; i < n_x; i++)
        for (size_t r = 0; r < ROWS; r++) sum[i][r] = _mm512_setzero_ps();
    for (size_t g = 0; 4 * g < n_vectors; g++) {
        shared_sums s;
        __m512 c[ROWS];
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++)
#pragma GCC unroll 4
            for (size_t r = 0; r < ROWS; r++) s.hi[i][r] = _mm512_setzero_si512();
        size_t last = 4 * g + 4 < n_vectors ? 4 * g + 4 : n_vectors;
        for (size_t j = 4 * g; j < last; j++) add_shared(&s, codes, x, n_x, j);
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++)
            c[r] = scales_of(scales + TERN_HEAD_SCALE_STEP * g + TERN_HEAD_LANES * r);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            __m512i sum_hi = _mm512_load_si512(x[i]->sum_hi + TERN_HEAD_LANES * g);
            __m512 minus = _mm512_mul_ps(_mm512_cvtepi32_ps(sum_hi), _mm512_set1_ps(-15));
#pragma GCC unroll 4
            for (size_t r = 0; r < ROWS; r++)
                sum[i][r] = add_twice(sum[i][r], c[r], s.hi[i][r], minus);
        }
    }
    for (size_t i = 0; i < n_x; i++)
        for (size_t r = 0; r < ROWS; r++) out[i][at + r] = _mm512_reduce_add_ps(sum[i][r]);
}

static void screen_hi(float *const *out, const tern_head_screen *all) {
    tern_head_screen s = *all; // the tiles that are left
    for (size_t tile = 0; tile < s.n_tiles; tile++) {
        switch (s.n_x) {
        case 1: screen_tile_hi(out, ROWS * tile, &s, 1); break;
        case 2: screen_tile_hi(out, ROWS * tile, &s, 2); break;
        case 3: screen_tile_hi(out, ROWS * tile, &s, 3); break;
        default: screen_tile_hi(out, ROWS * tile, &s, 4); break;
        }
        s.codes += TERN_HEAD_CODE_STEP * s.n_vectors;
        s.scales += TERN_HEAD_SCALE_STEP * ((s.n_vectors + 3) / 4);
    }
}

// n_x is a constant: the bits are unpacked once for that many vectors.
INLINE void refine_some(float *out, const uint8_t *bits, const uint8_t *scales,
                        const tern_head_vector *const *x, size_t n_x, size_t n_groups) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512 sum[TERN_HEAD_SHARED];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) sum[i] = _mm512_setzero_ps();
    for (size_t g = 0; g < n_groups; g++) {
        __m512i v = _mm512_load_si512(bits + 64 * g), bit[8];
#pragma GCC unroll 8
        for (unsigned q = 0; q < 8; q++) bit[q] = _mm512_and_si512(_mm512_srli_epi16(v, q), one);
        const __m512 c = scales_of(scales + TERN_HEAD_SCALE_STEP * g);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            const int8_t *hi = x[i]->hi + TERN_HEAD_GROUP * g;
            __m512i even = _mm512_setzero_si512(), odd = even;
#pragma GCC unroll 4
            for (int q = 0; q < 8; q += 2) {
                even = dot_add(even, bit[q], _mm512_load_si512(hi + 64 * q));
                odd = dot_add(odd, bit[q + 1], _mm512_load_si512(hi + 64 * q + 64));
            }
            __m512i sum_hi = _mm512_load_si512(x[i]->sum_hi + TERN_HEAD_LANES * g);
            __m512 minus = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), sum_hi));
            sum[i] = add_twice(sum[i], c, _mm512_add_epi32(even, odd), minus);
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) out[i] = _mm512_reduce_add_ps(sum[i]);
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

// ---- All bits for many vectors -----------------------------------------------------------------

// A group's codes are unpacked into the first-level cache, where all vectors meet them, four at a
// time.
enum { QUARTERS = 8, TOGETHER = 4 };

typedef struct deep_group {
    _Alignas(64) uint8_t code[QUARTERS][ROWS][64]; // twice the six bits
    size_t g, n_quarters;
} deep_group;

INLINE __m512i or_masked(__m512i a, __m512i mask, __m512i b) { // (a & mask) | b
    return _mm512_ternarylogic_epi32(a, mask, b, 0xEA);
}

INLINE __m512i move_bit(__m512i v, unsigned from, unsigned to) {
    return from < to ? _mm512_slli_epi16(v, to - from) : _mm512_srli_epi16(v, from - to);
}

INLINE void unpack_deep(deep_group *to, const uint8_t *codes, const uint8_t *const bits[2],
                        size_t row_bytes, size_t n_quarters) {
    const __m512i four = _mm512_set1_epi8(4), two = _mm512_set1_epi8(2);
    const __m512i high = _mm512_set1_epi8(15 << 3);
    for (size_t r = 0; r < ROWS; r++) {
        const __m512i first = _mm512_load_si512(bits[0] + r * row_bytes);
        const __m512i second = _mm512_load_si512(bits[1] + r * row_bytes);
#pragma GCC unroll 8
        for (unsigned q = 0; q < QUARTERS; q++) {
            if (q >= n_quarters) break;
            __m512i v = _mm512_load_si512(codes + q / 2 * TERN_HEAD_CODE_STEP + 64 * r);
            v = _mm512_and_si512(q % 2 ? _mm512_srli_epi16(v, 1) : _mm512_slli_epi16(v, 3), high);
            v = or_masked(move_bit(first, q, 2), four, v);
            v = or_masked(move_bit(second, q, 1), two, v);
            _mm512_store_si512(to->code[q][r], v);
        }
    }
}

// sum[i][r] += scale * (sum of (2 code - 63) * hi) for the group of n_x vectors, a constant.
INLINE void add_deep(__m512 (*sum)[ROWS], const deep_group *w, const __m512 scale[ROWS],
                     const tern_head_vector *const *x, size_t n_x) {
    const size_t g = w->g, n_quarters = w->n_quarters;
    __m512i dot[TOGETHER][ROWS];
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++) {
        __m512i sum_hi = _mm512_load_si512(x[i]->sum_hi + TERN_HEAD_LANES * g);
        __m512i minus = _mm512_sub_epi32(sum_hi, _mm512_slli_epi32(sum_hi, 6));
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++) dot[i][r] = minus;
    }
    for (size_t q = 0; q < n_quarters; q++) {
        __m512i code[ROWS];
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++) code[r] = _mm512_load_si512(w->code[q][r]);
#pragma GCC unroll 4
        for (size_t i = 0; i < n_x; i++) {
            __m512i hi = _mm512_load_si512(x[i]->hi + TERN_HEAD_GROUP * g + 64 * q);
#pragma GCC unroll 4
            for (size_t r = 0; r < ROWS; r++) dot[i][r] = dot_add(dot[i][r], code[r], hi);
        }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n_x; i++)
#pragma GCC unroll 4
        for (size_t r = 0; r < ROWS; r++)
            sum[i][r] = _mm512_fmadd_ps(scale[r], _mm512_cvtepi32_ps(dot[i][r]), sum[i][r]);
}

// Lane r of the result is the sum of all 16 lanes of sum[r].
INLINE __m128 sum_rows(const __m512 sum[ROWS]) {
    __m512 ab =
        _mm512_add_ps(_mm512_unpacklo_ps(sum[0], sum[1]), _mm512_unpackhi_ps(sum[0], sum[1]));
    __m512 cd =
        _mm512_add_ps(_mm512_unpacklo_ps(sum[2], sum[3]), _mm512_unpackhi_ps(sum[2], sum[3]));
    __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    __m512 all = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

typedef struct deep_job {
    float *const *out;
    const uint8_t *codes, *bits[2], *scales;
    const tern_head_vector *const *x;
    size_t n_x, n_vectors, n_groups;
} deep_job;

// Not inlined: gcc would copy the unpacked group to places of its own first.
__attribute__((noinline)) static void add_group(const deep_job *j, __m512 (*sum)[ROWS],
                                                const deep_group *w, const uint8_t *scales) {
    __m512 scale[ROWS];
#pragma GCC unroll 4
    for (size_t r = 0; r < ROWS; r++) scale[r] = scales_of(scales + TERN_HEAD_LANES * r);
    size_t i = 0;
    for (; i + TOGETHER <= j->n_x; i += TOGETHER) add_deep(sum + i, w, scale, j->x + i, TOGETHER);
    for (; i < j->n_x; i++) add_deep(sum + i, w, scale, j->x + i, 1);
}

// A later tile's lines, a group's share at a time: the hardware foresees none of three streams that
// are read by single lines.
INLINE void prefetch_deep(const deep_job *j, size_t tile, size_t g) {
    const size_t bytes = TERN_HEAD_CODE_STEP * j->n_vectors;
    const uint8_t *codes = j->codes + tile * bytes;
    for (size_t i = bytes * g / j->n_groups; i < bytes * (g + 1) / j->n_groups; i += 64)
        _mm_prefetch((const char *)codes + i, _MM_HINT_T0);
    for (int p = 0; p < 2; p++) // as many lines as rows
        for (size_t i = 0; i < ROWS; i++)
            _mm_prefetch((const char *)j->bits[p] + 64 * (ROWS * (tile * j->n_groups + g) + i),
                         _MM_HINT_T0);
}

static void screen_deep_tile(const deep_job *j, size_t tile) {
    enum { AHEAD = 2 };
    const size_t row_bytes = 64 * j->n_groups;
    const uint8_t *codes = j->codes + tile * j->n_vectors * TERN_HEAD_CODE_STEP;
    const uint8_t *scales = j->scales + tile * j->n_groups * TERN_HEAD_SCALE_STEP;
    __m512 sum[TERN_HEAD_VECTORS_MAX][ROWS];
    for (size_t i = 0; i < j->n_x; i++)
        for (size_t r = 0; r < ROWS; r++) sum[i][r] = _mm512_setzero_ps();
    for (size_t g = 0; g < j->n_groups; g++) {
        const size_t left = 2 * j->n_vectors - QUARTERS * g, n = left < QUARTERS ? left : QUARTERS;
        const uint8_t *const bits[2] = {j->bits[0] + tile * ROWS * row_bytes + 64 * g,
                                        j->bits[1] + tile * ROWS * row_bytes + 64 * g};
        deep_group w;
        w.g = g, w.n_quarters = n;
        prefetch_deep(j, tile + AHEAD, g);
        unpack_deep(&w, codes + 4 * g * TERN_HEAD_CODE_STEP, bits, row_bytes, n);
        add_group(j, sum, &w, scales + g * TERN_HEAD_SCALE_STEP);
    }
    for (size_t i = 0; i < j->n_x; i++) {
        float *out = j->out[i] + tile * ROWS;
        __builtin_prefetch(out + 16, 1); // as many streams as vectors are too many to foresee
        _mm_storeu_ps(out, sum_rows(sum[i]));
    }
}

static void screen_deep(float *const *out, const tern_head_screen *s) {
    const deep_job job = {.out = out,
                          .codes = s->codes,
                          .bits = {s->bits[0], s->bits[1]},
                          .scales = s->scales,
                          .x = s->x,
                          .n_x = s->n_x,
                          .n_vectors = s->n_vectors,
                          .n_groups = (s->n_vectors + 3) / 4};
    for (size_t tile = 0; tile < s->n_tiles; tile++) screen_deep_tile(&job, tile);
}

const tern_head_kernels tern_head_kernels_avx512 = {"avx512",  quantize, screen,
                                                    screen_hi, refine,   screen_deep};
