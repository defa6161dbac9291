// The functions of wgpu_api.h over those of gpu_js.h.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/strbuf.h"
#include "gpu_js.h"
#include "gpu_objects.h"

// ---- Instance, adapter, device ----------------------------------------------------------------

static wgpu_instance CreateInstance(const wgpu_instance_desc *desc) {
    (void)desc;
    return gpu_events_open();
}
static void InstanceProcessEvents(wgpu_instance instance) {
    (void)instance; // of all instances: JavaScript has one queue
    gpu_events_process();
}
static uint32_t InstanceHasWGSLLanguageFeature(wgpu_instance instance, uint32_t feature) {
    (void)instance;
    return feature == WGPU_WGSL_PACKED_DOT && js_gpu_has(0, GPU_HAS_PACKED_DOT);
}
static wgpu_future InstanceRequestAdapter(wgpu_instance instance,
                                          const wgpu_adapter_options *options,
                                          wgpu_adapter_callback callback) {
    (void)options; // the page chose the options
    gpu_events_request_adapter(instance, callback);
    return (wgpu_future){1};
}
static void InstanceRelease(wgpu_instance instance) { gpu_events_close(instance); }

// The texts live until the next call: the library copies what it keeps.
static uint32_t AdapterGetInfo(wgpu_adapter adapter, wgpu_adapter_info *info) {
    static char text[512];
    uint32_t numbers[3] = {0};
    wgpu_text *const texts[] = {&info->vendor, &info->architecture, &info->device,
                                &info->description};
    js_gpu_info(adapter->handle, text, sizeof text, numbers);
    const char *at = text;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t left = (size_t)(text + sizeof text - at);
        *texts[i] = (wgpu_text){at, strnlen(at, left)};
        at += texts[i]->len + (texts[i]->len < left);
    }
    info->backend = 2; // WebGPU itself
    info->type = numbers[0] ? WGPU_ADAPTER_CPU : 0;
    info->subgroup_min = numbers[1];
    info->subgroup_max = numbers[2];
    return WGPU_SUCCESS;
}
static void AdapterInfoFreeMembers(wgpu_adapter_info info) { (void)info; }
static void AdapterPropertiesSubgroupMatrixConfigsFreeMembers(wgpu_matrix_configs configs) {
    (void)configs;
}

static uint32_t AdapterGetLimits(wgpu_adapter adapter, wgpu_limits *limits) {
    double v[GPU_LIMITS] = {0};
    js_gpu_limits(adapter->handle, v);
    limits->storage_buffers = (uint32_t)v[GPU_LIMIT_STORAGE_BUFFERS];
    limits->storage_binding_bytes = (uint64_t)v[GPU_LIMIT_STORAGE_BINDING];
    limits->uniform_binding_bytes = (uint64_t)v[GPU_LIMIT_UNIFORM_BINDING];
    limits->buffer_bytes = (uint64_t)v[GPU_LIMIT_BUFFER];
    limits->workgroup_bytes = (uint32_t)v[GPU_LIMIT_WORKGROUP_BYTES];
    limits->workgroup_size = (uint32_t)v[GPU_LIMIT_WORKGROUP_SIZE];
    limits->workgroups_per_dimension = (uint32_t)v[GPU_LIMIT_WORKGROUPS];
    limits->storage_alignment = (uint32_t)v[GPU_LIMIT_STORAGE_ALIGNMENT];
    return WGPU_SUCCESS;
}

// The numbers are from the 2026 generation of the interface. Browsers have no matrix units.
static uint32_t AdapterHasFeature(wgpu_adapter adapter, uint32_t feature) {
    static const uint32_t numbers[] = {
        [GPU_HAS_TIMESTAMPS] = 0x9, [GPU_HAS_F16] = 0xB, [GPU_HAS_SUBGROUPS] = 0x12};
    for (int32_t i = 0; i < (int32_t)(sizeof numbers / sizeof *numbers); i++)
        if (numbers[i] == feature) return js_gpu_has(adapter->handle, i) != 0;
    return 0;
}

