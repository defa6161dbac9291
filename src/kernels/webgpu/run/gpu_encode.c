// Commands for the queue: which dispatches of the plan a batch takes, how many workgroups each has,
// and how they are split into submissions.
#include <string.h>
#include "kernels/webgpu/run/gpu_instance.h"

static const float *angles_of(const tern_instance *in, size_t rope, int32_t pos, bool is_long) {
    const tern_rope *r = &in->plan->ropes.items[rope];
    const gpu_angle_memo *m = &in->memos[rope];
    size_t slot = (size_t)pos % GPU_ANGLES_KEPT;
    int32_t key = 2 * pos + is_long + 1;
    float *to = m->rows + (size_t)r->attrs.n_rot * slot;
    if (m->keys[slot] != key)
        tern_rope_angles(r, (int32_t[3]){pos, pos, pos}, is_long, to, to + 1, 2);
    m->keys[slot] = key;
    return to;
}

static void put_angles(tern_instance *in, size_t rope, int32_t row, int32_t pos, bool is_long) {
    size_t n = (size_t)in->plan->ropes.items[rope].attrs.n_rot;
    memcpy(in->angles_host + n * (size_t)row, angles_of(in, rope, pos, is_long), n * sizeof(float));
}

// Puts the angles of a row that may stand in an image.
static void put_place(tern_instance *in, size_t rope, int32_t row, const int32_t place[3],
                      bool is_long) {
    const tern_rope *r = &in->plan->ropes.items[rope];
    float *to = in->angles_host + (size_t)r->attrs.n_rot * (size_t)row;
    if (place[0] == place[1] && place[0] == place[2] && r->attrs.axes != TERN_ROPE_PLANE)
        put_angles(in, rope, row, place[0], is_long);
    else
        tern_rope_angles(r, place, is_long, to, to + 1, 2);
}

static void send_angles(const tern_instance *in, size_t rope, wgpu_buffer to, int32_t to_row,
                        int32_t n_rows) {
    const tern_device *d = in->plan->device;
    size_t row_bytes = (size_t)in->plan->ropes.items[rope].attrs.n_rot * sizeof(float);
    d->api.QueueWriteBuffer(d->queue, to, (size_t)to_row * row_bytes, in->angles_host,
                            (size_t)n_rows * row_bytes);
}

void gpu_send_angles(tern_instance *in, const wgpu_buffer *to, int32_t to_row, int32_t first_pos,
                     int32_t n_tokens, bool is_long) {
    for (size_t i = 0; i < in->plan->ropes.n; i++) {
        for (int32_t t = 0; t < n_tokens; t++) put_angles(in, i, t, first_pos + t, is_long);
        send_angles(in, i, to[i], to_row, n_tokens);
    }
}

static void put_batch(tern_instance *in, size_t rope, int32_t row, int32_t ahead) {
    const gpu_request *b = &in->batch;
    for (int32_t k = 0; k < b->n_chunks; k++) {
        const tern_chunk *c = &b->chunks[k];
        for (int32_t t = 0; t < c->n_tokens; t++, row++) {
            int32_t place[3];
            tern_batch given = {.places = b->input_places};
            int32_t from = ahead ? -1 : b->origins[k].row + t;
            tern_batch_place(&given, c, from, ahead + t, place);
            put_place(in, rope, row, place, c->is_long);
        }
    }
}

void gpu_send_row_angles(tern_instance *in, int32_t ahead, int32_t n_steps) {
    int32_t n = in->batch.n_tokens;
    for (size_t i = 0; i < in->plan->ropes.n; i++) {
        for (int32_t step = 0; step < n_steps; step++) put_batch(in, i, step * n, ahead + step);
        send_angles(in, i, in->angles[i], 0, n * n_steps);
    }
}

void gpu_set_chunk(tern_instance *in, int32_t first) {
    in->chunk_first = first;
    in->reads_rows = false;
    bool reads_all = gpu_results_of(in) == GPU_RESULTS_LOGITS;
    int32_t left = in->batch.n_outputs - in->chunk_first;
    int32_t most = reads_all ? in->plan->read_rows : in->plan->chunk_rows;
    in->chunk_rows = left < most ? left : most;
}

