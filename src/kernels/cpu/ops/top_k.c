// The greatest logits of a row.
#include "kernels/cpu/ops/ops.h"
#include "kernels/cpu/top_list.h"

// allowed: the set of those that count; NULL: all.
static void select_top_k(const float *x, int64_t n, const uint64_t *allowed, int32_t k,
                         int32_t *ids, float *values) {
    const top_list t = top_open(ids, values, k);
    for (int64_t i = 0; i < n && !allowed; i++) top_put(&t, (int32_t)i, x[i]);
    for (int64_t at = 0; at < n && allowed; at += 64)
        for (uint64_t w = allowed[at / 64]; w; w &= w - 1) {
            int64_t i = at + __builtin_ctzll(w);
            if (i < n) top_put(&t, (int32_t)i, x[i]);
        }
    top_sort(&t);
}

// Resets the counter for another round of work inside one step. Call between two barriers, since
// all threads must be done with the old value before, and see the new one after.
static void restart(cpu_run *run, const cpu_step *step, const tern_team *team) {
    tern_team_barrier(team);
    if (team->thread == 0) atomic_store(counter(run, step, 0), 0);
    tern_team_barrier(team);
}

// A row of an I8GROUPS value, alone, in scratch.
static tern_grouped_rows row_in_groups(const cpu_run *run, tern_vid v, int32_t row, void *memory) {
    tern_grouped_rows all, one;
    int64_t n_in = cols(run, v);
    cpu_groups_layout(run->plan->device, n_in, cpu_rows(run, v), cpu_value(run, v), &all);
    cpu_groups_layout(run->plan->device, n_in, 1, memory, &one);
    tern_grouped_take_token(&all, (size_t)n_in, (size_t)row, &one);
    return one;
}

static size_t top_k_scratch(const tern_plan *p, const tern_node *n) {
    const tern_value *x = &p->g->values[n->in[0]];
    if (x->type != TERN_VALUE_I8GROUPS) return 0;
    return cpu_groups_layout(p->device, x->cols, 1, NULL, NULL);
}

// The tokens that `row` of the batch may choose among; NULL: all.
static const uint64_t *allowed_of(const cpu_run *run, int32_t row) {
    return run->batch->wants.allowed ? run->batch->wants.allowed[row] : NULL;
}

// Whether they are so few that only their products are computed, one by one.
static bool are_few(const uint64_t *allowed, int64_t n) {
    int64_t count = 0;
    for (int64_t at = 0; at < n && allowed; at += 64)
        count += __builtin_popcountll(allowed[at / 64]);
    return allowed && count <= n / 16;
}

// The logits of the allowed ones: a row's has the same bits alone as among others.
static void few_logits(cpu_run *run, const cpu_step *step, const tern_weight *w, const float *x,
                       const uint64_t *allowed, float *logits) {
    const size_t n_in = (size_t)w->source.n_cols, n_out = (size_t)w->source.n_rows;
    size_t first, last;
    while (tern_team_claim(counter(run, step, 0), (n_out + 63) / 64, 16, &first, &last))
        for (size_t i = first; i < last; i++)
            for (uint64_t bits = allowed[i]; bits; bits &= bits - 1) {
                const size_t row = i * 64 + (size_t)__builtin_ctzll(bits);
                if (row < n_out)
                    kernels(run)->f->matvec(&(tern_matvec_args){.y = logits + row,
                                                                .x = x,
                                                                .w = w->rows + row * w->row_bytes,
                                                                .type = w->type,
                                                                .row_bytes = w->row_bytes,
                                                                .n_rows = 1,
                                                                .n_in = n_in,
                                                                .scale = w->source.scale});
            }
}

