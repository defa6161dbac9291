// The library's null device, which computes nothing, called a GPU: what remains of a step is the
// host's part.
#ifndef TERN_BENCH_NULL_DEVICE_H
#define TERN_BENCH_NULL_DEVICE_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/webgpu/device/gpu.h"

static struct {
    void *library;
    wgpu_future (*request)(wgpu_instance, const wgpu_adapter_options *, wgpu_adapter_callback);
    uint32_t (*info)(wgpu_adapter, wgpu_adapter_info *);
    wgpu_module (*module)(wgpu_device, const wgpu_module_desc *);
    wgpu_future (*pipeline)(wgpu_device, const wgpu_pipeline_desc *, wgpu_pipeline_callback);
    wgpu_module nothing;
} null_device;

static wgpu_future request_null(wgpu_instance i, const wgpu_adapter_options *o,
                                wgpu_adapter_callback callback) {
    wgpu_adapter_options options = *o;
    options.backend = WGPU_BACKEND_NULL;
    return null_device.request(i, &options, callback);
}

// Else it would be refused, and be given time to compute.
static uint32_t call_it_a_gpu(wgpu_adapter a, wgpu_adapter_info *info) {
    uint32_t status = null_device.info(a, info);
    info->backend = 6; // Vulkan
    info->type = 1;
    info->subgroup_min = info->subgroup_max = 32;
    return status;
}

// A kernel without instructions in the place of each: the null device's limits are the least, and
// plans are made for a large GPU (call_it_large).
static wgpu_pipeline_desc desc_of_nothing(wgpu_device device, const wgpu_pipeline_desc *wanted) {
    static const char text[] = "@compute @workgroup_size(1) fn nothing() {}";
    wgpu_pipeline_desc desc = *wanted;
    if (!null_device.nothing) {
        wgpu_wgsl wgsl = {.chain.type = WGPU_CHAIN_WGSL, .code = {text, sizeof text - 1}};
        null_device.nothing = null_device.module(device, &(wgpu_module_desc){.next = &wgsl.chain});
    }
    desc.compute.module = null_device.nothing;
    desc.compute.entry = (wgpu_text){"nothing", 7};
    desc.compute.n_constants = 0;
    return desc;
}
static wgpu_future pipeline_of_nothing(wgpu_device device, const wgpu_pipeline_desc *wanted,
                                       wgpu_pipeline_callback callback) {
    wgpu_pipeline_desc desc = desc_of_nothing(device, wanted);
    return null_device.pipeline(device, &desc, callback);
}

static void *symbol_of_null(void *library, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } own[] = {{"wgpuInstanceRequestAdapter", (void (*)(void))request_null},
               {"wgpuAdapterGetInfo", (void (*)(void))call_it_a_gpu},
               {"wgpuDeviceCreateComputePipelineAsync", (void (*)(void))pipeline_of_nothing}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i].name) == 0) return *(void **)(uintptr_t)&own[i].function;
    return dlsym(library, name);
}

// With the limits of a large GPU, by which plans are made.
static void call_it_large(tern_device *d) {
    d->workgroup_size_max = 1024;
    d->workgroup_bytes_max = 48 << 10;
}

static tern_status null_device_desc(tern_webgpu_desc *desc, tern_error *err) {
    *desc = (tern_webgpu_desc){.library = getenv("TERN_WEBGPU_LIB"), .group = -1};
    TERN_TRY(gpu_library_load(desc, &null_device.library, err));
    *(void **)&null_device.request = dlsym(null_device.library, "wgpuInstanceRequestAdapter");
    *(void **)&null_device.info = dlsym(null_device.library, "wgpuAdapterGetInfo");
    *(void **)&null_device.module = dlsym(null_device.library, "wgpuDeviceCreateShaderModule");
    *(void **)&null_device.pipeline =
        dlsym(null_device.library, "wgpuDeviceCreateComputePipelineAsync");
    desc->symbol = symbol_of_null;
    desc->symbol_user = null_device.library;
    return TERN_OK;
}

#endif
