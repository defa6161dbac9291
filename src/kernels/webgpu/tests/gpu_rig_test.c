#include "kernels/webgpu/tests/gpu_rig_test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/single_test.h"
#include "kernels/webgpu/run/gpu_instance.h"
#include "tests/support/blobs.h"
#include "tests/library/webgpu/gpu_fixture.h"

// ---- Devices -----------------------------------------------------------------------------------

static struct {
    bool tried;
    tern_device *device;
    char why_not[512];
} opened[RIG_DEVICES + 1];
static int n_opened;

static const tern_backend *backend_of(rig_device which) {
    return which == RIG_CPU ? &tern_backend_cpu : &tern_backend_webgpu;
}

// At exit, but before the library's own exit handler, which was registered earlier.
static void close_devices(void) {
    for (int i = 0; i <= RIG_GPU_NULL; i++)
        if (opened[i].device) backend_of((rig_device)i)->close(opened[i].device);
}

static tern_device *device_of(rig_device which) {
    test_keeps_memory(); // the device stays open, with what it has made
    if (opened[which].tried) {
        gpu_webgpu(NULL); // ends a play that another test has left: answers come by themselves
        return opened[which].device;
    }
    opened[which].tried = true;
    tern_error err = {0};
    const gpu_play least = {.least = true}, null = {.null = true};
    tern_webgpu_desc webgpu = *gpu_webgpu(which == RIG_GPU_LEAST  ? &least
                                          : which == RIG_GPU_NULL ? &null
                                                                  : NULL);
    if (which == RIG_GPU_NULL) webgpu.group = -1; // there is nothing to try out
    tern_device_desc desc = {.cpu_features = "scalar", .webgpu = &webgpu};
    if (tern_backend_open(backend_of(which), &opened[which].device, &desc, &err) != TERN_OK)
        memcpy(opened[which].why_not, err.message, sizeof err.message);
    else if (n_opened++ == 0)
        atexit(close_devices);
    gpu_webgpu(NULL); // the play is over
    if (which == RIG_GPU_NULL && opened[which].device)
        opened[which].device->alone_bytes = 0; // all kernels' texts
    return opened[which].device;
}

bool rig_set_products(tern_matmul_precision products) {
    tern_device *d = device_of(RIG_GPU);
    d->products = products;
    return d->matrix_half && d->workgroup_bytes_max >= GPU_GEMM_HALF_BYTES;
}

bool rig_has_gpu(void) {
    if (device_of(RIG_GPU)) return true;
    const char *why = opened[RIG_GPU].why_not;
    if (!gpu_is_absent(why)) CHECK_MSG(false, "%s", why);
    return false;
}

bool rig_rounds_quotients(void) { return device_of(RIG_GPU)->software; }

// ---- Problems ----------------------------------------------------------------------------------

void rig_open(rig *r, int64_t n_rows) {
    *r = (rig){.n_rows = n_rows, .seed = 7};
    tern_graph_init(&r->g);
    r->ids = tern_g_input(&r->g, "ids", tern_g_dim(&r->g, "tokens"), 1, TERN_VALUE_I32);
}

void rig_close(rig *r) {
    for (int i = 0; i < r->n_sources; i++) tern_free((void *)r->sources[i].data.memory);
    tern_free(r->shown);
    tern_graph_free(&r->g);
}

