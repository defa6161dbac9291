#include "kernels/webgpu/ops/gpu_build.h"
#include "base/alloc.h"

tern_status gpu_plan_constants(tern_plan *p, const float *x, size_t n, const char *what,
                               gpu_binding *out, tern_error *err) {
    uint64_t bytes = n * sizeof *x;
    if (tern_array_reserve(TERN_MEM_GRAPH, &p->constants, &p->constants_capacity, p->n_constants,
                           1) != 0)
        return tern_fail_memory(err, sizeof *p->constants);
    wgpu_buffer *buffer = &p->constants[p->n_constants];
    TERN_TRY(gpu_buffer_new(p->device, GPU_USE_WEIGHTS, bytes,
                            WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST, what, buffer, err));
    p->n_constants++;
    p->device->api.QueueWriteBuffer(p->device->queue, *buffer, 0, x, (size_t)bytes);
    *out = (gpu_binding){.place = GPU_WEIGHT, .buffer = *buffer, .bytes = bytes};
    return TERN_OK;
}
