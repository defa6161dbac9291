// The part of WebGPU's C interface that is used here, as Dawn has it, and a table of its functions
// filled at run time. Written by hand, since the ready-made libraries have no header that fits;
// only what compute needs.
//
// Objects are opaque pointers. Asynchronous calls take a callback structure by value and call back
// from wgpuInstanceProcessEvents.
//
// There are two generations of the interface: of 2025 (npm's bun-webgpu) and of 2026 (npm's webgpu,
// react-native-webgpu). Between them the numbers of features moved; the instance's descriptor was
// rebuilt, to the same size and with zeros meaning the same; the callback for finished work got a
// message as its second argument; limits at the end of wgpu_limits came and went. wgpu_generation
// holds what differs, everything else works for both.
#ifndef TERN_KERNELS_WEBGPU_WGPU_API_H
#define TERN_KERNELS_WEBGPU_WGPU_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wgpu_instance_ *wgpu_instance;
typedef struct wgpu_adapter_ *wgpu_adapter;
typedef struct wgpu_device_ *wgpu_device;
typedef struct wgpu_queue_ *wgpu_queue;
typedef struct wgpu_buffer_ *wgpu_buffer;
typedef struct wgpu_module_ *wgpu_module;
typedef struct wgpu_layout_ *wgpu_layout; // of a bind group
typedef struct wgpu_pipeline_layout_ *wgpu_pipeline_layout;
typedef struct wgpu_group_ *wgpu_group; // bind group
typedef struct wgpu_pipeline_ *wgpu_pipeline;
typedef struct wgpu_encoder_ *wgpu_encoder;
typedef struct wgpu_pass_ *wgpu_pass;
typedef struct wgpu_commands_ *wgpu_commands;
typedef struct wgpu_query_set_ *wgpu_query_set;

typedef struct wgpu_text {
    const char *ptr;
    size_t len;
} wgpu_text;
typedef struct wgpu_future {
    uint64_t id;
} wgpu_future;

typedef struct wgpu_chain {
    struct wgpu_chain *next;
    uint32_t type;
} wgpu_chain;
enum { WGPU_CHAIN_WGSL = 0x2, WGPU_CHAIN_TOGGLES = 0x5000A, WGPU_CHAIN_MATRIX_CONFIGS = 0x5003B };

enum { WGPU_SUCCESS = 1 }; // of every status used here
enum { WGPU_CALLBACK_PROCESS_EVENTS = 2, WGPU_CALLBACK_SPONTANEOUS = 3 };
enum {
    WGPU_BUFFER_MAP_READ = 0x1,
    WGPU_BUFFER_COPY_SRC = 0x4,
    WGPU_BUFFER_COPY_DST = 0x8,
    WGPU_BUFFER_UNIFORM = 0x40,
    WGPU_BUFFER_STORAGE = 0x80,
    WGPU_BUFFER_QUERY_RESOLVE = 0x200,
};
enum { WGPU_MAP_READ = 1 };
enum { WGPU_STAGE_COMPUTE = 4 };
enum { WGPU_BINDING_UNIFORM = 2, WGPU_BINDING_STORAGE = 3, WGPU_BINDING_READ_ONLY = 4 };
enum { WGPU_ADAPTER_CPU = 3 };
enum { WGPU_BACKEND_NULL = 1 }; // computes nothing; given where there is no driver
enum { WGPU_POWER_HIGH = 2, WGPU_LEVEL_CORE = 2 };
enum { WGPU_WGSL_PACKED_DOT = 2 };
enum { WGPU_QUERY_TIMESTAMP = 2 };

typedef enum wgpu_feature {
    WGPU_TIMESTAMPS,
    WGPU_F16,
    WGPU_SUBGROUPS,
    WGPU_SUBGROUP_MATRIX,
    WGPU_FEATURE_COUNT
} wgpu_feature;

typedef struct wgpu_generation {
    const char *name;
    const char *known_by; // a function that only this one has
    uint32_t features[WGPU_FEATURE_COUNT];
    bool tells_matrix_shapes; // in the form of wgpu_matrix_config
} wgpu_generation;

typedef struct wgpu_toggles {
    wgpu_chain chain;
    size_t n_enabled;
    const char *const *enabled;
    size_t n_disabled;
    const char *const *disabled;
} wgpu_toggles;

