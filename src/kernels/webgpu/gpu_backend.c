// WebGPU as a backend: the table of functions.
#include <stdio.h>
#include <string.h>
#include "kernels/webgpu/gpu.h"

static const char *gpu_describe(tern_device *d) {
    size_t n = d->n_pipelines + d->n_pipeline_hits;
    snprintf(d->line, sizeof d->line, "%s", d->description);
    if (n > 0)
        snprintf(d->line + strlen(d->line), sizeof d->line - strlen(d->line),
                 ", %zu pipelines (%.0f%% of %zu found in the cache)", d->n_pipelines,
                 100.0 * (double)d->n_pipeline_hits / (double)n, n);
    return d->line;
}
static int gpu_n_threads(const tern_device *d) {
    (void)d;
    return 0;
}
static bool gpu_is_lost(const tern_device *d) {
    return d->lost;
}
static void gpu_memory(const tern_device *d, uint64_t *now, uint64_t *most) {
    *now = d->bytes;
    *most = d->bytes_max;
}
static const tern_memory_plan *gpu_plan_memory(const tern_plan *p) {
    return &p->memory;
}

const tern_backend tern_backend_webgpu = {
    .name = "webgpu",
    .n_same_bits = GPU_FEW, // more are multiplied by kernels that add in another order
    .open = gpu_device_open,
    .close = gpu_device_close,
    .describe = gpu_describe,
    .n_threads = gpu_n_threads,
    .is_lost = gpu_is_lost,
    .memory = gpu_memory,
    .tune = gpu_tune,
    .bind = gpu_weight_bind,
    .unbind = gpu_weight_unbind,
    .weight_info = gpu_weight_info,
    .compile = gpu_compile,
    .plan_free = gpu_plan_free,
    .plan_memory = gpu_plan_memory,
    .instance_open = gpu_instance_open,
    .instance_close = gpu_instance_close,
    .submit = gpu_submit,
    .poll = gpu_poll,
    .profile_start = gpu_profile_start,
    .profile_read = gpu_profile_read,
};
