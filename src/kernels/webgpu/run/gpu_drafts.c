// Greedy speculation that the device drafts and verifies itself.
//
// A session that speculates must know what was accepted before it can draft again. Through the host
// that costs a submission and a round trip for each run of the model, 0.15 ms on a large GPU, as
// long as a small model computes. So a kernel of one thread (draft.wgsl) runs between two runs: it
// compares what the model says with the draft, and drafts for the next run, which begins where the
// accepted tokens end. One submission holds several runs, and the next submission begins where this
// one ends, before the host knows where that is. The host reads the resulting tokens.
//
//     [draft] run judge+draft run judge+draft ...  copy of the state and the log
//
// The runs have the parameters that kernels read in the state, and results in the log, both of
// which the kernel also writes: so they have other bind groups than batches do, and there are
// angles for all positions. A run always has the same number of tokens, since the host encodes it
// before the draft exists; if less was drafted, the filler is computed for nothing.
#include <stddef.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "kernels/webgpu/run/gpu_instance.h"

typedef struct gpu_draft_state { // Drafting of draft.wgsl
    gpu_run run;
    gpu_row rows[TERN_DRAFTING_MAX];
    uint32_t outputs[TERN_DRAFTING_MAX];
    uint32_t n_drafted, begins, first_known;
    uint32_t counts[TERN_DRAFTING_MAX][TERN_DRAFTING_MAX];
} gpu_draft_state;

typedef struct gpu_log { // by position: the token after it
    int32_t id;
    float logit;
} gpu_log;

// A submission: runs from some position on, which is not known exactly while the previous one is in
// flight. It copies the log from `first` to `end`, the furthest it may reach.
typedef struct burst {
    int32_t n_runs; // 0: there is none
    int32_t first, end;
} burst;

struct gpu_drafts {
    wgpu_buffer state, log, table; // state: a gpu_draft_state, then the sequence's pages
    uint64_t state_bytes;
    int32_t n_positions; // that have angles and a log
    int32_t room;        // where the sequence's pages end
    wgpu_buffer *angles; // by rope, of all positions
    wgpu_pipeline pipeline;
    wgpu_group group;
    gpu_request request; // being waited for
    int32_t n_each;
    uint64_t version; // of its sequence
    burst now, ahead;
    bool busy;
    int32_t pos, id; // where the last answer ended: the next token's position; -1: nowhere
    uint32_t counts[TERN_DRAFTING_MAX][TERN_DRAFTING_MAX]; // up to the last answer
    double started, seconds; // when the submission could begin; what a run took
    double tokens_each;      // tokens that a run yielded
};

#define STORAGE  (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)
#define LOG_AT   512 // in a readback, after the state
#define RUNS_MAX GPU_STEPS_MAX
// The log has room for the tokens of two submissions.
_Static_assert(LOG_AT + 2 * RUNS_MAX * GPU_FEW * sizeof(gpu_log) <= GPU_DRAFTS_READ_BYTES &&
                   sizeof(gpu_draft_state) <= LOG_AT,
               "a readback has no room for a log");

wgpu_buffer gpu_drafts_state(const gpu_drafts *d) { return d->state; }
wgpu_buffer gpu_drafts_buffer(const gpu_drafts *d, gpu_place place, tern_vid v) {
    return place == GPU_ANGLES ? d->angles[v] : place == GPU_TOP_MEMORY ? d->log : NULL;
}
bool gpu_drafts_busy(const tern_instance *in) { return in->drafts && in->drafts->busy; }

// ---- Opening -----------------------------------------------------------------------------------

static tern_status open_angles(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    gpu_drafts *d = in->drafts;
    for (size_t i = 0; i < p->ropes.n; i++) {
        uint64_t bytes = (uint64_t)d->n_positions * (uint64_t)p->ropes.items[i].attrs.n_rot * 4;
        TERN_TRY(
            gpu_buffer_new(p->device, GPU_USE_WORK, bytes, STORAGE, "angles", &d->angles[i], err));
    }
    for (int32_t pos = 0; pos < d->n_positions; pos += p->n_batch) {
        int32_t left = d->n_positions - pos;
        gpu_send_angles(in, d->angles, pos, pos, left < p->n_batch ? left : p->n_batch, false);
    }
    return TERN_OK;
}