typedef struct wgpu_instance_desc {
    wgpu_chain *next;
    uint64_t defaults[3]; // 2025: {next, timed waits, their number}; 2026: {n, features, limits}
} wgpu_instance_desc;

typedef struct wgpu_adapter_options {
    wgpu_chain *next;
    uint32_t level, power, force_fallback, backend;
    void *surface;
} wgpu_adapter_options;

typedef struct wgpu_limits {
    wgpu_chain *next;
    uint32_t textures[4], bind_groups, groups_plus_vertex, bindings_per_group;
    uint32_t dynamic_uniforms, dynamic_storages, sampled_textures, samplers;
    uint32_t storage_buffers, storage_textures, uniform_buffers;
    uint64_t uniform_binding_bytes, storage_binding_bytes;
    uint32_t uniform_alignment, storage_alignment, vertex_buffers;
    uint64_t buffer_bytes;
    uint32_t vertex_attributes, vertex_stride, interstage, attachments, attachment_bytes;
    uint32_t workgroup_bytes, workgroup_size, workgroup_x, workgroup_y, workgroup_z;
    uint32_t workgroups_per_dimension;
    uint32_t tail[20]; // 2025: storage by stage; 2026: bytes of immediates; later: others
} wgpu_limits;

typedef struct wgpu_adapter_info {
    wgpu_chain *next;
    wgpu_text vendor, architecture, device, description;
    uint32_t backend, type, vendor_id, device_id, subgroup_min, subgroup_max;
    uint32_t reserved[8];
} wgpu_adapter_info;

// Shapes that the matrix units multiply, as the generation of 2026 reports them: chained to the
// info.
enum { WGPU_MATRIX_F32 = 1, WGPU_MATRIX_F16 = 2, WGPU_MATRIX_I32 = 4, WGPU_MATRIX_I8 = 6 };
typedef struct wgpu_matrix_config {
    uint32_t type, result_type, m, n, k, subgroup_min, subgroup_max;
} wgpu_matrix_config;
typedef struct wgpu_matrix_configs {
    wgpu_chain chain;
    size_t n;
    const wgpu_matrix_config *items;
} wgpu_matrix_configs;

typedef void (*wgpu_adapter_fn)(uint32_t status, wgpu_adapter adapter, wgpu_text message, void *u1,
                                void *u2);
typedef void (*wgpu_device_fn)(uint32_t status, wgpu_device device, wgpu_text message, void *u1,
                               void *u2);
typedef void (*wgpu_map_fn)(uint32_t status, wgpu_text message, void *u1, void *u2);
typedef void (*wgpu_pipeline_fn)(uint32_t status, wgpu_pipeline pipeline, wgpu_text message,
                                 void *u1, void *u2);
typedef void (*wgpu_device_event_fn)(const wgpu_device *device, uint32_t reason, wgpu_text message,
                                     void *u1, void *u2);
// 2025: (status, u1, u2); 2026: (status, message, u1, u2). Only the status may be read.
typedef void (*wgpu_work_done_fn)(uint32_t status);

#define WGPU_CALLBACK_INFO(name, fn_type)                                                          \
    typedef struct name {                                                                          \
        wgpu_chain *next;                                                                          \
        uint32_t mode;                                                                             \
        fn_type callback;                                                                          \
        void *u1, *u2;                                                                             \
    } name
WGPU_CALLBACK_INFO(wgpu_adapter_callback, wgpu_adapter_fn);
WGPU_CALLBACK_INFO(wgpu_device_callback, wgpu_device_fn);
WGPU_CALLBACK_INFO(wgpu_map_callback, wgpu_map_fn);
WGPU_CALLBACK_INFO(wgpu_pipeline_callback, wgpu_pipeline_fn);
WGPU_CALLBACK_INFO(wgpu_lost_callback, wgpu_device_event_fn);

typedef struct wgpu_error_callback {
    wgpu_chain *next;
    wgpu_device_event_fn callback;
    void *u1, *u2;
} wgpu_error_callback;

typedef struct wgpu_device_desc {
    wgpu_chain *next;
    wgpu_text label;
    size_t n_features;
    const uint32_t *features;
    const wgpu_limits *limits;
    struct {
        wgpu_chain *next;
        wgpu_text label;
    } queue;
    wgpu_lost_callback lost;
    wgpu_error_callback error;
} wgpu_device_desc;

typedef struct wgpu_buffer_desc {
    wgpu_chain *next;
    wgpu_text label;
    uint64_t usage, bytes;
    uint32_t mapped_at_creation;
} wgpu_buffer_desc;

