// The graph: what a model computes, as data.
//
// A value is a named array; a node computes values from values. Nodes are listed in an executable
// order. A graph holds no numbers and no pointers to memory: weights are values with a name that
// the runtime binds to a file, states (the key/value cache) are values that outlive a run. So the
// same graph can be printed, rewritten (passes.c), planned (liveness.c), differentiated, and
// compiled by any backend.
//
// Shapes are [rows, columns], row-major. Row counts are dimensions that the graph declares by name
// (tokens, outputs, sequences ...), since their sizes are known only when it runs.
#ifndef TERN_GRAPH_GRAPH_H
#define TERN_GRAPH_GRAPH_H

#include <stdint.h>
#include "base/status.h"
#include "base/dtype/dtype.h"
#include "base/strbuf.h"

// A dimension of the graph: an index into its `dims`. A constant number of rows has none.
typedef int32_t tern_dim;
#define TERN_DIM_NONE  (-1)
#define TERN_DIMS_MAX  8
#define TERN_DIM_BYTES 16 // of a name with its terminator

typedef enum tern_value_kind {
    TERN_VALUE_INPUT,  // given with each run, by name
    TERN_VALUE_WEIGHT, // constant of the model
    TERN_VALUE_STATE,  // outlives a run
    TERN_VALUE_TEMP,   // lives from the node that makes it to the last one that reads it
    TERN_VALUE_OUTPUT, // a temp that the caller may ask for, by name
} tern_value_kind;

typedef enum tern_value_type {
    TERN_VALUE_F32,
    TERN_VALUE_I32,
    TERN_VALUE_I8ROWS,   // int8 with one scale a row: quantized activations
    TERN_VALUE_I8GROUPS, // the same with a scale for each 64 columns
} tern_value_type;

// The kind of a state, and so how it goes back to an earlier position of its sequence.
typedef enum tern_state_kind {
    TERN_STATE_ARRAY,      // one for the whole plan, of fixed shape: training adds to it
    TERN_STATE_POSITIONAL, // one row per position; later ones are cut off
    TERN_STATE_FIXED,      // one value per sequence; restored from a snapshot, then replayed
} tern_state_kind;

// Index of a value in its graph; -1: none.
typedef int32_t tern_vid;

#define TERN_NAME_BYTES 64 // of a name with its terminator; longer ones are refused

typedef struct tern_value {
    char name[TERN_NAME_BYTES];
    tern_value_kind kind;
    tern_value_type type;
    // count(dim) * times / per + rows, or only `rows` if dim is TERN_DIM_NONE: a convolution of
    // stride 2 halves its rows, a merger of 2 x 2 quarters them.
    tern_dim dim;
    int32_t times, per;
    int64_t rows, cols;
    int32_t producer; // node, or -1
    // Weights
    bool is_optional; // an input that a batch may lack
    bool is_table;    // rows are looked up by token (a tied head uses the same weight both ways)
    bool on_host;     // so large a table that a device with its own memory is sent only rows of it
    bool is_matrix;   // multiplied from the right: [n_out, n_in] in rows and cols
    bool is_coded;    // in training: decoded wherever it is read, from its file's type or bfloat16
    uint64_t codes_bytes; // of a frozen one that is_coded, on its device
    int32_t parts;        // number of stacked matrices; each row reads a few of them; 0: one
    // States
    tern_state_kind state;
    int32_t window; // positional: how many positions back are ever read; 0: all
} tern_value;

// What determines the columns of an op's first output.
typedef enum tern_columns_rule {
    TERN_COLUMNS_SAME,    // those of the first input
    TERN_COLUMNS_TABLE,   // those of the second
    TERN_COLUMNS_PRODUCT, // the rows of the second
    TERN_COLUMNS_BACK,    // the columns of the second, a weight
    TERN_COLUMNS_ONE,
    TERN_COLUMNS_COLUMNS, // attributes group and width
    TERN_COLUMNS_SPREAD,  // the reverse of these
    TERN_COLUMNS_DELTA,   // n_v_heads * v_dim
    TERN_COLUMNS_SSM,     // n_heads * head_dim
    TERN_COLUMNS_ROUTE,   // 2 * n_chosen
    TERN_COLUMNS_EXPERTS, // n_chosen times the rows of a part of the third
    TERN_COLUMNS_MIX,     // those of the first over n_chosen
    TERN_COLUMNS_CHOSEN,  // n_chosen times those of the third
    TERN_COLUMNS_WIDTH,   // those of a window
    TERN_COLUMNS_DIGITS,  // those of the first times the digits of a code
    TERN_COLUMNS_MERGE,   // those of the first times group
    TERN_COLUMNS_THIRD,   // those of the third
    TERN_COLUMNS_FREE,    // no output
} tern_columns_rule;

