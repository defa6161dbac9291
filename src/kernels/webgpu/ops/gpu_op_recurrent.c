// Ops whose rows follow from the rows before them through a state of fixed size.
#include "kernels/webgpu/ops/gpu_op.h"

tern_status gpu_op_SCALE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_COLUMNS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_CONV(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_DELTA_NET(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_POOL(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_L2_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}
