// Ternary products with many tokens for registers of 16 or 32 bytes. Included by
// ternary_narrow.inl, or alone; the including file defines
//   UNIT, bytes, codes, unpack_2bit and so on: see ternary_narrow.inl
//   DEPTH                       numbers of a row or a token that lie together
//   transpose(to, to_step, from, from_step)     UNIT / DEPTH rows of UNIT bytes as pieces of DEPTH:
//                               piece s of row r becomes piece r of the register at to + s *
//                               to_step
//   ROWS, TOKENS, tile(...)     see below
//   PAIRS, SIX_TOKENS           if tile computes eight tokens in twos, or six
#include <string.h>

#ifdef PAIRS
_Static_assert(TOKENS == 8, "any_tile");
#elif defined(SIX_TOKENS)
_Static_assert(TOKENS == 6, "any_tile");
#else
_Static_assert(TOKENS == 4, "any_tile");
#endif

// How much greater the unpacked codes are than weight + 1.
static int32_t code_excess(tern_packing packing) { return packing == TERN_PACK_1_6BIT; }

// What a kernel with such codes subtracts from its sums.
static int32_t offset_of(const tern_ternary_matrix *w, int32_t sum) {
    return (int32_t)((uint32_t)sum * (uint32_t)(1 + code_excess(w->packing)));
}

static void put(float *y, float value, bool accumulate) { *y = accumulate ? *y + value : value; }

// Where the unit of packed bytes at `at` has its elements: code k at first + k * step.
typedef struct place {
    size_t first, step;
} place;

TERN_INLINE place place_of(size_t at, size_t n_bytes, bool is_2bit) {
    if (is_2bit)
        return (place){at / TERN_I2S_BYTES * TERN_I2S_WEIGHTS + at % TERN_I2S_BYTES,
                       TERN_I2S_BYTES};
    size_t piece = at / TERN_T5_BYTES * TERN_T5_BYTES;
    return (place){5 * piece + (at - piece), tern_min_size(TERN_T5_BYTES, n_bytes - piece)};
}

// As ternary_gemm_avx512.c: ROWS rows are unpacked to [n_in / DEPTH][ROWS][DEPTH] and meet TOKENS
// tokens laid out as [n_in / DEPTH][TOKENS][DEPTH]. tile(acc, w, x, steps, n) computes the sums
// [TOKENS][ROWS] of the first n tokens, a constant. Tokens that a block lacks are zeros and not
// computed.

static size_t n_steps(size_t n_in) { return (n_in + DEPTH - 1) / DEPTH; }

