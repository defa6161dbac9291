// Leases: timelines of tokens on a model's device. If the device is lost, so are all sequences, but
// a lease keeps the tokens that its states were computed from: it moves to the model's next device
// and recomputes the missing states first. The same happens if states had to be cut further back
// than asked, since not all can go back to any position (kernels/sequence.h).
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/lease.h"

// ---- Places ------------------------------------------------------------------------------------

static tern_status open_own(tern_lease *l, tern_error *err) {
    const tern_placement *at = l->at;
    bool drafts = l->drafts && at->backend->drafts_open;
    if (!l->profiled && !drafts) return TERN_OK;
    if (!l->own) TERN_TRY(tern_placement_instance(at, l->model->n_batch, l->cache, &l->own, err));
    if (l->profiled) TERN_TRY(at->backend->profile_start(l->own->instance, err));
    return drafts ? at->backend->drafts_open(l->own->instance, l->drafts, err) : TERN_OK;
}

// Frees the lease's part of its placement; a lost placement is freed with its last lease, except
// its texts, which others may read. Under the model's lock.
static void leave(tern_lease *l) {
    tern_placement *at = l->at;
    if (!at) return;
    tern_placement_begin_use(at);
    tern_placement_instance_close(at, l->own);
    tern_sequence_close(l->sequence);
    tern_placement_end_use(at);
    l->own = NULL;
    l->sequence = NULL;
    l->cache = NULL;
    l->at = NULL;
    if (--at->n_leases == 0 && at != l->model->now) tern_placement_give_back(at, l->model);
}

static tern_status settle(tern_lease *l, tern_placement *at, tern_error *err) {
    const tern_cache_desc desc = {.kv_type = l->kv_type, .n_context = INT32_MAX};
    l->at = at;
    at->n_leases++;
    tern_placement_begin_use(at);
    tern_status status = tern_placement_cache(at, l->model, &desc, &l->cache, err);
    if (status == TERN_OK) status = tern_sequence_open(&l->sequence, l->cache, err);
    if (status == TERN_OK) status = open_own(l, err);
    tern_placement_end_use(at);
    if (status != TERN_OK) leave(l);
    return status;
}

static void leave_lost(tern_lease *l) {
    const tern_placement *at = l->at;
    if (!at || (!at->was_lost && !at->backend->is_lost(at->device))) return;
    leave(l);
    l->is_displaced = true;
}

static tern_status settle_again(tern_lease *l, const char *why, tern_error *err) {
    if (l->at) return TERN_OK;
    TERN_TRY(settle(l, l->model->now, err));
    if (!l->is_displaced) return TERN_OK;
    l->is_displaced = false;
    size_t size = 700;
    if (!l->notice) l->notice = tern_alloc(TERN_MEM_SESSION, size);
    l->moved = l->notice != NULL;
    if (l->moved) {
        tern_placement_begin_use(l->at);
        snprintf(l->notice, size, "%s; the session goes on with %s", why,
                 l->at->backend->describe(l->at->device));
        tern_placement_end_use(l->at);
    }
    return TERN_OK;
}

tern_status tern_leases_settle(const tern_work *work, int32_t n_work, const char *why, bool *done,
                               tern_error *err) {
    tern_model *m = work->lease->model;
    tern_mutex_lock(&m->lock);
    for (int32_t i = 0; i < n_work; i++) leave_lost(work[i].lease);
    tern_status status = tern_placement_find(m, why, done, err);
    const tern_lease *moved = NULL;
    for (int32_t i = 0; status == TERN_OK && *done && i < n_work; i++) {
        const bool was_told = work[i].lease->moved;
        status = settle_again(work[i].lease, why, err);
        if (!was_told && work[i].lease->moved) moved = work[i].lease;
    }
    tern_mutex_unlock(&m->lock);
    if (moved) tern_model_log(m, TERN_LOG_WARN, "%s", moved->notice);
    return status;
}

tern_status tern_lease_open(tern_lease **out, tern_model *m, int32_t n_context,
                            tern_kv_type kv_type, tern_error *err) {
    *out = NULL;
    tern_lease *l = tern_alloc(TERN_MEM_SESSION, sizeof *l);
    if (!l) return tern_fail_memory(err, sizeof *l);
    l->model = m;
    l->n_context = n_context;
    l->kv_type = kv_type;
    memcpy(l->loras, m->lora_scales, sizeof l->loras);
    tern_mutex_lock(&m->lock);
    bool is_lost = m->now->was_lost || m->now->backend->is_lost(m->now->device);
    tern_status status = is_lost ? TERN_OK : settle(l, m->now, err);
    tern_mutex_unlock(&m->lock);
    if (status == TERN_OK)
        *out = l;
    else
        tern_lease_close(l);
    return status;
}

