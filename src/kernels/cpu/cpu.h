// Private to the CPU backend: what its files share.
//
//   cpu_backend.c   the table of functions, opening, tuning
//   cpu_weights.c   weights as the kernels read them
//   cpu_plan.c      graph -> list of steps
//   cpu_i8.c        quantized activations in memory
//   cpu_page_pool.c pages of states
//   cpu_instance.c  scratch of a run; running
//   cpu_ops.c       the table of ops; ops/ has their functions
//   kernels.h       the inner kernels
#ifndef TERN_KERNELS_CPU_CPU_H
#define TERN_KERNELS_CPU_CPU_H

#include <string.h>
#include "kernels/backend.h"
#include "kernels/rope.h"
#include "kernels/cpu/grouped/grouped.h"
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/kernels.h"
#include "base/os/team.h"

// The kernels' enum of an activation. A switch, so that compilers name an activation left out.
static inline tern_cpu_act cpu_act_of(tern_act_kind kind) {
    switch (kind) {
    case TERN_ACTIVATION_SILU: return TERN_ACT_SILU;
    case TERN_ACTIVATION_RELU2: return TERN_ACT_RELU2;
    case TERN_ACTIVATION_GELU: return TERN_ACT_GELU;
    case TERN_ACTIVATION_GELU_TANH: return TERN_ACT_GELU_TANH;
    case TERN_ACTIVATION_SIGMOID: return TERN_ACT_SIGMOID;
    case TERN_ACTIVATION_TANH: return TERN_ACT_TANH;
    case TERN_ACTIVATION_ASINH: return TERN_ACT_ASINH;
    case TERN_ACTIVATION_NONE:
    case TERN_ACTIVATION_COUNT: break;
    }
    return TERN_ACT_NONE;
}

// ---- ops/experts.c, which training reads, too --------------------------------------------------

// Scores of a row's experts, and its route: see tern_route_attrs.
typedef struct cpu_route_args {
    const float *x, *bias; // a number for each expert; bias: NULL, or of the choice
    size_t n_experts;
    float *scores; // room for them
} cpu_route_args;
void cpu_scores_row(const tern_float_kernels *f, const tern_route_attrs *r, const float *x,
                    size_t n_experts, float *scores);
void cpu_route_row(const tern_float_kernels *f, const tern_route_attrs *r, const cpu_route_args *a,
                   float *out);

struct tern_device {
    tern_team *team;
    tern_cpu_kernels kernels;
    tern_ternary_layout ternary_wanted;
    tern_packing packing; // of ternary weights, decided by tune
    bool precise;         // weights in groups are multiplied as floats
    char description[96];
};

struct tern_weight {
    tern_weight_source source; // its data are those held, or none
    tern_hold held;            // the file's own bytes, where kernels read them
    tern_weight_info info;
    void *owned;         // repacked or converted copy, or NULL
    const float *vector; // norms
    tern_ternary_matrix ternary;
    tern_grouped_matrix grouped;
    // Float matrices and tables; the head may have another form than the table it is tied to.
    tern_dtype type;
    const uint8_t *rows;
    size_t row_bytes;
    tern_head *screen; // of an exact head, or NULL
    tern_hold *parts;  // of a matrix in parts: [n_parts], each part's own bytes
};

// Activations quantized for int8 kernels: one value of type I8ROWS.
typedef struct cpu_i8 {
    tern_i8_rows rows;
    void *prepared; // for gemv, up to its gemv_tokens
    void *panels;   // for gemm
} cpu_i8;

struct cpu_run;
struct cpu_step;
typedef void (*cpu_step_fn)(struct cpu_run *run, const struct cpu_step *step,
                            const tern_team *team);

// How the CPU runs an op.
typedef struct cpu_op {
    cpu_step_fn step;
    // An upper bound on the scratch bytes that one thread of the node needs; NULL: none.
    size_t (*scratch)(const tern_plan *p, const tern_node *n);
} cpu_op;
const cpu_op *cpu_op_of(tern_op op); // NULL: the CPU has none

typedef struct cpu_step {
    cpu_step_fn fn;
    const tern_node *node;
    int index;         // its counters are run->counters[index * CPU_COUNTERS ...]
    int rope;          // index into the plan's ropes, or -1
    tern_vid only_for; // read by the caller only: computed only when it is bound; or -1
    bool for_top_k;
    int32_t gain; // computed only for rows with such a gain (tern_graph_gain_of), or -1
} cpu_step;
#define CPU_COUNTERS TERN_NODE_OUTPUTS

struct tern_plan {
    tern_device *device;
    const tern_graph *g;
    tern_weight *const *weights; // by value
    int32_t n_batch;
    cpu_step *steps;
    size_t n_steps;
    tern_rope_list ropes;
    tern_memory_plan memory;
    tern_page_layout layout;
    size_t scratch_bytes;  // of one thread
    tern_vid ids, outputs; // inputs of these names, or -1
    tern_vid scores;       // what top_k ranks, or -1
    tern_vid gains;        // of adapters, or -1
    bool whole;            // rows see later ones: a sequence must come in one chunk
};

typedef struct cpu_row { // of a batch
    int32_t chunk, position;
} cpu_row;

typedef struct cpu_block { // rows of one chunk: a unit of attention
    int32_t chunk, row, n_rows;
} cpu_block;
#define CPU_BLOCK_ROWS 24 // whole tiles of the attention kernel for any number of heads

