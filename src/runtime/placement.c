// Where a model runs: a device, the weights bound to it, the plan compiled for it; and the leases
// of its sessions there, which move when the device is lost.
//
// A lost device takes the weights and every session's keys and values along, but the file is still
// mapped, and a lease remembers the tokens that its keys and values were computed from. So the
// model is placed again, on a new device of the kind or, if that fails too, on the CPU, and each
// session that notices the loss computes its tokens again there and goes on. If that fails on the
// way, for lack of memory say, the call fails and the next one resumes: a lease knows how many
// positions its instance holds, and a model without a placement looks for one again.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"

// ---- Opening -----------------------------------------------------------------------------------

// "auto" takes a GPU if there is one, and remembers why not if there is none.
static tern_status open_device(tern_placement *p, const tern_model *m, const char *name,
                               tern_error *err) {
    bool automatic = strcmp(name, "auto") == 0;
    tern_error why = {0};
    if (automatic || strcmp(name, "webgpu") == 0) {
        p->backend = &tern_backend_webgpu;
        tern_status status = p->backend->open(&p->device, &m->device_desc, &why);
        if (status == TERN_OK) return TERN_OK;
        if (!automatic || status == TERN_ERR_MEMORY) {
            if (err) *err = why;
            return status;
        }
    } else if (strcmp(name, "cpu") != 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "device \"%s\": expected cpu, webgpu or auto",
                         name);
    p->backend = &tern_backend_cpu;
    TERN_TRY(p->backend->open(&p->device, &m->device_desc, err));
    if (automatic) snprintf(p->remark, sizeof p->remark, "no GPU: %s", why.message);
    return TERN_OK;
}

static tern_status bind_all(tern_placement *p, const tern_model *m, tern_bound_fn on_bound,
                            void *ctx, tern_error *err) {
    const tern_graph *g = &m->built;
    uint64_t done = 0;
    for (size_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != TERN_VALUE_WEIGHT) continue;
        const tern_weight_source *s = &m->sources[v];
        tern_weight_info info;
        TERN_TRY(p->backend->bind(p->device, s, &p->weights[v], err));
        p->backend->weight_info(p->weights[v], &info);
        if (!info.keeps_source) tern_file_drop_pages(m->file, s->data, s->bytes);
        p->bytes_per_token += info.bytes_per_token_greedy;
        p->bytes_per_token_logits += info.bytes_per_token;
        if (s->is_head)
            p->head = info.layout;
        else if (info.kind == TERN_WEIGHT_TERNARY)
            p->ternary_layout = info.layout;
        done += s->bytes;
        if (on_bound) TERN_TRY(on_bound(ctx, done, err));
    }
    return TERN_OK;
}

tern_status tern_placement_open(tern_placement **out, const tern_model *m, const char *device,
                                tern_bound_fn on_bound, void *ctx, tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_placement *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    tern_mutex_init(&p->busy);
    p->weights = tern_alloc_array(TERN_MEM_GRAPH, m->built.n_values + 1, sizeof *p->weights);
    if (!p->weights) {
        status = tern_fail_memory(err, m->built.n_values * sizeof *p->weights);
        goto fail;
    }
    TERN_TRY_GOTO(open_device(p, m, device, err));
    TERN_TRY_GOTO(p->backend->tune(p->device, m->sources, m->built.n_values, err));
    TERN_TRY_GOTO(bind_all(p, m, on_bound, ctx, err));
    *out = p;
    return TERN_OK;
fail:
    tern_placement_close(p, m);
    return status;
}

tern_weight_kind tern_placement_kind(const tern_placement *p, tern_vid v) {
    tern_weight_info info = {0};
    if (p->weights[v]) p->backend->weight_info(p->weights[v], &info);
    return info.kind;
}

