// Private to lease.c and lease_compute.c: what a lease is.
#ifndef TERN_RUNTIME_LEASE_H
#define TERN_RUNTIME_LEASE_H

#include "runtime/runtime.h"

struct tern_lease {
    tern_model *model;
    tern_placement *at; // NULL: the last one was lost, and no other could be had
    tern_cache *cache;
    tern_sequence *sequence;
    int32_t n_context;
    tern_kv_type kv_type;
    int32_t *ids; // [n_ids] what the states at each position were computed from
    size_t n_ids, capacity;
    // An instance of its own, where runs are timed or drafted; else they share the placement's.
    tern_placed_instance *own;
    bool profiled;
    const tern_draft_table *drafts; // NULL: batches ask for none
    bool moved; // since last asked
    char *notice; // why, and where to; NULL: never
};

// Settles a lease that has no place, since the last one was lost and no other could be had.
tern_status tern_lease_find_place(tern_lease *l, tern_error *err);
// From a lost place to where the model is now; err says why, and why not.
tern_status tern_lease_move(tern_lease *l, tern_error *err);
// Room for n_ids tokens.
tern_status tern_lease_know(tern_lease *l, size_t n_ids, tern_error *err);

#endif
