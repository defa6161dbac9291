// Where a model runs: a device, the weights bound to it, the plan compiled for it. Leases (lease.c)
// move from one to the next when a device is lost.
//
// With a device, the weights and every session's keys and values are lost, but the file is still
// open, and a lease keeps the tokens that its keys and values were computed from. So the model is
// placed again, on a new device of the same kind or, if that fails too, on the CPU, and each
// session that notices the loss recomputes its tokens there and continues. If that fails midway,
// for lack of memory say, the call fails and the next one resumes: a lease has the number of
// positions that its sequence holds, and a model without a placement looks for one again.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"

// ---- Opening -----------------------------------------------------------------------------------

static tern_status open_on(tern_placement *p, const tern_model *m, const tern_backend *backend,
                           tern_error *err) {
    tern_device_desc desc = m->device_desc;
    desc.only_hardware = p->is_automatic;
    p->backend = backend;
    return backend->open(&p->device, &desc, err);
}

// "auto" takes a GPU if there is one; else it keeps the reason.
static tern_status go_without(tern_placement *p, const tern_model *m, tern_status status,
                              const tern_error *why, tern_error *err) {
    if (!p->is_automatic || p->backend == &tern_backend_cpu || status == TERN_ERR_MEMORY) {
        if (err) *err = *why;
        return status;
    }
    if (p->device) p->backend->close(p->device);
    p->device = NULL;
    snprintf(p->remark, sizeof p->remark, "no GPU: %s", why->message);
    return open_on(p, m, &tern_backend_cpu, err);
}

tern_status tern_placement_begin(tern_placement **out, const tern_model *m, const char *device,
                                 tern_error *err) {
    *out = NULL;
    bool automatic = strcmp(device, "auto") == 0, on_cpu = strcmp(device, "cpu") == 0;
    if (!automatic && !on_cpu && strcmp(device, "webgpu") != 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "device \"%s\": expected cpu, webgpu or auto",
                         device);
    tern_placement *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    tern_turns_init(&p->busy);
    tern_mutex_init(&p->pool);
    p->is_automatic = automatic;
    tern_error why = {0};
    tern_status status = TERN_OK;
    p->weights = tern_alloc_array(TERN_MEM_GRAPH, m->n_weights + 1, sizeof *p->weights);
    if (!p->weights) {
        status = tern_fail_memory(err, m->n_weights * sizeof *p->weights);
        goto fail;
    }
    const tern_backend *wanted = on_cpu ? &tern_backend_cpu : &tern_backend_webgpu;
    status = open_on(p, m, wanted, &why);
    if (status != TERN_OK) TERN_TRY_GOTO(go_without(p, m, status, &why, err));
    *out = p;
    return TERN_OK;
fail:
    tern_placement_close(p, m);
    return status;
}

static tern_status poll_device(tern_placement *p, const tern_model *m, tern_error *err) {
    tern_error why = {0};
    tern_status status = p->backend->open_poll(p->device, &p->is_open, &why);
    if (status != TERN_OK) return go_without(p, m, status, &why, err);
    return p->is_open ? p->backend->tune(p->device, m->sources, m->n_weights, err) : TERN_OK;
}

// Whether the main graph reads it: other graphs do not run for each token.
static bool is_main(const tern_model *m, size_t weight) {
    const tern_model_graph *g = &m->graphs[0];
    for (size_t v = 0; v < g->built.n_values; v++)
        if (g->weights[v] == (int32_t)weight) return true;
    return false;
}

static void take_weight(tern_placement *p, const tern_model *m) {
    const tern_weight_source *s = &m->sources[p->n_bound];
    tern_weight_info info;
    p->backend->weight_info(p->weights[p->n_bound++], &info);
    p->bytes_bound = p->bytes_before += s->bytes;
    if (!info.keeps_source) tern_blob_drop(&s->data);
    if (is_main(m, p->n_bound - 1)) {
        p->bytes_per_token += info.bytes_per_token_greedy;
        p->bytes_per_token_logits += info.bytes_per_token;
    }
    if (s->is_head)
        p->head = info.layout;
    else if (info.kind != TERN_WEIGHT_FLOAT)
        p->ternary_layout = !p->ternary_layout || !strcmp(p->ternary_layout, info.layout)
                                ? info.layout
                                : "mixed groups";
}

