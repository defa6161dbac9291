// The inner loops of the CPU backend: contracts, and one table of them per instruction set.
//
// Every variant of a kernel gives the same bits: integer kernels because integers are exact, float
// kernels because the order of additions is part of the contract:
// - a reduction keeps 16 partial sums, element i going to lane i mod 16 (also after the last full
// 16, where the other lanes add nothing), and then adds lanes 8 apart, 4, 2 and 1 apart;
// - where the contract says fma, multiply and add round once, in every variant;
// - exp, log and tanh are the library's own polynomials (float/vec_math.inl), not libm's.
// So text does not depend on the processor, on the number of threads, or on how many tokens were
// computed together: row t of a batch has the bits that it would have alone. Speculation and prefix
// reuse rely on this.
//
// Kernels are pure: no allocation, no locks, no knowledge of models. Pointers marked 64 are aligned
// to 64 bytes. Nothing is read outside the given arrays, except that arrays from tern_alloc may be
// read up to their next multiple of 64 bytes.
#ifndef TERN_KERNELS_CPU_KERNELS_H
#define TERN_KERNELS_CPU_KERNELS_H

#include "base/dtype/dtype.h"
#include "kernels/page.h"

typedef enum tern_cpu_act {
    TERN_ACT_NONE,
    TERN_ACT_SILU,
    TERN_ACT_RELU2,
    TERN_ACT_GELU,      // x Phi(x), Phi of the normal distribution
    TERN_ACT_GELU_TANH, // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
    TERN_ACT_SIGMOID,   // 1 / (1 + e^-x)
    TERN_ACT_TANH,
    TERN_ACT_ASINH
} tern_cpu_act;

// What a query block sees of one layer's cache, for one key/value head.
//
// Positions are stored in pages of 16 (kernels/page.h). In a page each key/value head of each layer
// has a block of keys and one of values. Keys are transposed inside a block, [head_dim][16], so
// that 16 scores are computed at once without a horizontal sum; values are [16][head_dim].
// Q8_0: one float scale for each 32 dimensions of a position. A key block is
// float scale[head_dim / 32][16] followed by int8 [head_dim][16]; a value block is
// float scale[16][head_dim / 32] followed by int8 [16][head_dim].
// Q4_0: heads of a multiple of 32 dimensions, rotated: a Walsh-Hadamard transform over blocks of
// the largest power of two up to 512 that divides head_dim. Queries are rotated before they meet
// keys, outputs are rotated back. One F16 scale for each 32 dimensions of a position; both blocks
// begin with scale[head_dim / 32][16]. Numbers are scale * (code - 8), two codes to a byte: of keys
// [head_dim / 8][16][4], byte i of [j][position] has dimension 8 j + i low and 8 j + 4 + i high; of
// values [head_dim / 32][4][16][4], byte p of [g][quarter][i] is of position 4 quarter + p and has
// dimension 32 g + i low and 32 g + 16 + i high.
typedef struct tern_attention_args {
    float *out; // query row (t, h) at out + t * row_stride + h * head_dim; so is q
    const float *q;
    size_t row_stride; // floats
    size_t n_tokens;   // token t stands at first_pos + t
    size_t n_heads;    // query heads that share this key/value head, adjacent
    size_t head_dim;   // any even number; the last head_dim % 16 dimensions are slow
    size_t first_pos;
    // Only pages that hold a position which one of the tokens sees are looked up and read.
    const tern_page *pages;
    size_t k_offset, v_offset; // of the head's blocks in a page, multiples of 32
    tern_dtype kv_type;        // F32, F16, Q8_0 or Q4_0
    // The token at position p sees q = 0 .. p if causal, else q = 0 .. n_positions - 1 (first_pos +
    // n_tokens <= n_positions); of these, if there is a window, those with |p - q| < window, or
    // after it only those with q - p < ahead.
    bool causal;
    int32_t window; // 0: none
    int32_t ahead;  // 0: the window
    // For each token the position after its image, up to which it sees; 0: it is in no image. NULL:
    // no token is.
    const int32_t *ends;
    size_t n_positions; // of the sequence, when not causal
    float soft_cap;     // 0: none; else a score becomes soft_cap * tanh(score / soft_cap)
    float scale;        // usually 1 / sqrt(head_dim)
    float *scratch;     // 64: tern_attention_scratch_floats(args) floats
} tern_attention_args;

