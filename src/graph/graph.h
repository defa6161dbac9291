// The graph: what a model computes, as data.
//
// A value is a named array; a node computes values from values. Nodes are listed in an order in
// which they can be run. A graph holds no numbers and no pointers to memory: weights are values
// with a name that the runtime binds to a file, states (the key/value cache) are values that
// outlive a run. So the same graph can be printed, rewritten (passes.c), planned (liveness.c),
// differentiated, and compiled by any backend.
//
// Shapes are [rows, columns], row-major, with the number of rows symbolic: how many tokens a run
// has is known only then. Every op below is defined row by row, except attention.
#ifndef TERN_GRAPH_GRAPH_H
#define TERN_GRAPH_GRAPH_H

#include <stdint.h>
#include "base/status.h"
#include "base/strbuf.h"

// What determines the number of rows of a value.
typedef enum tern_sym {
    TERN_SYM_CONST,   // `rows` itself: weights
    TERN_SYM_TOKENS,  // tokens of the run
    TERN_SYM_OUTPUTS, // the tokens whose logits are wanted
    TERN_SYM_COUNT
} tern_sym;

typedef enum tern_value_kind {
    TERN_VALUE_INPUT,  // token ids, given by the session
    TERN_VALUE_WEIGHT, // constant of the model
    TERN_VALUE_STATE,  // keys or values of the past; indexed by position
    TERN_VALUE_TEMP,   // lives from the node that makes it to the last one that reads it
    TERN_VALUE_OUTPUT, // a temp that the session reads
} tern_value_kind;

typedef enum tern_value_type {
    TERN_VALUE_F32,
    TERN_VALUE_I32,
    TERN_VALUE_I8ROWS, // int8 with one scale a row: quantized activations
} tern_value_type;

// Index of a value in its graph; -1: none.
typedef int32_t tern_vid;

#define TERN_NAME_BYTES 64 // of a name with its terminator; longer ones are refused

typedef struct tern_value {
    char name[TERN_NAME_BYTES];
    tern_value_kind kind;
    tern_value_type type;
    tern_sym sym;
    int64_t rows, cols; // rows counts only for TERN_SYM_CONST
    int32_t producer;   // node, or -1
    // Weights
    bool is_table;  // rows are looked up by token (a tied head uses the same weight both ways)
    bool is_matrix; // multiplied from the right: [n_out, n_in] in rows and cols
} tern_value;