void tern_lease_close(tern_lease *l) {
    if (!l) return;
    tern_mutex_lock(&l->model->lock);
    leave(l);
    tern_mutex_unlock(&l->model->lock);
    tern_lease_release_images(l, 0);
    tern_free(l->images);
    tern_free(l->ids);
    tern_free(l->notice);
    tern_free(l);
}

void tern_lease_set_loras(tern_lease *l, const float *scales) {
    memcpy(l->loras, scales, (size_t)l->model->n_loras * sizeof *scales);
}

const float *tern_lease_loras(const tern_lease *l) { return l->loras; }

const char *tern_lease_notice(tern_lease *l) {
    bool is_new = l->moved;
    l->moved = false;
    return is_new ? l->notice : NULL;
}

// ---- Instances of its own ----------------------------------------------------------------------

int32_t tern_model_short_rope_limit(const tern_model *m) {
    const tern_rope_attrs *r = &m->config.rope;
    return r->scaling == TERN_ROPE_LONG ? r->n_context_orig : INT32_MAX;
}

tern_status tern_lease_announce_length(tern_lease *l, size_t n_positions, tern_error *err) {
    bool is_long = n_positions > (size_t)tern_model_short_rope_limit(l->model);
    int32_t left;
    if (is_long == l->is_long) return TERN_OK;
    l->is_long = is_long;
    if (!l->at) return TERN_OK;
    tern_placement_begin_use(l->at);
    tern_status status = tern_sequence_swap_in(l->sequence, err);
    if (status == TERN_OK) status = tern_sequence_cut(l->sequence, 0, &left, err);
    tern_placement_end_use(l->at);
    return status;
}

int32_t tern_lease_rope_limit(const tern_lease *l, int32_t n_positions) {
    int32_t most = tern_model_short_rope_limit(l->model);
    return l->is_long || n_positions < most ? n_positions : most;
}

bool tern_lease_can_draft(const tern_lease *l) {
    if (l->model->n_loras > 0) return false; // the rows of drafts have no gains
    if (tern_model_short_rope_limit(l->model) < INT32_MAX) return false;
    return l->at && l->at->backend->drafts_open && tern_sequence_cuts_freely(l->sequence);
}

bool tern_lease_takes_masks(const tern_lease *l) { return l->at && l->at->backend->takes_masks; }

static tern_status begin_own(tern_lease *l, tern_error *err) {
    if (!l->at) return TERN_OK; // the next placement gets it
    tern_placement_begin_use(l->at);
    tern_status status = open_own(l, err);
    tern_placement_end_use(l->at);
    return status;
}

tern_status tern_lease_open_drafts(tern_lease *l, const tern_draft_table *table, tern_error *err) {
    l->drafts = table;
    tern_status status = begin_own(l, err);
    if (status != TERN_OK) l->drafts = NULL;
    return status;
}

tern_status tern_lease_start_profile(tern_lease *l, tern_error *err) {
    l->profiled = true;
    return begin_own(l, err);
}

const tern_profile *tern_lease_profile(const tern_lease *l) {
    if (!l->at || !l->own) return NULL;
    tern_placement_begin_use(l->at);
    const tern_profile *p = l->at->backend->profile_read(l->own->instance);
    tern_placement_end_use(l->at);
    return p;
}

// ---- Memory ------------------------------------------------------------------------------------

tern_status tern_lease_reserve_ids(tern_lease *l, size_t n_ids, tern_error *err) {
    if (n_ids <= l->capacity) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &l->ids, &l->capacity, 0, n_ids) != 0)
        return tern_fail_memory(err, n_ids * sizeof *l->ids);
    return TERN_OK;
}

// The index that it points to among the lease's ids; SIZE_MAX: elsewhere.
static size_t place_of(const tern_lease *l, const int32_t *ids) {
    const uintptr_t at = (uintptr_t)ids, begin = (uintptr_t)l->ids;
    if (!l->ids || at < begin || at >= begin + l->capacity * sizeof *ids) return SIZE_MAX;
    return (at - begin) / sizeof *ids;
}

tern_status tern_lease_make_room(tern_lease *l, size_t n_ids, const int32_t **a, const int32_t **b,
                                 tern_error *err) {
    const size_t at_a = a ? place_of(l, *a) : SIZE_MAX, at_b = b ? place_of(l, *b) : SIZE_MAX;
    TERN_TRY(tern_lease_reserve_ids(l, n_ids, err));
    if (at_a != SIZE_MAX) *a = l->ids + at_a;
    if (at_b != SIZE_MAX) *b = l->ids + at_b;
    return TERN_OK;
}

