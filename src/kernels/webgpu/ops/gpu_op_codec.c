// Ops of codecs, which make sound of codes: a token of the batch has several rows of most values.
#include "kernels/webgpu/ops/gpu_op.h"

#define TILE 32 // rows and outputs of conv1d in codec.wgsl

// Threads for all numbers that a token has of value `of`.
static gpu_dispatch *add_flat(tern_plan *p, gpu_kernel kernel, tern_vid of) {
    return add(p, kernel, groups(cols(p, of) * gpu_times(p->g, of), 64), GPU_ROWS_TOKENS);
}

static tern_status check_rows(const tern_plan *p, const tern_node *n, tern_error *err) {
    if (tern_graph_is_by(p->g, n->in[0], "tokens")) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the GPU's %s has rows of tokens alone",
                     tern_op_name(n->op));
}

tern_status gpu_op_CODE_DIGITS(tern_plan *p, const tern_node *n, tern_error *err) {
    static const char *const names[TERN_PIECES_MAX] = {"LEVELS0", "LEVELS1", "LEVELS2", "LEVELS3",
                                                       "LEVELS4"};
    TERN_TRY(check_rows(p, n, err));
    gpu_dispatch *d = add_flat(p, GPU_CODE_DIGITS, n->out[0]);
    set(d, "OUT", (double)cols(p, n->out[0]));
    set(d, "DIGITS", n->digits.n);
    for (int i = 0; i < TERN_PIECES_MAX; i++)
        set(d, names[i], n->digits.levels[i] > 0 ? n->digits.levels[i] : 1);
    bind_value(p, d, n->out[0]);
    bind_value(p, d, n->in[0]);
    return TERN_OK;
}

tern_status gpu_op_HALF_SNAKE(tern_plan *p, const tern_node *n, tern_error *err) {
    TERN_TRY(check_rows(p, n, err));
    gpu_dispatch *d = add_flat(p, GPU_HALF_SNAKE, n->in[0]);
    set(d, "COLS", (double)cols(p, n->in[0]));
    set(d, "TIMES", (double)gpu_times(p->g, n->in[0]));
    bind_value(p, d, n->in[0]);
    bind_part(d, &p->weights[n->in[1]]->parts[0]);
    bind_value(p, d, n->out[0]);
    return TERN_OK;
}

// ---- Convolutions ------------------------------------------------------------------------------

static void set_shape(const tern_plan *p, gpu_dispatch *d, const tern_node *n) {
    set(d, "COLS", (double)cols(p, n->in[0]));
    set(d, "OUT", (double)cols(p, n->out[0]));
    set(d, "TIMES", (double)gpu_times(p->g, n->in[0]));
    set(d, "BEFORE", (double)p->g->values[n->in[3]].rows);
}

static void bind_convolution(const tern_plan *p, gpu_dispatch *d, const tern_node *n) {
    bind_place(d, GPU_CHUNKS, -1);
    bind_value(p, d, n->in[0]);
    bind_part(d, &p->weights[n->in[1]]->parts[0]);
    bind_place(d, GPU_STATE, n->in[3]);
    bind_value(p, d, n->out[0]);
    bind_part(d, &p->weights[n->in[2]]->parts[0]);
}

// After all rows have read the state.
static void add_keep(tern_plan *p, const tern_node *n) {
    gpu_dispatch *d = add(p, GPU_TAILS_KEEP, groups(cols(p, n->in[0]), 64), GPU_ROWS_SEQUENCES);
    set_shape(p, d, n);
    bind_place(d, GPU_CHUNKS, -1);
    bind_value(p, d, n->in[0]);
    bind_place(d, GPU_STATE, n->in[3]);
}

tern_status gpu_op_CONV1D(tern_plan *p, const tern_node *n, tern_error *err) {
    TERN_TRY(check_rows(p, n, err));
    gpu_dispatch *d = add(p, GPU_CONV1D, groups(n->causal.n_out, TILE), GPU_ROWS_TOKENS);
    d->rows_each = TILE;
    d->times = (uint32_t)gpu_times(p->g, n->in[0]);
    set_shape(p, d, n);
    set(d, "TAPS", n->causal.taps);
    set(d, "DILATION", n->causal.dilation);
    bind_convolution(p, d, n);
    add_keep(p, n);
    return TERN_OK;
}

tern_status gpu_op_UPSAMPLE_CONV(tern_plan *p, const tern_node *n, tern_error *err) {
    TERN_TRY(check_rows(p, n, err));
    gpu_dispatch *d = add_flat(p, GPU_UPSAMPLE_CONV, n->out[0]);
    set_shape(p, d, n);
    set(d, "RATE", n->causal.rate);
    set(d, "GROUPS", n->causal.groups);
    bind_convolution(p, d, n);
    add_keep(p, n);
    return TERN_OK;
}