// Activations, each with its name in config.json.
#define TERN_ACTS(ROW)                                                                             \
    ROW(TERN_ACTIVATION_SILU, "silu")                                                              \
    ROW(TERN_ACTIVATION_RELU2, "relu2")                 /* max(x, 0)^2 */                          \
    ROW(TERN_ACTIVATION_GELU, "gelu")                   /* x Phi(x), by erf */                     \
    ROW(TERN_ACTIVATION_GELU_TANH, "gelu_pytorch_tanh") /* its approximation by tanh */            \
    ROW(TERN_ACTIVATION_SIGMOID, "sigmoid")             /* 1 / (1 + e^-x) */                       \
    ROW(TERN_ACTIVATION_TANH, "tanh")                                                              \
    ROW(TERN_ACTIVATION_ASINH, "asinh") /* log(x + sqrt(x^2 + 1)) */                               \
    ROW(TERN_ACTIVATION_NONE, "none")   /* x */

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
    TERN_ROPE_FACTORS,
    TERN_ROPE_LONG,        // one set of factors up to n_context_orig, another for longer texts
    TERN_ROPE_PROPORTIONAL // only the first pairs turn, a share `factor` of all
} tern_rope_scaling;

// Which of a row's places (batch.places: time, row and column of an image; all equal for text)
// turns a pair.
typedef enum tern_rope_axes {
    TERN_ROPE_LINE,  // its position in the text
    TERN_ROPE_MIXED, // pair j: place j % 3 if j < 3 * sections[j % 3], else the first
    TERN_ROPE_PLANE, // the row turns the first half of the pairs, the column the others, each with
                     // all frequencies
} tern_rope_axes;

#define TERN_ROPE_PAIRS_MAX 512
#define TERN_CHOSEN_MAX     64 // experts of a row
#define TERN_PIECES_MAX     5

typedef enum tern_pool_kind { TERN_POOL_MEAN, TERN_POOL_LAST, TERN_POOL_FIRST } tern_pool_kind;

#define TERN_ATTRS_BEGIN(type)              typedef struct type {
#define TERN_ATTR(type, member)             type member;
#define TERN_ATTR_LIST(type, member, n)     type member[n];
#define TERN_ATTR_NAMED(type, member, name) type member;
#define TERN_ATTR_STRUCT(type, member)      type member;
#define TERN_ATTRS_END(type)                                                                       \
    }                                                                                              \
    type;
#include "graph/ops.inc"

typedef enum tern_attrs_kind {
    TERN_ATTRS_NONE,
#define TERN_NODE_ATTRS(id, type, member) TERN_ATTRS_##id,
#define TERN_NODE_ATTR(id, type, member)  TERN_ATTRS_##id,
#include "graph/ops.inc"
} tern_attrs_kind;

// By member: the padding between them is undefined.
bool tern_rope_same(const tern_rope_attrs *a, const tern_rope_attrs *b);
bool tern_rotation_same(const tern_rotation *a, const tern_rotation *b);
// What LLAMA3 divides the frequency of each pair by, [n_rot / 2]: long waves by the factor, short
// ones by 1, with a ramp between. GGUF stores these as the tensor rope_freqs.weight (FACTORS).
void tern_rope_llama3_factors(const tern_rope_attrs *a, float *factors);
// The reverse: the attributes that give these factors of a->n_rot dimensions, to their stored
// precision, with the ramp from 1 to 4 turns that all published models have. False: none do.
bool tern_rope_llama3_find(tern_rope_attrs *a, const float *factors);

