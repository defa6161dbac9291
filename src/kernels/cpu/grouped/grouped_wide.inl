// Products with wide codes for registers of 16 or 32 bytes. A unit is unpacked to a byte a code
// before it is multiplied: for up to TOKENS of them into memory of its own, for more a whole block
// of rows at once into scratch. Included after grouped_lanes.inl and what grouped_narrow.inl asks
// for, by a file that defines besides
//   sums_32, no_sums_32(), store_sums_32(to, sums)   16 / VECTORS sums of 32 bits
//   add_products(sums_32, c, x, is_big)  adds the products of bytes c, of 8 bits if is_big, else of
//                                        up to 6, with four numbers
//   WIDE_BIAS                            what add_products subtracts from codes of 8 bits
//   look_up(p, table)                    replaces 64 indices by entries of a table of 16
//   SMALL                                if 4-bit codes have no code of their own: then sums is
//                                        a sums_32, and dot_add is not needed
//   WIDE                                 a name
#ifndef WIDE_LINKAGE
#define WIDE_LINKAGE static
#endif

typedef struct wide_args {
    const uint8_t *codes;
    const float *scales, *minima; // of the unit: [groups][16]; minima NULL: none
    size_t n_steps;               // of a group
    int32_t zero;                 // less WIDE_BIAS, if that applies
    const int8_t *q;              // of the unit, as are:
    const float *scale;           // [n]
    const int32_t *minus;         // [groups][n]
    const float *minus_scaled;    // the same
    float (*sums)[16];            // of each token
} wide_args;

#ifdef SMALL
#define no_sums          no_sums_32
#define store_sums       store_sums_32
#define dot_add(s, c, x) add_products(s, c, x, false)
#endif