// Columns [first, last) of a causal depthwise convolution of a run of rows of one sequence:
// y[t][c] = act(bias[c] + sum over j of w[c][j] * x[t - (n_taps - 1) + j][c]), a chain of fmas that
// begins at the bias (0 without one) and goes up in j. Rows before the run are those of the state,
// which is zero where a sequence begins; afterwards the state holds the last n_taps - 1 rows of x.
// So it does not matter how a sequence was cut into runs. Threads share the columns.
typedef struct tern_conv_args {
    float *y; // row t at y + t * y_stride, not in place; x likewise
    const float *x;
    size_t y_stride, x_stride; // floats
    const float *w;            // [n_cols][n_taps]
    const float *bias;         // [n_cols] or NULL
    float *state;              // [n_taps - 1][n_cols], the oldest row first; read and written
    size_t n_rows, n_cols, n_taps, first, last; // n_taps in 2..TERN_CONV_TAPS
    tern_cpu_act act;                           // NONE or SILU
} tern_conv_args;
#define TERN_CONV_TAPS 8

// Rows of a causal convolution of all columns, for up to TERN_CONV_OUTPUTS of its outputs:
// y[t][o] = bias[o] + sum over j, i of w[j][i][o] * x[t + j * dilation][i], a chain of fmas that
// begins at the bias and goes up in j, and in i for each j.
typedef struct tern_conv1d_args {
    float *y;       // row t at y + t * y_stride, n_out floats
    const float *x; // [n_rows + (n_taps - 1) * dilation][n_in]: what is before row 0 comes first
    size_t y_stride, n_rows, n_in, n_taps, dilation, n_out;
    const float *w;    // [n_taps][n_in][TERN_CONV_OUTPUTS], zeros from n_out on
    const float *bias; // [n_out]
} tern_conv1d_args;
#define TERN_CONV_OUTPUTS 32

// The `rate` rows that a transposed convolution of 2 * rate taps makes of a row and the one before:
// y[p][o] = bias[o] + sum over the inputs i of o's group of w[i][o'][p + rate] * before[i] +
// w[i][o'][p] * x[i], fmas in this order, o' counted in the group of n_out / n_groups outputs.
typedef struct tern_upsample_args {
    float *y;                // [rate][n_out]
    const float *before, *x; // [n_in]
    const float *w;          // [n_in][n_out / n_groups][2 * rate]
    const float *bias;       // [n_out]
    size_t n_in, n_out, n_groups, rate;
} tern_upsample_args;

// One value head of a gated delta net over a run of rows of one sequence. For each row
//     q, k = x * (1 / sqrt(sum x^2 + eps)), q = q * (1 / sqrt(dk)),
//     beta = 1 / (1 + e^-b), decay = e^(A * softplus(a + dt_bias)),
//     S = S * decay, d = beta * (v - S^T k), S = fma(k, d, S), o = S^T q,
// where S^T k and S^T q are chains of fmas that begin at 0 and go up over the dk rows of S, one
// chain for each column. So it does not matter how a sequence was cut into runs, and columns may be
// computed apart: v, out and state may begin at any column of a head, and dv may be less than
// state_stride.
typedef struct tern_delta_net_args {
    float *out;                             // row t at out + t * out_stride, dv floats
    const float *q, *k;                     // row t at q + t * stride, dk floats; k likewise
    const float *v;                         // row t at v + t * stride, dv floats
    const float *a, *b;                     // row t's number at a[t * gate_stride]; b likewise
    size_t stride, out_stride, gate_stride; // floats
    size_t n_rows, dk, dv;                  // any; dv a multiple of 16 is fast
    float A, dt_bias, eps;                  // A is at most 0
    float *state;                           // [dk][state_stride], read and written
    size_t state_stride;
    float *scratch; // 64: tern_delta_net_scratch_floats(dk) floats
} tern_delta_net_args;

