// One run of a program: the batch is checked, then the team walks through the steps.
#include "base/cancel.h"
#include "kernels/cpu/train/cpu_train.h"

float *cpu_train_value(const cpu_train_run *run, tern_vid v) {
    const tern_program *p = run->program;
    tern_value_kind kind = p->g->values[v].kind;
    if (kind == TERN_VALUE_WEIGHT || kind == TERN_VALUE_STATE) return p->arrays[v]->data;
    if (kind == TERN_VALUE_INPUT) return NULL; // ids and targets: read from the batch
    return (float *)(p->device->pool + p->memory.spans[v].offset);
}

// cos, sin and -sin of every position; the last for rotating back.
void cpu_train_fill_ropes(tern_program *p) {
    for (size_t i = 0; i < p->ropes.n; i++) {
        const tern_rope *r = &p->ropes.items[i];
        size_t half = (size_t)r->attrs.n_rot / 2, n = (size_t)p->n_span * half;
        float *table = p->rope_tables + i * p->rope_stride;
        bool is_long = p->n_span > r->attrs.n_context_orig; // of all documents alike
        for (size_t t = 0; t * half < n; t++) {
            const int32_t at = (int32_t)t, place[3] = {at, at, at};
            tern_rope_angles(r, place, is_long, table + t * half, table + n + t * half, 1);
        }
        for (size_t k = 0; k < n; k++) table[2 * n + k] = -table[n + k];
    }
}

// Documents are consecutive rows; nothing in a batch may point outside the tables.
static tern_status check_batch(const tern_program *p, const tern_train_batch *b, tern_error *err) {
    int64_t n_table = INT64_MAX, n_targets = INT64_MAX;
    bool reads_rows = false;
    for (size_t i = 0; i < p->g->n_nodes; i++) {
        const tern_node *n = &p->g->nodes[i];
        int64_t n_rows = n->op == TERN_OP_EMBED ? p->g->values[n->in[1]].rows : INT64_MAX;
        if (n_rows < n_table) n_table = n_rows; // of two models the smaller one
        bool is_loss = n->op == TERN_OP_CROSS_ENTROPY || n->op == TERN_OP_DISTILL;
        if (is_loss) n_targets = p->g->values[n->in[0]].cols;
        if (n->op == TERN_OP_POOL_SEQ) n_targets = p->g->values[n->in[2]].rows;
        reads_rows |= n->op == TERN_OP_EMBED || is_loss;
    }
    if (!reads_rows) return TERN_OK;
    if (b->n_tokens < 1 || b->n_tokens > p->n_rows)
        return tern_fail(err, TERN_ERR_ARGUMENT, "training: %d tokens in a run, at most %d",
                         (int)b->n_tokens, (int)p->n_rows);
    for (int32_t t = 0; t < b->n_tokens; t++) {
        int32_t start = b->starts[t];
        bool continues = t > 0 && start == b->starts[t - 1];
        if ((!continues && start != t) || t - start >= p->n_span)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "training: row %d cannot be of a document that begins at row %d",
                             (int)t, (int)start);
        if (b->ids[t] < 0 || b->ids[t] >= n_table || b->targets[t] >= n_targets)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "training: row %d has token %d and target %d of %lld", (int)t,
                             (int)b->ids[t], (int)b->targets[t], (long long)n_table);
    }
    return TERN_OK;
}

static void find_documents(tern_program *p, const tern_train_batch *b) {
    p->n_documents = 0;
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (b->starts[t] == t) p->documents[p->n_documents++] = t;
    p->documents[p->n_documents] = b->n_tokens;
}

// Unscored rows have a target below 0, and no logits.
static void find_scored(tern_program *p, const tern_train_batch *b) {
    p->n_scored = 0;
    for (int32_t t = 0; p->head.end > 0 && t < b->n_tokens; t++) {
        p->places[t] = b->targets[t] >= 0 ? p->n_scored : -1;
        if (b->targets[t] >= 0) p->scored[p->n_scored++] = t;
    }
}

typedef struct walk {
    cpu_train_run run; // of this thread
    const tern_team *team;
    cpu_train_after after;
    void *user;
    uint64_t n_done; // steps that this thread has walked through, pieces counted
} walk;

