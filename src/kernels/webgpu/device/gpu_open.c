// Opening a device, in steps that never wait:
//
//   adapter asked for ─ device asked for ─ trials of submissions (gpu_policy.c) ─ open
//
// Each poll checks whether the last step was answered, and takes the next one. Trying out how much
// a weak device can take may lose it: then everything begins again, with less. Callbacks point to
// the device; releasing the instance ends them, so closing cancels a step.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_library.h"
#include "base/os/os_time.h"
#include "kernels/webgpu/device/gpu.h"

typedef struct gpu_opening {
    const tern_webgpu_desc *desc;
    bool only_hardware;
    enum { ASKED_ADAPTER, ASKED_DEVICE, TRYING } step;
    double asked;  // when the adapter or the device was asked for
    bool answered; // it has come, or a message why not
    char message[200];
    size_t first_size; // of the trials
    gpu_policy *trials;
} gpu_opening;

// ---- Callbacks ---------------------------------------------------------------------------------

static void on_error(const wgpu_device *device, uint32_t type, wgpu_text message, void *u1,
                     void *u2) {
    (void)device;
    (void)type;
    (void)u2;
    gpu_remember(u1, "", message);
}

static void on_lost(const wgpu_device *device, uint32_t reason, wgpu_text message, void *u1,
                    void *u2) {
    (void)device;
    (void)reason;
    (void)u2;
    tern_device *d = u1;
    d->lost = true;
    gpu_remember(d, "the device was lost: ", message);
}

static void answer(tern_device *d, wgpu_text message) {
    gpu_opening *o = d->opening;
    int n = message.ptr ? (int)strnlen(message.ptr, message.len < 190 ? message.len : 190) : 0;
    snprintf(o->message, sizeof o->message, "%.*s", n, message.ptr ? message.ptr : "");
    o->answered = true;
}
static void on_adapter(uint32_t status, wgpu_adapter a, wgpu_text message, void *u1, void *u2) {
    tern_device *d = u1;
    (void)u2;
    if (status == WGPU_SUCCESS) d->adapter = a;
    answer(d, message);
}
static void on_device(uint32_t status, wgpu_device a, wgpu_text message, void *u1, void *u2) {
    tern_device *d = u1;
    (void)u2;
    if (status == WGPU_SUCCESS) d->device = a;
    answer(d, message);
}

static void ask(gpu_opening *o, int step) {
    o->step = step;
    o->answered = false;
    o->asked = tern_seconds();
}

// Drivers may take seconds to load; anything longer is a hang.
#define OPEN_SECONDS        60
#define OPEN_SECONDS_IF_ANY 15 // where the CPU is used instead of waiting longer
static tern_status check_time(const gpu_opening *o, const char *what, tern_error *err) {
    double most = o->only_hardware ? OPEN_SECONDS_IF_ANY : OPEN_SECONDS;
    if (tern_seconds() < o->asked + most) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE, "WebGPU gave no %s in time", what);
}

// ---- The adapter -------------------------------------------------------------------------------

static tern_status ask_for_adapter(tern_device *d, tern_error *err) {
    static const char *const enabled[] = {
        "allow_unsafe_apis",                 // for the device's toggles
        "expose_wgsl_experimental_features", // for its matrix units
        "vulkan_enable_f16_on_nvidia",       // of an adapter: off unless asked for
    };
    gpu_opening *o = d->opening;
    TERN_TRY(gpu_library_open(&d->api, o->desc, err));
    wgpu_toggles toggles = {.chain.type = WGPU_CHAIN_TOGGLES, .n_enabled = 2, .enabled = enabled};
    wgpu_instance_desc desc = {.next = &toggles.chain};
    d->instance = d->api.CreateInstance(&desc);
    if (!d->instance) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU did not start");
    bool halves = GPU_MAY_HAVE_MATRIX && d->api.generation->tells_matrix_shapes;
    wgpu_toggles more = {.chain.type = WGPU_CHAIN_TOGGLES, .n_enabled = 3, .enabled = enabled};
    wgpu_adapter_options options = {
        .next = halves ? &more.chain : NULL, .level = WGPU_LEVEL_CORE, .power = WGPU_POWER_HIGH};
    ask(o, ASKED_ADAPTER);
    d->api.InstanceRequestAdapter(
        d->instance, &options,
        (wgpu_adapter_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_adapter, d, NULL});
    return TERN_OK;
}