typedef struct wgpu_wgsl {
    wgpu_chain chain;
    wgpu_text code;
} wgpu_wgsl;
typedef struct wgpu_module_desc {
    wgpu_chain *next;
    wgpu_text label;
} wgpu_module_desc;

// The fields after the buffer's describe samplers and textures: zero, "not used".
typedef struct wgpu_layout_entry {
    wgpu_chain *next;
    uint32_t binding;
    uint64_t visibility;
    uint32_t array_size;
    struct {
        wgpu_chain *next;
        uint32_t type, dynamic_offset;
        uint64_t bytes_min;
    } buffer;
    struct {
        wgpu_chain *next;
        uint32_t type;
    } sampler;
    struct {
        wgpu_chain *next;
        uint32_t type, dimension, multisampled;
    } texture;
    struct {
        wgpu_chain *next;
        uint32_t access, format, dimension;
    } storage_texture;
} wgpu_layout_entry;
typedef struct wgpu_layout_desc {
    wgpu_chain *next;
    wgpu_text label;
    size_t n_entries;
    const wgpu_layout_entry *entries;
} wgpu_layout_desc;
typedef struct wgpu_pipeline_layout_desc {
    wgpu_chain *next;
    wgpu_text label;
    size_t n_layouts;
    const wgpu_layout *layouts;
    uint32_t immediate_bytes;
} wgpu_pipeline_layout_desc;

typedef struct wgpu_group_entry {
    wgpu_chain *next;
    uint32_t binding;
    wgpu_buffer buffer;
    uint64_t offset, bytes;
    void *sampler, *texture;
} wgpu_group_entry;
typedef struct wgpu_group_desc {
    wgpu_chain *next;
    wgpu_text label;
    wgpu_layout layout;
    size_t n_entries;
    const wgpu_group_entry *entries;
} wgpu_group_desc;

typedef struct wgpu_constant {
    wgpu_chain *next;
    wgpu_text key;
    double value;
} wgpu_constant;
typedef struct wgpu_pipeline_desc {
    wgpu_chain *next;
    wgpu_text label;
    wgpu_pipeline_layout layout;
    struct {
        wgpu_chain *next;
        wgpu_module module;
        wgpu_text entry;
        size_t n_constants;
        const wgpu_constant *constants;
    } compute;
} wgpu_pipeline_desc;

typedef struct wgpu_query_set_desc {
    wgpu_chain *next;
    wgpu_text label;
    uint32_t type, count;
} wgpu_query_set_desc;
typedef struct wgpu_timestamp_writes {
    wgpu_chain *next;
    wgpu_query_set set;
    uint32_t begin, end; // indices in the set
} wgpu_timestamp_writes;
typedef struct wgpu_pass_desc {
    wgpu_chain *next;
    wgpu_text label;
    const wgpu_timestamp_writes *timestamps;
} wgpu_pass_desc;

