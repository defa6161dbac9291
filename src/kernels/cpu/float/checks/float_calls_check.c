#include "kernels/cpu/float/checks/float_calls.h"

#include <math.h>
#include <string.h>

#define CALL(kernel)                                                                               \
    static float_written call_##kernel(const tern_float_kernels *k, const float_call_args *a)
#define FLOATS(n) ((float_written){(n), 0})

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// ---- Norms, and rows as integers ---------------------------------------------------------------

CALL(rms_norm) { return k->rms_norm(a->y, a->x, a->w, a->n, 1e-5f), FLOATS(a->n); }
CALL(layer_norm) {
    const float *w = a->form ? a->w : NULL, *b = a->form == 2 ? a->w + 64 : NULL;
    return k->layer_norm(a->y, a->x, w, b, a->n, 1e-5f), FLOATS(a->n);
}
CALL(quantize_i8) {
    int32_t sum;
    k->quantize_i8((int8_t *)(a->y + 2), a->y, &sum, a->x, a->n);
    memcpy(a->y + 1, &sum, sizeof sum);
    return (float_written){1, sizeof sum + a->n};
}
CALL(quantize_groups) {
    const size_t groups = a->n / 64;
    int32_t *minus = (int32_t *)(void *)(a->y + groups);
    k->quantize_groups((int8_t *)(minus + 7 * groups), a->y, minus, a->x, groups * 64);
    return (float_written){groups, groups * (7 * sizeof(int32_t) + 64)};
}
CALL(hadamard) {
    const size_t block = a->n & (~a->n + 1);
    return k->hadamard(a->y, a->x, a->form ? a->w : NULL, a->n, block), FLOATS(a->n);
}

// ---- Element by element ------------------------------------------------------------------------

CALL(add) { return k->add(a->y, a->x, a->w, a->n), FLOATS(a->n); }
CALL(mul) { return k->mul(a->y, a->x, a->w, a->n), FLOATS(a->n); }
CALL(scale) { return k->scale(a->y, a->x, 1.7f, a->n), FLOATS(a->n); }
CALL(act) { return k->act(a->y, a->x, a->n, (tern_cpu_act)a->form), FLOATS(a->n); }
CALL(glu) { return k->glu(a->y, a->x, a->w, a->n, (tern_cpu_act)a->form), FLOATS(a->n); }
CALL(softplus) { return k->softplus(a->y, a->x, a->n), FLOATS(a->n); }
CALL(exp_scaled) { return k->exp_scaled(a->y, a->x, 0.5f, 2, a->n), FLOATS(a->n); }
CALL(soft_cap) { return k->soft_cap(a->y, a->x, 1.5f, a->n), FLOATS(a->n); }
CALL(half_snake) { return k->half_snake(a->y, a->x, a->w, a->n), FLOATS(a->n); }
CALL(rope) {
    const size_t n_rot = a->n / 2 * 2;
    memcpy(a->y, a->x, n_rot * sizeof *a->y);
    return k->rope(a->y, a->w, a->w + n_rot / 2, n_rot, a->form), FLOATS(n_rot);
}
CALL(fake_quantize) { return k->fake_quantize(a->y, a->x, a->n), FLOATS(a->n); }
CALL(fake_quantize_groups) {
    const size_t whole = a->n / 64 * 64;
    return k->fake_quantize_groups(a->y, a->x, whole), FLOATS(whole);
}
CALL(ternarize) { return k->ternarize(a->y, a->x, 0.3f, a->n), FLOATS(a->n); }

// ---- One number of a row -----------------------------------------------------------------------

CALL(argmax) {
    const size_t at = k->argmax(a->x, a->n);
    memcpy(a->y, &at, sizeof at);
    return (float_written){0, sizeof at};
}
CALL(dot) { return *a->y = k->dot(a->x, a->w, a->n), FLOATS(1); }
CALL(exp_sum) { return a->y[1] = k->exp_sum(a->x, a->n, a->y), FLOATS(2); }
CALL(sum_abs) { return *a->y = k->sum_abs(a->x, a->n), FLOATS(1); }

