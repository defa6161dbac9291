// Pages of states on the GPU. A page holds all positions of a sequence: a buffer for each state.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/gpu.h"

#define STORAGE (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

typedef struct gpu_page {
    wgpu_buffer *states; // [n_states] of its group
} gpu_page;

struct tern_store {
    tern_plan *plan;
    tern_page_layout layout;
    int32_t n_context;
    gpu_cache cache;
    tern_vid *states[TERN_PAGE_GROUPS]; // of a group, in order
    size_t n_states[TERN_PAGE_GROUPS];
    size_t *number; // [n_values] of a state in its group
    gpu_page *pages[TERN_PAGE_GROUPS];
    size_t n_pages[TERN_PAGE_GROUPS], capacity[TERN_PAGE_GROUPS];
};

// Of a position's keys or values. Q8_0: an int8 each, a float for each 32.
static uint64_t row_bytes(int64_t n_cols, gpu_cache cache) {
    uint64_t n = (uint64_t)n_cols;
    return cache == GPU_CACHE_F32 ? 4 * n : cache == GPU_CACHE_F16 ? 2 * n : n + n / 8;
}

static uint64_t state_bytes(const tern_store *s, tern_vid v) {
    const tern_value *value = &s->plan->g->values[v];
    if (value->state == TERN_STATE_FIXED)
        return (uint64_t)(value->rows * value->cols) * sizeof(float);
    return (uint64_t)s->n_context * row_bytes(value->cols, s->cache);
}

static bool is_paged(const tern_value *v) {
    return v->kind == TERN_VALUE_STATE && v->state != TERN_STATE_ARRAY;
}

static tern_status list_states(tern_store *s, tern_error *err) {
    const tern_graph *g = s->plan->g;
    s->number = tern_alloc_array(TERN_MEM_KV, g->n_values + 1, sizeof *s->number);
    for (int i = 0; i < s->layout.n_groups; i++) {
        s->states[i] = tern_alloc_array(TERN_MEM_KV, g->n_values + 1, sizeof **s->states);
        if (!s->states[i]) return tern_fail_memory(err, g->n_values * sizeof **s->states);
    }
    if (!s->number) return tern_fail_memory(err, g->n_values * sizeof *s->number);
    for (size_t v = 0; v < g->n_values; v++) {
        if (!is_paged(&g->values[v])) continue;
        int group = tern_page_group_of(&s->layout, &g->values[v]);
        s->number[v] = s->n_states[group];
        s->states[group][s->n_states[group]++] = (tern_vid)v;
        if (state_bytes(s, (tern_vid)v) > s->plan->device->binding_bytes_max)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "a cache of %d positions is larger than the %llu MB that a GPU's "
                             "binding has",
                             (int)s->n_context,
                             (unsigned long long)(s->plan->device->binding_bytes_max >> 20));
    }
    return TERN_OK;
}

tern_status gpu_store_open(tern_plan *p, const tern_page_layout *layout,
                           const tern_cache_desc *desc, tern_store **out, tern_error *err) {
    *out = NULL;
    tern_kv_type kv = desc->kv_type;
    TERN_TRY(tern_kv_choose(p->g, desc->n_context, kv, &kv, err));
    tern_store *s = tern_alloc(TERN_MEM_KV, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->plan = p;
    s->layout = *layout;
    s->n_context = desc->n_context;
    s->cache = kv == TERN_KV_F32    ? GPU_CACHE_F32
               : kv == TERN_KV_Q8_0 ? GPU_CACHE_Q8_0
                                    : GPU_CACHE_F16;
    tern_status status = list_states(s, err);
    if (status == TERN_OK)
        *out = s;
    else
        gpu_store_close(s);
    return status;
}

static void free_buffers(tern_store *s, int group, gpu_page *p) {
    for (size_t i = 0; p->states && i < s->n_states[group]; i++)
        gpu_buffer_free(s->plan->device, GPU_USE_CACHE, p->states[i]);
    tern_free(p->states);
    *p = (gpu_page){0};
}

void gpu_store_close(tern_store *s) {
    if (!s) return;
    for (int g = 0; g < s->layout.n_groups; g++) {
        for (size_t i = 0; i < s->n_pages[g]; i++) free_buffers(s, g, &s->pages[g][i]);
        tern_free(s->pages[g]);
        tern_free(s->states[g]);
    }
    tern_free(s->number);
    tern_free(s);
}

int32_t gpu_store_page_positions(const tern_store *s) { return s->n_context; }
int32_t gpu_store_n_context(const tern_store *s) { return s->n_context; }
gpu_cache gpu_store_cache(const tern_store *s) { return s->cache; }
const tern_page_layout *gpu_store_layout(const tern_store *s) { return &s->layout; }

wgpu_buffer gpu_store_buffer(const tern_store *s, const uint32_t *pages, tern_vid v) {
    int group = tern_page_group_of(&s->layout, &s->plan->g->values[v]);
    uint32_t page = pages[group];
    return page ? s->pages[group][page - 1].states[s->number[v]] : NULL;
}

uint64_t gpu_page_bytes(const tern_store *s, int group) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n_states[group]; i++) bytes += state_bytes(s, s->states[group][i]);
    return bytes;
}

