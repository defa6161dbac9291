// A session's memory on the GPU, and batches on their way through it.
//
// submit encodes all dispatches of a batch into one command buffer, with a copy of what is wanted
// into a buffer that can be mapped, and asks for the map; poll lets the library call back. Logits
// of many rows come in chunks: the head is run again for the next rows when the last ones are read.
// What of them is read: gpu_results.c.
#include <math.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "kernels/webgpu/gpu_run.h"

typedef struct gpu_uniform { // struct Run of run.wgsl
    uint32_t n_tokens, first_pos, n_outputs, first_output, n_context, top_k;
} gpu_uniform;

// ---- Opening -----------------------------------------------------------------------------------

#define STORAGE (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

static uint64_t angle_bytes(const tern_plan *p, size_t rope) {
    return (uint64_t)p->n_batch * (uint64_t)p->ropes.items[rope].attrs.n_rot * sizeof(float);
}

// Of a position's keys or values. Q8_0: an int8 each, a float for each 32.
static uint64_t row_bytes(int64_t n_cols, gpu_cache cache) {
    uint64_t n = (uint64_t)n_cols;
    return cache == GPU_CACHE_F32 ? 4 * n : cache == GPU_CACHE_F16 ? 2 * n : n + n / 8;
}

static tern_status choose_cache(tern_instance *in, tern_kv_type wanted, tern_error *err) {
    TERN_TRY(tern_kv_choose(in->plan->g, in->n_context, wanted, &wanted, err));
    in->cache = wanted == TERN_KV_F32    ? GPU_CACHE_F32
                : wanted == TERN_KV_Q8_0 ? GPU_CACHE_Q8_0
                                         : GPU_CACHE_F16;
    return gpu_plan_pipelines(in->plan, in->cache, err);
}

static tern_status open_states(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    in->states = tern_alloc_array(TERN_MEM_KV, p->g->n_values + 1, sizeof *in->states);
    if (!in->states) return tern_fail_memory(err, p->g->n_values * sizeof *in->states);
    for (size_t v = 0; v < p->g->n_values; v++) {
        const tern_value *value = &p->g->values[v];
        if (value->kind != TERN_VALUE_STATE) continue;
        uint64_t bytes = (uint64_t)in->n_context * row_bytes(value->cols, in->cache);
        if (bytes > p->device->binding_bytes_max)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "a cache of %d positions is larger than the %llu MB that a GPU's "
                             "binding has",
                             (int)in->n_context,
                             (unsigned long long)(p->device->binding_bytes_max >> 20));
        TERN_TRY(gpu_buffer_new(p->device, GPU_USE_CACHE, bytes, STORAGE, "the cache",
                                &in->states[v], err));
    }
    return TERN_OK;
}

static tern_status open_buffers(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    uint64_t logits = (uint64_t)in->plan->chunk_rows * (uint64_t)p->n_vocab * sizeof(float);
    uint64_t rows = (uint64_t)p->chunk_rows;
    const struct {
        wgpu_buffer *at;
        uint64_t bytes;
        const char *what;
    } work[] = {{&in->uniform, sizeof(gpu_uniform), "the parameters of a run"},
                {&in->ids, (uint64_t)p->n_batch * 4, "tokens"},
                {&in->pool, p->memory.bytes, "activations"},
                {&in->pool_i8, p->i8_bytes, "activations"},
                {&in->parts, p->parts_bytes, "attention"},
                {&in->logits, logits, "logits"},
                {&in->top_parts, rows * GPU_TOP_PARTS_N * 8, "logits"},
                {&in->top, rows * 8, "logits"},
                {&in->lists, p->makes_lists ? rows * sizeof(gpu_list) : 0, "logits"}};
    for (size_t i = 0; i < sizeof work / sizeof *work; i++)
        TERN_TRY(gpu_buffer_new(d, GPU_USE_WORK, work[i].bytes, STORAGE, work[i].what, work[i].at,
                                err));
    for (int i = 0; i < 2; i++)
        TERN_TRY(gpu_buffer_new(d, GPU_USE_RESULTS, logits,
                                WGPU_BUFFER_MAP_READ | WGPU_BUFFER_COPY_DST, "results",
                                &in->readbacks[i].buffer, err));
    in->angles = tern_alloc_array(TERN_MEM_SESSION, p->ropes.n + 1, sizeof *in->angles);
    uint64_t most = 4;
    for (size_t i = 0; in->angles && i < p->ropes.n; i++) {
        uint64_t bytes = angle_bytes(p, i);
        TERN_TRY(gpu_buffer_new(d, GPU_USE_WORK, bytes, STORAGE, "angles", &in->angles[i], err));
        if (bytes > most) most = bytes;
    }
    in->angles_host = tern_alloc(TERN_MEM_SESSION, (size_t)most);
    if (!in->angles || !in->angles_host) return tern_fail_memory(err, (size_t)most);
    return open_states(in, err);
}

