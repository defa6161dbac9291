// The rows of the table of grouped products (check_table.h), for the checks of narrow and of wide
// codes.
#ifndef TERN_KERNELS_CPU_GROUPED_CHECK_H
#define TERN_KERNELS_CPU_GROUPED_CHECK_H

#include "kernels/cpu/check_table.h"
#include "kernels/cpu/grouped/grouped_kernels.h"

static void broken_multiply(const tern_grouped_matrix *w, const tern_grouped_rows *x, void *scratch,
                            const tern_product *to) {
    tern_grouped_kernels_scalar.multiply(w, x, scratch, to);
    to->out[to->last - 1] += 1;
}

#define KERNELS(ROW) ROW(multiply)
KERNELS_ARE_ALL(tern_grouped_kernels, multiply, 0, KERNELS);

static void find_each_broken(void (*check)(const tern_grouped_kernels *k)) {
    tern_grouped_kernels table;
#define ROW(kernel) MUST_FIND(table, &tern_grouped_kernels_scalar, kernel, check);
    KERNELS(ROW)
#undef ROW
}

#endif
