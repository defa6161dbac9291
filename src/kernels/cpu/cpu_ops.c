// The table of ops, read from the graph's: an op without a row here does not link.
#include "kernels/cpu/cpu.h"

#define TERN_OP_MODEL(id, ...) extern const cpu_op cpu_op_##id;
#define TERN_OP_FUSED          TERN_OP_MODEL
#include "graph/ops.inc"

const cpu_op *cpu_op_of(tern_op op) {
#define TERN_OP_MODEL(id, ...) [TERN_OP_##id] = &cpu_op_##id,
#define TERN_OP_FUSED          TERN_OP_MODEL
    static const cpu_op *const table[TERN_OP_COUNT] = {
#include "graph/ops.inc"
    };
    return table[op] && table[op]->step ? table[op] : NULL; // training has its own table
}

// Happens when a weight is bound.
const cpu_op cpu_op_TERNARIZE = {0};