typedef enum tern_op {
#define TERN_OP_ROW(id, ...) TERN_OP_##id,
#include "graph/ops.inc"
    TERN_OP_COUNT
} tern_op;

// A row of ops.inc, in small numbers: pages load the table.
typedef struct tern_op_facts {
    const char *name;
    uint8_t n_in_least, n_in_most, n_out_least, n_out_most;
    uint8_t columns; // tern_columns_rule
    uint8_t attrs;   // tern_attrs_kind
    int8_t in_place; // index of an input, or -1
    int8_t stores;   // likewise: of the first of two states
} tern_op_facts;
const tern_op_facts *tern_op_info(tern_op op);

#define TERN_NODE_INPUTS  8
#define TERN_NODE_OUTPUTS 4

typedef struct tern_node {
    tern_op op;
    int32_t layer; // for printing; -1: none
    tern_vid in[TERN_NODE_INPUTS], out[TERN_NODE_OUTPUTS];
    int n_in, n_out;
    union { // the attributes that the op's row in ops.inc names
#define TERN_NODE_ATTRS(id, type, member) type member;
#define TERN_NODE_ATTR(id, type, member)  type member;
#include "graph/ops.inc"
    };
} tern_node;

// Whether the node has attributes of this kind.
bool tern_node_has(const tern_node *n, tern_attrs_kind kind);
// Whether rows of its result depend on later rows of the sequence.
bool tern_node_looks_ahead(const tern_node *n);
// Adds the attributes to a hash, by member.
uint64_t tern_node_hash_attrs(uint64_t h, const tern_node *n);
// The node's optional input number i, or -1.
tern_vid tern_node_optional(const tern_node *n, int i);
// The first of the two states that the node stores rows of keys and values in; NULL: none.
const tern_vid *tern_node_stores(const tern_node *n);

typedef struct tern_graph {
    tern_value *values;
    tern_node *nodes;
    size_t n_values, n_nodes, values_capacity, nodes_capacity;
    char dims[TERN_DIMS_MAX][TERN_DIM_BYTES];
    int32_t n_dims;
    bool failed;               // out of memory while building: checked once, by tern_graph_check
    char cut[TERN_NAME_BYTES]; // the start of a name that is too long, or empty; also checked there
    int32_t layer;             // stamped on new nodes
} tern_graph;

void tern_graph_init(tern_graph *g);
void tern_graph_free(tern_graph *g);
tern_status tern_graph_copy(tern_graph *to, const tern_graph *from, tern_error *err);

// ---- Building: each returns the new value; errors are remembered in the graph -------------------

// A node like this one, with its op, inputs and attributes set: TERN_IN(x, w) for the inputs.
// Optional ones of -1 at the end are left out. Returns the first output, which has the rows of the
// first input and the columns that the op's row says; -1: none, or a failure.
#define TERN_IN(...)                                                                               \
    .in = {__VA_ARGS__}, .n_in = (int)(sizeof((tern_vid[]){__VA_ARGS__}) / sizeof(tern_vid))
tern_vid tern_g_op(tern_graph *g, const tern_node *like);

// The dimension of this name, declared when first used.
tern_dim tern_g_dim(tern_graph *g, const char *name);
// One number per row (ids, indices of rows), or rows of floats.
tern_vid tern_g_input(tern_graph *g, const char *name, tern_dim dim, int64_t cols,
                      tern_value_type type);
// Names of weights and states are GGUF's: "blk.%d.attn_q.weight" with g->layer for %d.
tern_vid tern_g_matrix(tern_graph *g, const char *name, int64_t n_out, int64_t n_in);
// n_parts matrices [n_out, n_in] in one weight.
tern_vid tern_g_parts(tern_graph *g, const char *name, int32_t n_parts, int64_t n_out,
                      int64_t n_in);
