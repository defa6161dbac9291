// JavaScript's part of WebGPU (packages/tern/src/engine/gpu.ts): flat functions over handles, which
// are integers > 0 from JavaScript. Offsets and sizes of buffers are doubles, exact below 2^53.
#ifndef TERN_APPS_WEB_GPU_JS_H
#define TERN_APPS_WEB_GPU_JS_H

#include "web.h"

#define GPU_JS(result, name, ...) WEB_IMPORT(gpu, name) result js_gpu_##name(__VA_ARGS__);

// An adapter with its device, requested together. request: 1: available, 0: an event will follow
// (GPU_EVENT_ADAPTER), -1: none, and text has the reason. take_adapter: its handle, once; or 0.
GPU_JS(int32_t, request, char *text, uint32_t text_bytes)
GPU_JS(int32_t, take_adapter, void)
// text: vendor, architecture, device, description, each terminated; numbers: is software, subgroup
// sizes min, max.
GPU_JS(void, info, int32_t adapter, char *text, uint32_t text_bytes, uint32_t numbers[3])
enum {
    GPU_LIMIT_STORAGE_BUFFERS,
    GPU_LIMIT_STORAGE_BINDING,
    GPU_LIMIT_UNIFORM_BINDING,
    GPU_LIMIT_BUFFER,
    GPU_LIMIT_WORKGROUP_BYTES,
    GPU_LIMIT_WORKGROUP_SIZE,
    GPU_LIMIT_WORKGROUPS,
    GPU_LIMIT_STORAGE_ALIGNMENT,
    GPU_LIMITS
};
GPU_JS(void, limits, int32_t adapter, double limits[GPU_LIMITS])
enum { GPU_HAS_TIMESTAMPS, GPU_HAS_F16, GPU_HAS_SUBGROUPS, GPU_HAS_PACKED_DOT };
GPU_JS(int32_t, has, int32_t adapter, int32_t what)
GPU_JS(int32_t, device, int32_t adapter)

GPU_JS(int32_t, buffer, int32_t device, double bytes, uint32_t usage, const char *label, uint32_t n)
GPU_JS(void, destroy, int32_t buffer)
GPU_JS(void, write, int32_t device, int32_t buffer, double at, const void *data, uint32_t bytes)
GPU_JS(void, map, int32_t device, int32_t buffer, double at, double bytes, int32_t id)
// 0: not mapped, since the device was lost.
GPU_JS(int32_t, mapped, int32_t buffer, double at, uint32_t bytes, void *to)
GPU_JS(void, unmap, int32_t buffer)

GPU_JS(int32_t, module, int32_t device, const char *code, uint32_t n)
// entries: binding, type (WGPU_BINDING_...)
GPU_JS(int32_t, layout, int32_t device, const uint32_t *entries, uint32_t n_entries)
GPU_JS(int32_t, pipeline_layout, int32_t device, int32_t layout)
// constants: "name=value," each
GPU_JS(int32_t, pipeline, int32_t device, int32_t layout, int32_t module, const char *entry,
       uint32_t n, const char *constants, uint32_t n_constants)
// entries: binding, buffer, offset, bytes (-1: to the end)
GPU_JS(int32_t, group, int32_t device, int32_t layout, const double *entries, uint32_t n_entries)
GPU_JS(int32_t, query_set, int32_t device, uint32_t count)

GPU_JS(int32_t, encoder, int32_t device)
GPU_JS(int32_t, pass, int32_t encoder, int32_t query_set, uint32_t begin, uint32_t end)
GPU_JS(void, set_pipeline, int32_t pass, int32_t pipeline)
GPU_JS(void, set_group, int32_t pass, uint32_t i, int32_t group)
GPU_JS(void, dispatch, int32_t pass, uint32_t x, uint32_t y, uint32_t z)
GPU_JS(void, end_pass, int32_t pass)
GPU_JS(void, resolve, int32_t encoder, int32_t query_set, uint32_t first, uint32_t count,
       int32_t to, double at)
GPU_JS(void, clear, int32_t encoder, int32_t buffer, double at, double bytes)
GPU_JS(void, copy, int32_t encoder, int32_t from, double at, int32_t to, double to_at, double bytes)
GPU_JS(int32_t, finish, int32_t encoder)
GPU_JS(void, submit, int32_t device, const int32_t *commands, uint32_t n)
GPU_JS(void, lose, int32_t device)
GPU_JS(void, release, int32_t handle)

// The next event, oldest first: numbers[0] the map's id or the device's handle, numbers[1] whether
// it succeeded; text: why not, terminated. 0: no more events.
enum { GPU_EVENT_NONE, GPU_EVENT_MAP, GPU_EVENT_ERROR, GPU_EVENT_LOST, GPU_EVENT_ADAPTER };
GPU_JS(int32_t, take, int32_t numbers[2], char *text, uint32_t text_bytes)
// Suspends until the next event; 0: this browser cannot.
GPU_JS(int32_t, wait, void)

#endif
