// An instance on the GPU: its buffers, and the bind groups of all dispatches, made once.
#include "base/alloc.h"
#include "kernels/webgpu/run/gpu_instance.h"

#define STORAGE (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

// Rows of all steps of the largest submission of greedy steps, with at most `most` rows each.
static uint64_t gpu_ahead_rows(int32_t most) {
    return (uint64_t)GPU_STEPS_MAX * (uint64_t)(most < GPU_STEPS_ROWS ? most : GPU_STEPS_ROWS);
}

static uint64_t angle_bytes(const tern_plan *p, size_t rope) {
    uint64_t n = (uint64_t)p->n_batch, ahead = gpu_ahead_rows(p->n_batch);
    return (n > ahead ? n : ahead) * (uint64_t)p->ropes.items[rope].attrs.n_rot * sizeof(float);
}

// Chunks of a batch, at most one a token; then one of each greedy step after it.
uint64_t gpu_chunks_at(const tern_instance *in, int32_t step) {
    uint64_t first = gpu_round((uint64_t)in->plan->n_batch * sizeof(gpu_chunk), GPU_POOL_ALIGN);
    return step == 0 ? 0 : first + (uint64_t)(step - 1) * GPU_POOL_ALIGN;
}

static tern_status open_order(tern_instance *in, tern_error *err) {
    gpu_order *o = &in->order;
    size_t n = (size_t)in->plan->n_batch;
    o->chunks = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *o->chunks);
    o->ids = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *o->ids);
    o->outputs = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *o->outputs);
    o->places = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *o->places);
    o->sent = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *o->sent);
    o->origins = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *o->origins);
    if (!o->origins || !o->sent || !o->chunks || !o->ids || !o->outputs || !o->places)
        return tern_fail_memory(err, n * sizeof *o->chunks);
    return TERN_OK;
}

static tern_status open_memo(gpu_angle_memo *m, size_t n_rot, tern_error *err) {
    m->keys = tern_alloc_array(TERN_MEM_SESSION, GPU_ANGLES_KEPT, sizeof *m->keys);
    m->rows = tern_alloc_array(TERN_MEM_SESSION, GPU_ANGLES_KEPT, n_rot * sizeof *m->rows);
    return m->keys && m->rows ? TERN_OK : tern_fail_memory(err, GPU_ANGLES_KEPT * n_rot * 4);
}

static tern_status open_angles(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    uint64_t most = 4;
    in->angles = tern_alloc_array(TERN_MEM_SESSION, p->ropes.n + 1, sizeof *in->angles);
    in->memos = tern_alloc_array(TERN_MEM_SESSION, p->ropes.n + 1, sizeof *in->memos);
    if (!in->angles || !in->memos)
        return tern_fail_memory(err, (p->ropes.n + 1) * sizeof *in->memos);
    for (size_t i = 0; i < p->ropes.n; i++) {
        uint64_t bytes = angle_bytes(p, i);
        TERN_TRY(
            gpu_buffer_new(p->device, GPU_USE_WORK, bytes, STORAGE, "angles", &in->angles[i], err));
        TERN_TRY(open_memo(&in->memos[i], (size_t)p->ropes.items[i].attrs.n_rot, err));
        if (bytes > most) most = bytes;
    }
    in->angles_host = tern_alloc(TERN_MEM_SESSION, (size_t)most);
    return in->angles_host ? TERN_OK : tern_fail_memory(err, (size_t)most);
}

static tern_status open_sent(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    for (int i = 0; i < p->n_host_tables; i++) {
        uint64_t bytes = (uint64_t)p->n_batch * (uint64_t)p->host_tables[i]->n_cols * sizeof(float);
        TERN_TRY(gpu_buffer_new(p->device, GPU_USE_WORK, bytes, STORAGE, "rows of a table",
                                &in->sent[i], err));
    }
    return TERN_OK;
}

static bool is_given(const tern_plan *p, tern_vid v) {
    for (size_t i = 0; i < p->n_dispatches; i++)
        for (int k = 0; k < p->dispatches[i].n_bindings; k++) {
            const gpu_binding *b = &p->dispatches[i].bindings[k];
            if (b->place == GPU_INPUT_EMBEDS && b->v == v) return true;
        }
    return false;
}

