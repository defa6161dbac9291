// Rotation, the store into the cache, and attention.
#include "kernels/webgpu/ops/gpu_op.h"

static tern_status add_rope(tern_plan *p, const tern_node *n, tern_error *err) {
    bool rotates = n->op != TERN_OP_KV_STORE, stores = n->op != TERN_OP_ROPE;
    tern_vid rope = -1;
    if (rotates) TERN_TRY(rope_index(p, n, &rope, err));
    int64_t q_pairs = rotates ? cols(p, n->in[0]) / 2 : 0;
    int64_t k_pairs = stores ? cols(p, n->in[rotates ? 1 : 0]) / 2 : 0;
    gpu_kernel kernel = !stores ? GPU_ROPE : rotates ? GPU_ROPE_STORE : GPU_KV_STORE;
    gpu_dispatch *d = add(p, kernel, groups(q_pairs + k_pairs, 64), GPU_ROWS_TOKENS);
    d->uses_cache = stores;
    set(d, "HEAD_DIM", n->head_dim);
    set(d, "N_ROT", rotates ? n->rope.n_rot : 0);
    set(d, "HALVES", rotates && n->rope.halves);
    set(d, "Q_PAIRS", (double)q_pairs);
    set(d, "K_PAIRS", (double)k_pairs);
    if (rotates) bind_place(d, GPU_ANGLES, rope);
    int n_values = kernel == GPU_ROPE_STORE ? 3 : kernel == GPU_KV_STORE ? 2 : 1;
    for (int i = 0; i < n_values; i++) bind_value(p, d, n->in[i]);
    if (rotates) bind_value(p, d, n->out[0]);
    if (stores) {
        bind_place(d, GPU_STATE, n->in[n_values]);
        bind_place(d, GPU_STATE, n->in[n_values + 1]);
    }
    return TERN_OK;
}

tern_status gpu_op_ATTENTION(tern_plan *p, const tern_node *n, tern_error *err) {
    if (n->head_dim > 256 || n->head_dim % 2 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU's attention has heads of an even number up to 256 dimensions, "
                         "not %d",
                         (int)n->head_dim);
    // Few tokens are a matter of latency: many threads a head. Many tokens fill the device anyway.
    for (int many = 0; many < 2; many++) {
        bool tiles = many && n->head_dim <= GPU_PROMPT_HEAD_DIM_MAX &&
                     p->device->workgroup_bytes_max >= GPU_PROMPT_BYTES;
        gpu_dispatch *d = add(p, tiles ? GPU_ATTENTION_PROMPT : GPU_ATTENTION,
                              (uint32_t)n->n_heads, GPU_ROWS_TOKENS);
        d->rows_each = tiles ? GPU_PROMPT_TOKENS : 1;
        set_many(d, many);
        d->uses_cache = true;
        if (!tiles) set(d, "THREADS", many ? 256 : threads_for(p, 1024));
        set(d, "HEAD_DIM", n->head_dim);
        set(d, "N_HEADS", n->n_heads);
        set(d, "N_KV_HEADS", n->n_kv_heads);
        set(d, "SCALE", (double)n->scale);
        bind_value(p, d, n->in[0]);
        bind_place(d, GPU_STATE, n->in[1]);
        bind_place(d, GPU_STATE, n->in[2]);
        bind_value(p, d, n->out[0]);
        set_phase(p, d, n->out[0]);
    }
    return TERN_OK;
}

tern_status gpu_op_ROPE(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_rope(p, n, err);
}

tern_status gpu_op_KV_STORE(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_rope(p, n, err);
}

tern_status gpu_op_ROPE_STORE(tern_plan *p, const tern_node *n, tern_error *err) {
    return add_rope(p, n, err);
}
