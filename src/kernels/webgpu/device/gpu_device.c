// An open device: its errors, its buffers and what goes in and out of them, bind group layouts and
// pipelines.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_time.h"
#include "base/strbuf.h"
#include "kernels/webgpu/device/gpu.h"

static wgpu_text text_of(const char *s) { return (wgpu_text){s, strlen(s)}; }

// ---- Errors ------------------------------------------------------------------------------------

void gpu_remember(tern_device *d, const char *what, wgpu_text message) {
    if (d->error[0]) return; // the first one is the cause
    int n = message.ptr ? (int)strnlen(message.ptr, message.len < 350 ? message.len : 350) : 0;
    snprintf(d->error, sizeof d->error, "%s%.*s", what, n, message.ptr ? message.ptr : "");
    for (char *c = d->error; *c; c++)
        if (*c == '\n') *c = ' ';
}

tern_status gpu_check(tern_device *d, const char *doing, tern_error *err) {
    if (!d->error[0] && !d->lost) return TERN_OK;
    tern_status status = tern_fail(err, TERN_ERR_DEVICE, "WebGPU failed while %s: %s", doing,
                                   d->error[0] ? d->error : "the device was lost");
    d->error[0] = 0;
    return status;
}

static double seconds_max(const tern_device *d) {
    return d->software ? GPU_SECONDS_SOFTWARE : GPU_SECONDS;
}

void gpu_wait(tern_device *d, const gpu_readback *r) {
    double end = tern_seconds() + seconds_max(d);
    while (gpu_is_pending(r) && tern_seconds() < end) d->api.InstanceProcessEvents(d->instance);
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
    gpu_map *map = u1;
    map->pending = false;
    map->mapped = status == WGPU_SUCCESS;
    if (map->is_left) tern_free(map);
}

tern_status gpu_readback_new(tern_device *d, uint64_t bytes, const char *what, gpu_readback *out,
                             tern_error *err) {
    *out = (gpu_readback){.map = tern_alloc(TERN_MEM_MISC, sizeof *out->map)};
    if (!out->map) return tern_fail_memory(err, sizeof *out->map);
    tern_status status =
        gpu_buffer_new(d, GPU_USE_RESULTS, bytes, WGPU_BUFFER_MAP_READ | WGPU_BUFFER_COPY_DST, what,
                       &out->buffer, err);
    if (status != TERN_OK) gpu_readback_free(d, out);
    return status;
}

void gpu_readback_free(tern_device *d, gpu_readback *r) {
    bool is_left = gpu_is_pending(r);
    if (is_left)
        r->map->is_left = true;
    else
        tern_free(r->map);
    gpu_buffer_free(d, GPU_USE_RESULTS, r->buffer);
    *r = (gpu_readback){0};
}

void gpu_readback_map(tern_device *d, gpu_readback *r, uint64_t bytes) {
    r->map->mapped = false;
    r->map->pending = true;
    d->bytes_read += bytes;
    d->api.BufferMapAsync(
        r->buffer, WGPU_MAP_READ, 0, (size_t)bytes,
        (wgpu_map_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_mapped, r->map, NULL});
}

const void *gpu_readback_bytes(const tern_device *d, const gpu_readback *r, uint64_t bytes) {
    return r->map->mapped ? d->api.BufferGetConstMappedRange(r->buffer, 0, (size_t)bytes) : NULL;
}

void gpu_readback_unmap(const tern_device *d, gpu_readback *r) {
    if (r->map->mapped) d->api.BufferUnmap(r->buffer);
    r->map->mapped = false;
}

static void submit_copies(tern_device *d, wgpu_encoder encoder, gpu_readback *to, uint64_t bytes) {
    wgpu_commands commands = d->api.CommandEncoderFinish(encoder, NULL);
    d->api.CommandEncoderRelease(encoder);
    d->api.QueueSubmit(d->queue, 1, &commands);
    d->api.CommandBufferRelease(commands);
    gpu_readback_map(d, to, bytes);
}

