// Products of float matrices in blocks: packs a block of B and one of A, then multiplies them.
#include "kernels/cpu/gemm/gemm.h"

#include <string.h>

// A block of A should fit the second-level cache (132 KB), a panel of B the first; the block of B
// is read through once for each block of A.
enum { ROWS = 132, COLS = 512, COL_TILE = 32, SLACK = 16 * COL_TILE };

size_t cpu_gemm_scratch_floats(void) { return (size_t)TERN_GEMM_DEPTH * (ROWS + COLS) + 2 * SLACK; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }
static size_t parts_of(size_t n, size_t part) { return (n + part - 1) / part; }
// Splits n into parts of at most `most`, equal except for rounding up to whole tiles.
static size_t even_part(size_t n, size_t most, size_t tile) {
    return parts_of(parts_of(n, parts_of(n, most)), tile) * tile;
}

// C over [m0, m0 + m) x [n0, n0 + n).
// Rows m0 .. m0 + m - 1 and columns n0 .. n0 + n - 1 of C.
typedef struct part_of_c {
    size_t m0, m, n0, n;
} part_of_c;

static void run_part(const tern_gemm_kernels *kernels, const cpu_gemm *g, part_of_c of,
                     float *scratch) {
    const size_t m0 = of.m0, m = of.m, n0 = of.n0, n = of.n;
    float *pa = scratch, *pb = scratch + (size_t)TERN_GEMM_DEPTH * ROWS + SLACK;
    size_t row_block = even_part(m, ROWS / kernels->rows * kernels->rows, kernels->rows);
    size_t col_block = even_part(n, COLS, COL_TILE);
    for (size_t j = 0; j < n; j += col_block)
        for (size_t k = 0; k < g->k; k += kernels->depth) {
            size_t depth = least(kernels->depth, g->k - k), at = n0 + j;
            size_t cols = least(col_block, n - j), words = parts_of(depth, kernels->values);
            kernels->pack_b(pb, g->b + (g->transpose_b ? at * g->ldb + k : k * g->ldb + at), g->ldb,
                            g->transpose_b, cols, depth);
            for (size_t i = 0; i < m; i += row_block) {
                size_t rows = least(row_block, m - i), row = m0 + i;
                kernels->pack_a(pa, g->a + (g->transpose_a ? k * g->lda + row : row * g->lda + k),
                                g->lda, !g->transpose_a, rows, depth);
                kernels->multiply(&(tern_gemm_part){.c = g->c + row * g->ldc + at,
                                                    .ldc = g->ldc,
                                                    .m = rows,
                                                    .n = cols,
                                                    .accumulate = k > 0 || g->accumulate},
                                  pa, pb, words);
            }
        }
}

void cpu_gemm_run(const tern_gemm_kernels *kernels, const cpu_gemm *g, float *scratch) {
    run_part(kernels, g, (part_of_c){0, g->m, 0, g->n}, scratch);
}

// ---- Teams -------------------------------------------------------------------------------------

typedef struct cut {
    size_t rows, cols; // of a part
} cut;

// The cost of a part in multiply-adds for each value of k: the product, plus packing, where a value
// of a row or column costs as much as about 32 of them when it comes from memory.
enum { PACKING = 32 };
static double cost_of(const tern_gemm_kernels *kernels, size_t rows, size_t cols) {
    double r = (double)(parts_of(rows, kernels->rows) * kernels->rows);
    double c = (double)(parts_of(cols, 16) * 16);
    return r * c + PACKING * (r * (double)parts_of(cols, COLS) + c);
}

// The cut whose parts should finish first: in rounds of as many parts as there are threads, plus
// some waiting for the last part, which is shorter when parts are small.
static cut best_cut(const tern_gemm_kernels *kernels, const cpu_gemm *g, size_t n_threads) {
    cut best = {g->m, g->n};
    double least_cost = 0;
    size_t most = 4 * n_threads;
    for (size_t across = 1; across <= parts_of(g->n, kernels->cols) && across <= most; across++)
        for (size_t down = 1; down <= parts_of(g->m, kernels->rows); down++) {
            size_t rows = even_part(g->m, parts_of(g->m, down), kernels->rows);
            size_t cols = even_part(g->n, parts_of(g->n, across), kernels->cols);
            size_t n = parts_of(g->m, rows) * parts_of(g->n, cols);
            double part = cost_of(kernels, least(rows, g->m), least(cols, g->n));
            double cost = part * ((double)parts_of(n, n_threads) + (n_threads > 1 ? 0.25 : 0));
            if (least_cost == 0 || cost < least_cost) {
                least_cost = cost;
                best = (cut){rows, cols};
            }
            if (n > most) break;
        }
    return best;
}

void cpu_gemm_team(const tern_gemm_kernels *kernels, const cpu_gemm *g, const tern_team *team,
                   atomic_size_t *counter, float *scratch) {
    cut c = best_cut(kernels, g, (size_t)team->n_threads);
    size_t down = parts_of(g->m, c.rows), n = down * parts_of(g->n, c.cols), part, end;
    while (tern_team_claim(counter, n, 1, &part, &end)) {
        size_t m0 = part % down * c.rows, n0 = part / down * c.cols;
        run_part(kernels, g,
                 (part_of_c){m0, least(c.rows, g->m - m0), n0, least(c.cols, g->n - n0)}, scratch);
    }
}
