// Ternary kernels for registers of 16 or 32 bytes: what AVX2 and NEON have in common. Included by a
// file for an instruction set, after it has defined
//   UNIT                        bytes of a register
//   bytes, load_bytes(p), store_bytes(p, b)
//   unpack_2bit(b), unpack_t5(b)     `codes` c0..c4 of packed bytes; the latter are 1 too great
//   unit_sums, no_units(), dot_add(u, c, x)     adds codes c times activations at x; it must be
//                               allowed MAX_DOTS times with codes up to 3
//   sums, no_sums(), add_units(s, u)    32-bit sums, add_up(s) all of their lanes
//   DEPTH, transpose, ROWS, TOKENS, tile     see ternary_tiles.inl
//   GEMV_TOKENS_2BIT, _T5       where gemm overtakes gemv
//   DOT_ONE(row, n_bytes, x, is_2bit)     if there is a better way for one token: the sum of a
//                               row's codes, as they are unpacked, times activations
//   CHAINED(is_2bit), dot_chains(...)     if dot_row has a better way for up to that many tokens
//   UNITS_APART                 if a unit's products are better added up from zero than to the sums
//                               before it, which they would wait for; then unit_sums are sums
//   SMALL                       if code for up to 4 tokens at once must do, else for up to 8
//   KERNELS, NAME, peak_loop()  the table to define
#include "kernels/cpu/ternary/ternary_tiles.inl"

enum { MAX_DOTS = 40 };
enum { GROUP = 16, CACHED = 24576 }; // rows at once; bytes of activations
#ifdef SMALL
enum { FEW = 4 }; // tokens at once
#else
enum { FEW = 8 };
#endif

// ---- Few rows: decoding, short prompts ---------------------------------------------------------

TERN_INLINE unit_sums dot_unit(unit_sums u, bytes b, const int8_t *x, place p, bool is_2bit) {
    codes c = is_2bit ? unpack_2bit(b) : unpack_t5(b);
    x += p.first;
#ifdef UNITS_APART
    const unit_sums before = u;
    u = no_units();
#endif
    u = dot_add(u, c.c0, x);
    u = dot_add(u, c.c1, x + p.step);
    u = dot_add(u, c.c2, x + 2 * p.step);
    u = dot_add(u, c.c3, x + 3 * p.step);
    if (!is_2bit) u = dot_add(u, c.c4, x + 4 * p.step);
#ifdef UNITS_APART
    u = add_units(before, u);
#endif
    return u;
}

#define EACH_TOKEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

// One row times n_tokens (a constant) of x's, from x->q on.
TERN_INLINE void dot_row(int32_t acc[FEW], const uint8_t *row, size_t n_bytes, const tern_i8_rows x,
                         bool is_2bit, int n_tokens) {
#define DECLARE(t) sums s##t = no_sums();
#define BEGIN(t)   unit_sums u##t = no_units();
#define MULTIPLY(t)                                                                                \
    if ((t) < n_tokens) u##t = dot_unit(u##t, b, x.q + (t)*x.stride, p, is_2bit);
#define END(t)                                                                                     \
    if ((t) < n_tokens) s##t = add_units(s##t, u##t);
#define STORE(t)                                                                                   \
    if ((t) < n_tokens) acc[t] = add_up(s##t);
#ifdef CHAINED
    if (n_tokens <= CHAINED(is_2bit)) {
        dot_chains(acc, row, n_bytes, x, is_2bit, n_tokens);
        return;
    }
#endif
    EACH_TOKEN(DECLARE)
    for (size_t at = 0; at < n_bytes;) {
        size_t end = tern_min_size(n_bytes, at + MAX_DOTS / 5 * UNIT);
        EACH_TOKEN(BEGIN)
        for (; at < end; at += UNIT) {
            bytes b = load_bytes(row + at);
            place p = place_of(at, n_bytes, is_2bit);
            __builtin_prefetch(row + at + TERN_AHEAD, 0, 2); // to the second-level cache
            EACH_TOKEN(MULTIPLY)
        }
        EACH_TOKEN(END)
    }
    EACH_TOKEN(STORE)
#undef DECLARE
#undef BEGIN
#undef MULTIPLY
#undef END
#undef STORE
}

typedef struct gemv_args {
    const tern_ternary_matrix *w;
    const tern_i8_rows *x;
    size_t n_bytes;
    tern_product to;
} gemv_args;

// One row times the tokens from `token` on, n of them (a constant).
TERN_INLINE void gemv_row(const gemv_args *g, size_t row, size_t token, bool is_2bit, int n) {
    int32_t acc[FEW];
    const tern_ternary_matrix *w = g->w;
    const tern_i8_rows *x = g->x;
    const tern_i8_rows some = {.q = x->q + token * x->stride, .stride = x->stride};
    dot_row(acc, w->data + row * w->row_bytes, g->n_bytes, some, is_2bit, n);
    for (size_t t = 0; t < (size_t)n; t++)
        put(g->to.out + (token + t) * g->to.stride + row,
            tern_ternary_result(acc[t], offset_of(w, x->sum[token + t]),
                                w->scale * x->inv_scale[token + t]),
            g->to.accumulate);
}

#define ROW_OF(name, is_2bit, n)                                                                   \
    static void name##_##n(const gemv_args *g, size_t row, size_t token) {                         \
        gemv_row(g, row, token, is_2bit, n);                                                       \
    }
