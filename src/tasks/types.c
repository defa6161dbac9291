// The public tern_type and the internal tern_dtype.
#include "tasks/tasks.h"

static const tern_dtype dtypes[] = {
    [TERN_TYPE_F32] = TERN_DTYPE_F32,     [TERN_TYPE_F16] = TERN_DTYPE_F16,
    [TERN_TYPE_BF16] = TERN_DTYPE_BF16,   [TERN_TYPE_Q8_0] = TERN_DTYPE_Q8_0,
    [TERN_TYPE_Q4_0] = TERN_DTYPE_Q4_0,   [TERN_TYPE_Q4_K] = TERN_DTYPE_Q4_K,
    [TERN_TYPE_Q5_K] = TERN_DTYPE_Q5_K,   [TERN_TYPE_Q6_K] = TERN_DTYPE_Q6_K,
    [TERN_TYPE_TQ1_0] = TERN_DTYPE_TQ1_0, [TERN_TYPE_TQ2_0] = TERN_DTYPE_TQ2_0,
    [TERN_TYPE_I2_S] = TERN_DTYPE_I2_S,   [TERN_TYPE_Q2_0] = TERN_DTYPE_Q2_0,
    [TERN_TYPE_PQ2_0] = TERN_DTYPE_PQ2_0, [TERN_TYPE_PTQ1_0] = TERN_DTYPE_PTQ1_0,
    [TERN_TYPE_Q1_0] = TERN_DTYPE_Q1_0,
};
#define N_TYPES ((int)(sizeof dtypes / sizeof *dtypes))

bool tern_type_to_dtype(tern_type type, tern_dtype *out) {
    if (type <= TERN_TYPE_AUTO || (int)type >= N_TYPES) return false;
    *out = dtypes[type];
    return true;
}

tern_type tern_type_from_name(const char *name) {
    tern_dtype type;
    if (!name || !tern_dtype_from_name(name, &type)) return TERN_TYPE_AUTO;
    for (int i = 1; i < N_TYPES; i++)
        if (dtypes[i] == type) return (tern_type)i;
    return TERN_TYPE_AUTO;
}

const char *tern_type_name(tern_type type) {
    tern_dtype dtype;
    return tern_type_to_dtype(type, &dtype) ? tern_dtype_name(dtype) : "auto";
}
