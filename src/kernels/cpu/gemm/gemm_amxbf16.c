// Products whose factors are rounded to bf16 in AMX's tiles: eight thousand multiply-adds in 16
// cycles, 16 times those of float32's fma.
//
// 32 rows of A meet 32 columns of B as in tiles_amx.h: tile 2 i + h has rows 16 i to 16 i + 15 and
// columns 16 h to 16 h + 15 of C, and adds up in C itself. A step takes 32 values of k:
//
//     A [step][row of 32][16]   16 words, each a pair of neighbours in k
//     B [step][16][column of 32]
//
// An element of C is one chain over the steps, starting with what it holds or 0: to it is added the
// step's sum, which the unit makes of two chains of fmas from 0, over the first and over the second
// values of the pairs, and their sum. Numbers too small for a normal float count as 0. So the bits
// depend on no cut between steps.
#include <math.h>
#include <string.h>
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/float/vec_math.inl"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/tiles_amx.h"

enum { SIDE = 32, GEMM_UNIT = 16, STEP = SIDE * GEMM_UNIT }; // words of a step of A or B

#include "kernels/cpu/gemm/gemm_bf16.inl"
#include "kernels/cpu/gemm/gemm_panels.inl"

// ---- Panels ------------------------------------------------------------------------------------

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// Rows of X as they are.
static void pack_rows(float *to, const float *x, size_t ld, size_t n, size_t depth) {
    const size_t panel = panel_words(depth) * SIDE, rows = (n + SIDE - 1) / SIDE * SIDE;
    for (size_t i = 0; i < rows; i++, x += ld) {
        float *at = to + i / SIDE * panel + i % SIDE * GEMM_UNIT;
        for (size_t k = 0; k < depth; k += 2 * GEMM_UNIT, at += STEP)
            v16_store(at, i < n ? gemm_along(x + k, depth - k) : v16_set1(0));
    }
}

// Columns of X, turned into rows.
static void pack_columns(float *to, const float *x, size_t ld, size_t n, size_t depth) {
    const size_t panel = panel_words(depth) * SIDE, cols = (n + SIDE - 1) / SIDE * SIDE;
    for (size_t k = 0; k < depth; k += 2 * GEMM_UNIT, to += STEP)
        for (size_t i = 0; i < cols; i += 16) {
            v16 words[VEC_TURN_ROWS];
#pragma GCC unroll 16
            for (size_t w = 0; w < GEMM_UNIT; w++) {
                const size_t at = k + 2 * w;
                words[w] = v16_set1(0);
                if (i < n && at < depth)
                    words[w] = gemm_across(x + at * ld + i, ld, n - i, depth - at);
            }
            v16_turn(to + i / SIDE * panel + i % SIDE * GEMM_UNIT, GEMM_UNIT, words);
        }
}

static void pack_a(float *to, const float *x, size_t ld, bool along, size_t n, size_t depth) {
    if (along)
        pack_rows(to, x, ld, n, depth);
    else
        pack_columns(to, x, ld, n, depth);
}

static void pack_b(float *to, const float *x, size_t ld, bool along, size_t n, size_t depth) {
    if (along)
        pack_panels(to, x, ld, n, depth, SIDE);
    else
        pack_across(to, x, ld, n, depth, SIDE);
}

// ---- Products ----------------------------------------------------------------------------------

// The 32 rows of C that come next, none of them in a near cache: some with each step.
typedef struct next_c {
    const float *c;
    size_t ldc, n, each; // rows left, and with a step
} next_c;

VEC_INLINE void fetch(next_c *next) {
    for (size_t i = 0; i < next->each && next->n; i++, next->n--, next->c += next->ldc) {
        __builtin_prefetch(next->c, 1);
        __builtin_prefetch(next->c + 16, 1);
    }
}

