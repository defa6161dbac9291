// Ternary matrix times many tokens, for AVX-512 with VNNI and VBMI.
//
// A block of 32 rows is unpacked once into `scratch`, as codes 0..2 in the order [n_in / 4][32
// rows][4 neighbouring elements], small enough to stay in the second-level cache; then it is
// multiplied with all tokens, 12 at a time. One step of four elements loads two registers of 16
// rows and broadcasts four activations of each token: 24 accumulators, each the target of one
// vpdpbusd, whose rate is the only limit: there are 14 loads to 24 of them.
// Activations lie as [block of tokens][n_in / 4][token of the block][4], so that both operands are
// read front to back. Blocks have 12 tokens or somewhat fewer, so that the last is not much smaller
// than the others: a tile of one token takes as long as one of five. It has no gaps.
// The rows that follow the block are prefetched during its first tile: unpacking reads 16 rows side
// by side, which the hardware does not foresee.
#include "kernels/cpu/ternary/ternary_avx512.h"

#include <string.h>

enum {
    ROWS = TERN_GEMM_ROWS_AVX512,
    TOKENS = 12,     // of the largest tile
    STEP = ROWS * 4, // bytes of codes that four elements take
};

static size_t n_steps(size_t n_in) { return (n_in + 3) / 4; }

