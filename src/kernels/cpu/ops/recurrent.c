// Ops whose rows follow from the rows before them through a state of fixed size: a short
// convolution, the gated delta rule and a selective state space. A unit of work is a sequence's
// rows of the batch and some columns or a head; the rows go one after the other.
#include <string.h>
#include "kernels/cpu/ops/ops.h"

// Rows of a chunk in two runs: up to where its states are wanted for going back, and the rest.
typedef struct rows_run {
    size_t first, n;
    bool keeps; // the states after these
} rows_run;

static int runs_of(const tern_chunk *c, rows_run runs[2]) {
    size_t n = (size_t)c->n_tokens, kept = c->keeps ? (size_t)c->kept_after : 0;
    if (kept == 0 || kept >= n) {
        runs[0] = (rows_run){0, n, kept > 0};
        return 1;
    }
    runs[0] = (rows_run){0, kept, true};
    runs[1] = (rows_run){kept, n - kept, false};
    return 2;
}

static float *state_of(const cpu_run *run, const tern_page *page, tern_vid v) {
    return (float *)(void *)(page->memory + cpu_page_pool_offset(run->instance->page_pool, v));
}

#define CONV_COLS 256 // of a unit

static void conv_unit(const cpu_run *run, const tern_node *n, size_t chunk, size_t first_col,
                      size_t last_col) {
    const tern_chunk *c = &run->batch->chunks[chunk];
    const tern_value *w = &run->plan->g->values[n->in[1]];
    size_t d = (size_t)w->rows, taps = (size_t)w->cols, row = first_row(run->batch, chunk);
    tern_conv_args a = {.y_stride = d,
                        .x_stride = d,
                        .w = run->plan->weights[n->in[1]]->vector,
                        .bias = n->n_in > 3 ? run->plan->weights[n->in[3]]->vector : NULL,
                        .state = state_of(run, cpu_state_pages(run, c, n->in[2]), n->in[2]),
                        .n_cols = d,
                        .n_taps = taps,
                        .first = first_col,
                        .last = last_col,
                        .act = cpu_act_of(n->act.kind)};
    rows_run runs[2];
    int n_runs = runs_of(c, runs);
    for (int i = 0; i < n_runs; i++) {
        a.x = (const float *)cpu_value(run, n->in[0]) + (row + runs[i].first) * d;
        a.y = (float *)cpu_value(run, n->out[0]) + (row + runs[i].first) * d;
        a.n_rows = runs[i].n;
        kernels(run)->f->conv(&a);
        float *kept = runs[i].keeps ? state_of(run, &c->kept, n->in[2]) : NULL;
        for (size_t t = 0; kept && t < taps - 1; t++)
            memcpy(kept + t * d + first_col, a.state + t * d + first_col,
                   (last_col - first_col) * sizeof *kept);
    }
}

static void step_depthwise_conv(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]), blocks = (d + CONV_COLS - 1) / CONV_COLS, unit, end;
    size_t n_units = blocks * (size_t)run->batch->n_chunks;
    while (tern_team_claim(counter(run, step, 0), n_units, 1, &unit, &end)) {
        size_t first = unit % blocks * CONV_COLS, last = first + CONV_COLS;
        conv_unit(run, n, unit / blocks, first, last < d ? last : d);
    }
}
const cpu_op cpu_op_DEPTHWISE_CONV = {.step = step_depthwise_conv};

