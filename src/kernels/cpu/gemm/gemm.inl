// Panels, and tiles of C in registers, over the 16-lane vector; included after
//
//   GEMM_TABLE, GEMM_NAME  the table to define, and its name
//   GEMM_VALUES            values of k in a word
//   gemm_along(x, left)    16 words along a row that has `left` more values of k
//   gemm_across(x, ld, cols, left)  one word for each of 16 columns; `cols` remain
//   gemm_step(a, b, sum)   sum + a b
//
// After Goto and van de Geijn (ACM TOMS 34, 2008): a panel of B stays in the nearest cache while
// the panels of a block of A stream past it from the next one.

enum { GEMM_ROWS = VEC_GEMM_ROWS, GEMM_COLS = 16 * VEC_GEMM_VECTORS, GEMM_UNIT = 1 };

// ---- Panels ------------------------------------------------------------------------------------

#include "kernels/cpu/gemm/gemm_panels.inl"

static void pack_a(float *to, const float *x, size_t ld, bool along, size_t n, size_t depth) {
    if (along) pack_panels(to, x, ld, n, depth, GEMM_ROWS);
    else pack_across(to, x, ld, n, depth, GEMM_ROWS);
}

static void pack_b(float *to, const float *x, size_t ld, bool along, size_t n, size_t depth) {
    if (along) pack_panels(to, x, ld, n, depth, GEMM_COLS);
    else pack_across(to, x, ld, n, depth, GEMM_COLS);
}

// ---- Tiles -------------------------------------------------------------------------------------

typedef struct gemm_tile {
    float *c;
    size_t ldc, rows, cols, words; // the part of the tile inside C
    bool accumulate;
} gemm_tile;

// rows and vectors are constants in each use.
VEC_INLINE void multiply_tile(const gemm_tile *t, const float *a, const float *b, int rows,
                              int vectors) {
    v16 sum[GEMM_ROWS][VEC_GEMM_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            sum[i][j] = v16_set1(0);
            __builtin_prefetch(t->c + (size_t)i * t->ldc + 16 * j, 1);
        }
    }
    for (size_t k = 0; k < t->words; k++, a += GEMM_ROWS, b += GEMM_COLS) {
        v16 col[VEC_GEMM_VECTORS];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) col[j] = v16_load(b + 16 * j);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            v16 row = v16_set1(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) sum[i][j] = gemm_step(row, col[j], sum[i][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        if ((size_t)i >= t->rows) break;
        float *c = t->c + (size_t)i * t->ldc;
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++) {
            size_t left = t->cols - 16 * (size_t)j;
            if (t->accumulate) sum[i][j] = v16_add(load_some(c + 16 * j, left), sum[i][j]);
            store_some(c + 16 * j, sum[i][j], left);
        }
    }
}

// A tile at the end of C, with no more rows and vectors than it needs, in steps of a third.
VEC_INLINE void multiply_rows(const gemm_tile *t, const float *a, const float *b, int vectors) {
    enum { THIRD = GEMM_ROWS / 3 };
    if (t->rows > 2 * THIRD) multiply_tile(t, a, b, GEMM_ROWS, vectors);
    else if (t->rows > THIRD) multiply_tile(t, a, b, 2 * THIRD, vectors);
    else multiply_tile(t, a, b, THIRD, vectors);
}

static void multiply(const tern_gemm_part *c, const float *a, const float *b, size_t words) {
    const size_t m = c->m, n = c->n;
    for (size_t j = 0; j < n; j += GEMM_COLS, b += words * GEMM_COLS)
        for (size_t i = 0; i < m; i += GEMM_ROWS) {
            gemm_tile t = {c->c + i * c->ldc + j, c->ldc, m - i, n - j, words, c->accumulate};
            const float *panel = a + i * words;
            if (t.cols > 16 || VEC_GEMM_VECTORS == 1)
                multiply_rows(&t, panel, b, VEC_GEMM_VECTORS);
            else
                multiply_rows(&t, panel, b, 1);
        }
}

// Sums in registers, all different and added up at the end, so that no step can be optimised away.
static uint64_t peak_loop(void) {
    enum { STEPS = 4096 };
    v16 sum[GEMM_ROWS][VEC_GEMM_VECTORS], row = v16_set1(0.5f), all = v16_set1(0);
#pragma GCC unroll 16
    for (int i = 0; i < GEMM_ROWS; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < VEC_GEMM_VECTORS; j++)
            sum[i][j] = v16_set1((float)(i * VEC_GEMM_VECTORS + j));
    }
    for (int k = 0; k < STEPS; k++) {
#pragma GCC unroll 16
        for (int i = 0; i < GEMM_ROWS; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < VEC_GEMM_VECTORS; j++) sum[i][j] = gemm_step(row, row, sum[i][j]);
        }
    }
    for (int i = 0; i < GEMM_ROWS; i++)
        for (int j = 0; j < VEC_GEMM_VECTORS; j++) all = v16_add(all, sum[i][j]);
    volatile float sink = v16_sum(all);
    (void)sink;
    return (uint64_t)STEPS * GEMM_ROWS * GEMM_COLS * GEMM_VALUES;
}

const tern_gemm_kernels GEMM_TABLE = {.name = GEMM_NAME,
                                      .rows = GEMM_ROWS,
                                      .cols = GEMM_COLS,
                                      .values = GEMM_VALUES,
                                      .depth = TERN_GEMM_DEPTH,
                                      .pack_a = pack_a,
                                      .pack_b = pack_b,
                                      .multiply = multiply,
                                      .peak_loop = peak_loop};