static void close_group(gpu_drafts *d, tern_device *device) {
    if (d->group) device->api.BindGroupRelease(d->group);
    d->group = NULL;
}

static tern_status open_group(tern_instance *in, tern_error *err) {
    gpu_drafts *d = in->drafts;
    tern_device *device = in->plan->device;
    close_group(d, device);
    // The kernel does not use the first one, the parameters of a run.
    const wgpu_buffer buffers[] = {d->table, d->state, d->log, in->ids, d->table};
    wgpu_group_entry entries[5] = {{0}};
    for (uint32_t i = 0; i < 5; i++)
        entries[i] = (wgpu_group_entry){.binding = i, .buffer = buffers[i], .bytes = UINT64_MAX};
    const wgpu_group_desc desc = {
        .layout = device->layouts[GPU_DRAFT], .n_entries = 5, .entries = entries};
    d->group = device->api.DeviceCreateBindGroup(device->device, &desc);
    return gpu_check(device, "drafting", err);
}

// Frees what grows with the positions; its contents are lost.
static void close_positions(const tern_instance *in) {
    gpu_drafts *d = in->drafts;
    tern_device *device = in->plan->device;
    close_group(d, device);
    for (size_t i = 0; d->angles && i < in->plan->ropes.n; i++) {
        gpu_buffer_free(device, GPU_USE_WORK, d->angles[i]);
        d->angles[i] = NULL;
    }
    gpu_buffer_free(device, GPU_USE_WORK, d->state);
    gpu_buffer_free(device, GPU_USE_WORK, d->log);
    d->state = d->log = NULL;
    d->n_positions = 0;
}

// Room for runs up to n_positions. The groups of its runs are made when the next one is launched.
#define POSITIONS_AT_FIRST 1024
static tern_status make_positions(tern_instance *in, int32_t n_positions, tern_error *err) {
    gpu_drafts *d = in->drafts;
    tern_device *device = in->plan->device;
    if (n_positions <= d->n_positions) return TERN_OK;
    int32_t n = d->n_positions ? d->n_positions : POSITIONS_AT_FIRST;
    while (n < n_positions) n *= 2;
    gpu_instance_close_groups(in);
    gpu_drafts_forget(in);
    close_positions(in);
    uint64_t pages = (uint64_t)n / GPU_PAGE_POSITIONS * TERN_PAGE_GROUPS;
    d->state_bytes = sizeof(gpu_draft_state) + pages * sizeof(uint32_t);
    TERN_TRY(
        gpu_buffer_new(device, GPU_USE_WORK, d->state_bytes, STORAGE, "drafts", &d->state, err));
    TERN_TRY(gpu_buffer_new(device, GPU_USE_WORK, (uint64_t)n * sizeof(gpu_log), STORAGE, "drafts",
                            &d->log, err));
    d->n_positions = n;
    tern_status status = open_angles(in, err);
    if (status == TERN_OK) status = open_group(in, err);
    if (status != TERN_OK) close_positions(in); // the next batch tries again
    return status;
}

