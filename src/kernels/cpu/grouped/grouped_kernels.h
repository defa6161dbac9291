// The tables of grouped kernels, and what they share. Private to this folder and to select.c.
#ifndef TERN_KERNELS_CPU_GROUPED_KERNELS_H
#define TERN_KERNELS_CPU_GROUPED_KERNELS_H

#include "kernels/cpu/grouped/grouped.h"

extern const tern_grouped_kernels tern_grouped_kernels_scalar, tern_grouped_kernels_avx2,
    tern_grouped_kernels_avx512, tern_grouped_kernels_neon, tern_grouped_kernels_dotprod,
    tern_grouped_kernels_wasm, tern_grouped_kernels_wasm_dot;

#define GROUPED_INLINE static inline __attribute__((always_inline))

// Bytes of codes in a block; the scales follow.
static inline size_t tern_grouped_code_bytes(const tern_grouped_matrix *m) {
    return m->n_in * TERN_GROUPED_ROWS * m->bits / 8;
}

static inline size_t tern_grouped_min(size_t a, size_t b) { return a < b ? a : b; }

#endif
