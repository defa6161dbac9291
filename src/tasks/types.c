// The public tern_type and the internal tern_dtype.
#include "tasks/tasks.h"

#include <strings.h>

// Entries that are not a tensor's type have a separate name: MLX's forms (convert/convert_mlx.c),
// and mixtures, which give most matrices the type beside them (convert/convert_mixtures.c). The
// number is general.file_type in llama.cpp and bitnet.cpp.
static const struct {
    tern_dtype type;
    int file_type;
    const char *mixture;
} rows[] = {
    [TERN_TYPE_F32] = {TERN_DTYPE_F32, 0, NULL},
    [TERN_TYPE_F16] = {TERN_DTYPE_F16, 1, NULL},
    [TERN_TYPE_BF16] = {TERN_DTYPE_BF16, 32, NULL},
    [TERN_TYPE_Q8_0] = {TERN_DTYPE_Q8_0, 7, NULL},
    [TERN_TYPE_Q4_0] = {TERN_DTYPE_Q4_0, 2, NULL},
    [TERN_TYPE_Q4_K] = {TERN_DTYPE_Q4_K, 14, NULL},
    [TERN_TYPE_Q5_K] = {TERN_DTYPE_Q5_K, 16, NULL},
    [TERN_TYPE_Q6_K] = {TERN_DTYPE_Q6_K, 18, NULL},
    [TERN_TYPE_TQ1_0] = {TERN_DTYPE_TQ1_0, 36, NULL},
    [TERN_TYPE_TQ2_0] = {TERN_DTYPE_TQ2_0, 37, NULL},
    [TERN_TYPE_I2_S] = {TERN_DTYPE_I2_S, 40, NULL},
    [TERN_TYPE_Q2_0] = {TERN_DTYPE_Q2_0, 41, NULL},
    [TERN_TYPE_PQ2_0] = {TERN_DTYPE_PQ2_0, 41, NULL},
    [TERN_TYPE_PTQ1_0] = {TERN_DTYPE_PTQ1_0, 41, NULL},
    [TERN_TYPE_Q1_0] = {TERN_DTYPE_Q1_0, 40, NULL},
    [TERN_TYPE_Q4_1] = {TERN_DTYPE_Q4_1, 3, NULL},
    [TERN_TYPE_Q5_0] = {TERN_DTYPE_Q5_0, 8, NULL},
    [TERN_TYPE_Q5_1] = {TERN_DTYPE_Q5_1, 9, NULL},
    [TERN_TYPE_Q2_K] = {TERN_DTYPE_Q2_K, 10, NULL},
    [TERN_TYPE_Q3_K_S] = {TERN_DTYPE_Q3_K, 11, "Q3_K_S"},
    [TERN_TYPE_Q3_K_M] = {TERN_DTYPE_Q3_K, 12, "Q3_K_M"},
    [TERN_TYPE_Q3_K_L] = {TERN_DTYPE_Q3_K, 13, "Q3_K_L"},
    [TERN_TYPE_Q4_K_S] = {TERN_DTYPE_Q4_K, 14, "Q4_K_S"},
    [TERN_TYPE_Q4_K_M] = {TERN_DTYPE_Q4_K, 15, "Q4_K_M"},
    [TERN_TYPE_Q5_K_S] = {TERN_DTYPE_Q5_K, 16, "Q5_K_S"},
    [TERN_TYPE_Q5_K_M] = {TERN_DTYPE_Q5_K, 17, "Q5_K_M"},
    [TERN_TYPE_IQ4_NL] = {TERN_DTYPE_IQ4_NL, 25, NULL},
    [TERN_TYPE_IQ4_XS] = {TERN_DTYPE_IQ4_XS, 30, NULL},
    [TERN_TYPE_MXFP4] = {TERN_DTYPE_MXFP4, 38, NULL},
    [TERN_TYPE_MLX_Q4] = {TERN_DTYPE_G4_64, -1, "MLX-Q4"},
    [TERN_TYPE_MLX_Q8] = {TERN_DTYPE_G8_64, -1, "MLX-Q8"},
};
#define N_TYPES ((int)(sizeof rows / sizeof *rows))

bool tern_type_to_dtype(tern_type type, tern_dtype *out) {
    if (type <= TERN_TYPE_AUTO || (int)type >= N_TYPES) return false;
    *out = rows[type].type;
    return true;
}

bool tern_type_is_mixture(tern_type type) {
    return type > TERN_TYPE_AUTO && (int)type < N_TYPES && rows[type].mixture;
}

bool tern_type_is_mlx(tern_type type) {
    return type == TERN_TYPE_MLX_Q4 || type == TERN_TYPE_MLX_Q8;
}

int tern_type_file_type(tern_type type) {
    return type > TERN_TYPE_AUTO && (int)type < N_TYPES ? rows[type].file_type : -1;
}

int tern_dtype_file_type(tern_dtype type) {
    for (int i = 1; i < N_TYPES; i++)
        if (rows[i].type == type) return rows[i].file_type;
    return 0;
}

tern_type tern_type_from_name(const char *name) {
    for (int i = 1; name && i < N_TYPES; i++)
        if (strcasecmp(tern_type_name((tern_type)i), name) == 0) return (tern_type)i;
    return TERN_TYPE_AUTO;
}

const char *tern_type_name(tern_type type) {
    tern_dtype dtype;
    if (!tern_type_to_dtype(type, &dtype)) return "auto";
    return rows[type].mixture ? rows[type].mixture : tern_dtype_name(dtype);
}
