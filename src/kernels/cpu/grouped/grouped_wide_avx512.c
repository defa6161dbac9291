// Products with wide codes for AVX-512 with VNNI.
//
// One token is bound by memory: codes are unpacked in registers. For several, two blocks of rows
// are unpacked to a byte a code and their scales to floats, in scratch that stays in the
// second-level cache, and multiplied with 9 tokens at a time: grouped_avx512.c says why 9, and why
// sums lie in memory. A group's sums begin with -zero times the group's activations.
#include <string.h>
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/grouped/grouped_wide.h"

enum { TOKENS = 9, AHEAD = 12288 };

// How codes lie in a unit: of 4, 5, 6 or 8 bits, or of 4 that stand for others.
typedef enum code_kind { CODES_4, CODES_TABLE, CODES_5, CODES_6, CODES_8 } code_kind;

static code_kind kind_of(const tern_grouped_matrix *w) {
    return w->has_table ? CODES_TABLE
           : w->bits == 4 ? CODES_4
           : w->bits == 5 ? CODES_5
           : w->bits == 6 ? CODES_6
                          : CODES_8;
}

// In assembly for the reason given in ternary/ternary_avx512.h.
GROUPED_INLINE __m512i dot_add(__m512i acc, __m512i codes, __m512i q) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(codes), "v"(q));
    return acc;
}

GROUPED_INLINE __m512i broadcast4(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}

// (a & 15) | (b & mask)
GROUPED_INLINE __m512i join(__m512i a, __m512i b, int mask) {
    a = _mm512_and_si512(a, _mm512_set1_epi8(15));
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8((char)mask), 0xF8);
}

// Bytes shifted up (minus: down) by a constant; bits of neighbours come in.
GROUPED_INLINE __m512i shift(__m512i v, int up) {
    return up > 0   ? _mm512_slli_epi16(v, (unsigned)up)
           : up < 0 ? _mm512_srli_epi16(v, (unsigned)-up)
                    : v;
}

// The codes of step i, a constant: four columns of 16 rows.
GROUPED_INLINE __m512i step_codes(const uint8_t *codes, int i, code_kind kind, __m512i table) {
    if (kind == CODES_8) return _mm512_loadu_si512(codes + 64 * i);
    const uint8_t *high = codes + WIDE_UNPACKED / 2;
    __m512i v = shift(_mm512_loadu_si512(codes + 64 * (i / 2)), i % 2 * -4);
    if (kind == CODES_5)
        return join(v, shift(_mm512_loadu_si512(high + 64 * (i / 8)), 4 - i % 8), 16);
    if (kind == CODES_6)
        return join(v, shift(_mm512_loadu_si512(high + 64 * (i / 4)), 4 - 2 * (i % 4)), 48);
    v = _mm512_and_si512(v, _mm512_set1_epi8(15));
    return kind == CODES_TABLE ? _mm512_shuffle_epi8(table, v) : v;
}

GROUPED_INLINE __m512i load_table(const tern_grouped_matrix *w) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)w->table));
}

static __mmask16 rows_left(size_t row, size_t last_row) {
    size_t n = row < last_row ? last_row - row : 0;
    return (__mmask16)(n >= 16 ? 0xFFFF : (1u << n) - 1);
}

GROUPED_INLINE void put_16(float *y, __m512 sum, __mmask16 mask, bool accumulate) {
    if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
    _mm512_mask_storeu_ps(y, mask, sum);
}

// ---- One token ---------------------------------------------------------------------------------

GROUPED_INLINE void prefetch_unit(const uint8_t *unit, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)unit + AHEAD + i, _MM_HINT_T1);
}

