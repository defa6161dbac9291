// Ops of models that hear.
#include "kernels/webgpu/ops/gpu_op.h"

static tern_status none(const tern_node *n, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_WINDOWS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}

tern_status gpu_op_WHOLE_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}

tern_status gpu_op_SOURCE_STORE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}

tern_status gpu_op_SOURCE_ATTENTION(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}