// The position after the request's last, over all its sequences.
static uint32_t end_of(const gpu_request *b) {
    int32_t end = b->first_pos + (b->n_chunks ? 0 : b->n_tokens);
    for (int32_t i = 0; i < b->n_chunks; i++) {
        int32_t e = b->chunks[i].first_pos + b->chunks[i].n_tokens;
        if (e > end) end = e;
    }
    return (uint32_t)end;
}

// Tiles of positions that a row sees at most; a workgroup whose row has fewer returns.
static uint32_t parts_of(const gpu_request *b, const gpu_dispatch *step, int32_t ahead) {
    uint32_t each = step->rows_each, n = (end_of(b) + (uint32_t)ahead - 1) / each + 1;
    uint32_t most = step->window ? (step->window + each - 2) / each + 1 : GPU_PARTS_MAX;
    if (most > GPU_PARTS_MAX) most = GPU_PARTS_MAX;
    return n < most ? n : most;
}

// 0: the dispatch takes no part.
static uint32_t rows_of(const tern_instance *in, const gpu_dispatch *step, int32_t ahead) {
    const gpu_request *b = &in->batch;
    if (step->rows == GPU_ROWS_PARTS) return parts_of(b, step, ahead);
    if (step->rows == GPU_ROWS_TILES) return (uint32_t)b->n_tiles;
    if (step->rows >= GPU_ROWS_COUNTED) {
        uint32_t n = (uint32_t)b->counts[step->rows - GPU_ROWS_COUNTED];
        return (n + step->rows_each - 1) / step->rows_each;
    }
    uint32_t rows = (uint32_t)(step->rows == GPU_ROWS_TOKENS      ? b->n_tokens
                               : step->rows == GPU_ROWS_OUTPUTS   ? b->n_outputs
                               : step->rows == GPU_ROWS_SEQUENCES ? b->n_chunks
                                                                  : in->chunk_rows);
    rows *= step->times;
    if (rows < step->rows_min || rows > step->rows_max) return 0;
    return (rows + step->rows_each - 1) / step->rows_each;
}

static bool is_of_kind(const gpu_request *b, const gpu_dispatch *step) {
    uint32_t n = (uint32_t)b->n_tokens;
    if (b->kind == GPU_FEW_STEPS && (n < step->tokens_min || n > step->tokens_max)) return false;
    return step->kinds & b->kind;
}

static bool takes_part(const tern_instance *in, const gpu_dispatch *step, bool body) {
    const gpu_request *b = &in->batch;
    if (!is_of_kind(b, step)) return false;
    bool large = b->tile_rows == GPU_TILE_LARGE;
    if (GPU_MAY_HAVE_MATRIX && step->tiling && (step->tiling == GPU_TILES_LARGE) != large)
        return false;
    if (step->screen && (step->screen == GPU_SCREENED) != gpu_screens(in)) return false;
    gpu_results wanted = gpu_results_of(in);
    switch (step->phase) {
    case GPU_PHASE_BODY: return body;
    case GPU_PHASE_HEAD: return wanted != GPU_RESULTS_NONE;
    case GPU_PHASE_PARTS: return wanted == GPU_RESULTS_GREATEST || wanted == GPU_RESULTS_LISTS;
    case GPU_PHASE_TOP: return wanted == GPU_RESULTS_GREATEST;
    default: return wanted == GPU_RESULTS_LISTS;
    }
}

static tern_status find_pipeline(gpu_compiled *c, bool *has, tern_error *err) {
    if (c->handle) return TERN_OK;
    *has = false;
    if (!c->is_begun) return gpu_pipeline_begin(c, err);
    return c->is_pending ? TERN_OK : gpu_pipeline_check(c, err);
}

// Logits that are more than the host reads at a time come in chunks of any number of rows.
static bool may_have_rows(const tern_instance *in, const gpu_dispatch *step) {
    int32_t n = in->batch.n_outputs;
    if (step->rows == GPU_ROWS_CHUNK && (n > in->plan->read_rows || n > in->plan->chunk_rows))
        return step->rows_min <= (uint32_t)n * step->times;
    return rows_of(in, step, 0) > 0;
}