// kind and n_steps, of a group, are constants.
GROUPED_INLINE __m512 block_times_one(const tern_grouped_matrix *w, const wide_layout *l,
                                      const uint8_t *block, const tern_grouped_rows *x,
                                      code_kind kind, int n_steps) {
    const __m512i table = load_table(w);
    const int32_t zero = w->zero;
    const int n = 16 / n_steps;
    wide_walk at = wide_start(l, block);
    _Alignas(64) float scale[4 * 16], minimum[4 * 16] = {0};
    __m512 sum = _mm512_setzero_ps();
    for (size_t u = 0; u < w->n_in / WIDE_UNIT; u++, wide_next(&at, l)) {
        const uint8_t *codes = at.unit + l->sub_bytes;
        const int8_t *q = x->q + u * WIDE_UNIT;
        const __m512 x_scale = _mm512_set1_ps(x->scale[u]);
        prefetch_unit(at.unit, l->unit_bytes);
        wide_scales(w, l, &at, (size_t)n, scale, minimum);
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) {
            int32_t minus = wide_minus(x->minus_part, u * 4 + (size_t)(g * n_steps / 4), 1,
                                       (size_t)n_steps);
            __m512i acc = _mm512_set1_epi32(minus * zero);
#pragma GCC unroll 16
            for (int s = g * n_steps; s < (g + 1) * n_steps; s++)
                acc = dot_add(acc, step_codes(codes, s, kind, table), broadcast4(q + 4 * s));
            __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), x_scale);
            sum = _mm512_add_ps(sum, _mm512_mul_ps(_mm512_load_ps(scale + 16 * g), product));
            if (!w->has_minima) continue;
            product = _mm512_mul_ps(_mm512_set1_ps((float)minus), x_scale);
            sum = _mm512_add_ps(sum, _mm512_mul_ps(_mm512_load_ps(minimum + 16 * g), product));
        }
    }
    return sum;
}

typedef __m512 (*one_fn)(const tern_grouped_matrix *w, const wide_layout *l, const uint8_t *block,
                         const tern_grouped_rows *x);
#define EACH_KIND(X) X(CODES_4) X(CODES_TABLE) X(CODES_5) X(CODES_6) X(CODES_8)
#define ONE_OF(kind, n_steps)                                                                      \
    static __m512 one_##kind##_##n_steps(const tern_grouped_matrix *w, const wide_layout *l,       \
                                         const uint8_t *block, const tern_grouped_rows *x) {       \
        return block_times_one(w, l, block, x, kind, n_steps);                                     \
    }
#define THREE(kind) ONE_OF(kind, 4) ONE_OF(kind, 8) ONE_OF(kind, 16)
EACH_KIND(THREE)
#define POINTERS(kind) {one_##kind##_4, one_##kind##_8, one_##kind##_16},
static const one_fn ones[][3] = {EACH_KIND(POINTERS)};

static void multiply_one(const tern_grouped_matrix *w, size_t row, size_t last_row,
                         const tern_grouped_rows *x, float *out, bool accumulate) {
    const wide_layout l = tern_grouped_wide_layout(w);
    const one_fn one = ones[kind_of(w)][l.group == 16 ? 0 : l.group == 32 ? 1 : 2];
    for (; row < last_row; row += TERN_GROUPED_ROWS) {
        __m512 sum = one(w, &l, w->data + row / TERN_GROUPED_ROWS * w->block_bytes, x);
        put_16(out + row, sum, rows_left(row, last_row), accumulate);
    }
}

// ---- Several tokens ----------------------------------------------------------------------------

// A block as the tile reads it.
typedef struct unpacked {
    const uint8_t *codes; // a byte each: [units][16 steps][16 rows][4], units code_stride apart
    size_t code_stride;
    const float *scales, *minima; // [groups][16]
} unpacked;

GROUPED_INLINE void unpack_codes(const uint8_t *codes, code_kind kind, __m512i table, uint8_t *to) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + 64 * i, step_codes(codes, i, kind, table));
}

