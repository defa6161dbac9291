// How long each kernel takes: while a session is profiled every dispatch has its own pass, whose
// beginning and end the GPU stamps with its clock. That costs a microsecond or two each, and runs
// do not overlap, so a profiled session takes longer than the sum of what it reports.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/run/gpu_instance.h"

#define STAMPS_MAX 4096 // that a query set may have

typedef struct stamp {
    gpu_kernel kernel;
    uint64_t bytes;
} stamp;

struct gpu_profile {
    tern_device *device;
    wgpu_query_set set; // beginning and end of each dispatch
    wgpu_buffer resolved;
    gpu_readback readback;
    stamp *stamps;
    size_t n, n_max; // dispatches of the run
    tern_profile rows;
};

tern_status gpu_profile_open(gpu_profile **out, tern_device *d, size_t n_dispatches,
                             tern_error *err) {
    *out = NULL;
    if (!d->timestamps)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "this WebGPU device has no timestamps (feature timestamp-query)");
    tern_status status = TERN_OK;
    gpu_profile *p = tern_alloc(TERN_MEM_SESSION, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->device = d;
    p->n_max = n_dispatches < STAMPS_MAX / 2 ? n_dispatches : STAMPS_MAX / 2;
    p->stamps = tern_alloc_array(TERN_MEM_SESSION, p->n_max + 1, sizeof *p->stamps);
    if (!p->stamps) {
        status = tern_fail_memory(err, p->n_max * sizeof *p->stamps);
        goto fail;
    }
    wgpu_query_set_desc desc = {.type = WGPU_QUERY_TIMESTAMP, .count = (uint32_t)(2 * p->n_max)};
    p->set = d->api.DeviceCreateQuerySet(d->device, &desc);
    TERN_TRY_GOTO(gpu_check(d, "making timestamps", err));
    uint64_t bytes = 2 * p->n_max * sizeof(uint64_t);
    TERN_TRY_GOTO(gpu_buffer_new(d, GPU_USE_WORK, bytes,
                                 WGPU_BUFFER_QUERY_RESOLVE | WGPU_BUFFER_COPY_SRC, "timestamps",
                                 &p->resolved, err));
    TERN_TRY_GOTO(gpu_readback_new(d, bytes, "timestamps", &p->readback, err));
    *out = p;
    return TERN_OK;
fail:
    gpu_profile_close(p);
    return status;
}

void gpu_profile_close(gpu_profile *p) {
    if (!p) return;
    if (p->set) p->device->api.QuerySetRelease(p->set);
    gpu_buffer_free(p->device, GPU_USE_WORK, p->resolved);
    gpu_readback_free(p->device, &p->readback);
    tern_free(p->stamps);
    tern_free(p);
}

wgpu_pass gpu_profile_pass(gpu_profile *p, wgpu_encoder encoder, gpu_kernel kernel,
                           uint64_t bytes) {
    if (p->n == p->n_max) return p->device->api.CommandEncoderBeginComputePass(encoder, NULL);
    uint32_t at = 2 * (uint32_t)p->n;
    p->stamps[p->n++] = (stamp){kernel, bytes};
    wgpu_timestamp_writes writes = {.set = p->set, .begin = at, .end = at + 1};
    wgpu_pass_desc desc = {.timestamps = &writes};
    return p->device->api.CommandEncoderBeginComputePass(encoder, &desc);
}

void gpu_profile_encode(gpu_profile *p, wgpu_encoder encoder) {
    const wgpu_api *a = &p->device->api;
    uint32_t n = 2 * (uint32_t)p->n;
    if (n == 0) return;
    a->CommandEncoderResolveQuerySet(encoder, p->set, 0, n, p->resolved, 0);
    a->CommandEncoderCopyBufferToBuffer(encoder, p->resolved, 0, p->readback.buffer, 0,
                                        n * sizeof(uint64_t));
}

void gpu_profile_submitted(gpu_profile *p) {
    if (p->n > 0) gpu_readback_map(p->device, &p->readback, 2 * p->n * sizeof(uint64_t));
}

bool gpu_profile_take(gpu_profile *p) {
    if (gpu_is_pending(&p->readback)) return false;
    size_t bytes = 2 * p->n * sizeof(uint64_t);
    const uint64_t *ns = gpu_readback_bytes(p->device, &p->readback, bytes);
    for (size_t i = 0; ns && i < p->n; i++) {
        uint64_t begin = ns[2 * i], end = ns[2 * i + 1];
        double seconds = end > begin ? (double)(end - begin) * 1e-9 : 0;
        tern_profile_add(&p->rows, gpu_kernel_entry(p->stamps[i].kernel), seconds,
                         p->stamps[i].bytes);
    }
    gpu_readback_unmap(p->device, &p->readback);
    p->n = 0;
    return true;
}

const tern_profile *gpu_profile_rows(const gpu_profile *p) { return &p->rows; }
