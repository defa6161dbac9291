// A graph compiled for the CPU: a list of steps that a team of threads walks through with a barrier
// after each; and a session's memory for it.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os_time.h"
#include "kernels/cpu/cpu.h"
#include "kernels/rope.h"

// ---- Values ------------------------------------------------------------------------------------

static uint64_t round_64(uint64_t n) {
    return (n + 63) / 64 * 64;
}

uint64_t cpu_i8_layout(const tern_device *d, int64_t n_in, int32_t n_tokens, void *memory,
                       cpu_i8 *out) {
    const tern_ternary_kernels *k = d->kernels.t;
    size_t stride = ((size_t)n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD;
    size_t n = (size_t)n_tokens, few = n < TERN_GEMV_TOKENS ? n : TERN_GEMV_TOKENS;
    uint64_t at_scale = round_64((uint64_t)stride * n), at_sum = at_scale + round_64(n * 4);
    uint64_t at_prepared = at_sum + round_64(n * 4);
    uint64_t at_panels = at_prepared + round_64(k->prepared_bytes(d->packing, (size_t)n_in, few));
    uint64_t end =
        at_panels + (n > TERN_GEMV_TOKENS ? round_64(k->panels_bytes((size_t)n_in, n)) : 0);
    if (memory) {
        uint8_t *m = memory;
        *out = (cpu_i8){.rows = {.q = (int8_t *)m,
                                 .stride = stride,
                                 .inv_scale = (float *)(m + at_scale),
                                 .sum = (int32_t *)(m + at_sum),
                                 .n_tokens = n},
                        .prepared = m + at_prepared,
                        .panels = m + at_panels};
    }
    return end;
}

static uint64_t value_bytes(const void *ctx, const tern_graph *g, tern_vid v) {
    const tern_plan *p = ctx;
    const tern_value *value = &g->values[v];
    if (value->kind == TERN_VALUE_OUTPUT) return 0; // lies in the batch's arrays
    uint64_t rows = (uint64_t)p->n_batch;
    if (value->type == TERN_VALUE_I8ROWS)
        return cpu_i8_layout(p->device, value->cols, (int32_t)rows, NULL, NULL);
    return rows * (uint64_t)value->cols * sizeof(float);
}

int32_t cpu_rows(const cpu_run *run, tern_vid v) {
    return tern_graph_is_by(run->plan->g, v, "outputs") ? run->batch->n_outputs
                                                           : run->batch->n_tokens;
}

void *cpu_value(const cpu_run *run, tern_vid v) {
    if (run->plan->g->values[v].kind == TERN_VALUE_OUTPUT) return run->batch->logits;
    return run->instance->pool + run->plan->memory.spans[v].offset;
}

// ---- Rotary embedding --------------------------------------------------------------------------

static tern_status add_rope(tern_plan *p, const tern_node *n, int *index, tern_error *err) {
    tern_vid v = tern_rope_factors_input(n);
    const float *factors = v >= 0 ? p->weights[v]->vector : NULL;
    return tern_rope_list_find(&p->ropes, n, factors, index, err);
}

static void fill_rope_tables(const cpu_run *run) {
    const tern_plan *p = run->plan;
    for (size_t i = 0; i < p->ropes.n; i++) {
        const tern_rope *r = &p->ropes.items[i];
        size_t half = (size_t)r->attrs.n_rot / 2;
        float *cos_table = run->instance->rope_tables + i * run->instance->rope_stride;
        float *sin_table = cos_table + (size_t)p->n_batch * half;
        for (int32_t t = 0; t < run->batch->n_tokens; t++)
            for (size_t k = 0; k < half; k++) {
                float angle = (float)(run->batch->first_pos + t) * r->inv_freq[k];
                cos_table[(size_t)t * half + k] = (float)cos(angle) * r->magnitude;
                sin_table[(size_t)t * half + k] = (float)sin(angle) * r->magnitude;
            }
    }
}

// ---- Compiling ---------------------------------------------------------------------------------

static tern_status add_step(tern_plan *p, const tern_node *n, tern_error *err) {
    const tern_graph *g = p->g;
    cpu_step *s = &p->steps[p->n_steps];
    *s = (cpu_step){.fn = cpu_step_for(n->op), .node = n, .index = (int)p->n_steps, .rope = -1};
    if (!s->fn)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the CPU backend has no %s",
                         tern_op_name(n->op));
    if (n->op == TERN_OP_ROPE || n->op == TERN_OP_ROPE_STORE)
        TERN_TRY(add_rope(p, n, &s->rope, err));
    s->for_outputs = n->n_out > 0 && tern_graph_is_by(g, n->out[0], "outputs");
    s->for_top_k = n->op == TERN_OP_TOP_K || n->op == TERN_OP_LINEAR_TOP_K;
    s->for_logits = n->n_out > 0 && g->values[n->out[0]].kind == TERN_VALUE_OUTPUT && !s->for_top_k;
    if (s->for_logits) p->n_vocab = g->values[n->out[0]].cols;
    size_t scratch = (size_t)round_64(cpu_step_scratch(p, n));
    if (scratch > p->scratch_bytes) p->scratch_bytes = scratch;
    p->n_steps++;
    return TERN_OK;
}