// ---- Matrices ----------------------------------------------------------------------------------

// The form is an index in float_call_types, and past them F16 and F32.
static tern_dtype type_of(const float_call_args *a, const void **data) {
    *data = a->form == 4   ? (const void *)a->d->halves
            : a->form == 5 ? a->w
                           : (const void *)a->d->packed[a->form];
    return a->form == 4   ? TERN_DTYPE_F16
           : a->form == 5 ? TERN_DTYPE_F32
                          : float_call_types[a->form];
}
CALL(decode) {
    const void *data;
    const tern_dtype type = type_of(a, &data);
    const size_t whole = a->n / tern_dtype_block_n(type) * tern_dtype_block_n(type);
    return k->decode(type, data, 0, whole, 0.37f, a->y), FLOATS(whole);
}
CALL(matmul) { // form: of one token, of five; and added to what is there
    const size_t n_tokens = a->form % 2 ? 5 : 1, n_rows = 3;
    const size_t n_in = a->n / 16 ? a->n / 16 * 16 : a->n; // rows of w are aligned, or there is one
    memcpy(a->y, a->w, n_tokens * n_rows * sizeof *a->y);
    k->matmul(&(tern_matmul_args){a->y, a->x, a->w, n_rows, n_in, n_tokens, a->n < 16 ? 1 : n_rows,
                                  n_in, a->form >= 2});
    return FLOATS(n_tokens * n_rows);
}
CALL(matvec) {
    const void *data;
    const tern_dtype type = type_of(a, &data);
    const size_t block = tern_dtype_block_n(type), n_in = a->n / block * block, n_rows = 3;
    if (n_in == 0) return FLOATS(0);
    k->matvec(&(tern_matvec_args){a->y, a->x, data, type,
                                  n_in / block * tern_dtype_block_bytes(type), n_rows, n_in, 0.5f,
                                  false});
    return FLOATS(n_rows);
}

// ---- The cache ---------------------------------------------------------------------------------

static const tern_dtype kv_types[] = {TERN_DTYPE_F32, TERN_DTYPE_F16, TERN_DTYPE_Q8_0,
                                      TERN_DTYPE_Q4_0};
CALL(kv_store) {
    const size_t most = least(a->n, 512), dim = a->form >= 2 ? most / 32 * 32 : most;
    const size_t bytes = tern_kv_head_bytes(kv_types[a->form], dim, TERN_PAGE_POSITIONS);
    uint8_t *keys = (uint8_t *)a->y;
    memset(a->y, 3, 2 * bytes);
    if (dim)
        k->kv_store(&(tern_kv_store_args){keys, keys + bytes, a->x, a->w, kv_types[a->form],
                                          a->n % 16, dim});
    return (float_written){0, 2 * bytes};
}
// Two heads of 64 dimensions over up to n positions; form: of F32 and F16.
enum { HEAD_DIM = 64, PAGE_BYTES = 2 * HEAD_DIM * TERN_PAGE_POSITIONS * (int)sizeof(float) };
CALL(attention) {
    const size_t most = FLOAT_CALL_NUMBERS * sizeof(float) / PAGE_BYTES * TERN_PAGE_POSITIONS;
    const tern_dtype type = kv_types[a->form];
    tern_page pages[FLOAT_CALL_NUMBERS * sizeof(float) / PAGE_BYTES];
    const size_t bytes = tern_kv_head_bytes(type, HEAD_DIM, TERN_PAGE_POSITIONS);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        const uint8_t *memory = a->form ? (const uint8_t *)a->d->halves : (const uint8_t *)a->w;
        pages[i] = (tern_page){.memory = (uint8_t *)(uintptr_t)(memory + i * 2 * bytes)};
    }
    const tern_attention_args args = {.out = a->y,
                                      .q = a->x,
                                      .row_stride = 2 * HEAD_DIM,
                                      .n_tokens = 1,
                                      .n_heads = 2,
                                      .head_dim = HEAD_DIM,
                                      .first_pos = least(a->n, most) - 1,
                                      .pages = pages,
                                      .v_offset = bytes,
                                      .kv_type = type,
                                      .causal = true,
                                      .scale = 0.125f,
                                      .scratch = a->scratch};
    return k->attention(&args), FLOATS(2 * HEAD_DIM);
}

