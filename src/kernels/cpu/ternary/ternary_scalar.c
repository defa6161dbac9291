// Ternary products in plain C: the specification. Nothing is rearranged.
#include "kernels/cpu/ternary/ternary_kernels.h"

static size_t no_bytes(tern_packing packing, size_t n_in, size_t n_tokens) {
    (void)packing, (void)n_in, (void)n_tokens;
    return 0;
}

static void prepare_nothing(tern_packing packing, void *prepared, const tern_i8_rows *x,
                            size_t n_in, size_t first_token, size_t last_token) {
    (void)packing, (void)prepared, (void)x, (void)n_in, (void)first_token, (void)last_token;
}

static size_t no_panels(size_t n_in, size_t n_tokens) {
    (void)n_in, (void)n_tokens;
    return 0;
}

static size_t one_token(size_t n_tokens) {
    (void)n_tokens;
    return 1;
}

static void make_no_panels(void *panels, const tern_i8_rows *x, size_t n_in, size_t first_token,
                           size_t last_token) {
    (void)panels, (void)x, (void)n_in, (void)first_token, (void)last_token;
}

static size_t gemm_scratch_bytes(size_t n_in) { return n_in; }

static int32_t dot(const int8_t *weights, const int8_t *x, size_t n) { // sum of code * activation
    int32_t acc = 0;
    for (size_t i = 0; i < n; i++) acc += (weights[i] + 1) * x[i];
    return acc;
}

static void put(float *y, float value, bool accumulate) { *y = accumulate ? *y + value : value; }

static void gemm(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *panels,
                 void *scratch, const tern_product *to) {
    (void)panels;
    for (size_t r = to->first; r < to->last; r++) {
        tern_ternary_unpack_row(w->packing, w->data + r * w->row_bytes, w->n_in, scratch);
        for (size_t t = 0; t < x->n_tokens; t++) {
            int32_t acc = dot(scratch, x->q + t * x->stride, w->n_in);
            put(to->out + t * to->stride + r,
                tern_ternary_result(acc, x->sum[t], w->scale * x->inv_scale[t]), to->accumulate);
        }
    }
}

static void gemv(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *prepared,
                 const tern_product *to) {
    (void)prepared;
    int8_t piece[TERN_I8_PAD]; // whole blocks of both packings
    size_t piece_bytes = tern_ternary_row_bytes(w->packing, sizeof piece);
    for (size_t r = to->first; r < to->last; r++)
        for (size_t t = 0; t < x->n_tokens; t++) {
            const uint8_t *p = w->data + r * w->row_bytes;
            int32_t acc = 0;
            for (size_t i = 0; i < w->n_in; i += sizeof piece, p += piece_bytes) {
                size_t n = tern_min_size(w->n_in - i, sizeof piece);
                tern_ternary_unpack_row(w->packing, p, n, piece);
                acc += dot(piece, x->q + t * x->stride + i, n);
            }
            put(to->out + t * to->stride + r,
                tern_ternary_result(acc, x->sum[t], w->scale * x->inv_scale[t]), to->accumulate);
        }
}

static uint64_t peak_loop(void) {
    enum { N = 64, ROUNDS = 1000 };
    int8_t weights[N], x[N];
    volatile int32_t sink = 0; // so that the rounds are not optimised away
    for (int i = 0; i < N; i++) weights[i] = (int8_t)(i % 3 - 1), x[i] = (int8_t)i;
    for (int i = 0; i < ROUNDS; i++) {
        x[i % N] = (int8_t)sink;
        sink += dot(weights, x, N);
    }
    return (uint64_t)N * ROUNDS;
}

const tern_ternary_kernels tern_ternary_kernels_scalar = {
    .name = "scalar",
    .pack_row = tern_ternary_pack_row,
    .repack_row = tern_ternary_repack_row,
    .gemv_tokens = {8, 8},
    .prepared_bytes = no_bytes,
    .prepare = prepare_nothing,
    .gemv = gemv,
    .gemm_row_block = 1,
    .panels_bytes = no_panels,
    .make_panels = make_no_panels,
    .gemm_token_block = one_token,
    .gemm_scratch_bytes = gemm_scratch_bytes,
    .gemm = gemm,
    .peak_loop = peak_loop,
};