static uint32_t number_of(const tern_device *d, wgpu_feature f) {
    return d->api.generation->features[f];
}
static bool has_feature(const tern_device *d, wgpu_feature f) {
    return d->api.AdapterHasFeature(d->adapter, number_of(d, f)) != 0;
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
static int shown(wgpu_text text) { return !text.ptr ? 0 : text.len < 100 ? (int)text.len : 100; }

// Subgroups are used if they always have 32 threads, matrix units only together with those.
static tern_status read_info(tern_device *d, tern_error *err) {
    wgpu_adapter_info info = {0};
    wgpu_matrix_configs configs = {.chain.type = WGPU_CHAIN_MATRIX_CONFIGS};
    bool tells = GPU_MAY_HAVE_MATRIX && d->api.generation->tells_matrix_shapes &&
                 has_feature(d, WGPU_SUBGROUP_MATRIX);
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
        bool may = d->subgroups && !d->opening->desc->no_matrix;
        d->matrix = may && has_matrix_shape(&configs, WGPU_MATRIX_I8, WGPU_MATRIX_I32, 32);
        d->matrix_half = may && has_feature(d, WGPU_F16) &&
                         has_matrix_shape(&configs, WGPU_MATRIX_F16, WGPU_MATRIX_F32, 16);
        d->api.AdapterPropertiesSubgroupMatrixConfigsFreeMembers(configs);
    }
    d->software = info.type == WGPU_ADAPTER_CPU;
    if (d->software && d->opening->only_hardware) {
        wgpu_text name = info.device.len > 0 ? info.device : info.description;
        tern_fail(err, TERN_ERR_DEVICE, "WebGPU has only %.*s here, which computes in software",
                  shown(name), name.ptr);
        d->api.AdapterInfoFreeMembers(info);
        return TERN_ERR_DEVICE;
    }
    snprintf(d->adapter_key, sizeof d->adapter_key, "%u %u %u %u %.*s %.*s", info.backend,
             info.type, info.vendor_id, info.device_id, shown(info.device), info.device.ptr,
             shown(info.description), info.description.ptr);
    wgpu_text name = info.device.len > 0 ? info.device : info.description;
    snprintf(d->description, sizeof d->description, "webgpu %.*s%s", shown(name), name.ptr,
             info.type == WGPU_ADAPTER_CPU ? " (in software)" : "");
    d->api.AdapterInfoFreeMembers(info);
    return TERN_OK;
}

// ---- The device --------------------------------------------------------------------------------

static size_t wanted_features(const tern_device *d, uint32_t *features) {
    size_t n = 0;
    if (d->subgroups) features[n++] = number_of(d, WGPU_SUBGROUPS);
    if (d->timestamps) features[n++] = number_of(d, WGPU_TIMESTAMPS);
    if (d->matrix || d->matrix_half) features[n++] = number_of(d, WGPU_SUBGROUP_MATRIX);
    if (d->matrix_half) features[n++] = number_of(d, WGPU_F16);
    return n;
}

static void take_limits(tern_device *d, wgpu_limits *limits) {
    d->api.AdapterGetLimits(d->adapter, limits);
    limits->next = NULL;
    d->binding_bytes_max = limits->storage_binding_bytes;
    if (d->binding_bytes_max > limits->buffer_bytes) d->binding_bytes_max = limits->buffer_bytes;
    d->part_bytes_max = d->binding_bytes_max / 4096 * 4096;
    d->alone_bytes = GPU_ALONE_BYTES;
    d->screen_bytes_min = UINT64_MAX;
    d->buffer_bytes_max = limits->buffer_bytes;
    d->workgroup_size_max = limits->workgroup_size;
    d->workgroup_bytes_max = limits->workgroup_bytes;
    if (limits->workgroup_size < GPU_GEMM_MATRIX_THREADS ||
        limits->workgroup_bytes < GPU_GEMM_MATRIX_BYTES)
        d->matrix = d->matrix_half = false;
}