static tern_status open_buffers(tern_store *s, int group, gpu_page *p, tern_error *err) {
    p->states = tern_alloc_array(TERN_MEM_KV, s->n_states[group] + 1, sizeof *p->states);
    if (!p->states) return tern_fail_memory(err, s->n_states[group] * sizeof *p->states);
    for (size_t i = 0; i < s->n_states[group]; i++)
        TERN_TRY(gpu_buffer_new(s->plan->device, GPU_USE_CACHE,
                                state_bytes(s, s->states[group][i]), STORAGE, "the cache",
                                &p->states[i], err));
    return TERN_OK;
}

tern_status gpu_page_new(tern_store *s, int group, tern_page *out, tern_error *err) {
    size_t i = s->n_pages[group]; // never one that was freed: bind groups are told apart by it
    if (tern_array_reserve(TERN_MEM_KV, &s->pages[group], &s->capacity[group], i, 1) != 0)
        return tern_fail_memory(err, (i + 1) * sizeof(gpu_page));
    s->pages[group][s->n_pages[group]++] = (gpu_page){0};
    gpu_page *p = &s->pages[group][i];
    tern_status status = open_buffers(s, group, p, err);
    if (status != TERN_OK) {
        free_buffers(s, group, p);
        return status;
    }
    out->index = (uint32_t)i;
    return TERN_OK;
}

void gpu_page_free(tern_store *s, int group, tern_page page) {
    free_buffers(s, group, &s->pages[group][page.index]);
}

tern_status gpu_page_copy(tern_store *s, int group, tern_page from, tern_page to,
                          tern_error *err) {
    tern_device *d = s->plan->device;
    const wgpu_api *a = &d->api;
    wgpu_encoder encoder = a->DeviceCreateCommandEncoder(d->device, NULL);
    for (size_t i = 0; i < s->n_states[group]; i++)
        a->CommandEncoderCopyBufferToBuffer(
            encoder, s->pages[group][from.index].states[i], 0, s->pages[group][to.index].states[i],
            0, state_bytes(s, s->states[group][i]));
    wgpu_commands commands = a->CommandEncoderFinish(encoder, NULL);
    a->CommandEncoderRelease(encoder);
    a->QueueSubmit(d->queue, 1, &commands);
    a->CommandBufferRelease(commands);
    return gpu_check(d, "copying states", err);
}

tern_status gpu_page_clear(tern_store *s, int group, tern_page page, tern_error *err) {
    size_t bytes = (size_t)gpu_page_bytes(s, group);
    void *zeros = tern_alloc(TERN_MEM_KV, bytes);
    if (!zeros) return tern_fail_memory(err, bytes);
    tern_status status = gpu_page_write(s, group, page, zeros, err);
    tern_free(zeros);
    return status;
}

tern_status gpu_page_read(tern_store *s, int group, tern_page page, void *to, tern_error *err) {
    uint8_t *at = to;
    for (size_t i = 0; i < s->n_states[group]; i++) {
        uint64_t bytes = state_bytes(s, s->states[group][i]);
        TERN_TRY(gpu_read(s->plan->device, s->pages[group][page.index].states[i], 0, at, bytes,
                          err));
        at += bytes;
    }
    return TERN_OK;
}

tern_status gpu_page_write(tern_store *s, int group, tern_page page, const void *from,
                           tern_error *err) {
    const uint8_t *at = from;
    for (size_t i = 0; i < s->n_states[group]; i++) {
        uint64_t bytes = state_bytes(s, s->states[group][i]);
        gpu_send(s->plan->device, s->pages[group][page.index].states[i], 0, at, bytes);
        at += bytes;
    }
    return gpu_check(s->plan->device, "writing states", err);
}
