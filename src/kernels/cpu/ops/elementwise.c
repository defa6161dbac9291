// Ops that make each element from those in its place.
#include <string.h>
#include "kernels/cpu/ops/ops.h"

static void step_elementwise(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const tern_float_kernels *f = kernels(run)->f;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *a = cpu_value(run, n->in[0]);
    const float *b = n->n_in > 1 ? cpu_value(run, n->in[1]) : NULL;
    float *y = cpu_value(run, n->out[0]);
    for (size_t first, last;
         claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &first, &last);) {
        size_t at = first * d, count = (last - first) * d;
        switch (n->op) {
        case TERN_OP_ADD: f->add(y + at, a + at, b + at, count); break;
        case TERN_OP_MUL: f->mul(y + at, a + at, b + at, count); break;
        case TERN_OP_SCALE: f->scale(y + at, a + at, n->scale, count); break;
        case TERN_OP_SCALE_ADD:
            f->scale(y + at, b + at, n->scale, count);
            f->add(y + at, a + at, y + at, count);
            break;
        case TERN_OP_GLU: f->glu(y + at, a + at, b + at, count, cpu_act_of(n->act.kind)); break;
        default: f->act(y + at, a + at, count, cpu_act_of(n->act.kind)); break;
        }
    }
}
static void step_bias(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]), *b = run->plan->weights[n->in[1]]->vector;
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) kernels(run)->f->add(y + t * d, x + t * d, b, d);
}
const cpu_op cpu_op_BIAS = {.step = step_bias};

const cpu_op cpu_op_ADD = {.step = step_elementwise};
const cpu_op cpu_op_MUL = {.step = step_elementwise};
const cpu_op cpu_op_SCALE = {.step = step_elementwise};
const cpu_op cpu_op_SCALE_ADD = {.step = step_elementwise};
const cpu_op cpu_op_GLU = {.step = step_elementwise};
const cpu_op cpu_op_ACT = {.step = step_elementwise};

static void step_scale_pieces(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (size_t at = t * d; t < last; t++)
            for (int i = 0; i < TERN_PIECES_MAX; i++) {
                kernels(run)->f->scale(y + at, x + at, n->pieces.factors[i],
                                       (size_t)n->pieces.widths[i]);
                at += (size_t)n->pieces.widths[i];
            }
}
const cpu_op cpu_op_SCALE_PIECES = {.step = step_scale_pieces};

static void step_gain(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]), n_gains = (size_t)cols(run, n->in[1]);
    const float *x = cpu_value(run, n->in[0]), *gains = cpu_value(run, n->in[1]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            const float gain = gains[t * n_gains + (size_t)n->first];
            if (gain != 0)
                kernels(run)->f->scale(y + t * d, x + t * d, gain, d);
            else // whatever x is
                memset(y + t * d, 0, d * sizeof *y);
        }
}
const cpu_op cpu_op_GAIN = {.step = step_gain};

static void step_scale_by(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]), *s = run->plan->weights[n->in[1]]->vector;
    float *y = cpu_value(run, n->out[0]);
    const bool by_column = cols(run, n->in[1]) > 1;
    for (size_t t, last; claim_rows(run, step, cpu_rows(run, n->in[0]), ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            if (by_column)
                kernels(run)->f->mul(y + t * d, x + t * d, s, d);
            else
                kernels(run)->f->scale(y + t * d, x + t * d, *s, d);
}
const cpu_op cpu_op_SCALE_BY = {.step = step_scale_by};