static wgpu_group_entry entry_of(const tern_instance *in, const gpu_binding *b) {
    wgpu_group_entry e = {.bytes = UINT64_MAX}; // the whole buffer
    switch (b->place) {
    case GPU_POOL: e.buffer = in->pool; break;
    case GPU_POOL_I8: e.buffer = in->pool_i8; break;
    case GPU_WEIGHT: e.buffer = b->buffer; break;
    case GPU_STATE: e.buffer = in->states[b->v]; break;
    case GPU_ANGLES: e.buffer = in->angles[b->v]; break;
    case GPU_IDS: e.buffer = in->ids; break;
    case GPU_LOGITS: e.buffer = in->logits; break;
    case GPU_TOP_PARTS_MEMORY: e.buffer = in->top_parts; break;
    case GPU_TOP_MEMORY: e.buffer = in->top; break;
    case GPU_TOP_LISTS: e.buffer = in->lists; break;
    case GPU_PARTS: e.buffer = in->parts; break;
    }
    if (b->bytes > 0) {
        e.offset = b->offset;
        e.bytes = b->bytes;
    }
    return e;
}

static tern_status open_groups(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    in->groups = tern_alloc_array(TERN_MEM_SESSION, p->n_dispatches + 1, sizeof *in->groups);
    if (!in->groups) return tern_fail_memory(err, p->n_dispatches * sizeof *in->groups);
    for (size_t i = 0; i < p->n_dispatches; i++) {
        const gpu_dispatch *step = &p->dispatches[i];
        const char *kinds = gpu_kernel_bindings(step->what.kernel);
        wgpu_group_entry entries[1 + GPU_BINDINGS] = {{0}};
        entries[0] = (wgpu_group_entry){.buffer = in->uniform, .bytes = UINT64_MAX};
        uint32_t number = 0;
        for (int k = 0; k < step->n_bindings; k++, number++) {
            while (kinds[number] == '-') number++;
            entries[1 + k] = entry_of(in, &step->bindings[k]);
            entries[1 + k].binding = number + 1;
        }
        wgpu_group_desc desc = {.layout = d->layouts[step->what.kernel],
                                .n_entries = (size_t)step->n_bindings + 1,
                                .entries = entries};
        in->groups[i] = d->api.DeviceCreateBindGroup(d->device, &desc);
        TERN_TRY(gpu_check(d, gpu_kernel_entry(step->what.kernel), err));
    }
    return TERN_OK;
}

tern_status gpu_instance_open(tern_plan *p, int32_t n_context, tern_kv_type kv_type,
                              tern_instance **out, tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_instance *in = tern_alloc(TERN_MEM_SESSION, sizeof *in);
    if (!in) return tern_fail_memory(err, sizeof *in);
    in->plan = p;
    in->n_context = n_context;
    TERN_TRY_GOTO(choose_cache(in, kv_type, err));
    TERN_TRY_GOTO(open_buffers(in, err));
    TERN_TRY_GOTO(open_groups(in, err));
    *out = in;
    return TERN_OK;
fail:
    gpu_instance_close(in);
    return status;
}

