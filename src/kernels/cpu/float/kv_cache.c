#include "kernels/cpu/float/kv_cache.h"

size_t tern_attention_scratch_floats(const tern_attention_args *args) {
    size_t hd16 = (args->head_dim + 15) / 16 * 16;
    size_t chunks = (args->head_dim + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK;
    size_t row = hd16 + chunks * ATTENTION_CHUNK + ATTENTION_SPAN + 16;
    row += kv_groups(args->head_dim) * ATTENTION_SPAN; // Q4_0's weights times scales
    return ATTENTION_TILE_ROWS * row + 2 * 16;
}

size_t tern_kv_head_bytes(tern_dtype kv_type, size_t head_dim, size_t n_positions) {
    size_t block = 16 * head_dim, groups = kv_groups(head_dim);
    switch (kv_type) {
    case TERN_DTYPE_F32: block *= 4; break;
    case TERN_DTYPE_F16: block *= 2; break;
    case TERN_DTYPE_Q8_0: block += 64 * groups; break;
    default: block = block / 2 + 32 * groups; break;
    }
    return (n_positions + 15) / 16 * block;
}
