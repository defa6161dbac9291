// Ops of codecs.
#include "kernels/webgpu/ops/gpu_op.h"

static tern_status none(const tern_node *n, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the WebGPU backend has no %s",
                     tern_op_name(n->op));
}

tern_status gpu_op_CODE_DIGITS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}

tern_status gpu_op_CAUSAL_CONV(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}

tern_status gpu_op_UPSAMPLE_CONV(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}

tern_status gpu_op_HALF_SNAKE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return none(n, err);
}
