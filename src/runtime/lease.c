// Leases: timelines of tokens on a model's device. A lost device takes every sequence along, but a
// lease remembers the tokens that its states were computed from; so it moves to where the model is
// placed again and computes there what is missing before it goes on. The same covers states that
// were cut further back than asked, since not all can go back to any position (kernels/sequence.h).
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
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

// ---- Places ------------------------------------------------------------------------------------

static tern_status open_own(tern_lease *l, tern_error *err) {
    const tern_placement *at = l->at;
    bool drafts = l->drafts && at->backend->drafts_open;
    if (!l->profiled && !drafts) return TERN_OK;
    if (!l->own) TERN_TRY(tern_placement_instance(at, l->model->n_batch, l->cache, &l->own, err));
    if (l->profiled) TERN_TRY(at->backend->profile_start(l->own->instance, err));
    return drafts ? at->backend->drafts_open(l->own->instance, l->drafts, err) : TERN_OK;
}

// Frees what the lease has on its placement; a lost placement is freed with its last lease, but for
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
    l->at = NULL;
    if (--at->n_leases == 0 && at != l->model->now) tern_placement_give_back(at, l->model);
}

static tern_status settle(tern_lease *l, tern_placement *at, tern_error *err) {
    const tern_cache_desc desc = {.kv_type = l->kv_type,
                                  .n_context = at->backend->stores_by_context ? l->n_context
                                                                              : INT32_MAX};
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

// Settles the lease where the model is. `why` is NULL, or what happened to its old place.
static tern_status take_place(tern_lease *l, const char *why, tern_error *err) {
    tern_model *m = l->model;
    const tern_placement *now = m->now;
    if (now->was_lost || now->backend->is_lost(now->device))
        TERN_TRY(tern_placement_replace(m, why ? why : "the device was lost", err));
    TERN_TRY(settle(l, m->now, err));
    if (!why) return TERN_OK;
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

static tern_status move(tern_lease *l, tern_error *err) {
    tern_error why = *err;
    tern_mutex_lock(&l->model->lock);
    leave(l);
    tern_status status = take_place(l, why.message, err);
    tern_mutex_unlock(&l->model->lock);
    return status;
}

// Only after a failed move is there no placement.
static tern_status find_place(tern_lease *l, tern_error *err) {
    if (l->at) return TERN_OK;
    tern_mutex_lock(&l->model->lock);
    tern_status status = take_place(l, "the device was lost", err);
    tern_mutex_unlock(&l->model->lock);
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
    tern_mutex_lock(&m->lock);
    tern_status status = take_place(l, NULL, err);
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
    tern_free(l->ids);
    tern_free(l->notice);
    tern_free(l);
}

const char *tern_model_notice(tern_lease *l) {
    bool is_new = l->moved;
    l->moved = false;
    return is_new ? l->notice : NULL;
}

// ---- Instances of its own ----------------------------------------------------------------------

bool tern_model_can_draft(const tern_lease *l) {
    return l->at && l->at->backend->drafts_open && tern_sequence_cuts_freely(l->sequence);
}

static tern_status begin_own(tern_lease *l, tern_error *err) {
    if (!l->at) return TERN_OK; // the next place is told
    tern_placement_begin_use(l->at);
    tern_status status = open_own(l, err);
    tern_placement_end_use(l->at);
    return status;
}

tern_status tern_model_drafts_open(tern_lease *l, const tern_draft_table *table, tern_error *err) {
    l->drafts = table;
    tern_status status = begin_own(l, err);
    if (status != TERN_OK) l->drafts = NULL;
    return status;
}

tern_status tern_model_profile_start(tern_lease *l, tern_error *err) {
    l->profiled = true;
    return begin_own(l, err);
}

const tern_profile *tern_model_profile(const tern_lease *l) {
    if (!l->at || !l->own) return NULL;
    tern_placement_begin_use(l->at);
    const tern_profile *p = l->at->backend->profile_read(l->own->instance);
    tern_placement_end_use(l->at);
    return p;
}

// ---- Memory ------------------------------------------------------------------------------------

static tern_status know(tern_lease *l, size_t n_ids, tern_error *err) {
    if (n_ids <= l->capacity) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &l->ids, &l->capacity, 0, n_ids) != 0)
        return tern_fail_memory(err, n_ids * sizeof *l->ids);
    return TERN_OK;
}

