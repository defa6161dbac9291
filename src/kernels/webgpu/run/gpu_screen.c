// The greatest logits without most of the head (wgsl/head_bound.wgsl): an 8-bit copy of it, made on
// the device when they are wanted for the first time, proves that nearly all tokens are not the
// greatest; the logits of the few others are computed as ever. The results have the same bits.
//
// Up to eight rows take as long as reading the head does, and the copy is half as long; for many
// rows it saves arithmetic, too. It is made only on demand since it takes a byte a weight, half the
// memory of an F16 head and more than one of codes has, and sampling gains nothing by it. Without
// memory for it everything goes on as before.
#include "kernels/webgpu/run/gpu_instance.h"

#define STORAGE   (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)
#define COPY_GRID 32768 // of head_copy.wgsl, x

static bool can_screen(const tern_instance *in) {
    const tern_plan *p = in->plan;
    if (!GPU_SCREENS_HEADS || !p->screened) return false;
    if (gpu_results_of(in) != GPU_RESULTS_GREATEST) return false;
    if (in->batch.kind == GPU_MANY_STEPS) return in->chunk_rows >= GPU_SCREEN_ROWS;
    return in->batch.kind == GPU_FEW_STEPS && in->chunk_rows <= (int32_t)p->screened_few;
}

bool gpu_screens(const tern_instance *in) { return can_screen(in) && in->has_copy; }

static tern_status make_copy(const tern_instance *in, wgpu_buffer copy, tern_error *err) {
    const tern_plan *p = in->plan;
    tern_weight *w = p->screened;
    tern_device *d = p->device;
    uint64_t infos = gpu_screen_infos_at(w);
    // The run is bound and not read.
    wgpu_group_entry entries[] = {
        {.binding = 0, .buffer = in->chunks, .bytes = UINT64_MAX},
        {.binding = 1,
         .buffer = w->parts[0].buffer,
         .offset = w->parts[0].offset,
         .bytes = w->parts[0].bytes},
        {.binding = 2, .buffer = copy, .bytes = infos},
        {.binding = 3, .buffer = copy, .offset = infos, .bytes = gpu_screen_copy_bytes(w) - infos}};
    wgpu_group_desc desc = {.layout = d->layouts[gpu_screen_copy_kernel(w)],
                            .n_entries = sizeof entries / sizeof *entries,
                            .entries = entries};
    wgpu_group group = d->api.DeviceCreateBindGroup(d->device, &desc);
    uint32_t n = (uint32_t)w->n_rows;
    gpu_encoding e = {0};
    gpu_encode_dispatch(in, &e, p->screen_copy->handle, group, n < COPY_GRID ? n : COPY_GRID,
                        (n + COPY_GRID - 1) / COPY_GRID, 1);
    if (e.encoder) gpu_encoding_submit(in, &e);
    d->api.BindGroupRelease(group);
    return gpu_check(d, "copying the head", err);
}

tern_status gpu_screen_prepare(tern_instance *in, tern_error *err) {
    if (!can_screen(in)) return TERN_OK;
    tern_weight *w = in->plan->screened;
    tern_device *d = in->plan->device;
    if (!w->copy && !w->copy_tried && !in->profile) {
        tern_error why;
        wgpu_buffer copy;
        w->copy_tried = true;
        if (gpu_buffer_new(d, GPU_USE_WEIGHTS, gpu_screen_copy_bytes(w), STORAGE, "the head's copy",
                           &copy, &why) != TERN_OK)
            return d->lost ? gpu_check(d, "copying the head", err) : TERN_OK;
        tern_status status = make_copy(in, copy, err);
        if (status == TERN_OK)
            w->copy = copy;
        else
            gpu_buffer_free(d, GPU_USE_WEIGHTS, copy);
        TERN_TRY(status);
    }
    // Bind groups that were made before there was a copy lack those of its kernels.
    if (in->has_copy != (w->copy != NULL)) gpu_instance_close_groups(in);
    in->has_copy = w->copy != NULL;
    return TERN_OK;
}
