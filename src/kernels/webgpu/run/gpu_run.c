// Running batches on the GPU.
//
// submit encodes all dispatches of a batch into one command buffer, with a copy of the wanted
// results into a buffer that can be mapped, and requests the map; poll lets the library call back.
// Logits of many rows come in chunks: the head is run again for the next rows when the last ones
// are read. Which of them are read: gpu_results.c. A batch of prompts and steps is computed in
// several requests (gpu_order.c).
#include "base/os/os_time.h"
#include "kernels/webgpu/run/gpu_instance.h"

// ---- Submitting --------------------------------------------------------------------------------

static gpu_chunk chunk_of(const tern_instance *in, const tern_chunk *c, int32_t first_row) {
    int fixed = gpu_page_pool_layout(in->page_pool)->fixed;
    const tern_page *slot = fixed >= 0 ? tern_sequence_pages(c->sequence, fixed) : NULL;
    bool keeps = c->keeps && c->kept_after > 0;
    int32_t after = c->kept_after < c->n_tokens ? c->kept_after : c->n_tokens;
    return (gpu_chunk){.first_row = (uint32_t)first_row,
                       .n_rows = (uint32_t)c->n_tokens,
                       .first_pos = (uint32_t)c->first_pos,
                       .slot = slot ? slot->index : 0,
                       .kept_slot = keeps ? c->kept.index : GPU_NOTHING_KEPT,
                       .kept_after = keeps ? (uint32_t)after : 0};
}

// Rows of the tables that stay on the host, for the request's tokens.
static tern_status send_table_rows(tern_instance *in, tern_error *err) {
    const gpu_request *b = &in->batch;
    const tern_device *d = in->plan->device;
    for (int i = 0; i < in->plan->n_host_tables; i++) {
        const tern_weight *w = in->plan->host_tables[i];
        size_t bytes = (size_t)w->n_cols * sizeof *w->row;
        for (int32_t t = 0; t < b->n_tokens; t++) {
            if (b->ids[t] < 0 || b->ids[t] >= w->n_rows)
                return tern_fail(err, TERN_ERR_ARGUMENT, "token %d of a table of %lld",
                                 (int)b->ids[t], (long long)w->n_rows);
            TERN_TRY(tern_matrix_decode_row(&w->table, b->ids[t], w->table_row, w->row, err));
            d->api.QueueWriteBuffer(d->queue, in->sent[i], (size_t)t * bytes, w->row, bytes);
        }
    }
    return TERN_OK;
}

// Rows of the inputs that are bound: a request has chunks in another order than its batch.
static void send_inputs(tern_instance *in) {
    const gpu_request *b = &in->batch;
    const tern_device *d = in->plan->device;
    for (int k = 0; k < b->n_inputs; k++) {
        tern_vid v = b->inputs[k].value;
        size_t each = (size_t)in->plan->g->values[v].cols * sizeof(float), at = 0;
        int i = 0;
        while (i < in->n_given && in->given[i].value != v) i++;
        if (i == in->n_given) continue; // that of ids
        if (gpu_is_counted(in->plan->g, v)) {
            size_t bytes = (size_t)gpu_rows_of_value(in, v) * each;
            if (bytes > 0)
                d->api.QueueWriteBuffer(d->queue, in->given[i].rows, 0, b->inputs[k].data, bytes);
            continue;
        }
        for (int32_t c = 0; c < b->n_chunks; c++) {
            size_t bytes = (size_t)b->chunks[c].n_tokens * each;
            const uint8_t *rows = b->inputs[k].data;
            d->api.QueueWriteBuffer(d->queue, in->given[i].rows, at,
                                    rows + (size_t)b->origins[c].row * each, bytes);
            at += bytes;
        }
    }
}

tern_status gpu_send_rows(tern_instance *in, tern_error *err) {
    const gpu_request *b = &in->batch;
    const tern_device *d = in->plan->device;
    d->api.QueueWriteBuffer(d->queue, in->ids, 0, b->ids, (size_t)b->n_tokens * sizeof *b->ids);
    gpu_send_row_angles(in, 0, 1);
    TERN_TRY(send_table_rows(in, err));
    send_inputs(in);
    if (!in->uses_chunks) return TERN_OK;
    int32_t row = 0;
    for (int32_t i = 0; i < b->n_chunks; row += b->chunks[i++].n_tokens)
        in->order.sent[i] = chunk_of(in, &b->chunks[i], row);
    d->api.QueueWriteBuffer(d->queue, in->chunks, gpu_chunks_at(in, 0), in->order.sent,
                            (size_t)b->n_chunks * sizeof *in->order.sent);
    return TERN_OK;
}

