// What a run on the CPU needs besides the plan and the sequences' pages, and running.
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/os/os_time.h"
#include "kernels/cpu/cpu.h"

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

tern_status cpu_instance_open(tern_plan *p, tern_page_pool *page_pool, tern_instance **out,
                              tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_instance *in = tern_alloc(TERN_MEM_SESSION, sizeof *in);
    if (!in) return tern_fail_memory(err, sizeof *in);
    in->plan = p;
    in->page_pool = page_pool;
    for (size_t i = 0; i < p->ropes.n; i++) {
        size_t floats = (size_t)p->n_batch * (size_t)p->ropes.items[i].attrs.n_rot;
        if (floats > in->rope_stride) in->rope_stride = floats;
    }
    size_t n_threads = (size_t)p->device->team->n_threads, n = (size_t)p->n_batch;
    size_t n_vocab = p->scores >= 0 ? (size_t)p->g->values[p->scores].cols : 0;
    in->pool = tern_alloc(TERN_MEM_ACTIVATIONS, p->memory.bytes + 64);
    in->scratch = tern_alloc_array(TERN_MEM_ACTIVATIONS, n_threads, p->scratch_bytes + 64);
    in->rope_tables =
        tern_alloc_array(TERN_MEM_ACTIVATIONS, p->ropes.n * in->rope_stride + 1, sizeof(float));
    in->rows = tern_alloc_array(TERN_MEM_ACTIVATIONS, n, sizeof *in->rows);
    in->blocks = tern_alloc_array(TERN_MEM_ACTIVATIONS, n, sizeof *in->blocks);
    in->logits = tern_alloc_array(TERN_MEM_ACTIVATIONS, n_vocab + 16, sizeof(float));
    in->counters = tern_alloc_array(TERN_MEM_ACTIVATIONS, (p->n_steps + 1) * CPU_COUNTERS,
                                    sizeof *in->counters);
    if (!in->pool || !in->scratch || !in->rope_tables || !in->rows || !in->blocks || !in->logits ||
        !in->counters) {
        status = tern_fail_memory(err, p->memory.bytes);
        goto fail;
    }
    TERN_TRY_GOTO(open_query(in, err));
    *out = in;
    return TERN_OK;
fail:
    cpu_instance_close(in);
    return status;
}

void cpu_instance_close(tern_instance *in) {
    if (!in) return;
    tern_head_query_free(in->query);
    tern_free(in->pool);
    tern_free(in->scratch);
    tern_free(in->rope_tables);
    tern_free(in->rows);
    tern_free(in->blocks);
    tern_free(in->logits);
    tern_free(in->counters);
    tern_free(in->profile);
    tern_free(in);
}

// ---- What steps ask for ------------------------------------------------------------------------

int32_t cpu_rows(const cpu_run *run, tern_vid v) {
    return (int32_t)tern_graph_rows(run->plan->g, v, run->counts);
}

void *cpu_value(const cpu_run *run, tern_vid v) {
    const tern_plan *p = run->plan;
    tern_value_kind kind = p->g->values[v].kind;
    if (kind == TERN_VALUE_INPUT || kind == TERN_VALUE_OUTPUT) {
        void *bound = tern_batch_data(run->batch, v);
        if (bound) return bound;
        // The batch's own arrays; only read.
        if (v == p->ids) return (void *)(uintptr_t)run->batch->ids;
        if (v == p->outputs) return (void *)(uintptr_t)run->batch->outputs;
        if (p->memory.spans[v].bytes == 0) return NULL;
    }
    return run->instance->pool + p->memory.spans[v].offset;
}

const tern_page *cpu_state_pages(const cpu_run *run, const tern_chunk *c, tern_vid state) {
    return tern_sequence_pages(
        c->sequence, tern_page_group_of(&run->plan->layout, &run->plan->g->values[state]));
}

// ---- Running -----------------------------------------------------------------------------------

