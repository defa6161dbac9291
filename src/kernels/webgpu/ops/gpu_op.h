// Ops of the WebGPU backend: what their files share. A file has one op or a few of a kind; each
// appends the dispatches of a node to the plan.
#ifndef TERN_KERNELS_WEBGPU_OPS_GPU_OP_H
#define TERN_KERNELS_WEBGPU_OPS_GPU_OP_H

#include "kernels/webgpu/ops/gpu_build.h"

// gpu_op_EMBED and so on: every op that a plan of inference can have. One that is missing does not
// link.
#define TERN_OP_MODEL(id, ...) gpu_op_fn gpu_op_##id;
#define TERN_OP_FUSED          TERN_OP_MODEL
#include "graph/ops.inc"

// How a kernel reads the rows of a table or of a float matrix.
static inline void set_form(const tern_weight *w, gpu_dispatch *d) {
    set(d, "COLS4", (double)(w->n_cols / 4));
    set(d, "IS_F16", w->form == GPU_FORM_F16);
    set(d, "IS_Q8", w->form == GPU_FORM_Q8);
    if (w->form == GPU_FORM_Q8) set(d, "ROW4", (double)(gpu_q8_row_bytes(w->n_cols) / 16));
}

// The logits of the outputs that a pass over the head computes: x W^T, the node's first two inputs,
// capped if the node says so (gpu_op_linear.c).
tern_status gpu_add_logits(tern_plan *p, const tern_node *n, tern_error *err);
// How many threads share a row of codes of four bits and more that is multiplied with floats;
// threads of a workgroup at most.
#define GPU_WIDE_FLOAT_THREADS 256
uint32_t gpu_wide_float_splits(int64_t blocks);
// Threads of a workgroup that attends with one row, up to `most` (gpu_op_attention.c).
uint32_t gpu_attention_threads(const tern_plan *p, uint32_t most, int32_t head_dim);

#endif