tern_status tern_lease_reserve(tern_lease *l, int32_t n_positions, tern_error *err) {
    if (n_positions > l->n_context) n_positions = l->n_context;
    TERN_TRY(know(l, (size_t)n_positions, err));
    if (!l->at) return TERN_OK; // the next place is asked when it is needed
    tern_placement_begin_use(l->at);
    tern_status status = tern_sequence_reserve(l->sequence, n_positions, err);
    tern_placement_end_use(l->at);
    return status;
}

tern_status tern_lease_fork(tern_lease *l, int32_t n_positions, tern_lease **out, int32_t *n_shared,
                            tern_error *err) {
    tern_lease *fork;
    tern_sequence *shared = NULL;
    *n_shared = 0;
    TERN_TRY(tern_lease_open(&fork, l->model, l->n_context, l->kv_type, err));
    tern_status status = TERN_OK;
    if (l->at && l->at == fork->at) {
        tern_placement_begin_use(l->at);
        status = tern_sequence_swap_in(l->sequence, err);
        if (status == TERN_OK) status = tern_sequence_fork(l->sequence, n_positions, &shared, err);
        if (status == TERN_OK) {
            tern_sequence_close(fork->sequence);
            fork->sequence = shared;
            *n_shared = tern_sequence_length(shared);
        }
        tern_placement_end_use(l->at);
    }
    fork->n_ids = (size_t)n_positions < l->n_ids ? (size_t)n_positions : l->n_ids;
    if (status == TERN_OK) status = know(fork, fork->n_ids, err);
    if (status != TERN_OK) {
        tern_lease_close(fork);
        return status;
    }
    memcpy(fork->ids, l->ids, fork->n_ids * sizeof *fork->ids);
    *out = fork;
    return TERN_OK;
}

tern_status tern_lease_swap_out(tern_lease *l, tern_error *err) {
    if (!l->at) return TERN_OK;
    tern_placement_begin_use(l->at);
    tern_status status = tern_sequence_swap_out(l->sequence, err);
    tern_placement_end_use(l->at);
    return status;
}

uint64_t tern_lease_bytes(const tern_lease *l) {
    return l->sequence && !tern_sequence_is_out(l->sequence) ? tern_sequence_bytes(l->sequence) : 0;
}

// ---- Computing ---------------------------------------------------------------------------------

// The record of a backend that does not draft.
static tern_drafting single_step(const tern_drafting *q) {
    tern_drafting one = *q;
    one.n = one.n_runs = 1;
    memset(one.counts, 0, sizeof one.counts);
    one.counts[0][0] = 1;
    return one;
}

// Puts the sequence where the work begins, or as near before that as it can go. *first is where.
static tern_status go_to(const tern_work *w, int32_t *first, tern_error *err) {
    tern_sequence *s = w->lease->sequence;
    TERN_TRY(tern_sequence_swap_in(s, err));
    return tern_sequence_cut(s, w->first_pos, first, err);
}

// Room for the work, and for what its device may compute ahead while there is memory.
static tern_status reserve(const tern_batch *b, const tern_work *w, int32_t end, tern_error *err) {
    tern_lease *l = w->lease;
    int32_t ahead = l->at->backend->n_ahead, room = l->n_context - end;
    if (b->drafting) ahead *= TERN_DRAFTING_MAX;
    else if (b->top_k != 1 || b->n_tokens > 0 || w->n_ids > 1) ahead = 0;
    if (ahead > room) ahead = room;
    if (ahead > 0 && tern_sequence_reserve(l->sequence, end + ahead, NULL) == TERN_OK)
        return TERN_OK;
    return tern_sequence_reserve(l->sequence, end, err);
}

// The work's tokens, and those before them that are missing, as the next chunk of the batch.
static tern_status add_chunk(tern_placed_instance *r, tern_batch *b, const tern_work *w,
                             tern_error *err) {
    tern_sequence *s = w->lease->sequence;
    tern_chunk *c = &r->chunks[b->n_chunks];
    int32_t first, end = w->first_pos + w->n_ids;
    TERN_TRY(go_to(w, &first, err));
    TERN_TRY(reserve(b, w, end, err));
    *c = (tern_chunk){.sequence = s, .n_tokens = end - first, .first_pos = first};
    if (w->snapshot_at > first && w->snapshot_at <= end) {
        c->kept_after = w->snapshot_at - first;
        TERN_TRY(tern_sequence_snapshot(s, w->snapshot_at, w->passing, &c->kept, &c->keeps, err));
    }
    int32_t *ids = r->ids + b->n_tokens;
    size_t n_missing = (size_t)(w->first_pos - first);
    memcpy(ids, w->lease->ids + first, n_missing * sizeof *ids);
    memcpy(ids + n_missing, w->ids, (size_t)w->n_ids * sizeof *ids);
    b->n_chunks++;
    b->n_tokens += c->n_tokens;
    for (int32_t i = w->n_outputs; i > 0; i--) r->outputs[b->n_outputs++] = b->n_tokens - i;
    return TERN_OK;
}

