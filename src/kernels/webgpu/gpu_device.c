// Opening a device, and creating things on it: buffers, bind group layouts, pipelines.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os_time.h"
#include "base/strbuf.h"
#include "kernels/webgpu/gpu.h"

static wgpu_text text_of(const char *s) {
    return (wgpu_text){s, strlen(s)};
}

// ---- Errors ------------------------------------------------------------------------------------

static void remember(tern_device *d, const char *what, wgpu_text message) {
    if (d->error[0]) return; // the first one is the cause
    int n = message.ptr ? (int)strnlen(message.ptr, message.len < 350 ? message.len : 350) : 0;
    snprintf(d->error, sizeof d->error, "%s%.*s", what, n, message.ptr ? message.ptr : "");
    for (char *c = d->error; *c; c++)
        if (*c == '\n') *c = ' ';
}

static void on_error(const wgpu_device *device, uint32_t type, wgpu_text message, void *u1,
                     void *u2) {
    (void)device;
    (void)type;
    (void)u2;
    remember(u1, "", message);
}

static void on_lost(const wgpu_device *device, uint32_t reason, wgpu_text message, void *u1,
                    void *u2) {
    (void)device;
    (void)reason;
    (void)u2;
    tern_device *d = u1;
    d->lost = true;
    remember(d, "the device was lost: ", message);
}

tern_status gpu_check(tern_device *d, const char *doing, tern_error *err) {
    if (!d->error[0] && !d->lost) return TERN_OK;
    tern_status status = tern_fail(err, TERN_ERR_DEVICE, "WebGPU failed while %s: %s", doing,
                                   d->error[0] ? d->error : "the device was lost");
    d->error[0] = 0;
    return status;
}

#define WAIT_SECONDS 20 // that a run may take
void gpu_wait(tern_device *d, const bool *pending) {
    double end = tern_seconds() + WAIT_SECONDS;
    while (*pending && tern_seconds() < end) d->api.InstanceProcessEvents(d->instance);
}

// ---- Opening -----------------------------------------------------------------------------------

typedef struct request { // of an adapter or a device
    void *result;
    bool done;
    char message[200];
} request;

static void answer(request *r, uint32_t status, void *result, wgpu_text message) {
    r->result = status == WGPU_SUCCESS ? result : NULL;
    int n = message.ptr ? (int)strnlen(message.ptr, message.len < 190 ? message.len : 190) : 0;
    snprintf(r->message, sizeof r->message, "%.*s", n, message.ptr ? message.ptr : "");
    r->done = true;
}
static void on_adapter(uint32_t status, wgpu_adapter a, wgpu_text message, void *u1, void *u2) {
    (void)u2;
    answer(u1, status, a, message);
}
static void on_device(uint32_t status, wgpu_device a, wgpu_text message, void *u1, void *u2) {
    (void)u2;
    answer(u1, status, a, message);
}

// Drivers may take seconds to load; anything longer is a hang.
#define OPEN_SECONDS 60
static bool wait_for(tern_device *d, const request *r) {
    double end = tern_seconds() + OPEN_SECONDS;
    while (!r->done && tern_seconds() < end) d->api.InstanceProcessEvents(d->instance);
    return r->done;
}

static tern_status open_adapter(tern_device *d, bool halves, tern_error *err) {
    static const char *const enabled[] = {
        "allow_unsafe_apis",                 // for the device's toggles
        "expose_wgsl_experimental_features", // for its matrix units
        "vulkan_enable_f16_on_nvidia",       // of an adapter: off unless asked for
    };
    wgpu_toggles toggles = {.chain.type = WGPU_CHAIN_TOGGLES, .n_enabled = 2, .enabled = enabled};
    wgpu_instance_desc desc = {.next = &toggles.chain};
    d->instance = d->api.CreateInstance(&desc);
    if (!d->instance) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU did not start");
    request r = {0};
    wgpu_toggles more = {.chain.type = WGPU_CHAIN_TOGGLES, .n_enabled = 3, .enabled = enabled};
    wgpu_adapter_options options = {.next = halves ? &more.chain : NULL,
                                    .level = WGPU_LEVEL_CORE,
                                    .power = WGPU_POWER_HIGH};
    d->api.InstanceRequestAdapter(
        d->instance, &options,
        (wgpu_adapter_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_adapter, &r, NULL});
    if (!wait_for(d, &r)) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU gave no adapter in time");
    d->adapter = r.result;
    if (!d->adapter)
        return tern_fail(err, TERN_ERR_DEVICE, "WebGPU found no GPU here: %s", r.message);
    return TERN_OK;
}