tern_status tern_placement_compile(tern_placement *p, const tern_model *m, tern_error *err) {
    // Values keep their numbers through the passes; new ones are only added at the end, and none of
    // them is a weight.
    tern_weight **grown =
        tern_realloc(TERN_MEM_GRAPH, p->weights, (m->fused.n_values + 1) * sizeof *grown);
    if (!grown) return tern_fail_memory(err, m->fused.n_values * sizeof *grown);
    p->weights = grown;
    TERN_TRY(p->backend->compile(p->device, &m->fused, p->weights, m->n_batch, &p->plan, err));
    const char *guess = m->config.guess ? m->config.guess : "";
    snprintf(p->text, sizeof p->text, "%s%s%s%s%s%s%s", p->backend->describe(p->device),
             p->remark[0] ? " (" : "", p->remark, p->remark[0] ? ")" : "",
             guess[0] ? " (" : "", guess, guess[0] ? ")" : "");
    return TERN_OK;
}

// Frees everything except the texts about it.
static void give_back(tern_placement *p, const tern_model *m) {
    if (p->plan) p->backend->plan_free(p->plan);
    for (size_t v = 0; p->weights && v < m->built.n_values; v++)
        if (p->weights[v]) p->backend->unbind(p->device, p->weights[v]);
    tern_free(p->weights);
    if (p->device) p->backend->close(p->device);
    p->plan = NULL;
    p->weights = NULL;
    p->device = NULL;
}

void tern_placement_close(tern_placement *p, const tern_model *m) {
    if (!p) return;
    give_back(p, m);
    tern_mutex_free(&p->busy);
    tern_free(p);
}

// ---- Leases ------------------------------------------------------------------------------------

struct tern_lease {
    tern_placement *at;
    tern_instance *instance;
    int32_t n_context;
    tern_kv_type kv_type;
    int32_t *ids; // [n_context] what the keys and values at each position were computed from
    int32_t n_held; // the first positions, whose keys and values are in the instance
    bool profiled;
    const tern_draft_table *drafts; // NULL: batches ask for none
    bool moved; // since last asked
    char notice[700]; // why, and where to
};

// Sessions of several threads take turns on a device that is one thread's at a time.
static void begin_use(tern_placement *p) {
    if (!p->backend->is_shared) tern_mutex_lock(&p->busy);
}
static void end_use(tern_placement *p) {
    if (!p->backend->is_shared) tern_mutex_unlock(&p->busy);
}

static tern_status open_drafts(const tern_placement *at, tern_instance *in,
                               const tern_draft_table *drafts, tern_error *err) {
    bool can = drafts && at->backend->drafts_open;
    return can ? at->backend->drafts_open(in, drafts, err) : TERN_OK;
}

static tern_status open_instance(const tern_lease *s, const tern_placement *at, tern_instance **out,
                                 tern_error *err) {
    TERN_TRY(at->backend->instance_open(at->plan, s->n_context, s->kv_type, out, err));
    tern_status status = s->profiled ? at->backend->profile_start(*out, err) : TERN_OK;
    if (status == TERN_OK) status = open_drafts(at, *out, s->drafts, err);
    if (status != TERN_OK) at->backend->instance_close(*out);
    return status;
}

static tern_status settle(tern_lease *s, tern_placement *at, tern_error *err) {
    tern_instance *in;
    begin_use(at);
    tern_status status = open_instance(s, at, &in, err);
    end_use(at);
    if (status != TERN_OK) return status;
    s->at = at;
    s->instance = in;
    s->n_held = 0;
    at->n_leases++;
    return TERN_OK;
}

// A lost placement is freed with its last lease; its texts stay, since others may read them.
static void stand_up(tern_model *m, tern_lease *s) {
    if (!s->at) return;
    begin_use(s->at);
    s->at->backend->instance_close(s->instance);
    end_use(s->at);
    s->instance = NULL;
    if (--s->at->n_leases == 0 && s->at != m->now) give_back(s->at, m);
    s->at = NULL;
}

// ---- Moving ------------------------------------------------------------------------------------

// The fused graph fits wherever the same weights are ternary.
static tern_status check_kinds(const tern_model *m, const tern_placement *p, tern_error *err) {
    for (size_t v = 0; v < m->built.n_values; v++)
        if (p->weights[v] && m->kinds[v] != tern_placement_kind(p, (tern_vid)v))
            return tern_fail(err, TERN_ERR_DEVICE, "%s: %s has it in another form",
                             m->built.values[v].name, p->backend->name);
    return TERN_OK;
}