static tern_weight_source *add_source(rig *r, tern_vid v, tern_dtype type, int64_t n_rows,
                                      int64_t n_cols, rig_fill fill) {
    tern_weight_source *s = &r->sources[r->n_sources];
    uint64_t bytes = 0;
    if (r->n_sources == RIG_WEIGHTS ||
        !tern_dtype_bytes(type, (uint64_t)(n_rows * n_cols), (uint64_t)n_cols, &bytes))
        abort();
    float *row = tern_alloc_array(TERN_MEM_MISC, (size_t)n_cols, sizeof *row);
    char *data = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
    if (!row || !data) abort();
    for (int64_t i = 0; i < n_rows; i++) {
        fill(row, n_cols, i, &r->seed);
        char *to = data + (uint64_t)i * (bytes / (uint64_t)n_rows);
        if (type == TERN_DTYPE_F32)
            memcpy(to, row, (size_t)n_cols * sizeof *row);
        else if (!tern_dtype_encode(type, row, (size_t)n_cols, to))
            abort();
    }
    tern_free(row);
    r->vids[r->n_sources++] = v;
    *s = (tern_weight_source){.name = "weight",
                              .type = type,
                              .bytes = bytes,
                              .data = tern_blob_of(data, bytes),
                              .n_rows = n_rows,
                              .n_cols = n_cols};
    return s;
}

static const char *new_name(const rig *r, char *out) {
    snprintf(out, 32, "w%d", r->n_sources);
    return out;
}

tern_vid rig_table(rig *r, int64_t n_rows, int64_t n_cols, tern_dtype type, rig_fill fill) {
    char name[32];
    tern_vid v = tern_g_table(&r->g, new_name(r, name), n_rows, n_cols);
    add_source(r, v, type, n_rows, n_cols, fill)->is_table = true;
    return v;
}

tern_vid rig_rows_of(rig *r, int64_t n_cols, tern_dtype type, rig_fill fill) {
    return tern_g_embed(&r->g, r->ids, rig_table(r, r->n_rows, n_cols, type, fill));
}

tern_vid rig_host_rows(rig *r, int64_t n_cols, tern_dtype type, rig_fill fill) {
    char name[32];
    tern_vid v = tern_g_host_table(&r->g, new_name(r, name), r->n_rows, n_cols);
    tern_weight_source *s = add_source(r, v, type, r->n_rows, n_cols, fill);
    s->is_table = s->on_host = true;
    return tern_g_embed(&r->g, r->ids, v);
}

tern_vid rig_parts(rig *r, int32_t n_parts, int32_t n_read, int64_t n_out, int64_t n_in,
                   tern_dtype type, rig_fill fill) {
    char name[32];
    tern_vid v = tern_g_parts(&r->g, new_name(r, name), n_parts, n_out, n_in);
    tern_weight_source *s = add_source(r, v, type, n_parts * n_out, n_in, fill);
    s->is_matrix = true;
    s->n_parts = n_parts;
    s->n_parts_read = n_read;
    return v;
}

tern_vid rig_rows(rig *r, int64_t n_cols, rig_fill fill) {
    return rig_rows_of(r, n_cols, TERN_DTYPE_F32, fill);
}

tern_vid rig_odd_rows(rig *r, int64_t n_cols, rig_fill fill) {
    int64_t n = (n_cols + 3) / 4 * 4;
    tern_vid x = rig_rows(r, n, fill);
    return n == n_cols ? x : tern_g_columns(&r->g, x, n, 0, n_cols);
}

tern_vid rig_vector(rig *r, int64_t n, rig_fill fill) {
    char name[32];
    tern_vid v = tern_g_vector(&r->g, new_name(r, name), n);
    add_source(r, v, TERN_DTYPE_F32, 1, n, fill);
    return v;
}

tern_vid rig_array(rig *r, int64_t n_rows, int64_t n_cols, rig_fill fill) {
    char name[32];
    tern_vid v = tern_g_array(&r->g, new_name(r, name), n_rows, n_cols);
    add_source(r, v, TERN_DTYPE_F32, n_rows, n_cols, fill);
    return v;
}

tern_vid rig_matrix(rig *r, int64_t n_out, int64_t n_in, tern_dtype type, bool ternary,
                    rig_fill fill) {
    char name[32];
    tern_vid v = tern_g_matrix(&r->g, new_name(r, name), n_out, n_in);
    tern_weight_source *s = add_source(r, v, type, n_out, n_in, fill);
    s->is_matrix = true;
    s->as_floats = tern_dtype_group_n(type) == 0; // the CPU may have int8 where the GPU has floats
    s->ternarize = ternary;
    r->has_ternary = r->has_ternary || ternary;
    return v;
}

