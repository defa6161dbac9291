// Products of codes in groups with many tokens, for AMX; kernels/cpu/tiles_amx.h says what that is.
//
// 32 rows meet 32 tokens at once, a group of columns at a time. A product of tiles gives the
// integer sums of one group, and these take longer to become floats than to compute: a conversion,
// two to three products and additions each, 16 at a time. While tiles are at work vectors are half
// as fast, so that nothing is won by doing both at once: the sums of a BATCH of groups go to
// memory, and are then added up.
//
// A SLAB of columns of up to MOST_ROWS rows is unpacked, as numbers with a sign, and all tokens
// pass by, 32 at a time: their activations stay in the first-level cache, the rows come from the
// second. Sums wait in scratch for the next slab. What is in use at once, 16 KB of integer sums, 8
// of activations and 8 of rows, should be well below the first-level cache's 48 KB: another thread
// of the core may want some.
#include <string.h>
#include "kernels/cpu/tiles_amx.h"
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/grouped/grouped_avx512.h"
#include "kernels/cpu/grouped/grouped_wide.h"

enum {
    ROWS = 2 * TILE_ROWS,
    PAIR = 2 * TILE_TOKENS,
    SLAB = 256,      // columns
    BATCH = 4,       // groups whose integer sums are in memory
    MOST_ROWS = 256, // whose sums are in scratch, with MOST_PAIRS pairs of blocks of tokens
    MOST_PAIRS = 16,
    MOST_GROUPS = SLAB / 16,
};

// 16 rows of a slab, unpacked.
typedef struct panel {
    int8_t codes[SLAB * TILE_ROWS]; // [columns / 4][16][4]
    float scales[MOST_GROUPS * TILE_ROWS], minima[MOST_GROUPS * TILE_ROWS];
} panel;

typedef struct scratch {
    panel panels[MOST_ROWS / TILE_ROWS];
    int32_t integers[BATCH][PAIR * ROWS];
    int32_t bias[PAIR * TILE_ROWS];
    float sums[MOST_ROWS / ROWS][MOST_PAIRS][PAIR * ROWS];
} scratch;

// ---- Weights -----------------------------------------------------------------------------------

typedef struct product {
    const tern_grouped_matrix *w;
    const tern_grouped_rows *x;
    const tern_product *to;
    wide_layout l;
    scratch *s;
    int zero;       // the code for 0
    bool is_signed; // code - zero is an int8; else codes stay as they are
    bool is_narrow;
    size_t per_unit, shift; // groups: 1, 2 or 4; its logarithm
} product;

// Whether all numbers are in -128..127.
static bool fit_int8(const tern_grouped_matrix *w) {
    int most = (1 << w->bits) - 1;
    if (w->has_table) most = 0;
    for (int i = 0; i < 16 && w->has_table; i++) most = w->table[i] > most ? w->table[i] : most;
    return w->zero <= 128 && most - w->zero <= 127;
}

GROUPED_INLINE void unpack_unit(const uint8_t *codes, code_kind kind, __m512i table, __m512i zero,
                                int8_t *to) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(to + 64 * i, _mm512_sub_epi8(step_codes(codes, i, kind, table), zero));
}

// Units [first, end) of a block of 16 rows.
GROUPED_INLINE void unpack_kind(const product *p, const uint8_t *block, size_t first, size_t end,
                                panel *to, code_kind kind) {
    const wide_layout *l = &p->l;
    const __m512i table = load_table(p->w);
    const __m512i zero = _mm512_set1_epi8((char)(p->is_signed ? p->zero : 0));
    wide_walk at = wide_start(l, block);
    at.unit += first * l->unit_bytes;
    if (at.each) {
        at.front += first / at.each * l->entry_bytes;
        at.left = at.each - first % at.each;
    }
    for (size_t u = 0; u < end - first; u++, wide_next(&at, l)) {
        const size_t group = u * p->per_unit * TILE_ROWS;
        fetch(at.unit, l->unit_bytes);
        wide_scales(p->w, l, &at, p->per_unit, to->scales + group, to->minima + group);
        unpack_unit(at.unit + l->sub_bytes, kind, table, zero, to->codes + u * TILE_BYTES);
    }
}

static void unpack(const product *p, size_t row, size_t first, size_t end, panel *to) {
    const uint8_t *block = p->w->data + row / TERN_GROUPED_ROWS * p->w->block_bytes;
    switch (kind_of(p->w)) {
    case CODES_1: unpack_kind(p, block, first, end, to, CODES_1); break;
    case CODES_2: unpack_kind(p, block, first, end, to, CODES_2); break;
    case CODES_4: unpack_kind(p, block, first, end, to, CODES_4); break;
    case CODES_TABLE: unpack_kind(p, block, first, end, to, CODES_TABLE); break;
    case CODES_5: unpack_kind(p, block, first, end, to, CODES_5); break;
    case CODES_6: unpack_kind(p, block, first, end, to, CODES_6); break;
    case CODES_8: unpack_kind(p, block, first, end, to, CODES_8); break;
    }
}

