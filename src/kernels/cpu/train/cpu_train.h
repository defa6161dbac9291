// Private to training on the CPU: what its files share.
//
//   train_backend.c  the table of functions: device, arrays, programs
//   train_run.c      one run: walking the steps with the team, sequences, rope's tables
//   train_steps.c    one function per op
//   train_loss.c     the loss, and the rows that are scored
//   train_top.c      a teacher's best tokens: kept, and learnt
//   train_weights.c  those that read or change a weight: rounding, optimizers
//   train_masters.c  weights that are trained in bfloat16
//   train_codes.c    products with weights that are decoded a stripe at a time
//   train_dora.c     lengths of the rows of a matrix with its adapter
//   train_attention.c  attention among the rows of a document, and its gradient
//   train_ssm.c        the same of a state space
//   train_delta.c      the same of a delta net
//   train_experts.c    mixtures of experts, and their gradients
//   train_pool.c       a vector of each document, and its gradient
//   train_contrast.c   the loss of vectors of pairs, and its gradient
#ifndef TERN_KERNELS_CPU_TRAIN_H
#define TERN_KERNELS_CPU_TRAIN_H

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/kernels.h"
#include "base/os/team.h"
#include "kernels/rope.h"
#include "kernels/train.h"

// ---- Devices, arrays, programs ----------------------------------------------------------------

struct tern_train_array {
    tern_trainer_device *device;
    uint64_t n;
    float *data;            // 64; NULL: codes
    tern_train_codes codes; // decode NULL: floats
    uint16_t *halves;       // bfloat16, which codes decode; NULL: none
    uint64_t n_cols;        // of these
};

struct tern_trainer_device {
    tern_team *team;
    tern_cpu_kernels kernels;
    const tern_gemm_kernels *gemm; // of the linears
    uint64_t piece_bytes;          // of the widest value of the head
    char description[128];
    uint8_t *pool; // temporaries of the program that runs
    uint64_t pool_bytes;
};

struct cpu_train_run;
struct cpu_train_step;
// Every thread of the team calls it; it ends with all of its work done, without a barrier.
typedef void (*cpu_train_fn)(struct cpu_train_run *run, struct cpu_train_step *s,
                             const tern_team *team);

typedef struct cpu_train_step {
    cpu_train_fn fn;
    const tern_node *node;
    int rope;               // index into the program's ropes, or -1
    tern_train_array *done; // this step is the last of the program to add to it, or NULL
    atomic_size_t counter;  // 0 at the start of a run, and of each piece of it
    double sum;             // of the pieces so far
} cpu_train_step;

struct tern_program {
    tern_trainer_device *device;
    const tern_graph *g;
    tern_train_array *const *arrays;
    int32_t n_rows, n_span;
    cpu_train_step *steps;
    size_t n_steps;
    tern_memory_plan memory;
    float *scratch; // [n_threads][scratch_floats]
    size_t scratch_floats;
    // Sums over rows or over a weight are cut into parts by their length alone, never by the number
    // of threads; the parts are added in their order.
    double *sums; // [CPU_TRAIN_PARTS]
    float *parts; // [CPU_TRAIN_PARTS][part_floats]
    size_t part_floats;
    float *shared; // [shared_floats]
    size_t shared_floats;
    tern_rope_list ropes;
    float *rope_tables; // per rope: cos [n_span][n_rot/2], sin the same, minus sin the same
    size_t rope_stride;
    int32_t *documents; // [n_rows + 1]: first row of each document of the batch, then its n_tokens
    size_t n_documents;
    tern_scored_nodes head; // computed for piece_rows of the scored rows at a time
    int32_t piece_rows;
    int32_t *scored; // [n_rows]: the rows of the batch that are scored
    int32_t *places; // [n_rows]: of each row its index among those, -1: not scored
    int32_t n_scored;
    _Atomic uint64_t stops_at; // the step after which all threads stop, from 1; 0: none
};
enum { CPU_TRAIN_PARTS = 64 };

// Each thread has its own.
typedef struct cpu_train_run {
    tern_program *program;
    const tern_train_batch *batch;
    size_t n_rows; // of the values of a step: the batch's tokens, in a piece the piece's
    size_t first;  // of the piece among the scored rows
} cpu_train_run;

// Memory of a value.
float *cpu_train_value(const cpu_train_run *run, tern_vid v);
// For the inputs and outputs of a node.
typedef struct cpu_operands {
    float *in[TERN_NODE_INPUTS], *out[TERN_NODE_OUTPUTS];
} cpu_operands;
static inline cpu_operands cpu_train_operands(const cpu_train_run *run, const tern_node *n) {
    cpu_operands o = {0};
    for (int i = 0; i < n->n_in; i++) o.in[i] = cpu_train_value(run, n->in[i]);
    for (int i = 0; i < n->n_out; i++) o.out[i] = cpu_train_value(run, n->out[i]);
    return o;
}
static inline size_t cpu_train_cols(const cpu_train_run *run, tern_vid v) {
    return (size_t)run->program->g->values[v].cols;
}
enum { CPU_TRAIN_ROW_BLOCK = 16 };
static inline bool cpu_train_claim_rows(const cpu_train_run *run, cpu_train_step *s, size_t *first,
                                        size_t *last) {
    return tern_team_claim(&s->counter, run->n_rows, CPU_TRAIN_ROW_BLOCK, first, last);
}
static inline float *cpu_train_scratch(const cpu_train_run *run, const tern_team *team) {
    return run->program->scratch + (size_t)team->thread * run->program->scratch_floats;
}
static inline const tern_float_kernels *cpu_train_kernels(const cpu_train_run *run) {
    return run->program->device->kernels.f;
}

