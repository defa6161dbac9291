// Ternary matrix times many tokens, for AMX; kernels/cpu/tiles_amx.h says what that is.
//
// Weights are unpacked as for AVX-512, 32 rows at a time, as codes 0..2 in the order [n_in / 4][32
// rows][4 neighbouring elements]: two tiles of B lie side by side. Activations lie as tiles of A,
// [block of tokens][n_in / 64][token of the block][64], with zeros after the last column and the
// last token, so that there are no odd ends to compute: a code that does not count meets a zero.
// Blocks have 16 tokens or somewhat fewer, all the same number, since tiles have one shape.
//
// 32 tokens meet 32 rows at once. What bounds them is the second-level cache, whence both operands
// come. All activations of a long prompt do not fit there, so several times 32 rows are unpacked
// before the tokens pass by, as many as ROOM holds.
#include "kernels/cpu/ternary/ternary_avx512.h"
#include "kernels/cpu/tiles_amx.h"

#include <string.h>

enum {
    ROWS = TERN_GEMM_ROWS_AVX512, // of weights against which tokens are multiplied at once
    STEP = ROWS * 4,              // bytes of codes that four elements take
    PIECE = 128,                  // bytes of a row that are unpacked at once
    ROOM = 768 << 10,             // bytes of codes
};

static size_t n_steps(size_t n_in) { return (n_in + TILE_DEPTH - 1) / TILE_DEPTH; }

// ---- Activations -------------------------------------------------------------------------------

size_t tern_ternary_gemm_token_block_amx(size_t n_tokens) {
    return tern_token_block(n_tokens, TILE_TOKENS);
}

size_t tern_ternary_panels_bytes_amx(size_t n_in, size_t n_tokens) {
    const size_t block = tern_token_block(n_tokens, TILE_TOKENS);
    return (n_tokens + block - 1) / block * block * n_steps(n_in) * TILE_DEPTH;
}

void tern_ternary_make_panels_amx(void *panels, const tern_i8_rows *x, size_t n_in,
                                  size_t first_token, size_t last_token) {
    const size_t block = tern_token_block(x->n_tokens, TILE_TOKENS), steps = n_steps(n_in);
    for (size_t t = first_token; t < last_token; t += block) {
        int8_t *to = (int8_t *)panels + t * steps * TILE_DEPTH;
        for (size_t step = 0; step < steps; step++)
            for (size_t i = 0; i < block; i++, to += TILE_DEPTH) {
                const int8_t *q = x->q + (t + i) * x->stride + step * TILE_DEPTH;
                _mm512_storeu_si512(to, t + i < last_token ? _mm512_loadu_si512(q)
                                                           : _mm512_setzero_si512());
            }
    }
}

// ---- Products ----------------------------------------------------------------------------------

// 32 rows of codes.
static size_t codes_bytes(size_t n_in) {
    return (n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD * ROWS; // whole pieces
}

// How many times 32 rows are unpacked at once.
static size_t row_blocks(size_t n_in) {
    const size_t n = ROOM / codes_bytes(n_in);
    return n > 1 ? n : 1;
}

size_t tern_ternary_gemm_scratch_bytes_amx(size_t n_in) {
    return codes_bytes(n_in) * row_blocks(n_in);
}

typedef struct tile_args {
    const tern_ternary_matrix *w;
    size_t row, last_row;
    uint8_t *codes;      // of 32 rows
    bool is_first;       // they must be unpacked
    size_t piece_stride; // from one piece's codes to the next's
    const int8_t *x;     // the first block of tokens' activations
    size_t steps, block;
    size_t n_tokens; // up to two blocks
    const int32_t *sum;
    const float *inv_scale;
    const tern_product *to;
    float *out;
    const uint8_t *ahead; // what to prefetch
    size_t n_ahead;       // lines of it in a step
} tile_args;

// From whole sums [2 blocks of tokens][block][32] to results.
static void put(const tile_args *g, const int32_t *sums) {
    const size_t n_rows = tern_min_size(g->last_row - g->row, ROWS);
    const uint32_t stored = n_rows < ROWS ? (1u << n_rows) - 1 : ~0u;
    const __mmask16 mask[2] = {(__mmask16)stored, (__mmask16)(stored >> 16)};
    for (size_t t = 0; t < g->n_tokens; t++, sums += ROWS) {
        const __m512 scale = _mm512_set1_ps(g->w->scale * g->inv_scale[t]);
        const __m512i sum = _mm512_set1_epi32(g->sum[t]);
        float *y = g->out + t * g->to->stride;
        for (size_t h = 0; h < 2; h++) {
            __m512i acc = _mm512_sub_epi32(_mm512_load_si512(sums + 16 * h), sum);
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), scale);
            if (g->to->accumulate) v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask[h], y + 16 * h), v);
            _mm512_mask_storeu_ps(y + 16 * h, mask[h], v);
        }
    }
}

// What will be read and written next, none of it in a near cache: n lines of rows that come later,
// and a token's results.
static void fetch(const uint8_t *rows, size_t n, const float *out) {
    for (; n; n--, rows += 64) _mm_prefetch((const char *)rows, _MM_HINT_T1);
    if (!out) return;
    __asm__ volatile("prefetchw %0" ::"m"(out[0]));
    __asm__ volatile("prefetchw %0" ::"m"(out[16]));
}