// One batch being computed.
typedef struct cpu_run {
    tern_instance *instance;
    const tern_plan *plan;
    const tern_batch *batch;
    int64_t counts[TERN_DIMS_MAX];
    size_t n_blocks;
    uint64_t gains;    // a bit for each that is not 0 in all rows
    size_t first, end; // steps of the piece; end: where the next one begins
    // The last step to run, where the computation is cancelled; SIZE_MAX: run all. One thread may
    // read it when another is a step ahead, so it is a step's number and not a flag.
    atomic_size_t last;
} cpu_run;

struct tern_instance {
    tern_plan *plan;
    const tern_page_pool *page_pool;
    uint8_t *pool;          // temporaries, by the memory plan
    uint8_t *scratch;       // [n_threads][scratch_bytes]
    float *rope_tables;     // per rope: cos [n_batch][n_rot/2], sin the same
    size_t rope_stride;     // floats of one rope's pair of tables
    cpu_row *rows;          // [n_batch]
    cpu_block *blocks;      // [n_batch]
    tern_head_query *query; // of an exact head, or NULL
    bool more;              // the query wants another round
    float *logits;          // [n_vocab], when only the greatest are wanted and there is no screen
    atomic_size_t *counters;
    tern_profile *profile; // by op; NULL: nothing is timed
    tern_tap_fn tap;       // of the batch that is traced, or NULL
    void *tap_ctx;
    cpu_run run;
    bool is_busy; // pieces of the run are left
};

// Memory of a value in a run; NULL for weights, and for values that the batch leaves out.
void *cpu_value(const cpu_run *run, tern_vid v);
int32_t cpu_rows(const cpu_run *run, tern_vid v);
// The pages of a chunk that hold a state.
const tern_page *cpu_state_pages(const cpu_run *run, const tern_chunk *c, tern_vid state);
// The parts of an I8ROWS value of n_in columns for n_tokens rows, laid out in `memory` (NULL: only
// compute the size). Returns its bytes.
uint64_t cpu_i8_layout(const tern_device *d, int64_t n_in, int32_t n_tokens, void *memory,
                       cpu_i8 *out);

// The same of an I8GROUPS value.
uint64_t cpu_groups_layout(const tern_device *d, int64_t n_in, int32_t n_tokens, void *memory,
                           tern_grouped_rows *out);

// The columns of x in the order in which they are rotated, if that has groups (tern_rotation).
static inline const float *cpu_rotation_order(const tern_rotation *r, const float *x, size_t n,
                                              float *out) {
    const size_t each = (size_t)r->each, width = each * (size_t)(r->groups * r->repeats);
    float *y = out;
    for (size_t at = 0; at < n; at += width)
        for (int32_t g = 0; g < r->groups; g++)
            for (int32_t k = 0; k < r->repeats; k++, y += each)
                memcpy(y, x + at + (size_t)(k * r->groups + g) * each, each * sizeof *y);
    return out;
}

// The kernels that `features` allow, and threads to run them: the first step in opening a device,
// for inference or training.
tern_status cpu_team_open(const char *features, int n_threads, tern_cpu_kernels *kernels,
                          tern_team **team, tern_error *err);

tern_status cpu_weight_bind(tern_device *d, const tern_weight_source *source, tern_weight **out,
                            tern_error *err);
// Whether the weight is multiplied as codes in groups, with int8 activations; sets all of m but its
// data. Packs the weight in the form that w->grouped has from there.
bool cpu_grouped_form(const tern_device *d, const tern_weight_source *s, tern_grouped_matrix *m);
tern_status cpu_bind_grouped(tern_device *d, tern_weight *w, tern_error *err);
void cpu_weight_unbind(tern_device *d, tern_weight *w);
void cpu_weight_info(const tern_weight *w, tern_weight_info *info);
// Measures both packings on the model's own matrices.
tern_status cpu_tune(tern_device *d, const tern_weight_source *sources, size_t n, tern_error *err);

tern_status cpu_compile(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                        int32_t n_batch, tern_plan **out, tern_error *err);
void cpu_plan_free(tern_plan *p);

tern_status cpu_page_pool_open(tern_plan *p, const tern_page_layout *layout,
                               const tern_cache_desc *desc, tern_page_pool **out, tern_error *err);
void cpu_page_pool_close(tern_page_pool *s);
int32_t cpu_page_pool_n_context(const tern_page_pool *s);
tern_dtype cpu_page_pool_kv_type(const tern_page_pool *s);
size_t cpu_page_pool_offset(const tern_page_pool *s, tern_vid state); // in a page
int32_t cpu_page_positions(const tern_page_pool *s);
uint64_t cpu_page_bytes(const tern_page_pool *s, int group);
tern_status cpu_page_new(tern_page_pool *s, int group, tern_page *out, tern_error *err);
void cpu_page_free(tern_page_pool *s, int group, tern_page page);
tern_status cpu_page_copy(tern_page_pool *s, int group, tern_page from, tern_page to,
                          tern_error *err);
tern_status cpu_page_clear(tern_page_pool *s, int group, tern_page page, tern_error *err);
tern_status cpu_page_read(tern_page_pool *s, int group, tern_page page, void *to, tern_error *err);
tern_status cpu_page_write(tern_page_pool *s, int group, tern_page page, const void *from,
                           tern_error *err);

tern_status cpu_instance_open(tern_plan *p, tern_page_pool *s, tern_instance **out,
                              tern_error *err);
void cpu_instance_close(tern_instance *i);
tern_status cpu_submit(tern_instance *i, const tern_batch *batch, tern_error *err);
tern_status cpu_poll(tern_instance *i, bool *done, tern_error *err);
void cpu_cancel(tern_instance *i);
tern_status cpu_profile_start(tern_instance *i, tern_error *err);
const tern_profile *cpu_profile_read(const tern_instance *i);
tern_status cpu_trace(tern_instance *i, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                      tern_error *err);

#endif
