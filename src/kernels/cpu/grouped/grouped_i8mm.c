// Products with codes in groups for ARM processors with products of int8 matrices (ARMv8.6): smmla
// adds the products of two rows and two tokens, eight columns of each, to four int32 sums.
//
// Sixteen rows are unpacked as for dot products, but [n_in / 8][row][8], and meet tokens that lie
// as [n_in / 8][token][8]. Eight rows and four tokens are multiplied at once, so that all sums stay
// in registers. Fewer tokens are left to dot products.
#define UNPACKS_WIDE
#include "kernels/cpu/grouped/grouped_neon.inl"

enum { VECTORS = 4, PAIRS = 2, TOKENS = 2 * PAIRS, ROWS = 8 };

#include "kernels/cpu/grouped/grouped_lanes.inl"

// A unit of codes from [step of 4 columns][16 rows][4] to [step of 8][16 rows][8].
static void pair_steps(uint8_t *to, const uint8_t *from) {
    for (const uint8_t *end = from + WIDE_UNPACKED; from < end; from += 128, to += 128) {
        uint32x4_t w[8];
        for (int v = 0; v < 8; v++) w[v] = vreinterpretq_u32_u8(vld1q_u8(from + 16 * v));
        for (int v = 0; v < 4; v++) {
            vst1q_u8(to + 32 * v, vreinterpretq_u8_u32(vzip1q_u32(w[v], w[4 + v])));
            vst1q_u8(to + 32 * v + 16, vreinterpretq_u8_u32(vzip2q_u32(w[v], w[4 + v])));
        }
    }
}

// ---- Eight rows and up to four tokens ----------------------------------------------------------

typedef struct tile_args {
    const uint8_t *codes;         // of the first row
    const float *scales, *minima; // [group][16], of the first row
    size_t n_units, per_unit;     // of 64 columns; groups in each
    size_t first_part;            // of the sums of numbers, see wide_first_part
    size_t shared;                // units that share scales: of narrow codes of 128, two
    int32_t zero;
    const int8_t *q; // of the first token, as are:
    const float *scale, *minus_scaled;
    const int32_t *minus;
} tile_args;

// Narrow codes, which round the product with the scale; wide ones without minima, and with them.
typedef enum tile_kind { NARROW, PLAIN, WITH_MINIMA } tile_kind;

typedef struct pair_sums { // of two tokens, in turn, and rows 0 and 1, 2 and 3 and so on
    int32x4_t r[4];
} pair_sums;

// Pair p of n tokens; the last one alone is taken twice.
GROUPED_INLINE int8x16_t load_pair(const int8_t *x, int p, int n) {
    if (2 * p + 1 < n) return vld1q_s8(x + 16 * p);
    int8x8_t one = vld1_s8(x + 16 * p);
    return vcombine_s8(one, one);
}

GROUPED_INLINE pair_sums first_sums(const int32_t *minus, int p, int n, int32_t zero) {
    int32x2_t first = vdup_n_s32(minus[2 * p] * zero);
    int32x2_t second = 2 * p + 1 < n ? vdup_n_s32(minus[2 * p + 1] * zero) : first;
    int32x4_t both = vcombine_s32(first, second);
    return (pair_sums){{both, both, both, both}};
}

// The integer sums of a group of n_steps times 8 columns.
GROUPED_INLINE void multiply_steps(pair_sums s[PAIRS], const uint8_t *w, const int8_t *x,
                                   size_t n_steps, int n) {
#pragma GCC unroll 1
    for (; n_steps; n_steps -= 2)
#pragma GCC unroll 2
        for (int twice = 0; twice < 2; twice++, w += 128, x += 8 * n) {
            int8x16_t code[4];
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) code[r] = vreinterpretq_s8_u8(vld1q_u8(w + 16 * r));
#pragma GCC unroll 2
            for (int p = 0; 2 * p < n; p++) {
                const int8x16_t pair = load_pair(x, p, n);
#pragma GCC unroll 4
                for (int r = 0; r < 4; r++) s[p].r[r] = vmmlaq_s32(s[p].r[r], pair, code[r]);
            }
        }
}

