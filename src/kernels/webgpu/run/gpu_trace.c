// Tracing: the values of a batch as the device computes them, for whoever looks for a difference.
#include "base/alloc.h"
#include "kernels/webgpu/run/gpu_instance.h"

static tern_status show(const tern_instance *in, const tern_node *n, float *rows,
                        tern_tap_fn on_value, void *ctx, tern_error *err) {
    const tern_plan *p = in->plan;
    for (int k = 0; k < n->n_out; k++) {
        const tern_value *v = &p->g->values[n->out[k]];
        if (v->type != TERN_VALUE_F32 || v->kind != TERN_VALUE_TEMP) continue;
        int32_t n_rows = gpu_rows_of_value(in, n->out[k]);
        uint64_t bytes = (uint64_t)n_rows * (uint64_t)v->cols * sizeof(float);
        uint64_t offset = p->memory.spans[n->out[k]].offset;
        TERN_TRY(gpu_read(p->device, in->pool, offset, rows, bytes, err));
        on_value(ctx, n->out[k], rows, n_rows);
    }
    return TERN_OK;
}

// Node by node, each submitted alone and read back. Fused dispatches of few tokens run with the
// last of their nodes; their inner values are not shown, since they do not exist.
tern_status gpu_trace(tern_instance *in, const tern_batch *asked, tern_tap_fn on_value, void *ctx,
                      tern_error *err) {
    if (in->busy) return tern_fail(err, TERN_ERR_ARGUMENT, "the last batch is not done yet");
    TERN_TRY(gpu_order_fill(in, asked, err));
    gpu_order_next(in);
    const gpu_request *batch = &in->batch;
    const tern_plan *p = in->plan;
    tern_device *d = p->device;
    if (gpu_order_has_next(in) || batch->n_outputs > p->read_rows ||
        (in->scores >= 0 && !batch->logits))
        return tern_fail(err, TERN_ERR_ARGUMENT, "this batch cannot be traced");
    TERN_TRY(gpu_plan_pipelines(in->plan, in->cache, true, err));
    TERN_TRY(gpu_pipelines_wait(d, err));
    float *rows = tern_alloc(TERN_MEM_MISC, (size_t)p->memory.bytes + 16);
    if (!rows) return tern_fail_memory(err, (size_t)p->memory.bytes);
    gpu_expect_step(&in->steps, 0);
    gpu_drafts_forget(in);
    in->is_step = in->passes_steps = false;
    gpu_set_chunk(in, 0);
    tern_status status = gpu_send_rows(in, err);
    if (status == TERN_OK) status = gpu_send_runs(in, 0, &(int32_t){1}, err);
    for (size_t i = 0; status == TERN_OK && i < p->g->n_nodes; i++) {
        gpu_encoding e = {0};
        uint32_t n = gpu_encode_dispatches(in, &e, 0, true, (int32_t)i);
        if (e.encoder) gpu_encoding_submit(in, &e);
        if (n > 0) status = show(in, &p->g->nodes[i], rows, on_value, ctx, err);
    }
    tern_free(rows);
    if (status == TERN_OK) status = gpu_outputs_read(in, err);
    if (status != TERN_OK || in->scores < 0) return status;
    return gpu_read(d, in->logits, 0, batch->logits,
                    (uint64_t)batch->n_outputs * (uint64_t)p->n_vocab * sizeof(float), err);
}