static unpacked unpack(const tern_grouped_matrix *w, const wide_layout *l, const uint8_t *block,
                       uint8_t *scratch) {
    const size_t n = WIDE_UNIT / l->group, n_units = w->n_in / WIDE_UNIT;
    const __m512i table = load_table(w);
    const code_kind kind = kind_of(w);
    float *scales = (float *)(scratch + w->n_in * 16), *minima = scales + n_units * n * 16;
    wide_walk at = wide_start(l, block);
    for (size_t u = 0; u < n_units; u++, wide_next(&at, l)) {
        const uint8_t *codes = at.unit + l->sub_bytes;
        uint8_t *to = scratch + u * WIDE_UNPACKED;
        prefetch_unit(at.unit, l->unit_bytes);
        wide_scales(w, l, &at, n, scales + u * n * 16, minima + u * n * 16);
        switch (kind) {
        case CODES_4: unpack_codes(codes, CODES_4, table, to); break;
        case CODES_TABLE: unpack_codes(codes, CODES_TABLE, table, to); break;
        case CODES_5: unpack_codes(codes, CODES_5, table, to); break;
        case CODES_6: unpack_codes(codes, CODES_6, table, to); break;
        case CODES_8: break; // read where they lie
        }
    }
    bool lie = kind == CODES_8;
    return (unpacked){lie ? block + l->front_bytes + l->sub_bytes : scratch,
                      lie ? l->unit_bytes : (size_t)WIDE_UNPACKED, scales, minima};
}

#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

typedef struct tile_args {
    unpacked a, b; // blocks of rows
    __mmask16 mask_a, mask_b;
    size_t n_units, n_steps; // of a row; of a group
    int32_t zero;
    bool has_minima, accumulate;
    const int8_t *q;
    const float *scale;
    const int32_t *parts;
    float *out; // of the first row and token
    size_t out_stride;
    float (*sums)[32]; // 64: the caller's, since gcc 12 would keep what is local in two places
} tile_args;

// What a group of n tokens begins with, and what its minima are multiplied with.
typedef struct starts {
    _Alignas(64) int32_t sums[16];
    _Alignas(64) float minus[16];
} starts;

GROUPED_INLINE void start_group(const tile_args *t, size_t u, size_t g, int n, starts *to) {
    const __mmask16 mask = (__mmask16)((1u << n) - 1);
    const int32_t *p = t->parts + (u * 4 + g / 4) * (size_t)n;
    __m512i minus = _mm512_maskz_loadu_epi32(mask, p);
    for (size_t k = 4; k < t->n_steps; k += 4) {
        p += n;
        minus = _mm512_add_epi32(minus, _mm512_maskz_loadu_epi32(mask, p));
    }
    _mm512_store_si512(to->sums, _mm512_mullo_epi32(minus, _mm512_set1_epi32(t->zero)));
    if (!t->has_minima) return;
    __m512 scale = _mm512_maskz_loadu_ps(mask, t->scale + u * (size_t)n);
    _mm512_store_ps(to->minus, _mm512_mul_ps(_mm512_cvtepi32_ps(minus), scale));
}