// name, text, and what it computes. W: weight. Lower half: made by passes, never by models.
#define TERN_OPS(ROW)                                                                              \
    ROW(TERN_OP_EMBED, "embed")         /* y[t] = W[ids[t]] */                                     \
    ROW(TERN_OP_RMS_NORM, "rms_norm")   /* y = x / sqrt(mean(x^2) + eps) * w */                    \
    ROW(TERN_OP_QUANTIZE, "quantize")   /* int8 rows, scale 127 / max|x| (BitNet) */               \
    ROW(TERN_OP_TERNARIZE, "ternarize") /* W -> round(W / mean|W|) in -1..1, times mean|W| */      \
    ROW(TERN_OP_LINEAR, "linear")       /* y = x W^T */                                            \
    ROW(TERN_OP_ROPE, "rope")           /* rotary position embedding of each head */               \
    ROW(TERN_OP_KV_STORE, "kv_store")   /* appends rows of k and v to the states */                \
    ROW(TERN_OP_ATTENTION, "attention") /* softmax(q K^T * scale, causal) V */                     \
    ROW(TERN_OP_ADD, "add")                                                                        \
    ROW(TERN_OP_MUL, "mul")                                                                        \
    ROW(TERN_OP_ACT, "act")             /* activation function, attr act */                        \
    ROW(TERN_OP_TAKE_ROWS, "take_rows") /* the rows whose logits are wanted */                     \
    ROW(TERN_OP_TOP_K, "top_k")         /* the k greatest of each row, with their indices */       \
    ROW(TERN_OP_GLU, "glu")             /* act(gate) * up */                                       \
    ROW(TERN_OP_NORM_QUANTIZE, "norm_quantize")                                                    \
    ROW(TERN_OP_GLU_NORM_QUANTIZE, "glu_norm_quantize")                                            \
    ROW(TERN_OP_LINEAR_GROUP, "linear_group") /* several W on one x: outputs in order */           \
    ROW(TERN_OP_LINEAR_ADD, "linear_add")     /* y = x W^T + residual, in the residual's place */  \
    ROW(TERN_OP_ROPE_STORE, "rope_store")     /* rope of q and k, kv_store of k and v */           \
    ROW(TERN_OP_LINEAR_TOP_K, "linear_top_k") /* top_k without the logits: exact screened head */  \
    /* Training (differentiate.c); dx: gradient of the loss with respect to x */                   \
    ROW(TERN_OP_ATTENTION_SEQ, "attention_seq")   /* attention among the rows of a document */     \
    ROW(TERN_OP_CROSS_ENTROPY, "cross_entropy")   /* logsumexp(logits) - logits[target], a row */  \
    ROW(TERN_OP_SUM_INTO, "sum_into")             /* state += sum of all of x */                   \
    ROW(TERN_OP_SQUARES_INTO, "squares_into")     /* state += sum of squares of a state */         \
    ROW(TERN_OP_ZERO, "zero")                     /* state = 0 */                                  \
    ROW(TERN_OP_CROSS_ENTROPY_GRAD, "cross_entropy_grad") /* in the logits' place */               \
    ROW(TERN_OP_EMBED_GRAD, "embed_grad")         /* dW[ids[t]] += dy[t] */                        \
    ROW(TERN_OP_RMS_NORM_GRAD, "rms_norm_grad")   /* dx; dw += */                                  \
    ROW(TERN_OP_LINEAR_GRAD_X, "linear_grad_x")   /* dx = dy W */                                  \
    ROW(TERN_OP_LINEAR_GRAD_W, "linear_grad_w")   /* dW += dy^T x */                               \
    ROW(TERN_OP_ATTENTION_GRAD, "attention_grad") /* dq, dk, dv */                                 \
    ROW(TERN_OP_ACT_GRAD, "act_grad")             /* dx = act'(x) dy */                            \
    ROW(TERN_OP_GLU_GRAD, "glu_grad")             /* dgate, dup */                                 \
    ROW(TERN_OP_ADAMW, "adamw")                   /* a step of the optimizer on one weight */

typedef enum tern_op {
#define ROW(name, text) name,
    TERN_OPS(ROW)
#undef ROW
        TERN_OP_COUNT
} tern_op;

// Activations, each with its name in config.json.
#define TERN_ACTS(ROW)                                                                             \
    ROW(TERN_ACTIVATION_SILU, "silu")                                                              \
    ROW(TERN_ACTIVATION_RELU2, "relu2")                 /* max(x, 0)^2 */                          \
    ROW(TERN_ACTIVATION_GELU, "gelu")                   /* x Phi(x), by erf */                     \
    ROW(TERN_ACTIVATION_GELU_TANH, "gelu_pytorch_tanh") /* its approximation by tanh */

typedef enum tern_act_kind {
#define ROW(name, text) name,
    TERN_ACTS(ROW)
#undef ROW
        TERN_ACTIVATION_COUNT
} tern_act_kind;

typedef enum tern_rope_scaling {
    TERN_ROPE_NONE,
    TERN_ROPE_LINEAR,
    TERN_ROPE_LLAMA3,
    TERN_ROPE_YARN,
    TERN_ROPE_FACTORS
} tern_rope_scaling;

typedef struct tern_rope_attrs {
    int32_t n_rot; // rotated dimensions of a head, even
    bool halves;   // pairs (i, i + n_rot/2) instead of (2i, 2i + 1)
    float base;    // theta
    tern_rope_scaling scaling;
    float factor; // LINEAR, LLAMA3, YARN: how many times longer the context is than in training
    float low_freq_factor, high_freq_factor; // LLAMA3
    float beta_fast, beta_slow, attn_factor; // YARN
    int32_t n_context_orig;
} tern_rope_attrs;