static wgpu_future AdapterRequestDevice(wgpu_adapter adapter, const wgpu_device_desc *desc,
                                        wgpu_device_callback callback) {
    wgpu_device d = tern_alloc(TERN_MEM_MISC, sizeof *d);
    int32_t handle = d ? js_gpu_device(adapter->handle) : 0;
    if (handle) {
        *d = (struct wgpu_device_){.handle = handle,
                                   .instance = adapter->instance,
                                   .error = desc->error,
                                   .lost = desc->lost};
        gpu_events_add_device(d);
    } else {
        tern_free(d);
        d = NULL;
    }
    static const char why[] = "the adapter was used already";
    callback.callback(d ? WGPU_SUCCESS : 0, d, (wgpu_text){why, d ? 0 : sizeof why - 1},
                      callback.u1, callback.u2);
    return (wgpu_future){1};
}
static void AdapterRelease(wgpu_adapter adapter) {
    js_gpu_release(adapter->handle);
    tern_free(adapter);
}

static wgpu_queue DeviceGetQueue(wgpu_device d) { return (wgpu_queue)(void *)d; }
static void QueueRelease(wgpu_queue queue) { (void)queue; }
static void DeviceDestroy(wgpu_device d) { js_gpu_lose(d->handle); }
static void DeviceRelease(wgpu_device d) {
    gpu_events_remove_device(d);
    js_gpu_release(d->handle);
    tern_free(d);
}
static int32_t device_of(wgpu_queue queue) { return ((wgpu_device)(void *)queue)->handle; }

// ---- Buffers ----------------------------------------------------------------------------------

static wgpu_buffer DeviceCreateBuffer(wgpu_device d, const wgpu_buffer_desc *desc) {
    wgpu_buffer b = tern_alloc(TERN_MEM_MISC, sizeof *b);
    int32_t handle = b ? js_gpu_buffer(d->handle, (double)desc->bytes, (uint32_t)desc->usage,
                                       desc->label.ptr, (uint32_t)desc->label.len)
                       : 0;
    if (!handle) {
        tern_free(b);
        return NULL;
    }
    *b = (struct wgpu_buffer_){.handle = handle, .device = d, .bytes = desc->bytes};
    return b;
}
static uint64_t BufferGetSize(wgpu_buffer b) { return b->bytes; }
static void BufferDestroy(wgpu_buffer b) { js_gpu_destroy(b->handle); }
static void BufferRelease(wgpu_buffer b) {
    js_gpu_release(b->handle);
    tern_free(b->copy);
    tern_free(b);
}

static wgpu_future BufferMapAsync(wgpu_buffer b, uint64_t mode, size_t at, size_t n,
                                  wgpu_map_callback callback) {
    (void)mode; // always reading
    int32_t id = gpu_events_expect_map(b->device->instance, &callback);
    if (id)
        js_gpu_map(b->device->handle, b->handle, (double)at, (double)n, id);
    else
        callback.callback(0, (wgpu_text){0}, callback.u1, callback.u2);
    return (wgpu_future){(uint64_t)id};
}

// A copy in the module's memory, which is kept for the next call. NULL: out of memory, or the
// device was lost meanwhile.
static const void *BufferGetConstMappedRange(wgpu_buffer b, size_t at, size_t n) {
    if (n > b->copy_bytes) {
        tern_free(b->copy);
        b->copy = tern_alloc(TERN_MEM_MISC, n);
        b->copy_bytes = b->copy ? n : 0;
    }
    if (!b->copy || !js_gpu_mapped(b->handle, (double)at, (uint32_t)n, b->copy)) return NULL;
    return b->copy;
}
static void BufferUnmap(wgpu_buffer b) { js_gpu_unmap(b->handle); }