tern_vid tern_g_vector(tern_graph *g, const char *name, int64_t n);
tern_vid tern_g_table(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
tern_vid tern_g_host_table(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
// Small numbers that are read as they are, neither looked up nor multiplied from the right:
// a convolution's taps.
tern_vid tern_g_array(tern_graph *g, const char *name, int64_t n_rows, int64_t n_cols);
tern_vid tern_g_positional_state(tern_graph *g, const char *name, int64_t cols, int32_t window);
tern_vid tern_g_fixed_state(tern_graph *g, const char *name, int64_t rows, int64_t cols);
tern_vid tern_g_embed(tern_graph *g, tern_vid ids, tern_vid table);
// If w has fewer columns than x (a divisor), each group of columns is normed by itself.
tern_vid tern_g_rms_norm(tern_graph *g, tern_vid x, tern_vid w, float eps);
tern_vid tern_g_l2_norm(tern_graph *g, tern_vid x);
// w, b: may be -1.
tern_vid tern_g_layer_norm(tern_graph *g, tern_vid x, tern_vid w, tern_vid b, float eps);
tern_vid tern_g_positions(tern_graph *g, tern_vid ids, tern_vid table, int32_t first);
tern_vid tern_g_segments(tern_graph *g, tern_vid ids, tern_vid table, int32_t end);
tern_vid tern_g_quantize(tern_graph *g, tern_vid x);
tern_vid tern_g_ternarize(tern_graph *g, tern_vid w);
tern_vid tern_g_linear(tern_graph *g, tern_vid x, tern_vid w);
// BitLinear of arXiv:2402.17764: linear(quantize(x), ternarize(w)).
tern_vid tern_g_bitlinear(tern_graph *g, tern_vid x, tern_vid w);
// factors: a vector [n_rot / 2] that divides the frequencies (scaling FACTORS), or -1.
tern_vid tern_g_rope(tern_graph *g, tern_vid x, tern_vid factors, int32_t n_heads, int32_t head_dim,
                     const tern_rope_attrs *attrs);
// The same, with the factors for longer texts (scaling LONG), or -1.
tern_vid tern_g_long_rope(tern_graph *g, tern_vid x, tern_vid factors, tern_vid long_factors,
                          int32_t n_heads, int32_t head_dim, const tern_rope_attrs *attrs);
void tern_g_kv_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                     int32_t n_kv_heads, int32_t head_dim);
tern_vid tern_g_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                          const tern_attention_attrs *attrs);
tern_vid tern_g_add(tern_graph *g, tern_vid a, tern_vid b);
tern_vid tern_g_mul(tern_graph *g, tern_vid a, tern_vid b);
tern_vid tern_g_scale(tern_graph *g, tern_vid x, float factor);
// b: a vector of x's columns.
tern_vid tern_g_bias(tern_graph *g, tern_vid x, tern_vid b);
tern_vid tern_g_act(tern_graph *g, tern_vid x, tern_act_kind act);
// Takes columns first .. first + width - 1 of every `group` columns.
tern_vid tern_g_columns(tern_graph *g, tern_vid x, int64_t group, int64_t first, int64_t width);
// w: an array [cols, taps], taps 2 to 8; state: fixed, [taps - 1, cols]; bias: a vector, or -1.
// y[t][c] = act(bias[c] + sum over j of w[c][j] x[t - (taps - 1) + j][c]); x before the sequence is
// 0, and the state holds its last rows.
tern_vid tern_g_depthwise_conv(tern_graph *g, tern_vid x, tern_vid w, tern_vid bias, tern_vid state,
                               tern_act_kind act);
// qkv: [n_k_heads * head_dim | the same | n_v_heads * v_dim]; a, b: [n_v_heads]; a_log (the ready
// factor, -exp of what Hugging Face stores) and dt_bias: vectors; state: fixed, [n_v_heads *
// head_dim, v_dim].
tern_vid tern_g_delta_net(tern_graph *g, tern_vid qkv, tern_vid a, tern_vid b, tern_vid a_log,
                          tern_vid dt_bias, tern_vid state, const tern_delta_attrs *attrs);
// xbc: [n_heads * head_dim | n_groups * n_state | the same]; dt: [n_heads]; a (the ready factor,
// -exp of what Hugging Face stores), d and dt_bias: vectors; state: fixed, [n_heads * n_state,
// head_dim].
tern_vid tern_g_ssm(tern_graph *g, tern_vid xbc, tern_vid dt, tern_vid a, tern_vid d,
                    tern_vid dt_bias, tern_vid state, const tern_ssm_attrs *attrs);
