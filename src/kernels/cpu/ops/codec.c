// Ops of codecs, which make sound of codes. A convolution's unit of work is a block of outputs for
// some rows of a sequence; what it looks back to lies in the sequence's state until all units of
// the step are done, and only then the state moves on.
#include <string.h>
#include "kernels/cpu/ops/ops.h"

static void step_code_digits(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t n_codes = (size_t)cols(run, n->in[0]), n_digits = (size_t)n->digits.n;
    const int32_t *codes = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (size_t i = t * n_codes; i < last * n_codes; i++) {
            int32_t rest = codes[i] > 0 ? codes[i] : 0;
            for (size_t j = 0; j < n_digits; j++) {
                int32_t levels = n->digits.levels[j], half = levels / 2;
                y[i * n_digits + j] = (float)(rest % levels - half) / (float)(half ? half : 1);
                rest /= levels;
            }
        }
}
const cpu_op cpu_op_CODE_DIGITS = {.step = step_code_digits};

static void step_half_snake(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]), *alpha = run->plan->weights[n->in[1]]->vector;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) kernels(run)->f->half_snake(y + t * d, x + t * d, alpha, d);
}
const cpu_op cpu_op_HALF_SNAKE = {.step = step_half_snake};

// ---- What a convolution looks back to ----------------------------------------------------------

// A sequence's rows of a value in this batch, and those before them.
typedef struct stretch {
    const float *before, *x;
    size_t n_before, n, first; // first: of the batch
    size_t cols;
} stretch;

static float *tail_of(const cpu_run *run, const tern_page *page, tern_vid v) {
    return (float *)(void *)(page->memory + cpu_page_pool_offset(run->instance->page_pool, v));
}

static stretch stretch_of(const cpu_run *run, const tern_node *n, size_t chunk) {
    const tern_chunk *c = &run->batch->chunks[chunk];
    const tern_value *x = &run->plan->g->values[n->in[0]];
    const tern_value *state = &run->plan->g->values[n->in[3]];
    size_t times = (size_t)x->times, first = first_row(run->batch, chunk) * times;
    return (stretch){.before = tail_of(run, cpu_state_pages(run, c, n->in[3]), n->in[3]),
                     .x = (const float *)cpu_value(run, n->in[0]) + first * (size_t)x->cols,
                     .n_before = (size_t)state->rows,
                     .n = (size_t)c->n_tokens * times,
                     .first = first,
                     .cols = (size_t)x->cols};
}

// The state as it is after n rows of the stretch; `to` may be the state before them.
static void keep_tail(const stretch *s, size_t n, float *to) {
    size_t old = n < s->n_before ? s->n_before - n : 0, more = s->n_before - old;
    memmove(to, s->before + (s->n_before - old) * s->cols, old * s->cols * sizeof *to);
    memcpy(to + old * s->cols, s->x + (n - more) * s->cols, more * s->cols * sizeof *to);
}

// After all units have read the states: each sequence's state moves on.
static void keep_tails(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t i, end, times = (size_t)run->plan->g->values[n->in[0]].times;
    tern_team_barrier(team);
    while (tern_team_claim(counter(run, step, 1), (size_t)run->batch->n_chunks, 1, &i, &end)) {
        const tern_chunk *c = &run->batch->chunks[i];
        stretch s = stretch_of(run, n, i);
        if (c->keeps)
            keep_tail(&s, (size_t)c->kept_after * times, tail_of(run, &c->kept, n->in[3]));
        keep_tail(&s, s.n, tail_of(run, cpu_state_pages(run, c, n->in[3]), n->in[3]));
    }
}

// ---- Convolutions ------------------------------------------------------------------------------

#define UNIT_ROWS 192