static void QueueWriteBuffer(wgpu_queue queue, wgpu_buffer b, uint64_t at, const void *data,
                             size_t n) {
    js_gpu_write(device_of(queue), b->handle, (double)at, data, (uint32_t)n);
}

// ---- Programs and what they are bound to ------------------------------------------------------

static wgpu_module DeviceCreateShaderModule(wgpu_device d, const wgpu_module_desc *desc) {
    const wgpu_wgsl *wgsl = (const wgpu_wgsl *)desc->next;
    return gpu_object(js_gpu_module(d->handle, wgsl->code.ptr, (uint32_t)wgsl->code.len));
}

#define ENTRIES_MAX 32
static wgpu_layout DeviceCreateBindGroupLayout(wgpu_device d, const wgpu_layout_desc *desc) {
    uint32_t entries[2 * ENTRIES_MAX];
    if (desc->n_entries > ENTRIES_MAX) return NULL;
    for (size_t i = 0; i < desc->n_entries; i++) {
        entries[2 * i] = desc->entries[i].binding;
        entries[2 * i + 1] = desc->entries[i].buffer.type;
    }
    return gpu_object(js_gpu_layout(d->handle, entries, (uint32_t)desc->n_entries));
}
static wgpu_pipeline_layout DeviceCreatePipelineLayout(wgpu_device d,
                                                       const wgpu_pipeline_layout_desc *desc) {
    return gpu_object(js_gpu_pipeline_layout(d->handle, gpu_handle(desc->layouts[0])));
}

static wgpu_group DeviceCreateBindGroup(wgpu_device d, const wgpu_group_desc *desc) {
    double entries[4 * ENTRIES_MAX];
    if (desc->n_entries > ENTRIES_MAX) return NULL;
    for (size_t i = 0; i < desc->n_entries; i++) {
        const wgpu_group_entry *e = &desc->entries[i];
        entries[4 * i] = e->binding;
        entries[4 * i + 1] = e->buffer->handle;
        entries[4 * i + 2] = (double)e->offset;
        entries[4 * i + 3] = e->bytes == UINT64_MAX ? -1 : (double)e->bytes;
    }
    return gpu_object(
        js_gpu_group(d->handle, gpu_handle(desc->layout), entries, (uint32_t)desc->n_entries));
}

// Browsers compile in the background what they return at once.
static wgpu_future DeviceCreateComputePipelineAsync(wgpu_device d, const wgpu_pipeline_desc *desc,
                                                    wgpu_pipeline_callback callback) {
    tern_strbuf constants = {0};
    for (size_t i = 0; i < desc->compute.n_constants; i++) {
        const wgpu_constant *c = &desc->compute.constants[i];
        tern_strbuf_printf(&constants, "%.*s=%.17g,", (int)c->key.len, c->key.ptr, c->value);
    }
    int32_t handle = 0;
    if (!constants.failed)
        handle =
            js_gpu_pipeline(d->handle, gpu_handle(desc->layout), gpu_handle(desc->compute.module),
                            desc->compute.entry.ptr, (uint32_t)desc->compute.entry.len,
                            tern_strbuf_text(&constants), (uint32_t)constants.len);
    tern_strbuf_free(&constants);
    callback.callback(handle ? WGPU_SUCCESS : 0, gpu_object(handle), (wgpu_text){0}, callback.u1,
                      callback.u2);
    return (wgpu_future){1};
}

static wgpu_query_set DeviceCreateQuerySet(wgpu_device d, const wgpu_query_set_desc *desc) {
    return gpu_object(js_gpu_query_set(d->handle, desc->count));
}

// ---- Commands ---------------------------------------------------------------------------------

