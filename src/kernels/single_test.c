#include "kernels/single_test.h"

tern_status tern_single_open(tern_single *out, const tern_backend *backend, tern_plan *plan,
                             const tern_graph *g, const tern_cache_desc *desc, tern_error *err) {
    *out = (tern_single){.backend = backend};
    tern_status status = tern_cache_open(&out->cache, backend, plan, g, desc, err);
    if (status == TERN_OK) status = tern_sequence_open(&out->sequence, out->cache, err);
    if (status == TERN_OK)
        status =
            backend->instance_open(plan, tern_cache_page_pool(out->cache), &out->instance, err);
    if (status != TERN_OK) tern_single_close(out);
    return status;
}

void tern_single_close(tern_single *s) {
    if (s->instance) s->backend->instance_close(s->instance);
    tern_sequence_close(s->sequence);
    tern_cache_close(s->cache);
    *s = (tern_single){0};
}

tern_status tern_single_place(tern_single *s, tern_batch *batch, tern_chunk *chunk,
                              int32_t first_pos, tern_error *err) {
    int32_t n_left, length = s->sequence ? tern_sequence_length(s->sequence) : 0;
    if (!s->sequence) return TERN_OK;         // a backend without states
    if (batch->n_tokens == 0) return TERN_OK; // a graph without tokens
    if (first_pos > length) {
        TERN_TRY(tern_sequence_reserve(s->sequence, first_pos, err));
        tern_sequence_advance(s->sequence, first_pos);
    }
    TERN_TRY(tern_sequence_cut(s->sequence, first_pos, &n_left, err));
    if (n_left != first_pos)
        return tern_fail(err, TERN_ERR_ARGUMENT, "position %d cannot be gone back to",
                         (int)first_pos);
    TERN_TRY(tern_sequence_reserve(s->sequence, first_pos + batch->n_tokens, err));
    *chunk = (tern_chunk){.sequence = s->sequence,
                          .n_tokens = batch->n_tokens,
                          .first_pos = first_pos,
                          .has_ends = batch->ends != NULL};
    batch->chunks = chunk;
    batch->n_chunks = 1;
    return TERN_OK;
}

// After a batch: the sequence holds its tokens or, after a failure, unknown states.
static tern_status settle(const tern_single *s, const tern_batch *batch, int32_t first_pos,
                          tern_status status) {
    if (!s->sequence) return status;
    if (status == TERN_OK)
        tern_sequence_advance(s->sequence, first_pos + batch->n_tokens);
    else
        tern_sequence_abandon(s->sequence);
    return status;
}

tern_status tern_single_run(tern_single *s, tern_batch *batch, int32_t first_pos, tern_error *err) {
    tern_chunk chunk;
    TERN_TRY(tern_single_place(s, batch, &chunk, first_pos, err));
    tern_status status = s->backend->submit(s->instance, batch, err);
    for (bool done = false; status == TERN_OK && !done;)
        status = s->backend->poll(s->instance, &done, err);
    return settle(s, batch, first_pos, status);
}

tern_status tern_single_trace(tern_single *s, tern_batch *batch, int32_t first_pos,
                              tern_tap_fn on_value, void *ctx, tern_error *err) {
    tern_chunk chunk;
    TERN_TRY(tern_single_place(s, batch, &chunk, first_pos, err));
    tern_status status = s->backend->trace(s->instance, batch, on_value, ctx, err);
    return settle(s, batch, first_pos, status);
}