// Bytes of the tokens that steps ahead have found.
static uint64_t ids_ahead_bytes(const tern_instance *in) {
    const gpu_steps *s = &in->steps;
    return (uint64_t)(s->ahead.n ? s->ahead.n_rows : s->now.n_rows) * sizeof(int32_t);
}

// Whether the request is computed in pieces: one submission each, and the next when it is over.
static bool in_pieces(const tern_instance *in, const gpu_readback *to) {
    return in->piece_work > 0 && to && !in->is_step && !in->passes_steps && !in->profile;
}

// Submits the next piece. *is_last: the results come with it, and nothing is submitted yet.
static void launch_piece(tern_instance *in, gpu_encoding *e, gpu_readback *to, bool *is_last) {
    in->piece = gpu_encode_piece(in, e, in->piece);
    *is_last = in->piece == 0;
    if (*is_last) return;
    gpu_encode_copy(in, e, gpu_results_buffer(in), 0, to->buffer, 0, GPU_PIECE_BYTES);
    gpu_encoding_submit(in, e);
    gpu_readback_map(in->plan->device, to, GPU_PIECE_BYTES);
}

// Encodes and submits the dispatches of the request, or only its head, `ahead` positions further on
// than it says, and those of the greedy steps after it: *n_steps in all, or as many as there is
// memory for, each on the tokens that the one before has found (top.wgsl). Copies the wanted
// results to a readback; NULL: there are none. e may have begun.
static tern_status launch(tern_instance *in, gpu_encoding *e, int32_t ahead, int32_t *n_steps,
                          bool body, gpu_readback *to, tern_error *err) {
    tern_device *d = in->plan->device;
    d->n_launches++;
    TERN_TRY(gpu_screen_prepare(in, err));
    TERN_TRY(gpu_send_runs(in, ahead, n_steps, err));
    if (body && in_pieces(in, to)) {
        bool is_last;
        launch_piece(in, e, to, &is_last);
        if (!is_last) return TERN_OK;
        e->step++;
    }
    for (; e->step < (uint32_t)*n_steps; e->step++)
        gpu_encode_dispatches(in, e, ahead + (int32_t)e->step, body, GPU_ALL_NODES);
    if (in->passes_steps) gpu_encode_copy(in, e, in->ids_ahead, 0, in->ids, 0, ids_ahead_bytes(in));
    uint64_t bytes = gpu_results_bytes(in) * (uint64_t)*n_steps;
    if (to) gpu_encode_copy(in, e, gpu_results_buffer(in), 0, to->buffer, 0, bytes);
    if (to && body) gpu_outputs_encode(in, e, to->buffer, bytes);
    if (body) bytes += gpu_outputs_bytes(in);
    if (in->profile) gpu_profile_encode(in->profile, e->encoder);
    if (e->encoder) gpu_encoding_submit(in, e);
    if (in->profile) gpu_profile_submitted(in->profile);
    if (to) gpu_readback_map(d, to, bytes);
    return TERN_OK;
}

// ---- Running ahead -----------------------------------------------------------------------------
//
// A caller that requests the greatest token after one token of some sequences, and then again at
// their next positions, will go on. So the next steps are submitted at once, on tokens that the
// device has found itself, and the device never waits for the host. Steps of one submission do not
// wait for each other, so their number doubles while the caller goes on, up to some milliseconds of
// work. If the next batch is a different one, only these steps are lost: they wrote only positions
// that were reserved and that nobody shares, which are rewritten before anything reads them. Fixed
// states cannot be rewritten, so sequences with such states take one step at a time; nor does the
// device have the rows of tables that stay on the host.
//
// Sequences may leave: a row's bits do not depend on the others, so the rows of those that stay are
// what they would be. Their tokens move together on the device before the next submission.
//
// Prompts may pass: where a batch has prompts beside such a step, the prompts come after what was
// submitted ahead, and then the step's results are taken from that. The tokens that the device has
// found for the next step are put aside meanwhile.

// Whether the request is all of its batch but the prompts: one row each of some sequences, whose
// greatest logits are wanted.
static bool is_greedy_step(const tern_instance *in) {
    const gpu_request *b = &in->batch;
    return b->n_chunks > 0 && b->n_chunks == in->order.n_chunks - in->order.n_prompts &&
           b->n_tokens == b->n_chunks && b->n_outputs == b->n_chunks &&
           b->n_chunks <= in->plan->chunk_rows && !(b->kind & GPU_PROMPTS) && !b->logits &&
           b->wants.top_k == 1 && b->n_others == 0;
}