// Buffers for inputs of floats, and of integers that are not tokens.
static tern_status open_given(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    for (size_t v = 0; v < p->g->n_values; v++) {
        const tern_value *value = &p->g->values[v];
        if (value->kind != TERN_VALUE_INPUT || !is_given(p, (tern_vid)v)) continue;
        if (in->n_given == GPU_INPUTS_MAX)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "input %s: the WebGPU backend takes %d inputs of numbers at most",
                             value->name, GPU_INPUTS_MAX);
        uint64_t bytes = (uint64_t)p->n_batch * (uint64_t)value->cols * sizeof(float);
        in->given[in->n_given].value = (tern_vid)v;
        TERN_TRY(gpu_buffer_new(p->device, GPU_USE_WORK, bytes, STORAGE, "rows of an input",
                                &in->given[in->n_given++].rows, err));
    }
    return TERN_OK;
}

static wgpu_buffer given(const tern_instance *in, tern_vid v) {
    for (int i = 0; i < in->n_given; i++)
        if (in->given[i].value == v) return in->given[i].rows;
    return NULL;
}

static tern_status open_buffers(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    uint64_t logits = (uint64_t)in->plan->chunk_rows * (uint64_t)p->n_vocab * sizeof(float);
    uint64_t rows = (uint64_t)p->chunk_rows, ahead = gpu_ahead_rows(p->chunk_rows);
    const struct {
        wgpu_buffer *at;
        uint64_t bytes;
        const char *what;
    } work[] = {{&in->chunks, gpu_chunks_at(in, GPU_STEPS_MAX), "the parameters of a run"},
                {&in->ids, (uint64_t)p->n_batch * 4, "tokens"},
                {&in->ids_ahead, GPU_STEPS_ROWS * sizeof(int32_t), "tokens"},
                {&in->pool, p->memory.bytes, "activations"},
                {&in->pool_i8, p->i8_bytes, "activations"},
                {&in->parts, p->parts_bytes, "attention"},
                {&in->screen_x, gpu_screen_x_bytes(p), "logits"},
                {&in->screen_lists, gpu_screen_list_bytes(p), "logits"},
                {&in->logits, logits, "logits"},
                {&in->top_parts, rows * GPU_TOP_PARTS_N * 8, "logits"},
                {&in->top, (rows > ahead ? rows : ahead) * 8, "logits"},
                {&in->lists, p->makes_lists ? rows * sizeof(gpu_list) : 0, "logits"}};
    for (size_t i = 0; i < sizeof work / sizeof *work; i++)
        TERN_TRY(
            gpu_buffer_new(d, GPU_USE_WORK, work[i].bytes, STORAGE, work[i].what, work[i].at, err));
    TERN_TRY(open_sent(in, err));
    TERN_TRY(open_given(in, err));
    TERN_TRY(open_order(in, err));
    uint64_t results = (uint64_t)p->read_rows * (uint64_t)p->n_vocab * sizeof(float);
    if (results < rows * sizeof(gpu_list)) results = rows * sizeof(gpu_list);
    if (results < GPU_DRAFTS_READ_BYTES) results = GPU_DRAFTS_READ_BYTES;
    if (results < ahead * 8) results = ahead * 8;
    results = gpu_round(results, GPU_POOL_ALIGN) + gpu_outputs_bytes_max(p);
    for (int i = 0; i < 2; i++)
        TERN_TRY(gpu_readback_new(d, results, "results", &in->readbacks[i], err));
    return open_angles(in, err);
}

static wgpu_group_entry entry_of(const tern_instance *in, int32_t step, const gpu_binding *b) {
    wgpu_group_entry e = {.bytes = UINT64_MAX}; // the whole buffer
    if (step == GPU_STEP_DRAFTS) e.buffer = gpu_drafts_buffer(in->drafts, b->place, b->v);
    if (e.buffer) return e;
    switch (b->place) {
    case GPU_POOL: e.buffer = in->pool; break;
    case GPU_POOL_I8: e.buffer = in->pool_i8; break;
    case GPU_WEIGHT: e.buffer = b->buffer; break;
    case GPU_STATE: e.buffer = gpu_page_pool_buffer(in->page_pool, b->v); break;
    case GPU_ANGLES: e.buffer = in->angles[b->v]; break;
    case GPU_IDS: e.buffer = in->ids; break;
    case GPU_SENT: e.buffer = in->sent[b->v]; break;
    case GPU_INPUT_EMBEDS: e.buffer = given(in, b->v); break;
    case GPU_LOGITS: e.buffer = in->logits; break;
    case GPU_TOP_PARTS_MEMORY: e.buffer = in->top_parts; break;
    case GPU_TOP_MEMORY: e.buffer = in->top; break;
    case GPU_TOP_LISTS: e.buffer = in->lists; break;
    case GPU_PARTS: e.buffer = in->parts; break;
    case GPU_SCREEN_COPY: e.buffer = in->plan->screened->copy; break;
    case GPU_SCREEN_X: e.buffer = in->screen_x; break;
    case GPU_SCREEN_LISTS: e.buffer = in->screen_lists; break;
    case GPU_CHUNKS:
        e.buffer = in->chunks;
        if (step == GPU_STEP_DRAFTS) break; // its position changes on the device
        e.offset = gpu_chunks_at(in, step);
        e.bytes = gpu_chunks_at(in, step + 1) - e.offset;
        break;
    }
    if (b->bytes > 0) {
        e.offset = b->offset;
        e.bytes = b->bytes;
    }
    return e;
}