// The widths add up to x's columns.
tern_vid tern_g_scale_pieces(tern_graph *g, tern_vid x, const int64_t widths[TERN_PIECES_MAX],
                             const double factors[TERN_PIECES_MAX]);
tern_vid tern_g_group_norm(tern_graph *g, tern_vid x, int64_t group, float eps);
tern_vid tern_g_scale_by(tern_graph *g, tern_vid x, tern_vid s); // s: a vector [1] or [cols]
// Each row times its number in a column of gains, which has x's rows.
tern_vid tern_g_gain(tern_graph *g, tern_vid x, tern_vid gains, int32_t column);
// Capped scores: cap * tanh(x W^T / cap).
tern_vid tern_g_capped_linear(tern_graph *g, tern_vid x, tern_vid w, float cap);
// scores: [experts]; bias: a vector, or -1.
tern_vid tern_g_route(tern_graph *g, tern_vid scores, tern_vid bias, const tern_route_attrs *attrs);
// x: [n_in], or n_chosen times that, one expert's after the other's; so is the result.
tern_vid tern_g_experts(tern_graph *g, tern_vid x, tern_vid route, tern_vid w);
tern_vid tern_g_mix(tern_graph *g, tern_vid x, tern_vid route);
// A convolution is a product of windows. The dimension gives the result's rows, which must all
// fit into x. step: numbers from the start of one window to the next.
tern_vid tern_g_windows(tern_graph *g, tern_vid x, tern_dim dim, int64_t step, int64_t width,
                        bool by_column);
// The same, with `before` zeros before x's numbers and `after` zeros after them.
tern_vid tern_g_padded_windows(tern_graph *g, tern_vid x, tern_dim dim, int64_t step, int64_t width,
                               int64_t before, int64_t after, bool by_column);
tern_vid tern_g_whole_norm(tern_graph *g, tern_vid x, tern_vid w, tern_vid b, float eps);
// Cross-attention's states, such as keys and values of an encoder's rows: fixed states [n_most,
// columns], n_most a multiple of 16; n_state [1, 1]. Rows of k and v have their own dimension,
// which is 0 in all batches of a sequence but the first.
void tern_g_source_store(tern_graph *g, tern_vid k, tern_vid v, tern_vid k_state, tern_vid v_state,
                         tern_vid n_state, const tern_attention_attrs *attrs);
tern_vid tern_g_cross_attention(tern_graph *g, tern_vid q, tern_vid k_state, tern_vid v_state,
                                tern_vid n_state, const tern_attention_attrs *attrs);
// codes [n_codes]: each a number whose digits, lowest first, have levels[] values (0 ends the
// list). Digit v of L becomes (v - L/2) / (L/2), L/2 truncated.
tern_vid tern_g_code_digits(tern_graph *g, tern_vid codes, const int32_t levels[TERN_PIECES_MAX]);
// w: "NAME.weight", [n_out][n_in][taps]; "NAME.bias" [n_out]; the state, "tail.NAME", fixed, [(taps
// - 1) * dilation, n_in], holds the last rows of x, and x before the sequence is 0.
// y[t][o] = bias[o] + sum over j, i of w[o][i][j] x[t - (taps - 1 - j) * dilation][i].
tern_vid tern_g_conv1d(tern_graph *g, tern_vid x, const char *name, const tern_causal_attrs *attrs);
// w: [n_in][n_out / groups][2 * rate]; state [1, n_in]. Rows t * rate to t * rate + rate - 1 of y
// come from rows t - 1 and t of x: y[t * rate + p][o] = bias[o] + sum over the inputs i of o's
// group of w[i][o'][p + rate] x[t - 1][i] + w[i][o'][p] x[t][i], o' counted in the group.
tern_vid tern_g_upsample_conv(tern_graph *g, tern_vid x, const char *name,
                              const tern_causal_attrs *attrs);
