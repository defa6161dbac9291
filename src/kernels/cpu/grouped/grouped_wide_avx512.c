// Products with wide codes for AVX-512 with VNNI, and with narrow ones for many tokens.
//
// One token is bound by memory: codes are unpacked in registers. For several, two blocks of rows
// are unpacked to a byte a code and their scales to floats, in scratch that stays in a cache, and
// multiplied with up to 6 tokens at a time, whose integer sums and sums fit the registers. A
// group's integer sums begin with -zero times the group's activations.
#include <string.h>
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/grouped/grouped_avx512.h"
#include "kernels/cpu/grouped/grouped_wide.h"

enum {
    TOKENS = 6, // of a tile of 32 rows
    MOST = 9,   // of one of 16
};

// ---- One token ---------------------------------------------------------------------------------

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
    size_t part = wide_first_part(l);
    fetch(block, l->front_bytes);
    for (size_t u = 0; u < w->n_in / WIDE_UNIT; u++, wide_next(&at, l), part += TERN_GROUP_PARTS) {
        const uint8_t *codes = at.unit + l->sub_bytes;
        const int8_t *q = x->q + u * WIDE_UNIT;
        const __m512 x_scale = _mm512_set1_ps(x->scale[u]);
        fetch(at.unit, l->unit_bytes);
        wide_scales(w, l, &at, (size_t)n, scale, minimum);
#pragma GCC unroll 4
        for (int g = 0; g < n; g++) {
            __m512i acc = _mm512_set1_epi32(x->minus[part + (size_t)g] * zero);
#pragma GCC unroll 16
            for (int s = g * n_steps; s < (g + 1) * n_steps; s++)
                acc = dot_add(acc, step_codes(codes, s, kind, table), broadcast4(q + 4 * s));
            __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), x_scale);
            sum = _mm512_fmadd_ps(_mm512_load_ps(scale + 16 * g), product, sum);
            if (!w->has_minima) continue;
            sum = _mm512_fmadd_ps(_mm512_load_ps(minimum + 16 * g),
                                  _mm512_set1_ps(x->minus_scaled[part + (size_t)g]), sum);
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

static void multiply_one(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                         const tern_product *to) {
    const wide_layout l = tern_grouped_wide_layout(w);
    const one_fn one = ones[kind_of(w)][l.group == 16 ? 0 : l.group == 32 ? 1 : 2];
    for (size_t row = to->first; row < to->last; row += TERN_GROUPED_ROWS) {
        __m512 sum = one(w, &l, w->data + row / TERN_GROUPED_ROWS * w->block_bytes, x);
        put_16(to->out + row, sum, rows_left(row, to->last), to->accumulate);
    }
}

// ---- Several tokens ----------------------------------------------------------------------------

// Some units of a block as the tile reads them.
typedef struct unpacked {
    const uint8_t *codes; // a byte each: [units][16 steps][16 rows][4], units code_stride apart
    size_t code_stride;
    const float *scales, *minima; // [groups][16]
} unpacked;

GROUPED_INLINE void unpack_codes(const uint8_t *codes, code_kind kind, __m512i table, uint8_t *to) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) _mm512_store_si512(to + 64 * i, step_codes(codes, i, kind, table));
}

// Unpacks the next n_units of a block into scratch, which has room for them.
GROUPED_INLINE unpacked unpack_kind(const tern_grouped_matrix *w, const wide_layout *l,
                                    wide_walk *at, size_t n_units, code_kind kind,
                                    uint8_t *scratch) {
    const size_t n = WIDE_UNIT / l->group;
    const __m512i table = load_table(w);
    float *scales = (float *)(scratch + n_units * WIDE_UNPACKED);
    float *minima = scales + n_units * n * 16;
    const uint8_t *first = at->unit + l->sub_bytes;
    for (size_t u = 0; u < n_units; u++, wide_next(at, l)) {
        fetch(at->unit, l->unit_bytes);
        wide_scales(w, l, at, n, scales + u * n * 16, minima + u * n * 16);
        if (kind != CODES_8)
            unpack_codes(at->unit + l->sub_bytes, kind, table, scratch + u * WIDE_UNPACKED);
    }
    bool lie = kind == CODES_8; // they are read where they lie
    return (unpacked){lie ? first : scratch, lie ? l->unit_bytes : (size_t)WIDE_UNPACKED, scales,
                      minima};
}