void rig_give(rig *r, const char *name, int32_t n_outputs, rig_fill fill) {
    tern_vid v = tern_graph_find(&r->g, name);
    const tern_value *w = &r->g.values[v];
    add_source(r, v, TERN_DTYPE_F32, w->rows, w->cols, fill)->n_conv_outputs = n_outputs;
}

#define SHOWN_MAX 136
static void fill_pick(float *x, int64_t n, int64_t row, uint32_t *seed) {
    memset(x, 0, (size_t)n * sizeof *x);
    int64_t most = n < SHOWN_MAX ? n : n > 8192 ? 12 : SHOWN_MAX, ends = most * 3 / 8;
    int64_t at = n <= SHOWN_MAX || row < ends ? row
                 : row < 2 * ends             ? n - 1 - (row - ends)
                                  : (int64_t)((double)n * (0.5 + 0.49 * (double)rig_random(seed)));
    x[at] = 1;
}

tern_vid rig_take_rows(rig *r, tern_vid x) {
    tern_vid rows = tern_g_input(&r->g, "outputs", tern_g_dim(&r->g, "outputs"), 1, TERN_VALUE_I32);
    return tern_g_take_rows(&r->g, x, rows);
}

void rig_show(rig *r, tern_vid x) {
    int64_t n = r->g.values[x].cols;
    r->n_shown = n < SHOWN_MAX ? n : n > 8192 ? 12 : SHOWN_MAX;
    tern_vid head = rig_matrix(r, r->n_shown, n, TERN_DTYPE_F32, false, fill_pick);
    r->sources[r->n_sources - 1].is_head = true;
    tern_g_output(&r->g, tern_g_linear(&r->g, rig_take_rows(r, x), head), "logits");
}

void rig_output(rig *r, tern_vid x) {
    r->n_shown = r->g.values[x].cols;
    r->is_direct = true;
    tern_g_output(&r->g, x, "shown");
}

void rig_head(rig *r, tern_vid x, int64_t n_vocab, tern_dtype type, rig_fill fill) {
    rig_capped_head(r, x, n_vocab, type, fill, 0);
}

void rig_capped_head(rig *r, tern_vid x, int64_t n_vocab, tern_dtype type, rig_fill fill,
                     float cap) {
    tern_vid head = rig_matrix(r, n_vocab, r->g.values[x].cols, type, false, fill);
    r->sources[r->n_sources - 1].is_head = true;
    r->n_shown = n_vocab;
    tern_vid logits = tern_g_capped_linear(&r->g, rig_take_rows(r, x), head, cap);
    tern_g_output(&r->g, logits, "logits");
    tern_g_output(&r->g, tern_g_top_k(&r->g, logits), "top_k");
}

// ---- Running -----------------------------------------------------------------------------------

size_t rig_cases(size_t n_all, size_t n_short) { return test_is_long() ? n_all : n_short; }
rig_batches rig_counts(void) {
    if (!test_is_long()) return (rig_batches){.n_tokens = {1, 3, 8, 9}};
    return (rig_batches){.n_tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 130}};
}

void rig_take_down(rig_machine *m) {
    if (m->single.backend) tern_single_close(&m->single);
    if (m->plan) m->b->plan_free(m->plan);
    for (size_t i = 0; m->weights && i < m->n_weights; i++)
        if (m->weights[i]) m->b->unbind(m->d, m->weights[i]);
    free(m->weights);
    tern_graph_free(&m->g);
}

