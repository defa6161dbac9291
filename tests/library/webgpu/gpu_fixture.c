#include "gpu_fixture.h"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include "kernels/webgpu/device/gpu.h"

// ---- Plays -------------------------------------------------------------------------------------

static struct {
    gpu_play play;
    wgpu_device device;  // opened last
    wgpu_pipeline embed; // the first dispatch of every run of a model
    wgpu_pipeline set;
    uint32_t n_dispatches; // since the last submission
    int n_runs, n_runs_submitted;
    int n_alive, n_compiling;
} now;

#define POINTER(result, name, arguments) static result(*real_##name) arguments;
WGPU_FUNCTIONS(POINTER)
#undef POINTER

// ---- Answers that are held back ----------------------------------------------------------------

// What was asked for, in order; the library's answer, once it is there.
typedef struct held {
    wgpu_instance instance;
    wgpu_adapter_callback adapter; // one of the three
    wgpu_device_callback device;
    wgpu_map_callback map;
    bool is_there;
    uint32_t status;
    void *object;
} held;

static struct {
    wgpu_instance instance; // made last
    held *items[64];
    int n, n_let; // let through by gpu_play_answer
} holding;

static held *hold(const held *asked) {
    held *h = malloc(sizeof *h);
    if (!h || holding.n == 64) abort();
    *h = *asked;
    h->instance = holding.instance;
    holding.items[holding.n++] = h;
    return h;
}

static void tell(int i, uint32_t status) {
    held *h = holding.items[i];
    const wgpu_text none = {NULL, 0};
    holding.n--;
    memmove(holding.items + i, holding.items + i + 1,
            (size_t)(holding.n - i) * sizeof *holding.items);
    if (h->adapter.callback)
        h->adapter.callback(status, h->object, none, h->adapter.u1, h->adapter.u2);
    if (h->device.callback) h->device.callback(status, h->object, none, h->device.u1, h->device.u2);
    if (h->map.callback) h->map.callback(status, none, h->map.u1, h->map.u2);
    free(h);
}

static void keep(held *h, uint32_t status, void *object) {
    h->is_there = true;
    h->status = status;
    h->object = object;
}
static void keep_adapter(uint32_t status, wgpu_adapter a, wgpu_text message, void *u1, void *u2) {
    (void)message, (void)u2;
    keep(u1, status, a);
}
static void keep_device(uint32_t status, wgpu_device d, wgpu_text message, void *u1, void *u2) {
    (void)message, (void)u2;
    keep(u1, status, d);
}
static void keep_map(uint32_t status, wgpu_text message, void *u1, void *u2) {
    (void)message, (void)u2;
    keep(u1, status, NULL);
}

bool gpu_play_answer(void) {
    if (holding.n == 0) return false;
    while (!holding.items[0]->is_there) real_InstanceProcessEvents(holding.items[0]->instance);
    holding.n_let = 1;
    return true;
}

static void play_InstanceProcessEvents(wgpu_instance i) {
    real_InstanceProcessEvents(i);
    while (holding.n > 0 && holding.n_let > 0 && holding.items[0]->is_there) {
        holding.n_let--;
        tell(0, holding.items[0]->status);
    }
}

static wgpu_instance play_CreateInstance(const wgpu_instance_desc *desc) {
    now.n_alive++;
    holding.instance = real_CreateInstance(desc);
    return holding.instance;
}

// What is pending is cancelled, as the library does it; what came and was not told is not theirs.
static void play_InstanceRelease(wgpu_instance i) {
    now.n_alive--;
    real_InstanceRelease(i);
    for (int k = holding.n - 1; k >= 0; k--) {
        held *h = holding.items[k];
        if (h->instance != i) continue;
        if (h->adapter.callback && h->object) real_AdapterRelease(h->object);
        if (h->device.callback && h->object) real_DeviceRelease(h->object);
        h->object = NULL;
        tell(k, 0);
    }
}

static wgpu_future play_AdapterRequestDevice(wgpu_adapter a, const wgpu_device_desc *desc,
                                             wgpu_device_callback callback) {
    wgpu_device_desc real = *desc;
    wgpu_limits limits = *desc->limits;
    if (now.play.matrix) { // what the device has
        real_AdapterGetLimits(a, &limits);
        limits.next = NULL;
        real.limits = &limits;
    }
    if (!now.play.holds) return real_AdapterRequestDevice(a, &real, callback);
    void *h = hold(&(held){.device = callback});
    return real_AdapterRequestDevice(
        a, &real, (wgpu_device_callback){NULL, callback.mode, keep_device, h, NULL});
}

static wgpu_future play_BufferMapAsync(wgpu_buffer b, uint64_t mode, size_t offset, size_t bytes,
                                       wgpu_map_callback callback) {
    if (!now.play.holds) return real_BufferMapAsync(b, mode, offset, bytes, callback);
    void *h = hold(&(held){.map = callback});
    return real_BufferMapAsync(b, mode, offset, bytes,
                               (wgpu_map_callback){NULL, callback.mode, keep_map, h, NULL});
}