// alpha: a vector of half of x's columns, truncated.
tern_vid tern_g_half_snake(tern_graph *g, tern_vid x, tern_vid alpha);
// Rows of x by index; `rows` is an input of the result's dimension.
tern_vid tern_g_take_rows(tern_graph *g, tern_vid x, tern_vid rows);
// Replaces x's rows where ids are negative; the input `rows` may be missing.
tern_vid tern_g_replace(tern_graph *g, tern_vid x, tern_vid rows, tern_vid ids);
// Adds columns of `rows`, from `first` on, to x's rows where ids are negative; `rows` may be
// missing.
tern_vid tern_g_add_given(tern_graph *g, tern_vid x, tern_vid rows, tern_vid ids, int64_t first);
// points: [row, column] in a grid, as floats; table: an array of side * side rows; those nearest to
// a point are interpolated. [row, column, height, width]: those under a triangle that extends
// height and width to each side of the point, even outside the grid: antialiasing.
tern_vid tern_g_add_point(tern_graph *g, tern_vid x, tern_vid points, tern_vid table);
// Each `group` neighboring rows become one, an output.
tern_vid tern_g_merge(tern_graph *g, tern_vid x, int32_t group);
tern_vid tern_g_pool(tern_graph *g, tern_vid x, tern_dim sequences, tern_pool_kind kind);
tern_vid tern_g_top_k(tern_graph *g, tern_vid x);
tern_vid tern_g_hadamard(tern_graph *g, tern_vid x, tern_vid signs, const tern_rotation *r);
void tern_g_output(tern_graph *g, tern_vid v, const char *name);
// Names a value that a node makes, instead of the name from its node.
void tern_g_call(tern_graph *g, tern_vid v, const char *name);

// Whether the value's rows are counted in the dimension of this name.
bool tern_graph_is_by(const tern_graph *g, tern_vid v, const char *dim);
// Sets the counts of dimensions that only windows use: as many as fit. The input `of` (-1: none)
// has only its first n numbers.
void tern_graph_count_windows(const tern_graph *g, tern_vid of, int64_t n,
                              int64_t counts[TERN_DIMS_MAX]);
// How many rows a value has when the dimensions have these counts.
int64_t tern_graph_rows(const tern_graph *g, tern_vid v, const int64_t counts[TERN_DIMS_MAX]);
tern_vid tern_graph_find(const tern_graph *g, const char *name); // value by name, -1
// Memory of one sequence's states, with keys and values in F16. position: for each position;
// sequence: besides that, at most: full windows and the fixed states.
typedef struct tern_state_bytes {
    uint64_t position, sequence;
} tern_state_bytes;
tern_state_bytes tern_graph_state_bytes(const tern_graph *g);
// Whether the structure is sound: values made before they are read, the op's numbers of inputs and
// outputs, shapes that fit, names not too long.
tern_status tern_graph_check(const tern_graph *g, tern_error *err);

// ---- Passes: rewrite the graph in place --------------------------------------------------------

// Inserts rotations before products, and after table look-ups, whose weights were rotated to match.
// rotation_of: whether the weight was (*is), and how; `after_table`: for a look-up in it. Signs are
// vectors named "hadamard.sign.N" for N columns.
typedef tern_status (*tern_rotation_fn)(void *ctx, const tern_value *weight, bool after_table,
                                        bool *is, tern_rotation *out, tern_error *err);
tern_status tern_pass_rotate(tern_graph *g, tern_rotation_fn rotation_of, void *ctx,
                             tern_error *err);

// The rank of a weight's adapter; 0: it has none.
typedef int64_t (*tern_rank_fn)(const void *ctx, const char *weight);
// Adds B (A x) to W x for every weight that has an adapter; the new weights A and B are named after
// W, with ".lora_a" and ".lora_b" appended. Before lowering.
typedef struct tern_low_rank {
    tern_rank_fn rank_of;
    // Whether the sum is multiplied by a vector of factors, named with ".lora_f"; NULL: never.
    bool (*has_factors)(const void *ctx, const char *weight);
    const void *ctx;
    // DoRA in training: those factors are made of W, A, B and trained magnitudes, named with
    // ".lora_m". With `scale`.
    bool magnitudes;
    // NULL, or the name of a weight [rank, rank] between A and B of all adapters, which then share
    // one rank.
    const char *scale;
    // Not 0: rows have their own gains, which the input TERN_LORA_GAINS [tokens, n_gains] has.
    // These adapters take column `gain`, and are called W.0, W.1 ... by it.
    int32_t n_gains, gain;
} tern_low_rank;
#define TERN_LORA_GAINS "loras"
tern_status tern_pass_low_rank(tern_graph *g, const tern_low_rank *adapters, tern_error *err);
// The column of gains that this node's result is for, and nothing else: where it is 0 in all rows,
// the node need not be computed. -1: none.
int32_t tern_graph_gain_of(const tern_graph *g, const tern_node *n);