static tern_status place_again(tern_placement **out, const tern_model *m, const char *device,
                               const char *why, tern_error *err) {
    tern_status status = tern_placement_open(out, m, device, NULL, NULL, err);
    if (status == TERN_OK) status = check_kinds(m, *out, err);
    if (status == TERN_OK) {
        snprintf((*out)->remark, sizeof (*out)->remark, "after a loss: %s", why);
        status = tern_placement_compile(*out, m, err);
    }
    if (status == TERN_OK) return TERN_OK;
    tern_placement_close(*out, m);
    *out = NULL;
    return status;
}

#define GPU_LOSSES_MAX 2 // after which a model goes to the CPU

// A new placement instead of m->now, which was lost; perhaps not for the first time, since this
// fails when memory runs out.
static tern_status replace(tern_model *m, const char *why, tern_error *err) {
    tern_placement *p = NULL, *lost = m->now;
    tern_status status = TERN_ERR_DEVICE;
    if (!lost->was_lost) m->n_losses++;
    lost->was_lost = true;
    if (lost->n_leases == 0) give_back(lost, m);
    if (m->n_losses < GPU_LOSSES_MAX) status = place_again(&p, m, lost->backend->name, why, err);
    if (status == TERN_ERR_DEVICE) status = place_again(&p, m, "cpu", why, err);
    if (status != TERN_OK) return status;
    p->before = lost;
    m->now = p;
    return TERN_OK;
}

// Opens the lease's instance where the model is. `why` is NULL, or what happened to its old place.
static tern_status take_place(tern_model *m, tern_lease *s, const char *why, tern_error *err) {
    const tern_placement *now = m->now;
    if (now->was_lost || now->backend->is_lost(now->device))
        TERN_TRY(replace(m, why ? why : "the device was lost", err));
    TERN_TRY(settle(s, m->now, err));
    s->moved = why != NULL;
    if (s->moved) {
        begin_use(s->at);
        snprintf(s->notice, sizeof s->notice, "%s; the session goes on with %s", why,
                 s->at->backend->describe(s->at->device));
        end_use(s->at);
    }
    return TERN_OK;
}

static tern_status move(tern_model *m, tern_lease *s, tern_error *err) {
    tern_error why = *err;
    tern_mutex_lock(&m->lock);
    stand_up(m, s);
    tern_status status = take_place(m, s, why.message, err);
    tern_mutex_unlock(&m->lock);
    return status;
}

// ---- A session's side --------------------------------------------------------------------------

tern_status tern_model_instance(tern_model *m, int32_t n_context, tern_kv_type kv_type,
                                tern_lease **out, tern_error *err) {
    *out = NULL;
    if (m->config.n_window > 0 && n_context > m->config.n_window)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: its attention has a window of %lld positions, so a context "
                         "of %d is not supported", m->path, (long long)m->config.n_window,
                         (int)n_context);
    tern_lease *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->n_context = n_context;
    s->kv_type = kv_type;
    s->ids = tern_alloc_array(TERN_MEM_SESSION, (size_t)n_context, sizeof *s->ids);
    tern_status status = TERN_OK;
    if (!s->ids) status = tern_fail_memory(err, (size_t)n_context * sizeof *s->ids);
    tern_mutex_lock(&m->lock);
    if (status == TERN_OK) status = take_place(m, s, NULL, err);
    tern_mutex_unlock(&m->lock);
    if (status == TERN_OK)
        *out = s;
    else
        tern_model_instance_close(m, s);
    return status;
}

void tern_model_instance_close(tern_model *m, tern_lease *s) {
    if (!s) return;
    tern_mutex_lock(&m->lock);
    stand_up(m, s);
    tern_mutex_unlock(&m->lock);
    tern_free(s->ids);
    tern_free(s);
}

bool tern_model_can_draft(const tern_lease *s) {
    return s->at && s->at->backend->drafts_open;
}

tern_status tern_model_drafts_open(tern_lease *s, const tern_draft_table *table,
                                   tern_error *err) {
    tern_status status = TERN_OK;
    if (s->at) { // else the next place is given the table
        begin_use(s->at);
        status = open_drafts(s->at, s->instance, table, err);
        end_use(s->at);
    }
    if (status == TERN_OK) s->drafts = table;
    return status;
}

