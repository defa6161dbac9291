// Scales of wide codes as vectors, and rows put into the output. Included after a vec_<isa>.h.
#ifndef TERN_KERNELS_CPU_GROUPED_WIDE_H
#define TERN_KERNELS_CPU_GROUPED_WIDE_H

#include "kernels/cpu/grouped/grouped_kernels.h"

// Walks through the units of a block.
typedef struct wide_walk {
    const uint8_t *front, *unit;
    size_t left, each; // units for which the entry of the front still stands, and at first
} wide_walk;

GROUPED_INLINE wide_walk wide_start(const wide_layout *l, const uint8_t *block) {
    size_t each = l->period ? l->period / WIDE_UNIT : 0;
    return (wide_walk){block + l->front_at, block + l->units_at, each, each};
}

GROUPED_INLINE void wide_next(wide_walk *at, const wide_layout *l) {
    at->unit += l->unit_bytes;
    if (at->left && --at->left == 0) {
        at->left = at->each;
        at->front += l->entry_bytes;
    }
}

GROUPED_INLINE v16 wide_numbers(const tern_grouped_matrix *w, const uint8_t *p) {
    return w->is_bf16 ? v16_from_bf16(p) : v16_from_f16(p);
}

// The scales of a unit's n groups, [n][16], and its minima, if the matrix has them.
GROUPED_INLINE void wide_scales(const tern_grouped_matrix *w, const wide_layout *l,
                                const wide_walk *at, size_t n, float *scale, float *minimum) {
    if (l->sub_bytes == 0) {
        v16_store(scale, wide_numbers(w, at->front));
        if (w->has_minima) v16_store(minimum, wide_numbers(w, at->front + 32));
        return;
    }
    for (size_t which = 0; which < (w->has_minima ? 2 : 1); which++) {
        const uint8_t *p = at->unit + which * n * l->scale_stride;
        float *to = which ? minimum : scale;
        if (w->super) {
            v16 factor = wide_numbers(w, at->front + which * 32);
            for (size_t k = 0; k < n; k++)
                v16_store(to + 16 * k, v16_mul(factor, v16_from_i8((const int8_t *)p + 16 * k)));
        } else {
            for (size_t k = 0; k < n; k++) v16_store(to + 16 * k, wide_numbers(w, p + 32 * k));
        }
    }
}

// Which of a unit's sums of numbers is that of its first group; the others follow.
GROUPED_INLINE size_t wide_first_part(const wide_layout *l) {
    return l->group == 16 ? 0 : l->group == 32 ? 4 : 6;
}

#endif