// Which chunk and position each row has, and the blocks of rows for attention.
static void place_rows(cpu_run *run) {
    tern_instance *in = run->instance;
    int32_t row = 0;
    run->n_blocks = 0;
    for (int32_t i = 0; i < run->batch->n_chunks; i++) {
        const tern_chunk *c = &run->batch->chunks[i];
        for (int32_t t = 0; t < c->n_tokens; t++, row++) {
            in->rows[row] = (cpu_row){i, c->first_pos + t};
            if (t % CPU_BLOCK_ROWS != 0) continue;
            int32_t left = c->n_tokens - t;
            in->blocks[run->n_blocks++] =
                (cpu_block){i, row, left < CPU_BLOCK_ROWS ? left : CPU_BLOCK_ROWS};
        }
    }
}

static void fill_rope_tables(const cpu_run *run) {
    const tern_plan *p = run->plan;
    for (size_t i = 0; i < p->ropes.n; i++) {
        const tern_rope *r = &p->ropes.items[i];
        size_t half = (size_t)r->attrs.n_rot / 2;
        float *cos_table = run->instance->rope_tables + i * run->instance->rope_stride;
        float *sin_table = cos_table + (size_t)p->n_batch * half;
        for (int32_t t = 0; t < run->batch->n_tokens; t++) {
            const cpu_row *row = &run->instance->rows[t];
            const tern_chunk *c = &run->batch->chunks[row->chunk];
            int32_t place[3];
            tern_batch_place(run->batch, c, t, row->position - c->first_pos, place);
            tern_rope_angles(r, place, c->is_long, cos_table + (size_t)t * half,
                             sin_table + (size_t)t * half, 1);
        }
    }
}

static void find_gains(cpu_run *run) {
    const tern_plan *p = run->plan;
    const float *gains = p->gains >= 0 ? tern_batch_data(run->batch, p->gains) : NULL;
    const int64_t n = gains ? p->g->values[p->gains].cols : 0;
    for (int64_t t = 0; n && t < run->batch->n_tokens; t++)
        for (int64_t i = 0; i < n; i++)
            if (gains[t * n + i] != 0) run->gains |= (uint64_t)1 << i;
}

static bool is_wanted(const cpu_run *run, const cpu_step *s) {
    if (s->gain >= 0 && !(run->gains >> s->gain & 1)) return false;
    if (s->for_top_k) return run->batch->wants.top_k > 0 && run->batch->n_outputs > 0;
    if (s->node->op == TERN_OP_SOURCE_STORE) return cpu_rows(run, s->node->in[0]) > 0;
    if (s->only_for >= 0 && !tern_batch_data(run->batch, s->only_for)) return false;
    return s->node->n_out == 0 || cpu_rows(run, s->node->out[0]) > 0;
}

// The bytes that a step moves at least: its weights once, and the positions of the cache that it
// reads. Activations stay in the processor's own caches.
static uint64_t bytes_of(const cpu_run *run, const cpu_step *s) {
    const tern_batch *b = run->batch;
    const tern_node *n = s->node;
    uint64_t bytes = 0;
    for (int i = 0; i < n->n_in; i++) {
        const tern_weight *w = run->plan->weights[n->in[i]];
        if (run->plan->g->values[n->in[i]].kind == TERN_VALUE_WEIGHT && n->op != TERN_OP_EMBED &&
            n->op != TERN_OP_POSITIONS && n->op != TERN_OP_SEGMENTS)
            bytes += s->for_top_k ? w->info.bytes_per_token_greedy : w->info.bytes_per_token;
    }
    for (int32_t i = 0; n->op == TERN_OP_ATTENTION && i < b->n_chunks; i++) {
        int32_t seen = b->chunks[i].first_pos + b->chunks[i].n_tokens;
        if (n->attention.window > 0 && n->attention.window < seen) seen = n->attention.window;
        bytes += 2 * (uint64_t)n->attention.n_kv_heads *
                 tern_kv_head_bytes(cpu_page_pool_kv_type(run->instance->page_pool),
                                    (size_t)n->attention.head_dim, (size_t)seen);
    }
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
    for (size_t i = run->first; i < run->end; i++) {
        const cpu_step *s = &run->plan->steps[i];
        if (!is_wanted(run, s)) continue;
        s->fn(run, s, team);
        if (team->thread == 0 && tern_is_cancelled()) atomic_store(&run->last, i);
        tern_team_barrier(team);
        if (atomic_load_explicit(&run->last, memory_order_relaxed) <= i) return;
        if (run->instance->tap) show(run, s, team);
        if (!profile) continue;
        double end = tern_seconds();
        tern_profile_add(profile, tern_op_name(s->node->op), end - start, bytes_of(run, s));
        start = end;
    }
}