static tern_status run(const tern_placement *at, tern_placed_instance *r, tern_batch *b,
                       tern_error *err) {
    b->ids = r->ids;
    b->chunks = r->chunks;
    b->outputs = r->outputs;
    if (b->drafting) *b->drafting = single_step(b->drafting);
    tern_status status = at->backend->submit(r->instance, b, err);
    for (bool done = false; status == TERN_OK && !done;)
        status = at->backend->poll(r->instance, &done, err);
    for (int32_t i = 0; i < b->n_chunks; i++) {
        const tern_chunk *c = &b->chunks[i];
        int32_t more = b->drafting ? b->drafting->n - 1 : 0;
        if (status == TERN_OK)
            tern_sequence_advance(c->sequence, c->first_pos + c->n_tokens + more);
        else
            tern_sequence_abandon(c->sequence);
    }
    return status;
}

// Computes what the lease knows from where its sequence is up to `end`.
static tern_status catch_up(tern_placed_instance *r, const tern_work *w, int32_t end,
                            tern_error *err) {
    const tern_lease *l = w->lease;
    for (int32_t at = tern_sequence_length(l->sequence); at < end;) {
        int32_t n = end - at < l->model->n_batch ? end - at : l->model->n_batch;
        tern_batch b = {0};
        const tern_work part = {.lease = w->lease, .ids = l->ids + at, .n_ids = n, .first_pos = at};
        TERN_TRY(add_chunk(r, &b, &part, err));
        TERN_TRY(run(l->at, r, &b, err));
        at += n;
    }
    return TERN_OK;
}

// Missing tokens join the batch while it has room for them; else they are computed before it.
static tern_status compute_missing(tern_placed_instance *r, const tern_work *work, int32_t n_work,
                                   bool join, tern_error *err) {
    int32_t room = work->lease->model->n_batch;
    for (int32_t i = 0; i < n_work; i++) room -= work[i].n_ids;
    for (int32_t i = 0; i < n_work; i++) {
        int32_t first;
        TERN_TRY(go_to(&work[i], &first, err));
        int32_t missing = work[i].first_pos - first;
        if (join && missing <= room)
            room -= missing;
        else
            TERN_TRY(catch_up(r, &work[i], work[i].first_pos, err));
    }
    return TERN_OK;
}

static tern_batch batch_of(const tern_model *m, const tern_wanted *w) {
    tern_batch b = {.top_k = w->top_k,
                    .top_ids = w->top_ids,
                    .top_logits = w->top_logits,
                    .few_ahead = w->few_ahead,
                    .drafting = w->drafting};
    for (int32_t i = 0; i < w->n_bindings; i++)
        tern_batch_bind(&b, tern_graph_find(&m->graphs[0].fused, w->outputs[i]), w->data[i]);
    return b;
}

static tern_status compute_here(const tern_work *work, int32_t n_work, const tern_wanted *wanted,
                                tern_error *err) {
    tern_lease *first = work->lease;
    tern_placement *at = first->at;
    tern_placed_instance *r = first->own;
    tern_status status = TERN_OK;
    tern_placement_begin_use(at);
    if (!r)
        status = tern_placement_take(at, first->model->n_batch, first->cache, first->sequence, &r,
                                     err);
    if (status == TERN_OK)
        status = compute_missing(r, work, n_work, wanted->drafting == NULL, err);
    tern_batch b = batch_of(first->model, wanted);
    for (int32_t i = 0; status == TERN_OK && i < n_work; i++)
        status = add_chunk(r, &b, &work[i], err);
    if (status == TERN_OK) status = run(at, r, &b, err);
    if (r && r != first->own) tern_placement_give(at, r, first->sequence);
    tern_placement_end_use(at);
    return status;
}

