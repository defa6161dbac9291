// Private to lease.c and lease_compute.c: what a lease is.
#ifndef TERN_RUNTIME_LEASE_H
#define TERN_RUNTIME_LEASE_H

#include "runtime/runtime.h"

struct tern_lease {
    tern_model *model;
    tern_placement *at; // NULL: there was none, or it was lost, and there is no other yet
    bool is_displaced;  // it was lost
    tern_cache *cache;
    tern_sequence *sequence;
    int32_t n_context;
    tern_kv_type kv_type;
    int32_t *ids; // [n_ids] what the states at each position were computed from
    size_t n_ids, capacity;
    bool is_long; // its states were computed with RoPE's factors for longer texts
    // An instance of its own, where runs are timed or drafted; else they share the placement's.
    tern_placed_instance *own;
    bool profiled;
    const tern_draft_table *drafts; // NULL: batches ask for none
    bool moved; // since last asked
    char *notice; // why, and where to; NULL: never
};

// Brings the leases of the works to where the model is, or will be: polled until *done. why: what
// happened to where they were.
tern_status tern_leases_settle(const tern_work *work, int32_t n_work, const char *why, bool *done,
                               tern_error *err);
// Room for n_ids tokens.
tern_status tern_lease_know(tern_lease *l, size_t n_ids, tern_error *err);

#endif