static uint32_t number_of(const tern_device *d, wgpu_feature f) {
    return d->api.generation->features[f];
}
static bool has_feature(const tern_device *d, wgpu_feature f) {
    return d->api.AdapterHasFeature(d->adapter, number_of(d, f)) != 0;
}

static size_t wanted_features(const tern_device *d, uint32_t *features) {
    size_t n = 0;
    if (d->subgroups) features[n++] = number_of(d, WGPU_SUBGROUPS);
    if (d->timestamps) features[n++] = number_of(d, WGPU_TIMESTAMPS);
    if (d->matrix || d->matrix_half) features[n++] = number_of(d, WGPU_SUBGROUP_MATRIX);
    if (d->matrix_half) features[n++] = number_of(d, WGPU_F16);
    return n;
}

static tern_status open_device(tern_device *d, tern_error *err) {
    wgpu_limits limits = {0};
    d->api.AdapterGetLimits(d->adapter, &limits);
    limits.next = NULL;
    d->binding_bytes_max = limits.storage_binding_bytes;
    if (d->binding_bytes_max > limits.buffer_bytes) d->binding_bytes_max = limits.buffer_bytes;
    d->part_bytes_max = d->binding_bytes_max / 4096 * 4096;
    d->alone_bytes = GPU_ALONE_BYTES;
    d->buffer_bytes_max = limits.buffer_bytes;
    d->workgroup_size_max = limits.workgroup_size;
    d->workgroup_bytes_max = limits.workgroup_bytes;
    if (limits.workgroup_size < GPU_GEMM_MATRIX_THREADS ||
        limits.workgroup_bytes < GPU_GEMM_MATRIX_BYTES)
        d->matrix = d->matrix_half = false;
    d->checks = d->desc->checks;
    // Every kernel writes its workgroup memory before it reads it; clearing that memory makes a
    // software adapter take five times as long to translate a kernel.
    static const char *const fast[] = {"disable_workgroup_init", "skip_validation",
                                       "disable_robustness"};
    static const char *const coarse[] = {"timestamp_quantization"}; // to 100 microseconds
    wgpu_toggles toggles = {.chain.type = WGPU_CHAIN_TOGGLES,
                            .n_enabled = d->checks ? 1 : 3,
                            .enabled = fast,
                            .n_disabled = 1,
                            .disabled = coarse};
    uint32_t features[WGPU_FEATURE_COUNT];
    request r = {0};
    wgpu_device_desc desc = {
        .n_features = wanted_features(d, features),
        .features = features,
        .next = &toggles.chain,
        .limits = &limits,
        .lost = {NULL, WGPU_CALLBACK_SPONTANEOUS, on_lost, d, NULL},
        .error = {NULL, on_error, d, NULL},
    };
    d->api.AdapterRequestDevice(
        d->adapter, &desc,
        (wgpu_device_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_device, &r, NULL});
    if (!wait_for(d, &r)) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU gave no device in time");
    d->device = r.result;
    if (!d->device) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU gave no device: %s", r.message);
    d->queue = d->api.DeviceGetQueue(d->device);
    d->packed_dot =
        d->api.InstanceHasWGSLLanguageFeature(d->instance, WGPU_WGSL_PACKED_DOT) != 0;
    return TERN_OK;
}