void gpu_instance_close(tern_instance *in) {
    if (!in) return;
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    // The callback of a map points into the instance; a lost device calls it too.
    for (int i = 0; i < 2; i++) gpu_wait(d, &in->readbacks[i].pending);
    bool quiet = !in->readbacks[0].pending && !in->readbacks[1].pending;
    gpu_profile_close(in->profile);
    for (size_t i = 0; in->groups && i < p->n_dispatches; i++)
        if (in->groups[i]) d->api.BindGroupRelease(in->groups[i]);
    for (size_t v = 0; in->states && v < p->g->n_values; v++)
        gpu_buffer_free(d, GPU_USE_CACHE, in->states[v]);
    for (size_t i = 0; in->angles && i < p->ropes.n; i++)
        gpu_buffer_free(d, GPU_USE_WORK, in->angles[i]);
    wgpu_buffer buffers[] = {in->uniform,
                             in->ids,
                             in->pool,
                             in->pool_i8,
                             in->logits,
                             in->top_parts,
                             in->top,
                             in->lists,
                             in->parts};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        gpu_buffer_free(d, GPU_USE_WORK, buffers[i]);
    for (int i = 0; i < 2; i++) gpu_buffer_free(d, GPU_USE_RESULTS, in->readbacks[i].buffer);
    tern_free(in->groups);
    tern_free(in->states);
    tern_free(in->angles);
    tern_free(in->angles_host);
    if (quiet) tern_free(in); // else it is left to the callback that may still come
}

// ---- Submitting --------------------------------------------------------------------------------

static void send_angles(tern_instance *in, int32_t first_pos, int32_t n_tokens) {
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    for (size_t i = 0; i < p->ropes.n; i++) {
        const tern_rope *r = &p->ropes.items[i];
        size_t half = (size_t)r->attrs.n_rot / 2, n = (size_t)n_tokens;
        for (size_t t = 0; t < n; t++)
            for (size_t k = 0; k < half; k++) {
                float angle = (float)(first_pos + (int32_t)t) * r->inv_freq[k];
                in->angles_host[2 * (t * half + k)] = (float)cos(angle) * r->magnitude;
                in->angles_host[2 * (t * half + k) + 1] = (float)sin(angle) * r->magnitude;
            }
        d->api.QueueWriteBuffer(d->queue, in->angles[i], 0, in->angles_host,
                                n * half * 2 * sizeof(float));
    }
}

// 0: the dispatch takes no part.
static uint32_t rows_of(const tern_instance *in, const gpu_dispatch *step, int32_t first_pos) {
    const tern_batch *b = &in->batch;
    if (step->rows == GPU_ROWS_PARTS) {
        uint32_t n = ((uint32_t)(first_pos + b->n_tokens) - 1) / step->rows_each + 1;
        return n < GPU_PARTS_MAX ? n : GPU_PARTS_MAX;
    }
    uint32_t rows = (uint32_t)(step->rows == GPU_ROWS_TOKENS    ? b->n_tokens
                               : step->rows == GPU_ROWS_OUTPUTS ? b->n_outputs
                                                                : in->chunk_rows);
    if (rows < step->rows_min || rows > step->rows_max) return 0;
    return (rows + step->rows_each - 1) / step->rows_each;
}

static bool takes_part(const tern_instance *in, const gpu_dispatch *step, bool body) {
    uint32_t n = (uint32_t)in->batch.n_tokens;
    if (n < step->tokens_min || n > step->tokens_max) return false;
    gpu_results wanted = gpu_results_of(in);
    switch (step->phase) {
    case GPU_PHASE_BODY: return body;
    case GPU_PHASE_HEAD: return wanted != GPU_RESULTS_NONE;
    case GPU_PHASE_PARTS: return wanted == GPU_RESULTS_GREATEST || wanted == GPU_RESULTS_LISTS;
    case GPU_PHASE_TOP: return wanted == GPU_RESULTS_GREATEST;
    default: return wanted == GPU_RESULTS_LISTS;
    }
}

// What a dispatch moves at least: its weights once, its rows, positions that it reads or writes.
static uint64_t bytes_of(const tern_instance *in, const gpu_dispatch *step) {
    const tern_plan *p = in->plan;
    const tern_batch *b = &in->batch;
    bool reads_all = strncmp(gpu_kernel_entry(step->what.kernel), "attention", 9) == 0;
    double bytes = 0, n_tokens = b->n_tokens;
    double positions = reads_all ? (double)b->first_pos + n_tokens : n_tokens;
    for (int i = 0; i < step->n_bindings; i++) {
        const gpu_binding *at = &step->bindings[i];
        if (at->place == GPU_WEIGHT && step->what.kernel != GPU_EMBED)
            bytes += (double)at->bytes;
        else if (at->place == GPU_POOL || at->place == GPU_POOL_I8)
            bytes += (double)at->bytes * n_tokens / p->n_batch;
        else if (at->place == GPU_STATE)
            bytes += (double)p->device->api.BufferGetSize(in->states[at->v]) * positions /
                     in->n_context;
        else if (at->place == GPU_LOGITS)
            bytes += (double)in->chunk_rows * (double)p->n_vocab * sizeof(float);
    }
    return (uint64_t)bytes;
}

