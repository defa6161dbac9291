// Ops that make each element from those in its place.
#include "kernels/webgpu/ops/gpu_op.h"

// In the order of memory, a little beyond the end where the columns are not a multiple of four
// (gpu_plan.c).
static void add_elementwise(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t n_fours = (cols(p, n->out[0]) * gpu_times(p->g, n->out[0]) + 3) / 4;
    gpu_dispatch *d = add(p, kernel, groups(n_fours, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)n_fours);
    set(d, "ACT", tern_node_has(n, TERN_ATTRS_ACT) ? n->act.kind : 0);
    set(d, "SCALE", tern_node_has(n, TERN_ATTRS_SCALE) ? (double)n->scale : 0);
    for (int i = 0; i < n->n_in; i++) bind_value(p, d, n->in[i]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
}

tern_status gpu_op_ADD(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_elementwise(p, n, GPU_ADD);
    return TERN_OK;
}

// With a vector that each row reads.
static gpu_dispatch *add_with_vector(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, kernel, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    bind_part(d, &p->weights[n->in[1]]->parts[0]);
    set_phase(p, d, n->out[0]);
    return d;
}

// The scores of a classifier, say.
static void add_odd_bias(tern_plan *p, const tern_node *n) {
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_ODD_BIAS, groups(n_cols, 64), rows_of(p, n->out[0]));
    set(d, "COLS", (double)n_cols);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    bind_part(d, &p->weights[n->in[1]]->parts[0]);
    set_phase(p, d, n->out[0]);
}

tern_status gpu_op_BIAS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    if (cols(p, n->out[0]) % 4 != 0)
        add_odd_bias(p, n);
    else
        add_with_vector(p, n, GPU_BIAS);
    return TERN_OK;
}

tern_status gpu_op_SCALE_BY(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    set(add_with_vector(p, n, GPU_SCALE_BY), "BY_COLUMN", cols(p, n->in[1]) > 1);
    return TERN_OK;
}

tern_status gpu_op_GAIN(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_GAIN, groups(n_cols / 4, 64), rows_of(p, n->out[0]));
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "GAINS", (double)cols(p, n->in[1]));
    set(d, "GAIN", n->first);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    bind_value(p, d, n->in[1]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}

tern_status gpu_op_MUL(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_elementwise(p, n, GPU_MUL);
    return TERN_OK;
}

tern_status gpu_op_SCALE_ADD(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_elementwise(p, n, GPU_SCALE_ADD);
    return TERN_OK;
}

tern_status gpu_op_GLU(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_elementwise(p, n, GPU_GLU);
    return TERN_OK;
}

tern_status gpu_op_ACT(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_elementwise(p, n, GPU_ACT);
    return TERN_OK;
}

tern_status gpu_op_SCALE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_elementwise(p, n, GPU_SCALE);
    return TERN_OK;
}
