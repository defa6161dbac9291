// Training through WebGPU as a backend: the device, its arrays, reading and writing them.
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "kernels/webgpu/train/gpu_train.h"

// ---- Device ------------------------------------------------------------------------------------

static tern_status gpu_train_open(tern_trainer_device **out, const tern_trainer_desc *desc,
                                  tern_error *err) {
    (void)desc;
    *out = NULL;
    tern_trainer_device *d = tern_alloc(TERN_MEM_MISC, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    tern_device_desc none = {0};
    tern_status status = gpu_device_open(&d->gpu, &none, err);
    if (status == TERN_OK)
        *out = d;
    else
        tern_free(d);
    return status;
}

static void gpu_train_close(tern_trainer_device *d) {
    if (!d) return;
    gpu_device_close(d->gpu);
    tern_free(d);
}

static const char *gpu_train_describe(const tern_trainer_device *d) {
    return d->gpu->description;
}

// ---- Arrays ------------------------------------------------------------------------------------

static tern_status gpu_train_array_new(tern_trainer_device *d, uint64_t n, tern_array **out,
                                       tern_error *err) {
    *out = NULL;
    if (n > d->gpu->binding_bytes_max / sizeof(float))
        return tern_fail(err, TERN_ERR_DEVICE,
                         "an array of %llu numbers is larger than the %llu MB that a GPU's binding "
                         "has",
                         (unsigned long long)n,
                         (unsigned long long)(d->gpu->binding_bytes_max >> 20));
    tern_array *a = tern_alloc(TERN_MEM_WEIGHTS, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    *a = (tern_array){.device = d, .n = n};
    tern_status status =
        gpu_buffer_new(d->gpu, n * sizeof(float),
                       WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC,
                       "an array", &a->buffer, err);
    if (status == TERN_OK)
        *out = a;
    else
        tern_free(a);
    return status;
}

static void gpu_train_array_free(tern_array *a) {
    if (!a) return;
    gpu_buffer_free(a->device->gpu, a->buffer);
    tern_free(a);
}

static float *gpu_train_array_host(tern_array *a) {
    (void)a;
    return NULL;
}

static tern_status check_range(const tern_array *a, uint64_t first, uint64_t n, tern_error *err) {
    if (first <= a->n && n <= a->n - first) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "numbers %llu to %llu of an array of %llu",
                     (unsigned long long)first, (unsigned long long)(first + n),
                     (unsigned long long)a->n);
}

#define PIECE ((uint64_t)16 << 20) // numbers that are copied at a time

static tern_status gpu_train_write(tern_array *a, uint64_t first, uint64_t n, const float *data,
                                   tern_error *err) {
    tern_device *gpu = a->device->gpu;
    TERN_TRY(check_range(a, first, n, err));
    for (uint64_t at = 0; at < n; at += PIECE) {
        uint64_t count = n - at < PIECE ? n - at : PIECE;
        gpu->api.QueueWriteBuffer(gpu->queue, a->buffer, (first + at) * sizeof(float), data + at,
                                  (size_t)count * sizeof(float));
    }
    return gpu_check(gpu, "writing", err);
}

// ---- Reading -----------------------------------------------------------------------------------

typedef struct mapping {
    bool done, mapped;
} mapping;
static void on_mapped(uint32_t status, wgpu_text message, void *u1, void *u2) {
    (void)message;
    (void)u2;
    *(mapping *)u1 = (mapping){true, status == WGPU_SUCCESS};
}

// Waits for the map, and so for all that was submitted before it. A device that is lost answers,
// too.
static tern_status map(tern_device *gpu, wgpu_buffer b, uint64_t bytes, const void **out,
                       tern_error *err) {
    mapping m = {0};
    gpu->api.BufferMapAsync(
        b, WGPU_MAP_READ, 0, (size_t)bytes,
        (wgpu_map_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_mapped, &m, NULL});
    while (!m.done) {
        gpu->api.InstanceProcessEvents(gpu->instance);
        // Who asks without a pause takes a core from those who compute.
        if (!m.done) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    TERN_TRY(gpu_check(gpu, "reading", err));
    *out = m.mapped ? gpu->api.BufferGetConstMappedRange(b, 0, (size_t)bytes) : NULL;
    return *out ? TERN_OK : tern_fail(err, TERN_ERR_DEVICE, "WebGPU's results could not be read");
}

static tern_status read_piece(const tern_array *a, wgpu_buffer through, uint64_t first,
                              uint64_t count, float *data, tern_error *err) {
    tern_device *gpu = a->device->gpu;
    const wgpu_api *api = &gpu->api;
    wgpu_encoder encoder = api->DeviceCreateCommandEncoder(gpu->device, NULL);
    api->CommandEncoderCopyBufferToBuffer(encoder, a->buffer, first * sizeof(float), through, 0,
                                          count * sizeof(float));
    wgpu_commands commands = api->CommandEncoderFinish(encoder, NULL);
    api->CommandEncoderRelease(encoder);
    api->QueueSubmit(gpu->queue, 1, &commands);
    api->CommandBufferRelease(commands);
    const void *mapped;
    TERN_TRY(map(gpu, through, count * sizeof(float), &mapped, err));
    memcpy(data, mapped, (size_t)count * sizeof(float));
    api->BufferUnmap(through);
    return TERN_OK;
}

tern_status gpu_train_read(tern_array *a, uint64_t first, uint64_t n, float *data,
                           tern_error *err) {
    tern_device *gpu = a->device->gpu;
    TERN_TRY(check_range(a, first, n, err));
    wgpu_buffer through;
    TERN_TRY(gpu_buffer_new(gpu, (n < PIECE ? n : PIECE) * sizeof(float),
                            WGPU_BUFFER_MAP_READ | WGPU_BUFFER_COPY_DST, "reading", &through, err));
    tern_status status = TERN_OK;
    for (uint64_t at = 0; status == TERN_OK && at < n; at += PIECE)
        status =
            read_piece(a, through, first + at, n - at < PIECE ? n - at : PIECE, data + at, err);
    gpu_buffer_free(gpu, through);
    return status;
}

// ---- The table ---------------------------------------------------------------------------------

static uint64_t gpu_train_program_bytes(const tern_program *p) {
    return p->bytes;
}

const tern_train_backend tern_train_webgpu = {
    .name = "webgpu",
    .open = gpu_train_open,
    .close = gpu_train_close,
    .describe = gpu_train_describe,
    .array_new = gpu_train_array_new,
    .array_free = gpu_train_array_free,
    .write = gpu_train_write,
    .read = gpu_train_read,
    .host = gpu_train_array_host,
    .compile = gpu_train_compile,
    .program_free = gpu_train_program_free,
    .program_bytes = gpu_train_program_bytes,
    .run = gpu_train_run,
};