// A unit of rows of the stretch, from t on. The first ones look back to the state: there the two
// are put together.
static void conv_rows(const cpu_run *run, const tern_node *n, const stretch *s, size_t block,
                      size_t t, float *room) {
    const size_t last = t + UNIT_ROWS < s->n ? t + UNIT_ROWS : s->n;
    const tern_causal_attrs *at = &n->causal;
    size_t n_in = s->cols, first = block * TERN_CONV_OUTPUTS, n_out = (size_t)at->n_out;
    size_t mixed = last < s->n_before ? last : s->n_before;
    tern_conv1d_args a = {.y_stride = n_out,
                          .n_in = n_in,
                          .n_taps = (size_t)at->taps,
                          .dilation = (size_t)at->dilation,
                          .n_out =
                              n_out - first < TERN_CONV_OUTPUTS ? n_out - first : TERN_CONV_OUTPUTS,
                          .w = run->plan->weights[n->in[1]]->vector +
                               block * (size_t)at->taps * n_in * TERN_CONV_OUTPUTS,
                          .bias = run->plan->weights[n->in[2]]->vector + first};
    float *y = (float *)cpu_value(run, n->out[0]) + s->first * n_out + first;
    if (t < mixed) {
        size_t old = s->n_before - t;
        memcpy(room, s->before + t * n_in, old * n_in * sizeof *room);
        memcpy(room + old * n_in, s->x, mixed * n_in * sizeof *room);
        a.x = room;
        a.y = y + t * n_out;
        a.n_rows = mixed - t;
        kernels(run)->f->conv1d(&a);
        t = mixed;
    }
    if (t == last) return;
    a.x = s->x + (t - s->n_before) * n_in;
    a.y = y + t * n_out;
    a.n_rows = last - t;
    kernels(run)->f->conv1d(&a);
}

static size_t row_units(const stretch *s) { return (s->n + UNIT_ROWS - 1) / UNIT_ROWS; }

// Units of a block of outputs follow each other: their weights stay in the cache.
static void step_conv1d(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t blocks = ((size_t)n->causal.n_out + TERN_CONV_OUTPUTS - 1) / TERN_CONV_OUTPUTS;
    size_t n_chunks = (size_t)run->batch->n_chunks, n_each = 0, unit, end;
    for (size_t i = 0; i < n_chunks; i++) {
        stretch s = stretch_of(run, n, i);
        n_each += row_units(&s);
    }
    while (tern_team_claim(counter(run, step, 0), blocks * n_each, 1, &unit, &end)) {
        size_t part = unit % n_each, i = 0;
        stretch s = stretch_of(run, n, 0);
        for (; part >= row_units(&s); s = stretch_of(run, n, ++i)) part -= row_units(&s);
        conv_rows(run, n, &s, unit / n_each, part * UNIT_ROWS, scratch(run, team));
    }
    keep_tails(run, step, team);
}

static size_t causal_scratch(const tern_plan *p, const tern_node *n) {
    const tern_value *state = &p->g->values[n->in[3]];
    return 2 * (size_t)state->rows * (size_t)state->cols * sizeof(float);
}
const cpu_op cpu_op_CONV1D = {.step = step_conv1d, .scratch = causal_scratch};

static void upsample_rows(const cpu_run *run, const tern_node *n, const stretch *s, size_t from,
                          size_t to) {
    const tern_causal_attrs *at = &n->causal;
    size_t n_out = (size_t)at->n_out, rate = (size_t)at->rate;
    tern_upsample_args a = {.w = run->plan->weights[n->in[1]]->vector,
                            .bias = run->plan->weights[n->in[2]]->vector,
                            .n_in = s->cols,
                            .n_out = n_out,
                            .n_groups = (size_t)at->groups,
                            .rate = rate};
    for (size_t t = from; t < to; t++) {
        a.before = t ? s->x + (t - 1) * s->cols : s->before;
        a.x = s->x + t * s->cols;
        a.y = (float *)cpu_value(run, n->out[0]) + (s->first + t) * rate * n_out;
        kernels(run)->f->upsample_conv(&a);
    }
}

// Rows of all sequences one after the other, in blocks that may have rows of several.
static void step_upsample_conv(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (size_t i = 0; i < (size_t)run->batch->n_chunks; i++) {
            stretch s = stretch_of(run, n, i);
            size_t from = t > s.first ? t - s.first : 0, to = last > s.first ? last - s.first : 0;
            if (from < s.n) upsample_rows(run, n, &s, from, to < s.n ? to : s.n);
        }
    keep_tails(run, step, team);
}
const cpu_op cpu_op_UPSAMPLE_CONV = {.step = step_upsample_conv};