// Only the first step has a table of chunks, since fixed states cannot go ahead anyway, and rows of
// inputs.
static bool goes_ahead(const tern_instance *in) {
    return !in->uses_chunks && in->batch.n_inputs == 0 && in->plan->n_host_tables == 0 &&
           !in->profile;
}

void gpu_expect_step(gpu_steps *s, int32_t n_rows) {
    s->now = s->ahead = (gpu_burst){0};
    s->n_read = s->n_taken = s->n_last = 0;
    s->now.n = n_rows > 0;
    s->now.n_rows = n_rows;
    for (int32_t i = 0; i < n_rows; i++) s->now.rows[i] = i;
}

static void remember_step(tern_instance *in) {
    gpu_steps *s = &in->steps;
    s->n_last = in->batch.n_chunks;
    for (int32_t i = 0; i < s->n_last; i++) {
        s->versions[i] = tern_sequence_version(in->batch.chunks[i].sequence);
        s->positions[i] = in->batch.chunks[i].first_pos;
    }
}

// For a greedy step: the rows of the last submission that belong to its sequences at their next
// positions. Returns for how many sequences, up to the first that has none.
static int32_t find_rows(const tern_instance *in, int32_t *rows) {
    const gpu_request *b = &in->batch;
    const gpu_steps *s = &in->steps;
    int32_t k = 0;
    for (int32_t i = 0; i < b->n_chunks; i++, k++) {
        const tern_chunk *c = &b->chunks[i];
        uint64_t version = tern_sequence_version(c->sequence);
        while (k < s->n_last &&
               (s->versions[k] + 1 != version || s->positions[k] + 1 != c->first_pos))
            k++;
        if (k == s->n_last) return i;
        rows[i] = k;
    }
    return b->n_chunks;
}

// Whether the steps after this one are likely to follow. Sequences that have just joined stay, too.
static bool goes_on(const tern_instance *in, int32_t n_found) {
    return n_found > 0 && 2 * n_found >= in->batch.n_chunks;
}

// Keeps only the rows of the request's sequences in the submissions.
static void follow(gpu_steps *s, const int32_t *rows, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        s->now.rows[i] = s->now.rows[rows[i]];
        s->ahead.rows[i] = s->ahead.rows[rows[i]];
    }
}

// Whether the request's result is here already, or on its way.
static bool is_ahead(const tern_instance *in, const int32_t *rows, int32_t n_found) {
    const gpu_request *b = &in->batch;
    const gpu_steps *s = &in->steps;
    if (n_found < b->n_chunks) return false;
    if (s->n_taken == 0 || (s->n_taken == s->n_read && s->ahead.n == 0)) return false;
    const int32_t *said = s->ids + (s->n_taken - 1) * s->now.n_rows;
    for (int32_t i = 0; i < b->n_tokens; i++)
        if (b->ids[i] != said[s->now.rows[rows[i]]]) return false;
    return true;
}

// Whether the batch's prompts, which are the request, leave the steps after them what was computed
// ahead.
static bool can_pass_steps(tern_instance *in) {
    const gpu_request batch = in->batch;
    const gpu_order *o = &in->order;
    const int32_t chunk = o->chunk, id = o->id, output = o->output;
    int32_t rows[GPU_STEPS_ROWS];
    if (!(batch.kind & GPU_PROMPTS) || !gpu_order_has_next(in) || !goes_ahead(in)) return false;
    gpu_order_next(in);
    bool can = is_greedy_step(in) && is_ahead(in, rows, find_rows(in, rows));
    gpu_order_go_to(in, chunk, id, output);
    in->batch = batch;
    return can;
}

static void put_ids_aside(tern_instance *in) {
    gpu_encoding e = {0};
    gpu_encode_copy(in, &e, in->ids, 0, in->ids_ahead, 0, ids_ahead_bytes(in));
    gpu_encoding_submit(in, &e);
}

// How many of n steps from pos on use the factors of short texts.
static int32_t within_short(const tern_plan *p, int32_t pos, int32_t n) {
    for (size_t i = 0; i < p->ropes.n; i++) {
        const tern_rope *r = &p->ropes.items[i];
        int32_t left = r->attrs.n_context_orig - pos;
        if (r->long_inv_freq && n > left) n = left;
    }
    return n;
}