typedef struct row_sums {
    float32x4_t v[2];
} row_sums;

typedef struct factors { // of a token's group
    float scale, minus_scaled;
} factors;

// Adds a group's integer sums of one token, four rows at a time.
GROUPED_INLINE void add_group(row_sums *sum, const int32x4_t dot[2], const float *scales,
                              const float *minima, const factors x, tile_kind kind) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        float32x4_t product = vmulq_n_f32(vcvtq_f32_s32(dot[v]), x.scale);
        float32x4_t scale = vld1q_f32(scales + 4 * v);
        if (kind == NARROW) {
            sum->v[v] = vaddq_f32(sum->v[v], vmulq_f32(scale, product));
            continue;
        }
        sum->v[v] = vfmaq_f32(sum->v[v], scale, product);
        if (kind == WITH_MINIMA)
            sum->v[v] = vfmaq_n_f32(sum->v[v], vld1q_f32(minima + 4 * v), x.minus_scaled);
    }
}

// Token t's sums, two registers of four rows.
GROUPED_INLINE void take_token(int32x4_t dot[2], const pair_sums *s, int t) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        int64x2_t a = vreinterpretq_s64_s32(s[t / 2].r[2 * v]);
        int64x2_t b = vreinterpretq_s64_s32(s[t / 2].r[2 * v + 1]);
        dot[v] = vreinterpretq_s32_s64(t % 2 ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
    }
}

// n and kind are constants.
GROUPED_INLINE void tile(row_sums sum[TOKENS], const tile_args *a, int n, tile_kind kind) {
    const size_t tokens = (size_t)n, n_steps = 8 / a->per_unit;
    const uint8_t *w = a->codes;
    const int8_t *x = a->q;
    const float *scales = a->scales, *minima = a->minima;
    row_sums all[TOKENS];
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) all[t].v[0] = all[t].v[1] = vdupq_n_f32(0);
    for (size_t u = 0; u < a->n_units; u++) {
        const float *x_scale = a->scale + u * tokens;
        size_t part = (u * TERN_GROUP_PARTS + a->first_part) * tokens;
        if (kind == NARROW) scales = a->scales + 16 * (u / a->shared);
        for (size_t k = 0; k < a->per_unit; k++, part += tokens, scales += 16, minima += 16) {
            pair_sums s[PAIRS];
#pragma GCC unroll 2
            for (int p = 0; 2 * p < n; p++) s[p] = first_sums(a->minus + part, p, n, a->zero);
            multiply_steps(s, w, x, n_steps, n);
            w += 128 * n_steps, x += 8 * n_steps * tokens;
#pragma GCC unroll 4
            for (int t = 0; t < n; t++) {
                int32x4_t dot[2];
                take_token(dot, s, t);
                const factors by = {x_scale[t],
                                    kind == WITH_MINIMA ? a->minus_scaled[part + (size_t)t] : 0};
                add_group(&all[t], dot, scales, minima, by, kind);
            }
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < n; t++) sum[t] = all[t];
}

static void any_tile(row_sums sum[TOKENS], const tile_args *a, size_t n, tile_kind kind) {
    switch (n) {
#define TILE(n)                                                                                    \
    case n:                                                                                        \
        if (kind == NARROW)                                                                        \
            tile(sum, a, n, NARROW);                                                               \
        else if (kind == PLAIN)                                                                    \
            tile(sum, a, n, PLAIN);                                                                \
        else                                                                                       \
            tile(sum, a, n, WITH_MINIMA);                                                          \
        break;
        TILE(1)
        TILE(2)
        TILE(3)
        TILE(4)
#undef TILE
    }
}

// ---- Rows and tokens ---------------------------------------------------------------------------

