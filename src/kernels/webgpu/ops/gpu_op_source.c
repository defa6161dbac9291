// Ops of models that hear: along all rows of a sound, and attention to a sequence's source.
#include "kernels/webgpu/ops/gpu_op.h"

// ---- Along all rows ----------------------------------------------------------------------------

tern_status gpu_op_WINDOWS(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    int64_t n_cols = cols(p, n->in[0]);
    gpu_dispatch *d = add(p, GPU_WINDOWS, groups(n->windows.width, 64), rows_of(p, n->out[0]));
    set(d, "WIDTH", (double)n->windows.width);
    set(d, "EVERY", (double)n->windows.step);
    set(d, "COLS", (double)n_cols);
    set(d, "BEFORE", n->windows.before);
    set(d, "X_ROWS", p->g->values[n->in[0]].dim);
    set(d, "TAPS", n->windows.by_column ? (double)(n->windows.width / n_cols) : 1);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    return TERN_OK;
}

static gpu_dispatch *add_whole(tern_plan *p, const tern_node *n, gpu_kernel kernel) {
    int64_t n_cols = cols(p, n->in[0]);
    gpu_dispatch *d = add(p, kernel, 1, rows_of(p, n->in[0]));
    set(d, "THREADS", threads_for(p, n_cols / 4));
    set(d, "COLS4", (double)(n_cols / 4));
    return d;
}

tern_status gpu_op_WHOLE_NORM(tern_plan *p, const tern_node *n, tern_error *err) {
    uint64_t bytes = (uint64_t)p->n_batch * 2 * sizeof(float);
    if (!gpu_is_counted(p->g, n->in[0]))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the GPU norms no tokens all together");
    if (p->parts_bytes < bytes) p->parts_bytes = bytes;
    gpu_dispatch *d = add_whole(p, n, GPU_ROW_MEANS);
    bind_value(p, d, n->in[0]);
    bind_place(d, GPU_PARTS, -1);
    d = add_whole(p, n, GPU_WHOLE_NORM);
    set(d, "EPS", (double)n->norm.eps);
    set(d, "ROWS", p->g->values[n->in[0]].dim);
    bind_value(p, d, n->in[0]);
    bind_part(d, &p->weights[n->in[1]]->parts[0]);
    bind_part(d, &p->weights[n->in[2]]->parts[0]);
    bind_place(d, GPU_PARTS, -1);
    bind_value(p, d, n->out[0]);
    return TERN_OK;
}

// ---- What a sequence is about ------------------------------------------------------------------

tern_status gpu_op_SOURCE_STORE(tern_plan *p, const tern_node *n, tern_error *err) {
    int64_t pairs = cols(p, n->in[0]) / 2;
    if (!gpu_is_counted(p->g, n->in[0]) || n->attention.head_dim % 2 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU stores rows to attend to of a dimension of their own, and of "
                         "heads of an even number of dimensions, not %d",
                         (int)n->attention.head_dim);
    gpu_dispatch *d = add(p, GPU_SOURCE_STORE, groups(pairs, 64), rows_of(p, n->in[0]));
    set(d, "K_PAIRS", (double)pairs);
    set(d, "SOURCE_ROWS", (double)p->g->values[n->in[2]].rows);
    set(d, "FRAMES", p->g->values[n->in[0]].dim);
    bind_place(d, GPU_CHUNKS, -1);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->in[1]);
    for (int i = 2; i < 5; i++) bind_place(d, GPU_STATE, n->in[i]);
    return TERN_OK;
}

tern_status gpu_op_CROSS_ATTENTION(tern_plan *p, const tern_node *n, tern_error *err) {
    if (n->attention.head_dim > GPU_HEAD_DIM_MAX || n->attention.head_dim % 2 != 0)
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "the GPU's attention has heads of an even number up to %d dimensions, not %d",
            GPU_HEAD_DIM_MAX, (int)n->attention.head_dim);
    gpu_dispatch *d =
        add(p, GPU_CROSS_ATTENTION, (uint32_t)n->attention.n_heads, rows_of(p, n->out[0]));
    set(d, "THREADS", gpu_attention_threads(p, 256, n->attention.head_dim));
    set(d, "HEAD_DIM", n->attention.head_dim);
    set(d, "N_HEADS", n->attention.n_heads);
    set(d, "N_KV_HEADS", n->attention.n_kv_heads);
    set(d, "SCALE", (double)n->attention.scale);
    set(d, "SOURCE_ROWS", (double)p->g->values[n->in[1]].rows);
    bind_value(p, d, n->in[0]);
    bind_place(d, GPU_STATE, n->in[1]);
    bind_place(d, GPU_STATE, n->in[2]);
    bind_value(p, d, n->out[0]);
    bind_place(d, GPU_CHUNKS, -1);
    bind_place(d, GPU_STATE, n->in[3]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}