// ---- Layers with a state: rows of n columns, the state behind the results ----------------------

enum { ROWS = 3, TAPS = 4 };
CALL(conv) {
    float *state = a->y + ROWS * a->n;
    memcpy(state, a->w + 64, (TAPS - 1) * a->n * sizeof *a->y);
    k->conv(&(tern_conv_args){a->y, a->x, a->n, a->n, a->w, a->form ? a->w + 16 : NULL, state, ROWS,
                              a->n, TAPS, 0, a->n, a->form ? TERN_ACT_SILU : TERN_ACT_NONE});
    return FLOATS((ROWS + TAPS - 1) * a->n);
}
CALL(delta_net) {
    enum { DK = 16 };
    const size_t dv = least(a->n, 512);
    float *state = a->y + ROWS * dv;
    memcpy(state, a->w, DK * dv * sizeof *a->y);
    const tern_delta_net_args args = {.out = a->y,
                                      .q = a->x,
                                      .k = a->x + DK,
                                      .v = a->x + 2 * DK,
                                      .a = a->w,
                                      .b = a->w + 1,
                                      .stride = 2 * DK + dv,
                                      .out_stride = dv,
                                      .gate_stride = 2,
                                      .n_rows = ROWS,
                                      .dk = DK,
                                      .dv = dv,
                                      .A = -0.5f,
                                      .dt_bias = 0.1f,
                                      .eps = 1e-6f,
                                      .state = state,
                                      .state_stride = dv,
                                      .scratch = a->scratch};
    return k->delta_net(&args), FLOATS((ROWS + DK) * dv);
}
CALL(ssm) {
    enum { N_STATE = 16 };
    const size_t n_cols = least(a->n, 512);
    float *state = a->y + ROWS * n_cols;
    memcpy(state, a->w, N_STATE * n_cols * sizeof *a->y);
    const tern_ssm_args args = {.out = a->y,
                                .x = a->x + 2 * N_STATE,
                                .b = a->x,
                                .c = a->x + N_STATE,
                                .dt = a->w,
                                .out_stride = n_cols,
                                .stride = n_cols + 2 * N_STATE,
                                .dt_stride = 1,
                                .n_rows = ROWS,
                                .n_state = N_STATE,
                                .n_cols = n_cols,
                                .A = -0.5f,
                                .D = 0.7f,
                                .dt_bias = 0.1f,
                                .state = state,
                                .state_stride = n_cols};
    return k->ssm(&args), FLOATS((ROWS + N_STATE) * n_cols);
}
CALL(conv1d) { // of n rows; the outputs are of one vector or of two
    const size_t n_rows = least(a->n, 512), n_out = 1 + a->n % TERN_CONV_OUTPUTS;
    const tern_conv1d_args args = {.y = a->y,
                                   .x = a->x,
                                   .y_stride = n_out,
                                   .n_rows = n_rows,
                                   .n_in = 5,
                                   .n_taps = 3,
                                   .dilation = 2,
                                   .n_out = n_out,
                                   .w = a->w,
                                   .bias = a->w + 64};
    return k->conv1d(&args), FLOATS(n_rows * n_out);
}
CALL(upsample_conv) { // form: whether the two halves of the inputs and outputs are apart
    enum { RATE = 3 };
    const size_t n_in = 2 * (1 + a->n % 16), n_out = 2 * least((a->n + 1) / 2, 32);
    const tern_upsample_args args = {.y = a->y,
                                     .before = a->x,
                                     .x = a->x + n_in,
                                     .w = a->w,
                                     .bias = a->w + 64,
                                     .n_in = n_in,
                                     .n_out = n_out,
                                     .n_groups = a->form ? 2 : 1,
                                     .rate = RATE};
    return k->upsample_conv(&args), FLOATS(RATE * n_out);
}