// How the file stores the weight, so that linears can be lowered.
typedef enum tern_weight_kind {
    TERN_WEIGHT_FLOAT,   // float or block-quantized: multiplied with float activations
    TERN_WEIGHT_TERNARY, // codes and one scale: multiplied with int8 activations
    TERN_WEIGHT_GROUPED, // codes with a scale for each group: with int8 activations in groups
} tern_weight_kind;
// Chooses the arithmetic of every linear: if the weight is ternary or grouped its input is
// quantized (once for all its readers), otherwise quantize and ternarize are dropped.
// kinds[v] is read for values that are matrices.
tern_status tern_pass_lower(tern_graph *g, const tern_weight_kind *kinds, tern_error *err);
// Merges neighbours into the ops of ops.inc's TERN_OP_FUSED rows; the numbers stay the same.
tern_status tern_pass_fuse(tern_graph *g, tern_error *err);

// ---- Training (train_graph.c, differentiate.c, recompute.c) -------------------------------------
//
// A training run has whole documents one after the other: row t belongs to the one that begins at
// row starts[t] (given with the batch, as positions are in inference), and its position is t -
// starts[t]. Weights are read as floats; gradients are states of the weight's shape, named "grad."
// and its name, to which a run adds.

// The name of an op without a gradient, which keeps the graph, as its architecture built it, from
// being trained; NULL: none.
const char *tern_graph_untrainable(const tern_graph *g);
// Quantization-aware training (arXiv:1712.05877): products of layers with a weight v, experts' too,
// read it rounded to types[v] (TERN_DTYPE_F32: as it is), and, as products with codes in groups do,
// an input rounded to int8 in groups of TERN_QAT_GROUP columns. Before the functions below.
#define TERN_QAT_GROUP 64
tern_status tern_pass_fake_quantize(tern_graph *g, const tern_dtype *types, tern_error *err);
// Rewrites a model's graph, as its architecture built it, into one that ends in the loss: no states
// of sequences, rows scored against the input "targets" (-1: not scored), their losses added to the
// state "loss" [1]. Quantized activations and ternarized weights become floats of the same values.
// The head is computed in pieces, see tern_graph_scored.
tern_status tern_graph_train(tern_graph *g, tern_error *err);
// The same for a student and a teacher, another model's graph that stays as it is: g then computes
// both, the teacher first. The teacher's weights are values TERN_TEACHER NAME, and are not trained.
// The state "loss" gets the cross entropy, "kl" KL(teacher || student), "agreement" the number of
// rows whose best token is the teacher's; the gradient is of both losses, see distill.
#define TERN_TEACHER "teacher."
bool tern_value_is_teacher(const tern_value *v);
tern_status tern_graph_train_distilled(tern_graph *g, const tern_graph *teacher,
                                       const tern_distill_attrs *how, tern_error *err);
// The same in two programs. The teacher's: writes the n_top best of the scored rows' first n_cols
// logits, and n_tail of the others, to the state TERN_TEACHER_TOP [n_rows, 2 (n_top + n_tail) + 1],
// see keep_top. The student's: reads them from its state of this name.
#define TERN_TEACHER_TOP TERN_TEACHER "top"
typedef struct tern_top {
    int64_t n_rows, n_top, n_cols, n_tail;
} tern_top;
// The log of a probability of 0.
#define TERN_TOP_NONE (-1e4f)
tern_status tern_graph_keep_top(tern_graph *g, const tern_top *top, tern_error *err);
tern_status tern_graph_train_on_top(tern_graph *g, const tern_top *top,
                                    const tern_distill_attrs *how, tern_error *err);