static tern_status bind_all(rig_machine *m, const rig *r, tern_weight_kind *kinds,
                            tern_error *err) {
    TERN_TRY(m->b->tune(m->d, r->sources, (size_t)r->n_sources, err));
    for (int i = 0; i < r->n_sources; i++) {
        tern_weight_info info;
        TERN_TRY(tern_backend_bind(m->b, m->d, &r->sources[i], &m->weights[r->vids[i]], err));
        m->b->weight_info(m->weights[r->vids[i]], &info);
        kinds[r->vids[i]] = info.kind;
    }
    return TERN_OK;
}

tern_status rig_set_up(rig_machine *m, const rig *r, rig_device which, bool fused, int32_t n_batch,
                       int32_t n_context, tern_kv_type kv_type, tern_error *err) {
    *m = (rig_machine){.b = backend_of(which), .d = device_of(which), .n_weights = r->g.n_values};
    if (!m->d) return tern_fail(err, TERN_ERR_DEVICE, "%s", opened[which].why_not);
    // The CPU's device is another struct, and screens no head.
    if (which >= RIG_GPU) m->d->screen_bytes_min = r->screens ? 0 : UINT64_MAX;
    // Room for the values that the passes add, which are not weights.
    m->weights = calloc(r->g.n_values * 2 + 64, sizeof *m->weights);
    tern_weight_kind *kinds = calloc(r->g.n_values, sizeof *kinds);
    if (!m->weights || !kinds) abort();
    tern_status status = bind_all(m, r, kinds, err);
    if (status == TERN_OK) status = tern_graph_copy(&m->g, &r->g, err);
    if (status == TERN_OK) status = tern_pass_lower(&m->g, kinds, err);
    if (status == TERN_OK && fused) status = tern_pass_fuse(&m->g, err);
    free(kinds);
    TERN_TRY(status);
    TERN_TRY(m->b->compile(m->d, &m->g, m->weights, n_batch, &m->plan, err));
    const tern_cache_desc desc = {.kv_type = kv_type, .n_context = n_context};
    return tern_single_open(&m->single, m->b, m->plan, &m->g, &desc, err);
}

// Rows of the tables in another order than the tokens.
static void make_ids(const rig *r, int32_t first, int32_t n, int32_t *ids) {
    for (int32_t i = 0; i < n; i++) ids[i] = (int32_t)(((first + i) * 7 + 3) % r->n_rows);
}

// Image ends of n rows from a position on. False: none of the rows is in an image.
static bool put_ends(const rig_batches *how, int32_t first, int32_t n, int32_t *ends) {
    bool any = false;
    memset(ends, 0, (size_t)n * sizeof *ends);
    for (int k = 0; k < RIG_SPANS && how->spans[k][1] > 0; k++)
        for (int32_t p = how->spans[k][0]; p < how->spans[k][1]; p++) {
            if (p < first || p >= first + n) continue;
            ends[p - first] = how->spans[k][1];
            any = true;
        }
    return any;
}

static int32_t n_tokens_of(rig_batches how, int32_t *most) {
    int32_t n = 0;
    for (int i = 0; i < RIG_BATCHES && how.n_tokens[i] > 0; i++) {
        n += how.n_tokens[i];
        if (how.n_tokens[i] > *most) *most = how.n_tokens[i];
    }
    return n;
}