// How many of n steps, `ahead` positions further on, all sequences have room for.
static int32_t steps_with_room(const tern_instance *in, int32_t ahead, int32_t n) {
    const gpu_request *b = &in->batch;
    for (int32_t i = 0; n > 0 && i < b->n_chunks; i++) {
        const tern_chunk *c = &b->chunks[i];
        int32_t pos = c->first_pos + ahead, room = tern_sequence_room(c->sequence, pos + n) - pos;
        if (n > room) n = room;
        if (!c->is_long) n = within_short(in->plan, pos, n);
    }
    return n;
}

// Drops the tokens of sequences that left: `in->ids` has the rows of the last submission. WebGPU
// copies nothing within a buffer, so they go through memory that only a step uses.
static void gather_ids(tern_instance *in, gpu_encoding *e) {
    const gpu_burst *last = &in->steps.now;
    int32_t n = in->batch.n_tokens;
    if (n == last->n_rows) return;
    for (int32_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && last->rows[end] == last->rows[end - 1] + 1) end++;
        gpu_encode_copy(in, e, in->ids, (uint64_t)last->rows[i] * 4, in->top_parts, (uint64_t)i * 4,
                        (uint64_t)(end - i) * 4);
    }
    gpu_encode_copy(in, e, in->top_parts, 0, in->ids, 0, (uint64_t)n * 4);
}

static tern_status start_ahead(tern_instance *in, tern_error *err) {
    gpu_steps *s = &in->steps;
    gpu_readback *to = &in->readbacks[1 - in->now];
    int32_t ahead = s->now.n - s->n_taken, n = 2 * s->now.n;
    while (n > 1 && (n > GPU_STEPS_MAX || n * s->seconds > s->seconds_max)) n /= 2;
    if (in->batch.wants.few_ahead) n = 1;
    n = steps_with_room(in, ahead, n);
    if (n <= 0 || gpu_is_pending(to)) return TERN_OK;
    gpu_readback_unmap(in->plan->device, to);
    gpu_encoding e = {0};
    gather_ids(in, &e);
    s->ahead = (gpu_burst){.n = n, .n_rows = in->batch.n_tokens};
    for (int32_t i = 0; i < s->ahead.n_rows; i++) s->ahead.rows[i] = i;
    gpu_send_row_angles(in, ahead, n);
    return launch(in, &e, ahead, &s->ahead.n, true, to, err);
}

// Submits the request. *waits: its results must be waited for; false if there are none and another
// request follows.
static tern_status start(tern_instance *in, bool *waits, tern_error *err) {
    gpu_set_chunk(in, 0);
    if (in->passes_steps) {
        put_ids_aside(in);
    } else {
        gpu_expect_step(&in->steps, in->is_step ? in->batch.n_tokens : 0);
        in->steps.started = tern_seconds();
    }
    gpu_encoding e = {.at_most = GPU_FIRST_DISPATCHES};
    in->piece = 0;
    TERN_TRY(gpu_send_rows(in, err));
    *waits = gpu_results_of(in) != GPU_RESULTS_NONE || in->batch.n_others > 0 || in->profile ||
             !gpu_order_has_next(in);
    gpu_readback *to = *waits ? &in->readbacks[in->now] : NULL;
    return launch(in, &e, 0, &(int32_t){1}, true, to, err);
}

static void take_up(tern_instance *in) {
    gpu_steps *s = &in->steps;
    gpu_set_chunk(in, 0);
    if (s->n_taken < s->n_read) return;
    in->now = 1 - in->now;
    s->now = s->ahead;
    s->ahead.n = s->n_read = s->n_taken = 0;
}

// A greedy step, and those after it. If a prompt has just ended, its sequence will join them.
static tern_status begin_step(tern_instance *in, tern_error *err) {
    int32_t rows[GPU_STEPS_ROWS], n_found = find_rows(in, rows);
    bool waits, goes = goes_on(in, n_found) && in->order.n_prompt_outputs == 0 && goes_ahead(in);
    if (is_ahead(in, rows, n_found)) {
        follow(&in->steps, rows, n_found);
        take_up(in);
    } else {
        TERN_TRY(start(in, &waits, err)); // the steps ahead keep their readback
    }
    remember_step(in);
    return goes && in->steps.ahead.n == 0 ? start_ahead(in, err) : TERN_OK;
}