// Whether there are matrix units for a shape that a kernel is written for: 16 x 16 results from k
// columns at a time. The libraries of 2025 have none for int8.
static bool has_matrix_shape(const wgpu_matrix_configs *configs, uint32_t type, uint32_t result,
                             uint32_t k) {
    for (size_t i = 0; i < configs->n; i++) {
        const wgpu_matrix_config *c = &configs->items[i];
        if (c->type == type && c->result_type == result && c->m == 16 && c->n == 16 && c->k == k)
            return true;
    }
    return false;
}

// The printable characters of a text.
static int shown(wgpu_text text) {
    return !text.ptr ? 0 : text.len < 100 ? (int)text.len : 100;
}

// Subgroups are used if they always have 32 threads, matrix units only together with those.
static tern_status read_info(tern_device *d, bool halves, tern_error *err) {
    wgpu_adapter_info info = {0};
    wgpu_matrix_configs configs = {.chain.type = WGPU_CHAIN_MATRIX_CONFIGS};
    bool tells = d->api.generation->tells_matrix_shapes && has_feature(d, WGPU_SUBGROUP_MATRIX);
    if (tells) info.next = &configs.chain;
    if (d->api.AdapterGetInfo(d->adapter, &info) != WGPU_SUCCESS || !info.backend)
        return tern_fail(err, TERN_ERR_DEVICE, "WebGPU does not say what its adapter is");
    if (info.backend == WGPU_BACKEND_NULL) {
        d->api.AdapterInfoFreeMembers(info);
        return tern_fail(err, TERN_ERR_DEVICE,
                         "WebGPU found no GPU here: no driver is installed (of the GPU's maker, or "
                         "mesa-vulkan-drivers)");
    }
    bool of_32 = info.subgroup_min == 32 && info.subgroup_max == 32;
    d->subgroups = has_feature(d, WGPU_SUBGROUPS) && of_32;
    d->timestamps = has_feature(d, WGPU_TIMESTAMPS);
    if (tells) {
        bool may = d->subgroups && !d->desc->no_matrix;
        d->matrix = may && has_matrix_shape(&configs, WGPU_MATRIX_I8, WGPU_MATRIX_I32, 32);
        d->matrix_half = may && halves && has_feature(d, WGPU_F16) &&
                         has_matrix_shape(&configs, WGPU_MATRIX_F16, WGPU_MATRIX_F32, 16);
        d->api.AdapterPropertiesSubgroupMatrixConfigsFreeMembers(configs);
    }
    d->software = info.type == WGPU_ADAPTER_CPU;
    snprintf(d->adapter_key, sizeof d->adapter_key, "%u %u %u %u %.*s %.*s", info.backend,
             info.type, info.vendor_id, info.device_id, shown(info.device), info.device.ptr,
             shown(info.description), info.description.ptr);
    wgpu_text name = info.device.len > 0 ? info.device : info.description;
    snprintf(d->description, sizeof d->description, "webgpu %.*s%s", shown(name), name.ptr,
             info.type == WGPU_ADAPTER_CPU ? " (in software)" : "");
    d->api.AdapterInfoFreeMembers(info);
    return TERN_OK;
}

static tern_status module_of(tern_device *d, gpu_kernel k, wgpu_module *out, tern_error *err);

// The language of matrix units is experimental: with a library whose dialect differs from that of
// kernel `k`, they are not used.
static void try_matrix(tern_device *d, gpu_kernel k, bool *has) {
    wgpu_module module;
    if (!*has || module_of(d, k, &module, NULL) == TERN_OK) return;
    if (d->modules[k]) d->api.ShaderModuleRelease(d->modules[k]);
    d->modules[k] = NULL;
    *has = false;
}