tern_status cpu_compile(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                        int32_t n_batch, tern_plan **out, tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_plan *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->device = d;
    p->g = g;
    p->weights = weights;
    p->n_batch = n_batch;
    p->steps = tern_alloc_array(TERN_MEM_GRAPH, g->n_nodes + 1, sizeof *p->steps);
    if (!p->steps) {
        status = tern_fail_memory(err, g->n_nodes * sizeof *p->steps);
        goto fail;
    }
    for (size_t i = 0; i < g->n_nodes; i++) TERN_TRY_GOTO(add_step(p, &g->nodes[i], err));
    TERN_TRY_GOTO(tern_graph_plan_memory(g, value_bytes, p, &p->memory, err));
    *out = p;
    return TERN_OK;
fail:
    cpu_plan_free(p);
    return status;
}

void cpu_plan_free(tern_plan *p) {
    if (!p) return;
    tern_rope_list_free(&p->ropes);
    tern_free(p->steps);
    tern_memory_plan_free(&p->memory);
    tern_free(p);
}

// ---- A session's memory ------------------------------------------------------------------------

static tern_status open_states(tern_instance *in, tern_error *err) {
    const tern_graph *g = in->plan->g;
    size_t page_bytes = 0, positions = TERN_PAGE_POSITIONS;
    size_t n_pages = ((size_t)in->n_context + positions - 1) / positions;
    in->state_offset = tern_alloc_array(TERN_MEM_KV, g->n_values + 1, sizeof *in->state_offset);
    if (!in->state_offset) return tern_fail_memory(err, g->n_values * sizeof *in->state_offset);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (n->op != TERN_OP_KV_STORE && n->op != TERN_OP_ROPE_STORE) continue;
        size_t bytes = (size_t)n->n_kv_heads *
                       tern_kv_head_bytes(in->kv_type, (size_t)n->head_dim, positions);
        for (int k = 0; k < 2; k++) {
            in->state_offset[n->in[(n->op == TERN_OP_KV_STORE ? 2 : 3) + k]] = page_bytes;
            page_bytes += (bytes + 63) / 64 * 64;
        }
    }
    page_bytes += 64; // pages a power of two apart would share the same few sets of a cache
    in->cache = tern_alloc_array(TERN_MEM_KV, n_pages, page_bytes);
    in->pages = tern_alloc_array(TERN_MEM_KV, n_pages, sizeof *in->pages);
    if (!in->cache || !in->pages) return tern_fail_memory(err, n_pages * page_bytes);
    for (size_t b = 0; b < n_pages; b++) in->pages[b].memory = in->cache + b * page_bytes;
    return TERN_OK;
}

static tern_status open_query(tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    for (size_t i = 0; i < p->g->n_nodes; i++) {
        const tern_node *n = &p->g->nodes[i];
        if (n->op != TERN_OP_LINEAR_TOP_K || !p->weights[n->in[1]]->screen) continue;
        return tern_head_query_create(&in->query, p->weights[n->in[1]]->screen, (size_t)p->n_batch,
                                      err);
    }
    return TERN_OK;
}

static tern_status choose_kv_type(tern_instance *in, tern_kv_type wanted, tern_error *err) {
    TERN_TRY(tern_kv_choose(in->plan->g, in->n_context, wanted, &wanted, err));
    in->kv_type = wanted == TERN_KV_F32    ? TERN_DTYPE_F32
                  : wanted == TERN_KV_Q8_0 ? TERN_DTYPE_Q8_0
                                           : TERN_DTYPE_F16;
    return TERN_OK;
}

tern_status cpu_instance_open(tern_plan *p, int32_t n_context, tern_kv_type kv_type,
                              tern_instance **out, tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_instance *in = tern_alloc(TERN_MEM_SESSION, sizeof *in);
    if (!in) return tern_fail_memory(err, sizeof *in);
    in->plan = p;
    in->n_context = n_context;
    TERN_TRY_GOTO(choose_kv_type(in, kv_type, err));
    for (size_t i = 0; i < p->ropes.n; i++) {
        size_t floats = (size_t)p->n_batch * (size_t)p->ropes.items[i].attrs.n_rot;
        if (floats > in->rope_stride) in->rope_stride = floats;
    }
    size_t n_threads = (size_t)p->device->team->n_threads;
    in->pool = tern_alloc(TERN_MEM_ACTIVATIONS, p->memory.bytes + 64);
    in->scratch = tern_alloc_array(TERN_MEM_ACTIVATIONS, n_threads, p->scratch_bytes + 64);
    in->rope_tables =
        tern_alloc_array(TERN_MEM_ACTIVATIONS, p->ropes.n * in->rope_stride + 1, sizeof(float));
    in->logits = tern_alloc_array(TERN_MEM_ACTIVATIONS, (size_t)p->n_vocab + 16, sizeof(float));
    in->counters = tern_alloc_array(TERN_MEM_ACTIVATIONS, (p->n_steps + 1) * CPU_COUNTERS,
                                    sizeof *in->counters);
    if (!in->pool || !in->scratch || !in->rope_tables || !in->logits || !in->counters) {
        status = tern_fail_memory(err, p->memory.bytes);
        goto fail;
    }
    TERN_TRY_GOTO(open_states(in, err));
    TERN_TRY_GOTO(open_query(in, err));
    *out = in;
    return TERN_OK;
fail:
    cpu_instance_close(in);
    return status;
}