// ---- Products ----------------------------------------------------------------------------------

// A pair of blocks of tokens, from the first unit of a slab on.
typedef struct pair {
    size_t n[2]; // tokens of each; the second may have none
    const int8_t *q[2];
    const float *scale[2], *minus_scaled[2];
    const int32_t *minus[2];
    const panel *panels; // two
    float *sums;         // [PAIR][ROWS]
    bool is_first;       // of the slabs
} pair;

// Codes without a sign: sums begin with -zero times the group's activations.
static void set_bias(const product *p, const pair *t, size_t unit, size_t part) {
    for (size_t b = 0; b < 2; b++) {
        const int32_t *minus = t->minus[b] + (unit * TERN_GROUP_PARTS + part) * t->n[b];
        for (size_t i = 0; i < t->n[b]; i++)
            _mm512_store_si512(p->s->bias + (b * TILE_TOKENS + i) * TILE_ROWS,
                               _mm512_set1_epi32(p->zero * minus[i]));
    }
    tern_tiles_fence();
}

// Sums of 32 bits, [PAIR][ROWS].
#define STORE(i, to)                                                                               \
    _tile_stored(i, (to) + (i) / 2 * (TILE_TOKENS * ROWS) + (i) % 2 * TILE_ROWS, 128)

GROUPED_INLINE void store_second(const product *p, size_t group) {
    int32_t *sums = p->s->integers[group % BATCH];
    STORE(2, sums);
    STORE(3, sums);
}

// The integer sums of a slab's group, to memory; tile 2 i + h has block i's with half h of the
// rows. Those of the second block are stored with the next group, if `goes_on`: a tile that is
// stored right after its product keeps the next product waiting. So does one that is emptied
// between products, where another thread of the core is at work: two at once.
GROUPED_INLINE void multiply_group(const product *p, const pair *t, size_t group, bool goes_on) {
    const size_t unit = group >> p->shift, part = group & (p->per_unit - 1), depth = p->l.group;
    const int8_t *a = t->q[0] + unit * t->n[0] * WIDE_UNIT + part * depth;
    const int8_t *a2 = t->q[1] + unit * t->n[1] * WIDE_UNIT + part * depth;
    const int8_t *b = t->panels[0].codes + group * depth * TILE_ROWS;
    const int8_t *b2 = t->panels[1].codes + group * depth * TILE_ROWS;
    int32_t *sums = p->s->integers[group % BATCH];
    const bool is_pair = t->n[1] > 0, has_bias = !p->is_signed && p->zero;
    if (has_bias) set_bias(p, t, unit, part);
#define BEGIN(i)                                                                                   \
    do {                                                                                           \
        if (has_bias)                                                                              \
            _tile_loadd(i, p->s->bias + (i) / 2 * (TILE_TOKENS * TILE_ROWS), 64);                  \
        else                                                                                       \
            _tile_zero(i);                                                                         \
    } while (0)
#define MULTIPLY(i, a, b)                                                                          \
    do {                                                                                           \
        if (p->is_signed)                                                                          \
            _tile_dpbssd(i, a, b);                                                                 \
        else                                                                                       \
            _tile_dpbsud(i, a, b);                                                                 \
    } while (0)
    BEGIN(0);
    BEGIN(1);
    _tile_loadd(4, a, WIDE_UNIT);
    _tile_loadd(6, b, 64);
    MULTIPLY(0, 4, 6);
    _tile_loadd(7, b2, 64);
    MULTIPLY(1, 4, 7);
    if (is_pair) {
        if (goes_on) store_second(p, group - 1);
        BEGIN(2);
        BEGIN(3);
        _tile_loadd(5, a2, WIDE_UNIT);
        MULTIPLY(2, 5, 6);
        MULTIPLY(3, 5, 7);
    }
    STORE(0, sums);
    STORE(1, sums);
#undef BEGIN
#undef MULTIPLY
}

// Sums of narrow codes round each product by itself.
GROUPED_INLINE __m512 add_scaled(__m512 factor, __m512 v, __m512 sum, bool is_narrow) {
    return is_narrow ? _mm512_add_ps(sum, _mm512_mul_ps(factor, v))
                     : _mm512_fmadd_ps(factor, v, sum);
}

// What is done with a group's sums; a constant wherever it is passed.
typedef enum form { NARROW, WIDE, WITH_MINIMA } form;