// ---- Training ----------------------------------------------------------------------------------

CALL(act_grad) { return k->act_grad(a->y, a->x, a->w, a->n, (tern_cpu_act)a->form), FLOATS(a->n); }
CALL(glu_grad) {
    k->glu_grad(&(tern_glu_grad_args){a->y, a->y + a->n, a->x, a->w, a->x + 64, a->n},
                (tern_cpu_act)a->form);
    return FLOATS(2 * a->n);
}
CALL(rms_norm_grad) { // form: with the residual
    memcpy(a->y + a->n, a->w, a->n * sizeof *a->y);
    k->rms_norm_grad(&(tern_rms_norm_grad_args){a->y, a->y + a->n, a->x, a->w, a->x + 64,
                                                a->form ? a->w + 64 : NULL, a->n, 1e-5f});
    return FLOATS(2 * a->n);
}
CALL(softmax_grad) { return k->softmax_grad(a->y, a->x, a->w, 0.1f, 3, a->n), FLOATS(a->n); }
CALL(soft_cap_grad) {
    memcpy(a->y, a->x, a->n * sizeof *a->y);
    return k->soft_cap_grad(a->y, a->w, 1.5f, a->n), FLOATS(a->n);
}
CALL(conv_grad_x) {
    const tern_conv_grad_args args = {.dx = a->y,
                                      .dy = a->x,
                                      .w = a->w,
                                      .n_rows = ROWS,
                                      .n_cols = a->n,
                                      .n_taps = TAPS,
                                      .last = a->n};
    return k->conv_grad_x(&args), FLOATS(ROWS * a->n);
}
CALL(conv_grad_w) {
    const tern_conv_grad_args args = {.dw = a->y,
                                      .dy = a->x,
                                      .x = a->w,
                                      .n_rows = ROWS,
                                      .n_cols = a->n,
                                      .n_taps = TAPS,
                                      .last = a->n};
    memcpy(a->y, a->w + 64, TAPS * a->n * sizeof *a->y);
    return k->conv_grad_w(&args), FLOATS(TAPS * a->n);
}
CALL(adamw) {
    const tern_adamw step = {0.9f, 0.95f, 1e-8f, 0.5f, 1e-3f, 1.1f, 0.999f};
    memcpy(a->y, a->w, a->n * sizeof *a->y);
    memcpy(a->y + a->n, a->w + 64, a->n * sizeof *a->y);
    memcpy(a->y + 2 * a->n, a->d->positive, a->n * sizeof *a->y);
    return k->adamw(a->y, a->y + a->n, a->y + 2 * a->n, a->x, a->n, &step), FLOATS(3 * a->n);
}

// ---- The table ---------------------------------------------------------------------------------

// The names of a kernel's forms, in their order.
static const char *const one[] = {""};
static const char *const layer_norms[] = {"alone", "weight", "bias"};
static const char *const signs[] = {"", "signs"};
static const char *const acts[] = {"none",         "silu",    "relu2", "gelu",
                                   "gelu by tanh", "sigmoid", "tanh",  "asinh"};
_Static_assert(sizeof acts / sizeof *acts == TERN_ACT_ASINH + 1, "an activation has no name");
static const char *const pairs[] = {"neighbours", "halves"};
static const char *const types[] = {"BF16", "Q8_0", "Q4_K", "Q6_K", "F16", "F32"};
static const char *const tokens[] = {"1", "5", "1 added", "5 added"};
static const char *const caches[] =
    {
        "F32",
        "F16",
        "Q8_0",
#if TERN_HAS_Q4_CACHE
        "Q4_0",
#endif
},
                         *const cache_reads[] = {"F32", "F16"};