static unpacked unpack(const tern_grouped_matrix *w, const wide_layout *l, wide_walk *at,
                       size_t n_units, uint8_t *scratch) {
    switch (kind_of(w)) {
    case CODES_1: return unpack_kind(w, l, at, n_units, CODES_1, scratch);
    case CODES_2: return unpack_kind(w, l, at, n_units, CODES_2, scratch);
    case CODES_4: return unpack_kind(w, l, at, n_units, CODES_4, scratch);
    case CODES_TABLE: return unpack_kind(w, l, at, n_units, CODES_TABLE, scratch);
    case CODES_5: return unpack_kind(w, l, at, n_units, CODES_5, scratch);
    case CODES_6: return unpack_kind(w, l, at, n_units, CODES_6, scratch);
    default: return unpack_kind(w, l, at, n_units, CODES_8, scratch);
    }
}

// Sums of narrow codes round each product by itself.
GROUPED_INLINE __m512 add_scaled(__m512 factor, __m512 product, __m512 sum, bool is_narrow) {
    return is_narrow ? _mm512_add_ps(sum, _mm512_mul_ps(factor, product))
                     : _mm512_fmadd_ps(factor, product, sum);
}

#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

typedef struct tile_args {
    unpacked a, b; // blocks of rows
    __mmask16 mask_a, mask_b;
    size_t n_units, n_steps, first_part; // n_steps: of a group
    int32_t zero;
    bool has_minima, accumulate;
    bool is_first, is_last; // units of the rows
    // Activations of a block of tokens, from the first of the units on.
    const int8_t *q;
    const float *scale;
    const int32_t *minus; // of the first group
    const float *minus_scaled;
    float *out; // of the first row and token
    size_t out_stride;
    float (*sums)[32]; // of each token, unless these are all units
} tile_args;

// A tile's results are written to as many places as it has tokens, none of them in a cache: fetches
// them while the tile is computed.
GROUPED_INLINE void fetch_output(const float *out, size_t stride, int n, bool has_b) {
    for (int i = 0; i < n; i++, out += stride) {
        __asm__ volatile("prefetchw %0" ::"m"(out[0]));
        if (has_b) __asm__ volatile("prefetchw %0" ::"m"(out[16]));
    }
}

