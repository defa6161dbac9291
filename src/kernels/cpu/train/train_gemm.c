// Products of float matrices. OpenBLAS does them where the library was built with it: its kernels
// are tuned for each processor. Otherwise a plain blocked product in the manner of Goto and van de
// Geijn (ACM TOMS 34, 2008): a panel of B is copied so that it is read in order, a tile of C stays
// in registers, and the compiler makes vectors of it.
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

#if TERN_OPENBLAS
#include <cblas.h>

static void run(const cpu_gemm *g, float *scratch) {
    (void)scratch;
    cblas_sgemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
                g->transpose_b ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
                (blasint)g->k, g->alpha, g->a, (blasint)g->lda, g->b, (blasint)g->ldb, g->beta,
                g->c, (blasint)g->ldc);
}

const cpu_gemm_kernel cpu_gemm_float = {.name = "OpenBLAS", .run = run};

int cpu_gemm_set_threads(int n) {
    int before = openblas_get_num_threads();
    openblas_set_num_threads(n);
    return before;
}

#else

enum { TILE_M = 4, TILE_N = 32, DEPTH = 256, ROWS_M = 64, COLS_N = 256 };

int cpu_gemm_set_threads(int n) { return n; }

// Element (i, j) of op(X).
static inline float at(const float *x, size_t ld, bool transposed, size_t i, size_t j) {
    return transposed ? x[j * ld + i] : x[i * ld + j];
}

// op(B)[k0.., n0..] in panels of TILE_N columns, op(A)[m0.., k0..] in panels of TILE_M rows, both
// padded with zeros.
static void pack(float *to, const float *x, size_t ld, bool transposed, size_t first, size_t n,
                 size_t k0, size_t depth, size_t tile) {
    for (size_t p = 0; p < n; p += tile)
        for (size_t k = 0; k < depth; k++)
            for (size_t i = 0; i < tile; i++)
                *to++ = p + i < n ? at(x, ld, transposed, first + p + i, k0 + k) : 0;
}

static void tile(const float *a, const float *b, size_t depth, float sum[TILE_M][TILE_N]) {
    memset(sum, 0, sizeof(float[TILE_M][TILE_N]));
    for (size_t k = 0; k < depth; k++, a += TILE_M, b += TILE_N)
        for (size_t i = 0; i < TILE_M; i++)
            for (size_t j = 0; j < TILE_N; j++) sum[i][j] += a[i] * b[j];
}

static void add_tile(const cpu_gemm *g, float sum[TILE_M][TILE_N], size_t m0, size_t m_end,
                     size_t n0, size_t n_end) {
    for (size_t i = m0; i < m_end; i++)
        for (size_t j = n0; j < n_end; j++) g->c[i * g->ldc + j] += g->alpha * sum[i - m0][j - n0];
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void block(const cpu_gemm *g, const float *pa, const float *pb, size_t m0, size_t m,
                  size_t n0, size_t n, size_t depth) {
    float sum[TILE_M][TILE_N];
    for (size_t j = 0; j < n; j += TILE_N)
        for (size_t i = 0; i < m; i += TILE_M) {
            tile(pa + i * depth, pb + j * depth, depth, sum);
            add_tile(g, sum, m0 + i, m0 + least(i + TILE_M, m), n0 + j, n0 + least(j + TILE_N, n));
        }
}

static void run(const cpu_gemm *g, float *scratch) {
    float *pa = scratch, *pb = scratch + (size_t)DEPTH * ROWS_M;
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++)
            g->c[i * g->ldc + j] = g->beta == 0 ? 0 : g->c[i * g->ldc + j] * g->beta;
    for (size_t n0 = 0; n0 < g->n; n0 += COLS_N)
        for (size_t k0 = 0; k0 < g->k; k0 += DEPTH) {
            size_t n = least(COLS_N, g->n - n0), depth = least(DEPTH, g->k - k0);
            // A transposed: rows of B^T are columns of B.
            pack(pb, g->b, g->ldb, !g->transpose_b, n0, n, k0, depth, TILE_N);
            for (size_t m0 = 0; m0 < g->m; m0 += ROWS_M) {
                size_t m = least(ROWS_M, g->m - m0);
                pack(pa, g->a, g->lda, g->transpose_a, m0, m, k0, depth, TILE_M);
                block(g, pa, pb, m0, m, n0, n, depth);
            }
        }
}

const cpu_gemm_kernel cpu_gemm_float = {
    .name = "own products", .run = run, .scratch_floats = (size_t)DEPTH * (ROWS_M + COLS_N)};

#endif