static tern_status ask_for_device(tern_device *d, tern_error *err) {
    if (!d->adapter)
        return tern_fail(err, TERN_ERR_DEVICE, "WebGPU found no GPU here: %s", d->opening->message);
    TERN_TRY(read_info(d, err));
    wgpu_limits limits = {0};
    take_limits(d, &limits);
    d->checks = d->opening->desc->checks;
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
    wgpu_device_desc desc = {
        .n_features = wanted_features(d, features),
        .features = features,
        .next = &toggles.chain,
        .limits = &limits,
        .lost = {NULL, WGPU_CALLBACK_SPONTANEOUS, on_lost, d, NULL},
        .error = {NULL, on_error, d, NULL},
    };
    ask(d->opening, ASKED_DEVICE);
    d->api.AdapterRequestDevice(
        d->adapter, &desc,
        (wgpu_device_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_device, d, NULL});
    return TERN_OK;
}

static tern_status begin_trials(tern_device *d, tern_error *err) {
    gpu_opening *o = d->opening;
    if (!d->device) return tern_fail(err, TERN_ERR_DEVICE, "WebGPU gave no device: %s", o->message);
    d->queue = d->api.DeviceGetQueue(d->device);
    d->packed_dot = d->api.InstanceHasWGSLLanguageFeature(d->instance, WGPU_WGSL_PACKED_DOT) != 0;
    TERN_TRY(gpu_readback_new(d, GPU_READ_BYTES, "what is read back", &d->reader, err));
    TERN_TRY(gpu_readback_new(d, sizeof(uint32_t), "what is read back", &d->fence, err));
    o->step = TRYING;
    return gpu_policy_begin(&o->trials, d, o->desc, o->first_size, err);
}

// ---- The whole ---------------------------------------------------------------------------------

static void close_opening(tern_device *d) {
    if (!d->opening) return;
    gpu_policy_close(d->opening->trials);
    tern_free(d->opening);
    d->opening = NULL;
}

static void try_modules(tern_device *d, const gpu_kernel *kernels, size_t n, bool *has) {
    for (size_t i = 0; GPU_MAY_HAVE_MATRIX && i < n; i++) gpu_try_module(d, kernels[i], has);
}

// The language of matrix units is experimental: with a library whose dialect differs from that of
// the kernels, they are not used.
static void finish(tern_device *d) {
    static const gpu_kernel kernels[] = {GPU_GEMM_MATRIX, GPU_GEMM_NARROW, GPU_GEMM_GROUPS,
                                         GPU_WIDE_GEMM_MATRIX, GPU_HEAD_SCREEN_MATRIX};
    static const gpu_kernel of_halves[] = {GPU_TRAIN_GEMM_MATRIX, GPU_ATTENTION_MATRIX,
                                           GPU_WIDE_GEMM_HALF, GPU_GEMM_HALF};
    try_modules(d, kernels, sizeof kernels / sizeof *kernels, &d->matrix);
    try_modules(d, of_halves, sizeof of_halves / sizeof *of_halves, &d->matrix_half);
    // Without instructions for them, products of bytes take longer than those of floats.
    if (gpu_has_matrix(d) || (d->packed_dot && !d->software))
        d->screen_bytes_min = GPU_SCREEN_BYTES;
    close_opening(d);
}

static tern_status take_step(tern_device *d, tern_error *err) {
    gpu_opening *o = d->opening;
    bool chosen = false;
    switch (o->step) {
    case ASKED_ADAPTER: return o->answered ? ask_for_device(d, err) : check_time(o, "adapter", err);
    case ASKED_DEVICE: return o->answered ? begin_trials(d, err) : check_time(o, "device", err);
    case TRYING:
        TERN_TRY(gpu_policy_poll(o->trials, &chosen, &o->first_size, err));
        if (chosen) finish(d);
    }
    return TERN_OK;
}

