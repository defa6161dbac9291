// Products with codes in groups for registers of 16 or 32 bytes. Included after a vec_<isa>.h by a
// file that defines
//   VECTORS           registers that hold 64 bytes of codes; each has 16 / VECTORS rows
//   TOKENS            multiplied at once: at most 4, or 6 if VECTORS is 2
//   codes, load_codes(p)               64 / VECTORS bytes of packed codes
//   two_bits(c, s), one_bit(c, s)      field s of each byte; one bit is taken twice: 0 or 2
//   sums, no_sums()                    of a row's products with 64 columns, of codes up to 3
//   dot_add(sums, c, x)                adds four neighbouring products of each row; x: four
//   store_sums(int32_t *to, sums)      16 / VECTORS whole sums
//   WIDE                               multiplies wide codes; else what grouped_wide.inl asks for
//   KERNELS, NAME
#ifndef WIDE
#define UNPACKS_WIDE
#endif
#include "kernels/cpu/grouped/grouped_lanes.inl"

typedef struct tile_args {
    const tern_grouped_matrix *w;
    const uint8_t *block;
    const uint8_t *unpacked; // NULL: none
    const float *scales;     // of it, [n_in / group][16]
    const int8_t *q;
    const float *scale;
    const int32_t *minus; // of the first 64
    size_t n_rows;
    float *out; // of the first row and token
    size_t out_stride;
    bool accumulate;
} tile_args;

// A group of 64 columns: integer sums [n][16] of codes times activations, n a constant.
GROUPED_INLINE void multiply_group(int32_t acc[TOKENS][16], const uint8_t *p, const int8_t *x,
                                   int n, code_form form) {
#define DECLARE(t, v) sums s##t##v = no_sums();
#define MULTIPLY(t, v)                                                                             \
    if (IS_USED(t, v)) s##t##v = dot_add(s##t##v, w##v, x + 4 * (t));
#define STORE(t, v)                                                                                \
    if (IS_USED(t, v)) store_sums(&acc[(t) < TOKENS ? (t) : 0][((v)*VECTOR_ROWS) & 15], s##t##v);
#define LOAD(v)  codes c##v = load_codes(p + ((v) < VECTORS ? (v) : 0) * VECTOR_BYTES);
#define FIELD(v) codes w##v = field(c##v, s, form);
    EACH_SUM(DECLARE)
    const int n_steps = steps_of(form);
    for (const uint8_t *end = p + group_bytes(form); p < end; p += 64) {
        LOAD(0) LOAD(1) LOAD(2) LOAD(3) if (form != BYTES) __builtin_prefetch(p + FETCH, 0, 2);
#pragma GCC unroll 8
        for (int s = 0; s < n_steps; s++, x += 4 * n) {
            FIELD(0) FIELD(1) FIELD(2) FIELD(3) EACH_SUM(MULTIPLY)
        }
    }
    EACH_SUM(STORE)
#undef DECLARE
#undef MULTIPLY
#undef STORE
#undef LOAD
#undef FIELD
}

GROUPED_INLINE void tile(const tile_args *g, int n, code_form form) {
    const size_t n_groups = g->w->n_in / TERN_GROUP;
    const uint8_t *codes_at = form == BYTES ? g->unpacked : g->block;
    const uint8_t *scales = g->block + tern_grouped_code_bytes(g->w);
    v16 sum[TOKENS];
    for (int t = 0; t < n; t++) sum[t] = v16_set1(0);
    for (size_t k = 0; k < n_groups; k++, codes_at += group_bytes(form)) {
        int32_t acc[TOKENS][16];
        multiply_group(acc, codes_at, g->q + k * TERN_GROUP * (size_t)n, n, form);
        const size_t scale_at = k * TERN_GROUP / g->w->group;
        if (form != BYTES) __builtin_prefetch(scales + scale_at * 32 + FETCH, 0, 2);
        v16 scale = form == BYTES ? v16_load(g->scales + scale_at * 16)
                                  : v16_from_f16(scales + scale_at * 32);
        for (int t = 0; t < n; t++) {
            int32_t minus = g->minus[k * TERN_GROUP_PARTS * (size_t)n + (size_t)t];
            for (int r = 0; r < 16; r++) acc[t][r] += minus;
            v16 x_scale = v16_set1(g->scale[k * (size_t)n + (size_t)t]);
            v16 product = v16_mul(v16_from_i32(acc[t]), x_scale);
            sum[t] = v16_add(sum[t], v16_mul(scale, product));
        }
    }
    for (int t = 0; t < n; t++)
        put_rows(g->out + (size_t)t * g->out_stride, sum[t], g->n_rows, g->accumulate);
}

static void any_tile(const tile_args *g, size_t n) {
    switch (n) {
#define TILE(n)                                                                                    \
    case n:                                                                                        \
        if (g->unpacked)                                                                           \
            tile(g, (n) <= TOKENS ? (n) : 1, BYTES);                                               \
        else if (g->w->bits == 2)                                                                  \
            tile(g, (n) <= TOKENS ? (n) : 1, TWO_BITS);                                            \
        else                                                                                       \
            tile(g, (n) <= TOKENS ? (n) : 1, ONE_BIT);                                             \
        break;
        TILE(1)
        TILE(2)
#if TOKENS_ > 2
        TILE(3)
        TILE(4)
#endif
#if TOKENS_ > 4
        TILE(5)
        TILE(6)
#endif
#undef TILE
    }
}

#ifndef WIDE
#define WIDE multiply_wide
#include "kernels/cpu/grouped/grouped_wide.inl"
#endif

static void multiply(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                     const tern_product *to) {
    if (tern_grouped_is_wide(w)) {
        WIDE(w, x, scratch, to);
        return;
    }
    const size_t n_groups = w->n_in / TERN_GROUP;
    tile_args g = {.w = w, .out_stride = to->stride, .accumulate = to->accumulate};
    for (size_t row = to->first; row < to->last; row += TERN_GROUPED_ROWS) {
        g.block = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
        g.n_rows = tern_grouped_min(to->last - row, TERN_GROUPED_ROWS);
        if (x->n_tokens > x->block) {
            float *scales = (float *)((uint8_t *)scratch + w->n_in * TERN_GROUPED_ROWS);
            unpack_narrow(w, g.block, scratch, scales);
            g.unpacked = scratch;
            g.scales = scales;
        }
        for (size_t t = 0; t < x->n_tokens; t += x->block) {
            g.q = x->q + t * w->n_in;
            g.scale = x->scale + t * n_groups;
            const size_t n = tern_grouped_min(x->n_tokens - t, x->block);
            g.minus = x->minus + t * n_groups * TERN_GROUP_PARTS + 6 * n;
            g.out = to->out + t * to->stride + row;
            any_tile(&g, n);
        }
    }
}

const tern_grouped_kernels KERNELS = {
    .name = NAME, .block_tokens = TOKENS, .few_tokens = TOKENS, .multiply = multiply};
