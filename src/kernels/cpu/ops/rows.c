// Ops that make rows from rows, each by itself: looked up, normed, quantized, picked.
#include <math.h>
#include <string.h>
#include "kernels/cpu/ops/ops.h"

static void step_embed(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const tern_weight *w = run->plan->weights[n->in[1]];
    const tern_weight_source *s = &w->source;
    const int32_t *ids = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            if (ids[t] >= 0) // else input embeddings give the row (replace)
                kernels(run)->f->decode(s->type, s->data.memory,
                                        (uint64_t)ids[t] * (uint64_t)s->n_cols, (size_t)s->n_cols,
                                        s->scale, y + t * (size_t)s->n_cols);
}
const cpu_op cpu_op_EMBED = {.step = step_embed};

// Groups of as many columns as the weight has are normed one by one: heads of queries and keys.
static void step_rms_norm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]), group = (size_t)cols(run, n->in[1]);
    const float *x = cpu_value(run, n->in[0]), *w = run->plan->weights[n->in[1]]->vector;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (size_t at = t * d; at < last * d; at += group)
            kernels(run)->f->rms_norm(y + at, x + at, w, group, n->norm.eps);
}
const cpu_op cpu_op_RMS_NORM = {.step = step_rms_norm};

static void step_norm_add(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]), *residual = cpu_value(run, n->in[1]);
    const float *w = run->plan->weights[n->in[2]]->vector;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (size_t at = t * d; at < last * d; at += d) {
            kernels(run)->f->rms_norm(y + at, x + at, w, d, n->norm.eps);
            kernels(run)->f->add(y + at, residual + at, y + at, d);
        }
}
const cpu_op cpu_op_NORM_ADD = {.step = step_norm_add};

static void step_layer_norm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    const float *w = n->n_in > 1 ? run->plan->weights[n->in[1]]->vector : NULL;
    const float *b = n->n_in > 2 ? run->plan->weights[n->in[2]]->vector : NULL;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            kernels(run)->f->layer_norm(y + t * d, x + t * d, w, b, d, n->norm.eps);
}
const cpu_op cpu_op_LAYER_NORM = {.step = step_layer_norm};

static void copy_table_row(cpu_run *run, const tern_node *n, size_t t, uint64_t row) {
    const tern_weight_source *s = &run->plan->weights[n->in[1]]->source;
    size_t d = (size_t)s->n_cols;
    float *y = (float *)cpu_value(run, n->out[0]) + t * d;
    kernels(run)->f->decode(s->type, s->data.memory, row * d, d, s->scale, y);
}

static void step_positions(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    for (size_t t, last; claim_rows(run, step, run->batch->n_tokens, ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            copy_table_row(run, n, t, (uint64_t)(run->instance->rows[t].position + n->first));
}
const cpu_op cpu_op_POSITIONS = {.step = step_positions};

static void step_segments(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const tern_batch *b = run->batch;
    const int32_t *ids = cpu_value(run, n->in[0]);
    int64_t most = run->plan->weights[n->in[1]]->source.n_rows - 1;
    size_t i, last;
    while (tern_team_claim(counter(run, step, 0), (size_t)b->n_chunks, 1, &i, &last)) {
        size_t t = first_row(b, i);
        int64_t segment = 0;
        for (int32_t k = 0; k < b->chunks[i].n_tokens; k++, t++) {
            copy_table_row(run, n, t, (uint64_t)segment);
            if (ids[t] == n->first && segment < most) segment++;
        }
    }
}
const cpu_op cpu_op_SEGMENTS = {.step = step_segments};

static void step_group_norm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const tern_float_kernels *f = kernels(run)->f;
    size_t d = (size_t)cols(run, n->in[0]), group = (size_t)n->norm.group;
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (size_t at = t * d; at < last * d; at += group) {
            float mean = f->dot(x + at, x + at, group) / (float)group;
            f->scale(y + at, x + at, 1 / sqrtf(mean + n->norm.eps), group);
        }
}
const cpu_op cpu_op_GROUP_NORM = {.step = step_group_norm};

static void step_l2_norm(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            float length = sqrtf(kernels(run)->f->dot(x + t * d, x + t * d, d));
            kernels(run)->f->scale(y + t * d, x + t * d, 1 / fmaxf(length, 1e-12f), d);
        }
}
const cpu_op cpu_op_L2_NORM = {.step = step_l2_norm};