// All at one place: where the first one is, unless that is lost.
static tern_status gather(const tern_work *work, int32_t n_work, tern_error *err) {
    for (int32_t i = 0; i < n_work; i++) TERN_TRY(find_place(work[i].lease, err));
    for (int32_t i = 1; i < n_work; i++) {
        tern_lease *l = work[i].lease;
        if (l->at == work->lease->at) continue;
        snprintf(err->message, sizeof err->message, "the device was lost");
        TERN_TRY(move(l->at == l->model->now ? work->lease : l, err));
    }
    for (int32_t i = 1; i < n_work; i++)
        if (work[i].lease->cache != work->lease->cache)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "sequences of one batch need caches of one type");
    return TERN_OK;
}

static tern_status move_all(const tern_work *work, int32_t n_work, tern_error *err) {
    const tern_error why = *err;
    for (int32_t i = 0; i < n_work; i++) {
        *err = why;
        TERN_TRY(move(work[i].lease, err));
    }
    return TERN_OK;
}

static tern_status check_work(const tern_model *m, const tern_work *work, int32_t n_work,
                              tern_error *err) {
    int64_t n = 0;
    for (int32_t i = 0; i < n_work; i++) {
        const tern_work *w = &work[i];
        n += w->n_ids;
        if (w->n_ids < 1 || w->n_outputs < 0 || w->n_outputs > w->n_ids || w->first_pos < 0 ||
            (size_t)w->first_pos > w->lease->n_ids || w->first_pos > w->lease->n_context - w->n_ids)
            return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %d tokens at %d does not fit",
                             (int)w->n_ids, (int)w->first_pos);
        TERN_TRY(know(w->lease, (size_t)(w->first_pos + w->n_ids), err));
    }
    if (n > m->n_batch && tern_model_reads_whole(m))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: the model reads a text as a whole: %lld tokens are more than the %d "
                         "that it was opened for (n_batch)",
                         m->path, (long long)n, (int)m->n_batch);
    if (n_work < 1 || n > m->n_batch)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %lld tokens: the model takes %d",
                         (long long)n, (int)m->n_batch);
    return TERN_OK;
}

int32_t tern_model_works_max(tern_model *m) {
    tern_mutex_lock(&m->lock);
    int32_t n = m->now->backend->n_chunks_max;
    tern_mutex_unlock(&m->lock);
    return n < m->n_batch ? n : m->n_batch;
}

static tern_status remember(const tern_work *w, const tern_wanted *wanted, tern_error *err) {
    tern_lease *l = w->lease;
    size_t first = (size_t)w->first_pos, n = (size_t)w->n_ids;
    size_t more = wanted->drafting ? (size_t)wanted->drafting->n - 1 : 0;
    TERN_TRY(know(l, first + n + more, err));
    memmove(l->ids + first, w->ids, n * sizeof *l->ids);
    if (more) memcpy(l->ids + first + n, wanted->top_ids, more * sizeof *l->ids);
    l->n_ids = first + n + more;
    return TERN_OK;
}

static tern_status check_wanted(const tern_model *m, const tern_wanted *w, tern_error *err) {
    for (int32_t i = 0; i < w->n_bindings; i++)
        if (w->data[i] && tern_graph_find(&m->graphs[0].fused, w->outputs[i]) < 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no output \"%s\"",
                             m->path, w->outputs[i]);
    return TERN_OK;
}

tern_status tern_model_compute(tern_model *m, const tern_work *work, int32_t n_work,
                               const tern_wanted *wanted, tern_error *err) {
    tern_error why = {0};
    TERN_TRY(check_work(m, work, n_work, err));
    TERN_TRY(check_wanted(m, wanted, err));
    tern_status status = gather(work, n_work, &why);
    if (status == TERN_OK) status = compute_here(work, n_work, wanted, &why);
    for (int i = 0; i <= TERN_LOSSES_MAX && status == TERN_ERR_DEVICE && work->lease->at; i++) {
        if (!work->lease->at->backend->is_lost(work->lease->at->device)) break;
        status = move_all(work, n_work, &why);
        if (status == TERN_OK) status = compute_here(work, n_work, wanted, &why);
    }
    for (int32_t i = 0; status == TERN_OK && i < n_work; i++)
        status = remember(&work[i], wanted, &why);
    if (status != TERN_OK && err) *err = why;
    return status;
}
