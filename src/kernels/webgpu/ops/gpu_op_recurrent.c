// Ops that go by sequence: those whose rows follow from the rows before them through a state of
// fixed size, and those that make one row of all.
#include "base/alloc.h"
#include "kernels/webgpu/ops/gpu_op.h"

// ---- Convolution -------------------------------------------------------------------------------

static gpu_dispatch *add_depthwise_conv(tern_plan *p, const tern_node *n, gpu_kernel kernel,
                                        gpu_rows rows) {
    const tern_weight *w = p->weights[n->in[1]];
    bool computes = kernel != GPU_DEPTHWISE_CONV_KEEP;
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, kernel, groups(n_cols / 4, 64), rows);
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "TAPS", (double)w->n_cols);
    set(d, "ACT", n->act.kind);
    set(d, "BIASED", n->n_in > 3);
    bind_place(d, GPU_CHUNKS, -1);
    bind_value(p, d, n->in[0]);
    if (computes) bind_part(d, &w->parts[0]);
    bind_place(d, GPU_STATE, n->in[2]);
    if (computes) bind_value(p, d, n->out[0]);
    // The binding must exist: without a bias it is the taps, which are not read there.
    if (computes) bind_part(d, &p->weights[n->in[n->n_in > 3 ? 3 : 1]]->parts[0]);
    set_phase(p, d, n->out[0]);
    return d;
}

tern_status gpu_op_DEPTHWISE_CONV(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    set_many(add_depthwise_conv(p, n, GPU_DEPTHWISE_CONV_FEW, GPU_ROWS_SEQUENCES), false);
    set_many(add_depthwise_conv(p, n, GPU_DEPTHWISE_CONV, GPU_ROWS_TOKENS), true);
    set_many(add_depthwise_conv(p, n, GPU_DEPTHWISE_CONV_KEEP, GPU_ROWS_SEQUENCES), true);
    return TERN_OK;
}

// ---- Delta net ---------------------------------------------------------------------------------

// A and dt_bias of each head, side by side: WebGPU promises eight bindings and the op has ten.
static tern_status add_heads(tern_plan *p, const tern_node *n, gpu_binding *out, tern_error *err) {
    const float *a = p->weights[n->in[3]]->vector, *bias = p->weights[n->in[4]]->vector;
    size_t n_heads = (size_t)n->delta.n_v_heads;
    float *both = tern_alloc_array(TERN_MEM_GRAPH, n_heads, 2 * sizeof *both);
    if (!both) return tern_fail_memory(err, n_heads * 2 * sizeof *both);
    for (size_t i = 0; i < n_heads; i++) {
        both[2 * i] = a[i];
        both[2 * i + 1] = bias[i];
    }
    tern_status status = gpu_plan_constants(p, both, 2 * n_heads, "the gates of heads", out, err);
    tern_free(both);
    return status;
}

// Columns of the state and rows of a tile in a workgroup's memory. Few columns make many
// workgroups, which share the state's bytes; 16 of them are 64 bytes, what a GPU loads at once.
typedef struct delta_shape {
    uint32_t n_cols, n_rows;
} delta_shape;

static uint64_t delta_bytes(const tern_node *n, delta_shape s) {
    uint64_t key = gpu_round((uint64_t)n->delta.head_dim, 4) * sizeof(float);
    return s.n_cols * key + s.n_rows * (2 * key + 2 * 16 * sizeof(float) + 8) + 64;
}

static delta_shape delta_shape_of(const tern_plan *p, const tern_node *n) {
    delta_shape s = {16, 16};
    while (s.n_rows > 1 && delta_bytes(n, s) > p->device->workgroup_bytes_max) s.n_rows /= 2;
    while (s.n_cols > 1 && delta_bytes(n, s) > p->device->workgroup_bytes_max) s.n_cols /= 2;
    return s;
}

tern_status gpu_op_DELTA_NET(tern_plan *p, const tern_node *n, tern_error *err) {
    delta_shape s = delta_shape_of(p, n);
    if (delta_bytes(n, s) > p->device->workgroup_bytes_max)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a delta net whose keys have %d dimensions: the GPU's workgroups have no "
                         "room for them",
                         (int)n->delta.head_dim);
    uint32_t blocks = groups(n->delta.v_dim, s.n_cols);
    gpu_binding heads = {0};
    TERN_TRY(add_heads(p, n, &heads, err));
    gpu_dispatch *d =
        add(p, GPU_DELTA_NET, (uint32_t)n->delta.n_v_heads * blocks, GPU_ROWS_SEQUENCES);
    set(d, "THREADS", 128);
    set(d, "DK", n->delta.head_dim);
    set(d, "DK4", groups(n->delta.head_dim, 4));
    set(d, "DV", n->delta.v_dim);
    set(d, "K_HEADS", n->delta.n_k_heads);
    set(d, "V_HEADS", n->delta.n_v_heads);
    set(d, "TILED", n->delta.tiled);
    set(d, "EPS", (double)n->delta.eps);
    set(d, "COLS", s.n_cols);
    set(d, "ROWS", s.n_rows);
    set(d, "BLOCKS", blocks);
    bind_place(d, GPU_CHUNKS, -1);
    for (int i = 0; i < 3; i++) bind_value(p, d, n->in[i]);
    bind(d, heads);
    bind_place(d, GPU_STATE, n->in[5]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}

// ---- One row a sequence ------------------------------------------------------------------------

tern_status gpu_op_POOL(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    int64_t n_cols = cols(p, n->out[0]);
    gpu_dispatch *d = add(p, GPU_POOL_ROWS, groups(n_cols / 4, 64), GPU_ROWS_SEQUENCES);
    set(d, "COLS4", (double)(n_cols / 4));
    set(d, "KIND", n->pool.kind);
    bind_place(d, GPU_CHUNKS, -1);
    bind_value(p, d, n->in[0]);
    bind_value(p, d, n->out[0]);
    set_phase(p, d, n->out[0]);
    return TERN_OK;
}
