#include "runtime/runner.h"

#include "base/alloc.h"

// ---- Plans -------------------------------------------------------------------------------------
//
// Images have any size, and compiling a graph for each takes longer than running it on a small one.
// So plans stay, and one that takes a few more rows will do.

#define PLANS_KEPT 4 // without a user

static bool serves(const tern_placed_plan *p, int graph, int32_t n_rows) {
    return p->graph == graph && p->n_rows >= n_rows && p->n_rows <= n_rows + n_rows / 4;
}

static void free_plan(const tern_placement *at, tern_placed_plan *p) {
    if (!p) return;
    if (p->plan) at->backend->plan_free(p->plan);
    tern_free(p->weights);
    tern_free(p);
}

void tern_placement_free_plans(tern_placement *at) {
    for (tern_placed_plan *p = at->plans, *next; p; p = next) {
        next = p->next;
        free_plan(at, p);
    }
    at->plans = NULL;
}

static tern_placed_plan *find_plan(tern_placement *at, int graph, int32_t n_rows) {
    tern_mutex_lock(&at->pool);
    tern_placed_plan *p = at->plans;
    while (p && !serves(p, graph, n_rows)) p = p->next;
    if (p) {
        p->n_users++;
        p->used = ++at->n_plans_used;
    }
    tern_mutex_unlock(&at->pool);
    return p;
}

static tern_status compile(tern_placement *at, const tern_model *m, const tern_runner_desc *d,
                           tern_placed_plan *p, tern_error *err) {
    const tern_model_graph *of = &m->graphs[d->graph];
    const tern_graph *g = d->instead ? d->instead : &of->fused;
    TERN_TRY(tern_placement_weights(at, of, g->n_values, &p->weights, err));
    at->n_plans_compiled++;
    return at->backend->compile(at->device, g, p->weights, d->n_rows, &p->plan, err);
}

// While the device is in use.
static tern_status take_plan(tern_placement *at, const tern_model *m, const tern_runner_desc *d,
                             tern_placed_plan **out, tern_error *err) {
    if (!d->instead) *out = find_plan(at, d->graph, d->n_rows);
    if (*out) return TERN_OK;
    tern_placed_plan *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->graph = d->instead ? -1 : d->graph;
    p->n_rows = d->n_rows;
    p->n_users = 1;
    tern_status status = compile(at, m, d, p, err);
    if (status != TERN_OK) {
        free_plan(at, p);
        return status;
    }
    *out = p;
    if (d->instead) return TERN_OK;
    tern_mutex_lock(&at->pool);
    p->used = ++at->n_plans_used;
    p->next = at->plans;
    at->plans = p;
    tern_mutex_unlock(&at->pool);
    return TERN_OK;
}

// Takes the plan out of the list that has been unused for longest, if they are too many.
static tern_placed_plan *take_oldest(tern_placement *at) {
    size_t n = 0;
    tern_placed_plan **oldest = NULL;
    for (tern_placed_plan **p = &at->plans; *p; p = &(*p)->next) {
        if ((*p)->n_users > 0) continue;
        n++;
        if (!oldest || (*p)->used < (*oldest)->used) oldest = p;
    }
    if (n <= PLANS_KEPT) return NULL;
    tern_placed_plan *gone = *oldest;
    *oldest = gone->next;
    return gone;
}

static void give_plan(tern_placement *at, tern_placed_plan *p) {
    if (p->graph < 0) {
        free_plan(at, p);
        return;
    }
    tern_mutex_lock(&at->pool);
    p->n_users--;
    tern_placed_plan *gone = take_oldest(at);
    tern_mutex_unlock(&at->pool);
    free_plan(at, gone);
}

// ---- Opening -----------------------------------------------------------------------------------

static void begin_use(const tern_runner *r) {
    if (r->at) tern_placement_begin_use(r->at);
}
static void end_use(const tern_runner *r) {
    if (r->at) tern_placement_end_use(r->at);
}

tern_status tern_runner_open_plan(tern_runner *r, const tern_backend *backend, tern_plan *plan,
                                  const tern_graph *g, const tern_cache_desc *desc,
                                  tern_error *err) {
    r->backend = backend;
    TERN_TRY(tern_cache_open(&r->cache, backend, plan, g, desc, err));
    TERN_TRY(tern_sequence_open(&r->sequence, r->cache, err));
    return backend->instance_open(plan, tern_cache_page_pool(r->cache), &r->instance, err);
}

static tern_status open_there(tern_runner *r, const tern_runner_desc *d, tern_error *err) {
    const tern_graph *g = d->instead ? d->instead : &r->model->graphs[d->graph].fused;
    tern_cache_desc cache = {.n_context = d->n_context};
    TERN_TRY(tern_kv_choose(g, d->n_context, d->kv_type, &cache.kv_type, err));
    if (d->n_rows > 0) TERN_TRY(take_plan(r->at, r->model, d, &r->plan, err));
    tern_plan *plan = r->plan ? r->plan->plan : r->at->graphs[d->graph].plan;
    return tern_runner_open_plan(r, r->at->backend, plan, g, &cache, err);
}