// Begins with weight i, or continues. *left: bytes of it to be read; 0: it is bound.
static tern_status poll_weight(tern_placement *p, const tern_model *m, size_t i, uint64_t *left,
                               tern_error *err) {
    const tern_weight_source *s = &m->sources[i];
    *left = s->bytes;
    tern_status status = p->weights[i] ? p->backend->bind_poll(p->device, p->weights[i], left, err)
                                       : p->backend->bind(p->device, s, &p->weights[i], err);
    return status == TERN_ERR_IO ? tern_fail_prefix(err, status, s->name) : status;
}

// Continues with the next weight until graphs can be compiled with it; on the CPU it is bound then.
// *n: about how many bytes of it were read.
static tern_status settle_some(tern_placement *p, const tern_model *m, uint64_t *n,
                               tern_error *err) {
    size_t i = p->n_settled;
    uint64_t left;
    tern_weight_info info;
    *n = 0;
    if (!p->weights[i]) TERN_TRY(poll_weight(p, m, i, &left, err));
    p->backend->weight_info(p->weights[i], &info);
    if (!info.is_settled) {
        *n = m->sources[i].bytes;
        return poll_weight(p, m, i, &left, err);
    }
    p->n_settled++;
    if (!info.is_bound || p->n_bound != i) return TERN_OK;
    *n = m->sources[i].bytes;
    take_weight(p, m);
    return TERN_OK;
}

#define POLL_BYTES ((uint64_t)16 << 20) // of weights, at least, if the device takes them
tern_status tern_placement_poll(tern_placement *p, const tern_model *m, bool *done,
                                tern_error *err) {
    *done = false;
    if (!p->is_open) return poll_device(p, m, err);
    for (uint64_t sum = 0, n; sum < POLL_BYTES && p->n_settled < m->n_weights; sum += n)
        TERN_TRY(settle_some(p, m, &n, err));
    *done = p->n_settled == m->n_weights;
    return TERN_OK;
}

// Sends some of the weights that are not bound. *n: bytes read.
static tern_status send_some(tern_placement *p, const tern_model *m, uint64_t *n, tern_error *err) {
    uint64_t left, before = p->bytes_bound, all = m->sources[p->n_bound].bytes;
    TERN_TRY(poll_weight(p, m, p->n_bound, &left, err));
    if (left == 0)
        take_weight(p, m);
    else
        p->bytes_bound = p->bytes_before + all - (left < all ? left : all);
    *n = p->bytes_bound > before ? p->bytes_bound - before : left == 0;
    return TERN_OK;
}

tern_status tern_placement_go_to_cpu(tern_placement **p, const tern_model *m, tern_status status,
                                     tern_error *err) {
    bool faults =
        status == TERN_ERR_DEVICE || status == TERN_ERR_UNSUPPORTED || status == TERN_ERR_MEMORY;
    if (!faults || !(*p)->is_automatic || (*p)->backend == &tern_backend_cpu) return status;
    tern_error why = err ? *err : (tern_error){0};
    tern_placement_close(*p, m);
    TERN_TRY(tern_placement_begin(p, m, "cpu", err));
    snprintf((*p)->remark, sizeof(*p)->remark, "no GPU: %s", why.message);
    return TERN_OK;
}

tern_weight_kind tern_placement_kind(const tern_placement *p, size_t weight) {
    tern_weight_info info;
    p->backend->weight_info(p->weights[weight], &info);
    return info.kind;
}

