// Private to lease.c and lease_compute.c: the definition of a lease.
#ifndef TERN_RUNTIME_LEASE_H
#define TERN_RUNTIME_LEASE_H

#include "runtime/runtime.h"

struct tern_lease {
    tern_model *model;
    tern_placement *at; // NULL: none so far, or lost and not yet replaced
    bool is_displaced;  // it was lost
    tern_cache *cache;
    tern_sequence *sequence;
    int32_t n_context;
    tern_kv_type kv_type;
    float loras[TERN_LORAS_MAX]; // [the model's n_loras]
    tern_image_tokens **images;  // [n_images] held: those with rows among the ids
    size_t n_images, images_capacity;
    int32_t *ids; // [n_ids] the tokens that the states were computed from
    size_t n_ids, capacity;
    bool is_long; // its states were computed with RoPE's factors for longer texts
    // The lease's own instance, if runs are timed or drafted; else it uses the placement's.
    tern_placed_instance *own;
    bool profiled;
    const tern_draft_table *drafts; // NULL: no drafts
    bool moved;                     // since last asked
    char *notice;                   // why it moved, and where to; NULL: never
};

// Moves the leases of the works to the model's placement, or its next one: polled until *done. why:
// what happened to the last one.
tern_status tern_leases_settle(const tern_work *work, int32_t n_work, const char *why, bool *done,
                               tern_error *err);
// The lease's image with this row; NULL: none.
const tern_image_tokens *tern_lease_image(const tern_lease *l, int32_t id);
// Releases images that are not among the first n_ids.
void tern_lease_release_images(tern_lease *l, size_t n_ids);
// Refuses parts of images whose rows attend to each other.
tern_status tern_lease_check_whole(const tern_lease *l, const int32_t *ids, size_t n,
                                   tern_error *err);
// For n rows with these ids from a position on: where their images end, as in tern_batch.ends.
// False: none of them is an image's.
bool tern_lease_image_ends(const tern_lease *l, int32_t first, const int32_t *ids, int32_t n,
                           int32_t *ends);
// RoPE's positions [n, 3] of n rows with these ids after the lease's first ones, if it has images.
// Returns the offset to add to the positions after them.
int32_t tern_lease_rope_positions(const tern_lease *l, int32_t first, const int32_t *ids, int32_t n,
                                  int32_t *places);
// Room for n_ids tokens.
tern_status tern_lease_reserve_ids(tern_lease *l, size_t n_ids, tern_error *err);

#endif