// Commands on their way to the queue; all fields are zero between submissions.
typedef struct encoding {
    wgpu_encoder encoder;
    wgpu_pass pass;
    wgpu_pipeline pipeline;
    uint32_t n_dispatches;
} encoding;

static wgpu_encoder encoder_of(const tern_instance *in, encoding *e) {
    const tern_device *d = in->plan->device;
    if (!e->encoder) e->encoder = d->api.DeviceCreateCommandEncoder(d->device, NULL);
    return e->encoder;
}

static void end_pass(const tern_instance *in, encoding *e) {
    const wgpu_api *a = &in->plan->device->api;
    if (!e->pass) return;
    a->ComputePassEncoderEnd(e->pass);
    a->ComputePassEncoderRelease(e->pass);
    e->pass = NULL;
    e->pipeline = NULL;
}

static void submit(const tern_instance *in, encoding *e) {
    const tern_device *d = in->plan->device;
    const wgpu_api *a = &d->api;
    end_pass(in, e);
    wgpu_commands commands = a->CommandEncoderFinish(e->encoder, NULL);
    a->CommandEncoderRelease(e->encoder);
    a->QueueSubmit(d->queue, 1, &commands);
    a->CommandBufferRelease(commands);
    *e = (encoding){0};
}

#define ALL_NODES (-2)
// The number of dispatches.
static uint32_t encode_dispatches(const tern_instance *in, encoding *e, int32_t first_pos,
                                  bool body, int32_t node) {
    uint32_t n = 0;
    const tern_plan *p = in->plan;
    const wgpu_api *a = &p->device->api;
    for (size_t i = 0; i < p->n_dispatches; i++) {
        const gpu_dispatch *step = &p->dispatches[i];
        uint32_t rows = rows_of(in, step, first_pos);
        if (rows == 0 || !takes_part(in, step, body)) continue;
        if (node != ALL_NODES && node != step->node) continue;
        wgpu_encoder encoder = encoder_of(in, e);
        if (!e->pass)
            e->pass = in->profile ? gpu_profile_pass(in->profile, encoder, step->what.kernel,
                                                     bytes_of(in, step))
                                  : a->CommandEncoderBeginComputePass(encoder, NULL);
        wgpu_pipeline pipeline = step->pipeline[in->cache];
        if (pipeline != e->pipeline) a->ComputePassEncoderSetPipeline(e->pass, pipeline);
        e->pipeline = pipeline;
        a->ComputePassEncoderSetBindGroup(e->pass, 0, in->groups[i], 0, NULL);
        uint32_t z = step->by_token ? (uint32_t)in->batch.n_tokens : 1;
        a->ComputePassEncoderDispatchWorkgroups(e->pass, step->x, rows, z);
        if (in->profile) end_pass(in, e);
        if (++e->n_dispatches == p->device->group) submit(in, e);
        n++;
    }
    return n;
}

static void send_uniform(const tern_instance *in, int32_t first_pos) {
    const tern_batch *b = &in->batch;
    const tern_device *d = in->plan->device;
    gpu_uniform u = {(uint32_t)b->n_tokens, (uint32_t)first_pos, (uint32_t)b->n_outputs,
                     (uint32_t)in->chunk_first, (uint32_t)in->n_context, (uint32_t)b->top_k};
    d->api.QueueWriteBuffer(d->queue, in->uniform, 0, &u, sizeof u);
}