// Submits requests from the current one on, up to one that must be waited for.
static tern_status begin_request(tern_instance *in, tern_error *err) {
    for (bool waits = false; !waits;) {
        in->is_step = is_greedy_step(in);
        in->passes_steps = !in->is_step && can_pass_steps(in);
        if (in->is_step) return begin_step(in, err);
        TERN_TRY(start(in, &waits, err));
        if (!waits) gpu_order_next(in);
    }
    return TERN_OK;
}

// Whether there is a readback for the request; the maps of cancelled batches may end at any time.
static bool find_readback(tern_instance *in) {
    if (gpu_is_pending(&in->readbacks[in->now])) in->now = 1 - in->now;
    gpu_readback *to = &in->readbacks[in->now];
    if (gpu_is_pending(to) || (in->profile && !gpu_profile_take(in->profile))) return false;
    gpu_readback_unmap(in->plan->device, to);
    return true;
}

// Submits the request, or leaves that to a poll.
static tern_status begin(tern_instance *in, tern_error *err) {
    const gpu_request *batch = &in->batch;
    bool has_kernels;
    TERN_TRY(gpu_has_kernels(in, &has_kernels, err));
    in->is_held = !has_kernels || (in->was_cancelled && !find_readback(in));
    in->busy = true;
    if (in->is_held) return TERN_OK;
    in->was_cancelled = false;
    if (batch->wants.drafting && gpu_drafts_can(in, batch)) return gpu_drafts_submit(in, err);
    gpu_drafts_forget(in);
    TERN_TRY(begin_request(in, err));
    return gpu_check(in->plan->device, "submitting", err);
}

tern_status gpu_submit(tern_instance *in, const tern_batch *batch, tern_error *err) {
    if (in->busy) return tern_fail(err, TERN_ERR_ARGUMENT, "the last batch is not done yet");
    TERN_TRY(gpu_order_fill(in, batch, err));
    in->piece_work = batch->piece_work;
    gpu_order_next(in);
    tern_status status = begin(in, err);
    if (status != TERN_OK) gpu_cancel(in); // the instance may be lent to others
    return status;
}

// The queue keeps the order: work on the device ends before anything that comes now. The maps of
// the batch are left alone: they may end at any time.
void gpu_cancel(tern_instance *in) {
    in->was_cancelled |= in->busy;
    in->busy = in->is_held = in->reads_rows = in->is_step = in->passes_steps = false;
    in->unread = 0;
    in->piece = 0;
    in->batch = (gpu_request){0};
    gpu_expect_step(&in->steps, 0); // nothing goes on from it
    gpu_drafts_forget(in);
}

// ---- Reading back ------------------------------------------------------------------------------

static void read_steps(gpu_steps *s, const void *mapped) {
    double now = tern_seconds();
    s->seconds = (now - s->started) / s->now.n;
    s->started = now; // of the next one
    for (int32_t i = 0; i < s->now.n * s->now.n_rows; i++)
        gpu_results_greatest(mapped, (size_t)i, &s->ids[i], &s->logits[i]);
    s->n_read = s->now.n;
}

// Reading from a lost device may fail before it reports the loss.
static tern_status wait_for_loss(tern_instance *in, tern_error *err) {
    if (in->unread == 0) in->unread = tern_seconds();
    if (tern_seconds() < in->unread + GPU_SECONDS) return TERN_OK;
    gpu_cancel(in);
    return tern_fail(err, TERN_ERR_DEVICE, "WebGPU's results could not be read");
}

// The head for the next outputs; then the batch's next request. A failure ends the batch.
static tern_status launch_again(tern_instance *in, gpu_readback *to, tern_error *err) {
    tern_status status = launch(in, &(gpu_encoding){0}, 0, &(int32_t){1}, false, to, err);
    if (status == TERN_OK) status = gpu_check(in->plan->device, "submitting", err);
    if (status != TERN_OK) gpu_cancel(in);
    return status;
}
// A piece is over.
static tern_status next_piece(tern_instance *in, gpu_readback *r, tern_error *err) {
    tern_device *d = in->plan->device;
    if (!gpu_readback_bytes(d, r, GPU_PIECE_BYTES)) return wait_for_loss(in, err);
    in->unread = 0;
    gpu_readback_unmap(d, r);
    tern_status status = launch(in, &(gpu_encoding){0}, 0, &(int32_t){1}, true, r, err);
    if (status == TERN_OK) status = gpu_check(d, "submitting", err);
    if (status != TERN_OK) gpu_cancel(in);
    return status;
}
static tern_status start_next(tern_instance *in, tern_error *err) {
    tern_status status = begin_request(in, err);
    if (status == TERN_OK) status = gpu_check(in->plan->device, "submitting", err);
    if (status != TERN_OK) gpu_cancel(in);
    return status;
}