tern_status gpu_drafts_open(tern_instance *in, const tern_draft_table *t, tern_error *err) {
    tern_device *device = in->plan->device;
    gpu_drafts *d = tern_alloc(TERN_MEM_SESSION, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    gpu_drafts_close(in);
    in->drafts = d;
    d->pos = -1;
    tern_status status = TERN_OK;
    uint64_t bytes = (uint64_t)t->n_words * sizeof *t->words;
    const gpu_pipeline wanted = {
        .kernel = GPU_DRAFT,
        .constants = {{"BUCKETS", t->n_buckets}, {"ROW_WORDS", t->row_words}},
        .n_constants = 2};
    d->angles = tern_alloc_array(TERN_MEM_SESSION, in->plan->ropes.n + 1, sizeof *d->angles);
    if (!d->angles) TERN_TRY_GOTO(tern_fail_memory(err, in->plan->ropes.n * sizeof *d->angles));
    TERN_TRY_GOTO(gpu_pipeline_get(device, &wanted, &d->pipeline, err));
    TERN_TRY_GOTO(gpu_buffer_new(device, GPU_USE_WORK, bytes, STORAGE, "drafts", &d->table, err));
    gpu_send(device, d->table, 0, t->words, bytes);
    return TERN_OK;
fail:
    gpu_drafts_close(in);
    return status;
}

void gpu_drafts_close(tern_instance *in) {
    gpu_drafts *d = in->drafts;
    if (!d) return;
    close_positions(in);
    gpu_buffer_free(in->plan->device, GPU_USE_WORK, d->table);
    tern_free(d->angles);
    tern_free(d);
    in->drafts = NULL;
}

// ---- Submitting --------------------------------------------------------------------------------

bool gpu_drafts_can(const tern_instance *in, const gpu_request *b) {
    const tern_drafting *q = b->wants.drafting;
    if (gpu_page_pool_layout(in->page_pool)->fixed >= 0)
        return false;                              // wrong drafts would change them
    if (in->plan->n_host_tables > 0) return false; // whose rows the host sends
    return in->drafts && !in->profile && in->order.n_chunks == 1 && b->n_tokens == 1 &&
           b->n_outputs == 1 && b->wants.top_k == 1 && !b->logits && q->n_before > 0 &&
           q->n_each >= 2 && q->n_each <= GPU_FEW && q->n_each <= in->plan->n_batch &&
           q->n_each <= in->plan->chunk_rows && q->n_max >= q->n_each &&
           tern_sequence_room(b->chunks->sequence, b->first_pos + q->n_each) ==
               b->first_pos + q->n_each;
}

// How many runs follow a submission of n_runs: twice as many, as long as they take no more than
// some milliseconds, have room, and are likely to be wanted. `end`: where they begin at the latest.
static int32_t runs_after(const tern_instance *in, int32_t end, int32_t n_runs) {
    const gpu_drafts *d = in->drafts;
    const tern_drafting *q = d->request.wants.drafting;
    int32_t n = n_runs ? 2 * n_runs : 1;
    double wanted = q->n_wanted / d->tokens_each - n_runs;
    while (n > 1 && (n > RUNS_MAX || n * d->seconds > in->steps.seconds_max)) n /= 2;
    while (n > 0 && (end + n * d->n_each > d->room || n * d->n_each > q->n_max)) n--;
    return n_runs && n > wanted ? (int32_t)(wanted + 0.5) : n;
}

// The parameters of the first run, and the part of the log that a draft looks at: before `pos`.
static void send_state(const tern_instance *in) {
    const gpu_drafts *d = in->drafts;
    const tern_device *device = in->plan->device;
    const gpu_request *b = &d->request;
    const tern_drafting *q = b->wants.drafting;
    int32_t n = q->n_before < TERN_DRAFT_PREFIX_MAX ? q->n_before : TERN_DRAFT_PREFIX_MAX;
    if (n > b->first_pos) n = b->first_pos;
    int32_t first = b->first_pos - n;
    gpu_log log[TERN_DRAFT_PREFIX_MAX] = {{0}};
    for (int32_t i = 0; i < n; i++)
        log[i].id = i + 1 < n ? q->before[q->n_before - n + 1 + i] : b->ids[0];
    gpu_draft_state state = {
        .run = {.n_tokens = (uint32_t)q->n_each,
                .first_pos = (uint32_t)b->first_pos,
                .n_outputs = (uint32_t)q->n_each,
                .top_k = 1,
                .n_chunks = 1,
                .rows_before = (uint32_t)b->first_pos,
                .outputs_at = GPU_TABLE_AT(offsetof(gpu_draft_state, outputs))},
        .begins = 1,
        .first_known = (uint32_t)first};
    for (uint32_t i = 0; i < TERN_DRAFTING_MAX; i++) {
        state.outputs[i] = i;
        state.rows[i] = (gpu_row){i, GPU_TABLE_AT(sizeof state), 0, (uint32_t)q->n_each};
    }
    int32_t ids[GPU_FEW]; // places without a draft still need a token
    for (int i = 0; i < GPU_FEW; i++) ids[i] = b->ids[0];
    device->api.QueueWriteBuffer(device->queue, in->ids, 0, ids, (size_t)q->n_each * sizeof *ids);
    device->api.QueueWriteBuffer(device->queue, d->state, 0, &state, sizeof state);
    device->api.QueueWriteBuffer(device->queue, d->log, (uint64_t)first * sizeof *log, log,
                                 (size_t)n * sizeof *log);
}

// Sends the pages that the next runs may read and write; runs in flight are not disturbed.
static tern_status send_pages(tern_instance *in, tern_error *err) {
    const gpu_drafts *d = in->drafts;
    const tern_device *device = in->plan->device;
    size_t n = 0;
    TERN_TRY(gpu_table_pages(in, d->request.chunks->sequence, d->room, &n, err));
    device->api.QueueWriteBuffer(device->queue, d->state, sizeof(gpu_draft_state), in->tables,
                                 n * sizeof *in->tables);
    return TERN_OK;
}

static void encode_draft(const tern_instance *in, gpu_encoding *e) {
    gpu_encode_dispatch(in, e, in->drafts->pipeline, in->drafts->group, 1, 1, 1);
}

static void launch(tern_instance *in, const burst *b, bool begins, gpu_readback *to) {
    const gpu_drafts *d = in->drafts;
    tern_device *device = in->plan->device;
    gpu_encoding e = {.step = GPU_STEP_DRAFTS, .at_most = begins ? GPU_FIRST_DISPATCHES : 0};
    device->n_launches++;
    if (begins) encode_draft(in, &e);
    for (int32_t i = 0; i < b->n_runs; i++) {
        // Parts of the positions up to where this run may be; a workgroup without any returns.
        int32_t latest = b->end - (b->n_runs - i) * d->n_each;
        gpu_encode_dispatches(in, &e, latest - in->batch.first_pos, true, GPU_ALL_NODES);
        encode_draft(in, &e);
    }
    uint64_t bytes = (uint64_t)(b->end - b->first) * sizeof(gpu_log);
    gpu_encode_copy(in, &e, d->state, 0, to->buffer, 0, sizeof(gpu_draft_state));
    gpu_encode_copy(in, &e, d->log, (uint64_t)b->first * sizeof(gpu_log), to->buffer, LOG_AT,
                    bytes);
    gpu_encoding_submit(in, &e);
    gpu_readback_map(device, to, LOG_AT + bytes);
}

// The runs after those being waited for, which end between first + n_runs and `end`.
static void start_ahead(tern_instance *in) {
    gpu_drafts *d = in->drafts;
    gpu_readback *to = &in->readbacks[1 - in->now];
    burst b = {.n_runs = runs_after(in, d->now.end, d->now.n_runs),
               .first = d->request.first_pos + d->now.n_runs};
    b.end = d->now.end + b.n_runs * d->n_each;
    if (b.n_runs <= 0 || gpu_is_pending(to)) return;
    gpu_readback_unmap(in->plan->device, to);
    d->ahead = b;
    launch(in, &b, false, to);
}

void gpu_drafts_forget(tern_instance *in) {
    if (!in->drafts) return;
    in->drafts->pos = -1;
    in->drafts->ahead.n_runs = 0;
    in->drafts->busy = false;
}

tern_status gpu_drafts_submit(tern_instance *in, tern_error *err) {
    gpu_drafts *d = in->drafts;
    const gpu_request asked = in->batch, *b = &asked;
    int32_t n_each = b->wants.drafting->n_each, most = b->first_pos + 2 * RUNS_MAX * GPU_FEW;
    uint64_t version = tern_sequence_version(b->chunks->sequence);
    most = tern_sequence_room(b->chunks->sequence, most);
    TERN_TRY(make_positions(in, most, err));
    // Dispatches are chosen for this: a run.
    in->batch = (gpu_request){.kind = GPU_FEW_STEPS,
                              .n_tokens = n_each,
                              .n_outputs = n_each,
                              .wants.top_k = 1,
                              .first_pos = b->first_pos};
    gpu_set_chunk(in, 0);
    TERN_TRY(gpu_screen_prepare(in, err));
    TERN_TRY(gpu_instance_bind(in, 0, err));
    TERN_TRY(gpu_instance_add_step(in, GPU_STEP_DRAFTS, err));
    bool goes_on = d->pos == b->first_pos && d->id == b->ids[0] && d->n_each == n_each &&
                   d->version + 1 == version;
    d->request = *b;
    d->version = version;
    d->room = most;
    d->n_each = n_each;
    TERN_TRY(send_pages(in, err));
    d->busy = in->busy = true;
    gpu_expect_step(&in->steps, 0);
    if (goes_on && d->ahead.n_runs > 0) {
        in->now = 1 - in->now;
        d->now = d->ahead;
        // The position where that submission began is now known.
        d->now.end = b->first_pos + d->now.n_runs * d->n_each;
    } else {
        d->now = (burst){runs_after(in, b->first_pos, 0), b->first_pos, 0};
        d->tokens_each = 1;
        d->now.end = d->now.first + d->now.n_runs * d->n_each;
        d->started = tern_seconds();
        memset(d->counts, 0, sizeof d->counts);
        send_state(in);
        launch(in, &d->now, true, &in->readbacks[in->now]);
    }
    d->ahead.n_runs = 0;
    start_ahead(in);
    return gpu_check(in->plan->device, "submitting", err);
}

// ---- Reading back ------------------------------------------------------------------------------

static void take_counts(gpu_drafts *d, const gpu_draft_state *state) {
    tern_drafting *q = d->request.wants.drafting;
    for (int i = 0; i < TERN_DRAFTING_MAX; i++)
        for (int k = 0; k < TERN_DRAFTING_MAX; k++)
            q->counts[i][k] = state->counts[i][k] - d->counts[i][k];
    memcpy(d->counts, state->counts, sizeof d->counts);
}

uint64_t gpu_drafts_bytes(const tern_instance *in) {
    const burst *b = &in->drafts->now;
    return LOG_AT + (uint64_t)(b->end - b->first) * sizeof(gpu_log);
}

tern_status gpu_drafts_take(tern_instance *in, const void *results, tern_error *err) {
    gpu_drafts *d = in->drafts;
    const tern_device *device = in->plan->device;
    gpu_readback *r = &in->readbacks[in->now];
    const char *mapped = results;
    const gpu_request *b = &d->request;
    gpu_draft_state state;
    d->busy = false;
    d->pos = -1;
    memcpy(&state, mapped, sizeof state);
    int32_t n = (int32_t)state.run.first_pos - b->first_pos;
    bool right = n >= d->now.n_runs && n <= d->now.n_runs * d->n_each;
    for (int32_t i = 0; right && i < n; i++) {
        gpu_log entry;
        size_t at = (size_t)(b->first_pos + i - d->now.first) * sizeof entry;
        memcpy(&entry, mapped + LOG_AT + at, sizeof entry);
        b->wants.top_ids[i] = entry.id;
        b->wants.top_logits[i] = entry.logit;
    }
    gpu_readback_unmap(device, r);
    if (!right)
        return tern_fail(err, TERN_ERR_DEVICE, "the GPU says that %d runs of %d tokens gave %d",
                         (int)d->now.n_runs, (int)d->n_each, (int)n);
    double now = tern_seconds();
    d->seconds = (now - d->started) / d->now.n_runs;
    d->started = now; // of the next one
    d->tokens_each = (double)n / d->now.n_runs;
    d->pos = b->first_pos + n;
    d->id = b->wants.top_ids[n - 1];
    b->wants.drafting->n = n;
    b->wants.drafting->n_runs = d->now.n_runs;
    take_counts(d, &state);
    return TERN_OK;
}