void gpu_readback_copy(tern_device *d, wgpu_buffer from, uint64_t offset, gpu_readback *to,
                       uint64_t bytes) {
    wgpu_encoder encoder = d->api.DeviceCreateCommandEncoder(d->device, NULL);
    d->api.CommandEncoderCopyBufferToBuffer(encoder, from, offset, to->buffer, 0, bytes);
    submit_copies(d, encoder, to, bytes);
}

// Fills the reader from byte *at of pieces[*i] on, and advances both. Returns how many bytes.
static uint64_t gather(tern_device *d, const gpu_piece *pieces, size_t n, size_t *i, uint64_t *at,
                       bool copies) {
    wgpu_encoder encoder = copies ? d->api.DeviceCreateCommandEncoder(d->device, NULL) : NULL;
    uint64_t bytes = 0;
    while (*i < n && bytes < GPU_READ_BYTES) {
        uint64_t left = pieces[*i].bytes - *at, room = GPU_READ_BYTES - bytes;
        uint64_t now = left < room ? left : room;
        if (copies)
            d->api.CommandEncoderCopyBufferToBuffer(
                encoder, pieces[*i].buffer, pieces[*i].offset + *at, d->reader.buffer, bytes, now);
        bytes += now;
        *at = now < left ? *at + now : 0;
        *i += now == left;
    }
    if (copies) submit_copies(d, encoder, &d->reader, bytes);
    return bytes;
}

tern_status gpu_read_pieces(tern_device *d, const gpu_piece *pieces, size_t n, void *data,
                            tern_error *err) {
    gpu_readback *r = &d->reader;
    char *to = data;
    uint64_t at = 0;
    for (size_t i = 0; i < n;) {
        size_t bytes = (size_t)gather(d, pieces, n, &i, &at, !gpu_is_pending(r));
        gpu_wait(d, r);
        const void *mapped = gpu_readback_bytes(d, r, bytes);
        if (mapped) memcpy(to, mapped, bytes);
        to += bytes;
        gpu_readback_unmap(d, r); // also after an error, which may belong to earlier work
        TERN_TRY(gpu_check(d, "reading back", err));
        if (!mapped) return tern_fail(err, TERN_ERR_DEVICE, "the GPU's memory cannot be read");
    }
    return TERN_OK;
}

tern_status gpu_read(tern_device *d, wgpu_buffer from, uint64_t offset, void *data, uint64_t bytes,
                     tern_error *err) {
    const gpu_piece all = {from, offset, bytes};
    return gpu_read_pieces(d, &all, 1, data, err);
}

static void compare_sent(tern_device *d, wgpu_buffer b, uint64_t offset, const uint8_t *data,
                         uint64_t bytes) {
    tern_error why = {0};
    uint8_t *found = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
    tern_status status =
        found ? gpu_read(d, b, offset, found, bytes, &why) : tern_fail_memory(&why, (size_t)bytes);
    if (status != TERN_OK)
        gpu_remember(d, "", (wgpu_text){why.message, strlen(why.message)});
    else {
        d->compare->n_bytes += bytes;
        for (uint64_t i = 0; i < bytes; i++) d->compare->n_wrong += data[i] != found[i];
        d->compare->wanted = tern_hash64(d->compare->wanted, data, (size_t)bytes);
        d->compare->found = tern_hash64(d->compare->found, found, (size_t)bytes);
    }
    tern_free(found);
}

// At most two of these are in flight, one before the fence and one after it, each with a piece
// more.
#define FENCE_BYTES ((uint64_t)28 << 20)
// Dawn keeps 4 MB for what is written to buffers; a longer write gets memory of its own, which
// makes it a fifth as fast.
#define SEND_BYTES ((uint64_t)1 << 20)
void gpu_send(tern_device *d, wgpu_buffer b, uint64_t offset, const void *data, uint64_t bytes) {
    if (d->compare) {
        compare_sent(d, b, offset, data, bytes);
        return;
    }
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < SEND_BYTES ? bytes - at : SEND_BYTES;
        gpu_send_piece(d, b, offset + at, (const uint8_t *)data + at, n);
        gpu_sent(d, b);
    }
}

