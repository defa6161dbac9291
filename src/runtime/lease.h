// Private to lease.c and lease_compute.c: the definition of a lease.
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
    tern_image_tokens **images; // [n_images] held: those whose rows are among the ids
    size_t n_images, images_capacity;
    int32_t *ids; // [n_ids] what the states at each position were computed from
    size_t n_ids, capacity;
    bool is_long; // its states were computed with RoPE's factors for longer texts
    // An instance of its own, where runs are timed or drafted; else they share the placement's.
    tern_placed_instance *own;
    bool profiled;
    const tern_draft_table *drafts; // NULL: batches ask for none
    bool moved;                     // since last asked
    char *notice;                   // why, and where to; NULL: never
};

// Brings the leases of the works to where the model is, or will be: polled until *done. why: what
// happened to where they were.
tern_status tern_leases_settle(const tern_work *work, int32_t n_work, const char *why, bool *done,
                               tern_error *err);
// Of the lease's images the one with this row; NULL: none.
const tern_image_tokens *tern_lease_image(const tern_lease *l, int32_t id);
// Lets those go that are not among the first n_ids.
void tern_lease_look_away(tern_lease *l, size_t n_ids);
// Refuses parts of images whose rows see each other.
tern_status tern_lease_check_whole(const tern_lease *l, const int32_t *ids, size_t n,
                                   tern_error *err);
// Of n rows with these ids from a position on: where their images end, as tern_batch.ends has it.
// False: none of them is of one.
bool tern_lease_ends(const tern_lease *l, int32_t first, const int32_t *ids, int32_t n,
                     int32_t *ends);
// RoPE's places of n rows with these ids after the lease's first ones, [n, 3], if it has images.
// Returns what is to be added to the positions after them.
int32_t tern_lease_places(const tern_lease *l, int32_t first, const int32_t *ids, int32_t n,
                          int32_t *places);
// Room for n_ids tokens.
tern_status tern_lease_know(tern_lease *l, size_t n_ids, tern_error *err);

#endif