float *rig_run(rig *r, rig_device device, rig_batches how, bool fused) {
    tern_error err = {0};
    rig_machine m;
    int32_t most = 0, n = n_tokens_of(how, &most), at = 0;
    float *out = tern_alloc_array(TERN_MEM_MISC, (size_t)(n * r->n_shown), sizeof *out);
    int32_t *ids = tern_alloc_array(TERN_MEM_MISC, 2 * (size_t)most, sizeof *ids);
    if (!out || !ids) abort();
    tern_status status =
        rig_set_up(&m, r, device, fused, most, how.first_pos + n + 1, how.kv_type, &err);
    for (int i = 0; status == TERN_OK && at < n; at += how.n_tokens[i++]) {
        int32_t now = how.n_tokens[i];
        int32_t wanted = how.n_outputs > 0 && how.n_outputs < now ? how.n_outputs : now;
        make_ids(r, at, now, ids);
        tern_batch batch = {.ids = ids, .n_tokens = now, .n_outputs = wanted};
        tern_vid v = r->is_direct ? tern_graph_find(&m.g, "shown") : tern_graph_scores(&m.g);
        tern_batch_bind(&batch, v, out + (at + now - wanted) * r->n_shown);
        // A graph that reads a text as a whole begins again with each batch.
        int32_t pos = how.first_pos + (r->is_direct ? 0 : at), *ends = ids + most;
        if (put_ends(&how, pos, now, ends)) batch.ends = ends;
        status = tern_single_run(&m.single, &batch, pos, &err);
    }
    rig_take_down(&m);
    tern_free(ids);
    CHECK_MSG(status == TERN_OK, "%s: %s", m.b->name, err.message);
    if (status == TERN_OK) return out;
    tern_free(out);
    return NULL;
}

bool rig_run_top(rig *r, rig_device device, int32_t n, int32_t k, int32_t *ids, float *logits) {
    tern_error err = {0};
    rig_machine m;
    int32_t *in = tern_alloc_array(TERN_MEM_MISC, (size_t)n, sizeof *in);
    if (!in) abort();
    make_ids(r, 0, n, in);
    tern_batch batch = {.ids = in,
                        .n_tokens = n,
                        .n_outputs = n,
                        .wants.top_k = k,
                        .wants.top_ids = ids,
                        .wants.top_logits = logits};
    tern_status status = rig_set_up(&m, r, device, true, n, n, TERN_KV_F32, &err);
    uint64_t before = device != RIG_CPU && m.d ? m.d->bytes_read : 0;
    if (status == TERN_OK) status = tern_single_run(&m.single, &batch, 0, &err);
    r->bytes_read = device != RIG_CPU && m.d ? m.d->bytes_read - before : 0;
    rig_take_down(&m);
    tern_free(in);
    CHECK_MSG(status == TERN_OK, "%s: %s", m.b->name, err.message);
    return status == TERN_OK;
}

// Tokens at first .. first + n - 1, in one batch of this sequence, which remembers its states after
// `kept` positions if that is among them.
static tern_status run_on(rig_machine *m, const rig *r, tern_sequence *s, int32_t first, int32_t n,
                          int32_t kept, float *rows, tern_error *err) {
    int32_t ids[64];
    tern_chunk chunk;
    tern_single *on = &m->single;
    make_ids(r, first, n, ids);
    tern_batch batch = {.ids = ids, .n_tokens = n, .n_outputs = n};
    tern_batch_bind(&batch, tern_graph_scores(&m->g), rows);
    on->sequence = s;
    TERN_TRY(tern_single_place(on, &batch, &chunk, first, err));
    if (kept > first && kept < first + n) {
        chunk.kept_after = kept - first;
        TERN_TRY(tern_sequence_snapshot(s, kept, false, &chunk.kept, &chunk.keeps, err));
    }
    tern_status status = m->b->submit(on->instance, &batch, err);
    for (bool done = false; status == TERN_OK && !done;)
        status = m->b->poll(on->instance, &done, err);
    if (status == TERN_OK) tern_sequence_advance(s, first + n);
    return status;
}