tern_status gpu_has_kernels(tern_instance *in, bool *has, tern_error *err) {
    tern_plan *p = in->plan;
    *has = true;
    if (GPU_COMPILES_LATER) return TERN_OK;
    const gpu_request *b = &in->batch;
    const gpu_shape now = {(int32_t)b->kind, b->n_tokens, b->n_chunks, b->n_outputs};
    bool is_alone = !gpu_order_has_next(in) && !b->wants.drafting, all = true, done;
    bool is_step = is_alone && !(b->kind & GPU_PROMPTS);
    if (p->is_made[in->cache] || (is_step && memcmp(&now, &in->made_for, sizeof now) == 0))
        return TERN_OK;
    TERN_TRY(gpu_pipelines_poll(p->device, &done, err));
    gpu_set_chunk(in, 0);
    if (p->screened) TERN_TRY(find_pipeline(p->screen_copy, has, err));
    for (size_t i = 0; i < p->n_dispatches; i++) {
        const gpu_dispatch *step = &p->dispatches[i];
        gpu_compiled *c = step->pipeline[in->cache];
        if (!c) continue; // it is for other caches
        all &= c->handle != NULL;
        if (!is_alone || (is_of_kind(b, step) && may_have_rows(in, step)))
            TERN_TRY(find_pipeline(c, has, err));
    }
    p->is_made[in->cache] = all && *has;
    if (is_step && *has) in->made_for = now;
    return TERN_OK;
}

// The bytes that a dispatch moves at least: its weights once, its rows, and the positions that it
// accesses.
static uint64_t bytes_of(const tern_instance *in, const gpu_dispatch *step) {
    const tern_plan *p = in->plan;
    const gpu_request *b = &in->batch;
    bool reads_all = strncmp(gpu_kernel_entry(step->what.kernel), "attention", 9) == 0;
    double bytes = 0, n_tokens = b->n_tokens, positions = reads_all ? 0 : n_tokens;
    for (int32_t i = 0; reads_all && i < b->n_chunks; i++)
        positions += b->chunks[i].first_pos + b->chunks[i].n_tokens;
    for (int i = 0; i < step->n_bindings; i++) {
        const gpu_binding *at = &step->bindings[i];
        if (at->place == GPU_WEIGHT && step->what.kernel != GPU_EMBED)
            bytes += (double)at->bytes;
        else if (at->place == GPU_POOL || at->place == GPU_POOL_I8)
            bytes += (double)at->bytes * n_tokens / p->n_batch;
        else if (at->place == GPU_STATE && p->g->values[at->v].state == TERN_STATE_FIXED)
            bytes +=
                2.0 * b->n_chunks * (double)gpu_state_bytes(in->page_pool, at->v); // in and out
        else if (at->place == GPU_STATE)
            bytes += positions / GPU_PAGE_POSITIONS * (double)gpu_state_bytes(in->page_pool, at->v);
        else if (at->place == GPU_LOGITS)
            bytes += (double)in->chunk_rows * (double)p->n_vocab * sizeof(float);
    }
    return (uint64_t)bytes;
}

static wgpu_encoder encoder_of(const tern_instance *in, gpu_encoding *e) {
    const tern_device *d = in->plan->device;
    if (!e->encoder) e->encoder = d->api.DeviceCreateCommandEncoder(d->device, NULL);
    return e->encoder;
}

static void end_pass(const tern_instance *in, gpu_encoding *e) {
    const wgpu_api *a = &in->plan->device->api;
    if (!e->pass) return;
    a->ComputePassEncoderEnd(e->pass);
    a->ComputePassEncoderRelease(e->pass);
    e->pass = NULL;
    e->pipeline = NULL;
}

void gpu_encoding_submit(const tern_instance *in, gpu_encoding *e) {
    const tern_device *d = in->plan->device;
    const wgpu_api *a = &d->api;
    end_pass(in, e);
    wgpu_commands commands = a->CommandEncoderFinish(e->encoder, NULL);
    a->CommandEncoderRelease(e->encoder);
    a->QueueSubmit(d->queue, 1, &commands);
    a->CommandBufferRelease(commands);
    *e = (gpu_encoding){.at_most = 2 * e->at_most, .step = e->step};
}

