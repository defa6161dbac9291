// Mamba-2: a selective state space, and factors of pieces of its columns.
#include "base/alloc.h"
#include "kernels/webgpu/ops/gpu_op.h"

tern_status gpu_op_SCALE_PIECES(tern_plan *p, const tern_node *n, tern_error *err) {
    static const char *const ends[] = {"END0", "END1", "END2", "END3"};
    static const char *const factors[] = {"FACTOR0", "FACTOR1", "FACTOR2", "FACTOR3", "FACTOR4"};
    (void)err;
    int64_t n_cols = cols(p, n->out[0]), end = 0;
    gpu_dispatch *d = add(p, GPU_SCALE_PIECES, groups(n_cols, 64), rows_of(p, n->out[0]));
    set(d, "COLS", (double)n_cols);
    for (int i = 0; i < TERN_PIECES_MAX; i++) {
        end += n->pieces.widths[i];
        if (i + 1 < TERN_PIECES_MAX) set(d, ends[i], (double)end);
        set(d, factors[i], (double)n->pieces.factors[i]);
    }
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}

// A, D and dt_bias of each head, side by side: fewer bindings.
static tern_status add_heads(tern_plan *p, const tern_node *n, gpu_binding *out, tern_error *err) {
    size_t n_heads = (size_t)n->ssm.n_heads;
    float *all = tern_alloc_array(TERN_MEM_GRAPH, n_heads, 4 * sizeof *all);
    if (!all) return tern_fail_memory(err, n_heads * 4 * sizeof *all);
    for (size_t i = 0; i < n_heads; i++)
        for (int k = 0; k < 3; k++) all[4 * i + (size_t)k] = p->weights[n->in[2 + k]]->vector[i];
    tern_status status = gpu_plan_constants(p, all, 4 * n_heads, "the rates of heads", out, err);
    tern_free(all);
    return status;
}

// Columns of the state that a workgroup's memory has room for.
static uint32_t columns_for(const tern_plan *p, const tern_node *n) {
    uint32_t n_cols = 32;
    while (n_cols > 0 &&
           n_cols * (uint64_t)n->ssm.n_state * sizeof(float) + 64 > p->device->workgroup_bytes_max)
        n_cols /= 2;
    return n_cols;
}

tern_status gpu_op_SSM(tern_plan *p, const tern_node *n, tern_error *err) {
    uint32_t n_cols = columns_for(p, n);
    if (n_cols == 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a state space of %d rows: the GPU's workgroups have no room for them",
                         (int)n->ssm.n_state);
    gpu_binding heads = {0};
    TERN_TRY(add_heads(p, n, &heads, err));
    uint32_t blocks = groups(n->ssm.head_dim, n_cols);
    gpu_dispatch *d = add(p, GPU_SSM, (uint32_t)n->ssm.n_heads * blocks, GPU_ROWS_SEQUENCES);
    set(d, "THREADS", 64);
    set(d, "N", n->ssm.n_state);
    set(d, "P", n->ssm.head_dim);
    set(d, "HEADS", n->ssm.n_heads);
    set(d, "GROUPS", n->ssm.n_groups);
    set(d, "COLS", n_cols);
    set(d, "BLOCKS", blocks);
    bind_place(d, GPU_CHUNKS, -1);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->in[1]);
    bind(d, heads);
    bind_place(d, GPU_STATE, n->in[5]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}