#define REPLAY_MORE 3
static tern_status replay(rig_machine *m, const rig *r, int32_t n, int32_t kept, float *rows[4],
                          tern_error *err) {
    tern_sequence *first = m->single.sequence, *fork = NULL;
    int32_t left = -1;
    TERN_TRY(run_on(m, r, first, 0, n, kept, rows[0], err));
    TERN_TRY(tern_sequence_fork(first, n, &fork, err));
    tern_status status = tern_sequence_cut(first, kept, &left, err);
    CHECK_MSG(status != TERN_OK || left == kept, "went back to %d, not %d", (int)left, (int)kept);
    if (status == TERN_OK) status = run_on(m, r, first, kept, 1, 0, rows[3], err);
    if (status == TERN_OK && n > kept + 1)
        status = run_on(m, r, first, kept + 1, n - kept - 1, 0, rows[3] + r->n_shown, err);
    if (status == TERN_OK) status = tern_sequence_swap_out(first, err);
    if (status == TERN_OK) status = tern_sequence_swap_in(first, err);
    if (status == TERN_OK) status = run_on(m, r, first, n, REPLAY_MORE, 0, rows[2], err);
    if (status == TERN_OK) status = run_on(m, r, fork, n, REPLAY_MORE, 0, rows[1], err);
    m->single.sequence = first;
    tern_sequence_close(fork);
    return status;
}

void rig_replay(rig *r, rig_device device, int32_t n, int32_t kept) {
    tern_error err = {0};
    rig_machine m;
    if (!rig_has_gpu()) return;
    float *rows[4];
    size_t n_row = (size_t)r->n_shown;
    for (int i = 0; i < 4; i++) rows[i] = calloc((size_t)n * n_row, sizeof **rows);
    tern_status status = rig_set_up(&m, r, device, true, n, n + REPLAY_MORE, TERN_KV_F32, &err);
    if (status == TERN_OK) status = replay(&m, r, n, kept, rows, &err);
    rig_take_down(&m);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    CHECK_MSG(memcmp(rows[1], rows[2], REPLAY_MORE * n_row * sizeof **rows) == 0,
              "a fork, or a sequence that was out, goes on in another way");
    CHECK_MSG(memcmp(rows[0] + (size_t)kept * n_row, rows[3],
                     (size_t)(n - kept) * n_row * sizeof **rows) == 0,
              "position %d is not what was gone back to", (int)kept);
    for (int i = 0; i < 4; i++) free(rows[i]);
}

void rig_translate(rig *r) {
    tern_error err = {0};
    rig_machine m;
    tern_device *d = device_of(RIG_GPU_NULL);
    if (!d || !d->subgroups) {
        test_skip(d ? "the library's null device has no subgroups" : opened[RIG_GPU_NULL].why_not);
        return;
    }
    for (int kv = TERN_KV_F32; kv <= TERN_KV_Q8_0; kv++) {
        tern_status status = rig_set_up(&m, r, RIG_GPU_NULL, true, 16, 16, (tern_kv_type)kv, &err);
        rig_take_down(&m);
        bool is_odd = kv == TERN_KV_Q8_0 && status == TERN_ERR_UNSUPPORTED; // heads
        CHECK_MSG(status == TERN_OK || is_odd, "%s", err.message);
    }
}

// The greatest logit from a whole row, for which no step can have run ahead.
static tern_status step_by_row(rig_machine *m, const rig *r, tern_batch batch, int32_t pos,
                               rig_step *step, tern_error *err) {
    float *row = tern_alloc_array(TERN_MEM_MISC, (size_t)r->n_shown, sizeof *row);
    if (!row) abort();
    tern_batch_bind(&batch, tern_graph_scores(&m->g), row);
    batch.wants.top_k = 0;
    tern_status status = tern_single_run(&m->single, &batch, pos, err);
    *step = (rig_step){0, row[0]};
    for (int32_t i = 1; i < r->n_shown; i++)
        if (row[i] > step->logit) *step = (rig_step){i, row[i]};
    tern_free(row);
    return status;
}