// Encodes and submits the dispatches for the batch, or only its head, at first_pos, in groups as
// large as the device takes; what is wanted is copied to a readback, and the greatest token also to
// where the next run takes its own from.
static void launch(tern_instance *in, int32_t first_pos, bool body, gpu_readback *to) {
    tern_device *d = in->plan->device;
    const wgpu_api *a = &d->api;
    gpu_count_run(d);
    send_uniform(in, first_pos);
    encoding e = {0};
    encode_dispatches(in, &e, first_pos, body, ALL_NODES);
    wgpu_encoder encoder = encoder_of(in, &e);
    end_pass(in, &e);
    if (in->profile) gpu_profile_encode(in->profile, encoder);
    uint64_t bytes = gpu_results_bytes(in);
    a->CommandEncoderCopyBufferToBuffer(encoder, gpu_results_buffer(in), 0, to->buffer, 0, bytes);
    if (gpu_results_of(in) == GPU_RESULTS_GREATEST)
        a->CommandEncoderCopyBufferToBuffer(encoder, in->top, 0, in->ids, 0, 4);
    submit(in, &e);
    if (in->profile) gpu_profile_submitted(in->profile);
    gpu_readback_map(d, to, bytes);
}

static void set_chunk(tern_instance *in, int32_t first) {
    in->chunk_first = first;
    in->reads_rows = false;
    int32_t left = in->batch.n_outputs - in->chunk_first;
    in->chunk_rows = left < in->plan->chunk_rows ? left : in->plan->chunk_rows;
}

// ---- Running ahead -----------------------------------------------------------------------------
//
// Who asks for the greatest token after one token, and then again at the next position, will go on.
// The step after is submitted at once with the token that the device has just found, so the device
// never waits for the host. If the next batch is another one, nothing is lost but that step: it
// wrote only the cache's next position, which the batch writes again before anything reads it.

static bool is_greedy_step(const tern_batch *b) {
    return b->n_tokens == 1 && b->n_outputs == 1 && !b->logits && b->top_k == 1;
}

static void start_ahead(tern_instance *in) {
    in->ahead_pos = in->batch.first_pos + 1;
    gpu_readback *to = &in->readbacks[1 - in->now];
    in->ahead = in->ahead_pos < in->n_context && !to->pending && !in->profile;
    if (!in->ahead) return;
    if (to->mapped) in->plan->device->api.BufferUnmap(to->buffer);
    send_angles(in, in->ahead_pos, 1);
    launch(in, in->ahead_pos, true, to);
}

static bool is_ahead(const tern_instance *in, const tern_batch *b) {
    return in->ahead && is_greedy_step(b) && b->first_pos == in->ahead_pos &&
           b->ids[0] == in->last_id;
}

tern_status gpu_submit(tern_instance *in, const tern_batch *batch, tern_error *err) {
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    TERN_TRY(tern_batch_check(batch, p->n_batch, in->n_context, p->n_vocab, err));
    if (in->busy) return tern_fail(err, TERN_ERR_ARGUMENT, "the last batch is not done yet");
    bool was_ahead = is_ahead(in, batch);
    bool goes_on = is_greedy_step(batch) && is_greedy_step(&in->batch) &&
                   batch->first_pos == in->batch.first_pos + 1;
    in->batch = *batch;
    set_chunk(in, 0);
    in->busy = true;
    if (was_ahead)
        in->now = 1 - in->now;
    else {
        // A run ahead that is not wanted leaves its readback to itself: this one takes the other.
        d->api.QueueWriteBuffer(d->queue, in->ids, 0, batch->ids,
                                (size_t)batch->n_tokens * sizeof *batch->ids);
        send_angles(in, batch->first_pos, batch->n_tokens);
        launch(in, batch->first_pos, true, &in->readbacks[in->now]);
    }
    in->ahead = false;
    if (goes_on) start_ahead(in);
    return gpu_check(d, "submitting", err);
}

// ---- Reading back ------------------------------------------------------------------------------