static void delta_unit(const cpu_run *run, const tern_node *n, size_t chunk, size_t head,
                       float *scratch_floats) {
    const tern_chunk *c = &run->batch->chunks[chunk];
    size_t dk = (size_t)n->delta.head_dim, dv = (size_t)n->delta.v_dim,
           n_k = (size_t)n->delta.n_k_heads;
    size_t n_v = (size_t)n->delta.n_v_heads, stride = 2 * n_k * dk + n_v * dv;
    size_t k_head = n->delta.tiled ? head % n_k : head / (n_v / n_k),
           row = first_row(run->batch, chunk);
    float *state = state_of(run, cpu_state_pages(run, c, n->in[5]), n->in[5]) + head * dk * dv;
    rows_run runs[2];
    int n_runs = runs_of(c, runs);
    for (int i = 0; i < n_runs; i++) {
        size_t first = row + runs[i].first;
        const float *qkv = (const float *)cpu_value(run, n->in[0]) + first * stride;
        const tern_delta_net_args a = {
            .out = (float *)cpu_value(run, n->out[0]) + (first * n_v + head) * dv,
            .q = qkv + k_head * dk,
            .k = qkv + (n_k + k_head) * dk,
            .v = qkv + 2 * n_k * dk + head * dv,
            .a = (const float *)cpu_value(run, n->in[1]) + first * n_v + head,
            .b = (const float *)cpu_value(run, n->in[2]) + first * n_v + head,
            .stride = stride,
            .out_stride = n_v * dv,
            .gate_stride = n_v,
            .n_rows = runs[i].n,
            .dk = dk,
            .dv = dv,
            .A = run->plan->weights[n->in[3]]->vector[head],
            .dt_bias = run->plan->weights[n->in[4]]->vector[head],
            .eps = n->delta.eps,
            .state = state,
            .state_stride = dv,
            .scratch = scratch_floats};
        kernels(run)->f->delta_net(&a);
        if (runs[i].keeps)
            memcpy(state_of(run, &c->kept, n->in[5]) + head * dk * dv, state,
                   dk * dv * sizeof *state);
    }
}

static void step_delta_net(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t heads = (size_t)n->delta.n_v_heads, n_units = heads * (size_t)run->batch->n_chunks, unit,
           end;
    while (tern_team_claim(counter(run, step, 0), n_units, 1, &unit, &end))
        delta_unit(run, n, unit / heads, unit % heads, scratch(run, team));
}

static size_t delta_scratch(const tern_plan *p, const tern_node *n) {
    (void)p;
    return tern_delta_net_scratch_floats((size_t)n->delta.head_dim) * sizeof(float);
}
const cpu_op cpu_op_DELTA_NET = {.step = step_delta_net, .scratch = delta_scratch};

static void ssm_unit(const cpu_run *run, const tern_node *n, size_t chunk, size_t head) {
    const tern_chunk *c = &run->batch->chunks[chunk];
    size_t n_state = (size_t)n->ssm.n_state, dim = (size_t)n->ssm.head_dim,
           n_heads = (size_t)n->ssm.n_heads;
    size_t n_groups = (size_t)n->ssm.n_groups, group = head / (n_heads / n_groups);
    size_t stride = n_heads * dim + 2 * n_groups * n_state, row = first_row(run->batch, chunk);
    size_t part = n_state * dim;
    float *state = state_of(run, cpu_state_pages(run, c, n->in[5]), n->in[5]) + head * part;
    rows_run runs[2];
    int n_runs = runs_of(c, runs);
    for (int i = 0; i < n_runs; i++) {
        size_t first = row + runs[i].first;
        const float *x = (const float *)cpu_value(run, n->in[0]) + first * stride;
        const float *b = x + n_heads * dim + group * n_state;
        const tern_ssm_args a = {
            .out = (float *)cpu_value(run, n->out[0]) + (first * n_heads + head) * dim,
            .x = x + head * dim,
            .b = b,
            .c = b + n_groups * n_state,
            .dt = (const float *)cpu_value(run, n->in[1]) + first * n_heads + head,
            .out_stride = n_heads * dim,
            .stride = stride,
            .dt_stride = n_heads,
            .n_rows = runs[i].n,
            .n_state = n_state,
            .n_cols = dim,
            .A = run->plan->weights[n->in[2]]->vector[head],
            .D = run->plan->weights[n->in[3]]->vector[head],
            .dt_bias = run->plan->weights[n->in[4]]->vector[head],
            .state = state,
            .state_stride = dim};
        kernels(run)->f->ssm(&a);
        if (runs[i].keeps)
            memcpy(state_of(run, &c->kept, n->in[5]) + head * part, state, part * sizeof *state);
    }
}

static void step_ssm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t heads = (size_t)n->ssm.n_heads, n_units = heads * (size_t)run->batch->n_chunks, unit,
           end;
    while (tern_team_claim(counter(run, step, 0), n_units, 1, &unit, &end))
        ssm_unit(run, n, unit / heads, unit % heads);
}
const cpu_op cpu_op_SSM = {.step = step_ssm};