// One head of a selective state space (Mamba-2, arXiv:2405.21060) over a run of rows of one
// sequence. For each row
//     dt = softplus(raw + dt_bias), decay = e^(A * dt),
//     S = S * decay, d = dt * x, S = fma(b, d, S), y = fma(D, x, S^T c),
// where S^T c is a chain of fmas that begins at 0 and goes up over the n_state rows of S, one chain
// for each column. So it does not matter how a sequence was cut into runs, and columns may be
// computed apart: x, out and state may begin at any column of a head.
typedef struct tern_ssm_args {
    float *out;             // row t at out + t * out_stride, n_cols floats
    const float *x, *b, *c; // row t at x + t * stride, n_cols floats; b and c, n_state each
    const float *dt;        // row t's number at dt[t * dt_stride]
    size_t out_stride, stride, dt_stride; // floats
    size_t n_rows, n_state, n_cols;       // any; n_cols a multiple of 16 is fast
    float A, D, dt_bias;                  // A is at most 0
    float *state;                         // [n_state][state_stride], read and written
    size_t state_stride;
} tern_ssm_args;

// A step of AdamW on a row: numbers that are the same for all of a weight (see kernels/train.h).
typedef struct tern_adamw {
    float beta1, beta2, eps;
    float grad_scale; // of clipping
    float rate_1;     // rate / (1 - beta1^step)
    float inverse_2;  // 1 / (1 - beta2^step)
    float keep;       // 1 - rate * decay
} tern_adamw;

// y[t * y_stride + r] = dot(x row t, w row r) (+ the old y, if accumulate), by fma in the 16-lane
// order. Rows of w are decoded by the caller.
typedef struct tern_matmul_args {
    float *y;
    const float *x, *w; // rows of x are x_stride apart; w: 64, rows n_in apart
    size_t y_stride, x_stride, n_tokens, n_rows, n_in;
    bool accumulate;
} tern_matmul_args;

// The same for 1 token and rows of any type, row_bytes from one to the next.
typedef struct tern_matvec_args {
    float *y;
    const float *x;
    const uint8_t *w;
    tern_dtype type;
    size_t row_bytes, n_rows, n_in;
    float scale; // of w
    bool accumulate;
} tern_matvec_args;

// The key and the value of one position of one head, and the blocks that they fall in, as number
// `lane` (position mod 16) of them.
typedef struct tern_kv_store_args {
    void *k, *v;
    const float *key, *value;
    tern_dtype kv_type;
    size_t lane, head_dim;
} tern_kv_store_args;

// Columns [first, last) of the gradients of a convolution of n_rows rows of one document, x before
// which is 0 (tern_conv_args, without bias or activation). Rows of x, dx and dy are n_cols apart.
typedef struct tern_conv_grad_args {
    float *dx; // conv_grad_x writes this
    float *dw; // conv_grad_w adds to this; [n_cols][n_taps], as w
    const float *dy;
    const float *x, *w; // conv_grad_w reads x, conv_grad_x reads w
    size_t n_rows, n_cols, n_taps, first, last;
} tern_conv_grad_args;

// A row of rms_norm's gradient: dx = the gradient (plus residual, if not NULL); dw += (if not
// NULL).
typedef struct tern_rms_norm_grad_args {
    float *dx, *dw;
    const float *x, *w, *dy, *residual;
    size_t n;
    float eps;
} tern_rms_norm_grad_args;

// A row of glu's gradient; dgate and dup may be gate and up.
typedef struct tern_glu_grad_args {
    float *dgate, *dup;
    const float *gate, *up, *dy;
    size_t n;
} tern_glu_grad_args;

