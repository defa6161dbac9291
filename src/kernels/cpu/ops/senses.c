// Ops of models that see and hear: rows of images in texts, squares of images, windows of
// sounds. (Attention to what a sequence is about: attention.c.)
#include <math.h>
#include <string.h>
#include "kernels/cpu/ops/ops.h"

// Input embeddings take the place of some of x's rows, or are added to them.
static void step_input_embeds(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const bool any = tern_batch_data(run->batch, n->in[1]) != NULL;
    const bool adds = n->op == TERN_OP_ADD_INPUT_EMBEDS;
    const size_t first = adds ? (size_t)n->first : 0;
    size_t d = (size_t)cols(run, n->in[0]), width = (size_t)cols(run, n->in[1]);
    const float *x = cpu_value(run, n->in[0]), *rows = any ? cpu_value(run, n->in[1]) : NULL;
    const int32_t *ids = cpu_value(run, n->in[2]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            const float *row = any && ids[t] < 0 ? rows + t * width + first : NULL;
            memcpy(y + t * d, row && !adds ? row : x + t * d, d * sizeof *y);
            for (size_t i = 0; row && adds && i < d; i++) y[t * d + i] += row[i];
        }
}
const cpu_op cpu_op_REPLACE = {.step = step_input_embeds};
const cpu_op cpu_op_ADD_INPUT_EMBEDS = {.step = step_input_embeds};

// The part of a grid's axis under a triangle: places first .. last. A place at `at` counts fully,
// one that is `width` away not at all. All shares together are 1.
typedef struct triangle {
    float at, width, whole;
    size_t first, last;
} triangle;

static float share(const triangle *t, size_t i) {
    float s = 1 - fabsf((float)i - t->at) / t->width;
    return s > 0 ? s / t->whole : 0;
}

static triangle triangle_of(float at, float width, size_t side) {
    float most = (float)(side - 1), reach = width > 0 ? width < most ? width : most + 1 : 0;
    triangle t = {.at = at > -1 ? at < most + 1 ? at : most : 0, .width = width, .whole = 1};
    float low = t.at - reach, high = t.at + reach, sum = 0;
    t.first = low > 0 ? (size_t)low : 0;
    t.last = high < most ? (size_t)high : side - 1;
    for (size_t i = t.first; i <= t.last; i++) sum += share(&t, i);
    if (sum > 0) t.whole = sum;
    return t;
}

static float inside(float at, size_t side) {
    float most = (float)(side - 1);
    return at > 0 ? at < most ? at : most : 0;
}

static void step_add_point(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]), width = (size_t)cols(run, n->in[1]), side = 1;
    size_t n_rows = (size_t)run->plan->g->values[n->in[2]].rows;
    const float *x = cpu_value(run, n->in[0]), *p = cpu_value(run, n->in[1]);
    const float *table = run->plan->weights[n->in[2]]->vector;
    float *out = cpu_value(run, n->out[0]);
    while (side * side < n_rows) side++;
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            const float *at = p + t * width;
            bool wide = width == 4;
            triangle rows = triangle_of(wide ? at[0] : inside(at[0], side), wide ? at[2] : 1, side);
            triangle columns =
                triangle_of(wide ? at[1] : inside(at[1], side), wide ? at[3] : 1, side);
            float *to = out + t * d;
            memcpy(to, x + t * d, d * sizeof *to);
            for (size_t r = rows.first; r <= rows.last; r++)
                for (size_t c = columns.first; c <= columns.last; c++) {
                    float w = share(&rows, r) * share(&columns, c);
                    const float *from = table + (r * side + c) * d;
                    for (size_t i = 0; i < d; i++) to[i] += w * from[i];
                }
        }
}
const cpu_op cpu_op_ADD_POINT = {.step = step_add_point};

// Rows of a value follow each other, so only their counting changes.
static void step_merge(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->out[0]);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        memcpy(y + t * d, x + t * d, (last - t) * d * sizeof *y);
}
const cpu_op cpu_op_MERGE = {.step = step_merge};

// ---- Along all rows ----------------------------------------------------------------------------

static void step_windows(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t width = (size_t)n->windows.width, every = (size_t)n->windows.step,
           d = (size_t)cols(run, n->in[0]);
    size_t taps = n->windows.by_column ? width / d : 0;
    size_t have = (size_t)cpu_rows(run, n->in[0]) * d, before = (size_t)n->windows.before;
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            // Numbers begin .. end - 1 of the window are x's, the others zeros.
            size_t at = t * every, begin = at < before ? before - at : 0, end = width;
            if (at + width > before + have) end = at < before + have ? before + have - at : begin;
            if (begin > width) begin = end = width;
            float *to = y + t * width;
            const float *from = x + (at + begin - before);
            if (end - begin < width) memset(to, 0, width * sizeof *to);
            if (!n->windows.by_column) memcpy(to + begin, from, (end - begin) * sizeof *to);
            for (size_t j = begin / d; taps > 0 && j < end / d; j++)
                for (size_t c = 0; c < d; c++) to[c * taps + j] = from[(j - begin / d) * d + c];
        }
}
const cpu_op cpu_op_WINDOWS = {.step = step_windows};

// Every thread takes both means of all rows itself, in one order: the pass over numbers that are
// there already is short beside the convolution that made them.
static void step_whole_norm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]), n_rows = (size_t)cpu_rows(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    const float *w = run->plan->weights[n->in[1]]->vector,
                *b = run->plan->weights[n->in[2]]->vector;
    float *y = cpu_value(run, n->out[0]);
    double mean = 0, square = 0, count = (double)(n_rows * d);
    for (size_t i = 0; i < n_rows * d; i++) mean += (double)x[i];
    mean /= count;
    for (size_t i = 0; i < n_rows * d; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
    float scale = (float)(1 / sqrt(square / count + (double)n->norm.eps)), middle = (float)mean;
    for (size_t t, last; claim_rows(run, step, (int64_t)n_rows, ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            for (size_t c = 0; c < d; c++)
                y[t * d + c] = (x[t * d + c] - middle) * scale * w[c] + b[c];
}
const cpu_op cpu_op_WHOLE_NORM = {.step = step_whole_norm};