bool rig_walk(rig *r, rig_device device, double seconds, rig_step *steps, int32_t n) {
    tern_error err = {0};
    rig_machine m;
    int32_t pos = 0;
    tern_status status = rig_set_up(&m, r, device, true, 1, n, TERN_KV_F16, &err);
    if (status == TERN_OK && seconds > 0) m.single.instance->steps.seconds_max = seconds;
    uint64_t before = status == TERN_OK ? m.d->n_launches : 0;
    for (int32_t i = 0; status == TERN_OK && i < n; i++) {
        int32_t id = i == 0 || i % 13 == 12 ? i : steps[i - 1].id;
        if (i == 31) pos = tern_sequence_cuts_freely(m.single.sequence) ? 5 : 0;
        tern_batch batch = {.ids = &id,
                            .n_tokens = 1,
                            .n_outputs = 1,
                            .wants.top_k = 1,
                            .wants.top_ids = &steps[i].id,
                            .wants.top_logits = &steps[i].logit,
                            .wants.few_ahead = seconds == 0};
        status = seconds < 0 ? step_by_row(&m, r, batch, pos, &steps[i], &err)
                             : tern_single_run(&m.single, &batch, pos, &err);
        pos++;
    }
    r->n_launches = status == TERN_OK ? m.d->n_launches - before : 0;
    rig_take_down(&m);
    CHECK_MSG(status == TERN_OK, "%s: %s", m.b->name, err.message);
    return status == TERN_OK;
}

static size_t bytes_of_pipelines(const tern_device *d) {
    if (!d) return 0;
    return d->pipelines_capacity * sizeof *d->pipelines + d->n_pipelines * sizeof **d->pipelines;
}

void rig_fail_allocations(rig *r) {
    tern_error err = {0};
    int32_t ids[9];
    float *out = calloc(9 * (size_t)r->n_shown, sizeof *out);
    const tern_batch batch = {.ids = ids, .n_tokens = 9, .n_outputs = 9};
    make_ids(r, 0, 9, ids);
    tern_status status = TERN_ERR_MEMORY;
    size_t before = tern_mem_get_stats().total_now, n = 0;
    const tern_device *d = device_of(RIG_GPU);
    size_t list = bytes_of_pipelines(d); // the device's own, of all tests so far
    while (status == TERN_ERR_MEMORY && n < 1000) {
        rig_machine m;
        tern_mem_fail_at(++n);
        status = rig_set_up(&m, r, RIG_GPU, true, 16, 16, TERN_KV_Q8_0, &err);
        if (status == TERN_OK) status = m.b->profile_start(m.single.instance, &err);
        if (status == TERN_ERR_UNSUPPORTED) status = TERN_OK; // no timestamps
        tern_batch now = batch;
        tern_batch_bind(&now, tern_graph_scores(&m.g), out);
        if (status == TERN_OK) status = tern_single_run(&m.single, &now, 0, &err);
        tern_mem_fail_at(0);
        rig_take_down(&m);
    }
    CHECK_MSG(status == TERN_OK && n > 10, "after %zu failures: %s", n, err.message);
    list = bytes_of_pipelines(d) - list;
    CHECK_MSG(tern_mem_get_stats().total_now < before + list + (64 << 10), "memory was lost");
    free(out);
}

// ---- Comparing ---------------------------------------------------------------------------------

static double greatest(const float *row, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)row[i]));
    return most;
}

// The errors of a row beyond the tolerance, except what a value on the edge of rounding may cause.
typedef struct row_errors {
    int64_t n_wrong, n_flips;
    double worst; // without flips
} row_errors;

static row_errors errors_of_row(const float *got, const float *want, int64_t n, rig_measure measure,
                                double tolerance) {
    const double step = 1.0 / 127;
    double most = greatest(want, n);
    row_errors e = {0};
    for (int64_t i = 0; i < n; i++) {
        double unit = measure == RIG_OF_ELEMENT ? fabs((double)want[i]) : most;
        double error = fabs((double)got[i] - (double)want[i]) / fmax(unit, 1e-30);
        bool flip = measure == RIG_QUANTIZED && error > 0.9 * step && error < 1.1 * step;
        e.n_flips += flip;
        if (!flip) e.worst = fmax(e.worst, error);
        if (!isfinite(got[i]) || (!flip && !(error <= tolerance))) e.n_wrong++;
    }
    bool row_flips = measure == RIG_BEHIND_QUANTIZED && e.n_wrong && e.worst < 2 * step;
    return row_flips ? (row_errors){.n_flips = n} : e;
}