// Releases everything that the device holds of the library.
static void shut(tern_device *d) {
    const wgpu_api *a = &d->api;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
        if (d->modules[k]) a->ShaderModuleRelease(d->modules[k]);
        if (d->layouts[k]) a->BindGroupLayoutRelease(d->layouts[k]);
        if (d->pipeline_layouts[k]) a->PipelineLayoutRelease(d->pipeline_layouts[k]);
    }
    for (size_t i = 0; i < d->n_slabs; i++) gpu_buffer_free(d, GPU_USE_WEIGHTS, d->slabs[i]);
    gpu_readback_free(d, &d->reader);
    gpu_readback_free(d, &d->fence);
    if (d->queue) a->QueueRelease(d->queue);
    if (d->device) a->DeviceDestroy(d->device);
    if (d->instance) {
        a->InstanceProcessEvents(d->instance);
        a->InstanceRelease(
            d->instance); // runs pending callbacks: an adapter or a pipeline may still come
    }
    for (size_t i = 0; i < d->n_pipelines; i++) {
        if (d->pipelines[i]->handle) a->ComputePipelineRelease(d->pipelines[i]->handle);
        tern_free(d->pipelines[i]);
    }
    if (d->device) a->DeviceRelease(d->device);
    if (d->adapter) a->AdapterRelease(d->adapter);
    gpu_library_close(&d->api);
    tern_team_close(d->team);
    tern_free(d->pipelines);
    tern_free(d->slabs);
}

static tern_status begin(tern_device **out, const tern_webgpu_desc *desc, bool only_hardware,
                         tern_error *err) {
    static const tern_webgpu_desc defaults = {0};
    *out = NULL;
    tern_device *d = tern_alloc(TERN_MEM_GRAPH, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    tern_status status = TERN_ERR_MEMORY;
    d->opening = tern_alloc(TERN_MEM_GRAPH, sizeof *d->opening);
    if (d->opening) {
        d->opening->desc = desc ? desc : &defaults;
        d->opening->only_hardware = only_hardware;
        status = ask_for_adapter(d, err);
    } else
        tern_fail_memory(err, sizeof *d->opening);
    if (status == TERN_OK)
        *out = d;
    else
        gpu_device_close(d);
    return status;
}

tern_status gpu_device_begin(tern_device **out, const tern_webgpu_desc *desc, tern_error *err) {
    return begin(out, desc, false, err);
}

static tern_status begin_again(tern_device *d, tern_error *err) {
    gpu_opening *o = d->opening;
    gpu_policy_close(o->trials);
    o->trials = NULL;
    shut(d);
    const tern_matmul_precision products = d->products;
    *d = (tern_device){.opening = o, .precise = d->precise, .n_threads = d->n_threads};
    if (GPU_MAY_HAVE_MATRIX) d->products = products;
    return ask_for_adapter(d, err);
}

tern_status gpu_device_poll(tern_device *d, bool *done, tern_error *err) {
    tern_error why = {0};
    tern_status status = TERN_OK;
    size_t first = d->opening ? d->opening->first_size : 0;
    if (d->opening) {
        d->api.InstanceProcessEvents(d->instance);
        status = take_step(d, &why);
    }
    if (status == TERN_ERR_DEVICE && d->lost && d->opening->first_size > first &&
        gpu_policy_has_more(d->opening->first_size))
        status = begin_again(d, &why);
    if (status != TERN_OK && err) *err = why;
    *done = status == TERN_OK && !d->opening;
    return status;
}

tern_status gpu_device_new(tern_device **out, const tern_webgpu_desc *desc, tern_error *err) {
    TERN_TRY(gpu_device_begin(out, desc, err));
    tern_status status = TERN_OK;
    for (bool done = false; status == TERN_OK && !done;) status = gpu_device_poll(*out, &done, err);
    if (status == TERN_OK) return TERN_OK;
    gpu_device_close(*out);
    *out = NULL;
    return status;
}

tern_status gpu_device_open(tern_device **out, const tern_device_desc *desc, tern_error *err) {
    bool chooses = desc->only_hardware && !(desc->webgpu && desc->webgpu->symbol);
    *out = NULL;
    if (chooses && !tern_gpu_may_be_here())
        return tern_fail(err, TERN_ERR_DEVICE, "this machine shows none");
    TERN_TRY(begin(out, desc->webgpu, chooses, err));
    (*out)->precise = desc->precise;
    if (GPU_MAY_HAVE_MATRIX) (*out)->products = desc->products;
    (*out)->n_threads = desc->n_threads;
    return TERN_OK;
}

void gpu_device_close(tern_device *d) {
    if (!d) return;
    if (d->opening) gpu_policy_close(d->opening->trials);
    if (d->opening) d->opening->trials = NULL;
    shut(d); // whose last callbacks point to the opening
    close_opening(d);
    tern_free(d);
}