static tern_status open_group(tern_instance *in, int32_t step, size_t i, tern_error *err) {
    tern_device *d = in->plan->device;
    const gpu_dispatch *dispatch = &in->plan->dispatches[i];
    const char *kinds = gpu_kernel_bindings(dispatch->what.kernel);
    wgpu_group_entry entries[1 + GPU_BINDINGS] = {{0}};
    // To the end of the buffer, where the tables of pages are.
    entries[0] =
        (wgpu_group_entry){.buffer = in->runs, .offset = gpu_run_at(step), .bytes = UINT64_MAX};
    if (step == GPU_STEP_DRAFTS)
        entries[0] =
            (wgpu_group_entry){.buffer = gpu_drafts_state(in->drafts), .bytes = UINT64_MAX};
    uint32_t number = 0;
    for (int k = 0; k < dispatch->n_bindings; k++, number++) {
        while (kinds[number] == '-') number++;
        entries[1 + k] = entry_of(in, step, &dispatch->bindings[k]);
        entries[1 + k].binding = number + 1;
    }
    wgpu_group_desc desc = {.layout = d->layouts[dispatch->what.kernel],
                            .n_entries = (size_t)dispatch->n_bindings + 1,
                            .entries = entries};
    in->groups[step][i] = d->api.DeviceCreateBindGroup(d->device, &desc);
    return gpu_check(d, gpu_kernel_entry(dispatch->what.kernel), err);
}

static void close_groups(tern_instance *in, int32_t step) {
    const tern_plan *p = in->plan;
    wgpu_group *groups = in->groups[step];
    in->groups[step] = NULL;
    in->made[step] = 0;
    for (size_t i = 0; groups && i < p->n_dispatches; i++)
        if (groups[i]) p->device->api.BindGroupRelease(groups[i]);
    tern_free(groups);
}

// Batches that bind groups are made for together: most sessions only have steps of one row.
enum { FOR_ONE = 1, FOR_FEW = 2, FOR_MANY = 4, FOR_PROMPTS = 8 };
static uint32_t made_for(const tern_instance *in, int32_t step) {
    const gpu_request *b = &in->batch;
    if (step == GPU_STEP_DRAFTS) return FOR_FEW;
    return b->kind & GPU_PROMPTS       ? FOR_PROMPTS
           : b->kind == GPU_MANY_STEPS ? FOR_MANY
           : b->n_tokens > 1           ? FOR_FEW
                                       : FOR_ONE;
}
static bool is_made_for(const tern_instance *in, const gpu_dispatch *d, uint32_t what) {
    if (!d->pipeline[in->cache] || (d->screen == GPU_SCREENED && !in->has_copy)) return false;
    switch (what) {
    case FOR_ONE: return (d->kinds & GPU_FEW_STEPS) && d->tokens_min <= 1;
    case FOR_FEW: return (d->kinds & GPU_FEW_STEPS) && d->tokens_max > 1;
    case FOR_MANY: return d->kinds & GPU_MANY_STEPS;
    default: return d->kinds & GPU_PROMPTS;
    }
}

// Separate groups, though they differ only in an offset: with dynamic offsets each dispatch takes
// 0.25 us more on an NVIDIA H200.
tern_status gpu_instance_add_step(tern_instance *in, int32_t step, tern_error *err) {
    const tern_plan *p = in->plan;
    uint32_t what = made_for(in, step);
    if (in->made[step] & what) return TERN_OK;
    if (!in->groups[step])
        in->groups[step] =
            tern_alloc_array(TERN_MEM_SESSION, p->n_dispatches + 1, sizeof **in->groups);
    if (!in->groups[step]) return tern_fail_memory(err, p->n_dispatches * sizeof **in->groups);
    tern_status status = TERN_OK;
    for (size_t i = 0; status == TERN_OK && i < p->n_dispatches; i++)
        if (is_made_for(in, &p->dispatches[i], what) && !in->groups[step][i])
            status = open_group(in, step, i, err);
    if (status == TERN_OK)
        in->made[step] |= what;
    else
        close_groups(in, step);
    return status;
}

