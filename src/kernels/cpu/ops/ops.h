// Ops of the CPU backend: what their files share. A file has one op or a few of a kind; each says
// how a step's work is shared among the team, and which inner kernels do it.
//
// Every thread of the team calls an op's function; blocks of work are claimed from a counter, so a
// core that is slowed down by other programs takes fewer of them. Which thread computes a block
// never changes a bit of it.
#ifndef TERN_KERNELS_CPU_OPS_OPS_H
#define TERN_KERNELS_CPU_OPS_OPS_H

#include "kernels/cpu/cpu.h"

static inline const tern_cpu_kernels *kernels(const cpu_run *run) {
    return &run->plan->device->kernels;
}

static inline atomic_size_t *counter(cpu_run *run, const cpu_step *step, int which) {
    return &run->instance->counters[step->index * CPU_COUNTERS + which];
}

static inline int64_t cols(const cpu_run *run, tern_vid v) { return run->plan->g->values[v].cols; }

static inline void *scratch(const cpu_run *run, const tern_team *team) {
    return run->instance->scratch + (size_t)team->thread * run->plan->scratch_bytes;
}

// Whether gemv computes ternary products of that many rows.
static inline bool few_rows(const cpu_run *run, int64_t n_rows) {
    return (size_t)n_rows <= kernels(run)->t->gemv_tokens[run->plan->device->packing];
}

// The first row of a chunk in its batch.
static inline size_t first_row(const tern_batch *b, size_t chunk) {
    size_t row = 0;
    for (size_t i = 0; i < chunk; i++) row += (size_t)b->chunks[i].n_tokens;
    return row;
}

// Row-wise work: blocks of this many tokens when there are many, one by one when there are few,
// since then a token's work is long compared with the matrix products that wait for it.
#define ROW_BLOCK 8
static inline bool claim_rows(cpu_run *run, const cpu_step *step, int64_t n_rows, size_t block,
                              size_t *first, size_t *last) {
    return tern_team_claim(counter(run, step, 0), (size_t)n_rows, few_rows(run, n_rows) ? 1 : block,
                           first, last);
}

// A product of a linear op: its rows of w are shared among the team by counter `which`.
typedef struct cpu_product {
    int which;
    tern_vid x;
    const tern_weight *w;
    float *out; // row t's at out + t * (rows of w); plus the old values if accumulate
    bool accumulate;
} cpu_product;

// out[t] = x row t times w, n_rows of them. p->x is not read.
void cpu_float_linear(cpu_run *run, const cpu_step *step, const tern_team *team,
                      const cpu_product *p, const float *x, int32_t n_rows);
// The same of a weight with codes in groups, on quantized rows.
void cpu_grouped_linear(cpu_run *run, const cpu_step *step, const tern_team *team,
                        const cpu_product *p, const tern_grouped_rows *x);

#endif
