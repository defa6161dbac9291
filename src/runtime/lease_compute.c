// Computing batches on leases: begin, poll until it is done. Neither waits for a GPU, or for
// another device after a loss; on the CPU submitting computes. tern_model_compute is a loop around
// both.
//
// Tokens of a lease that its states lack, after a move or a cut further back than asked, are
// computed first: a few join the batch if there is room, else they go ahead in separate batches. So
// one batch may take several submissions.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/lease.h"

// The drafting record for a backend that does not draft.
static tern_drafting single_step(const tern_drafting *q) {
    tern_drafting one = *q;
    one.n = one.n_runs = 1;
    memset(one.counts, 0, sizeof one.counts);
    one.counts[0][0] = 1;
    return one;
}

// Sets the sequence to the work's first position, or the nearest one before it that it can go back
// to without cutting an image. *first: that position.
static tern_status go_to(const tern_work *w, int32_t *first, tern_error *err) {
    tern_sequence *s = w->lease->sequence;
    int32_t wanted = w->first_pos;
    TERN_TRY(tern_sequence_swap_in(s, err));
    for (;; wanted = (int32_t)tern_lease_last_cut(w->lease, (size_t)*first)) {
        TERN_TRY(tern_sequence_cut(s, wanted, first, err));
        if (tern_lease_last_cut(w->lease, (size_t)*first) == (size_t)*first) return TERN_OK;
    }
}

// A text that outgrows the RoPE factors of its states is recomputed from its start.
static tern_status lengthen(const tern_work *w, tern_error *err) {
    tern_lease *l = w->lease;
    int32_t left;
    if (l->is_long || w->first_pos + w->n_ids <= tern_model_short_rope_limit(l->model))
        return TERN_OK;
    l->is_long = true;
    TERN_TRY(tern_sequence_swap_in(l->sequence, err));
    return tern_sequence_cut(l->sequence, 0, &left, err);
}

// ---- One submission ----------------------------------------------------------------------------

// Room for the work and, if there is memory, for positions that its device may compute ahead.
static tern_status reserve(const tern_work *w, int32_t end, int32_t ahead, tern_error *err) {
    tern_lease *l = w->lease;
    int32_t room = l->n_context - end;
    if (ahead > room) ahead = room;
    if (ahead > 0 && tern_sequence_reserve(l->sequence, end + ahead, NULL) == TERN_OK)
        return TERN_OK;
    return tern_sequence_reserve(l->sequence, end, err);
}

// ---- Images ----------------------------------------------------------------------------------

static tern_status make_places(const tern_computation *c, tern_placed_instance *r,
                               tern_error *err) {
    size_t n = (size_t)c->model->n_batch;
    size_t n_cols = (size_t)tern_config_given_cols(&c->model->config);
    if (!r->places) r->places = tern_alloc_array(TERN_MEM_SESSION, n, 3 * sizeof *r->places);
    if (!r->ends) r->ends = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *r->ends);
    if (!r->rows) r->rows = tern_alloc_array(TERN_MEM_SESSION, n, n_cols * sizeof *r->rows);
    if (r->places && r->ends && r->rows) return TERN_OK;
    return tern_fail_memory(err, n * n_cols * sizeof *r->rows);
}

// Copies the rows of the chunk's images to the batch, each with the id -1. *any: there are some.
static void take_rows(const tern_computation *c, tern_placed_instance *r, const tern_lease *l,
                      int32_t first, int32_t n, bool *any) {
    size_t n_cols = (size_t)tern_config_given_cols(&c->model->config);
    for (int32_t i = first; i < first + n; i++) {
        const tern_image_tokens *s =
            r->ids[i] >= TERN_IMAGE_TOKENS_IDS ? tern_lease_image(l, r->ids[i]) : NULL;
        if (!s) continue;
        memcpy(r->rows + (size_t)i * n_cols, s->rows + (size_t)(r->ids[i] - s->first_id) * n_cols,
               n_cols * sizeof *r->rows);
        r->ids[i] = -1;
        *any = true;
    }
}