void gpu_instance_close_groups(tern_instance *in) {
    for (int32_t step = 0; step <= GPU_STEP_DRAFTS; step++) close_groups(in, step);
}

// Takes twice the bytes, so that this happens only a few times in the life of a sequence.
static tern_status grow_runs(tern_instance *in, uint64_t bytes, tern_error *err) {
    tern_device *d = in->plan->device;
    wgpu_buffer larger;
    TERN_TRY(gpu_buffer_new(d, GPU_USE_WORK, 2 * bytes, STORAGE, "the parameters of a run", &larger,
                            err));
    gpu_buffer_free(d, GPU_USE_WORK, in->runs);
    in->runs = larger;
    in->runs_bytes = 2 * bytes;
    gpu_instance_close_groups(in);
    return TERN_OK;
}

tern_status gpu_instance_bind(tern_instance *in, uint64_t table_bytes, tern_error *err) {
    uint64_t bytes = gpu_run_at(0) + table_bytes;
    if (bytes > in->runs_bytes) TERN_TRY(grow_runs(in, bytes, err));
    if (in->growth != gpu_page_pool_growth(in->page_pool)) gpu_instance_close_groups(in);
    in->growth = gpu_page_pool_growth(in->page_pool);
    return gpu_instance_add_step(in, 0, err);
}

tern_status gpu_instance_open(tern_plan *p, tern_page_pool *page_pool, tern_instance **out,
                              tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_instance *in = tern_alloc(TERN_MEM_SESSION, sizeof *in);
    if (!in) return tern_fail_memory(err, sizeof *in);
    in->plan = p;
    in->page_pool = page_pool;
    in->scores = tern_graph_scores(p->g);
    if (in->scores >= 0 && !gpu_is_logits(p->g, in->scores)) in->scores = -1;
    in->cache = gpu_page_pool_cache(page_pool);
    in->steps.seconds_max = GPU_STEPS_SECONDS;
    for (size_t i = 0; i < p->n_dispatches; i++)
        for (int k = 0; k < p->dispatches[i].n_bindings; k++)
            in->uses_chunks |= p->dispatches[i].bindings[k].place == GPU_CHUNKS;
    TERN_TRY_GOTO(gpu_plan_pipelines(p, in->cache, false, err));
    TERN_TRY_GOTO(open_buffers(in, err));
    *out = in;
    return TERN_OK;
fail:
    gpu_instance_close(in);
    return status;
}

tern_status gpu_instance_open_drafts(tern_instance *in, const tern_draft_table *t,
                                     tern_error *err) {
    close_groups(in, GPU_STEP_DRAFTS); // the next batch makes them
    return gpu_drafts_open(in, t, err);
}

void gpu_instance_close(tern_instance *in) {
    if (!in) return;
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    gpu_profile_close(in->profile);
    gpu_instance_close_groups(in);
    gpu_drafts_close(in);
    for (size_t i = 0; in->angles && i < p->ropes.n; i++)
        gpu_buffer_free(d, GPU_USE_WORK, in->angles[i]);
    wgpu_buffer buffers[] = {in->runs,    in->chunks,   in->ids,         in->ids_ahead, in->pool,
                             in->pool_i8, in->logits,   in->top_parts,   in->top,       in->lists,
                             in->parts,   in->screen_x, in->screen_lists};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        gpu_buffer_free(d, GPU_USE_WORK, buffers[i]);
    for (int i = 0; i < p->n_host_tables; i++) gpu_buffer_free(d, GPU_USE_WORK, in->sent[i]);
    for (int i = 0; i < in->n_given; i++) gpu_buffer_free(d, GPU_USE_WORK, in->given[i].rows);
    for (int i = 0; i < 2; i++) gpu_readback_free(d, &in->readbacks[i]);
    tern_free(in->order.chunks);
    tern_free(in->order.origins);
    tern_free(in->order.sent);
    tern_free(in->order.ids);
    tern_free(in->order.outputs);
    tern_free(in->order.places);
    tern_free(in->tables);
    for (size_t i = 0; in->memos && i < p->ropes.n; i++) {
        tern_free(in->memos[i].keys);
        tern_free(in->memos[i].rows);
    }
    tern_free(in->memos);
    tern_free(in->angles);
    tern_free(in->angles_host);
    tern_free(in);
}