// n tokens times 32 rows, or 16 if there is no block b; n and has_b are constants. All sums stay in
// registers, by name, since gcc 12 keeps arrays in memory: a store takes as long as two products.
GROUPED_INLINE void tile(const tile_args *t, int n, bool has_b, bool is_narrow) {
    const int8_t *x = t->q;
    const __m512i zero = _mm512_set1_epi32(t->zero);
    const __mmask16 goes_on = t->is_first ? 0 : 0xFFFF;
    float(*const sums)[32] = t->sums;
    const size_t n_steps = is_narrow ? 16 : t->n_steps;
    size_t at = 0; // of a group's scales
#define BEGIN(i)                                                                                   \
    __m512 sum_a##i = _mm512_maskz_load_ps((i) < n ? goes_on : 0, sums[(i) < n ? (i) : 0]);        \
    __m512 sum_b##i =                                                                              \
        _mm512_maskz_load_ps((i) < n && has_b ? goes_on : 0, sums[(i) < n ? (i) : 0] + 16);
    EACH_TOKEN(BEGIN)
    if (t->is_last) fetch_output(t->out, t->out_stride, n, has_b);
    for (size_t u = 0; u < t->n_units; u++) {
        const uint8_t *a = t->a.codes + u * t->a.code_stride;
        const uint8_t *b = t->b.codes + u * t->b.code_stride;
        const float *scale = t->scale + u * (size_t)n;
        const int32_t *minus = t->minus + u * TERN_GROUP_PARTS * (size_t)n;
        const float *minus_scaled = t->minus_scaled + u * TERN_GROUP_PARTS * (size_t)n;
        for (size_t g = 0; g < 16; g += n_steps, at += 16, minus += n, minus_scaled += n) {
#define DECLARE(i) __m512i a##i = _mm512_setzero_si512(), b##i = a##i;
#define TAKE_ZERO(i)                                                                               \
    if ((i) < n) a##i = b##i = _mm512_mullo_epi32(_mm512_set1_epi32(minus[i]), zero);
#define TAKE_ONE(i)                                                                                \
    if ((i) < n) a##i = b##i = _mm512_set1_epi32(minus[i]);
#define MULTIPLY(i)                                                                                \
    if ((i) < n) {                                                                                 \
        __m512i q = broadcast4(x + (i)*4);                                                         \
        a##i = dot_add(a##i, wa, q);                                                               \
        if (has_b) b##i = dot_add(b##i, wb, q);                                                    \
    }
#define ADD_UP(i)                                                                                  \
    if ((i) < n) {                                                                                 \
        __m512 s = _mm512_set1_ps(scale[i]);                                                       \
        __m512 pa = _mm512_mul_ps(_mm512_cvtepi32_ps(a##i), s);                                    \
        sum_a##i = add_scaled(factor_a, pa, sum_a##i, is_narrow);                                  \
        if (has_b) {                                                                               \
            pa = _mm512_mul_ps(_mm512_cvtepi32_ps(b##i), s);                                       \
            sum_b##i = add_scaled(factor_b, pa, sum_b##i, is_narrow);                              \
        }                                                                                          \
    }
#define ADD_MINIMUM(i)                                                                             \
    if ((i) < n) {                                                                                 \
        __m512 m = _mm512_set1_ps(minus_scaled[i]);                                                \
        sum_a##i = _mm512_fmadd_ps(factor_a, m, sum_a##i);                                         \
        if (has_b) sum_b##i = _mm512_fmadd_ps(factor_b, m, sum_b##i);                              \
    }
            EACH_TOKEN(DECLARE)
            if (is_narrow) {
                EACH_TOKEN(TAKE_ONE)
            } else if (t->zero) {
                EACH_TOKEN(TAKE_ZERO)
            }
            for (size_t k = 0; k < n_steps; k += 4)
#pragma GCC unroll 4
                for (int s = 0; s < 4; s++, a += 64, b += 64, x += n * 4) {
                    __m512i wa = _mm512_loadu_si512(a), wb = has_b ? _mm512_loadu_si512(b) : wa;
                    EACH_TOKEN(MULTIPLY)
                }
            __m512 factor_a = _mm512_loadu_ps(t->a.scales + at);
            __m512 factor_b = has_b ? _mm512_loadu_ps(t->b.scales + at) : factor_a;
            EACH_TOKEN(ADD_UP)
            if (is_narrow || !t->has_minima) continue;
            factor_a = _mm512_loadu_ps(t->a.minima + at);
            if (has_b) factor_b = _mm512_loadu_ps(t->b.minima + at);
            EACH_TOKEN(ADD_MINIMUM)
        }
    }
#define PUT(i)                                                                                     \
    if ((i) < n && !t->is_last) {                                                                  \
        _mm512_store_ps(sums[i], sum_a##i);                                                        \
        if (has_b) _mm512_store_ps(sums[i] + 16, sum_b##i);                                        \
    } else if ((i) < n) {                                                                          \
        float *y = t->out + (i)*t->out_stride;                                                     \
        put_16(y, sum_a##i, t->mask_a, t->accumulate);                                             \
        if (has_b) put_16(y + 16, sum_b##i, t->mask_b, t->accumulate);                             \
    }
    EACH_TOKEN(PUT)
}

typedef void (*tile_fn)(const tile_args *t);
#define TILE_OF(n, has_b, is_narrow)                                                               \
    static void tile_##n##_##has_b##is_narrow(const tile_args *t) { tile(t, n, has_b, is_narrow); }
#define EACH_TILE(X, has_b, is_narrow)                                                             \
    X(1, has_b, is_narrow)                                                                         \
    X(2, has_b, is_narrow)                                                                         \
    X(3, has_b, is_narrow)                                                                         \
    X(4, has_b, is_narrow)                                                                         \
    X(5, has_b, is_narrow)                                                                         \
    X(6, has_b, is_narrow)
#define MORE_TILES(X, is_narrow)     X(7, 0, is_narrow) X(8, 0, is_narrow) X(9, 0, is_narrow)
#define POINTER(n, has_b, is_narrow) tile_##n##_##has_b##is_narrow,
EACH_TILE(TILE_OF, 1, 0)
EACH_TILE(TILE_OF, 0, 0)
MORE_TILES(TILE_OF, 0)
EACH_TILE(TILE_OF, 1, 1)
EACH_TILE(TILE_OF, 0, 1)
MORE_TILES(TILE_OF, 1)
// For wide and for narrow codes.
static const tile_fn tiles_32[2][TOKENS] = {{EACH_TILE(POINTER, 1, 0)}, {EACH_TILE(POINTER, 1, 1)}};
static const tile_fn tiles_16[2][MOST] = {{EACH_TILE(POINTER, 0, 0) MORE_TILES(POINTER, 0)},
                                          {EACH_TILE(POINTER, 0, 1) MORE_TILES(POINTER, 1)}};

// Sets t to a block of tokens' activations, from `unit` on. Returns how many tokens it has.
static size_t set_tokens(const tern_grouped_matrix *w, const tern_grouped_rows *x, size_t token,
                         size_t unit, tile_args *t) {
    const size_t n = tern_grouped_min(x->n_tokens - token, x->block);
    const size_t at = token * (w->n_in / WIDE_UNIT) + unit * n;
    t->q = x->q + at * WIDE_UNIT;
    t->scale = x->scale + at;
    t->minus = x->minus + at * TERN_GROUP_PARTS + t->first_part * n;
    t->minus_scaled = x->minus_scaled + (t->minus - x->minus);
    return n;
}

typedef struct product {
    const tern_grouped_matrix *w;
    const tern_grouped_rows *x;
    const wide_layout *l;
    uint8_t *scratch;
    const tern_product *to;
} product;

// At most a block of tokens: memory is the limit. 16 rows in their order, a few units at a time,
// which are multiplied while they are in the first-level cache.
static void multiply_few(const product *p, tile_args *t) {
    enum { SLAB = 4 };
    const tern_grouped_matrix *w = p->w;
    const wide_layout *l = p->l;
    const size_t last_row = p->to->last;
    const bool is_narrow = !tern_grouped_is_wide(w);
    const size_t n_units = w->n_in / WIDE_UNIT;
    for (size_t row = p->to->first; row < last_row; row += 16) {
        wide_walk at = wide_start(l, w->data + row / TERN_GROUPED_ROWS * w->block_bytes);
        fetch(at.front, l->front_bytes);
        t->mask_a = rows_left(row, last_row);
        t->out = p->to->out + row;
        for (size_t u = 0; u < n_units; u += SLAB) {
            t->n_units = tern_grouped_min(SLAB, n_units - u);
            t->is_first = u == 0;
            t->is_last = u + SLAB >= n_units;
            t->a = unpack(w, l, &at, t->n_units, p->scratch);
            size_t n = set_tokens(w, p->x, 0, u, t);
            tiles_16[is_narrow][n - 1](t);
        }
    }
}

static void multiply_many(const product *p, tile_args *t) {
    const tern_grouped_matrix *w = p->w;
    const tern_grouped_rows *x = p->x;
    const wide_layout *l = p->l;
    const size_t last_row = p->to->last;
    const bool is_narrow = !tern_grouped_is_wide(w);
    // While two blocks are multiplied, the next two are fetched: a share with each tile.
    const size_t n_tiles = (x->n_tokens + x->block - 1) / x->block;
    const size_t share = (2 * w->block_bytes / n_tiles + 63) / 64 * 64;
    t->n_units = w->n_in / WIDE_UNIT;
    t->is_first = t->is_last = true;
    for (size_t row = p->to->first; row < last_row; row += 32) {
        const uint8_t *block = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
        wide_walk a = wide_start(l, block), b = wide_start(l, block + w->block_bytes);
        fetch(a.front, l->front_bytes);
        fetch(b.front, l->front_bytes);
        t->mask_a = rows_left(row, last_row);
        t->mask_b = rows_left(row + 16, last_row);
        t->a = unpack(w, l, &a, t->n_units, p->scratch);
        if (t->mask_b)
            t->b =
                unpack(w, l, &b, t->n_units, p->scratch + tern_grouped_unpacked_bytes(w, w->n_in));
        const uint8_t *next = block + 2 * w->block_bytes;
        for (size_t i = 0; i < x->n_tokens; i += x->block, next += share) {
            size_t n = set_tokens(w, x, i, 0, t);
            for (size_t k = 0; k < share; k += 64)
                _mm_prefetch((const char *)next + k, _MM_HINT_T1);
            t->out = p->to->out + i * t->out_stride + row;
            if (t->mask_b)
                tiles_32[is_narrow][n - 1](t);
            else
                tiles_16[is_narrow][n - 1](t);
        }
    }
}

static void multiply_several(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                             uint8_t *scratch, const tern_product *to) {
    const wide_layout l = tern_grouped_wide_layout(w);
    _Alignas(64) float sums[MOST][32];
    tile_args t = {.n_steps = l.group / 4,
                   .first_part = wide_first_part(&l),
                   .zero = w->zero,
                   .has_minima = w->has_minima,
                   .accumulate = to->accumulate,
                   .out_stride = to->stride,
                   .sums = sums};
    const product p = {w, x, &l, scratch, to};
    if (x->n_tokens <= x->block)
        multiply_few(&p, &t);
    else
        multiply_many(&p, &t);
}

void tern_grouped_wide_avx512(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                              void *scratch, const tern_product *to) {
    if (x->n_tokens == 1)
        multiply_one(w, x, to);
    else
        multiply_several(w, x, scratch, to);
}