// The same for a loss that the caller computes from those of the rows, which are not added up:
// those of the scored rows of a run, in their order, are then in the state "losses" [n_rows, 1].
// Nothing writes to "loss".
tern_status tern_graph_train_rows(tern_graph *g, int64_t n_rows, tern_error *err);
// The same for a graph that pools: it ends in the state "vectors" [n_vectors, columns]; a
// document's targets are its row there (-1: none). Normalization to length 1 is left to the caller,
// who computes a loss from the vectors and adds it to "loss" [1]. The differentiated graph reads
// the loss's gradient in the state "vectors.grad" of the same shape.
tern_status tern_graph_train_vectors(tern_graph *g, int64_t n_vectors, tern_error *err);
// Appends the nodes that add the gradient of the loss to the gradients' states. frozen[v]: weight v
// gets none; NULL: all do. Rounding (quantize, ternarize) has the gradient 1: the straight-through
// estimator (arXiv:1308.3432), as in BitNet's training.
tern_status tern_graph_differentiate(tern_graph *g, const bool *frozen, tern_error *err);
// After it: of each layer only what other layers read is kept for the gradient, the rest is
// computed again before it, with the same bits (recompute.c). n_forward: nodes before
// differentiating.
tern_status tern_graph_recompute(tern_graph *g, size_t n_forward, tern_error *err);
// An empty graph becomes one optimizer step: clips all gradients to a common norm, updates every
// weight of `g` that has a gradient, with moments in the states "m." and "v." NAME, and zeroes the
// gradients. The norm's square is in the state "grad_norm2" [1], zeroed first.
// Other than AdamW: 8-bit moments are blocks of TERN_ADAMW8_FLOATS floats for TERN_ADAMW8_BLOCK
// numbers, of weights with TERN_ADAMW8_LEAST and more; Muon is for the matrices of layers, which
// have one moment "m.", and AdamW for the rest.
typedef enum tern_update_kind {
    TERN_UPDATE_ADAMW = 0,
    TERN_UPDATE_ADAMW8,
    TERN_UPDATE_MUON,
} tern_update_kind;
enum {
    TERN_ADAMW8_BLOCK = 256,
    TERN_ADAMW8_FLOATS = 1 + TERN_ADAMW8_BLOCK / 4,
    TERN_ADAMW8_LEAST = 4096,
};
// Whether all ops that read weight v, one at least, can decode its rows (is_coded): products,
// lookups, lengths of rows, and what rounds a whole weight.
bool tern_graph_decodes(const tern_graph *g, tern_vid v);
tern_status tern_graph_optimizer(const tern_graph *g, tern_update_kind kind, tern_graph *update,
                                 tern_error *err);

// The nodes of the head, [first, end), and the dimension of its values: a device goes over them for
// one piece of the scored rows after the other (scored.c). end 0: the graph has none.
typedef struct tern_scored_nodes {
    size_t first, end;
    tern_dim dim;
} tern_scored_nodes;
tern_scored_nodes tern_graph_scored(const tern_graph *g);
// Rows of a piece: as many whole steps as let its widest value fit in these bytes, at least one
// step, at most n_rows.
int32_t tern_graph_scored_rows(const tern_graph *g, uint64_t bytes, int32_t step, int32_t n_rows);
int64_t tern_graph_scored_cols(const tern_graph *g); // of that value; 0: there is none
int64_t tern_graph_logits_cols(const tern_graph *g); // of all logits of a row: also a teacher's

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
const char *tern_pool_name(tern_pool_kind kind);
// name: the graph's name in the model; pass: the last pass it went through. plan: NULL, or where
// values are.
void tern_graph_print(const tern_graph *g, const char *name, const char *pass,
                      const tern_memory_plan *plan, tern_format format, tern_strbuf *out);
// How a value's rows are counted, "tokens", "patches / 4 + 1" or a number; its type and shape,
// "f32[tokens, 64]".
void tern_graph_print_rows(const tern_graph *g, tern_vid v, tern_strbuf *out);
void tern_graph_print_shape(const tern_graph *g, tern_vid v, tern_strbuf *out);

#endif