void cpu_instance_close(tern_instance *in) {
    if (!in) return;
    tern_free(in->cache);
    tern_free(in->pages);
    tern_free(in->state_offset);
    tern_head_query_free(in->query);
    tern_free(in->pool);
    tern_free(in->scratch);
    tern_free(in->rope_tables);
    tern_free(in->logits);
    tern_free(in->counters);
    tern_free(in->profile);
    tern_free(in);
}

// ---- Running -----------------------------------------------------------------------------------

static bool is_wanted(const cpu_step *s, const tern_batch *b) {
    if (s->for_outputs && b->n_outputs == 0) return false;
    if (s->for_logits && !b->logits) return false;
    return !s->for_top_k || b->top_k > 0;
}

// What a step moves at least: its weights once, and the positions of the cache that it reads.
// Activations stay in the processor's own caches.
static uint64_t bytes_of(const cpu_run *run, const cpu_step *s) {
    const tern_instance *in = run->instance;
    const tern_batch *b = run->batch;
    const tern_node *n = s->node;
    uint64_t bytes = 0;
    for (int i = 0; i < n->n_in; i++) {
        const tern_weight *w = run->plan->weights[n->in[i]];
        if (run->plan->g->values[n->in[i]].kind == TERN_VALUE_WEIGHT && n->op != TERN_OP_EMBED)
            bytes += s->for_top_k ? w->info.bytes_per_token_greedy : w->info.bytes_per_token;
    }
    if (n->op == TERN_OP_ATTENTION)
        bytes += 2 * (uint64_t)n->n_kv_heads *
                 tern_kv_head_bytes(in->kv_type, (size_t)n->head_dim,
                                    (size_t)(b->first_pos + b->n_tokens));
    return bytes;
}

// Shows the result of a step while the rest of the team waits.
static void show(const cpu_run *run, const cpu_step *s, const tern_team *team) {
    const tern_graph *g = run->plan->g;
    const tern_instance *in = run->instance;
    for (int k = 0; team->thread == 0 && k < s->node->n_out; k++) {
        tern_vid v = s->node->out[k];
        if (g->values[v].type == TERN_VALUE_F32 && g->values[v].kind == TERN_VALUE_TEMP)
            in->tap(in->tap_ctx, v, cpu_value(run, v), cpu_rows(run, v));
    }
    tern_team_barrier(team);
}

static void run_steps(void *ctx, const tern_team *team) {
    cpu_run *run = ctx;
    tern_profile *profile = team->thread == 0 ? run->instance->profile : NULL;
    double start = profile ? tern_seconds() : 0;
    for (size_t i = 0; i < run->plan->n_steps; i++) {
        const cpu_step *s = &run->plan->steps[i];
        if (!is_wanted(s, run->batch)) continue;
        s->fn(run, s, team);
        tern_team_barrier(team);
        if (run->instance->tap) show(run, s, team);
        if (!profile) continue;
        double end = tern_seconds();
        tern_profile_add(profile, tern_op_name(s->node->op), end - start, bytes_of(run, s));
        start = end;
    }
}

tern_status cpu_profile_start(tern_instance *in, tern_error *err) {
    if (!in->profile) in->profile = tern_alloc(TERN_MEM_SESSION, sizeof *in->profile);
    return in->profile ? TERN_OK : tern_fail_memory(err, sizeof *in->profile);
}

const tern_profile *cpu_profile_read(const tern_instance *in) { return in->profile; }

tern_status cpu_submit(tern_instance *in, const tern_batch *batch, tern_error *err) {
    const tern_plan *p = in->plan;
    TERN_TRY(tern_batch_check(batch, p->n_batch, in->n_context, p->n_vocab, err));
    for (size_t i = 0; i < p->n_steps * CPU_COUNTERS; i++)
        atomic_store_explicit(&in->counters[i], 0, memory_order_relaxed);
    cpu_run run = {in, p, batch};
    fill_rope_tables(&run);
    tern_team_run(p->device->team, run_steps, &run);
    return TERN_OK;
}

tern_status cpu_trace(tern_instance *in, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                      tern_error *err) {
    in->tap = on_value;
    in->tap_ctx = ctx;
    tern_status status = cpu_submit(in, batch, err);
    in->tap = NULL;
    return status;
}