// Return type, name after "wgpu", arguments.
#define WGPU_FUNCTIONS(F)                                                                          \
    F(wgpu_instance, CreateInstance, (const wgpu_instance_desc *))                                 \
    F(void, InstanceProcessEvents, (wgpu_instance))                                                \
    F(uint32_t, InstanceHasWGSLLanguageFeature, (wgpu_instance, uint32_t))                         \
    F(wgpu_future, InstanceRequestAdapter,                                                         \
      (wgpu_instance, const wgpu_adapter_options *, wgpu_adapter_callback))                        \
    F(void, InstanceRelease, (wgpu_instance))                                                      \
    F(uint32_t, AdapterGetInfo, (wgpu_adapter, wgpu_adapter_info *))                               \
    F(void, AdapterInfoFreeMembers, (wgpu_adapter_info))                                           \
    F(void, AdapterPropertiesSubgroupMatrixConfigsFreeMembers, (wgpu_matrix_configs))              \
    F(uint32_t, AdapterGetLimits, (wgpu_adapter, wgpu_limits *))                                   \
    F(uint32_t, AdapterHasFeature, (wgpu_adapter, uint32_t))                                       \
    F(wgpu_future, AdapterRequestDevice,                                                           \
      (wgpu_adapter, const wgpu_device_desc *, wgpu_device_callback))                              \
    F(void, AdapterRelease, (wgpu_adapter))                                                        \
    F(wgpu_queue, DeviceGetQueue, (wgpu_device))                                                   \
    F(wgpu_buffer, DeviceCreateBuffer, (wgpu_device, const wgpu_buffer_desc *))                    \
    F(wgpu_module, DeviceCreateShaderModule, (wgpu_device, const wgpu_module_desc *))              \
    F(wgpu_layout, DeviceCreateBindGroupLayout, (wgpu_device, const wgpu_layout_desc *))           \
    F(wgpu_pipeline_layout, DeviceCreatePipelineLayout,                                            \
      (wgpu_device, const wgpu_pipeline_layout_desc *))                                            \
    F(wgpu_group, DeviceCreateBindGroup, (wgpu_device, const wgpu_group_desc *))                   \
    F(wgpu_future, DeviceCreateComputePipelineAsync,                                               \
      (wgpu_device, const wgpu_pipeline_desc *, wgpu_pipeline_callback))                           \
    F(wgpu_encoder, DeviceCreateCommandEncoder, (wgpu_device, const void *))                       \
    F(wgpu_query_set, DeviceCreateQuerySet, (wgpu_device, const wgpu_query_set_desc *))            \
    F(void, QuerySetRelease, (wgpu_query_set))                                                     \
    F(void, DeviceDestroy, (wgpu_device))                                                          \
    F(void, DeviceRelease, (wgpu_device))                                                          \
    F(wgpu_pass, CommandEncoderBeginComputePass, (wgpu_encoder, const wgpu_pass_desc *))           \
    F(void, CommandEncoderResolveQuerySet,                                                         \
      (wgpu_encoder, wgpu_query_set, uint32_t, uint32_t, wgpu_buffer, uint64_t))                   \
    F(void, CommandEncoderClearBuffer, (wgpu_encoder, wgpu_buffer, uint64_t, uint64_t))            \
    F(void, CommandEncoderCopyBufferToBuffer,                                                      \
      (wgpu_encoder, wgpu_buffer, uint64_t, wgpu_buffer, uint64_t, uint64_t))                      \
    F(wgpu_commands, CommandEncoderFinish, (wgpu_encoder, const void *))                           \
    F(void, CommandEncoderRelease, (wgpu_encoder))                                                 \
    F(void, CommandBufferRelease, (wgpu_commands))                                                 \
    F(void, ComputePassEncoderSetPipeline, (wgpu_pass, wgpu_pipeline))                             \
    F(void, ComputePassEncoderSetBindGroup,                                                        \
      (wgpu_pass, uint32_t, wgpu_group, size_t, const uint32_t *))                                 \
    F(void, ComputePassEncoderDispatchWorkgroups, (wgpu_pass, uint32_t, uint32_t, uint32_t))       \
    F(void, ComputePassEncoderEnd, (wgpu_pass))                                                    \
    F(void, ComputePassEncoderRelease, (wgpu_pass))                                                \
    F(void, QueueSubmit, (wgpu_queue, size_t, const wgpu_commands *))                              \
    F(void, QueueWriteBuffer, (wgpu_queue, wgpu_buffer, uint64_t, const void *, size_t))           \
    F(void, QueueRelease, (wgpu_queue))                                                            \
    F(wgpu_future, BufferMapAsync, (wgpu_buffer, uint64_t, size_t, size_t, wgpu_map_callback))     \
    F(const void *, BufferGetConstMappedRange, (wgpu_buffer, size_t, size_t))                      \
    F(void, BufferUnmap, (wgpu_buffer))                                                            \
    F(uint64_t, BufferGetSize, (wgpu_buffer))                                                      \
    F(void, BufferDestroy, (wgpu_buffer))                                                          \
    F(void, BufferRelease, (wgpu_buffer))                                                          \
    F(void, ShaderModuleRelease, (wgpu_module))                                                    \
    F(void, BindGroupLayoutRelease, (wgpu_layout))                                                 \
    F(void, PipelineLayoutRelease, (wgpu_pipeline_layout))                                         \
    F(void, BindGroupRelease, (wgpu_group))                                                        \
    F(void, ComputePipelineRelease, (wgpu_pipeline))

typedef struct wgpu_api {
    const wgpu_generation *generation;
    char *path; // of the library, for people
#define WGPU_POINTER(result, name, arguments) result(*name) arguments;
    WGPU_FUNCTIONS(WGPU_POINTER)
#undef WGPU_POINTER
} wgpu_api;

#endif
