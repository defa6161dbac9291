// The pass of a teacher that writes its cache (teacher_cache.c). It comes before the student's
// arrays are made, so that the two need not fit in memory at once. It goes over the windows of the
// text in their order, then over those held out that are validated with.
#include <errno.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/os/os_file.h"
#include "base/os/os_memory.h"
#include "train/trainer.h"

static tern_status fail_write(const tern_teacher_cache *c, tern_error *err) {
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", c->path, strerror(errno));
}

// ---- The teacher, alone on the device ----------------------------------------------------------

typedef struct pass {
    tern_trainer *t;
    tern_graph graph;
    tern_train_array **arrays; // by value
    tern_program *program;
    tern_train_array *top;
    int out;
} pass;

static tern_status load_value(pass *p, tern_vid v, tern_error *err) {
    tern_trainer *t = p->t;
    tern_teacher *h = t->teacher;
    const tern_value *value = &p->graph.values[v];
    bool has_array = value->kind == TERN_VALUE_WEIGHT || value->kind == TERN_VALUE_STATE;
    if (!has_array || p->arrays[v]) return TERN_OK;
    tern_slot s = {.name = value->name,
                   .n_rows = (uint64_t)value->rows,
                   .n_cols = (uint64_t)value->cols,
                   .codes_bytes = value->codes_bytes};
    tern_status status = TERN_OK;
    if (!s.codes_bytes)
        status = t->backend->array_new(t->device, s.n_rows * s.n_cols, &s.array, err);
    if (status == TERN_OK && value->kind == TERN_VALUE_WEIGHT)
        status = tern_frozen_load(t, &h->frozen, &h->graph, v, &s, err);
    p->arrays[v] = s.array;
    if (value->kind == TERN_VALUE_STATE) p->top = s.array;
    return status;
}

// As the plan of a run does: before anything is taken.
static tern_status check_memory(const pass *p, tern_error *err) {
    const tern_trainer *t = p->t;
    const tern_train_backend *backend = t->backend;
    const uint64_t available = tern_memory_available();
    tern_program *program;
    TERN_TRY(backend->compile(t->device, &p->graph, NULL, t->desc.micro_tokens, t->desc.seq_len,
                              &program, err));
    const tern_program_bytes takes = backend->program_bytes(program);
    uint64_t bytes = 0, all = takes.own + takes.shared;
    backend->program_free(program);
    for (size_t v = 0; v < p->graph.n_values; v++) {
        const tern_value *x = &p->graph.values[v];
        if (x->kind != TERN_VALUE_WEIGHT && x->kind != TERN_VALUE_STATE) continue;
        uint64_t n = (uint64_t)x->rows * (uint64_t)x->cols;
        if (!x->is_coded) TERN_TRY(backend->array_bytes(t->device, n, &bytes, err));
        all += x->is_coded ? x->codes_bytes : bytes;
    }
    if (available == 0 || all <= available) return TERN_OK;
    return tern_fail(err, TERN_ERR_MEMORY,
                     "the teacher alone needs %.1f GB of memory and %.1f GB are free: fewer "
                     "micro_tokens need less",
                     (double)all * 1e-9, (double)available * 1e-9);
}

static tern_status load(pass *p, tern_error *err) {
    tern_trainer *t = p->t;
    const tern_graph *g = &p->graph;
    const tern_top top = tern_teacher_cache_top(t);
    TERN_TRY(tern_frozen_lower(t, &t->teacher->frozen, &t->teacher->graph, err));
    TERN_TRY(tern_graph_copy(&p->graph, &t->teacher->graph, err));
    TERN_TRY(tern_graph_keep_top(&p->graph, &top, err));
    TERN_TRY(check_memory(p, err));
    p->arrays = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *p->arrays);
    if (!p->arrays) return tern_fail_memory(err, g->n_values * sizeof *p->arrays);
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) TERN_TRY(load_value(p, g->nodes[i].in[k], err));
    return t->backend->compile(t->device, g, p->arrays, t->desc.micro_tokens, t->desc.seq_len,
                               &p->program, err);
}

static void unload(pass *p) {
    const tern_train_backend *backend = p->t->backend;
    backend->program_free(p->program);
    for (size_t v = 0; p->arrays && v < p->graph.n_values; v++) backend->array_free(p->arrays[v]);
    tern_free(p->arrays);
    tern_graph_free(&p->graph);
}

// ---- Windows -----------------------------------------------------------------------------------

// The caller hears of it, and may stop it.
static tern_status tell(const tern_trainer *t, uint64_t n_done, tern_error *err) {
    const tern_teacher_cache *c = t->teacher->cache;
    tern_train_event e = tern_trainer_event(t);
    e.cache_bytes = tern_teacher_cache_place(c, c->n);
    e.cache_share = (double)tern_teacher_cache_place(c, n_done) / (double)e.cache_bytes;
    bool goes_on = !t->desc.on_event || t->desc.on_event(t->desc.user, &e);
    if (goes_on && !tern_is_cancelled()) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED,
                     "train: stopped at window %llu of %llu in %s; the same run goes on from there",
                     (unsigned long long)n_done, (unsigned long long)c->n, c->path);
}

