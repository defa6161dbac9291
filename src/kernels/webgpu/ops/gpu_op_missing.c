// Ops that have no WGSL kernels: models that need one run on the CPU.
#include "kernels/webgpu/ops/gpu_op.h"

const char *gpu_lacks(const tern_graph *g) {
    static const bool missing[TERN_OP_COUNT] = {[TERN_OP_HADAMARD] = true};
    for (size_t i = 0; i < g->n_nodes; i++)
        if (missing[g->nodes[i].op]) return tern_op_name(g->nodes[i].op);
    return NULL;
}