static wgpu_buffer play_DeviceCreateBuffer(wgpu_device d, const wgpu_buffer_desc *desc) {
    wgpu_buffer b = real_DeviceCreateBuffer(d, desc);
    now.n_alive += b != NULL;
    return b;
}
static void play_BufferRelease(wgpu_buffer b) {
    now.n_alive--;
    real_BufferRelease(b);
}
int gpu_play_n_alive(void) { return now.n_alive; }

// ---- Faults ------------------------------------------------------------------------------------

static wgpu_future play_InstanceRequestAdapter(wgpu_instance i, const wgpu_adapter_options *o,
                                               wgpu_adapter_callback callback) {
    wgpu_adapter_options options = *o;
    if (now.play.null) options.backend = WGPU_BACKEND_NULL;
    if (!now.play.holds) return real_InstanceRequestAdapter(i, &options, callback);
    void *h = hold(&(held){.adapter = callback});
    return real_InstanceRequestAdapter(
        i, &options, (wgpu_adapter_callback){NULL, callback.mode, keep_adapter, h, NULL});
}

// The shapes that kernels are written for, on a device that computes nothing.
static const wgpu_matrix_config shapes[] = {{WGPU_MATRIX_I8, WGPU_MATRIX_I32, 16, 16, 32, 32, 32},
                                            {WGPU_MATRIX_F16, WGPU_MATRIX_F32, 16, 16, 16, 32, 32}};

static uint32_t play_AdapterGetInfo(wgpu_adapter a, wgpu_adapter_info *info) {
    uint32_t status = real_AdapterGetInfo(a, info);
    if (now.play.null && info->backend == WGPU_BACKEND_NULL) {
        info->backend = 6; // Vulkan
        info->subgroup_min = info->subgroup_max = 32;
        wgpu_matrix_configs *configs = (wgpu_matrix_configs *)(void *)info->next;
        if (configs && now.play.matrix)
            configs->items = shapes, configs->n = sizeof shapes / sizeof *shapes;
    }
    return status;
}
static void play_AdapterPropertiesSubgroupMatrixConfigsFreeMembers(wgpu_matrix_configs configs) {
    if (configs.items != shapes) real_AdapterPropertiesSubgroupMatrixConfigsFreeMembers(configs);
}

static uint32_t play_AdapterGetLimits(wgpu_adapter a, wgpu_limits *l) {
    uint32_t status = real_AdapterGetLimits(a, l);
    if (now.play.least) {
        l->storage_buffers = 8;
        l->storage_binding_bytes = 128 << 20;
        l->buffer_bytes = 256 << 20;
        l->workgroup_bytes = 16384;
        l->workgroup_size = l->workgroup_x = l->workgroup_y = 256;
    }
    if (now.play.matrix) {
        l->workgroup_bytes = 49152;
        l->workgroup_size = l->workgroup_x = l->workgroup_y = 1024;
    }
    if (now.play.binding_bytes) l->storage_binding_bytes = now.play.binding_bytes;
    return status;
}

static uint32_t play_AdapterHasFeature(wgpu_adapter a, uint32_t feature) {
    return now.play.least ? 0 : real_AdapterHasFeature(a, feature);
}

static uint32_t play_InstanceHasWGSLLanguageFeature(wgpu_instance i, uint32_t feature) {
    return now.play.least ? 0 : real_InstanceHasWGSLLanguageFeature(i, feature);
}

static wgpu_queue play_DeviceGetQueue(wgpu_device d) {
    now.device = d;
    // A pipeline of the device before may have had an address that one of this device gets.
    now.embed = now.set = NULL;
    now.n_dispatches = 0;
    now.n_runs = now.n_runs_submitted = 0;
    return real_DeviceGetQueue(d);
}

// Counts what is being compiled, and remembers the pipeline that a run begins with.
static wgpu_pipeline_fn pipeline_fn; // the engine has one
static void count_pipeline(uint32_t status, wgpu_pipeline p, wgpu_text message, void *u1,
                           void *u2) {
    now.n_compiling--;
    pipeline_fn(status, p, message, u1, u2);
}
static void keep_embed(uint32_t status, wgpu_pipeline p, wgpu_text message, void *u1, void *u2) {
    now.embed = p;
    count_pipeline(status, p, message, u1, u2);
}
static wgpu_future play_DeviceCreateComputePipelineAsync(wgpu_device d,
                                                         const wgpu_pipeline_desc *desc,
                                                         wgpu_pipeline_callback callback) {
    const wgpu_text *entry = &desc->compute.entry;
    bool is_embed = entry->len == 5 && memcmp(entry->ptr, "embed", 5) == 0;
    now.n_compiling++;
    pipeline_fn = callback.callback;
    callback.callback = is_embed ? keep_embed : count_pipeline;
    return real_DeviceCreateComputePipelineAsync(d, desc, callback);
}
bool gpu_play_is_compiling(void) { return now.n_compiling > 0 && holding.n == 0; }