// Sets the ends of images whose rows attend to each other, for all rows of the batch or none.
static void put_ends(const tern_computation *c, tern_batch *b, const tern_work *work,
                     int32_t n_work) {
    tern_placed_instance *r = c->placed;
    bool any = false;
    for (int32_t i = 0, row = 0; i < n_work; row += r->chunks[i++].n_tokens) {
        tern_chunk *k = &r->chunks[i];
        k->has_ends = tern_lease_image_ends(work[i].lease, k->first_pos, r->ids + row, k->n_tokens,
                                            r->ends + row);
        any |= k->has_ends;
    }
    if (any) b->ends = r->ends;
}

// RoPE's positions, which differ from the sequence's, for all rows of the batch.
static void put_places(const tern_computation *c, tern_batch *b, const tern_work *work,
                       int32_t n_work) {
    tern_placed_instance *r = c->placed;
    for (int32_t i = 0, row = 0; i < n_work; row += r->chunks[i++].n_tokens) {
        const tern_lease *l = work[i].lease;
        tern_chunk *k = &r->chunks[i];
        int32_t *to = r->places + 3 * (size_t)row;
        k->shift = tern_lease_rope_positions(l, k->first_pos, r->ids + row, k->n_tokens, to);
        for (int32_t t = 0; l->n_images == 0 && t < k->n_tokens; t++)
            to[3 * t] = to[3 * t + 1] = to[3 * t + 2] = k->first_pos + t;
    }
    b->places = r->places;
}

// The batch's inputs for texts with images, besides the ids.
static tern_status place_images(const tern_computation *c, tern_batch *b, const tern_work *work,
                                int32_t n_work, tern_error *err) {
    tern_placed_instance *r = c->placed;
    const tern_config *config = &c->model->config;
    bool any = false, any_rows = false;
    for (int32_t i = 0; i < n_work; i++) any |= work[i].lease->n_images > 0;
    if (!any) return TERN_OK;
    TERN_TRY(make_places(c, r, err));
    if (tern_config_both_ways(config)) put_ends(c, b, work, n_work);
    if (config->rope.axes == TERN_ROPE_MIXED) put_places(c, b, work, n_work);
    for (int32_t i = 0, row = 0; i < n_work; row += r->chunks[i++].n_tokens)
        take_rows(c, r, work[i].lease, row, r->chunks[i].n_tokens, &any_rows);
    if (any_rows) tern_batch_bind(b, tern_graph_find(&c->model->graphs[0].fused, "rows"), r->rows);
    return TERN_OK;
}

// ---- Adapters ----------------------------------------------------------------------------------

// The gains of each row: those of its lease.
static tern_status put_gains(const tern_computation *c, tern_batch *b, const tern_work *work,
                             int32_t n_work, tern_error *err) {
    tern_placed_instance *r = c->placed;
    const size_t n = (size_t)c->model->n_loras, n_rows = (size_t)c->model->n_batch;
    if (n == 0) return TERN_OK;
    if (!r->gains) r->gains = tern_alloc_array(TERN_MEM_SESSION, n_rows, n * sizeof *r->gains);
    if (!r->gains) return tern_fail_memory(err, n_rows * n * sizeof *r->gains);
    float *to = r->gains;
    for (int32_t i = 0; i < n_work; i++)
        for (int32_t t = 0; t < r->chunks[i].n_tokens; t++, to += n)
            memcpy(to, tern_lease_loras(work[i].lease), n * sizeof *to);
    tern_batch_bind(b, c->model->lora_gains, r->gains);
    return TERN_OK;
}