// Element (row r, dword d) of v becomes element (row d, dword r).
TERN_INLINE void transpose16(__m512i v[16]) {
    __m512i a[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { // v[i + k]: dwords k, 4 + k, 8 + k, 12 + k of rows i..i + 3
        v[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int k = 0; k < 4; k++) { // now 4x4 blocks of 128 bits
        __m512i lo01 = _mm512_shuffle_i32x4(v[k], v[4 + k], 0x44);
        __m512i hi01 = _mm512_shuffle_i32x4(v[k], v[4 + k], 0xEE);
        __m512i lo23 = _mm512_shuffle_i32x4(v[8 + k], v[12 + k], 0x44);
        __m512i hi23 = _mm512_shuffle_i32x4(v[8 + k], v[12 + k], 0xEE);
        a[k] = _mm512_shuffle_i32x4(lo01, lo23, 0x88);
        a[4 + k] = _mm512_shuffle_i32x4(lo01, lo23, 0xDD);
        a[8 + k] = _mm512_shuffle_i32x4(hi01, hi23, 0x88);
        a[12 + k] = _mm512_shuffle_i32x4(hi01, hi23, 0xDD);
    }
    for (int i = 0; i < 16; i++) v[i] = a[i];
}

// ---- Activations -------------------------------------------------------------------------------

size_t tern_ternary_panels_bytes_avx512(size_t n_in, size_t n_tokens) {
    return n_steps(n_in) * 4 * n_tokens;
}

size_t tern_ternary_gemm_token_block_avx512(size_t n_tokens) {
    return tern_token_block(n_tokens, TOKENS);
}

void tern_ternary_make_panels_avx512(void *panels, const tern_i8_rows *x, size_t n_in,
                                     size_t first_token, size_t last_token) {
    const size_t block = tern_token_block(x->n_tokens, TOKENS);
    for (size_t t0 = first_token; t0 < last_token; t0 += block) {
        size_t n = tern_min_size(last_token - t0, block), steps = n_steps(n_in);
        int8_t *dst = (int8_t *)panels + t0 * steps * 4;
        __mmask16 mask = (__mmask16)((1u << n) - 1);
        for (size_t step = 0; step < steps; step += 16) {
            __m512i v[16];
            for (size_t t = 0; t < 16; t++)
                v[t] = t < n ? _mm512_loadu_si512(x->q + (t0 + t) * x->stride + step * 4)
                             : _mm512_setzero_si512();
            transpose16(v);
            for (size_t i = 0; i < tern_min_size(16, steps - step); i++, dst += n * 4)
                _mm512_mask_storeu_epi32(dst, mask, v[i]);
        }
    }
}

// ---- Weights -----------------------------------------------------------------------------------

size_t tern_ternary_gemm_scratch_bytes_avx512(size_t n_in) {
    return (n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD * ROWS; // whole pieces
}

// Packed bytes are transposed first and then unpacked: one transposition serves all their fields.
TERN_INLINE void load_transposed(__m512i v[16], const tern_ternary_matrix *w, size_t row,
                                 size_t last_row, size_t at, size_t n_bytes) {
    for (size_t r = 0; r < 16; r++) { // past the end, repeat the last row; not stored
        const uint8_t *p = w->data + tern_min_size(row + r, last_row - 1) * w->row_bytes + at;
        v[r] = n_bytes == 64 ? _mm512_loadu_si512(p) : tern_load_part(p, n_bytes);
    }
    transpose16(v);
}

// Bytes [first, end) of 16 rows from `row` on, to the half block at dst.
static void unpack_2bit(uint8_t *dst, const tern_ternary_matrix *w, tern_ternary_piece p) {
    const __m512i three = _mm512_set1_epi8(3);
    for (size_t at = p.first; at < p.end; at += 64) {
        size_t n_bytes = tern_min_size(p.end - at, 64);
        __m512i v[16];
        load_transposed(v, w, p.row, p.last_row, at, n_bytes);
        for (size_t d = 0; d < n_bytes / 4; d++) // dwords 8..15 are the second block's
            for (size_t f = 0; f < 4; f++) {
                size_t step = at - p.first + (d < 8 ? 0 : 32) + f * 8 + d % 8;
                __m512i c = _mm512_srl_epi16(v[d], _mm_cvtsi32_si128(6 - 2 * (int)f));
                _mm512_store_si512(dst + step * STEP, _mm512_and_si512(c, three));
            }
    }
}

static void unpack_t5(uint8_t *dst, const tern_ternary_matrix *w, tern_ternary_piece p) {
    const tern_t5_table table = tern_t5_load_table();
    for (size_t at = p.first; at < p.end; at += 64) {
        size_t m = tern_min_size(p.end - at, 64);
        __m512i v[16];
        load_transposed(v, w, p.row, p.last_row, at, m);
        for (size_t d = 0; d < m / 4; d++) {
            uint8_t *to = dst + ((at - p.first) / 64 * 80 + d) * STEP;
            tern_t5_codes c = tern_t5_unpack(&table, v[d]);
            _mm512_store_si512(to, c.c0);
            _mm512_store_si512(to + m / 4 * STEP, c.c1);
            _mm512_store_si512(to + 2 * (m / 4) * STEP, c.c2);
            _mm512_store_si512(to + 3 * (m / 4) * STEP, c.c3);
            _mm512_store_si512(to + 4 * (m / 4) * STEP, c.c4);
        }
    }
}

void tern_ternary_unpack_avx512(uint8_t *to, const tern_ternary_matrix *w, tern_ternary_piece p) {
    for (size_t h = 0; h < 2; h++, p.row += 16)
        (w->packing == TERN_PACK_2BIT ? unpack_2bit : unpack_t5)(to + h * 64, w, p);
}

// ---- Products ----------------------------------------------------------------------------------

TERN_INLINE __m512i broadcast4(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_set1_epi32(four);
}

TERN_INLINE void put_16(float *y, __m512i acc, int32_t sum, float scale, __mmask16 mask,
                        bool accumulate) {
    __m512 v = _mm512_cvtepi32_ps(_mm512_sub_epi32(acc, _mm512_set1_epi32(sum)));
    v = _mm512_mul_ps(v, _mm512_set1_ps(scale));
    if (accumulate) v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), v);
    _mm512_mask_storeu_ps(y, mask, v);
}

#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

// Tokens against 32 rows.
typedef struct tile_args {
    const uint8_t *w; // the block's codes
    const int8_t *x;  // the tokens' activations
    size_t steps;
    const int32_t *sum;     // of each token
    const float *inv_scale; // likewise
    float scale;            // of the matrix
    __mmask16 mask[2];      // which of the 16 rows of a register are stored
    float *out;
    size_t out_stride;
    bool accumulate;
    const uint8_t *ahead; // what to prefetch, ahead_step bytes a step
    size_t ahead_step;
} tile_args;

// n_tokens is a constant. Every accumulator has a name, since gcc 12 keeps an array of them in
// memory.
TERN_INLINE void tile(const tile_args g, int n_tokens) {
    const uint8_t *w = g.w, *ahead = g.ahead;
    const int8_t *x = g.x;
#define DECLARE(t) __m512i a##t = _mm512_setzero_si512(), b##t = a##t;
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) {                                                                          \
        __m512i q = broadcast4(x + (t)*4);                                                         \
        a##t = tern_dot_add(a##t, wa, q);                                                          \
        b##t = tern_dot_add(b##t, wb, q);                                                          \
    }
#define PUT(t)                                                                                     \
    if ((t) < n_tokens) {                                                                          \
        float *y = g.out + (t)*g.out_stride;                                                       \
        put_16(y, a##t, g.sum[t], g.scale *g.inv_scale[t], g.mask[0], g.accumulate);               \
        put_16(y + 16, b##t, g.sum[t], g.scale * g.inv_scale[t], g.mask[1], g.accumulate);         \
    }
    EACH_TOKEN(DECLARE)
    for (size_t i = g.steps; i; i--, w += STEP, x += n_tokens * 4, ahead += g.ahead_step) {
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        __m512i wa = _mm512_load_si512(w), wb = _mm512_load_si512(w + 64);
        EACH_TOKEN(MULTIPLY)
    }
    EACH_TOKEN(PUT)
#undef DECLARE
#undef MULTIPLY
#undef PUT
}

void tern_ternary_gemm_avx512(const tern_ternary_matrix *w, const tern_i8_rows *x,
                              const void *panels, void *scratch, const tern_product *to) {
    const size_t last_row = to->last;
    const size_t steps = n_steps(w->n_in), block = tern_token_block(x->n_tokens, TOKENS);
    const size_t ahead_step = (ROWS * w->row_bytes + steps - 1) / steps;
    for (size_t row = to->first; row < last_row; row += ROWS) {
        size_t n_rows = tern_min_size(last_row - row, ROWS);
        uint32_t stored = n_rows < ROWS ? (1u << n_rows) - 1 : ~0u;
        const size_t row_bytes = tern_ternary_row_bytes(w->packing, w->n_in);
        tern_ternary_unpack_avx512(scratch, w, (tern_ternary_piece){row, last_row, 0, row_bytes});
        for (size_t t = 0; t < x->n_tokens; t += block) {
            const uint8_t *ahead = w->data + (row + ROWS) * w->row_bytes; // may be past the end
            const tile_args g = {.w = scratch,
                                 .x = (const int8_t *)panels + t * steps * 4,
                                 .steps = steps,
                                 .sum = x->sum + t,
                                 .inv_scale = x->inv_scale + t,
                                 .scale = w->scale,
                                 .mask = {(__mmask16)stored, (__mmask16)(stored >> 16)},
                                 .out = to->out + t * to->stride + row,
                                 .out_stride = to->stride,
                                 .accumulate = to->accumulate,
                                 .ahead = t == 0 ? ahead : scratch,
                                 .ahead_step = t == 0 ? ahead_step : 0};
            switch (tern_min_size(x->n_tokens - t, block)) {
#define TILE(n)                                                                                    \
    case n: tile(g, n); break
                TILE(1);
                TILE(2);
                TILE(3);
                TILE(4);
                TILE(5);
                TILE(6);
                TILE(7);
                TILE(8);
                TILE(9);
                TILE(10);
                TILE(11);
                TILE(12);
#undef TILE
            }
        }
    }
}

uint64_t tern_ternary_peak_loop_avx512(void) {
    enum { ROUNDS = 1 << 14 };
    __m512i w = _mm512_set1_epi8(1), q = _mm512_set1_epi8(1);
#define START(t) __m512i a##t = w;
#define ADD(t)   a##t = tern_dot_add(a##t, w, q);
#define USE(t)   __asm__ volatile("" ::"v"(a##t)); // the sums count as used
    EACH_TOKEN(START)
    for (int i = 0; i < ROUNDS; i++) {
        EACH_TOKEN(ADD)
    }
    EACH_TOKEN(USE)
#undef START
#undef ADD
#undef USE
    return (uint64_t)ROUNDS * TOKENS * 64;
}