// Values keep their numbers through the passes; new ones are only added at the end, and none of
// them is a weight.
tern_status tern_placement_weights(const tern_placement *p, const tern_model_graph *g,
                                   size_t n_values, tern_weight ***out, tern_error *err) {
    tern_weight **weights = tern_alloc_array(TERN_MEM_GRAPH, n_values + 1, sizeof *weights);
    *out = weights;
    if (!weights) return tern_fail_memory(err, n_values * sizeof *weights);
    for (size_t v = 0; v < g->built.n_values; v++)
        if (g->weights[v] >= 0) weights[v] = p->weights[g->weights[v]];
    return TERN_OK;
}

static tern_status compile_next(tern_placement *p, const tern_model *m, tern_error *err) {
    const tern_model_graph *g = &m->graphs[p->n_compiled];
    tern_placed_graph *to = &p->graphs[p->n_compiled];
    TERN_TRY(tern_placement_weights(p, g, g->fused.n_values, &to->weights, err));
    int32_t n_rows = g->n_rows > m->n_batch ? g->n_rows : m->n_batch;
    TERN_TRY(p->backend->compile(p->device, &g->fused, to->weights, n_rows, &to->plan, err));
    p->n_compiled++;
    return TERN_OK;
}

tern_status tern_placement_finish(tern_placement *p, const tern_model *m, bool *done,
                                  tern_error *err) {
    *done = false;
    if (p->n_compiled < m->n_graphs) return compile_next(p, m, err);
    for (uint64_t sum = 0, n = 1; sum < POLL_BYTES && n > 0 && p->n_bound < m->n_weights; sum += n)
        TERN_TRY(send_some(p, m, &n, err));
    if (p->n_bound < m->n_weights) return TERN_OK;
    for (int i = 0; i < m->n_graphs; i++) {
        TERN_TRY(p->backend->compile_poll(p->graphs[i].plan, done, err));
        if (!*done) return TERN_OK;
    }
    const char *guess = m->config.guess ? m->config.guess : "";
    snprintf(p->text, sizeof p->text, "%s%s%s%s%s%s%s", p->backend->describe(p->device),
             p->remark[0] ? " (" : "", p->remark, p->remark[0] ? ")" : "", guess[0] ? " (" : "",
             guess, guess[0] ? ")" : "");
    return TERN_OK;
}

void tern_placement_instance_close(const tern_placement *p, tern_placed_instance *r) {
    if (!r) return;
    if (r->instance) p->backend->instance_close(r->instance);
    tern_free(r->ids);
    tern_free(r->outputs);
    tern_free(r->chunks);
    tern_free(r->places);
    tern_free(r->ends);
    tern_free(r->rows);
    tern_free(r->gains);
    tern_free(r);
}

static void close_runs(tern_placement *p) {
    for (tern_placed_instance *r = p->instances, *next; r; r = next) {
        next = r->next;
        tern_placement_instance_close(p, r);
    }
    for (tern_placed_cache *c = p->caches, *next; c; c = next) {
        next = c->next;
        tern_cache_close(c->cache);
        tern_free(c);
    }
    p->instances = NULL;
    p->caches = NULL;
}

void tern_placement_give_back(tern_placement *p, const tern_model *m) {
    close_runs(p);
    tern_placement_free_plans(p);
    for (int i = 0; i < m->n_graphs; i++) {
        if (p->graphs[i].plan) p->backend->plan_free(p->graphs[i].plan);
        tern_free(p->graphs[i].weights);
        p->graphs[i] = (tern_placed_graph){0};
    }
    for (size_t w = 0; p->weights && w < m->n_weights; w++)
        if (p->weights[w]) p->backend->unbind(p->device, p->weights[w]);
    tern_free(p->weights);
    if (p->device) p->backend->close(p->device);
    p->weights = NULL;
    p->device = NULL;
}

void tern_placement_close(tern_placement *p, const tern_model *m) {
    if (!p) return;
    tern_placement_give_back(p, m);
    tern_turns_free(&p->busy);
    tern_mutex_free(&p->pool);
    tern_free(p);
}