// How many numbers a weight or an array has.
static inline size_t cpu_train_size(const cpu_train_run *run, tern_vid v) {
    const tern_value *value = &run->program->g->values[v];
    return (size_t)value->rows * (size_t)value->cols;
}
// This thread's share of [0, n), in whole lines of cache.
static inline void cpu_train_share(const tern_team *team, size_t n, size_t *first, size_t *last) {
    size_t lines = (n + 15) / 16, threads = (size_t)team->n_threads, t = (size_t)team->thread;
    *first = lines * t / threads * 16;
    *last = lines * (t + 1) / threads * 16;
    if (*last > n) *last = n;
}
// Parts of [0, n), CPU_TRAIN_PARTS at most, of at least `least` each.
static inline size_t cpu_train_part_length(size_t n, size_t least) {
    size_t length = (n + CPU_TRAIN_PARTS - 1) / CPU_TRAIN_PARTS;
    return length > least ? length : least;
}

tern_status cpu_train_submit(tern_program *p, const tern_train_batch *batch, tern_error *err);
// Before a run: finds documents and scored rows.
void cpu_train_prepare(tern_program *p, const tern_train_batch *batch);
// All steps of a run, for a thread of the team. after, if not NULL, is called by thread 0 when step
// i is done, once for each of its pieces; is_last: no other follows.
typedef void (*cpu_train_after)(void *user, size_t i, bool is_last);
void cpu_train_walk(const cpu_train_run *run, const tern_team *team, cpu_train_after after,
                    void *user);
void cpu_train_fill_ropes(tern_program *p);

// The function of an op; NULL: training has none. Floats of scratch that one thread of it needs,
// and floats of one part of its sums.
cpu_train_fn cpu_train_fn_for(tern_op op);
size_t cpu_train_scratch_floats(const tern_program *p, const tern_node *n);
size_t cpu_train_part_floats(const tern_program *p, const tern_node *n);
// The step's counter is 0 again, after what all threads did before is done.
void cpu_train_rewind(cpu_train_step *s, const tern_team *team);
// Weights that are decoded where they are read: a row; the linears' function, and what they
// need; rows that the team decodes together, which are there until the next ones.
static inline bool cpu_train_is_coded(const cpu_train_run *run, tern_vid w) {
    return run->program->g->values[w].is_coded;
}
void cpu_train_decode(const cpu_train_run *run, tern_vid w, size_t row, float *room, float *out);
void cpu_train_linear_codes(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_row_factors(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
size_t cpu_train_room_floats(const tern_program *p, const tern_node *n);
size_t cpu_train_stripe_floats(const tern_program *p, const tern_node *n);
typedef struct cpu_train_stripe {
    tern_vid w;
    size_t first, n; // rows
} cpu_train_stripe;
const float *cpu_train_decode_rows(cpu_train_run *run, cpu_train_step *s, const tern_team *team,
                                   const cpu_train_stripe *of);
void cpu_train_take_scored(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_put_scored(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_cross_entropy(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_cross_entropy_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_distill(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_distill_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_keep_top(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
// distill where its teacher is a state of keep_top.
bool cpu_train_has_top(const cpu_train_run *run, const tern_node *distill);
void cpu_train_distill_top(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_distill_top_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_keep_scored(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_sum_into(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
// Floats that all threads share during one step.
size_t cpu_train_shared_floats(const tern_program *p, const tern_node *n);
// Weights as a step of an optimizer sees them, in float: their own memory, or of bfloat16 ones n <=
// CPU_TRAIN_BLOCK copies in a room of that size, which put rounds at random.
enum { CPU_TRAIN_BLOCK = 256 };
typedef struct cpu_masters {
    float *data; // NULL: halves
    uint16_t *halves;
    uint64_t key; // of its random bits in this step
} cpu_masters;
cpu_masters cpu_train_masters(const cpu_train_run *run, tern_vid w);
float *cpu_train_take(const cpu_masters *m, size_t first, size_t n, float *room);
void cpu_train_put(const cpu_masters *m, size_t first, size_t n, const float *from);
tern_status cpu_train_array_new_bf16(tern_trainer_device *d, uint64_t n_rows, uint64_t n_cols,
                                     tern_train_array **out, tern_error *err);
// A weight's numbers [first, last) as floats: its own, or for bfloat16 copies in `room`, of the
// whole weight.
const float *cpu_train_floats(const cpu_train_run *run, tern_vid w, size_t first, size_t last,
                              float *room);
void cpu_train_ternarize(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_fake_quantize(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_squares(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_zero(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_adamw(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_adamw8(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_muon(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
// Forward and backward.
void cpu_train_attention(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
size_t cpu_train_attention_floats(const tern_program *p, const tern_node *n);
void cpu_train_pool(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_pool_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_ssm(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
size_t cpu_train_ssm_floats(const tern_program *p, const tern_node *n);
size_t cpu_train_ssm_part_floats(const tern_program *p, const tern_node *n);
void cpu_train_delta(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
size_t cpu_train_delta_floats(const tern_program *p, const tern_node *n);
void cpu_train_route(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_mix(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
void cpu_train_experts(cpu_train_run *run, cpu_train_step *s, const tern_team *team);
size_t cpu_train_experts_floats(const tern_program *p, const tern_node *n);

#endif