// Up to two blocks of tokens times 32 rows. Tile 2 i + h has block i's sums with half h of the
// rows.
static void tile(const tile_args *g) {
    _Alignas(64) int32_t sums[2 * TILE_TOKENS * ROWS];
    const bool is_2bit = g->w->packing == TERN_PACK_2BIT, is_pair = g->n_tokens > g->block;
    const size_t row_bytes = tern_ternary_row_bytes(g->w->packing, g->w->n_in);
    const size_t a_bytes = g->block * TILE_DEPTH;
    const size_t piece_steps = PIECE * (is_2bit ? 4 : 5) / TILE_DEPTH;
    uint8_t *codes = g->codes;
    const uint8_t *ahead = g->ahead;
    const int8_t *a = g->x;
    size_t step = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t at = 0; at < row_bytes; at += PIECE, codes += g->piece_stride) {
        const size_t end = tern_min_size(g->steps, step + piece_steps);
        const uint8_t *b = codes;
        if (g->is_first) {
            const size_t last = tern_min_size(row_bytes, at + PIECE);
            tern_ternary_unpack_avx512(codes, g->w,
                                       (tern_ternary_piece){g->row, g->last_row, at, last});
            tern_tiles_fence();
        }
        for (; step < end; step++, a += a_bytes, b += TILE_DEPTH / 4 * STEP) {
            fetch(ahead, g->n_ahead, step < g->n_tokens ? g->out + step * g->to->stride : NULL);
            ahead += 64 * g->n_ahead;
            _tile_loadd(4, a, TILE_DEPTH);
            _tile_loadd(6, b, STEP);
            _tile_loadd(7, b + 64, STEP);
            _tile_dpbsud(0, 4, 6); // signed activations, unsigned codes
            _tile_dpbsud(1, 4, 7);
            if (!is_pair) continue;
            _tile_loadd(5, a + a_bytes * g->steps, TILE_DEPTH);
            _tile_dpbsud(2, 5, 6);
            _tile_dpbsud(3, 5, 7);
        }
    }
    _tile_stored(0, sums, ROWS * 4);
    _tile_stored(1, sums + 16, ROWS * 4);
    _tile_stored(2, sums + g->block * ROWS, ROWS * 4);
    _tile_stored(3, sums + g->block * ROWS + 16, ROWS * 4);
    put(g, sums);
}

// All tokens times the rows from `row` to `end`.
static void multiply_rows(tile_args *g, const tern_i8_rows *x, const int8_t *panels,
                          uint8_t *scratch, size_t row, size_t end) {
    const size_t row_bytes = g->w->row_bytes, pair = 2 * g->block;
    // While they are multiplied, as many rows after them are fetched: a share with each tile.
    const size_t n_tiles = (x->n_tokens + pair - 1) / pair * ((end - row + ROWS - 1) / ROWS);
    const size_t lines = (end - row) * row_bytes / 64 + 1;
    const size_t each = (lines + n_tiles * g->steps - 1) / (n_tiles * g->steps);
    const uint8_t *next = g->w->data + end * row_bytes; // may be past the end
    g->ahead = next;
    for (size_t t = 0; t < x->n_tokens; t += pair)
        for (size_t r = row; r < end; r += ROWS, g->ahead += 64 * g->n_ahead * g->steps) {
            g->row = r;
            g->is_first = t == 0;
            g->codes = scratch + (r - row) / ROWS * codes_bytes(g->w->n_in);
            g->x = panels + t * g->steps * TILE_DEPTH;
            g->n_tokens = tern_min_size(x->n_tokens - t, pair);
            g->sum = x->sum + t;
            g->inv_scale = x->inv_scale + t;
            g->out = g->to->out + t * g->to->stride + r;
            g->n_ahead = g->ahead < next + 64 * lines ? each : 0;
            tile(g);
        }
}

void tern_ternary_gemm_amx(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *panels,
                           void *scratch, const tern_product *to) {
    const size_t block = tern_token_block(x->n_tokens, TILE_TOKENS);
    // Codes that are read once lie where those before them lay, in the first-level cache.
    const bool is_once = x->n_tokens <= 2 * block;
    const size_t most = (is_once ? 1 : row_blocks(w->n_in)) * ROWS;
    tile_args g = {.w = w,
                   .last_row = to->last,
                   .piece_stride =
                       is_once ? 0 : PIECE * (w->packing == TERN_PACK_2BIT ? 4 : 5) * (size_t)ROWS,
                   .steps = n_steps(w->n_in),
                   .block = block,
                   .to = to};
    tern_tiles_begin(block, block, TILE_DEPTH / 4);
    for (size_t row = to->first; row < to->last; row += most)
        multiply_rows(&g, x, panels, scratch, row, tern_min_size(to->last, row + most));
    tern_tiles_end();
}

uint64_t tern_ternary_peak_loop_amx(void) {
    enum { ROUNDS = 1 << 13 };
    tern_tiles_begin(TILE_TOKENS, TILE_TOKENS, TILE_DEPTH / 4); // all zeros, which take as long
    for (int i = 0; i < ROUNDS; i++) {
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    tern_tiles_end();
    return (uint64_t)ROUNDS * 4 * TILE_TOKENS * TILE_ROWS * TILE_DEPTH;
}