tern_status tern_runner_open(tern_runner *r, tern_model *m, const tern_runner_desc *desc,
                             tern_error *err) {
    *r = (tern_runner){.model = m};
    TERN_TRY(tern_placement_hold(m, &r->at, err));
    begin_use(r);
    tern_status status = open_there(r, desc, err);
    end_use(r);
    return status;
}

void tern_runner_close(tern_runner *r) {
    tern_runner_cancel(r);
    begin_use(r);
    if (r->instance) r->backend->instance_close(r->instance);
    tern_sequence_close(r->sequence);
    tern_cache_close(r->cache);
    if (r->plan) give_plan(r->at, r->plan);
    end_use(r);
    if (r->at) tern_placement_let_go(r->model, r->at);
    *r = (tern_runner){0};
}

// ---- Running -----------------------------------------------------------------------------------

// Makes room for the batch's tokens, in one chunk at first_pos.
static tern_status place(tern_runner *r, int32_t first_pos, tern_error *err) {
    tern_batch *b = &r->batch;
    r->first_pos = first_pos;
    if (!r->sequence || b->n_tokens == 0) return TERN_OK; // no states, or a graph without tokens
    int32_t n_left, length = tern_sequence_length(r->sequence);
    if (first_pos > length) {
        TERN_TRY(tern_sequence_reserve(r->sequence, first_pos, err));
        tern_sequence_advance(r->sequence, first_pos);
    }
    TERN_TRY(tern_sequence_cut(r->sequence, first_pos, &n_left, err));
    if (n_left != first_pos)
        return tern_fail(err, TERN_ERR_ARGUMENT, "position %d cannot be gone back to",
                         (int)first_pos);
    TERN_TRY(tern_sequence_reserve(r->sequence, first_pos + b->n_tokens, err));
    r->chunk = (tern_chunk){.sequence = r->sequence,
                            .n_tokens = b->n_tokens,
                            .first_pos = first_pos,
                            .has_ends = b->ends != NULL};
    b->chunks = &r->chunk;
    b->n_chunks = 1;
    return TERN_OK;
}

// After a batch: the timeline holds its tokens or, after a failure, unknown states.
static void settle(const tern_runner *r, bool ok) {
    if (!r->sequence) return;
    if (ok)
        tern_sequence_advance(r->sequence, r->first_pos + r->batch.n_tokens);
    else
        tern_sequence_abandon(r->sequence);
}

tern_status tern_runner_begin(tern_runner *r, const tern_batch *batch, int32_t first_pos,
                              tern_error *err) {
    r->batch = *batch;
    r->n_pieces = 0;
    if (r->model) r->batch.piece_work = r->model->piece_work;
    begin_use(r);
    tern_status status = place(r, first_pos, err);
    if (status == TERN_OK) {
        status = r->backend->submit(r->instance, &r->batch, err);
        if (status != TERN_OK) settle(r, false);
    }
    end_use(r);
    r->is_busy = status == TERN_OK;
    return status;
}

tern_status tern_runner_poll(tern_runner *r, bool *done, tern_error *err) {
    *done = !r->is_busy;
    if (*done) return TERN_OK;
    tern_status status = tern_check_cancelled("the computation", err);
    if (status != TERN_OK) {
        tern_runner_cancel(r);
        return status;
    }
    begin_use(r);
    r->n_pieces++;
    status = r->backend->poll(r->instance, done, err);
    if (*done || status != TERN_OK) settle(r, status == TERN_OK);
    end_use(r);
    r->is_busy = status == TERN_OK && !*done;
    return status;
}

void tern_runner_cancel(tern_runner *r) {
    if (!r->is_busy) return;
    begin_use(r);
    r->backend->cancel(r->instance);
    settle(r, false);
    end_use(r);
    r->is_busy = false;
}

tern_status tern_runner_wait(tern_runner *r, const tern_batch *batch, int32_t first_pos,
                             tern_error *err) {
    TERN_TRY(tern_runner_begin(r, batch, first_pos, err));
    for (bool done = false; !done;) TERN_TRY(tern_runner_poll(r, &done, err));
    return TERN_OK;
}

tern_status tern_runner_trace(tern_runner *r, const tern_batch *batch, int32_t first_pos,
                              tern_tap_fn on_value, void *ctx, tern_error *err) {
    r->batch = *batch;
    begin_use(r);
    tern_status status = place(r, first_pos, err);
    if (status == TERN_OK) {
        status = r->backend->trace(r->instance, &r->batch, on_value, ctx, err);
        settle(r, status == TERN_OK);
    }
    end_use(r);
    return status;
}