// ---- Sharing a device --------------------------------------------------------------------------

void tern_placement_begin_use(tern_placement *p) {
    if (!p->backend->is_shared) tern_turns_take(&p->busy);
}
void tern_placement_end_use(tern_placement *p) {
    if (!p->backend->is_shared) tern_turns_give(&p->busy);
}

tern_status tern_placement_cache(tern_placement *p, const tern_model *m,
                                 const tern_cache_desc *desc, tern_cache **out, tern_error *err) {
    for (tern_placed_cache *c = p->caches; c; c = c->next)
        if (c->desc.kv_type == desc->kv_type && c->desc.n_context == desc->n_context) {
            *out = c->cache;
            return TERN_OK;
        }
    tern_placed_cache *c = tern_alloc(TERN_MEM_KV, sizeof *c);
    if (!c) return tern_fail_memory(err, sizeof *c);
    tern_status status =
        tern_cache_open(&c->cache, p->backend, p->graphs[0].plan, &m->graphs[0].fused, desc, err);
    if (status != TERN_OK) {
        tern_free(c);
        return status;
    }
    c->desc = *desc;
    c->next = p->caches;
    p->caches = c;
    *out = c->cache;
    return TERN_OK;
}

tern_status tern_placement_instance(const tern_placement *p, int32_t n_batch, tern_cache *cache,
                                    tern_placed_instance **out, tern_error *err) {
    size_t n = (size_t)n_batch;
    *out = NULL;
    tern_placed_instance *r = tern_alloc(TERN_MEM_SESSION, sizeof *r);
    if (!r) return tern_fail_memory(err, sizeof *r);
    r->cache = cache;
    r->ids = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *r->ids);
    r->outputs = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *r->outputs);
    r->chunks = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *r->chunks);
    tern_status status = TERN_OK;
    if (!r->ids || !r->outputs || !r->chunks) status = tern_fail_memory(err, n * sizeof *r->chunks);
    if (status == TERN_OK)
        status = p->backend->instance_open(p->graphs[0].plan, tern_cache_page_pool(cache),
                                           &r->instance, err);
    if (status == TERN_OK)
        *out = r;
    else
        tern_placement_instance_close(p, r);
    return status;
}

// The free instance last used for this sequence, or any free one of its cache.
static tern_placed_instance *find_free(const tern_placement *p, const tern_cache *cache,
                                       const tern_sequence *sequence) {
    tern_placed_instance *found = NULL;
    for (tern_placed_instance *r = p->instances; r; r = r->next) {
        if (r->is_taken || r->cache != cache) continue;
        if (!found || r->last == sequence) found = r;
    }
    return found;
}

tern_status tern_placement_take(tern_placement *p, int32_t n_batch, tern_cache *cache,
                                const tern_sequence *sequence, tern_placed_instance **out,
                                tern_error *err) {
    tern_mutex_lock(&p->pool);
    tern_placed_instance *r = find_free(p, cache, sequence);
    if (r) r->is_taken = true;
    tern_mutex_unlock(&p->pool);
    *out = r;
    if (r) return TERN_OK;
    TERN_TRY(tern_placement_instance(p, n_batch, cache, &r, err));
    r->is_taken = true;
    tern_mutex_lock(&p->pool);
    r->next = p->instances;
    p->instances = r;
    tern_mutex_unlock(&p->pool);
    *out = r;
    return TERN_OK;
}

void tern_placement_give(tern_placement *p, tern_placed_instance *r, const tern_sequence *last) {
    tern_mutex_lock(&p->pool);
    r->is_taken = false;
    r->last = last;
    tern_mutex_unlock(&p->pool);
}

// ---- Replacing ---------------------------------------------------------------------------------

// The fused graphs fit any device with the same weights ternary.
static tern_status check_kinds(const tern_model *m, const tern_placement *p, tern_error *err) {
    for (size_t w = 0; w < m->n_weights; w++)
        if (m->kinds[w] != tern_placement_kind(p, w))
            return tern_fail(err, TERN_ERR_DEVICE, "%s: %s has it in another form",
                             m->sources[w].name, p->backend->name);
    return TERN_OK;
}

