// Training through WebGPU as a backend: the device, its arrays, reading and writing them.
#include <stdio.h>
#include "base/alloc.h"
#include "kernels/webgpu/train/gpu_train.h"

// ---- Device ------------------------------------------------------------------------------------

static tern_status gpu_train_open(tern_trainer_device **out, const tern_trainer_desc *desc,
                                  tern_error *err) {
    *out = NULL;
    tern_trainer_device *d = tern_alloc(TERN_MEM_MISC, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    d->piece_bytes = desc->piece_bytes;
    tern_status status = gpu_device_new(&d->gpu, desc->webgpu, err);
    if (status != TERN_OK) {
        tern_free(d);
        return status;
    }
    const char *how = "";
    if (desc->bf16 && d->gpu->matrix_half) {
        d->rounds = gpu_train_rounding_works(d);
        how = d->rounds ? ", products of halves by matrix units"
                        : ", without its matrix units: they gave other results";
    }
    snprintf(d->description, sizeof d->description, "%s%s", d->gpu->description, how);
    *out = d;
    return TERN_OK;
}

static void gpu_train_close(tern_trainer_device *d) {
    if (!d) return;
    gpu_device_close(d->gpu);
    tern_free(d);
}

static const char *gpu_train_describe(const tern_trainer_device *d) { return d->description; }

// ---- Arrays ------------------------------------------------------------------------------------

static tern_status gpu_train_array_bytes(const tern_trainer_device *d, uint64_t n, uint64_t *bytes,
                                         tern_error *err) {
    *bytes = n * sizeof(float);
    if (n > d->gpu->binding_bytes_max / sizeof(float))
        return tern_fail(
            err, TERN_ERR_DEVICE,
            "an array of %llu numbers is larger than the %llu MB that a GPU's binding has",
            (unsigned long long)n, (unsigned long long)(d->gpu->binding_bytes_max >> 20));
    return TERN_OK;
}

tern_status gpu_train_array_new(tern_trainer_device *d, uint64_t n, tern_train_array **out,
                                tern_error *err) {
    uint64_t bytes;
    *out = NULL;
    TERN_TRY(gpu_train_array_bytes(d, n, &bytes, err));
    tern_train_array *a = tern_alloc(TERN_MEM_WEIGHTS, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    *a = (tern_train_array){.device = d, .n = n};
    tern_status status =
        gpu_buffer_new(d->gpu, GPU_USE_WEIGHTS, bytes,
                       WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC,
                       "an array", &a->buffer, err);
    if (status == TERN_OK)
        *out = a;
    else
        tern_free(a);
    return status;
}

void gpu_train_array_free(tern_train_array *a) {
    if (!a) return;
    gpu_buffer_free(a->device->gpu, GPU_USE_WEIGHTS, a->buffer);
    gpu_buffer_free(a->device->gpu, GPU_USE_WEIGHTS, a->order);
    gpu_weight_unbind(a->device->gpu, a->weight);
    tern_free(a);
}

static float *gpu_train_array_host(tern_train_array *a) {
    (void)a;
    return NULL;
}

static tern_status check_range(const tern_train_array *a, uint64_t first, uint64_t n,
                               tern_error *err) {
    if (first <= a->n && n <= a->n - first) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "numbers %llu to %llu of an array of %llu",
                     (unsigned long long)first, (unsigned long long)(first + n),
                     (unsigned long long)a->n);
}

#define PIECE ((uint64_t)16 << 20) // numbers that are copied at a time

tern_status gpu_train_write(tern_train_array *a, uint64_t first, uint64_t n, const float *data,
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

// gpu_read gives up after some seconds; earlier submissions may take longer.
static tern_status wait_for_all(const tern_train_array *a, tern_error *err) {
    tern_device *gpu = a->device->gpu;
    uint32_t word;
    tern_status status;
    do status = gpu_read(gpu, a->buffer, 0, &word, sizeof word, err);
    while (status != TERN_OK && gpu_is_pending(&gpu->reader) && !gpu->lost);
    return status;
}

tern_status gpu_train_read(tern_train_array *a, uint64_t first, uint64_t n, float *data,
                           tern_error *err) {
    TERN_TRY(check_range(a, first, n, err));
    TERN_TRY(wait_for_all(a, err));
    return gpu_read(a->device->gpu, a->buffer, first * sizeof(float), data, n * sizeof(float), err);
}

// ---- The table ---------------------------------------------------------------------------------

static tern_program_bytes gpu_train_program_bytes(const tern_program *p) {
    uint64_t cols = (uint64_t)tern_graph_logits_cols(&p->g);
    return (tern_program_bytes){.own = p->bytes,
                                .logits = (uint64_t)p->piece_rows * cols * sizeof(float)};
}

const tern_train_backend tern_train_webgpu = {
    .name = "webgpu",
    .open = gpu_train_open,
    .close = gpu_train_close,
    .describe = gpu_train_describe,
    .array_bytes = gpu_train_array_bytes,
    .array_new = gpu_train_array_new,
    .codes_bytes = gpu_train_codes_bytes,
    .array_of_codes = gpu_train_array_of_codes,
    .copies_codes = true,
    .array_free = gpu_train_array_free,
    .write = gpu_train_write,
    .read = gpu_train_read,
    .host = gpu_train_array_host,
    .compile = gpu_train_compile,
    .program_free = gpu_train_program_free,
    .program_bytes = gpu_train_program_bytes,
    .run = gpu_train_run,
};