static tern_status open_once(tern_device **out, const tern_webgpu_desc *desc, bool halves,
                             size_t *first_size, bool *again, tern_error *err) {
    *out = NULL;
    *again = false;
    tern_device *d = tern_alloc(TERN_MEM_GRAPH, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    tern_status status = TERN_OK;
    d->desc = desc;
    TERN_TRY_GOTO(gpu_library_open(&d->api, desc, err));
    halves = halves && d->api.generation->tells_matrix_shapes;
    TERN_TRY_GOTO(open_adapter(d, halves, err));
    TERN_TRY_GOTO(read_info(d, halves, err));
    TERN_TRY_GOTO(open_device(d, err));
    TERN_TRY_GOTO(gpu_buffer_new(d, GPU_USE_RESULTS, GPU_READ_BYTES,
                                 WGPU_BUFFER_MAP_READ | WGPU_BUFFER_COPY_DST, "what is read back",
                                 &d->reader.buffer, err));
    TERN_TRY_GOTO(gpu_policy_choose(d, first_size, err));
    try_matrix(d, GPU_GEMM, &d->matrix);
    try_matrix(d, GPU_TRAIN_GEMM_MATRIX, &d->matrix_half);
    d->desc = NULL;
    *out = d;
    return TERN_OK;
fail:
    *again = d->lost && gpu_policy_has_more(*first_size);
    gpu_device_close(d);
    return status;
}

// Trying out how much a weak device can take may lose it.
tern_status gpu_device_new(tern_device **out, const tern_webgpu_desc *desc, bool halves,
                           tern_error *err) {
    static const tern_webgpu_desc defaults = {0};
    size_t first_size = 0;
    bool again = false;
    tern_status status;
    do status = open_once(out, desc ? desc : &defaults, halves, &first_size, &again, err);
    while (status == TERN_ERR_DEVICE && again);
    return status;
}

tern_status gpu_device_open(tern_device **out, const tern_device_desc *desc, tern_error *err) {
    return gpu_device_new(out, desc->webgpu, false, err);
}

void gpu_device_close(tern_device *d) {
    if (!d) return;
    const wgpu_api *a = &d->api;
    for (size_t i = 0; i < d->n_pipelines; i++) a->ComputePipelineRelease(d->pipelines[i].handle);
    for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
        if (d->modules[k]) a->ShaderModuleRelease(d->modules[k]);
        if (d->layouts[k]) a->BindGroupLayoutRelease(d->layouts[k]);
        if (d->pipeline_layouts[k]) a->PipelineLayoutRelease(d->pipeline_layouts[k]);
    }
    for (size_t i = 0; i < d->n_slabs; i++) gpu_buffer_free(d, GPU_USE_WEIGHTS, d->slabs[i]);
    gpu_wait(d, &d->reader.pending);
    gpu_buffer_free(d, GPU_USE_RESULTS, d->reader.buffer);
    if (d->queue) a->QueueRelease(d->queue);
    if (d->device) {
        a->DeviceDestroy(d->device);
        a->DeviceRelease(d->device);
    }
    if (d->adapter) a->AdapterRelease(d->adapter);
    if (d->instance) {
        a->InstanceProcessEvents(d->instance); // the last callbacks point to d
        a->InstanceRelease(d->instance);
    }
    gpu_library_close(&d->api);
    tern_free(d->pipelines);
    tern_free(d->slabs);
    tern_free(d);
}

// ---- Buffers -----------------------------------------------------------------------------------

static uint64_t bytes_of_all(const tern_device *d) {
    uint64_t sum = 0;
    for (int i = 0; i < GPU_USES; i++) sum += d->bytes[i];
    return sum;
}

void gpu_memory(const tern_device *d, tern_device_memory *out) {
    *out = (tern_device_memory){.weights = d->bytes[GPU_USE_WEIGHTS],
                                .cache = d->bytes[GPU_USE_CACHE],
                                .work = d->bytes[GPU_USE_WORK],
                                .results = d->bytes[GPU_USE_RESULTS],
                                .now = bytes_of_all(d),
                                .most = d->bytes_max};
}