tern_status tern_lease_reserve(tern_lease *l, int32_t n_positions, tern_error *err) {
    if (n_positions > l->n_context) n_positions = l->n_context;
    TERN_TRY(tern_lease_reserve_ids(l, (size_t)n_positions, err));
    if (!l->at) return TERN_OK; // the next placement is asked when needed
    tern_placement_begin_use(l->at);
    tern_status status = tern_sequence_reserve(l->sequence, n_positions, err);
    tern_placement_end_use(l->at);
    return status;
}

tern_status tern_lease_reserve_ahead(tern_lease *l, int32_t n_positions, tern_error *err) {
    TERN_TRY(tern_lease_reserve(l, n_positions, err));
    int32_t ahead = l->at ? l->at->backend->n_ahead : 0;
    if (ahead > 0 && n_positions < l->n_context - ahead)
        tern_lease_reserve(l, n_positions + ahead, NULL);
    return TERN_OK;
}

tern_status tern_lease_keep_prefix(tern_lease *l, int32_t n_positions, int32_t *n_left,
                                   tern_error *err) {
    *n_left = 0;
    if (!l->at) return TERN_OK;
    tern_placement_begin_use(l->at);
    tern_status status = tern_sequence_swap_in(l->sequence, err);
    if (status == TERN_OK) status = tern_sequence_cut(l->sequence, n_positions, n_left, err);
    if (*n_left > n_positions) *n_left = n_positions;
    if (status == TERN_OK && *n_left == n_positions)
        status = tern_sequence_remember(l->sequence, err);
    tern_placement_end_use(l->at);
    return status;
}

// Makes the sequence of `to` begin with the first positions of l's.
static tern_status share(tern_lease *l, int32_t n_positions, tern_lease *to, tern_error *err) {
    tern_sequence *shared = NULL;
    TERN_TRY(tern_sequence_swap_in(l->sequence, err));
    TERN_TRY(tern_sequence_fork(l->sequence, n_positions, &shared, err));
    tern_sequence_close(to->sequence);
    to->sequence = shared;
    to->is_long = l->is_long;
    return TERN_OK;
}

tern_status tern_lease_fork(tern_lease *l, int32_t n_positions, tern_lease *to, tern_error *err) {
    tern_status status = TERN_OK;
    if ((size_t)n_positions > l->n_ids) n_positions = (int32_t)l->n_ids;
    TERN_TRY(tern_lease_set_ids(to, 0, l->ids, (size_t)n_positions, err));
    if (l->at && l->cache == to->cache) {
        tern_placement_begin_use(l->at);
        status = share(l, n_positions, to, err);
        tern_placement_end_use(l->at);
    }
    if (status == TERN_OK) to->n_ids = (size_t)n_positions;
    return status;
}

bool tern_lease_forks_anywhere(const tern_lease *l) {
    return l->sequence && tern_sequence_cuts_freely(l->sequence);
}

tern_status tern_lease_swap_out(tern_lease *l, tern_error *err) {
    if (!l->at) return TERN_OK;
    tern_placement_begin_use(l->at);
    tern_status status = tern_sequence_swap_out(l->sequence, err);
    tern_placement_end_use(l->at);
    return status;
}

void tern_lease_trim(tern_lease *l) {
    if (l->at) {
        tern_placement_begin_use(l->at);
        tern_sequence_trim(l->sequence);
        tern_placement_end_use(l->at);
    }
    size_t kept = l->n_ids + 64;
    if (l->capacity <= 4 * kept) return;
    int32_t *ids = tern_realloc(TERN_MEM_SESSION, l->ids, kept * sizeof *ids);
    if (!ids) return;
    l->ids = ids;
    l->capacity = kept;
}

bool tern_lease_can_share_batch(const tern_lease *a, const tern_lease *b) {
    return a->kv_type == b->kv_type;
}

const int32_t *tern_lease_ids(const tern_lease *l) { return l->ids; }

tern_status tern_lease_set_ids(tern_lease *l, size_t at, const int32_t *ids, size_t n,
                               tern_error *err) {
    TERN_TRY(tern_lease_make_room(l, at + n, &ids, NULL, err));
    TERN_TRY(tern_lease_hold_images(l, ids, n, err));
    if (n) memmove(l->ids + at, ids, n * sizeof *ids);
    if (l->n_ids > at) l->n_ids = at;
    if (l->n_images) tern_lease_release_images(l, at + n);
    return TERN_OK;
}

uint64_t tern_lease_bytes(const tern_lease *l) {
    return l->sequence && !tern_sequence_is_out(l->sequence) ? tern_sequence_bytes(l->sequence) : 0;
}