// By member: the padding between them is undefined.
bool tern_rope_same(const tern_rope_attrs *a, const tern_rope_attrs *b);
// What LLAMA3 divides the frequency of each pair by, [n_rot / 2]: long waves by the factor, short
// ones by 1, with a ramp between. GGUF stores these as the tensor rope_freqs.weight (FACTORS).
void tern_rope_llama3_factors(const tern_rope_attrs *a, float *factors);

#define TERN_NODE_INPUTS  8
#define TERN_NODE_OUTPUTS 4

typedef struct tern_node {
    tern_op op;
    int32_t layer; // for people; -1: none
    tern_vid in[TERN_NODE_INPUTS], out[TERN_NODE_OUTPUTS];
    int n_in, n_out;
    // Attributes; only those of the op are set.
    float eps;                             // norms
    tern_act_kind act;                     // act, glu
    int32_t n_heads, n_kv_heads, head_dim; // rope, kv_store, attention
    float scale;                           // attention
    tern_rope_attrs rope;
    bool inverse; // rope: turns back, which is its gradient
    bool decays;  // adamw: weight decay applies
} tern_node;

typedef struct tern_graph {
    tern_value *values;
    tern_node *nodes;
    size_t n_values, n_nodes, values_capacity, nodes_capacity;
    bool failed;   // memory ran out while building: checked once, by tern_graph_check
    char cut[TERN_NAME_BYTES]; // not empty: beginning of a name that is too long; checked there too
    int32_t layer; // stamped on new nodes
} tern_graph;

void tern_graph_init(tern_graph *g);
void tern_graph_free(tern_graph *g);
tern_status tern_graph_copy(tern_graph *to, const tern_graph *from, tern_error *err);

// ---- Building: each returns the new value; errors are remembered in the graph -------------------

tern_vid tern_g_input(tern_graph *g, const char *name, tern_sym sym, int64_t cols);
// Names of weights and states are GGUF's: "blk.%d.attn_q.weight" with g->layer for %d.
tern_vid tern_g_matrix(tern_graph *g, const char *name, int64_t n_out, int64_t n_in);
tern_vid tern_g_vector(tern_graph *g, const char *name, int64_t n);
tern_vid tern_g_table(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
tern_vid tern_g_state(tern_graph *g, const char *name, int64_t cols);
tern_vid tern_g_embed(tern_graph *g, tern_vid ids, tern_vid table);
tern_vid tern_g_rms_norm(tern_graph *g, tern_vid x, tern_vid w, float eps);
tern_vid tern_g_quantize(tern_graph *g, tern_vid x);
tern_vid tern_g_ternarize(tern_graph *g, tern_vid w);
tern_vid tern_g_linear(tern_graph *g, tern_vid x, tern_vid w);
// BitLinear of arXiv:2402.17764: linear(quantize(x), ternarize(w)).
tern_vid tern_g_bitlinear(tern_graph *g, tern_vid x, tern_vid w);
// factors: a vector [n_rot / 2] that divides the frequencies (scaling FACTORS), or -1.
tern_vid tern_g_rope(tern_graph *g, tern_vid x, tern_vid factors, int32_t n_heads, int32_t head_dim,
                     const tern_rope_attrs *attrs);
void tern_g_kv_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                     int32_t n_kv_heads, int32_t head_dim);
tern_vid tern_g_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                          int32_t n_heads, int32_t n_kv_heads, int32_t head_dim, float scale);
tern_vid tern_g_add(tern_graph *g, tern_vid a, tern_vid b);
tern_vid tern_g_mul(tern_graph *g, tern_vid a, tern_vid b);
tern_vid tern_g_act(tern_graph *g, tern_vid x, tern_act_kind act);
tern_vid tern_g_take_rows(tern_graph *g, tern_vid x);
tern_vid tern_g_top_k(tern_graph *g, tern_vid x);
void tern_g_output(tern_graph *g, tern_vid v, const char *name);

tern_vid tern_graph_find(const tern_graph *g, const char *name); // value by name, -1
// Whether the structure is sound: values made before they are read, types and shapes that fit,
// whole names.
tern_status tern_graph_check(const tern_graph *g, tern_error *err);