void gpu_send_piece(tern_device *d, wgpu_buffer b, uint64_t offset, const void *data,
                    uint64_t bytes) {
    d->api.QueueWriteBuffer(d->queue, b, offset, data, (size_t)bytes);
    d->bytes_on_way += bytes;
}

void gpu_sent(tern_device *d, wgpu_buffer b) {
    d->api.QueueSubmit(d->queue, 0, NULL);
    d->api.InstanceProcessEvents(d->instance);
    if (d->bytes_on_way < FENCE_BYTES || gpu_is_pending(&d->fence)) return;
    gpu_readback_unmap(d, &d->fence);
    gpu_readback_copy(d, b, 0, &d->fence, sizeof(uint32_t));
    d->fenced_at = tern_seconds();
    d->bytes_on_way = 0;
}

bool gpu_is_full(tern_device *d) {
    if (d->bytes_on_way < FENCE_BYTES) return false;
    d->api.InstanceProcessEvents(d->instance);
    if (!gpu_is_pending(&d->fence) || d->lost) return false;
    if (tern_seconds() > d->fenced_at + seconds_max(d)) {
        static const char late[] = "the GPU does not take what it is sent";
        gpu_remember(d, "", text_of(late));
    }
    return true;
}

// ---- Pipelines ---------------------------------------------------------------------------------

tern_status gpu_set_transform(const tern_device *d, gpu_pipeline *p, const tern_rotation *r,
                              int64_t n_blocks, tern_error *err) {
    if ((uint64_t)r->block * sizeof(float) > d->workgroup_bytes_max)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a Walsh-Hadamard transform of %d columns: a workgroup of this GPU has "
                         "room for %u",
                         (int)r->block, d->workgroup_bytes_max / 4);
    gpu_set(p, "THREADS", gpu_threads_for(d, r->block / 2));
    gpu_set(p, "BLOCK", r->block);
    gpu_set(p, "BLOCKS", (double)n_blocks);
    gpu_set(p, "FACTOR", (double)(1 / sqrtf((float)r->block)));
    gpu_set(p, "SIGNS", r->has_signs);
    gpu_set(p, "INVERSE", r->inverse);
    if (r->groups) {
        gpu_set(p, "EACH", r->each);
        gpu_set(p, "REPEATS", r->repeats);
        gpu_set(p, "GROUPS", r->groups);
    }
    return TERN_OK;
}

static bool trains(gpu_kernel k) { return k >= GPU_TRAIN_GEMM; } // the first of them

// Neighbours of one file share the module of the first of them.
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
    tern_strbuf_puts(&b, gpu_shader_text(d->software ? "fma_exact" : "fma_device"));
    for (const char *const *base = gpu_shader_base(file); *base; base++)
        tern_strbuf_puts(&b, gpu_shader_text(*base));
    tern_strbuf_puts(&b, gpu_shader_text(file));
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