static bool is_full(const tern_instance *in, const gpu_encoding *e) {
    return e->n_dispatches == in->plan->device->group || e->n_dispatches == e->at_most;
}

static wgpu_pass pass_of(const tern_instance *in, gpu_encoding *e) {
    wgpu_encoder encoder = encoder_of(in, e);
    if (!e->pass) e->pass = in->plan->device->api.CommandEncoderBeginComputePass(encoder, NULL);
    return e->pass;
}

void gpu_encode_dispatch(const tern_instance *in, gpu_encoding *e, wgpu_pipeline pipeline,
                         wgpu_group group, uint32_t x, uint32_t y, uint32_t z) {
    const wgpu_api *a = &in->plan->device->api;
    wgpu_pass pass = pass_of(in, e);
    if (pipeline != e->pipeline) a->ComputePassEncoderSetPipeline(pass, pipeline);
    e->pipeline = pipeline;
    a->ComputePassEncoderSetBindGroup(pass, 0, group, 0, NULL);
    a->ComputePassEncoderDispatchWorkgroups(pass, x, y, z);
    if (in->profile) end_pass(in, e);
    e->n_dispatches++;
    if (is_full(in, e)) gpu_encoding_submit(in, e);
}

void gpu_encode_copy(const tern_instance *in, gpu_encoding *e, wgpu_buffer from, uint64_t offset,
                     wgpu_buffer to, uint64_t to_offset, uint64_t bytes) {
    wgpu_encoder encoder = encoder_of(in, e);
    end_pass(in, e);
    in->plan->device->api.CommandEncoderCopyBufferToBuffer(encoder, from, offset, to, to_offset,
                                                           bytes);
}

// Whether the dispatch takes part.
static bool encode(const tern_instance *in, gpu_encoding *e, size_t i, int32_t ahead, bool body) {
    const gpu_dispatch *step = &in->plan->dispatches[i];
    const gpu_compiled *pipeline = step->pipeline[in->cache];
    uint32_t rows = rows_of(in, step, ahead);
    if (!pipeline || rows == 0 || !takes_part(in, step, body)) return false;
    if (!pipeline->handle) { // gpu_has_kernels has overlooked it
        static const char none[] = "a kernel was not compiled";
        gpu_remember(in->plan->device, "", (wgpu_text){none, sizeof none - 1});
        return false;
    }
    if (in->profile) // each dispatch has its own pass
        e->pass =
            gpu_profile_pass(in->profile, encoder_of(in, e), step->what.kernel, bytes_of(in, step));
    uint32_t z = step->by_token ? (uint32_t)in->batch.n_tokens : 1;
    gpu_encode_dispatch(in, e, pipeline->handle, in->groups[e->step][i], step->x, rows, z);
    return true;
}

uint32_t gpu_encode_dispatches(const tern_instance *in, gpu_encoding *e, int32_t ahead, bool body,
                               int32_t node) {
    uint32_t n = 0;
    for (size_t i = 0; i < in->plan->n_dispatches; i++)
        if (node == GPU_ALL_NODES || node == in->plan->dispatches[i].node)
            n += encode(in, e, i, ahead, body);
    return n;
}

size_t gpu_encode_piece(const tern_instance *in, gpu_encoding *e, size_t first) {
    const tern_plan *p = in->plan;
    const tern_batch rows = {.chunks = in->batch.chunks, .n_chunks = in->batch.n_chunks};
    uint64_t work = 0;
    size_t i = first;
    for (int32_t node = -1; i < p->n_dispatches && work < in->piece_work; i++) {
        int32_t its = p->dispatches[i].node;
        if (!encode(in, e, i, 0, true) || its < 0 || its == node) continue;
        node = its;
        work += tern_node_work(p->g, &p->g->nodes[its], in->batch.counts, &rows);
    }
    return i < p->n_dispatches ? i : 0;
}