// A block of rows: codes, then scales, then minima, as tern_grouped_unpacked_bytes has room for.
static void unpack_block(const wide_job *j, const uint8_t *block, uint8_t *to, float *scales,
                         float *minima) {
    const size_t n_units = j->w->n_in / WIDE_UNIT;
    if (!tern_grouped_is_wide(j->w)) {
        unpack_narrow(j->w, block, to, scales);
        for (size_t u = 0; u < n_units; u++)
            pair_steps(to + u * WIDE_UNPACKED, to + u * WIDE_UNPACKED);
        return;
    }
    wide_walk at = wide_start(&j->l, block);
    const uint8x16_t top = vdupq_n_u8(128);
    for (size_t u = 0; u < n_units; u++, wide_next(&at, &j->l), to += WIDE_UNPACKED) {
        const size_t first = u * j->n_groups * 16;
        __builtin_prefetch(at.unit + FETCH, 0, 2);
        wide_scales(j->w, &j->l, &at, j->n_groups, scales + first, minima + first);
        pair_steps(to, wide_codes(j, &at, to));
        for (size_t i = 0; j->kind == WIDE_EIGHT && i < WIDE_UNPACKED; i += 16)
            vst1q_u8(to + i, veorq_u8(vld1q_u8(to + i), top));
    }
}

// The block of tokens from `token` on times 16 rows.
static void multiply_block(tile_args a, const tern_grouped_rows *x, size_t token,
                           const tern_product *to, size_t row, tile_kind kind) {
    const size_t n_units = a.n_units, n = tern_grouped_min(x->n_tokens - token, x->block);
    row_sums sum[2][TOKENS];
    a.q = x->q + token * n_units * WIDE_UNIT;
    a.scale = x->scale + token * n_units;
    a.minus = x->minus + token * n_units * TERN_GROUP_PARTS;
    a.minus_scaled = x->minus_scaled + token * n_units * TERN_GROUP_PARTS;
    for (size_t half = 0; half < 2; half++) {
        any_tile(sum[half], &a, n, kind);
        a.codes += ROWS * 8, a.scales += ROWS, a.minima += ROWS;
    }
    for (size_t t = 0; t < n; t++)
        put_rows(to->out + (token + t) * to->stride + row,
                 (v16){sum[0][t].v[0], sum[0][t].v[1], sum[1][t].v[0], sum[1][t].v[1]},
                 tern_grouped_min(to->last - row, TERN_GROUPED_ROWS), to->accumulate);
}

static void multiply_many(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                          uint8_t *scratch, const tern_product *to) {
    const bool is_narrow = !tern_grouped_is_wide(w);
    wide_job j = {.w = w, .l = tern_grouped_wide_layout(w), .x = x};
    j.n_groups = is_narrow ? 1 : WIDE_UNIT / j.l.group;
    j.kind = wide_kind_of(w);
    const size_t n_units = w->n_in / WIDE_UNIT;
    float *scales = (float *)(scratch + w->n_in * TERN_GROUPED_ROWS);
    float *minima = scales + n_units * j.n_groups * TERN_GROUPED_ROWS;
    const tile_kind kind = is_narrow ? NARROW : w->has_minima ? WITH_MINIMA : PLAIN;
    const tile_args a = {.codes = scratch,
                         .scales = scales,
                         .minima = minima,
                         .n_units = n_units,
                         .per_unit = j.n_groups,
                         .first_part = is_narrow ? 6 : wide_first_part(&j.l),
                         .shared = is_narrow ? w->group / WIDE_UNIT : 1,
                         .zero = is_narrow              ? 1
                                 : j.kind == WIDE_EIGHT ? w->zero - WIDE_BIAS
                                                        : w->zero};
    for (size_t row = to->first; row < to->last; row += TERN_GROUPED_ROWS) {
        unpack_block(&j, w->data + row / TERN_GROUPED_ROWS * w->block_bytes, scratch, scales,
                     minima);
        for (size_t t = 0; t < x->n_tokens; t += x->block) multiply_block(a, x, t, to, row, kind);
    }
}

static void multiply(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                     const tern_product *to) {
    if (x->run == 4)
        tern_grouped_kernels_dotprod.multiply(w, x, scratch, to);
    else
        multiply_many(w, x, scratch, to);
}

const tern_grouped_kernels tern_grouped_kernels_i8mm = {.name = "i8mm",
                                                        .block_tokens = TOKENS,
                                                        .few_tokens = TOKENS,
                                                        .tile_tokens = TOKENS + 1,
                                                        .tile_block = TOKENS,
                                                        .tile_run = 8,
                                                        .multiply = multiply};
