// Ops that have no WGSL kernels: models that need one run on the CPU.
#include "kernels/webgpu/ops/gpu_op.h"

#define MISSING(ROW) ROW(GROUP_NORM) ROW(SCALE_BY)

const char *gpu_lacks(const tern_graph *g) {
#define ROW(id) [TERN_OP_##id] = true,
    static const bool missing[TERN_OP_COUNT] = {MISSING(ROW)};
#undef ROW
    for (size_t i = 0; i < g->n_nodes; i++)
        if (missing[g->nodes[i].op]) return tern_op_name(g->nodes[i].op);
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_LINEAR && g->nodes[i].soft_cap != 0) return "cap of scores";
    return NULL;
}

#define ROW(id)                                                                                    \
    tern_status gpu_op_##id(tern_plan *p, const tern_node *n, tern_error *err) {                   \
        (void)p;                                                                                   \
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "webgpu has no %s", tern_op_name(n->op));      \
    }
MISSING(ROW)
#undef ROW
