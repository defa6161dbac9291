// Ternary kernels for ARM processors with products of int8 matrices (ARMv8.6): smmla adds the
// products of two rows and two tokens, eight numbers of each, to four int32 sums. Only prompts
// gain: with few tokens, unpacking counts, and sdot needs no tokens in twos.
#define PAIRS
#include "kernels/cpu/ternary/ternary_neon.inl"

enum { TOKENS = 8, DEPTH = 8 };

// 2 rows of 2 pieces.
TERN_INLINE void transpose(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step) {
    uint64x2_t r0 = vreinterpretq_u64_u8(vld1q_u8(from));
    uint64x2_t r1 = vreinterpretq_u64_u8(vld1q_u8(from + from_step));
    vst1q_u8(to, vreinterpretq_u8_u64(vtrn1q_u64(r0, r1)));
    vst1q_u8(to + to_step, vreinterpretq_u8_u64(vtrn2q_u64(r0, r1)));
}

// Sums of two tokens and two rows each.
#define EACH_OF(X, t) X(t, 0) X(t, 1) X(t, 2) X(t, 3)
#define EACH_PAIR(X)  EACH_OF(X, 0) EACH_OF(X, 1) EACH_OF(X, 2) EACH_OF(X, 3)
#define DECLARE(t, r) int32x4_t s##t##r = vdupq_n_s32(0);

// Sums of 8 rows and 8 tokens.
TERN_INLINE void tile(int32_t acc[TOKENS][ROWS], const uint8_t *w, const int8_t *x, size_t steps,
                      int n_tokens) {
#define LOAD(t) const int8x16_t x##t = vld1q_s8(x + 16 * (t)), w##t = load_codes(w + 16 * (t));
#define MULTIPLY(t, r)                                                                             \
    if (2 * (t) < n_tokens) {                                                                      \
        s##t##r = vmmlaq_s32(s##t##r, x##t, w##r);                                                 \
        KEEP(s##t##r);                                                                             \
    }
#define STORE(t, r)                                                                                \
    vst1_s32(acc[2 * (t)] + 2 * (r), vget_low_s32(s##t##r));                                       \
    vst1_s32(acc[2 * (t) + 1] + 2 * (r), vget_high_s32(s##t##r));
    EACH_PAIR(DECLARE)
    for (; steps; steps--, w += DEPTH * ROWS, x += DEPTH * TOKENS) {
        EACH(LOAD)
        EACH_PAIR(MULTIPLY)
    }
    EACH_PAIR(STORE)
}

static uint64_t peak_loop(void) {
    enum { LOOPS = 1 << 10 };
    int8x16_t w = vdupq_n_s8(1), q = w;
#define ADD(t, r)                                                                                  \
    KEEP(q); /* or one product would do for all */                                                 \
    s##t##r = vmmlaq_s32(s##t##r, w, q);                                                           \
    KEEP(s##t##r);
    EACH_PAIR(DECLARE)
    for (int i = 0; i < LOOPS; i++) {
        EACH_PAIR(ADD)
    }
#define USE_SUM(t, r) USE(s##t##r);
    EACH_PAIR(USE_SUM)
    return (uint64_t)LOOPS * 16 * 32;
}

#include "kernels/cpu/ternary/ternary_tiles.inl"

// ---- Few tokens, packing: as with dot products -------------------------------------------------

static void pack_row(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row) {
    tern_ternary_kernels_dotprod.pack_row(packing, q, n_in, row);
}

static void repack_row(uint8_t *dst, const uint8_t *src, size_t n_in) {
    tern_ternary_kernels_dotprod.repack_row(dst, src, n_in);
}

static size_t prepared_bytes(tern_packing packing, size_t n_in, size_t n_tokens) {
    return tern_ternary_kernels_dotprod.prepared_bytes(packing, n_in, n_tokens);
}

static void prepare(tern_packing packing, void *prepared, const tern_i8_rows *x, size_t n_in,
                    size_t first_token, size_t last_token) {
    tern_ternary_kernels_dotprod.prepare(packing, prepared, x, n_in, first_token, last_token);
}

static void gemv(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *prepared,
                 const tern_product *to) {
    tern_ternary_kernels_dotprod.gemv(w, x, prepared, to);
}

const tern_ternary_kernels tern_ternary_kernels_i8mm = {
    .name = "i8mm",
    .pack_row = pack_row,
    .repack_row = repack_row,
    .gemv_tokens = {6, 4}, // as llvm-mca says for Neoverse N2: docs/performance.md
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
