// What products with narrow and wide codes share on registers of 16 or 32 bytes.
#include <string.h>
#include "kernels/cpu/grouped/grouped_kernels.h"

enum { FETCH = 12288, VECTOR_BYTES = 64 / VECTORS, VECTOR_ROWS = 16 / VECTORS };

// Sums of token t and register v, each with a name.
#define EACH_SUM(X)                                                                                \
    X(0, 0) X(0, 1) X(0, 2) X(0, 3) X(1, 0) X(1, 1) X(1, 2) X(1, 3)                                \
    X(2, 0) X(2, 1) X(2, 2) X(2, 3) X(3, 0) X(3, 1) X(3, 2) X(3, 3)
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