tern_status gpu_buffer_new(tern_device *d, gpu_use use, uint64_t bytes, uint64_t usage,
                           const char *what, wgpu_buffer *out, tern_error *err) {
    *out = NULL;
    bytes = gpu_round(bytes ? bytes : 1, 256);
    if (bytes > d->buffer_bytes_max)
        return tern_fail(
            err, TERN_ERR_DEVICE, "%s needs %llu MB in one piece, the GPU's limit is %llu MB", what,
            (unsigned long long)(bytes >> 20), (unsigned long long)(d->buffer_bytes_max >> 20));
    wgpu_buffer_desc desc = {.label = text_of(what), .usage = usage, .bytes = bytes};
    *out = d->api.DeviceCreateBuffer(d->device, &desc);
    tern_status status = gpu_check(d, "making a buffer", err);
    if (status == TERN_OK && !*out)
        status = tern_fail(err, TERN_ERR_DEVICE, "the GPU has no %llu MB for %s",
                           (unsigned long long)(bytes >> 20), what);
    if (status == TERN_OK) {
        d->bytes[use] += bytes;
        uint64_t all = bytes_of_all(d);
        if (all > d->bytes_max) d->bytes_max = all;
        return TERN_OK;
    }
    if (*out) d->api.BufferRelease(*out);
    *out = NULL;
    return status;
}

void gpu_buffer_free(tern_device *d, gpu_use use, wgpu_buffer b) {
    if (!b) return;
    d->bytes[use] -= d->api.BufferGetSize(b);
    d->api.BufferDestroy(b);
    d->api.BufferRelease(b);
}

// ---- Sending and reading back ------------------------------------------------------------------

static void on_mapped(uint32_t status, wgpu_text message, void *u1, void *u2) {
    (void)message;
    (void)u2;
    gpu_readback *r = u1;
    r->pending = false;
    r->mapped = status == WGPU_SUCCESS;
}

void gpu_readback_map(tern_device *d, gpu_readback *r, uint64_t bytes) {
    r->mapped = false;
    r->pending = true;
    d->bytes_read += bytes;
    d->api.BufferMapAsync(
        r->buffer, WGPU_MAP_READ, 0, (size_t)bytes,
        (wgpu_map_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_mapped, r, NULL});
}

const void *gpu_readback_bytes(const tern_device *d, const gpu_readback *r, uint64_t bytes) {
    return r->mapped ? d->api.BufferGetConstMappedRange(r->buffer, 0, (size_t)bytes) : NULL;
}

void gpu_readback_unmap(const tern_device *d, gpu_readback *r) {
    if (r->mapped) d->api.BufferUnmap(r->buffer);
    r->mapped = false;
}

void gpu_readback_copy(tern_device *d, wgpu_buffer from, uint64_t offset, gpu_readback *to,
                       uint64_t bytes) {
    wgpu_encoder encoder = d->api.DeviceCreateCommandEncoder(d->device, NULL);
    d->api.CommandEncoderCopyBufferToBuffer(encoder, from, offset, to->buffer, 0, bytes);
    wgpu_commands commands = d->api.CommandEncoderFinish(encoder, NULL);
    d->api.CommandEncoderRelease(encoder);
    d->api.QueueSubmit(d->queue, 1, &commands);
    d->api.CommandBufferRelease(commands);
    gpu_readback_map(d, to, bytes);
}

tern_status gpu_read(tern_device *d, wgpu_buffer from, uint64_t offset, void *data, uint64_t bytes,
                     tern_error *err) {
    gpu_readback *r = &d->reader;
    for (uint64_t at = 0; at < bytes; at += GPU_READ_BYTES) {
        size_t n = (size_t)(bytes - at < GPU_READ_BYTES ? bytes - at : GPU_READ_BYTES);
        if (!r->pending) gpu_readback_copy(d, from, offset + at, r, n);
        gpu_wait(d, &r->pending);
        const void *mapped = gpu_readback_bytes(d, r, n);
        TERN_TRY(gpu_check(d, "reading back", err));
        if (!mapped) return tern_fail(err, TERN_ERR_DEVICE, "the GPU's memory cannot be read");
        memcpy((char *)data + at, mapped, n);
        gpu_readback_unmap(d, r);
    }
    return TERN_OK;
}

