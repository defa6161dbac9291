// The tables of grouped kernels, and what they share. Private to this folder and to select.c.
#ifndef TERN_KERNELS_CPU_GROUPED_KERNELS_H
#define TERN_KERNELS_CPU_GROUPED_KERNELS_H

#include "kernels/cpu/grouped/grouped.h"

extern const tern_grouped_kernels tern_grouped_kernels_scalar, tern_grouped_kernels_avx2,
    tern_grouped_kernels_avxvnni, tern_grouped_kernels_avx512, tern_grouped_kernels_amx,
    tern_grouped_kernels_neon, tern_grouped_kernels_dotprod, tern_grouped_kernels_i8mm,
    tern_grouped_kernels_wasm, tern_grouped_kernels_wasm_dot;

#define GROUPED_INLINE static inline __attribute__((always_inline))

// Bytes of codes in a block; the scales follow.
static inline size_t tern_grouped_code_bytes(const tern_grouped_matrix *m) {
    return m->n_in * TERN_GROUPED_ROWS * m->bits / 8;
}

static inline bool tern_grouped_is_wide(const tern_grouped_matrix *m) { return m->bits > 2; }

// ---- Wide codes --------------------------------------------------------------------------------

// A unit's columns; the bytes of a unit's codes in a block once they are a byte each.
enum { WIDE_UNIT = 64, WIDE_UNPACKED = WIDE_UNIT * TERN_GROUPED_ROWS };

// Where things lie in a block: found once a call. Narrow codes have their front behind the units.
typedef struct wide_layout {
    size_t period;      // columns that an entry of the front stands for; 0: there is no front
    size_t entry_bytes; // of the front
    size_t front_bytes;
    size_t front_at, units_at;      // in the block
    size_t group;                   // at most 64
    size_t sub_bytes, scale_stride; // of a unit's scales and minima; of those of one group
    size_t code_bytes, unit_bytes;
} wide_layout;
wide_layout tern_grouped_wide_layout(const tern_grouped_matrix *m);
size_t tern_grouped_unpacked_bytes(const tern_grouped_matrix *m, size_t n_in);
int tern_grouped_wide_number(const tern_grouped_matrix *m, size_t row, size_t column);

// tern_grouped_kernels.multiply for wide codes alone; AVX-512's also takes narrow ones with more
// tokens than a block.
void tern_grouped_wide_avx512(const tern_grouped_matrix *w, const tern_grouped_rows *x,
                              void *scratch, const tern_product *to);
void tern_grouped_wide_wasm(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                            const tern_product *to);

static inline size_t tern_grouped_min(size_t a, size_t b) { return a < b ? a : b; }

#endif