static tern_status run_piece(cpu_run *run, tern_error *err) {
    tern_team_run(run->plan->device->team, run_steps, run);
    if (atomic_load_explicit(&run->last, memory_order_relaxed) == SIZE_MAX) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "the computation was cancelled");
}

static size_t end_of_piece(const cpu_run *run) {
    const tern_plan *p = run->plan;
    uint64_t work = 0;
    size_t i = run->first;
    for (; i < p->n_steps && work < run->batch->piece_work; i++)
        if (is_wanted(run, &p->steps[i]))
            work += tern_node_work(p->g, p->steps[i].node, run->counts, run->batch);
    return i;
}

tern_status cpu_profile_start(tern_instance *in, tern_error *err) {
    if (!in->profile) in->profile = tern_alloc(TERN_MEM_SESSION, sizeof *in->profile);
    return in->profile ? TERN_OK : tern_fail_memory(err, sizeof *in->profile);
}

const tern_profile *cpu_profile_read(const tern_instance *in) { return in->profile; }

static tern_status check_whole(const tern_plan *p, const tern_batch *b, tern_error *err) {
    for (int32_t i = 0; p->whole && i < b->n_chunks; i++)
        if (b->chunks[i].first_pos > 0)
            return tern_fail(
                err, TERN_ERR_UNSUPPORTED,
                "the model reads a text as a whole: it cannot be continued at position %d",
                (int)b->chunks[i].first_pos);
    return TERN_OK;
}

tern_status cpu_submit(tern_instance *in, const tern_batch *batch, tern_error *err) {
    const tern_plan *p = in->plan;
    TERN_TRY(
        tern_batch_check(batch, p->g, p->n_batch, cpu_page_pool_n_context(in->page_pool), err));
    TERN_TRY(check_whole(p, batch, err));
    for (size_t i = 0; i < p->n_steps * CPU_COUNTERS; i++)
        atomic_store_explicit(&in->counters[i], 0, memory_order_relaxed);
    cpu_run *run = &in->run;
    *run = (cpu_run){.instance = in, .plan = p, .batch = batch};
    atomic_init(&run->last, SIZE_MAX);
    tern_batch_counts(batch, p->g, run->counts);
    place_rows(run);
    find_gains(run);
    fill_rope_tables(run);
    in->is_busy = batch->piece_work > 0;
    if (in->is_busy) return TERN_OK;
    run->end = p->n_steps;
    return run_piece(run, err);
}

tern_status cpu_poll(tern_instance *in, bool *done, tern_error *err) {
    cpu_run *run = &in->run;
    *done = !in->is_busy;
    if (*done) return TERN_OK;
    run->first = run->end;
    run->end = end_of_piece(run);
    *done = run->end == run->plan->n_steps;
    in->is_busy = !*done;
    tern_status status = run_piece(run, err);
    if (status != TERN_OK) in->is_busy = false;
    return status;
}

void cpu_cancel(tern_instance *in) { in->is_busy = false; }

tern_status cpu_trace(tern_instance *in, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                      tern_error *err) {
    tern_batch whole = *batch;
    whole.piece_work = 0;
    in->tap = on_value;
    in->tap_ctx = ctx;
    tern_status status = cpu_submit(in, &whole, err);
    in->tap = NULL;
    return status;
}
