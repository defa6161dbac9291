// Reads whole texts, in steps of some thousand tokens whatever their lengths are: a step is a batch
// of concatenated sequences without padding. Since rows do not depend on the others in their batch,
// a text's numbers do not depend on the other texts.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

#define STEP 2048 // tokens computed at once, unless the caller sets it

static tern_status in_range(const char *what, int32_t value, int32_t most, int32_t usual,
                            int32_t *out, tern_error *err) {
    *out = value ? value : usual;
    if (value >= 0 && *out <= most) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s is %d: expected 1 to %d, or 0 for %d", what,
                     (int)value, (int)most, (int)usual);
}

tern_status tern_reader_settle(tern_reader *r, const tern_embed_params *p, int32_t usual,
                               int32_t *max_length, tern_error *err) {
    const tern_model *m = r->m;
    int32_t n_context = m->info.n_context_train;
    int32_t most = n_context < m->n_batch ? n_context : m->n_batch;
    if (usual == 0) usual = most;
    TERN_TRY(tern_model_refuse_damaged(m, err));
    TERN_TRY(in_range("max_length", p->max_length, most, usual, max_length, err));
    TERN_TRY(in_range("n_step", p->n_step, INT32_MAX, STEP, &r->n_step, err));
    if (r->n_step > m->n_batch) r->n_step = m->n_batch;
    r->on_progress = p->on_progress;
    r->progress_user = p->user;
    return tern_kv_choose(&m->graphs[0].fused, *max_length, p->kv_type, &r->kv_type, err);
}

static tern_status make_room(tern_reader *r, size_t n, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &r->works, &r->capacity, 0, n) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &r->leases, &r->leases_capacity, 0, n) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &r->rows, &r->rows_capacity, 0, n * r->width) != 0)
        return tern_fail_memory(err, n * r->width * sizeof *r->rows);
    for (; r->n_leases < n; r->n_leases++)
        TERN_TRY(tern_lease_open(&r->leases[r->n_leases], r->m, r->m->n_batch, r->kv_type, err));
    return TERN_OK;
}

static tern_status check_row(const tern_reader *r, const float *row, size_t text, tern_error *err) {
    for (size_t k = 0; k < r->width; k++)
        if (!isfinite(row[k]))
            return tern_fail(err, TERN_ERR_DEVICE, "%s: text %zu produced NaN or infinity",
                             r->m->path, text + 1);
    return TERN_OK;
}

tern_status tern_reader_begin(tern_reader *r, tern_error *err) {
    const int32_t *ids = r->ids.ids;
    for (size_t i = 0; i < r->n; i++) {
        r->works[i].lease = r->leases[i];
        r->works[i].ids = ids;
        ids += r->works[i].n_ids;
    }
    const tern_wants wants = {.outputs = {r->output, r->input}, .data = {r->rows, r->input_rows}};
    TERN_TRY(tern_computation_begin(&r->now, r->m, r->works, (int32_t)r->n, &wants, err));
    r->is_running = true;
    return TERN_OK;
}

// Takes the results, and drops the texts. Their states are released, so that no lease keeps the
// memory of the longest text that it ever had.
static tern_status take_step(tern_reader *r, tern_error *err) {
    size_t n_input = r->input ? r->n_tokens * (size_t)r->input_width : 0;
    for (size_t i = 0; i < r->n; i++) {
        const float *row = r->rows + i * r->width;
        TERN_TRY(check_row(r, row, r->n_done + i, err));
        r->take(r->user, r->n_done + i, row);
        tern_lease_trim(r->leases[i]);
    }
    r->ids.n -= r->n_tokens;
    memmove(r->ids.ids, r->ids.ids + r->n_tokens, r->ids.n * sizeof *r->ids.ids);
    r->n_input -= n_input;
    if (n_input)
        memmove(r->input_rows, r->input_rows + n_input, r->n_input * sizeof *r->input_rows);
    r->n_done += r->n;
    r->n = r->n_tokens = 0;
    return TERN_OK;
}

static tern_status report(const tern_reader *r, tern_error *err) {
    double fraction = r->n_texts ? (double)r->n_done / (double)r->n_texts : 1;
    if (tern_progress(r->on_progress, r->progress_user, "embed", fraction)) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
}

tern_status tern_reader_poll(tern_reader *r, bool *done, tern_error *err) {
    tern_status status = tern_computation_poll(&r->now, done, err);
    r->is_running = status == TERN_OK && !*done;
    if (status != TERN_OK || !*done) return status;
    TERN_TRY(take_step(r, err));
    return report(r, err);
}

static tern_status run_step(tern_reader *r, tern_error *err) {
    TERN_TRY(tern_reader_begin(r, err));
    for (bool done = false; !done;) TERN_TRY(tern_reader_poll(r, &done, err));
    return TERN_OK;
}

tern_status tern_reader_input(tern_reader *r, size_t n, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &r->input_rows, &r->input_capacity, r->n_input, n) ==
        0)
        return TERN_OK;
    return tern_fail_memory(err, n * sizeof *r->input_rows);
}

bool tern_reader_is_full(const tern_reader *r, size_t n_ids) {
    int32_t works_max = tern_model_works_max(r->m);
    if (r->works_max > 0 && r->works_max < works_max) works_max = r->works_max;
    bool full = r->n_tokens + n_ids > (size_t)r->n_step || r->n == (size_t)works_max;
    return full && r->n > 0;
}

tern_status tern_reader_put(tern_reader *r, size_t n_ids, tern_error *err) {
    TERN_TRY(make_room(r, r->n + 1, err));
    r->works[r->n++] = (tern_work){.n_ids = (int32_t)n_ids, .n_outputs = r->n_outputs};
    r->n_tokens += n_ids;
    return TERN_OK;
}

tern_status tern_reader_add(tern_reader *r, size_t n_ids, tern_error *err) {
    if (tern_reader_is_full(r, n_ids)) TERN_TRY(run_step(r, err));
    return tern_reader_put(r, n_ids, err);
}

tern_status tern_reader_finish(tern_reader *r, tern_error *err) {
    return r->n > 0 ? run_step(r, err) : report(r, err);
}

void tern_reader_close(tern_reader *r) {
    if (r->is_running) tern_computation_cancel(&r->now);
    r->is_running = false;
    for (size_t i = 0; i < r->n_leases; i++) tern_lease_close(r->leases[i]);
    tern_free(r->leases);
    tern_free(r->works);
    tern_free(r->rows);
    tern_free(r->input_rows);
    tern_free(r->ids.ids);
}
