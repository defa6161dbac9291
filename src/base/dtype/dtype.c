// The table of element types: names, file ids, block sizes.
#include "base/dtype/dtype.h"

#include <strings.h>

typedef struct dtype_info {
    const char *name;
    int ggml_id;
    uint16_t block_n, block_bytes;
} dtype_info;

static const dtype_info infos[TERN_DTYPE_COUNT] = {
#define TERN_DTYPE_ROW(name, text, ggml_id, block_n, block_bytes)                                  \
    {text, ggml_id, block_n, block_bytes},
#include "base/dtype/dtype.inc"
#undef TERN_DTYPE_ROW
};

const char *tern_dtype_name(tern_dtype type) {
    return (unsigned)type < TERN_DTYPE_COUNT ? infos[type].name : "?";
}

int tern_dtype_ggml_id(tern_dtype type) { return infos[type].ggml_id; }

bool tern_dtype_from_ggml_id(int64_t id, tern_dtype *type) {
    for (int i = 0; i < TERN_DTYPE_COUNT; i++) {
        if (infos[i].ggml_id < 0 || infos[i].ggml_id != id) continue;
        *type = (tern_dtype)i;
        return true;
    }
    return false;
}

bool tern_dtype_from_name(const char *name, tern_dtype *type) {
    for (int i = 0; i < TERN_DTYPE_COUNT; i++) {
        if (strcasecmp(infos[i].name, name)) continue;
        *type = (tern_dtype)i;
        return true;
    }
    return false;
}

size_t tern_dtype_block_n(tern_dtype type) { return infos[type].block_n; }

size_t tern_dtype_block_bytes(tern_dtype type) { return infos[type].block_bytes; }

bool tern_dtype_is_ternary(tern_dtype type) {
    return type == TERN_DTYPE_TQ1_0 || type == TERN_DTYPE_TQ2_0 || type == TERN_DTYPE_I2_S ||
           type == TERN_DTYPE_HF_TERNARY;
}

size_t tern_dtype_group_n(tern_dtype type) {
    switch (type) {
    case TERN_DTYPE_Q1_0:
    case TERN_DTYPE_Q1_0_32:
    case TERN_DTYPE_Q2_0:
    case TERN_DTYPE_PQ2_0:
    case TERN_DTYPE_PTQ1_0:
    case TERN_DTYPE_TQ1_0:
    case TERN_DTYPE_STQ1_0:
    case TERN_DTYPE_TQ2_0: return tern_dtype_block_n(type);
    default: return 0;
    }
}

bool tern_dtype_is_float(tern_dtype type) {
    return type == TERN_DTYPE_F32 || type == TERN_DTYPE_F16 || type == TERN_DTYPE_BF16;
}

bool tern_dtype_is_readable(tern_dtype type) {
    // pages are built without these
    bool is_grid = type >= TERN_DTYPE_IQ2_XXS && type <= TERN_DTYPE_NVFP4;
    return is_grid ? tern_dtype_has_grid(type) : type < TERN_DTYPE_Q8_1;
}

bool tern_dtype_bytes(tern_dtype type, uint64_t n, uint64_t n_row, uint64_t *bytes) {
    uint64_t block_n = infos[type].block_n, block_bytes = infos[type].block_bytes;
    if (block_n == 0) return false;
    // The blocks of these two do not follow rows: I2_S runs through the whole tensor, and a byte of
    // HF_TERNARY holds four rows.
    bool whole_tensor = type == TERN_DTYPE_I2_S || type == TERN_DTYPE_HF_TERNARY;
    if ((whole_tensor ? n : n_row) % block_n || (n_row && n % n_row)) return false;
    if (n && !n_row) return false;
    return !__builtin_mul_overflow(n / block_n, block_bytes, bytes) &&
           !__builtin_add_overflow(*bytes, type == TERN_DTYPE_I2_S ? 32 : 0, bytes);
}
