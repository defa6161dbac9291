// Mixtures of experts: each row is multiplied with a few of many matrices.
#include "kernels/webgpu/ops/gpu_op.h"

tern_status gpu_op_ROUTE(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)p;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "no %s", tern_op_name(n->op));
}
tern_status gpu_op_EXPERTS(tern_plan *p, const tern_node *n, tern_error *err) {
    return gpu_op_ROUTE(p, n, err);
}
tern_status gpu_op_MIX(tern_plan *p, const tern_node *n, tern_error *err) {
    return gpu_op_ROUTE(p, n, err);
}
tern_status gpu_op_SSM(tern_plan *p, const tern_node *n, tern_error *err) {
    return gpu_op_ROUTE(p, n, err);
}
tern_status gpu_op_SCALE_PIECES(tern_plan *p, const tern_node *n, tern_error *err) {
    return gpu_op_ROUTE(p, n, err);
}