// Up to 32 x 32 of C; not is_low: the first 16 rows alone; not is_wide: the first 16 columns.
VEC_INLINE void multiply_steps(const float *a, const float *b, size_t n_steps, next_c next,
                               bool is_low, bool is_wide) {
    for (size_t s = 0; s < n_steps; s++, a += STEP, b += STEP) {
        fetch(&next);
        _tile_loadd(4, a, 4 * GEMM_UNIT);
        _tile_loadd(6, b, 4 * SIDE);
        if (is_wide) _tile_loadd(7, b + 16, 4 * SIDE);
        _tile_dpbf16ps(0, 4, 6);
        if (is_wide) _tile_dpbf16ps(1, 4, 7);
        if (is_low) {
            _tile_loadd(5, a + 16 * GEMM_UNIT, 4 * GEMM_UNIT);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (is_low && is_wide) _tile_dpbf16ps(3, 5, 7);
    }
}

static void load_c(const float *c, size_t ldc) {
    tern_tiles_fence();
    _tile_loadd(0, c, 4 * ldc);
    _tile_loadd(1, c + 16, 4 * ldc);
    _tile_loadd(2, c + 16 * ldc, 4 * ldc);
    _tile_loadd(3, c + 16 * ldc + 16, 4 * ldc);
}

static void store_c(float *c, size_t ldc) {
    _tile_stored(0, c, 4 * ldc);
    _tile_stored(1, c + 16, 4 * ldc);
    _tile_stored(2, c + 16 * ldc, 4 * ldc);
    _tile_stored(3, c + 16 * ldc + 16, 4 * ldc);
    tern_tiles_fence();
}

static void clear_c(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// Rows of `cols` floats, in memory that has room for no more.
static void copy_rows(float *to, size_t to_ld, const float *from, size_t from_ld, size_t rows,
                      size_t cols) {
    for (size_t i = 0; i < rows; i++) memcpy(to + i * to_ld, from + i * from_ld, 4 * cols);
}

// A tile at the end of C.
static void multiply_edge(const tern_gemm_part *c, const float *a, const float *b, size_t n_steps) {
    _Alignas(64) float sums[SIDE * SIDE] = {0};
    if (c->accumulate) copy_rows(sums, SIDE, c->c, c->ldc, c->m, c->n);
    load_c(sums, SIDE);
    if (c->m > 16 && c->n > 16)
        multiply_steps(a, b, n_steps, (next_c){0}, true, true);
    else if (c->m > 16)
        multiply_steps(a, b, n_steps, (next_c){0}, true, false);
    else if (c->n > 16)
        multiply_steps(a, b, n_steps, (next_c){0}, false, true);
    else
        multiply_steps(a, b, n_steps, (next_c){0}, false, false);
    store_c(sums, SIDE);
    copy_rows(c->c, c->ldc, sums, SIDE, c->m, c->n);
}

static void multiply(const tern_gemm_part *c, const float *a, const float *b, size_t words) {
    const size_t n_steps = (words + GEMM_UNIT - 1) / GEMM_UNIT, panel = n_steps * STEP;
    tern_tiles_fence();
    tern_tiles_begin(16, 16, GEMM_UNIT);
    for (size_t j = 0; j < c->n; j += SIDE, b += panel)
        for (size_t i = 0; i < c->m; i += SIDE) {
            float *at = c->c + i * c->ldc + j;
            const tern_gemm_part part = {at, c->ldc, least(c->m - i, SIDE), least(c->n - j, SIDE),
                                         c->accumulate};
            if (part.m < SIDE || part.n < SIDE) {
                multiply_edge(&part, a + i / SIDE * panel, b, n_steps);
                continue;
            }
            if (c->accumulate)
                load_c(at, c->ldc);
            else
                clear_c();
            const bool is_last = c->m - i < 2 * SIDE;
            const next_c next = {is_last ? c->c + j + SIDE : at + SIDE * c->ldc, c->ldc,
                                 is_last && c->n - j < 2 * SIDE ? 0 : SIDE,
                                 (SIDE - 1) / n_steps + 1};
            multiply_steps(a + i / SIDE * panel, b, n_steps, next, true, true);
            store_c(at, c->ldc);
        }
    tern_tiles_end();
}

static uint64_t peak_loop(void) {
    enum { STEPS = 1 << 12 };
    tern_tiles_begin(16, 16, GEMM_UNIT); // all zeros, which take as long
    for (int i = 0; i < STEPS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    tern_tiles_end();
    return (uint64_t)STEPS * 2 * STEP * SIDE;
}

const tern_gemm_kernels tern_gemm_kernels_amxbf16 = {.name = "bf16 products in tiles",
                                                     .rows = SIDE,
                                                     .cols = SIDE,
                                                     .values = 2,
                                                     .depth = 2 * TERN_GEMM_DEPTH,
                                                     .pack_a = pack_a,
                                                     .pack_b = pack_b,
                                                     .multiply = multiply,
                                                     .peak_loop = peak_loop};