#define EACH_COUNT(X, name, is_2bit)                                                               \
    X(name, is_2bit, 1)                                                                            \
    X(name, is_2bit, 2)                                                                            \
    X(name, is_2bit, 3)                                                                            \
    X(name, is_2bit, 4)                                                                            \
    EACH_MORE(X, name, is_2bit)
#ifdef SMALL
#define EACH_MORE(X, name, is_2bit)
#else
#define EACH_MORE(X, name, is_2bit)                                                                \
    X(name, is_2bit, 5)                                                                            \
    X(name, is_2bit, 6)                                                                            \
    X(name, is_2bit, 7)                                                                            \
    X(name, is_2bit, 8)
#endif
EACH_COUNT(ROW_OF, row_2bit, true)
EACH_COUNT(ROW_OF, row_t5, false)
#define POINTER(name, is_2bit, n) name##_##n,
typedef void (*row_fn)(const gemv_args *g, size_t row, size_t token);
static const row_fn row_fns[2][FEW] = {{EACH_COUNT(POINTER, row_2bit, true)},
                                       {EACH_COUNT(POINTER, row_t5, false)}};

#ifdef DOT_ONE
TERN_INLINE void gemv_one(const gemv_args *g, size_t row, size_t last_row, bool is_2bit) {
    const tern_ternary_matrix *w = g->w;
    const int32_t offset = offset_of(w, g->x->sum[0]);
    const float scale = w->scale * g->x->inv_scale[0];
    for (; row < last_row; row++) {
        int32_t acc = DOT_ONE(w->data + row * w->row_bytes, g->n_bytes, g->x->q, is_2bit);
        put(g->to.out + row, tern_ternary_result(acc, offset, scale), g->to.accumulate);
    }
}
#endif

// A group of rows comes from memory once; all tokens meet it, in parts as equal as can be, whose
// activations stay in the first-level cache meanwhile.
static void gemv(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *prepared,
                 const tern_product *to) {
    (void)prepared;
    const gemv_args g = {w, x, tern_ternary_row_bytes(w->packing, w->n_in), *to};
#ifdef DOT_ONE
    if (x->n_tokens == 1) {
        if (w->packing == TERN_PACK_2BIT)
            gemv_one(&g, to->first, to->last, true);
        else
            gemv_one(&g, to->first, to->last, false);
        return;
    }
#endif
    // Unpacking 1.6-bit rows twice would cost more than what the cache gains.
    const bool too_long = w->packing == TERN_PACK_2BIT && FEW * x->stride > CACHED;
    const size_t most = too_long ? FEW / 2 : FEW;
    const size_t n_parts = (x->n_tokens + most - 1) / most;
    for (size_t row = to->first; row < to->last; row += GROUP)
        for (size_t i = 0; i < n_parts; i++) {
            size_t token = x->n_tokens * i / n_parts, end = x->n_tokens * (i + 1) / n_parts;
            for (size_t r = row; r < tern_min_size(row + GROUP, to->last); r++)
                row_fns[w->packing][end - token - 1](&g, r, token);
        }
}

