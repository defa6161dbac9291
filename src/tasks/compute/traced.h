// A graph of a model, run to read some of its intermediate values.
//
// What runs is a copy of the lowered graph that has those values as its only wanted outputs:
// nothing else is computed, and fusion leaves them alone. They are read from a trace of the run, so
// any value can be read on any device, not only what the architecture calls an output.
#ifndef TERN_TASKS_COMPUTE_TRACED_H
#define TERN_TASKS_COMPUTE_TRACED_H

#include "runtime/runner.h"

typedef struct tern_traced { // zero-initialise
    tern_model *model;
    const tern_model_graph *of;
    tern_graph graph;
    tern_runner runner;
} tern_traced;

// Makes the graph; `wanted` are values of the lowered one.
tern_status tern_traced_choose(tern_traced *t, tern_model *m, const tern_model_graph *of,
                               const tern_vid *wanted, size_t n_wanted, tern_error *err);
// Compiles it where the model is, for at most n_rows rows of any dimension.
tern_status tern_traced_open(tern_traced *t, int32_t n_rows, int32_t n_context,
                             tern_kv_type kv_type, tern_error *err);
// Runs it from position 0, and shows each intermediate value: all of the wanted ones that the
// device computes separately.
tern_status tern_traced_run(tern_traced *t, tern_batch *batch, tern_tap_fn on_value, void *ctx,
                            tern_error *err);
void tern_traced_close(tern_traced *t);

#endif