tern_status tern_model_profile_start(tern_lease *s, tern_error *err) {
    s->profiled = true;
    if (!s->at) return TERN_OK; // the next place is told
    begin_use(s->at);
    tern_status status = s->at->backend->profile_start(s->instance, err);
    end_use(s->at);
    return status;
}

const tern_profile *tern_model_profile(const tern_lease *s) {
    if (!s->at) return NULL;
    begin_use(s->at);
    const tern_profile *p = s->at->backend->profile_read(s->instance);
    end_use(s->at);
    return p;
}

const char *tern_model_notice(tern_lease *s) {
    bool is_new = s->moved;
    s->moved = false;
    return is_new ? s->notice : NULL;
}

// ---- Computing ---------------------------------------------------------------------------------

// The record of a backend that does not draft.
static tern_drafting single_step(const tern_drafting *q) {
    tern_drafting one = *q;
    one.n = one.n_runs = 1;
    memset(one.counts, 0, sizeof one.counts);
    one.counts[0][0] = 1;
    return one;
}

static tern_status run(tern_lease *s, const tern_batch *batch, tern_error *err) {
    int32_t n_known = batch->n_tokens; // of which the states then hold the keys and values
    if (batch->drafting) *batch->drafting = single_step(batch->drafting);
    begin_use(s->at);
    tern_status status = s->at->backend->submit(s->instance, batch, err);
    for (bool done = false; status == TERN_OK && !done;)
        status = s->at->backend->poll(s->instance, &done, err);
    end_use(s->at);
    TERN_TRY(status);
    if (batch->drafting) n_known += batch->drafting->n - 1;
    s->n_held = batch->first_pos + n_known;
    return TERN_OK;
}

// The batch, preceded by the tokens whose keys and values were lost.
static tern_status catch_up(tern_model *m, tern_lease *s, const tern_batch *batch,
                            tern_error *err) {
    while (s->n_held < batch->first_pos) {
        int32_t n = batch->first_pos - s->n_held;
        if (n > m->n_batch) n = m->n_batch;
        TERN_TRY(run(s, &(tern_batch){.ids = s->ids + s->n_held, .n_tokens = n,
                                      .first_pos = s->n_held}, err));
    }
    return run(s, batch, err);
}

// Only after a failed move is there no placement.
static tern_status find_place(tern_model *m, tern_lease *s, tern_error *err) {
    if (s->at) return TERN_OK;
    tern_mutex_lock(&m->lock);
    tern_status status = take_place(m, s, "the device was lost", err);
    tern_mutex_unlock(&m->lock);
    return status;
}

void tern_model_print_plan(tern_model *m, tern_format format, tern_strbuf *out) {
    tern_mutex_lock(&m->lock);
    const tern_placement *p = m->now;
    tern_graph_print(&m->fused, "fused", p->plan ? p->backend->plan_memory(p->plan) : NULL, format,
                     out);
    tern_mutex_unlock(&m->lock);
}

int32_t tern_model_same_bits(tern_model *m) {
    tern_mutex_lock(&m->lock);
    int32_t n = m->now->backend->n_same_bits;
    tern_mutex_unlock(&m->lock);
    return n < m->n_batch ? n : m->n_batch;
}

tern_status tern_model_compute(tern_model *m, tern_lease *s, const tern_batch *batch,
                               tern_error *err) {
    tern_error why = {0};
    tern_status status = find_place(m, s, &why);
    if (status == TERN_OK) status = catch_up(m, s, batch, &why);
    for (int i = 0; i <= GPU_LOSSES_MAX && status == TERN_ERR_DEVICE && s->at; i++) {
        if (!s->at->backend->is_lost(s->at->device)) break;
        status = move(m, s, &why);
        if (status == TERN_OK) status = catch_up(m, s, batch, &why);
    }
    if (status == TERN_OK) {
        int32_t *ids = s->ids + batch->first_pos;
        memcpy(ids, batch->ids, (size_t)batch->n_tokens * sizeof *ids);
        if (batch->drafting)
            memcpy(ids + 1, batch->top_ids, (size_t)(batch->drafting->n - 1) * sizeof *ids);
    } else if (err)
        *err = why;
    return status;
}