static size_t prepared_bytes(tern_packing packing, size_t n_in, size_t n_tokens) {
    (void)packing, (void)n_in, (void)n_tokens;
    return 0; // activations are read in their own order
}

static void prepare(tern_packing packing, void *prepared, const tern_i8_rows *x, size_t n_in,
                    size_t first_token, size_t last_token) {
    (void)packing, (void)prepared, (void)x, (void)n_in, (void)first_token, (void)last_token;
}

// ---- Packing -----------------------------------------------------------------------------------

// The lower two bits of w + 1, to be stored.
static void codes_of(uint8_t *to, const int8_t *q, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)(q[i] + 1) & 3;
}

static const _Alignas(32) uint8_t low_parts[81] = {
#define LOW1(m) (256 * ((m) + 1) / 243 - 1)
#define LOW9(m)                                                                                    \
    LOW1(m), LOW1(m + 1), LOW1(m + 2), LOW1(m + 3), LOW1(m + 4), LOW1(m + 5), LOW1(m + 6),         \
        LOW1(m + 7), LOW1(m + 8)
    LOW9(0), LOW9(9), LOW9(18), LOW9(27), LOW9(36), LOW9(45), LOW9(54), LOW9(63), LOW9(72)};

// n <= TERN_I8_PAD codes, 1 after n.
static void pack_codes(const uint8_t *c, size_t n, uint8_t *row) {
    for (size_t base = 0, m; base < n; base += 5 * m, row += m, c += 5 * m) {
        m = n - base >= TERN_T5_WEIGHTS ? TERN_T5_BYTES : tern_t5_tail_bytes(n);
        uint8_t number[TERN_T5_BYTES];
        for (size_t j = 0; j < m; j++)
            number[j] =
                (uint8_t)(27 * c[m + j] + 9 * c[2 * m + j] + 3 * c[3 * m + j] + c[4 * m + j]);
        for (size_t j = 0; j < m; j++)
            row[j] = (uint8_t)(TERN_T5_FIRST * c[j] + low_parts[number[j]]);
    }
}

static void repack_row(uint8_t *dst, const uint8_t *src, size_t n_in) {
    _Alignas(64) uint8_t piece[TERN_I8_PAD];
    for (size_t base = 0; base < n_in; base += TERN_I8_PAD, dst += TERN_I8_PAD / 5) {
        size_t n = tern_min_size(n_in - base, TERN_I8_PAD);
        unpack_row(piece, src + base / 4, tern_ternary_row_bytes(TERN_PACK_2BIT, n), true);
        memset(piece + n, 1, TERN_I8_PAD - n);
        pack_codes(piece, n, dst);
    }
}

static void pack_row(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row) {
    _Alignas(64) uint8_t piece[TERN_I8_PAD];
    for (size_t base = 0; base < n_in; base += TERN_I8_PAD) {
        size_t n = tern_min_size(n_in - base, TERN_I8_PAD);
        codes_of(piece, q + base, n);
        memset(piece + n, 1, TERN_I8_PAD - n);
        if (packing == TERN_PACK_1_6BIT) {
            pack_codes(piece, n, row + base / 5);
            continue;
        }
        for (const uint8_t *c = piece; c < piece + n; c += TERN_I2S_WEIGHTS)
            for (size_t j = 0; j < TERN_I2S_BYTES; j++)
                row[(base + (size_t)(c - piece)) / 4 + j] =
                    (uint8_t)(c[j] << 6 | c[j + 32] << 4 | c[j + 64] << 2 | c[j + 96]);
    }
}

const tern_ternary_kernels KERNELS = {
    .name = NAME,
    .pack_row = pack_row,
    .repack_row = repack_row,
    .gemv_tokens = {GEMV_TOKENS_2BIT, GEMV_TOKENS_T5},
    .prepared_bytes = prepared_bytes,
    .prepare = prepare,
    .gemv = gemv,
    .gemm_row_block = ROWS,
    .panels_bytes = panels_bytes,
    .make_panels = make_panels,
    .gemm_token_block = gemm_token_block,
    .gemm_scratch_bytes = gemm_scratch_bytes,
    .gemm = gemm,
    .peak_loop = peak_loop,
};