#define ON_WAY_MAX ((uint64_t)64 << 20)
static void compare_sent(tern_device *d, wgpu_buffer b, uint64_t offset, const uint8_t *data,
                         uint64_t bytes) {
    tern_error why = {0};
    uint8_t *found = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
    tern_status status = found ? gpu_read(d, b, offset, found, bytes, &why)
                               : tern_fail_memory(&why, (size_t)bytes);
    if (status != TERN_OK)
        remember(d, "", (wgpu_text){why.message, strlen(why.message)});
    else {
        d->compare->n_bytes += bytes;
        for (uint64_t i = 0; i < bytes; i++) d->compare->n_wrong += data[i] != found[i];
        d->compare->wanted = tern_hash64(d->compare->wanted, data, (size_t)bytes);
        d->compare->found = tern_hash64(d->compare->found, found, (size_t)bytes);
    }
    tern_free(found);
}

void gpu_send(tern_device *d, wgpu_buffer b, uint64_t offset, const void *data, uint64_t bytes) {
    if (d->compare) {
        compare_sent(d, b, offset, data, bytes);
        return;
    }
    d->api.QueueWriteBuffer(d->queue, b, offset, data, (size_t)bytes);
    d->api.QueueSubmit(d->queue, 0, NULL);
    d->api.InstanceProcessEvents(d->instance);
    d->bytes_on_way += bytes;
    if (d->bytes_on_way < ON_WAY_MAX) return;
    d->bytes_on_way = 0;
    uint32_t word;
    tern_error why = {0};
    if (gpu_read(d, b, offset, &word, sizeof word, &why) != TERN_OK)
        remember(d, "", (wgpu_text){why.message, strlen(why.message)});
}

// ---- Pipelines ---------------------------------------------------------------------------------

static bool trains(gpu_kernel k) {
    return strncmp(gpu_kernel_file(k), "train_", 6) == 0;
}

// Kernels of one file share the module of the first of them.
static tern_status module_of(tern_device *d, gpu_kernel k, wgpu_module *out, tern_error *err) {
    const char *file = gpu_kernel_file(k);
    while (k > 0 && strcmp(gpu_kernel_file(k - 1), file) == 0) k--;
    *out = d->modules[k];
    if (*out) return TERN_OK;
    tern_strbuf b = {0};
    if (d->subgroups) tern_strbuf_puts(&b, "enable subgroups;\n");
    if (d->matrix || d->matrix_half)
        tern_strbuf_puts(&b, "enable chromium_experimental_subgroup_matrix;\n");
    if (d->matrix_half) tern_strbuf_puts(&b, "enable f16;\n");
    if (d->packed_dot) tern_strbuf_puts(&b, "requires packed_4x8_integer_dot_product;\n");
    tern_strbuf_puts(&b, gpu_shader_text(trains(k) ? "train_run" : "run"));
    tern_strbuf_puts(&b, gpu_shader_text("prelude"));
    tern_strbuf_puts(&b, gpu_shader_text(d->subgroups ? "reduce_subgroups" : "reduce_portable"));
    tern_strbuf_puts(&b, gpu_shader_text(d->packed_dot ? "dot_packed" : "dot_portable"));
    for (const char *const *base = gpu_shader_base(file); *base; base++)
        tern_strbuf_puts(&b, gpu_shader_text(*base));
    tern_strbuf_puts(&b, gpu_shader_text(file));
    if (strcmp(file, "ternary_gemm") == 0)
        tern_strbuf_puts(
            &b, gpu_shader_text(d->matrix ? "ternary_gemm_matrix" : "ternary_gemm_dot"));
    if (b.failed) {
        tern_strbuf_free(&b);
        return tern_fail_memory(err, b.len);
    }
    wgpu_wgsl wgsl = {.chain.type = WGPU_CHAIN_WGSL, .code = {b.ptr, b.len}};
    wgpu_module_desc desc = {.next = &wgsl.chain, .label = text_of(file)};
    *out = d->modules[k] = d->api.DeviceCreateShaderModule(d->device, &desc);
    tern_strbuf_free(&b);
    return gpu_check(d, file, err);
}