static void play_ComputePassEncoderSetPipeline(wgpu_pass pass, wgpu_pipeline p) {
    now.set = p;
    real_ComputePassEncoderSetPipeline(pass, p);
}

static void play_ComputePassEncoderDispatchWorkgroups(wgpu_pass pass, uint32_t x, uint32_t y,
                                                      uint32_t z) {
    now.n_dispatches++;
    if (now.embed && now.set == now.embed) now.n_runs++;
    real_ComputePassEncoderDispatchWorkgroups(pass, x, y, z);
}

static void play_QueueSubmit(wgpu_queue q, size_t n, const wgpu_commands *commands) {
    const gpu_play *p = &now.play;
    bool too_many = n > 0 && p->dispatches_max && now.n_dispatches > p->dispatches_max;
    bool now_lost = now.n_runs_submitted < p->lose_at && p->lose_at <= now.n_runs;
    if (n > 0) now.n_dispatches = 0;
    if (n > 0) now.n_runs_submitted = now.n_runs;
    if (too_many && p->kills) raise(SIGKILL);
    if (too_many || (n > 0 && now_lost)) real_DeviceDestroy(now.device);
    real_QueueSubmit(q, n, commands);
}

static const struct {
    const char *name;
    void (*function)(void);
} played[] = {
#define PLAYED(name)                                                                               \
    { "wgpu" #name, (void (*)(void))play_##name }
    PLAYED(CreateInstance),
    PLAYED(InstanceProcessEvents),
    PLAYED(InstanceRelease),
    PLAYED(InstanceRequestAdapter),
    PLAYED(AdapterRequestDevice),
    PLAYED(DeviceCreateBuffer),
    PLAYED(BufferMapAsync),
    PLAYED(BufferRelease),
    PLAYED(AdapterGetInfo),
    PLAYED(AdapterPropertiesSubgroupMatrixConfigsFreeMembers),
    PLAYED(AdapterGetLimits),
    PLAYED(AdapterHasFeature),
    PLAYED(InstanceHasWGSLLanguageFeature),
    PLAYED(DeviceGetQueue),
    PLAYED(DeviceCreateComputePipelineAsync),
    PLAYED(ComputePassEncoderSetPipeline),
    PLAYED(ComputePassEncoderDispatchWorkgroups),
    PLAYED(QueueSubmit),
#undef PLAYED
};

static void *symbol(void *library, const char *name) {
    for (size_t i = 0; i < sizeof played / sizeof *played; i++)
        if (strcmp(name, played[i].name) == 0) return *(void **)(uintptr_t)&played[i].function;
    return dlsym(library, name);
}

static void find_real(void *library) {
#define FIND(result, name, arguments) *(void **)&real_##name = dlsym(library, "wgpu" #name);
    WGPU_FUNCTIONS(FIND)
#undef FIND
}

// ---- Devices and models ------------------------------------------------------------------------

const tern_webgpu_desc *gpu_webgpu(const gpu_play *play) {
    static const char swiftshader[] = "/usr/lib/chromium/vk_swiftshader_icd.json";
    static tern_webgpu_desc desc;
    if (!getenv("VK_DRIVER_FILES") && access(swiftshader, R_OK) == 0)
        setenv("VK_DRIVER_FILES", swiftshader, 1);
    desc = (tern_webgpu_desc){.library = getenv("TERN_WEBGPU_LIB"), .checks = true};
    now.play = play ? *play : (gpu_play){0};
    void *library;
    if (!play || gpu_library_load(&desc, &library, NULL) != TERN_OK) return &desc; // it will say so
    find_real(library);
    desc.symbol = symbol;
    desc.symbol_user = library;
    return &desc;
}

bool gpu_is_absent(const char *message) {
    const char *why = strstr(message, "no WebGPU library");
    if (!why) why = strstr(message, "WebGPU found no GPU");
    if (why) test_skip(why);
    return why != NULL;
}

tern_model *gpu_open_play(const char *path, int n_batch, const gpu_play *play) {
    tern_error err = {0};
    tern_model *m = NULL;
    const tern_model_desc desc = {
        .device = "webgpu", .webgpu = gpu_webgpu(play), .n_batch = n_batch};
    if (tern_model_open(&m, path, &desc, &err) != TERN_OK && !gpu_is_absent(err.message))
        test_check(false, __FILE__, __LINE__, "%s", err.message);
    return m;
}

tern_model *gpu_open(const char *path, int n_batch) { return gpu_open_play(path, n_batch, NULL); }