typedef struct tern_float_kernels {
    const char *name;
    // y[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * w[i]; the products in this order. y may be x.
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    // y[i] = (x[i] - mean) * (1 / sqrt(mean((x - mean)^2) + eps)) * w[i] + b[i] (b NULL: without);
    // the products in this order. y may be x.
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, size_t n,
                       float eps);
    // BitNet's activation quantization, for one row: s = 127 / max(max|x|, 1e-5),
    // q[i] = rint(x[i] * s) (ties to even) in -128..127, *inv_scale = 1 / s, *sum = sum of q.
    void (*quantize_i8)(int8_t *q, float *inv_scale, int32_t *sum, const float *x, size_t n);
    // In groups of 64, n a multiple: scale[g] = largest / 127, q[i] = rint(x[i] * (127 / largest))
    // in -127..127, and for each 64 seven numbers of minus: -(sum of q) of its four 16s, its two
    // 32s and all of it. A group whose largest is up to 1e-30 is 0.
    void (*quantize_groups)(int8_t *q, float *scale, int32_t *minus, const float *x, size_t n);
    // Walsh-Hadamard of each `block` (a power of two) of x * sign (NULL: x), which divides n:
    // y[i] = sum over j of (-1)^(number of bits that i and j share) x[j], times 1 / sqrt(block).
    // Stages of a + b, a - b go over strides 16, 32 .. block / 2, then 1, 2, 4, 8. y may be x.
    void (*hadamard)(float *y, const float *x, const float *sign, size_t n, size_t block);
    void (*add)(float *y, const float *a, const float *b, size_t n); // y may be a or b
    void (*mul)(float *y, const float *a, const float *b, size_t n);
    void (*scale)(float *y, const float *x, float factor, size_t n);
    void (*act)(float *y, const float *x, size_t n, tern_cpu_act act);
    // y = act(gate) * up
    void (*glu)(float *y, const float *gate, const float *up, size_t n, tern_cpu_act act);
    void (*softplus)(float *y, const float *x, size_t n); // log(1 + e^x)
    // Rotates one head in place: pairs (x[i], x[i + n_rot/2]) when halves, else (x[2i], x[2i+1]),
    // by the angle whose cosine and sine are cos[i], sin[i], i < n_rot/2:
    // (a, b) -> (fma(a, cos, -(b * sin)), fma(b, cos, a * sin)).
    void (*rope)(float *x, const float *cos, const float *sin, size_t n_rot, bool halves);
    // Any float or quantized type to float, bits as tern_dtype_decode gives them.
    void (*decode)(tern_dtype type, const void *data, uint64_t first, size_t n, float scale,
                   float *out);
    // For 1 token this is the matrix x vector kernel, for many a register-tiled one; the bits are
    // the same.
    void (*matmul)(const tern_matmul_args *args);
    // Without a buffer of decoded rows: decodes in registers or small pieces.
    void (*matvec)(const tern_matvec_args *args);
    void (*kv_store)(const tern_kv_store_args *args);
    // Attention of a block of tokens. q * scale rounds first; a score is one chain of fmas over the
    // dimensions, then capped (quotient, tanh and product round one by one; tanh is vec_tanh).
    // Online softmax over spans of 64 positions, which begin at multiples of 64, in order:
    // m' = max(m, the span's max), p = exp(s - m'), sum = fma(sum, exp(m - m'), p) in 16 lanes (p
    // of lane l: positions l, 16 + l, 32 + l, 48 + l of the span added in this order), acc = fma
    // per position in order on acc * exp(m - m'). Positions that a token does not see take no part,
    // whatever they hold, nor do spans in which it sees nothing: its bits depend on its own
    // position and on the positions that it sees, on nothing else.
    // out = acc * (1 / (sum of the lanes)). Q4_0: both products are of integers, group by group of
    // 32 dimensions. A rotated query becomes int8 as a stored key of Q8_0 does, and a score is one
    // chain of fmas over groups, from 0: fma(sum of code - 8 times q, key's scale * query's scale).
    // w = p * the value's scale, if p > 0, else 0; top = greatest |w| of the span, of all groups;
    // n = rint(w * (32512 / top)), and acc = fma(sum of code - 8 times n, top / 32512, acc).
    void (*attention)(const tern_attention_args *args);
    // A causal depthwise convolution of a run of rows of one sequence, and one value head of a
    // gated delta net: see below.
    void (*conv)(const tern_conv_args *args);
    void (*delta_net)(const tern_delta_net_args *args);
    void (*ssm)(const tern_ssm_args *args);
    // For codecs.
    void (*conv1d)(const tern_conv1d_args *args);
    void (*upsample_conv)(const tern_upsample_args *args);
    // One row: y = x + sin(alpha x)^2 / (alpha + 1e-9) for the first n / 2 columns, max(x, 0.01 x)
    // for the others. y may be x.
    void (*half_snake)(float *y, const float *x, const float *alpha, size_t n);
    // Index of the greatest (the first of equals), n > 0. NaN never wins unless all are NaN.
    size_t (*argmax)(const float *x, size_t n);

    float (*dot)(const float *a, const float *b, size_t n); // by fma, as all sums in 16 lanes
    // Sum of e^(x - m), m = the greatest of the row, into *largest. n > 0.
    float (*exp_sum)(const float *x, size_t n, float *largest);
    // y = e^(x - minus) * factor
    void (*exp_scaled)(float *y, const float *x, float minus, float factor, size_t n);
    // y = soft_cap * tanh(x / soft_cap), as attention caps its scores; y may be x.
    void (*soft_cap)(float *y, const float *x, float soft_cap, size_t n);

    // ---- Training (gradients.inl); NULL if the library was compiled with TERN_NO_TRAINING ----
    float (*sum_abs)(const float *x, size_t n);
    // y = x rounded as quantize_i8 does, as floats: q[i] * inv_scale.
    void (*fake_quantize)(float *y, const float *x, size_t n);
    // The same as quantize_groups does: q[i] * scale[i / 64]; n is a multiple of 64.
    void (*fake_quantize_groups)(float *y, const float *x, size_t n);
    // y = round(w / (gamma + 1e-6)), at most 1 and at least -1, times gamma.
    void (*ternarize)(float *y, const float *w, float gamma, size_t n);
    void (*act_grad)(float *dx, const float *x, const float *dy, size_t n, tern_cpu_act act);
    void (*glu_grad)(const tern_glu_grad_args *args, tern_cpu_act act);
    void (*rms_norm_grad)(const tern_rms_norm_grad_args *args);
    // ds = p (dp - minus) factor
    void (*softmax_grad)(float *ds, const float *p, const float *dp, float minus, float factor,
                         size_t n);
    // ds = ds * (1 - (y / soft_cap)^2), by fma.
    void (*soft_cap_grad)(float *ds, const float *y, float soft_cap, size_t n);
    // dx[t] = sum over j of w[j] dy[t + n_taps - 1 - j], a chain of fmas that goes up in j;
    // dw[c][j] = fma(dy[t][c], x[t - (n_taps - 1) + j][c], dw[c][j]), t ascending.
    void (*conv_grad_x)(const tern_conv_grad_args *args);
    void (*conv_grad_w)(const tern_conv_grad_args *args);
    void (*adamw)(float *w, float *m, float *v, const float *g, size_t n, const tern_adamw *a);
} tern_float_kernels;