static tern_status layout_of(tern_device *d, gpu_kernel k, tern_error *err) {
    if (d->pipeline_layouts[k]) return TERN_OK;
    wgpu_layout_entry entries[1 + GPU_BINDINGS] = {{0}};
    const char *bindings = gpu_kernel_bindings(k);
    size_t n = 0;
    entries[n++].buffer.type = trains(k) ? WGPU_BINDING_UNIFORM : WGPU_BINDING_READ_ONLY;
    for (uint32_t i = 0; bindings[i]; i++) {
        if (bindings[i] == '-') continue;
        entries[n].binding = i + 1;
        entries[n++].buffer.type =
            bindings[i] == 'r' ? WGPU_BINDING_READ_ONLY : WGPU_BINDING_STORAGE;
    }
    for (size_t i = 0; i < n; i++) entries[i].visibility = WGPU_STAGE_COMPUTE;
    wgpu_layout_desc desc = {.n_entries = n, .entries = entries};
    d->layouts[k] = d->api.DeviceCreateBindGroupLayout(d->device, &desc);
    wgpu_pipeline_layout_desc pipeline = {.n_layouts = 1, .layouts = &d->layouts[k]};
    d->pipeline_layouts[k] = d->api.DeviceCreatePipelineLayout(d->device, &pipeline);
    return gpu_check(d, "making a layout", err);
}

static bool same_pipeline(const gpu_pipeline *a, const gpu_pipeline *b) {
    if (a->kernel != b->kernel || a->n_constants != b->n_constants) return false;
    for (int i = 0; i < a->n_constants; i++)
        if (strcmp(a->constants[i].name, b->constants[i].name) != 0 ||
            a->constants[i].value != b->constants[i].value)
            return false;
    return true;
}

tern_status gpu_pipeline_get(tern_device *d, const gpu_pipeline *wanted, wgpu_pipeline *out,
                             tern_error *err) {
    for (size_t i = 0; i < d->n_pipelines; i++)
        if (same_pipeline(&d->pipelines[i], wanted)) {
            d->n_pipeline_hits++;
            *out = d->pipelines[i].handle;
            return TERN_OK;
        }
    wgpu_module module;
    TERN_TRY(module_of(d, wanted->kernel, &module, err));
    TERN_TRY(layout_of(d, wanted->kernel, err));
    if (tern_array_reserve(TERN_MEM_GRAPH, &d->pipelines, &d->pipelines_capacity, d->n_pipelines,
                           1) != 0)
        return tern_fail_memory(err, sizeof *wanted);
    wgpu_constant constants[GPU_CONSTANTS] = {{0}};
    for (int i = 0; i < wanted->n_constants; i++) {
        constants[i].key = text_of(wanted->constants[i].name);
        constants[i].value = wanted->constants[i].value;
    }
    const char *entry = gpu_kernel_entry(wanted->kernel);
    wgpu_pipeline_desc desc = {.label = text_of(entry),
                               .layout = d->pipeline_layouts[wanted->kernel]};
    desc.compute.module = module;
    desc.compute.entry = text_of(entry);
    desc.compute.n_constants = (size_t)wanted->n_constants;
    desc.compute.constants = constants;
    gpu_pipeline made = *wanted;
    made.handle = d->api.DeviceCreateComputePipeline(d->device, &desc);
    if (made.handle) d->pipelines[d->n_pipelines++] = made;
    *out = made.handle;
    TERN_TRY(gpu_check(d, entry, err));
    return made.handle ? TERN_OK
                       : tern_fail(err, TERN_ERR_DEVICE, "WebGPU made no pipeline for %s", entry);
}