static void step_hadamard(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_float_kernels *f = kernels(run)->f;
    const tern_rotation *r = &n->rotation;
    const float *signs = r->has_signs ? run->plan->weights[n->in[1]]->vector : NULL;
    size_t d = (size_t)cols(run, n->in[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            const float *x = (const float *)cpu_value(run, n->in[0]) + t * d;
            float *y = (float *)cpu_value(run, n->out[0]) + t * d;
            if (r->groups) x = cpu_rotation_order(r, x, d, scratch(run, team));
            f->hadamard(y, x, r->inverse ? NULL : signs, d, (size_t)r->block);
            if (r->inverse && signs) f->mul(y, y, signs, d);
        }
}

static size_t hadamard_scratch(const tern_plan *p, const tern_node *n) {
    return n->rotation.groups ? (size_t)p->g->values[n->in[0]].cols * sizeof(float) : 0;
}
const cpu_op cpu_op_HADAMARD = {.step = step_hadamard, .scratch = hadamard_scratch};

// ---- Quantized rows ----------------------------------------------------------------------------

// Makes rows [first, last) of a quantized value; `row` computes their floats into a buffer.
typedef const float *(*row_fn)(cpu_run *run, const tern_node *n, size_t t, float *buffer);

static const float *row_plain(cpu_run *run, const tern_node *n, size_t t, float *buffer) {
    (void)buffer;
    return (const float *)cpu_value(run, n->in[0]) + t * (size_t)cols(run, n->in[0]);
}

static const float *row_norm(cpu_run *run, const tern_node *n, size_t t, float *buffer) {
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = (const float *)cpu_value(run, n->in[0]) + t * d;
    kernels(run)->f->rms_norm(buffer, x, run->plan->weights[n->in[1]]->vector, d, n->norm.eps);
    return buffer;
}

static const float *row_glu_norm(cpu_run *run, const tern_node *n, size_t t, float *buffer) {
    size_t d = (size_t)cols(run, n->in[0]);
    const float *gate = (const float *)cpu_value(run, n->in[0]) + t * d;
    const float *up = (const float *)cpu_value(run, n->in[1]) + t * d;
    const float *w = run->plan->weights[n->in[2]]->vector;
    kernels(run)->f->glu(buffer, gate, up, d, cpu_act_of(n->act.kind));
    kernels(run)->f->rms_norm(buffer, buffer, w, d, n->act.eps);
    return buffer;
}

// In groups: a row is quantized in scratch, after its floats, and put among those of its block.
static void quantize_groups(cpu_run *run, const cpu_step *step, const tern_team *team, row_fn row) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->out[0]), n_groups = d / TERN_GROUP;
    int32_t n_rows = cpu_rows(run, n->out[0]);
    float *floats = scratch(run, team), *scale = floats + d;
    int32_t *minus = (int32_t *)(scale + n_groups);
    int8_t *q = (int8_t *)(minus + n_groups * TERN_GROUP_PARTS);
    tern_grouped_rows v;
    cpu_groups_layout(run->plan->device, (int64_t)d, n_rows, cpu_value(run, n->out[0]), &v);
    for (size_t t, last; claim_rows(run, step, n_rows, v.block, &t, &last);)
        for (; t < last; t++) {
            kernels(run)->f->quantize_groups(q, scale, minus, row(run, n, t, floats), d);
            tern_grouped_put_token(&v, d, t, q, scale, minus);
        }
}