// ---- Passes: rewrite the graph in place --------------------------------------------------------

// The rank of the adapter of a weight; 0: it has none.
typedef int64_t (*tern_rank_fn)(const void *ctx, const char *weight);
// Adds B (A x) to W x for every weight that has an adapter; the new weights A and B are called W's
// name with ".lora_a" and ".lora_b" appended. Before lowering. scale: NULL, or the name of a weight
// [rank, rank] between A and B of all adapters, which then share one rank.
tern_status tern_pass_low_rank(tern_graph *g, tern_rank_fn rank_of, const void *ctx,
                               const char *scale, tern_error *err);

// How the file stores the weight, so that linears can be lowered.
typedef enum tern_weight_kind {
    TERN_WEIGHT_FLOAT,   // float or block-quantized: multiplied with float activations
    TERN_WEIGHT_TERNARY, // codes and one scale: multiplied with int8 activations
} tern_weight_kind;
// Chooses the arithmetic of every linear: if the weight is ternary its input is quantized (once for
// all its readers), otherwise quantize and ternarize are dropped.
// kinds[v] is read for values that are matrices.
tern_status tern_pass_lower(tern_graph *g, const tern_weight_kind *kinds, tern_error *err);
// Merges neighbours into the ops of the lower half of TERN_OPS; the numbers stay the same.
tern_status tern_pass_fuse(tern_graph *g, tern_error *err);

// ---- Training (differentiate.c) ----------------------------------------------------------------
//
// A training run has whole documents side by side: row t belongs to the one that begins at row
// starts[t] (given with the batch, as positions are in inference), and its position is t -
// starts[t]. Weights are read as floats; gradients are states of the weight's shape, named "grad."
// and its name, to which a run adds.

// Rewrites a model's graph, as its architecture built it, into one that ends in the loss: no cache,
// all rows scored against the input "targets" (-1: not scored), their losses added to the state
// "loss" [1]. Quantized activations and ternarized weights become floats of the same values.
tern_status tern_graph_train(tern_graph *g, tern_error *err);
// Appends the nodes that add the gradient of the loss to the gradients' states. frozen[v]: weight v
// gets none; NULL: all do. Rounding (quantize, ternarize) has the gradient 1: the straight-through
// estimator (arXiv:1308.3432), as BitNet is trained.
tern_status tern_graph_differentiate(tern_graph *g, const bool *frozen, tern_error *err);
// An empty graph becomes one optimizer step: clips all gradients to a common norm, updates every
// weight of `g` that has a gradient, with moments in the states "m." and "v." NAME, and zeroes the
// gradients. The norm's square stands in the state "grad_norm2" [1], zeroed first.
tern_status tern_graph_optimizer(const tern_graph *g, tern_graph *update, tern_error *err);

// ---- Memory plan -------------------------------------------------------------------------------

typedef struct tern_span {
    uint64_t offset, bytes;
} tern_span;
typedef struct tern_memory_plan {
    tern_span *spans;   // [n_values]; bytes 0: not planned (weights, states, inputs)
    uint64_t bytes;     // of the pool
    uint64_t bytes_sum; // without any sharing
} tern_memory_plan;
// The most bytes that a temp or output value needs; 0: none.
typedef uint64_t (*tern_value_bytes_fn)(const void *ctx, const tern_graph *g, tern_vid v);
// First fit by decreasing size over lifetimes; all offsets are multiples of 64. An op that computes
// in place (linear_add) gives input and output the same span.
tern_status tern_graph_plan_memory(const tern_graph *g, tern_value_bytes_fn value_bytes,
                                   const void *ctx, tern_memory_plan *plan, tern_error *err);
void tern_memory_plan_free(tern_memory_plan *plan);

// ---- Printing ----------------------------------------------------------------------------------

const char *tern_op_name(tern_op op);
const char *tern_act_name(tern_act_kind act);
void tern_graph_print(const tern_graph *g, const char *title, const tern_memory_plan *plan,
                      tern_format format, tern_strbuf *out);

#endif