// n (a constant) tokens times 32 rows. Every sum has a name, since gcc 12 keeps arrays in memory.
GROUPED_INLINE void tile(const tile_args *t, int n) {
    const int8_t *x = t->q;
    float(*const sums)[32] = t->sums;
    memset(sums, 0, sizeof sums[0] * (size_t)n);
    size_t at = 0; // of a group's scales
    for (size_t u = 0; u < t->n_units; u++) {
        const uint8_t *a = t->a.codes + u * t->a.code_stride;
        const uint8_t *b = t->b.codes + u * t->b.code_stride;
        const float *scale = t->scale + u * (size_t)n;
        for (size_t g = 0; g < 16; g += t->n_steps, at += 16) {
            starts start;
            start_group(t, u, g, n, &start);
#define DECLARE(i) __m512i a##i = _mm512_set1_epi32(start.sums[(i) < n ? (i) : 0]), b##i = a##i;
#define MULTIPLY(i)                                                                                \
    if ((i) < n) {                                                                                 \
        __m512i q = broadcast4(x + (i) * 4);                                                       \
        a##i = dot_add(a##i, wa, q);                                                               \
        b##i = dot_add(b##i, wb, q);                                                               \
    }
#define ADD_UP(i)                                                                                  \
    if ((i) < n) {                                                                                 \
        __m512 s = _mm512_set1_ps(scale[i]);                                                       \
        __m512 pa = _mm512_mul_ps(scale_a, _mm512_mul_ps(_mm512_cvtepi32_ps(a##i), s));            \
        __m512 pb = _mm512_mul_ps(scale_b, _mm512_mul_ps(_mm512_cvtepi32_ps(b##i), s));            \
        pa = _mm512_add_ps(_mm512_load_ps(sums[i]), pa);                                           \
        pb = _mm512_add_ps(_mm512_load_ps(sums[i] + 16), pb);                                      \
        if (t->has_minima) {                                                                       \
            s = _mm512_set1_ps(start.minus[i]);                                                    \
            pa = _mm512_add_ps(pa, _mm512_mul_ps(min_a, s));                                       \
            pb = _mm512_add_ps(pb, _mm512_mul_ps(min_b, s));                                       \
        }                                                                                          \
        _mm512_store_ps(sums[i], pa);                                                              \
        _mm512_store_ps(sums[i] + 16, pb);                                                         \
    }
            EACH_TOKEN(DECLARE)
            for (size_t k = 0; k < t->n_steps; k += 4)
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++, a += 64, b += 64, x += n * 4) {
                    __m512i wa = _mm512_loadu_si512(a), wb = _mm512_loadu_si512(b);
                    EACH_TOKEN(MULTIPLY)
                }
            __m512 scale_a = _mm512_loadu_ps(t->a.scales + at), min_a = scale_a;
            __m512 scale_b = _mm512_loadu_ps(t->b.scales + at), min_b = scale_b;
            if (t->has_minima) {
                min_a = _mm512_loadu_ps(t->a.minima + at);
                min_b = _mm512_loadu_ps(t->b.minima + at);
            }
            EACH_TOKEN(ADD_UP)
        }
    }
    for (int i = 0; i < n; i++) {
        float *y = t->out + (size_t)i * t->out_stride;
        put_16(y, _mm512_load_ps(sums[i]), t->mask_a, t->accumulate);
        if (t->mask_b) put_16(y + 16, _mm512_load_ps(sums[i] + 16), t->mask_b, t->accumulate);
    }
}

#define TILE_OF(n) static void tile_##n(const tile_args *t) { tile(t, n); }
TILE_OF(1) TILE_OF(2) TILE_OF(3) TILE_OF(4) TILE_OF(5) TILE_OF(6) TILE_OF(7) TILE_OF(8) TILE_OF(9)
static void (*const tiles[TOKENS])(const tile_args *t) = {tile_1, tile_2, tile_3, tile_4, tile_5,
                                                          tile_6, tile_7, tile_8, tile_9};

static void multiply_many(const tern_grouped_matrix *w, size_t first_row, size_t last_row,
                          const tern_grouped_rows *x, uint8_t *scratch, float *out,
                          size_t out_stride, bool accumulate) {
    const wide_layout l = tern_grouped_wide_layout(w);
    _Alignas(64) float sums[TOKENS][32];
    tile_args t = {.n_units = w->n_in / WIDE_UNIT,
                   .sums = sums,
                   .n_steps = l.group / 4,
                   .zero = w->zero,
                   .has_minima = w->has_minima,
                   .accumulate = accumulate,
                   .out_stride = out_stride};
    for (size_t row = first_row; row < last_row; row += 32) {
        const uint8_t *a = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
        t.mask_a = rows_left(row, last_row);
        t.mask_b = rows_left(row + 16, last_row);
        t.a = unpack(w, &l, a, scratch);
        t.b = t.mask_b ? unpack(w, &l, a + w->block_bytes,
                                scratch + tern_grouped_scratch_bytes(w) / 2)
                       : t.a;
        for (size_t i = 0; i < x->n_tokens; i += x->block) {
            t.q = x->q + i * w->n_in;
            t.scale = x->scale + i * t.n_units;
            t.parts = x->minus_part + i * (w->n_in / TERN_GROUP_PART);
            t.out = out + i * out_stride + row;
            tiles[tern_grouped_min(x->n_tokens - i, x->block) - 1](&t);
        }
    }
}

void tern_grouped_wide_avx512(const tern_grouped_matrix *w, size_t first_row, size_t last_row,
                              const tern_grouped_rows *x, void *scratch, float *out,
                              size_t out_stride, bool accumulate) {
    if (x->n_tokens == 1) multiply_one(w, first_row, last_row, x, out, accumulate);
    else multiply_many(w, first_row, last_row, x, scratch, out, out_stride, accumulate);
}
