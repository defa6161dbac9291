// One sequence on one instance, without a runtime: for tests of a backend. Models run their graphs
// with runtime/runner.h.
#ifndef TERN_KERNELS_SINGLE_TEST_H
#define TERN_KERNELS_SINGLE_TEST_H

#include "kernels/backend.h"

typedef struct tern_single {
    const tern_backend *backend;
    tern_cache *cache;
    tern_sequence *sequence;
    tern_instance *instance;
} tern_single;

tern_status tern_single_open(tern_single *out, const tern_backend *backend, tern_plan *plan,
                             const tern_graph *g, const tern_cache_desc *desc, tern_error *err);
void tern_single_close(tern_single *s);
// Puts the batch's tokens into one chunk at first_pos: fills `chunk`, points the batch to it, and
// makes room. Positions from first_pos on are forgotten; first_pos must be one that the sequence
// can go back to, or lie ahead: then positions that were never computed hold zeros.
tern_status tern_single_place(tern_single *s, tern_batch *batch, tern_chunk *chunk,
                              int32_t first_pos, tern_error *err);
// Places and submits the batch, and waits for it.
tern_status tern_single_run(tern_single *s, tern_batch *batch, int32_t first_pos, tern_error *err);
// The same with trace.
tern_status tern_single_trace(tern_single *s, tern_batch *batch, int32_t first_pos,
                              tern_tap_fn on_value, void *ctx, tern_error *err);

#endif