// Adds a window, whose rows begin at the device's row *at.
static tern_status add_window(pass *p, uint64_t window, int32_t row, uint64_t *at,
                              tern_error *err) {
    const tern_trainer *t = p->t;
    tern_teacher_cache *c = t->teacher->cache;
    uint64_t n = tern_teacher_cache_rows(c, window), width = tern_teacher_cache_width(c);
    if (n > 0) TERN_TRY(t->backend->read(p->top, *at * width, n * width, c->rows, err));
    *at += n;
    if (!tern_teacher_cache_are_sound(t, n))
        return tern_fail(err, TERN_ERR_DEVICE,
                         "%s: its logits are not finite in window %llu of the text",
                         t->desc.teacher, (unsigned long long)window);
    const uint32_t sum = tern_teacher_cache_sum(t, n, row);
    memcpy(c->rows + n * width, &sum, sizeof sum);
    uint64_t n_bytes = n * width * sizeof *c->rows + sizeof sum;
    return tern_fd_write(p->out, c->rows, n_bytes) ? TERN_OK : fail_write(c, err);
}

static tern_status add_windows(pass *p, uint64_t first, uint64_t n, tern_error *err) {
    tern_trainer *t = p->t;
    int64_t n_scored = 0;
    uint64_t at = 0;
    for (uint64_t i = 0; i < n; i++)
        TERN_TRY(
            tern_teacher_cache_take(t, first + i, (int32_t)i * t->desc.seq_len, &n_scored, err));
    tern_train_batch b = tern_trainer_batch(t, 0, (int32_t)n * t->desc.seq_len);
    b.can_stop = true;
    b.seed = t->teacher->cache->seed;
    b.place = first * (uint64_t)t->desc.seq_len;
    TERN_TRY(t->backend->run(p->program, &b, err));
    for (uint64_t i = 0; i < n; i++)
        TERN_TRY(add_window(p, first + i, (int32_t)i * t->desc.seq_len, &at, err));
    return TERN_OK;
}

static tern_status run_pass(pass *p, uint64_t n_done, tern_error *err) {
    tern_trainer *t = p->t;
    const tern_teacher_cache *c = t->teacher->cache;
    const uint64_t each = (uint64_t)(t->desc.micro_tokens / t->desc.seq_len);
    TERN_TRY(tell(t, n_done, err));
    tern_status status = load(p, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, t->desc.teacher);
    while (n_done < c->n) {
        uint64_t n = c->n - n_done < each ? c->n - n_done : each;
        status = add_windows(p, n_done, n, err);
        if (status == TERN_OK) n_done += n;
        if (status != TERN_OK && status != TERN_ERR_CANCELLED) return status;
        TERN_TRY(tell(t, n_done, err));
    }
    return tern_fd_sync(p->out) ? TERN_OK : fail_write(c, err);
}

// ---- The file ----------------------------------------------------------------------------------

// The file as it is now that this process alone writes it. Another one may have begun it since it
// was looked at, or a killed one have left a part of its beginning.
static tern_status begin(tern_teacher_cache *c, int out, tern_error *err) {
    uint64_t size;
    if (c->fd >= 0) tern_fd_close(c->fd);
    TERN_TRY(tern_file_open_regular(&c->fd, c->path, &size, err));
    size_t n = size < c->head.len ? (size_t)size : c->head.len;
    char *there = tern_alloc(TERN_MEM_MISC, n + 1);
    if (!there) return tern_fail_memory(err, n);
    bool is_mine =
        tern_fd_read_at(c->fd, there, n, 0) == (int64_t)n && memcmp(there, c->head.ptr, n) == 0;
    tern_free(there);
    if (!is_mine)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: its beginning is damaged, or another run has written it meanwhile",
                         c->path);
    return tern_fd_write(out, c->head.ptr + n, c->head.len - n) ? TERN_OK : fail_write(c, err);
}

// Windows that are whole; the file is cut after them.
static tern_status find_done(tern_trainer *t, int out, uint64_t *n, tern_error *err) {
    const tern_teacher_cache *c = t->teacher->cache;
    for (*n = 0; *n < c->n; ++*n) {
        int64_t n_scored = 0;
        TERN_TRY(tern_teacher_cache_take(t, *n, 0, &n_scored, err));
        const tern_status status = tern_teacher_cache_read(t, *n, 0, err);
        if (status == TERN_ERR_FORMAT) break;
        TERN_TRY(status); // what cannot be read may be whole
    }
    return tern_fd_cut(out, tern_teacher_cache_place(c, *n)) ? TERN_OK : fail_write(c, err);
}

tern_status tern_teacher_cache_fill(tern_trainer *t, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    pass p = {.t = t, .out = -1};
    uint64_t n_done = 0;
    if (!c || c->is_whole) return TERN_OK;
    if (t->desc.comm && t->desc.comm->size > 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: one process writes it: several read it when it is complete", c->path);
    TERN_TRY(tern_plan_check(t, err)); // the pass is for a run that will fit
    TERN_TRY(tern_teacher_cache_plan(t, err));
    TERN_TRY(tern_file_open_log(&p.out, c->path, UINT64_MAX, false, err)); // locks
    tern_status status = begin(c, p.out, err);
    if (status == TERN_OK) status = find_done(t, p.out, &n_done, err);
    if (status == TERN_OK && n_done < c->n) status = run_pass(&p, n_done, err);
    c->is_whole = status == TERN_OK;
    unload(&p);
    tern_fd_close(p.out);
    return status;
}