static void quantize_rows(cpu_run *run, const cpu_step *step, const tern_team *team, row_fn row) {
    const tern_node *n = step->node;
    if (run->plan->g->values[n->out[0]].type == TERN_VALUE_I8GROUPS) {
        quantize_groups(run, step, team, row);
        return;
    }
    const tern_ternary_kernels *k = kernels(run)->t;
    size_t d = (size_t)cols(run, n->out[0]);
    int32_t n_rows = cpu_rows(run, n->out[0]);
    cpu_i8 v;
    cpu_i8_layout(run->plan->device, (int64_t)d, n_rows, cpu_value(run, n->out[0]), &v);
    for (size_t first, last;
         claim_rows(run, step, n_rows, k->gemm_token_block((size_t)n_rows), &first, &last);) {
        for (size_t t = first; t < last; t++) {
            int8_t *q = v.rows.q + t * v.rows.stride;
            kernels(run)->f->quantize_i8(q, &v.rows.inv_scale[t], &v.rows.sum[t],
                                         row(run, n, t, scratch(run, team)), d);
            memset(q + d, 0, v.rows.stride - d);
        }
        if (few_rows(run, n_rows))
            k->prepare(run->plan->device->packing, v.prepared, &v.rows, d, first, last);
        else
            k->make_panels(v.panels, &v.rows, d, first, last);
    }
}

static void step_quantize(cpu_run *run, const cpu_step *step, const tern_team *team) {
    quantize_rows(run, step, team, row_plain);
}
static void step_norm_quantize(cpu_run *run, const cpu_step *step, const tern_team *team) {
    quantize_rows(run, step, team, row_norm);
}
static void step_glu_norm_quantize(cpu_run *run, const cpu_step *step, const tern_team *team) {
    quantize_rows(run, step, team, row_glu_norm);
}

static size_t row_scratch(const tern_plan *p, const tern_node *n) {
    const tern_value *v = &p->g->values[n->out[0]];
    size_t d = (size_t)v->cols, floats = d * sizeof(float);
    size_t groups = d / TERN_GROUP * (1 + TERN_GROUP_PARTS) * sizeof(float);
    return v->type == TERN_VALUE_I8GROUPS ? floats + groups + d : floats;
}
const cpu_op cpu_op_QUANTIZE = {.step = step_quantize, .scratch = row_scratch};
const cpu_op cpu_op_NORM_QUANTIZE = {.step = step_norm_quantize, .scratch = row_scratch};
const cpu_op cpu_op_GLU_NORM_QUANTIZE = {.step = step_glu_norm_quantize, .scratch = row_scratch};

// ---- Picked rows and columns -------------------------------------------------------------------

static void step_take_rows(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const int32_t *rows = cpu_value(run, n->in[1]); // NULL: the last ones
    size_t skip = (size_t)(cpu_rows(run, n->in[0]) - cpu_rows(run, n->out[0]));
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->out[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            memcpy(y + t * d, x + (rows ? (size_t)rows[t] : skip + t) * d, d * sizeof *y);
}
const cpu_op cpu_op_TAKE_ROWS = {.step = step_take_rows};

static void step_columns(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t group = (size_t)n->columns.group, width = (size_t)n->columns.width,
           d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (size_t g = t * (d / group); g < last * (d / group); g++)
            memcpy(y + g * width, x + g * group + n->columns.first, width * sizeof *y);
}
const cpu_op cpu_op_COLUMNS = {.step = step_columns};

// One row of a sequence's rows. A mean adds them in their order.
static void step_pool(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const tern_float_kernels *f = kernels(run)->f;
    const tern_batch *b = run->batch;
    size_t d = (size_t)cols(run, n->in[0]), i, last;
    while (tern_team_claim(counter(run, step, 0), (size_t)b->n_chunks, 1, &i, &last)) {
        const float *x = (const float *)cpu_value(run, n->in[0]) + first_row(b, i) * d;
        float *y = (float *)cpu_value(run, n->out[0]) + i * d;
        size_t n_rows = (size_t)b->chunks[i].n_tokens;
        memcpy(y, n->pool.kind == TERN_POOL_LAST ? x + (n_rows - 1) * d : x, d * sizeof *y);
        if (n->pool.kind != TERN_POOL_MEAN) continue;
        for (size_t t = 1; t < n_rows; t++) f->add(y, y, x + t * d, d);
        f->scale(y, y, 1 / (float)n_rows, d);
    }
}
const cpu_op cpu_op_POOL = {.step = step_pool};