static size_t padded(size_t n_in) { return (n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD; }

static size_t panels_bytes(size_t n_in, size_t n_tokens) {
    return (n_tokens + TOKENS - 1) / TOKENS * TOKENS * DEPTH * n_steps(n_in);
}

static size_t gemm_token_block(size_t n_tokens) {
    (void)n_tokens;
    return TOKENS;
}

static void make_panels(void *panels, const tern_i8_rows *x, size_t n_in, size_t first_token,
                        size_t last_token) {
    for (size_t t0 = first_token; t0 < last_token; t0 += TOKENS) {
        int8_t *dst = (int8_t *)panels + t0 * DEPTH * n_steps(n_in);
        for (size_t step = 0; step < n_steps(n_in); step++)
            for (size_t t = t0; t < t0 + TOKENS; t++, dst += DEPTH) {
                if (t < last_token)
                    memcpy(dst, x->q + t * x->stride + DEPTH * step, DEPTH);
                else
                    memset(dst, 0, DEPTH);
            }
    }
}

static size_t gemm_scratch_bytes(size_t n_in) { return padded(n_in) * ROWS; }

static void unpack_row(uint8_t *to, const uint8_t *row, size_t n_bytes, bool is_2bit) {
    for (size_t at = 0; at < n_bytes; at += UNIT) {
        place p = place_of(at, n_bytes, is_2bit);
        bytes b = load_bytes(row + at);
        codes c = is_2bit ? unpack_2bit(b) : unpack_t5(b);
        store_bytes(to + p.first, c.c0);
        store_bytes(to + p.first + p.step, c.c1);
        store_bytes(to + p.first + 2 * p.step, c.c2);
        store_bytes(to + p.first + 3 * p.step, c.c3);
        if (!is_2bit) store_bytes(to + p.first + 4 * p.step, c.c4);
    }
}

// A piece of all rows at a time, so that it stays in the first-level cache until it is transposed.
static void unpack_rows(uint8_t *block, const tern_ternary_matrix *w, size_t row, size_t last_row) {
    const bool is_2bit = w->packing == TERN_PACK_2BIT;
    const size_t n_bytes = tern_ternary_row_bytes(w->packing, w->n_in);
    const size_t piece_bytes = tern_ternary_row_bytes(w->packing, TERN_I8_PAD);
    _Alignas(32) uint8_t piece[ROWS][TERN_I8_PAD];
    memset(piece, 0, sizeof piece);
    for (size_t at = 0; at < n_bytes; at += piece_bytes, block += TERN_I8_PAD * ROWS) {
        for (size_t r = 0; r < ROWS; r++) { // past the end, repeat the last row; not stored
            const uint8_t *p = w->data + tern_min_size(row + r, last_row - 1) * w->row_bytes + at;
            unpack_row(piece[r], p, tern_min_size(piece_bytes, n_bytes - at), is_2bit);
        }
        for (size_t i = 0; i < TERN_I8_PAD; i += UNIT)
            for (size_t r = 0; r < ROWS; r += UNIT / DEPTH)
                transpose(block + i * ROWS + r * DEPTH, ROWS * DEPTH, piece[r] + i, TERN_I8_PAD);
    }
}

// The rows after a block are prefetched while it is multiplied, see ternary_gemm_avx512.c.
static void prefetch_rows(const tern_ternary_matrix *w, size_t row) {
    const uint8_t *p = w->data + row * w->row_bytes, *end = p + ROWS * w->row_bytes;
    for (; p < end; p += 64) __builtin_prefetch(p, 0, 2);
}

static void any_tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                     size_t n) {
#ifdef PAIRS
    switch ((n + 1) / 2) {
    case 1: tile(acc, w, x, steps, 2); break;
    case 2: tile(acc, w, x, steps, 4); break;
    case 3: tile(acc, w, x, steps, 6); break;
    default: tile(acc, w, x, steps, 8); break;
    }
#else
    switch (n) {
    case 1: tile(acc, w, x, steps, 1); break;
    case 2: tile(acc, w, x, steps, 2); break;
    case 3: tile(acc, w, x, steps, 3); break;
#ifdef SIX_TOKENS
    case 4: tile(acc, w, x, steps, 4); break;
    case 5: tile(acc, w, x, steps, 5); break;
#endif
    default: tile(acc, w, x, steps, TOKENS); break;
    }
#endif
}

static void gemm(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *panels,
                 void *scratch, const tern_product *to) {
    const size_t steps = n_steps(w->n_in), last_row = to->last;
    for (size_t row = to->first; row < last_row; row += ROWS) {
        const size_t n_rows = tern_min_size(last_row - row, ROWS);
        unpack_rows(scratch, w, row, last_row);
        prefetch_rows(w, row + ROWS); // may be past the end
        for (size_t t0 = 0; t0 < x->n_tokens; t0 += TOKENS) {
            const size_t end = tern_min_size(t0 + TOKENS, x->n_tokens);
            _Alignas(64) int32_t acc[TOKENS][ROWS] = {{0}};
            any_tile(acc, scratch, (const int8_t *)panels + t0 * DEPTH * steps, steps, end - t0);
            for (size_t t = t0; t < end; t++) {
                const int32_t offset = offset_of(w, x->sum[t]);
                const float scale = w->scale * x->inv_scale[t];
                for (size_t r = 0; r < n_rows; r++)
                    put(to->out + t * to->stride + row + r,
                        tern_ternary_result(acc[t - t0][r], offset, scale), to->accumulate);
            }
        }
    }
}
