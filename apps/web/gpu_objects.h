// The objects with more than a handle. The others are their handles, as pointers.
#ifndef TERN_APPS_WEB_GPU_OBJECTS_H
#define TERN_APPS_WEB_GPU_OBJECTS_H

#include "kernels/webgpu/device/wgpu_api.h"

struct wgpu_instance_ {
    wgpu_adapter_callback wanted; // callback: NULL if no adapter is requested
    wgpu_instance next;
};

struct wgpu_adapter_ {
    int32_t handle;
    wgpu_instance instance;
};

struct wgpu_device_ {
    int32_t handle;
    wgpu_instance instance;
    wgpu_error_callback error;
    wgpu_lost_callback lost;
    wgpu_device next; // devices that errors may belong to
};

struct wgpu_buffer_ {
    int32_t handle;
    wgpu_device device;
    uint64_t bytes;
    void *copy; // of the mapped range
    size_t copy_bytes;
};

static inline int32_t gpu_handle(const void *object) { return (int32_t)(intptr_t)object; }
static inline void *gpu_object(int32_t handle) { return (void *)(intptr_t)handle; }

// ---- Events (gpu_events.c) --------------------------------------------------------------------

wgpu_instance gpu_events_open(void); // NULL: out of memory
// Calls back all pending requests as failed.
void gpu_events_close(wgpu_instance instance);
void gpu_events_add_device(wgpu_device d);
void gpu_events_remove_device(const struct wgpu_device_ *d);
// An id for JavaScript; 0: out of memory. The callback is called once.
int32_t gpu_events_expect_map(wgpu_instance instance, const wgpu_map_callback *callback);
void gpu_events_request_adapter(wgpu_instance instance, wgpu_adapter_callback callback);
// Calls back for all events so far.
void gpu_events_process(void);

#endif
