// Facts about key/value blocks and the attention kernel's scratch that do not depend on the
// instruction set. The layout of the blocks is described in kernels.h.
#ifndef TERN_KERNELS_CPU_FLOAT_KV_CACHE_H
#define TERN_KERNELS_CPU_FLOAT_KV_CACHE_H

#include "base/dtype/half.h"
#include "kernels/cpu/kernels.h"

enum { ATTENTION_TILE_ROWS = 12, ATTENTION_SPAN = 64, ATTENTION_CHUNK = 128 };

// Q8_0, Q4_0: scales of a position.
static inline size_t kv_groups(size_t head_dim) { return (head_dim + 31) / 32; }

static inline const uint8_t *q4_codes(const uint8_t *block, size_t head_dim) {
    return block + 32 * kv_groups(head_dim);
}

// Q4_0: the dimensions that a Walsh-Hadamard transform mixes.
enum { KV_ROTATION_MAX = 512 };
static inline size_t kv_rotation(size_t head_dim) {
    size_t block = head_dim & (~head_dim + 1);
    return block < KV_ROTATION_MAX ? block : KV_ROTATION_MAX;
}

// Dimension d of a position's values, `lane` its number in the block; not in Q4_0.
static inline float kv_value_at(tern_dtype type, const uint8_t *block, size_t head_dim, size_t lane,
                                size_t d) {
    size_t at = lane * head_dim + d;
    if (type == TERN_DTYPE_F32) return ((const float *)(const void *)block)[at];
    if (type == TERN_DTYPE_F16) return tern_f16_to_f32(((const uint16_t *)(const void *)block)[at]);
    size_t groups = kv_groups(head_dim);
    float scale = ((const float *)(const void *)block)[lane * groups + d / 32];
    return scale * (float)((const int8_t *)block)[64 * groups + at];
}

#endif