static const char *const convs[] = {"", "silu"};
static const char *const groups[] = {"1 group", "2 groups"};
static const char *const residuals[] = {"", "residual"};

#define KERNELS(ROW)                                                                               \
    ROW(rms_norm, one)                                                                             \
    ROW(layer_norm, layer_norms)                                                                   \
    ROW(quantize_i8, one)                                                                          \
    ROW(quantize_groups, one)                                                                      \
    ROW(hadamard, signs)                                                                           \
    ROW(add, one)                                                                                  \
    ROW(mul, one)                                                                                  \
    ROW(scale, one)                                                                                \
    ROW(act, acts)                                                                                 \
    ROW(glu, acts)                                                                                 \
    ROW(softplus, one)                                                                             \
    ROW(rope, pairs)                                                                               \
    ROW(decode, types)                                                                             \
    ROW(matmul, tokens)                                                                            \
    ROW(matvec, types)                                                                             \
    ROW(kv_store, caches)                                                                          \
    ROW(attention, cache_reads)                                                                    \
    ROW(conv, convs)                                                                               \
    ROW(delta_net, one)                                                                            \
    ROW(ssm, one)                                                                                  \
    ROW(conv1d, one)                                                                               \
    ROW(upsample_conv, groups)                                                                     \
    ROW(half_snake, one)                                                                           \
    ROW(argmax, one)                                                                               \
    ROW(dot, one)                                                                                  \
    ROW(exp_sum, one)                                                                              \
    ROW(exp_scaled, one)                                                                           \
    ROW(soft_cap, one)                                                                             \
    ROW(sum_abs, one)                                                                              \
    ROW(fake_quantize, one)                                                                        \
    ROW(fake_quantize_groups, one)                                                                 \
    ROW(ternarize, one)                                                                            \
    ROW(act_grad, acts)                                                                            \
    ROW(glu_grad, acts)                                                                            \
    ROW(rms_norm_grad, residuals)                                                                  \
    ROW(softmax_grad, one)                                                                         \
    ROW(soft_cap_grad, one)                                                                        \
    ROW(conv_grad_x, one)                                                                          \
    ROW(conv_grad_w, one)                                                                          \
    ROW(adamw, one)

#define ONE(kernel, forms) +1
_Static_assert(0 KERNELS(ONE) == FLOAT_CALL_KERNELS,
               "a kernel of tern_float_kernels has no call here, so nothing would check it");

#define INDEX(kernel)                                                                              \
    ((offsetof(tern_float_kernels, kernel) - offsetof(tern_float_kernels, rms_norm)) /             \
     sizeof(void (*)(void)))
#define ROW(kernel, forms)                                                                         \
    [INDEX(kernel)] = {#kernel, offsetof(tern_float_kernels, kernel),                              \
                       sizeof forms / sizeof *forms, forms, call_##kernel},
const float_call float_calls[FLOAT_CALL_KERNELS] = {KERNELS(ROW)};

bool float_call_is_there(const float_call *c, const tern_float_kernels *k) {
    void (*kernel)(void);
    memcpy(&kernel, (const char *)k + c->member, sizeof kernel);
    return kernel != NULL;
}

void float_call_data_derive(float_call_data *d) {
    for (size_t i = 0; i < FLOAT_CALL_MAX; i++) d->positive[i] = fabsf(d->w[i]);
    tern_dtype_encode(TERN_DTYPE_F16, d->w, FLOAT_CALL_NUMBERS, d->halves);
    for (size_t t = 0; t < 4; t++)
        tern_dtype_encode(float_call_types[t], d->w, 1 << 15, d->packed[t]);
}