size_t tern_attention_scratch_floats(const tern_attention_args *args);
size_t tern_delta_net_scratch_floats(size_t dk);
// Bytes of the key (= of the value) blocks of one head for n_positions; of one block: for 16.
size_t tern_kv_head_bytes(tern_dtype kv_type, size_t head_dim, size_t n_positions);

// ---- Ternary matrices --------------------------------------------------------------------------

typedef enum tern_packing {
    TERN_PACK_2BIT,   // rows of I2_S blocks: 128 weights in 32 bytes, byte i holds elements i,
                      // 32+i, 64+i, 96+i in bits 7:6, 5:4, 3:2, 1:0; code = weight + 1
    TERN_PACK_1_6BIT, // five weights a byte in base 3, layout in ternary/ternary_kernels.h
} tern_packing;

typedef struct tern_ternary_matrix {
    tern_packing packing;
    const uint8_t *data; // row r at data + r * row_bytes
    size_t n_in, n_rows; // n_in as in the model; rows are padded with zero weights
    size_t row_bytes;
    float scale; // value = (code - 1) * scale
} tern_ternary_matrix;

// Quantized activations of a batch, as the kernels read them.
typedef struct tern_i8_rows {
    int8_t *q;        // 64: row t at q + t * stride; padded with zeros up to stride
    size_t stride;    // n_in rounded up to TERN_I8_PAD
    float *inv_scale; // [n_tokens]
    int32_t *sum;     // [n_tokens]
    size_t n_tokens;
} tern_i8_rows;
#define TERN_I8_PAD 640 // lcm(128, 320): whole blocks of both packings

// Which rows of a matrix are multiplied with all tokens, and where the results go: row r's with
// token t to out[t * stride + r], plus the old value if accumulate (product and sum round
// separately).
typedef struct tern_product {
    size_t first, last; // rows
    float *out;
    size_t stride;
    bool accumulate;
} tern_product;