static wgpu_encoder DeviceCreateCommandEncoder(wgpu_device d, const void *desc) {
    (void)desc;
    return gpu_object(js_gpu_encoder(d->handle));
}
static wgpu_pass CommandEncoderBeginComputePass(wgpu_encoder e, const wgpu_pass_desc *desc) {
    const wgpu_timestamp_writes *t = desc ? desc->timestamps : NULL;
    return gpu_object(
        js_gpu_pass(gpu_handle(e), t ? gpu_handle(t->set) : 0, t ? t->begin : 0, t ? t->end : 0));
}
static void CommandEncoderResolveQuerySet(wgpu_encoder e, wgpu_query_set set, uint32_t first,
                                          uint32_t count, wgpu_buffer to, uint64_t at) {
    js_gpu_resolve(gpu_handle(e), gpu_handle(set), first, count, to->handle, (double)at);
}
static void CommandEncoderClearBuffer(wgpu_encoder e, wgpu_buffer b, uint64_t at, uint64_t n) {
    js_gpu_clear(gpu_handle(e), b->handle, (double)at, n == UINT64_MAX ? -1 : (double)n);
}
static void CommandEncoderCopyBufferToBuffer(wgpu_encoder e, wgpu_buffer from, uint64_t at,
                                             wgpu_buffer to, uint64_t to_at, uint64_t n) {
    js_gpu_copy(gpu_handle(e), from->handle, (double)at, to->handle, (double)to_at, (double)n);
}
static wgpu_commands CommandEncoderFinish(wgpu_encoder e, const void *desc) {
    (void)desc;
    return gpu_object(js_gpu_finish(gpu_handle(e)));
}
static void ComputePassEncoderSetPipeline(wgpu_pass pass, wgpu_pipeline pipeline) {
    js_gpu_set_pipeline(gpu_handle(pass), gpu_handle(pipeline));
}
static void ComputePassEncoderSetBindGroup(wgpu_pass pass, uint32_t i, wgpu_group group, size_t n,
                                           const uint32_t *offsets) {
    (void)n, (void)offsets; // no layout has dynamic offsets
    js_gpu_set_group(gpu_handle(pass), i, gpu_handle(group));
}
static void ComputePassEncoderDispatchWorkgroups(wgpu_pass pass, uint32_t x, uint32_t y,
                                                 uint32_t z) {
    js_gpu_dispatch(gpu_handle(pass), x, y, z);
}
static void ComputePassEncoderEnd(wgpu_pass pass) { js_gpu_end_pass(gpu_handle(pass)); }

static void QueueSubmit(wgpu_queue queue, size_t n, const wgpu_commands *commands) {
    for (size_t i = 0; i < n; i++) {
        int32_t handle = gpu_handle(commands[i]);
        js_gpu_submit(device_of(queue), &handle, 1);
    }
    if (n == 0) js_gpu_submit(device_of(queue), NULL, 0);
}

#define RELEASE(name, type)                                                                        \
    static void name(type object) { js_gpu_release(gpu_handle(object)); }
RELEASE(CommandEncoderRelease, wgpu_encoder)
RELEASE(CommandBufferRelease, wgpu_commands)
RELEASE(ComputePassEncoderRelease, wgpu_pass)
RELEASE(ShaderModuleRelease, wgpu_module)
RELEASE(BindGroupLayoutRelease, wgpu_layout)
RELEASE(PipelineLayoutRelease, wgpu_pipeline_layout)
RELEASE(BindGroupRelease, wgpu_group)
RELEASE(ComputePipelineRelease, wgpu_pipeline)
RELEASE(QuerySetRelease, wgpu_query_set)

// ---- By name ----------------------------------------------------------------------------------

// The library recognizes the interface's generation by this function, which is never called.
static void GetInstanceFeatures(void) {}

void *web_gpu_symbol(void *user, const char *name) {
    (void)user;
#define FUNCTION(result, function, arguments) {"wgpu" #function, (void *)function},
    static const struct {
        const char *name;
        void *function;
    } functions[] = {{"wgpuGetInstanceFeatures", (void *)GetInstanceFeatures},
                     WGPU_FUNCTIONS(FUNCTION)};
#undef FUNCTION
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) return functions[i].function;
    return NULL;
}