static tern_status begin_next(tern_model *m, const char *device, const char *why, tern_error *err) {
    TERN_TRY(tern_placement_begin(&m->next, m, device, err));
    snprintf(m->next->remark, sizeof m->next->remark, "after a loss: %s", why);
    return TERN_OK;
}

// Replaces m->now, which was lost. May be a repeated attempt, since this fails when memory runs
// out.
static tern_status begin_move(tern_model *m, const char *why, tern_error *err) {
    tern_placement *lost = m->now;
    tern_status status = TERN_ERR_DEVICE;
    if (!lost->was_lost) m->n_losses++;
    lost->was_lost = true;
    if (lost->n_leases == 0) tern_placement_give_back(lost, m);
    if (m->n_losses < TERN_LOSSES_MAX) status = begin_next(m, lost->backend->name, why, err);
    return status == TERN_ERR_DEVICE ? begin_next(m, "cpu", why, err) : status;
}

static tern_status poll_next(tern_model *m, bool *done, tern_error *err) {
    tern_placement *p = m->next;
    if (p->n_settled == m->n_weights && p->is_open) return tern_placement_finish(p, m, done, err);
    bool bound;
    TERN_TRY(tern_placement_poll(p, m, &bound, err));
    return bound ? check_kinds(m, p, err) : TERN_OK;
}

static tern_status go_on_moving(tern_model *m, const char *why, bool *done, tern_error *err) {
    tern_placement *p = m->next;
    tern_status status = poll_next(m, done, err);
    if (status == TERN_OK && !*done) return TERN_OK;
    m->next = NULL;
    if (status == TERN_OK) {
        p->before = m->now;
        m->now = p;
        return TERN_OK;
    }
    *done = false;
    bool without_gpu = status == TERN_ERR_DEVICE && p->backend != &tern_backend_cpu;
    tern_placement_close(p, m);
    return without_gpu ? begin_next(m, "cpu", why, err) : status;
}

tern_status tern_placement_find(tern_model *m, const char *why, bool *done, tern_error *err) {
    const tern_placement *now = m->now;
    *done = !now->was_lost && !now->backend->is_lost(now->device);
    if (*done) return TERN_OK;
    return m->next ? go_on_moving(m, why, done, err) : begin_move(m, why, err);
}

tern_status tern_placement_hold(tern_model *m, tern_placement **out, tern_error *err) {
    tern_status status = TERN_OK;
    *out = NULL;
    while (status == TERN_OK && !*out) {
        bool there;
        tern_mutex_lock(&m->lock);
        status = tern_placement_find(m, "the device was lost", &there, err);
        if (status == TERN_OK && there) *out = m->now;
        if (*out) (*out)->n_leases++;
        tern_mutex_unlock(&m->lock);
    }
    return status;
}

void tern_placement_let_go(tern_model *m, tern_placement *p) {
    tern_mutex_lock(&m->lock);
    if (--p->n_leases == 0 && p != m->now) tern_placement_give_back(p, m);
    tern_mutex_unlock(&m->lock);
}

void tern_model_print_plan(tern_model *m, int graph, tern_format format, tern_strbuf *out) {
    tern_mutex_lock(&m->lock);
    const tern_placement *p = m->now;
    const tern_plan *plan = p->graphs[graph].plan;
    tern_graph_print(&m->graphs[graph].fused, m->graphs[graph].name, "fused",
                     plan ? p->backend->plan_memory(plan) : NULL, format, out);
    tern_mutex_unlock(&m->lock);
}

int32_t tern_model_same_bits(tern_model *m) {
    tern_mutex_lock(&m->lock);
    int32_t n = m->now->backend->n_same_bits;
    tern_mutex_unlock(&m->lock);
    return n < m->n_batch ? n : m->n_batch;
}