void gpu_try_module(tern_device *d, gpu_kernel k, bool *has) {
    wgpu_module module;
    if (!*has || module_of(d, k, &module, NULL) == TERN_OK) return;
    if (d->modules[k]) d->api.ShaderModuleRelease(d->modules[k]);
    d->modules[k] = NULL;
    *has = false;
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

static void on_pipeline(uint32_t status, wgpu_pipeline made, wgpu_text message, void *u1,
                        void *u2) {
    gpu_compiled *c = u1;
    (void)u2;
    c->is_pending = false;
    c->device->n_pipelines_pending--;
    if (status == WGPU_SUCCESS)
        c->handle = made;
    else
        gpu_remember(c->device, "", message);
}

static bool same_pipeline(const gpu_pipeline *a, const gpu_pipeline *b) {
    if (a->kernel != b->kernel || a->n_constants != b->n_constants) return false;
    for (int i = 0; i < a->n_constants; i++)
        if (strcmp(a->constants[i].name, b->constants[i].name) != 0 ||
            a->constants[i].value != b->constants[i].value)
            return false;
    return true;
}

// The cache's entry for it; NULL: memory ran out.
static gpu_compiled *entry_of(tern_device *d, const gpu_pipeline *wanted) {
    for (size_t i = 0; i < d->n_pipelines; i++)
        if (same_pipeline(&d->pipelines[i]->what, wanted)) {
            d->n_pipeline_hits++;
            return d->pipelines[i];
        }
    if (tern_array_reserve(TERN_MEM_GRAPH, &d->pipelines, &d->pipelines_capacity, d->n_pipelines,
                           1) != 0)
        return NULL;
    gpu_compiled *c = tern_alloc(TERN_MEM_GRAPH, sizeof *c);
    if (!c) return NULL;
    *c = (gpu_compiled){.what = *wanted, .device = d};
    return d->pipelines[d->n_pipelines++] = c;
}

static tern_status begin_compiling(tern_device *d, gpu_compiled *c, tern_error *err) {
    const gpu_pipeline *what = &c->what;
    wgpu_module module;
    TERN_TRY(module_of(d, what->kernel, &module, err));
    wgpu_constant constants[GPU_CONSTANTS] = {{0}};
    for (int i = 0; i < what->n_constants; i++) {
        constants[i].key = text_of(what->constants[i].name);
        constants[i].value = what->constants[i].value;
    }
    const char *entry = gpu_kernel_entry(what->kernel);
    wgpu_pipeline_desc desc = {.label = text_of(entry),
                               .layout = d->pipeline_layouts[what->kernel]};
    desc.compute.module = module;
    desc.compute.entry = text_of(entry);
    desc.compute.n_constants = (size_t)what->n_constants;
    desc.compute.constants = constants;
    c->is_begun = c->is_pending = true;
    d->n_pipelines_pending++;
    d->api.DeviceCreateComputePipelineAsync(
        d->device, &desc,
        (wgpu_pipeline_callback){NULL, WGPU_CALLBACK_PROCESS_EVENTS, on_pipeline, c, NULL});
    return gpu_check(d, entry, err);
}

tern_status gpu_pipeline_find(tern_device *d, const gpu_pipeline *wanted, gpu_compiled **out,
                              tern_error *err) {
    *out = NULL;
    TERN_TRY(layout_of(d, wanted->kernel, err)); // bind groups come before the pipeline
    *out = entry_of(d, wanted);
    return *out ? TERN_OK : tern_fail_memory(err, sizeof **out);
}

tern_status gpu_pipeline_begin(gpu_compiled *c, tern_error *err) {
    return c->handle || c->is_pending ? TERN_OK : begin_compiling(c->device, c, err);
}

tern_status gpu_pipelines_poll(tern_device *d, bool *done, tern_error *err) {
    if (d->n_pipelines_pending > 0) d->api.InstanceProcessEvents(d->instance);
    *done = false;
    TERN_TRY(gpu_check(d, "compiling kernels", err));
    *done = d->n_pipelines_pending == 0;
    return TERN_OK;
}

// Sleeps between polls: the threads that compile need the processor more.
#define WAIT_SECONDS 1e-4
tern_status gpu_pipelines_wait(tern_device *d, tern_error *err) {
    double end = tern_seconds() + GPU_SECONDS_SOFTWARE;
    for (bool done = false;;) {
        TERN_TRY(gpu_pipelines_poll(d, &done, err));
        if (done) return TERN_OK;
        if (tern_seconds() > end)
            return tern_fail(err, TERN_ERR_DEVICE, "WebGPU does not finish compiling kernels");
        tern_sleep(WAIT_SECONDS);
    }
}

tern_status gpu_pipeline_check(const gpu_compiled *c, tern_error *err) {
    if (c->handle) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE, "WebGPU made no pipeline for %s",
                     gpu_kernel_entry(c->what.kernel));
}

tern_status gpu_pipeline_get(tern_device *d, const gpu_pipeline *wanted, wgpu_pipeline *out,
                             tern_error *err) {
    gpu_compiled *c;
    *out = NULL;
    TERN_TRY(gpu_pipeline_find(d, wanted, &c, err));
    TERN_TRY(gpu_pipeline_begin(c, err));
    TERN_TRY(gpu_pipelines_wait(d, err));
    *out = c->handle;
    return gpu_pipeline_check(c, err);
}