// The logits of a row, all that count, into the instance's buffer, then the greatest of them.
static void top_k_of_all(cpu_run *run, const cpu_step *step, const tern_team *team,
                         const tern_weight *w, int32_t row) {
    const tern_wants *wants = &run->batch->wants;
    float *logits = run->instance->logits;
    const uint64_t *allowed = allowed_of(run, row);
    const tern_vid x = step->node->in[0];
    if (w->info.kind == TERN_WEIGHT_GROUPED) {
        tern_grouped_rows one = row_in_groups(run, x, row, scratch(run, team));
        cpu_grouped_linear(run, step, team, &(cpu_product){.w = w, .out = logits}, &one);
    } else {
        const float *floats = (const float *)cpu_value(run, x) + row * w->source.n_cols;
        if (are_few(allowed, w->source.n_rows))
            few_logits(run, step, w, floats, allowed, logits);
        else
            cpu_float_linear(run, step, team, &(cpu_product){.w = w, .out = logits}, floats, 1);
    }
    tern_team_barrier(team);
    if (team->thread == 0)
        select_top_k(logits, w->source.n_rows, allowed, wants->top_k,
                     wants->top_ids + row * wants->top_k, wants->top_logits + row * wants->top_k);
}

// The same for n_rows by the exact head. One thread writes whether there is another round; all read
// it after a barrier.
static void top_k_screened(cpu_run *run, const cpu_step *step, const tern_team *team, int32_t row,
                           size_t n_rows) {
    const tern_batch *b = run->batch;
    int32_t *ids = b->wants.top_ids + row * b->wants.top_k;
    float *values = b->wants.top_logits + row * b->wants.top_k;
    const tern_vid in = step->node->in[0];
    const float *x = (const float *)cpu_value(run, in) + row * cols(run, in);
    tern_head_query *q = run->instance->query;
    if (team->thread == 0)
        tern_head_begin(q, x, n_rows, b->wants.top_k,
                        b->wants.allowed ? b->wants.allowed + row : NULL);
    for (bool more = true; more;) {
        tern_team_barrier(team);
        size_t n = tern_head_n_items(q), block = tern_head_block(q), first, last;
        while (tern_team_claim(counter(run, step, 0), n, block, &first, &last))
            tern_head_work(q, first, last);
        tern_team_barrier(team);
        if (team->thread == 0) {
            run->instance->more = tern_head_next(q, ids, values);
            atomic_store(counter(run, step, 0), 0);
        }
        tern_team_barrier(team);
        more = run->instance->more;
    }
}

// The order of scores is that of the products.
static void cap_values(const cpu_run *run, const tern_node *n, const tern_team *team, float *values,
                       int32_t n_rows) {
    size_t count = (size_t)n_rows * (size_t)run->batch->wants.top_k;
    if (team->thread == 0) kernels(run)->f->soft_cap(values, values, n->soft_cap, count);
}

static void step_top_k(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_batch *b = run->batch;
    const float *all = tern_batch_data(b, run->plan->scores); // NULL: not wanted
    bool fused = n->op == TERN_OP_LINEAR_TOP_K;
    const tern_weight *w = fused ? run->plan->weights[n->in[1]] : NULL;
    const tern_head_query *query = all ? NULL : run->instance->query;
    int32_t at_once = query ? (int32_t)tern_head_query_max(query) : 1;
    for (int32_t row = 0; row < b->n_outputs; row += at_once) {
        int32_t *ids = b->wants.top_ids + row * b->wants.top_k;
        float *values = b->wants.top_logits + row * b->wants.top_k;
        if (all) {
            int64_t n_vocab = cols(run, run->plan->scores);
            if (team->thread == 0)
                select_top_k(all + row * n_vocab, n_vocab, allowed_of(run, row), b->wants.top_k,
                             ids, values);
            continue;
        }
        int32_t n_rows = b->n_outputs - row < at_once ? b->n_outputs - row : at_once;
        if (row > 0) restart(run, step, team);
        if (query)
            top_k_screened(run, step, team, row, (size_t)n_rows);
        else
            top_k_of_all(run, step, team, w, row);
        if (n->soft_cap != 0) cap_values(run, n, team, values, n_rows);
    }
}
const cpu_op cpu_op_TOP_K = {.step = step_top_k};
const cpu_op cpu_op_LINEAR_TOP_K = {.step = step_top_k, .scratch = top_k_scratch};