// Adds the work's tokens, and the missing ones before them, as the next chunk of the batch.
static tern_status add_chunk(tern_placed_instance *r, tern_batch *b, const tern_work *w,
                             int32_t ahead, tern_error *err) {
    tern_sequence *s = w->lease->sequence;
    tern_chunk *c = &r->chunks[b->n_chunks];
    int32_t first, end = w->first_pos + w->n_ids;
    TERN_TRY(go_to(w, &first, err));
    TERN_TRY(reserve(w, end, ahead, err));
    *c = (tern_chunk){
        .sequence = s, .n_tokens = end - first, .first_pos = first, .is_long = w->lease->is_long};
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

// From this many missing tokens on, a separate batch takes no longer. Then the lease can go back to
// their end: a prefix that two texts share, a third may share, too.
#define MISSING_MANY 64

// How many missing tokens to compute now, such that the rest is still worth its own batch; with
// images, the nearest number that cuts none.
static int32_t first_part(const tern_lease *l, int32_t first, int32_t missing) {
    int32_t n = l->model->n_batch, left = missing - n;
    if (left <= 0) return missing;
    if (left <= MISSING_MANY && n > 2 * MISSING_MANY) n = missing - MISSING_MANY - 1;
    return (int32_t)tern_lease_cut_near(l, l->ids + first, (size_t)missing, (size_t)n);
}

// The next missing tokens that are many or do not fit into the batch itself; *any false: none.
static tern_status find_missing(const tern_computation *c, tern_work *part, bool *any,
                                tern_error *err) {
    int32_t n_batch = c->model->n_batch, room = n_batch;
    *any = false;
    for (int32_t i = 0; i < c->n_work; i++) room -= c->work[i].n_ids;
    for (int32_t i = 0; i < c->n_work && !*any; i++) {
        const tern_work *w = &c->work[i];
        int32_t first;
        TERN_TRY(go_to(w, &first, err));
        int32_t missing = w->first_pos - first;
        bool many = missing > MISSING_MANY;
        *any = missing > 0 && (many || missing > room || c->wants.drafting);
        if (*any)
            *part = (tern_work){.lease = w->lease,
                                .ids = w->lease->ids + first,
                                .n_ids = first_part(w->lease, first, missing),
                                .first_pos = first,
                                .snapshot_at = many ? w->first_pos : 0};
        else
            room -= missing;
    }
    return TERN_OK;
}

static tern_batch batch_of(const tern_model *m, const tern_wants *w) {
    tern_batch b = {.wants = *w};
    for (int32_t i = 0; i < TERN_WANTS_MAX && w->outputs[i]; i++)
        if (w->data[i]) // looking up a name in each step takes time
            tern_batch_bind(&b, tern_graph_find(&m->graphs[0].fused, w->outputs[i]), w->data[i]);
    return b;
}

// How many positions the device may compute ahead, for greedy steps.
static int32_t positions_ahead(const tern_computation *c) {
    int32_t n = c->at->backend->n_ahead;
    if (c->model->n_loras > 0) return 0; // a row that is not in the batch has no gains
    if (c->wants.drafting) return n * TERN_DRAFTING_MAX;
    if (c->wants.top_k != 1) return 0;
    for (int32_t i = 0; i < c->n_work; i++)
        if (c->work[i].n_ids > 1) return 0;
    return n;
}

// For the sequences of a failed batch: which of their states it changed is unknown.
static void abandon(const tern_computation *c) {
    for (int32_t i = 0; i < c->batch.n_chunks; i++)
        tern_sequence_abandon(c->placed->chunks[i].sequence);
}

static tern_status submit(tern_computation *c, tern_error *err) {
    tern_placed_instance *r = c->placed;
    tern_batch *b = &c->batch;
    tern_work part;
    *b = (tern_batch){0};
    for (int32_t i = 0; i < c->n_work; i++) TERN_TRY(lengthen(&c->work[i], err));
    TERN_TRY(find_missing(c, &part, &c->is_part, err));
    if (!c->is_part) *b = batch_of(c->model, &c->wants);
    int32_t ahead = positions_ahead(c);
    tern_status status = c->is_part ? add_chunk(r, b, &part, 0, err) : TERN_OK;
    for (int32_t i = 0; status == TERN_OK && !c->is_part && i < c->n_work; i++)
        status = add_chunk(r, b, &c->work[i], ahead, err);
    const tern_work *work = c->is_part ? &part : c->work;
    const int32_t n_work = c->is_part ? 1 : c->n_work;
    if (status == TERN_OK) status = place_images(c, b, work, n_work, err);
    if (status == TERN_OK) status = put_gains(c, b, work, n_work, err);
    b->ids = r->ids;
    b->chunks = r->chunks;
    b->outputs = r->outputs;
    if (b->wants.drafting) *b->wants.drafting = single_step(b->wants.drafting);
    if (status == TERN_OK) status = c->at->backend->submit(r->instance, b, err);
    if (status != TERN_OK) abandon(c);
    return status;
}

static void advance(const tern_computation *c) {
    const tern_batch *b = &c->batch;
    int32_t more = b->wants.drafting ? b->wants.drafting->n - 1 : 0;
    for (int32_t i = 0; i < b->n_chunks; i++)
        tern_sequence_advance(b->chunks[i].sequence,
                              b->chunks[i].first_pos + b->chunks[i].n_tokens + more);
}

// ---- Where -------------------------------------------------------------------------------------

static bool are_together(const tern_work *work, int32_t n_work) {
    for (int32_t i = 0; i < n_work; i++)
        if (!work[i].lease->at || work[i].lease->at != work->lease->at) return false;
    return true;
}

static tern_status check_caches(const tern_work *work, int32_t n_work, tern_error *err) {
    for (int32_t i = 1; i < n_work; i++)
        if (work[i].lease->cache != work->lease->cache)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "sequences of one batch need caches of one type");
    return TERN_OK;
}