static void take_step(tern_instance *in) {
    gpu_steps *s = &in->steps;
    const gpu_request *b = &in->batch;
    for (int32_t i = 0; i < b->n_outputs; i++) {
        int32_t from = s->n_taken * s->now.n_rows + s->now.rows[i];
        b->wants.top_ids[b->places[i]] = s->ids[from];
        b->wants.top_logits[b->places[i]] = s->logits[from];
    }
    s->n_taken++;
    in->busy = false;
}

// A batch may take several submissions: for rows that lists could not answer, for the head of more
// rows, for requests of another kind.
static tern_status take_results(tern_instance *in, const void *mapped, bool *done,
                                tern_error *err) {
    tern_device *d = in->plan->device;
    gpu_readback *r = &in->readbacks[in->now];
    if (in->is_step)
        read_steps(&in->steps, mapped);
    else
        in->reads_rows = !gpu_results_take(in, mapped);
    gpu_readback_unmap(d, r);
    if (in->is_step) {
        take_step(in);
        *done = true;
        return TERN_OK;
    }
    if (in->reads_rows && in->chunk_rows > in->plan->read_rows) { // as many rows as can be read
        in->busy = true;
        in->chunk_rows = in->plan->read_rows;
        return launch_again(in, r, err);
    }
    if (in->reads_rows) {
        in->busy = true;
        gpu_readback_copy(d, in->logits, 0, r, gpu_results_bytes(in));
        return gpu_check(d, "submitting", err);
    }
    int32_t next = in->chunk_first + in->chunk_rows;
    if (gpu_results_of(in) != GPU_RESULTS_NONE && next < in->batch.n_outputs) {
        in->busy = true;
        gpu_set_chunk(in, next);
        return launch_again(in, r, err);
    }
    if (gpu_order_next(in)) {
        in->busy = true;
        return start_next(in, err);
    }
    *done = true;
    return TERN_OK;
}

tern_status gpu_poll(tern_instance *in, bool *done, tern_error *err) {
    tern_device *d = in->plan->device;
    bool has_steps = in->is_step && in->steps.n_taken < in->steps.n_read;
    if (in->busy && !in->is_held && has_steps) take_step(in);
    *done = !in->busy;
    if (*done) return TERN_OK;
    d->api.InstanceProcessEvents(d->instance);
    if (d->lost || d->error[0]) {
        gpu_cancel(in);
        return gpu_check(d, "computing", err);
    }
    if (in->is_held) {
        tern_status status = begin(in, err);
        if (in->is_held) tern_sleep(1e-4); // for the threads that compile
        if (status != TERN_OK) gpu_cancel(in);
        return status;
    }
    gpu_readback *r = &in->readbacks[in->now];
    if (gpu_is_pending(r) || (in->profile && !gpu_profile_take(in->profile))) {
        // A caller that polls without a pause would occupy the core that a software adapter
        // computes on.
        if (d->software) tern_sleep(1e-4);
        return TERN_OK;
    }
    if (in->piece > 0) return next_piece(in, r, err);
    bool drafts = gpu_drafts_busy(in), of_body = in->chunk_first == 0 && !in->reads_rows;
    const gpu_burst *steps = &in->steps.now;
    size_t others_at =
        in->is_step ? (size_t)steps->n * (size_t)steps->n_rows * 8 : (size_t)gpu_results_bytes(in);
    size_t bytes = others_at + (of_body ? (size_t)gpu_outputs_bytes(in) : 0);
    const void *mapped = gpu_readback_bytes(d, r, drafts ? gpu_drafts_bytes(in) : bytes);
    if (!mapped) return wait_for_loss(in, err);
    in->busy = false;
    in->unread = 0;
    if (drafts) {
        *done = true;
        return gpu_drafts_take(in, mapped, err);
    }
    if (of_body) gpu_outputs_take(in, (const char *)mapped + others_at);
    return take_results(in, mapped, done, err);
}

tern_status gpu_profile_start(tern_instance *in, tern_error *err) {
    if (in->profile) return TERN_OK;
    return gpu_profile_open(&in->profile, in->plan->device, in->plan->n_dispatches, err);
}

const tern_profile *gpu_profile_read(const tern_instance *in) {
    return in->profile ? gpu_profile_rows(in->profile) : NULL;
}
