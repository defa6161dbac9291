// Facts about key/value blocks and the attention kernel's scratch that do not depend on the
// instruction set. The layout of the blocks is described in kernels.h.
#ifndef TERN_KERNELS_CPU_FLOAT_KV_CACHE_H
#define TERN_KERNELS_CPU_FLOAT_KV_CACHE_H

#include "base/dtype/half.h"
#include "kernels/cpu/kernels.h"

enum { ATTENTION_TILE_ROWS = 12, ATTENTION_SPAN = 64, ATTENTION_CHUNK = 128 };

// Q8_0: scales of a position.
static inline size_t q8_groups(size_t head_dim) { return (head_dim + 31) / 32; }

// Dimension d of a position's values, `lane` its number in the block.
static inline float kv_value_at(tern_dtype type, const uint8_t *block, size_t head_dim, size_t lane,
                                size_t d) {
    size_t at = lane * head_dim + d;
    if (type == TERN_DTYPE_F32) return ((const float *)(const void *)block)[at];
    if (type == TERN_DTYPE_F16) return tern_f16_to_f32(((const uint16_t *)(const void *)block)[at]);
    size_t groups = q8_groups(head_dim);
    float scale = ((const float *)(const void *)block)[lane * groups + d / 32];
    return scale * (float)((const int8_t *)block)[64 * groups + at];
}

#endif