tern_status gpu_poll(tern_instance *in, bool *done, tern_error *err) {
    tern_device *d = in->plan->device;
    *done = !in->busy;
    if (*done) return TERN_OK;
    d->api.InstanceProcessEvents(d->instance);
    if (d->lost || d->error[0]) {
        in->busy = false;
        return gpu_check(d, "computing", err);
    }
    gpu_readback *r = &in->readbacks[in->now];
    if (r->pending || (in->profile && !gpu_profile_take(in->profile))) {
        // Who asks without a pause would take the core that a software adapter computes on.
        if (d->software) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        return TERN_OK;
    }
    in->busy = false;
    size_t bytes = (size_t)gpu_results_bytes(in);
    const void *mapped = r->mapped ? d->api.BufferGetConstMappedRange(r->buffer, 0, bytes) : NULL;
    if (!mapped) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU's results could not be read");
    in->reads_rows = !gpu_results_take(in, mapped);
    d->api.BufferUnmap(r->buffer);
    r->mapped = false;
    if (in->reads_rows) {
        in->busy = true;
        gpu_readback_copy(d, in->logits, 0, r, gpu_results_bytes(in));
        return gpu_check(d, "submitting", err);
    }
    int32_t next = in->chunk_first + in->chunk_rows;
    if (gpu_results_of(in) != GPU_RESULTS_NONE && next < in->batch.n_outputs) {
        in->busy = true;
        set_chunk(in, next);
        launch(in, in->batch.first_pos, false, r);
        return gpu_check(d, "submitting", err);
    }
    if (is_greedy_step(&in->batch)) in->last_id = in->batch.top_ids[0];
    *done = true;
    return TERN_OK;
}

tern_status gpu_profile_start(tern_instance *in, tern_error *err) {
    if (in->profile) return TERN_OK;
    return gpu_profile_open(&in->profile, in->plan->device, in->plan->n_dispatches, err);
}

const tern_profile *gpu_profile_read(const tern_instance *in) {
    return in->profile ? gpu_profile_rows(in->profile) : NULL;
}

// ---- Tracing -----------------------------------------------------------------------------------

static tern_status show(const tern_instance *in, const tern_node *n, float *rows,
                        tern_tap_fn on_value, void *ctx, tern_error *err) {
    const tern_plan *p = in->plan;
    for (int k = 0; k < n->n_out; k++) {
        const tern_value *v = &p->g->values[n->out[k]];
        if (v->type != TERN_VALUE_F32 || v->kind != TERN_VALUE_TEMP) continue;
        int32_t n_rows =
            v->sym == TERN_SYM_OUTPUTS ? in->batch.n_outputs : in->batch.n_tokens;
        uint64_t bytes = (uint64_t)n_rows * (uint64_t)v->cols * sizeof(float);
        uint64_t offset = p->memory.spans[n->out[k]].offset;
        TERN_TRY(gpu_read(p->device, in->pool, offset, rows, bytes, err));
        on_value(ctx, n->out[k], rows, n_rows);
    }
    return TERN_OK;
}

// Node by node, each submitted alone and read back. Fused dispatches of few tokens run with the
// last of their nodes; the values inside are not shown, since there are none.
tern_status gpu_trace(tern_instance *in, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                      tern_error *err) {
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    TERN_TRY(tern_batch_check(batch, p->n_batch, in->n_context, p->n_vocab, err));
    if (in->busy || batch->n_outputs > p->chunk_rows || !batch->logits)
        return tern_fail(err, TERN_ERR_ARGUMENT, "this batch cannot be traced");
    float *rows = tern_alloc(TERN_MEM_MISC, (size_t)p->memory.bytes + 16);
    if (!rows) return tern_fail_memory(err, (size_t)p->memory.bytes);
    in->batch = *batch;
    in->ahead = false;
    set_chunk(in, 0);
    d->api.QueueWriteBuffer(d->queue, in->ids, 0, batch->ids,
                            (size_t)batch->n_tokens * sizeof *batch->ids);
    send_angles(in, batch->first_pos, batch->n_tokens);
    send_uniform(in, batch->first_pos);
    tern_status status = TERN_OK;
    for (size_t i = 0; status == TERN_OK && i < p->g->n_nodes; i++) {
        encoding e = {0};
        uint32_t n = encode_dispatches(in, &e, batch->first_pos, true, (int32_t)i);
        if (e.encoder) submit(in, &e);
        if (n > 0) status = show(in, &p->g->nodes[i], rows, on_value, ctx, err);
    }
    tern_free(rows);
    if (status != TERN_OK) return status;
    return gpu_read(d, in->logits, 0, batch->logits,
                    (uint64_t)batch->n_outputs * (uint64_t)p->n_vocab * sizeof(float), err);
}