// out[t * stride + r] = (float)(sum_i code[r][i] * q[t][i] - sum[t]) * (scale * inv_scale[t]).
// |codes x activations| is exact in int32 for n_in <= 2^22; no variant may saturate in between.
typedef struct tern_ternary_kernels {
    const char *name;
    // Fast packing: the same bytes as tern_ternary_pack_row, and a 1.6-bit row from a 2-bit one.
    // dst and src hold whole rows and need no alignment.
    void (*pack_row)(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row);
    void (*repack_row)(uint8_t *dst, const uint8_t *src, size_t n_in);
    // Few tokens, up to gemv_tokens[packing]: weights are unpacked in registers. `prepared` is made
    // once per activation batch by `prepare` (prepared_bytes() big, 64), which threads may share by
    // tokens: activations in the order that the unpacking yields. The limit is where gemm becomes
    // faster, as measured; gemv itself takes any number.
    size_t gemv_tokens[2];
    size_t (*prepared_bytes)(tern_packing packing, size_t n_in, size_t n_tokens);
    void (*prepare)(tern_packing packing, void *prepared, const tern_i8_rows *x, size_t n_in,
                    size_t first_token, size_t last_token);
    void (*gemv)(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *prepared,
                 const tern_product *to);
    // Prompt: weights unpacked once per block of rows, then multiplied with all tokens.
    // `panels` (panels_bytes() big, 64) is x rearranged once per batch by `make_panels` (rows of
    // tokens [first_token, last_token) only, so that threads share the work); scratch is one
    // thread's (gemm_scratch_bytes(), 64). Row blocks begin at multiples of gemm_row_block.
    size_t gemm_row_block;
    size_t (*panels_bytes)(size_t n_in, size_t n_tokens);
    void (*make_panels)(void *panels, const tern_i8_rows *x, size_t n_in, size_t first_token,
                        size_t last_token); // first_token a multiple of the block of tokens
    size_t (*gemm_token_block)(size_t n_tokens);
    size_t (*gemm_scratch_bytes)(size_t n_in);
    void (*gemm)(const tern_ternary_matrix *w, const tern_i8_rows *x, const void *panels,
                 void *scratch, const tern_product *to);
    // The processor's peak: a fraction of a millisecond of gemm's inner step on registers alone.
    // Returns the number of multiply-adds done.
    uint64_t (*peak_loop)(void);
} tern_ternary_kernels;

size_t tern_ternary_row_bytes(tern_packing packing, size_t n_in);
// Packs one row of codes q (-1, 0, +1).
void tern_ternary_pack_row(tern_packing packing, const int8_t *q, size_t n_in, uint8_t *row);
void tern_ternary_unpack_row(tern_packing packing, const uint8_t *row, size_t n_in, int8_t *q);

// ---- Choice at run time ------------------------------------------------------------------------

typedef struct tern_cpu_kernels {
    char name[32]; // "scalar", "avx2", "avx2 avxvnni", "avx512", "avx512 amx", "neon",
                   // "neon dotprod", "neon dotprod i8mm", "wasm simd128", "wasm relaxed",
                   // "wasm relaxed dot"
    const tern_float_kernels *f;
    const tern_ternary_kernels *t;
    const struct tern_head_kernels *h;    // the exact head's: head/head_kernels.h
    const struct tern_grouped_kernels *q; // codes in groups: grouped/grouped.h
    const struct tern_gemm_kernels *g;    // training's products: gemm/gemm.h; NULL as above
} tern_cpu_kernels;

// The best variants that this processor runs and that `at_most` allows (NULL: all; "scalar",
// "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm"; in WebAssembly, as the library was
// compiled, "simd128", or "relaxed" and "dot"). False: no such name. TERN_CPU_FEATURES in the
// environment is read by the command line, not here.
bool tern_cpu_kernels_select(const char *at_most, tern_cpu_kernels *out);
// Names of all variants that this processor runs, best last, for tests: at least "scalar".
size_t tern_cpu_kernels_list(const char *names[8]);

// The best time of a call on one thread, with data in a cache.
typedef struct tern_cpu_speed {
    const char *kernel; // a family: "2-bit rows"
    size_t n_tokens;
    double seconds, bytes, macs; // bytes of weights
} tern_cpu_speed;
#define TERN_CPU_SPEEDS 10 // five families, one token and a prompt's tile
bool tern_cpu_kernels_time(const tern_cpu_kernels *k, tern_cpu_speed out[TERN_CPU_SPEEDS]);

#endif