// A piece without a row has gradients of 0, and nothing else.
static bool has_work(const walk *w, size_t i) {
    const tern_program *p = w->run.program;
    bool in_head = i >= p->head.first && i < p->head.end;
    return !in_head || w->run.n_rows > 0 || p->steps[i].node->op == TERN_OP_PUT_SCORED;
}

// Whether all threads stop after this step. The first one, which is the caller, asks before the
// barrier. It says at which step, since it may ask again while others have not read the answer yet.
static void ask_to_stop(walk *w) {
    tern_program *p = w->run.program;
    if (w->team->thread != 0 || !w->run.batch->can_stop || !tern_is_cancelled()) return;
    if (!atomic_load_explicit(&p->stops_at, memory_order_relaxed))
        atomic_store_explicit(&p->stops_at, w->n_done + 1, memory_order_relaxed);
}
static bool stops(const walk *w) {
    uint64_t at = atomic_load_explicit(&w->run.program->stops_at, memory_order_relaxed);
    return at > 0 && w->n_done >= at;
}

static void walk_steps(walk *w, size_t first, size_t end, bool is_last) {
    for (size_t i = first; i < end && !stops(w); i++) {
        cpu_train_step *s = &w->run.program->steps[i];
        if (has_work(w, i)) s->fn(&w->run, s, w->team);
        ask_to_stop(w);
        tern_team_barrier(w->team);
        w->n_done++;
        if (w->team->thread == 0 && w->after) w->after(w->user, i, is_last);
    }
}

// The steps of the head for one piece after the other, at least once.
static void walk_pieces(walk *w) {
    tern_program *p = w->run.program;
    const size_t n = (size_t)p->n_scored, each = (size_t)p->piece_rows;
    for (size_t at = 0; (at == 0 || at < n) && !stops(w); at += each) {
        w->run.first = at;
        w->run.n_rows = n - at < each ? n - at : each;
        walk_steps(w, p->head.first, p->head.end, at + each >= n);
        if (w->team->thread == 0)
            for (size_t i = p->head.first; i < p->head.end; i++)
                atomic_store_explicit(&p->steps[i].counter, 0, memory_order_relaxed);
        tern_team_barrier(w->team);
    }
    w->run.first = 0;
    w->run.n_rows = (size_t)w->run.batch->n_tokens;
}

void cpu_train_walk(const cpu_train_run *run, const tern_team *team, cpu_train_after after,
                    void *user) {
    walk w = {.run = *run, .team = team, .after = after, .user = user};
    const tern_program *p = run->program;
    w.run.n_rows = (size_t)run->batch->n_tokens;
    walk_steps(&w, 0, p->head.first, true);
    if (p->head.end > 0) walk_pieces(&w);
    walk_steps(&w, p->head.end, p->n_steps, true);
}

// Sends what no later step adds to.
static void tell_of_array(void *user, size_t i, bool is_last) {
    const cpu_train_run *run = user;
    const tern_train_batch *b = run->batch;
    const cpu_train_step *s = &run->program->steps[i];
    if (is_last && s->done && b->on_array) b->on_array(b->user, s->done);
}

static void run_steps(void *ctx, const tern_team *team) {
    cpu_train_walk(ctx, team, tell_of_array, ctx);
}

void cpu_train_prepare(tern_program *p, const tern_train_batch *batch) {
    for (size_t i = 0; i < p->n_steps; i++)
        atomic_store_explicit(&p->steps[i].counter, 0, memory_order_relaxed);
    atomic_store_explicit(&p->stops_at, 0, memory_order_relaxed);
    find_documents(p, batch);
    find_scored(p, batch);
}

tern_status cpu_train_submit(tern_program *p, const tern_train_batch *batch, tern_error *err) {
    TERN_TRY(check_batch(p, batch, err));
    cpu_train_prepare(p, batch);
    cpu_train_run run = {.program = p, .batch = batch};
    tern_team_run(p->device->team, run_steps, &run);
    if (!atomic_load_explicit(&p->stops_at, memory_order_relaxed)) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "training was cancelled");
}