// A unit times n tokens. n and kind are constants.
GROUPED_INLINE void wide_unit(const wide_args *a, int n, wide_kind kind) {
    const uint8_t *p = a->codes;
    const int8_t *x = a->q;
    const size_t most = kind == WIDE_FOUR ? 8 : 16; // steps that sums hold
    for (size_t g = 0; g < 16 / a->n_steps; g++) {
        int32_t acc[2][TOKENS][16];
        size_t n_parts = 0;
#define DECLARE(t, v)                                                                              \
    sums four##t##v = no_sums();                                                                   \
    sums_32 s##t##v = no_sums_32();
#define MULTIPLY(t, v)                                                                             \
    if (IS_USED(t, v)) {                                                                           \
        if (kind == WIDE_FOUR)                                                                     \
            four##t##v = dot_add(four##t##v, c##v, x + 4 * (t));                                   \
        else                                                                                       \
            s##t##v = add_products(s##t##v, c##v, x + 4 * (t), kind == WIDE_EIGHT);                \
    }
#define STORE(t, v)                                                                                \
    if (IS_USED(t, v)) {                                                                           \
        int32_t *to = &acc[n_parts][(t) < TOKENS ? (t) : 0][((v)*VECTOR_ROWS) & 15];               \
        if (kind == WIDE_FOUR)                                                                     \
            store_sums(to, four##t##v);                                                            \
        else                                                                                       \
            store_sums_32(to, s##t##v);                                                            \
    }
#define LOAD(v) codes c##v = load_codes(p + ((v) < VECTORS ? (v) : 0) * VECTOR_BYTES);
        for (size_t first = 0; first < a->n_steps; first += most, n_parts++) {
            EACH_SUM(DECLARE)
            for (size_t s = 0; s < tern_grouped_min(most, a->n_steps); s++, p += 64, x += 4 * n) {
                LOAD(0) LOAD(1) LOAD(2) LOAD(3) EACH_SUM(MULTIPLY)
            }
            EACH_SUM(STORE)
        }
#undef DECLARE
#undef MULTIPLY
#undef STORE
#undef LOAD
        for (int t = 0; t < n; t++) {
            const size_t at = g * (size_t)n + (size_t)t;
            const int32_t minus = a->minus[at] * a->zero;
            for (int r = 0; r < 16; r++) acc[0][t][r] += minus;
            for (int r = 0; n_parts == 2 && r < 16; r++) acc[0][t][r] += acc[1][t][r];
            v16 product = v16_mul(v16_from_i32(acc[0][t]), v16_set1(a->scale[t]));
            v16 sum = v16_fma(v16_load(a->scales + 16 * g), product, v16_load(a->sums[t]));
            if (a->minima)
                sum = v16_fma(v16_load(a->minima + 16 * g), v16_set1(a->minus_scaled[at]), sum);
            v16_store(a->sums[t], sum);
        }
    }
}

static void any_wide_unit(const wide_args *a, size_t n, wide_kind kind) {
    switch (n) {
#ifdef SMALL
#define FOUR(n)
#else
#define FOUR(n) else wide_unit(a, (n) <= TOKENS ? (n) : 1, WIDE_FOUR);
#endif
#define UNIT(n)                                                                                    \
    case n:                                                                                        \
        if (kind == WIDE_EIGHT)                                                                    \
            wide_unit(a, (n) <= TOKENS ? (n) : 1, WIDE_EIGHT);                                     \
        else if (kind == WIDE_SIX)                                                                 \
            wide_unit(a, (n) <= TOKENS ? (n) : 1, WIDE_SIX);                                       \
        FOUR(n)                                                                                    \
        break;
        UNIT(1)
        UNIT(2)
#if TOKENS_ > 2
        UNIT(3)
        UNIT(4)
#endif
#if TOKENS_ > 4
        UNIT(5)
        UNIT(6)
#endif
#undef UNIT
#undef FOUR
    }
}

// Unit u of the tokens of a block that begins at token `first`.
static void wide_times_tokens(const wide_job *j, wide_args *a, size_t u, size_t first) {
    const size_t n = tern_grouped_min(j->x->n_tokens - first, j->x->block), n_in = j->w->n_in;
    a->q = j->x->q + first * n_in + u * WIDE_UNIT * n;
    a->scale = j->x->scale + first * (n_in / WIDE_UNIT) + u * n;
    const size_t part = first * (n_in / WIDE_UNIT) * TERN_GROUP_PARTS +
                        (u * TERN_GROUP_PARTS + wide_first_part(&j->l)) * n;
    a->minus = j->x->minus + part;
    a->minus_scaled = j->x->minus_scaled + part;
    any_wide_unit(a, n, j->kind);
}

static void wide_fetch(const uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + FETCH + i, 0, 2);
}

// Tokens of one block, TOKENS at most.
static void wide_few(const wide_job *j, wide_args *a, const uint8_t *block) {
    _Alignas(64) uint8_t unpacked[WIDE_UNPACKED];
    float scales[4 * 16], minima[4 * 16] = {0};
    wide_walk at = wide_start(&j->l, block);
    a->scales = scales;
    a->minima = j->w->has_minima ? minima : NULL;
    wide_fetch(block, j->l.front_bytes);
    for (size_t u = 0; u < j->w->n_in / WIDE_UNIT; u++, wide_next(&at, &j->l)) {
        wide_fetch(at.unit, j->l.unit_bytes);
        wide_scales(j->w, &j->l, &at, j->n_groups, scales, minima);
        a->codes = wide_codes(j, &at, unpacked);
        wide_times_tokens(j, a, u, 0);
    }
}

static void wide_many(const wide_job *j, wide_args *a, const uint8_t *block, uint8_t *scratch,
                      size_t first) {
    const size_t n_units = j->w->n_in / WIDE_UNIT, each = j->n_groups * 16;
    const bool lie = j->w->bits == 8;
    float *scales = (float *)(scratch + j->w->n_in * 16), *minima = scales + n_units * each;
    if (first == 0) wide_unpack(j, block, scratch, scales, minima);
    for (size_t u = 0; u < n_units; u++) {
        a->codes = lie ? block + j->l.front_bytes + u * j->l.unit_bytes + j->l.sub_bytes
                       : scratch + u * WIDE_UNPACKED;
        a->scales = scales + u * each;
        a->minima = j->w->has_minima ? minima + u * each : NULL;
        wide_times_tokens(j, a, u, first);
    }
}

WIDE_LINKAGE void WIDE(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                       const tern_product *to) {
    wide_job j = {.w = w, .l = tern_grouped_wide_layout(w), .x = x};
    j.n_groups = WIDE_UNIT / j.l.group;
    j.kind = wide_kind_of(w);
    float totals[TOKENS][16];
    wide_args a = {.n_steps = j.l.group / 4,
                   .zero = w->zero - (j.kind == WIDE_EIGHT ? WIDE_BIAS : 0),
                   .sums = totals};
    for (size_t row = to->first; row < to->last; row += TERN_GROUPED_ROWS) {
        const uint8_t *block = w->data + row / TERN_GROUPED_ROWS * w->block_bytes;
        for (size_t t = 0; t < x->n_tokens; t += x->block) {
            const size_t n = tern_grouped_min(x->n_tokens - t, x->block);
            memset(totals, 0, sizeof totals);
            if (x->n_tokens <= x->block)
                wide_few(&j, &a, block);
            else
                wide_many(&j, &a, block, scratch, t);
            for (size_t i = 0; i < n; i++)
                put_rows(to->out + (t + i) * to->stride + row, v16_load(totals[i]),
                         tern_grouped_min(to->last - row, TERN_GROUPED_ROWS), to->accumulate);
        }
    }
}