// While the device is in use.
static void give_back(tern_computation *c) {
    tern_lease *first = c->work->lease;
    if (c->placed && c->placed != first->own)
        tern_placement_give(c->at, c->placed, first->sequence);
    c->placed = NULL;
}

static tern_status start(tern_computation *c, tern_error *err) {
    tern_lease *first = c->work->lease;
    tern_status status = TERN_OK;
    c->at = first->at;
    c->placed = first->own;
    tern_placement_begin_use(c->at);
    if (!c->placed)
        status = tern_placement_take(c->at, c->model->n_batch, first->cache, first->sequence,
                                     &c->placed, err);
    if (status == TERN_OK) status = submit(c, err);
    if (status != TERN_OK) give_back(c);
    tern_placement_end_use(c->at);
    return status;
}

// Starts as soon as the leases have a placement. If a failure lost it, they have to move.
static tern_status try_start(tern_computation *c, tern_error *err) {
    bool settled = !c->is_moving;
    if (c->is_moving)
        TERN_TRY(tern_leases_settle(c->work, c->n_work, c->why.message, &settled, err));
    if (!settled) return TERN_OK;
    c->is_moving = false;
    TERN_TRY(check_caches(c->work, c->n_work, err));
    return start(c, err);
}

static tern_status move_if_lost(tern_computation *c, tern_status status, const tern_error *why) {
    const tern_placement *at = c->work->lease->at;
    if (status != TERN_ERR_DEVICE || !at || !at->backend->is_lost(at->device)) return status;
    if (c->n_losses++ > TERN_LOSSES_MAX) return status;
    c->why = *why;
    c->is_moving = true;
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

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
        TERN_TRY(tern_lease_reserve_ids(w->lease, (size_t)(w->first_pos + w->n_ids), err));
        TERN_TRY(tern_lease_hold_images(w->lease, w->ids, (size_t)w->n_ids, err));
        TERN_TRY(tern_lease_check_whole(w->lease, w->ids, (size_t)w->n_ids, err));
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

static tern_status check_wants(const tern_model *m, const tern_wants *w, tern_error *err) {
    for (int32_t i = 0; i < TERN_WANTS_MAX && w->outputs[i]; i++)
        if (w->data[i] && tern_graph_find(&m->graphs[0].fused, w->outputs[i]) < 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no output \"%s\"",
                             m->path, w->outputs[i]);
    return TERN_OK;
}

int32_t tern_model_works_max(tern_model *m) {
    tern_mutex_lock(&m->lock);
    int32_t n = m->now->backend->n_chunks_max;
    tern_mutex_unlock(&m->lock);
    return n < m->n_batch ? n : m->n_batch;
}

static tern_status remember(const tern_work *w, const tern_wants *wants, tern_error *err) {
    tern_lease *l = w->lease;
    size_t first = (size_t)w->first_pos, n = (size_t)w->n_ids;
    size_t more = wants->drafting ? (size_t)wants->drafting->n - 1 : 0;
    TERN_TRY(tern_lease_reserve_ids(l, first + n + more, err));
    memmove(l->ids + first, w->ids, n * sizeof *l->ids);
    if (more) memcpy(l->ids + first + n, wants->top_ids, more * sizeof *l->ids);
    l->n_ids = first + n + more;
    return TERN_OK;
}

static tern_status finish(const tern_computation *c, tern_error *err) {
    for (int32_t i = 0; i < c->n_work; i++) TERN_TRY(remember(&c->work[i], &c->wants, err));
    return TERN_OK;
}

tern_status tern_computation_begin(tern_computation *c, tern_model *m, const tern_work *work,
                                   int32_t n_work, const tern_wants *wants, tern_error *err) {
    tern_error why = {0};
    *c = (tern_computation){.model = m, .work = work, .n_work = n_work, .wants = *wants};
    TERN_TRY(check_work(m, work, n_work, err));
    TERN_TRY(check_wants(m, wants, err));
    if (!are_together(work, n_work)) {
        c->is_moving = true;
        snprintf(c->why.message, sizeof c->why.message, "the device was lost");
    }
    tern_status status = try_start(c, &why);
    status = move_if_lost(c, status, &why);
    if (status != TERN_OK && err) *err = why;
    return status;
}

// Polls the submission under way; *done: all is done.
static tern_status poll_batch(tern_computation *c, bool *done, tern_error *err) {
    tern_placement_begin_use(c->at);
    bool computed = false;
    tern_status status = c->at->backend->poll(c->placed->instance, &computed, err);
    if (status != TERN_OK) abandon(c);
    if (status == TERN_OK && computed) {
        advance(c);
        *done = !c->is_part;
        if (c->is_part) status = submit(c, err);
    }
    if (*done || status != TERN_OK) give_back(c);
    tern_placement_end_use(c->at);
    return status;
}

tern_status tern_computation_poll(tern_computation *c, bool *done, tern_error *err) {
    tern_error why = {0};
    *done = false;
    tern_status status = tern_check_cancelled("the computation", &why);
    if (status != TERN_OK)
        tern_computation_cancel(c);
    else
        status = c->is_moving ? try_start(c, &why) : poll_batch(c, done, &why);
    status = move_if_lost(c, status, &why);
    if (*done) status = finish(c, &why);
    if (status != TERN_OK && err) *err = why;
    return status;
}

void tern_computation_cancel(tern_computation *c) {
    if (!c->placed) return; // a placement being opened belongs to the model
    tern_placement_begin_use(c->at);
    abandon(c);
    c->at->backend->cancel(c->placed->instance);
    give_back(c);
    tern_placement_end_use(c->at);
}

tern_status tern_model_compute(tern_model *m, const tern_work *work, int32_t n_work,
                               const tern_wants *wants, tern_error *err) {
    tern_computation c;
    TERN_TRY(tern_computation_begin(&c, m, work, n_work, wants, err));
    for (bool done = false; !done;) TERN_TRY(tern_computation_poll(&c, &done, err));
    return TERN_OK;
}
