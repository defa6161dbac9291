// See train_cpu.h. A separate file, since the device types of the CPU and the GPU exclude each
// other in one file.
#include "bench/train_cpu.h"

#include <stdio.h>
#include "base/os/os_time.h"
#include "kernels/cpu/train/cpu_train.h"

static void name_step(const tern_program *p, const tern_node *n, int32_t n_tokens,
                      train_step_time *out) {
    bool product =
        n->op == TERN_OP_LINEAR || n->op == TERN_OP_LINEAR_GRAD_X || n->op == TERN_OP_LINEAR_GRAD_W;
    if (!product) {
        snprintf(out->name, sizeof out->name, "%s", tern_op_name(n->op));
        return;
    }
    const tern_value *w = &p->g->values[n->in[n->op == TERN_OP_LINEAR_GRAD_W ? 2 : 1]];
    snprintf(out->name, sizeof out->name, "%s %d x %d", tern_op_name(n->op), (int)w->rows,
             (int)w->cols);
    out->flops = 2.0 * n_tokens * (double)w->rows * (double)w->cols;
}

typedef struct timed_run {
    cpu_train_run run;
    train_step_time *times;
    size_t most;
    double begin; // of the step that thread 0 is in
} timed_run;

static void take_time(void *user, size_t i, bool is_last) {
    (void)is_last; // a step of the head has a time for each piece
    timed_run *t = user;
    double end = tern_seconds();
    if (i < t->most) t->times[i].seconds += end - t->begin;
    t->begin = end;
}

static void run_timed(void *ctx, const tern_team *team) {
    timed_run *t = ctx;
    tern_team_barrier(team);
    if (team->thread == 0) t->begin = tern_seconds();
    cpu_train_walk(&t->run, team, take_time, t);
}

size_t train_cpu_times(tern_program *p, const tern_train_batch *batch, train_step_time *times,
                       size_t most) {
    size_t n = p->n_steps < most ? p->n_steps : most;
    timed_run t = {{.program = p, .batch = batch}, times, n, 0};
    for (size_t i = 0; i < n; i++) {
        times[i] = (train_step_time){.seconds = 0};
        name_step(p, p->steps[i].node, batch->n_tokens, &times[i]);
    }
    cpu_train_prepare(p, batch);
    tern_team_run(p->device->team, run_timed, &t);
    return n;
}

typedef struct peak_run {
    const tern_gemm_kernels *kernels;
    _Atomic uint64_t macs;
} peak_run;

static void run_peak(void *ctx, const tern_team *team) {
    peak_run *p = ctx;
    uint64_t macs = 0;
    tern_team_barrier(team);
    for (int i = 0; i < 300; i++) macs += p->kernels->peak_loop();
    atomic_fetch_add(&p->macs, macs);
}

double train_cpu_peak(tern_trainer_device *device) {
    double best = 0;
    for (int round = 0; round < 10; round++) {
        peak_run p = {device->gemm, 0};
        double begin = tern_seconds();
        tern_team_run(device->team, run_peak, &p);
        double rate = 2 * (double)p.macs / (tern_seconds() - begin);
        if (rate > best) best = rate;
    }
    return best;
}
