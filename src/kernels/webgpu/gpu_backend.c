// WebGPU as a backend: the table of functions.
#include "kernels/webgpu/gpu.h"

static const char *gpu_describe(const tern_device *d) {
    return d->description;
}
static int gpu_n_threads(const tern_device *d) {
    (void)d;
    return 0;
}
static const tern_memory_plan *gpu_plan_memory(const tern_plan *p) {
    return &p->memory;
}

const tern_backend tern_backend_webgpu = {
    .name = "webgpu",
    .open = gpu_device_open,
    .close = gpu_device_close,
    .describe = gpu_describe,
    .n_threads = gpu_n_threads,
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
};
