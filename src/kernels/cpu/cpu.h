// Private to the CPU backend: what its files share.
//
//   cpu_backend.c   the table of functions, opening, tuning
//   cpu_weights.c   weights as the kernels read them
//   cpu_plan.c      graph -> list of steps; memory of a session; running
//   cpu_steps.c     one function per op: shares its work among the team, calls the inner kernels
//   kernels.h       the inner kernels
#ifndef TERN_KERNELS_CPU_CPU_H
#define TERN_KERNELS_CPU_CPU_H

#include "kernels/backend.h"
#include "kernels/rope.h"
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/kernels.h"
#include "base/team.h"

// The kernels' enum of an activation.
static inline tern_cpu_act cpu_act_of(tern_act_kind kind) {
    static const tern_cpu_act acts[TERN_ACTIVATION_COUNT] = {
        [TERN_ACTIVATION_SILU] = TERN_ACT_SILU,
        [TERN_ACTIVATION_RELU2] = TERN_ACT_RELU2,
        [TERN_ACTIVATION_GELU] = TERN_ACT_GELU,
        [TERN_ACTIVATION_GELU_TANH] = TERN_ACT_GELU_TANH,
    };
    return acts[kind];
}

struct tern_device {
    tern_team *team;
    tern_cpu_kernels kernels;
    tern_ternary_layout ternary_wanted;
    tern_packing packing; // of ternary weights, decided by tune
    char description[96];
};

struct tern_weight {
    tern_weight_source source; // name and data belong to the file
    tern_weight_info info;
    void *owned;               // repacked or converted copy, or NULL
    const float *vector;       // norms
    tern_ternary_matrix ternary;
    // Float matrices and tables; the head may have another form than the table it is tied to.
    tern_dtype type;
    const uint8_t *rows;
    size_t row_bytes;
    tern_head *screen; // of an exact head, or NULL
};

// Activations quantized for int8 kernels: one value of type I8ROWS.
typedef struct cpu_i8 {
    tern_i8_rows rows;
    void *prepared; // for gemv, up to TERN_GEMV_TOKENS
    void *panels;   // for gemm
} cpu_i8;

struct cpu_run;
struct cpu_step;
typedef void (*cpu_step_fn)(struct cpu_run *run, const struct cpu_step *step,
                            const tern_team *team);

typedef struct cpu_step {
    cpu_step_fn fn;
    const tern_node *node;
    int index;         // its counters are run->counters[index * CPU_COUNTERS ...]
    int rope;          // index into the plan's ropes, or -1
    bool for_outputs;  // only when outputs are wanted
    bool for_logits, for_top_k;
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
    size_t scratch_bytes; // of one thread
    int64_t n_vocab;
};

struct tern_instance {
    tern_plan *plan;
    int32_t n_context;
    tern_dtype kv_type;
    uint8_t *pool;       // temporaries, by the memory plan
    uint8_t *cache;      // all pages, one after the other
    tern_page *pages;    // of n_context positions; a page has the blocks of all states and heads
    size_t *state_offset; // [n_values]: where a state's blocks begin in a page
    uint8_t *scratch;    // [n_threads][scratch_bytes]
    float *rope_tables;  // per rope: cos [n_batch][n_rot/2], sin the same
    size_t rope_stride;  // floats of one rope's pair of tables
    tern_head_query *query; // of an exact head, or NULL
    bool more;           // the query wants another round
    float *logits;       // [n_vocab], when only the greatest are wanted and there is no screen
    atomic_size_t *counters;
    tern_profile *profile; // by op; NULL: nothing is timed
    tern_tap_fn tap;       // of the batch that is traced, or NULL
    void *tap_ctx;
};

// One batch being computed.
typedef struct cpu_run {
    tern_instance *instance;
    const tern_plan *plan;
    const tern_batch *batch;
} cpu_run;

// Memory of a value in a run; NULL for weights.
void *cpu_value(const cpu_run *run, tern_vid v);
int32_t cpu_rows(const cpu_run *run, tern_vid v); // tokens or outputs
// The parts of an I8ROWS value of n_in columns for n_tokens rows, laid out in `memory` (NULL: only
// compute the size). Returns its bytes.
uint64_t cpu_i8_layout(const tern_device *d, int64_t n_in, int32_t n_tokens, void *memory,
                       cpu_i8 *out);

// The kernels that `features` allow, and threads to run them: the first step in opening a device,
// for inference or training.
tern_status cpu_team_open(const char *features, int n_threads, tern_cpu_kernels *kernels,
                          tern_team **team, tern_error *err);

tern_status cpu_weight_bind(tern_device *d, const tern_weight_source *source, tern_weight **out,
                            tern_error *err);
void cpu_weight_unbind(tern_device *d, tern_weight *w);
void cpu_weight_info(const tern_weight *w, tern_weight_info *info);
// Measures both packings on the model's own matrices.
tern_status cpu_tune(tern_device *d, const tern_weight_source *sources, size_t n, tern_error *err);

tern_status cpu_compile(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                        int32_t n_batch, tern_plan **out, tern_error *err);
void cpu_plan_free(tern_plan *p);
tern_status cpu_instance_open(tern_plan *p, int32_t n_context, tern_kv_type kv_type,
                              tern_instance **out, tern_error *err);
void cpu_instance_close(tern_instance *i);
tern_status cpu_submit(tern_instance *i, const tern_batch *batch, tern_error *err);
tern_status cpu_profile_start(tern_instance *i, tern_error *err);
const tern_profile *cpu_profile_read(const tern_instance *i);
tern_status cpu_trace(tern_instance *i, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                      tern_error *err);

// The function that runs an op; NULL: the CPU has none.
cpu_step_fn cpu_step_for(tern_op op);
// An upper bound on the scratch bytes that one thread of a node needs.
size_t cpu_step_scratch(const tern_plan *p, const tern_node *n);

#endif