// Some groups' integer sums, of n tokens (a constant) of block b from `token` on, to the sums,
// which stay in registers, by name, for the reason given in grouped_wide_avx512.c.
GROUPED_INLINE void add_up(const product *p, const pair *t, size_t first, size_t end, size_t b,
                           size_t token, int n, form kind) {
    float *sums = t->sums + (b * TILE_TOKENS + token) * ROWS;
    const __mmask16 goes_on = t->is_first && first == 0 ? 0 : 0xFFFF;
    const bool is_narrow = kind == NARROW;
#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define BEGIN(i)                                                                                   \
    __m512 a##i = _mm512_maskz_load_ps((i) < n ? goes_on : 0, sums + ((i) < n ? (i) : 0) * ROWS);  \
    __m512 b##i =                                                                                  \
        _mm512_maskz_load_ps((i) < n ? goes_on : 0, sums + ((i) < n ? (i) : 0) * ROWS + 16);
#define ADD(i)                                                                                     \
    if ((i) < n) {                                                                                 \
        __m512 s = _mm512_set1_ps(scale[i]);                                                       \
        __m512 v = _mm512_cvtepi32_ps(_mm512_load_si512(acc + (i)*ROWS));                          \
        a##i = add_scaled(factor_a, _mm512_mul_ps(v, s), a##i, is_narrow);                         \
        v = _mm512_cvtepi32_ps(_mm512_load_si512(acc + (i)*ROWS + 16));                            \
        b##i = add_scaled(factor_b, _mm512_mul_ps(v, s), b##i, is_narrow);                         \
    }
#define ADD_MINIMUM(i)                                                                             \
    if ((i) < n) {                                                                                 \
        __m512 m = _mm512_set1_ps(minus[i]);                                                       \
        a##i = _mm512_fmadd_ps(factor_a, m, a##i);                                                 \
        b##i = _mm512_fmadd_ps(factor_b, m, b##i);                                                 \
    }
#define END(i)                                                                                     \
    if ((i) < n) {                                                                                 \
        _mm512_store_ps(sums + (i)*ROWS, a##i);                                                    \
        _mm512_store_ps(sums + (i)*ROWS + 16, b##i);                                               \
    }
    EACH_TOKEN(BEGIN)
    for (size_t g = first; g < end; g++) {
        const size_t unit = g >> p->shift, part = g & (p->per_unit - 1);
        const float *scale = t->scale[b] + unit * t->n[b] + token;
        const float *minus =
            t->minus_scaled[b] + (unit * TERN_GROUP_PARTS + part) * t->n[b] + token;
        const int32_t *acc = p->s->integers[g % BATCH] + (b * TILE_TOKENS + token) * ROWS;
        __m512 factor_a = _mm512_load_ps(t->panels[0].scales + 16 * g);
        __m512 factor_b = _mm512_load_ps(t->panels[1].scales + 16 * g);
        EACH_TOKEN(ADD)
        if (kind != WITH_MINIMA) continue;
        factor_a = _mm512_load_ps(t->panels[0].minima + 16 * g);
        factor_b = _mm512_load_ps(t->panels[1].minima + 16 * g);
        EACH_TOKEN(ADD_MINIMUM)
    }
    EACH_TOKEN(END)
#undef BEGIN
#undef ADD
#undef ADD_MINIMUM
#undef END
#undef EACH_TOKEN
}

// A quarter of a pair's tokens.
GROUPED_INLINE void add_up_quarter(const product *p, const pair *t, size_t first, size_t end,
                                   size_t quarter, form kind) {
    const size_t b = quarter / 2, token = quarter % 2 * 8;
    if (token + 8 <= t->n[b]) {
        add_up(p, t, first, end, b, token, 8, kind);
        return;
    }
    for (size_t i = token; i < t->n[b]; i++) add_up(p, t, first, end, b, i, 1, kind);
}

GROUPED_INLINE void multiply_slab(const product *p, const pair *t, size_t n_groups, form kind) {
    for (size_t first = 0, end; first < n_groups; first = end) {
        end = tern_grouped_min(first + BATCH, n_groups);
        for (size_t g = first; g < end; g++) multiply_group(p, t, g, g > first);
        if (t->n[1]) store_second(p, end - 1);
        for (size_t k = 0; k < 4; k++) add_up_quarter(p, t, first, end, k, kind);
    }
}

static void multiply_pair(const product *p, const pair *t, size_t n_groups) {
    if (p->is_narrow)
        multiply_slab(p, t, n_groups, NARROW);
    else if (p->w->has_minima)
        multiply_slab(p, t, n_groups, WITH_MINIMA);
    else
        multiply_slab(p, t, n_groups, WIDE);
}

// ---- Rows and tokens ---------------------------------------------------------------------------

// The pair of blocks from `token` on, from unit `unit` on.
static pair pair_at(const product *p, size_t token, size_t unit) {
    const tern_grouped_rows *x = p->x;
    pair t = {.is_first = unit == 0};
    for (size_t b = 0; b < 2 && token < x->n_tokens; b++, token += x->block) {
        const size_t n = tern_grouped_min(x->n_tokens - token, x->block);
        const size_t at = token * (p->w->n_in / WIDE_UNIT) + unit * n;
        const size_t parts = at * TERN_GROUP_PARTS + wide_first_part(&p->l) * n;
        t.n[b] = n;
        t.q[b] = x->q + at * WIDE_UNIT;
        t.scale[b] = x->scale + at;
        t.minus[b] = x->minus + parts;
        t.minus_scaled[b] = x->minus_scaled + parts;
    }
    return t;
}

// Results go to as many places as there are tokens, none of them in a cache.
static void fetch_output(const product *p, const pair *t, size_t row, size_t token) {
    const size_t n = t->n[0] + t->n[1];
    for (size_t i = 0; i < n; i++) {
        const float *y = p->to->out + (token + i) * p->to->stride + row;
        __asm__ volatile("prefetchw %0" ::"m"(y[0]));
        __asm__ volatile("prefetchw %0" ::"m"(y[16]));
    }
}

static void put_pair(const product *p, const pair *t, size_t row, size_t token) {
    const __mmask16 mask_a = rows_left(row, p->to->last), mask_b = rows_left(row + 16, p->to->last);
    for (size_t b = 0; b < 2; b++)
        for (size_t i = 0; i < t->n[b]; i++) {
            const float *sums = t->sums + (b * TILE_TOKENS + i) * ROWS;
            float *y = p->to->out + (token + b * p->x->block + i) * p->to->stride + row;
            put_16(y, _mm512_load_ps(sums), mask_a, p->to->accumulate);
            if (mask_b) put_16(y + 16, _mm512_load_ps(sums + 16), mask_b, p->to->accumulate);
        }
}

// Rows [row, end) times tokens [first, last).
static void multiply_rows(const product *p, size_t row, size_t end, size_t first, size_t last) {
    const size_t n_units = p->w->n_in / WIDE_UNIT, each = SLAB / WIDE_UNIT;
    size_t shape[2] = {0, 0};
    for (size_t unit = 0; unit < n_units; unit += each) {
        const size_t n = tern_grouped_min(each, n_units - unit);
        panel *to = p->s->panels;
        for (size_t r = row; r < end; r += TILE_ROWS) unpack(p, r, unit, unit + n, to++);
        tern_tiles_fence();
        for (size_t token = first, k = 0; token < last; token += 2 * p->x->block, k++) {
            pair t = pair_at(p, token, unit);
            if (memcmp(shape, t.n, sizeof shape) != 0) {
                memcpy(shape, t.n, sizeof shape);
                tern_tiles_begin(t.n[0], t.n[1], p->l.group / 4);
            }
            for (size_t r = row; r < end; r += ROWS) {
                t.sums = p->s->sums[(r - row) / ROWS][k];
                t.panels = &p->s->panels[(r - row) / TILE_ROWS];
                if (unit + n == n_units) fetch_output(p, &t, r, token);
                multiply_pair(p, &t, n * p->per_unit);
                if (unit + n == n_units) put_pair(p, &t, r, token);
            }
        }
    }
}

static void multiply_many(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *memory,
                          const tern_product *to) {
    const bool is_narrow = !tern_grouped_is_wide(w);
    product p = {.w = w,
                 .x = x,
                 .to = to,
                 .l = tern_grouped_wide_layout(w),
                 .s = memory,
                 .zero = is_narrow ? 1 : w->zero,
                 .is_signed = fit_int8(w),
                 .is_narrow = is_narrow};
    p.per_unit = WIDE_UNIT / p.l.group;
    p.shift = p.per_unit / 2;
    const size_t tokens = 2 * x->block * MOST_PAIRS;
    for (size_t t = 0; t < x->n_tokens; t += tokens)
        for (size_t row = to->first; row < to->last; row += MOST_ROWS)
            multiply_rows(&p, row, tern_grouped_min(row + MOST_ROWS, to->last), t,
                          tern_grouped_min(t + tokens, x->n_tokens));
    tern_tiles_end();
}

static void multiply(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *memory,
                     const tern_product *to) {
    if (x->run == 4)
        tern_grouped_kernels_avx512.multiply(w, x, memory, to);
    else
        multiply_many(w, x, memory, to);
}

const tern_grouped_kernels tern_grouped_kernels_amx = {.name = "amx",
                                                       .block_tokens = 6,
                                                       .few_tokens = 9,
                                                       .tile_tokens = 16,
                                                       .tile_block = 16,
                                                       .tile_run = TERN_GROUP,
                                                       .tile_bytes = sizeof(scratch),
                                                       .multiply = multiply};
