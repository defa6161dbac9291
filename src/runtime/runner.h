// A runner: one graph of a model for one caller, on a timeline of its own. Towers, encoders, codecs
// and the examinations of models use it. (Sessions run the main graph through leases, which share
// batches.)
//
// A batch is begun and polled. It is computed in pieces, and each piece takes its turn on the
// device, so that nobody who generates text meanwhile waits for more than one of them.
#ifndef TERN_RUNTIME_RUNNER_H
#define TERN_RUNTIME_RUNNER_H

#include "runtime/runtime.h"

typedef struct tern_runner_desc {
    int graph;         // of the model's
    int32_t n_rows;    // of a batch, at most; 0: as many as the model's own plan takes
    int32_t n_context; // positions of the timeline
    tern_kv_type kv_type;
    // NULL, or a graph to run instead, with the same weights by value; it outlives the run, and its
    // plan is not kept for others.
    const tern_graph *instead;
} tern_runner_desc;

typedef struct tern_runner { // zero-initialise
    tern_model *model;       // NULL: the plan is the caller's
    tern_placement *at;
    const tern_backend *backend; // NULL: not open
    tern_placed_plan *plan;      // NULL: the model's own, or the caller's
    tern_cache *cache;
    tern_sequence *sequence;
    tern_instance *instance;
    // The batch under way.
    tern_batch batch;
    tern_chunk chunk;
    int32_t first_pos;
    int32_t n_pieces; // polls that it took
    bool is_busy;
} tern_runner;

// To be closed, whether it fails or not.
tern_status tern_runner_open(tern_runner *r, tern_model *m, const tern_runner_desc *desc,
                             tern_error *err);
// The same for a plan of the caller's, which nobody else uses meanwhile.
tern_status tern_runner_open_plan(tern_runner *r, const tern_backend *backend, tern_plan *plan,
                                  const tern_graph *g, const tern_cache_desc *desc,
                                  tern_error *err);
void tern_runner_close(tern_runner *r); // cancels what is under way

// Begins a batch of one chunk at first_pos, whose chunks are filled in here. Positions from there
// on are forgotten; first_pos must be one that the timeline can go back to, or lie ahead: then
// positions that were never computed hold zeros. What the batch points to must stay until it is
// done or cancelled.
tern_status tern_runner_begin(tern_runner *r, const tern_batch *batch, int32_t first_pos,
                              tern_error *err);
// Computes a piece, or looks whether the device has done so. A failure ends the batch.
tern_status tern_runner_poll(tern_runner *r, bool *done, tern_error *err);
void tern_runner_cancel(tern_runner *r);
// Begins, and polls until it is done.
tern_status tern_runner_wait(tern_runner *r, const tern_batch *batch, int32_t first_pos,
                             tern_error *err);
// Waits, too, and shows the values on the way.
tern_status tern_runner_trace(tern_runner *r, const tern_batch *batch, int32_t first_pos,
                              tern_tap_fn on_value, void *ctx, tern_error *err);

#endif
