// What products with narrow and wide codes share on registers of 16 or 32 bytes; and unpacking.
// Included after what grouped_narrow.inl and grouped_wide.inl ask for.
//   UNPACKS_WIDE      if wide codes are to be unpacked here, too
#include <string.h>
#include "kernels/cpu/grouped/grouped_wide.h"

enum { FETCH = 12288, VECTOR_BYTES = 64 / VECTORS, VECTOR_ROWS = 16 / VECTORS };

// Sums of token t and register v, each with a name.
#define EACH_SUM(X)                                                                                \
    X(0, 0)                                                                                        \
    X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3) X(2, 0) X(2, 1) X(2, 2) X(2, 3)        \
        X(3, 0) X(3, 1) X(3, 2) X(3, 3) X(4, 0) X(4, 1) X(5, 0) X(5, 1)
#define IS_USED(t, v) ((t) < n && (v) < VECTORS)

GROUPED_INLINE void put_rows(float *y, v16 sum, size_t n_rows, bool accumulate) {
    float all[16];
    if (n_rows >= 16) {
        v16_store(y, accumulate ? v16_add(v16_load(y), sum) : sum);
        return;
    }
    v16_store(all, sum);
    for (size_t r = 0; r < n_rows; r++) y[r] = accumulate ? y[r] + all[r] : all[r];
}

// ---- Unpacking: narrow codes -------------------------------------------------------------------

// How codes lie: packed, or, for more than a block of tokens, unpacked to a byte each in scratch,
// a step of four columns after the other, with the scales as floats.
typedef enum code_form { ONE_BIT, TWO_BITS, BYTES } code_form;

GROUPED_INLINE int steps_of(code_form form) { // in 64 bytes
    return form == BYTES ? 1 : form == TWO_BITS ? 4 : 8;
}

GROUPED_INLINE size_t group_bytes(code_form form) { return 1024 / (size_t)steps_of(form); }

GROUPED_INLINE codes field(codes c, int s, code_form form) {
    return form == BYTES ? c : form == TWO_BITS ? two_bits(c, s) : one_bit(c, s);
}

static inline void unpack_narrow(const tern_grouped_matrix *w, const uint8_t *block, uint8_t *to,
                                 float *scales) {
    const uint8_t *end = block + tern_grouped_code_bytes(w);
    const code_form form = w->bits == 2 ? TWO_BITS : ONE_BIT;
    for (; block < end; block += 64) {
        __builtin_prefetch(block + FETCH, 0, 2);
        for (int s = 0; s < steps_of(form); s++, to += 64)
            for (size_t v = 0; v < VECTORS; v++) {
                codes c = field(load_codes(block + v * VECTOR_BYTES), s, form);
                memcpy(to + v * VECTOR_BYTES, &c, sizeof c);
            }
    }
    for (size_t g = 0; g < w->n_in / w->group; g++, end += 32, scales += 16) {
        __builtin_prefetch(end + FETCH, 0, 2);
        v16_store(scales, v16_from_f16(end));
    }
}

// ---- Unpacking: wide codes ---------------------------------------------------------------------

#ifdef UNPACKS_WIDE
// Codes of up to 4 bits, whose sums of 32 columns are those of narrow codes; of up to 6; of 8.
typedef enum wide_kind { WIDE_FOUR, WIDE_SIX, WIDE_EIGHT } wide_kind;

static inline wide_kind wide_kind_of(const tern_grouped_matrix *w) {
    if (w->bits == 8 || w->has_table) return WIDE_EIGHT;
#ifdef SMALL
    return WIDE_SIX;
#else
    return w->bits == 4 ? WIDE_FOUR : WIDE_SIX;
#endif
}

// Codes of a unit, a byte each. (The compiler makes vectors of the nibbles' loops.)
static void unpack_unit(const tern_grouped_matrix *w, const uint8_t *low, uint8_t *to) {
    const uint8_t *high = low + WIDE_UNPACKED / 2;
    for (size_t k = 0; k < 8; k++, low += 64)
        for (size_t i = 0; i < 64; i++) {
            to[128 * k + i] = low[i] & 15;
            to[128 * k + 64 + i] = low[i] >> 4;
        }
    if (w->has_table) {
        for (size_t k = 0; k < 16; k++) look_up(to + 64 * k, w->table);
    } else if (w->bits > 4) {
        const size_t each = w->bits == 6 ? 4 : 8; // steps of four columns in 64 bytes
        for (size_t k = 0; k < 16; k++)
            for (size_t i = 0; i < 64; i += VECTOR_BYTES) {
                uint8_t *at = to + 64 * k + i;
                codes c = load_codes(high + 64 * (k / each) + i);
                codes up =
                    each == 4 ? two_bits(c, (int)(k % 4)) << 4 : one_bit(c, (int)(k % 8)) << 3;
                up |= load_codes(at);
                memcpy(at, &up, VECTOR_BYTES);
            }
    }
}

typedef struct wide_job {
    const tern_grouped_matrix *w;
    wide_layout l;
    const tern_grouped_rows *x;
    size_t n_groups; // of a unit
    wide_kind kind;
} wide_job;

static const uint8_t *wide_codes(const wide_job *j, const wide_walk *at, uint8_t *to) {
    const uint8_t *packed = at->unit + j->l.sub_bytes;
    if (j->w->bits == 8) return packed;
    unpack_unit(j->w, packed, to);
    return to;
}

// As many units at a time as are unpacked, all of a row.
static inline void wide_unpack(const wide_job *j, const uint8_t *block, uint8_t *to, float *scales,
                               float *minima) {
    const size_t each = j->n_groups * 16;
    wide_walk at = wide_start(&j->l, block);
    for (size_t u = 0; u < j->w->n_in / WIDE_UNIT; u++, wide_next(&at, &j->l)) {
        wide_scales(j->w, &j->l, &at, j->n_groups, scales + u * each, minima + u * each);
        wide_codes(j, &at, to + u * WIDE_UNPACKED);
    }
}
#endif
