// Products whose factors are rounded to bf16 (8 bits of mantissa) and whose sums are float32: twice
// the multiply-adds of float32 on processors that have the instruction.
//
// Both factors are copied to panels of 16 rows or columns: pairs of neighbours in k are one 32-bit
// word, as the instruction wants them, word [k / 2][16]. A tile of C is 16 x 16, one register for a
// row; a step of two k reads one register of B and broadcasts 16 words of A.
#include <immintrin.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

enum { TILE = 16, DEPTH = 512, ROWS_M = 128, COLS_N = 256 };

// Words of a panel over `depth` values of k.
static size_t words(size_t depth) { return (depth + 1) / 2 * TILE; }

// X has k along its rows (ld from one of the 16 to the next): 16 x 32 floats become words, and
// these are transposed.
static void pack_along(uint32_t *to, const float *x, size_t ld, size_t n, size_t depth) {
    for (size_t k = 0; k < depth; k += 2 * TILE) {
        uint32_t block[TILE][TILE];
        size_t left = depth - k < 2 * TILE ? depth - k : 2 * TILE, pairs = (left + 1) / 2;
        __mmask16 low = left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
        __mmask16 high = left >= 32 ? 0xffff : left > 16 ? (__mmask16)((1u << (left - 16)) - 1) : 0;
        for (size_t i = 0; i < TILE; i++) {
            __m512i row = _mm512_setzero_si512();
            if (i < n) {
                const float *at = x + i * ld + k;
                row = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, at + 16),
                                                   _mm512_maskz_loadu_ps(low, at));
            }
            _mm512_storeu_si512(block[i], row);
        }
        for (size_t p = 0; p < pairs; p++)
            for (size_t i = 0; i < TILE; i++) *to++ = block[i][p];
    }
}

// X has k down its columns: rows k and k + 1 are interleaved.
static void pack_across(uint32_t *to, const float *x, size_t ld, size_t n, size_t depth) {
    uint16_t order[32];
    for (uint16_t i = 0; i < 32; i++) order[i] = (uint16_t)(i / 2 + i % 2 * 16);
    __m512i interleave = _mm512_loadu_si512(order);
    __mmask16 mask = n >= TILE ? 0xffff : (__mmask16)((1u << n) - 1);
    for (size_t k = 0; k < depth; k += 2, to += TILE) {
        __m512 a = _mm512_maskz_loadu_ps(mask, x + k * ld);
        __m512 b = k + 1 < depth ? _mm512_maskz_loadu_ps(mask, x + (k + 1) * ld)
                                 : _mm512_setzero_ps();
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        _mm512_storeu_si512(to, _mm512_permutexvar_epi16(interleave, both));
    }
}

// Rows (or columns) [first, first + n) of X over k0 .. k0 + depth, in panels.
static void pack(uint32_t *to, const float *x, size_t ld, bool along, size_t first, size_t n,
                 size_t k0, size_t depth) {
    for (size_t i = 0; i < n; i += TILE, to += words(depth)) {
        size_t some = n - i < TILE ? n - i : TILE;
        if (along)
            pack_along(to, x + (first + i) * ld + k0, ld, some, depth);
        else
            pack_across(to, x + k0 * ld + first + i, ld, some, depth);
    }
}

static void tile(const uint32_t *a, const uint32_t *b, size_t pairs, __m512 sum[TILE]) {
    for (int i = 0; i < TILE; i++) sum[i] = _mm512_setzero_ps();
    for (size_t k = 0; k < pairs; k++, a += TILE, b += TILE) {
        __m512bh col = (__m512bh)_mm512_loadu_si512(b);
#pragma GCC unroll 16
        for (int i = 0; i < TILE; i++)
            sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)_mm512_set1_epi32((int)a[i]), col);
    }
}

static void add_tile(const cpu_gemm *g, const __m512 sum[TILE], size_t m0, size_t n0) {
    size_t rows = g->m - m0 < TILE ? g->m - m0 : TILE, cols = g->n - n0;
    __mmask16 mask = cols >= TILE ? 0xffff : (__mmask16)((1u << cols) - 1);
    for (size_t i = 0; i < rows; i++) {
        float *c = g->c + (m0 + i) * g->ldc + n0;
        __m512 old = _mm512_maskz_loadu_ps(mask, c);
        _mm512_mask_storeu_ps(c, mask, _mm512_fmadd_ps(_mm512_set1_ps(g->alpha), sum[i], old));
    }
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void run(const cpu_gemm *g, float *scratch) {
    uint32_t *pa = (uint32_t *)scratch, *pb = pa + ROWS_M / TILE * words(DEPTH);
    __m512 sum[TILE];
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++)
            g->c[i * g->ldc + j] = g->beta == 0 ? 0 : g->c[i * g->ldc + j] * g->beta;
    for (size_t n0 = 0; n0 < g->n; n0 += COLS_N)
        for (size_t k0 = 0; k0 < g->k; k0 += DEPTH) {
            size_t n = least(COLS_N, g->n - n0), depth = least(DEPTH, g->k - k0);
            pack(pb, g->b, g->ldb, g->transpose_b, n0, n, k0, depth);
            for (size_t m0 = 0; m0 < g->m; m0 += ROWS_M) {
                size_t m = least(ROWS_M, g->m - m0);
                pack(pa, g->a, g->lda, !g->transpose_a, m0, m, k0, depth);
                for (size_t j = 0; j < n; j += TILE)
                    for (size_t i = 0; i < m; i += TILE) {
                        tile(pa + i / TILE * words(depth), pb + j / TILE * words(depth),
                             (depth + 1) / 2, sum);
                        add_tile(g, sum, m0 + i, n0 + j);
                    }
            }
        }
}

const cpu_gemm_kernel cpu_gemm_bf16 = {
    .name = "bf16 products",
    .run = run,
    .scratch_floats = (ROWS_M + COLS_N) / TILE * (DEPTH / 2 * TILE),
};