static void compare(const rig *r, rig_device device, bool fused, const float *got, int32_t n_tokens,
                    rig_measure measure, double tolerance) {
    int64_t wrong = 0, flips = 0, first = -1, n = r->n_shown;
    double worst = 0;
    for (int32_t t = 0; t < n_tokens; t++) {
        row_errors e = errors_of_row(got + t * n, r->shown + t * n, n, measure, tolerance);
        wrong += e.n_wrong;
        flips += e.n_flips;
        worst = fmax(worst, e.worst);
        if (wrong && first < 0) first = t;
    }
    int64_t one_in = measure == RIG_BEHIND_QUANTIZED ? 8 : 200;
    CHECK_MSG(wrong == 0 && flips * one_in <= n_tokens * n,
              "%s%s: %lld of %lld values are wrong by up to %g, from token %lld on; %lld flips",
              device == RIG_GPU ? "GPU" : "GPU with the least limits", fused ? "" : ", not fused",
              (long long)wrong, (long long)(n_tokens * n), worst, (long long)first,
              (long long)flips);
}

void rig_compare(rig *r, rig_batches how, rig_measure measure, double tolerance) {
    int32_t most = 0, n = n_tokens_of(how, &most);
    if (!rig_has_gpu()) return;
    tern_free(r->shown);
    r->shown = rig_run(r, RIG_CPU, how, false);
    // Without integers the least device of a software adapter has the same kernels.
    int n_devices = r->has_ternary || test_is_long() ? RIG_DEVICES : RIG_GPU_LEAST;
    for (int i = RIG_GPU; r->shown && i < n_devices; i++)
        for (int fused = how.plain ? 0 : 1; fused < 2; fused++) {
            float *got = rig_run(r, (rig_device)i, how, fused);
            if (got) compare(r, (rig_device)i, fused, got, n, measure, tolerance);
            tern_free(got);
        }
}

// The same as `one`, by the kernels that several tokens share, or by those of a single token.
static void check_bits(rig *r, rig_device which, rig_batches together, bool alone, const float *one,
                       int64_t n) {
    tern_device *d = device_of(which);
    d->alone_bytes = alone ? UINT64_MAX : 0;
    float *got = rig_run(r, which, together, true);
    d->alone_bytes = GPU_ALONE_BYTES;
    int64_t n_other = 0;
    for (int64_t k = 0; one && got && k < n; k++)
        n_other += memcmp(one + k, got + k, sizeof *one) != 0;
    CHECK_MSG(n_other == 0, "device %d, %s: %lld of %lld values differ", which,
              alone ? "each alone" : "together", (long long)n_other, (long long)n);
    tern_free(got);
}

void rig_same_bits(rig *r, tern_kv_type kv_type, int32_t n_before) {
    rig_batches together = {.n_tokens = {n_before ? n_before : 1, 8, 3, 2}, .kv_type = kv_type};
    for (int i = 0; i < 4 && test_is_long(); i++) together.n_tokens[4 + i] = 4 + i;
    int32_t most = 0, n_tokens = n_tokens_of(together, &most);
    int end = test_is_long() ? RIG_DEVICES : RIG_GPU_LEAST;
    rig_batches single = {.n_tokens = {together.n_tokens[0]}, .kv_type = kv_type};
    for (int k = 1; k <= n_tokens - together.n_tokens[0]; k++) single.n_tokens[k] = 1;
    for (int i = RIG_GPU; rig_has_gpu() && i < end; i++) {
        float *one = rig_run(r, (rig_device)i, single, true);
        int64_t n = n_tokens * r->n_shown;
        check_bits(r, (rig_device)i, together, false, one, n);
        if (test_is_long()) check_bits(r, (rig_device)i, together, true, one, n);
        tern_free(one);
    }
}
