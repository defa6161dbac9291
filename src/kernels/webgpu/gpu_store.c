// Pages of states on the GPU. A page of a positional group holds all positions of a sequence: a
// buffer for each state. A page of the fixed group is a slot in buffers that all sequences share,
// one a state, so that a batch of many sequences binds each state once; they grow by doubling.
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
    gpu_page slots; // of the fixed group, each buffer [n_slots][state]
    bool *taken;    // [n_slots]
    uint32_t n_slots, growth;
    wgpu_buffer between; // WebGPU copies nothing from a buffer to itself
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
        if (g == s->layout.fixed) free_buffers(s, g, &s->slots);
        tern_free(s->pages[g]);
        tern_free(s->states[g]);
    }
    gpu_buffer_free(s->plan->device, GPU_USE_CACHE, s->between);
    tern_free(s->taken);
    tern_free(s->number);
    tern_free(s);
}

int32_t gpu_store_page_positions(const tern_store *s) { return s->n_context; }
int32_t gpu_store_n_context(const tern_store *s) { return s->n_context; }
gpu_cache gpu_store_cache(const tern_store *s) { return s->cache; }
const tern_page_layout *gpu_store_layout(const tern_store *s) { return &s->layout; }
uint32_t gpu_store_growth(const tern_store *s) { return s->growth; }

wgpu_buffer gpu_store_buffer(const tern_store *s, const uint32_t *pages, tern_vid v) {
    int group = tern_page_group_of(&s->layout, &s->plan->g->values[v]);
    if (group == s->layout.fixed) return s->slots.states[s->number[v]];
    uint32_t page = pages[group];
    return page ? s->pages[group][page - 1].states[s->number[v]] : NULL;
}

uint64_t gpu_page_bytes(const tern_store *s, int group) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n_states[group]; i++) bytes += state_bytes(s, s->states[group][i]);
    return bytes;
}

// n_slots: 1 for a page of its own.
static tern_status open_buffers(tern_store *s, int group, uint64_t n_slots, gpu_page *p,
                                tern_error *err) {
    p->states = tern_alloc_array(TERN_MEM_KV, s->n_states[group] + 1, sizeof *p->states);
    if (!p->states) return tern_fail_memory(err, s->n_states[group] * sizeof *p->states);
    for (size_t i = 0; i < s->n_states[group]; i++)
        TERN_TRY(gpu_buffer_new(s->plan->device, GPU_USE_CACHE,
                                n_slots * state_bytes(s, s->states[group][i]), STORAGE,
                                "the cache", &p->states[i], err));
    return TERN_OK;
}

// ---- Copying -----------------------------------------------------------------------------------

// A state in a page.
typedef struct gpu_piece {
    wgpu_buffer buffer;
    uint64_t offset, bytes;
} gpu_piece;

static gpu_piece piece_of(const tern_store *s, int group, tern_page page, size_t i) {
    uint64_t bytes = state_bytes(s, s->states[group][i]);
    if (group == s->layout.fixed)
        return (gpu_piece){s->slots.states[i], page.index * bytes, bytes};
    return (gpu_piece){s->pages[group][page.index].states[i], 0, bytes};
}

static void copy_piece(const tern_store *s, wgpu_encoder encoder, gpu_piece from, gpu_piece to) {
    const wgpu_api *a = &s->plan->device->api;
    if (from.buffer == to.buffer) {
        a->CommandEncoderCopyBufferToBuffer(encoder, from.buffer, from.offset, s->between, 0,
                                            from.bytes);
        from = (gpu_piece){s->between, 0, from.bytes};
    }
    a->CommandEncoderCopyBufferToBuffer(encoder, from.buffer, from.offset, to.buffer, to.offset,
                                        from.bytes);
}

static tern_status submit(const tern_store *s, wgpu_encoder encoder, tern_error *err) {
    tern_device *d = s->plan->device;
    const wgpu_api *a = &d->api;
    wgpu_commands commands = a->CommandEncoderFinish(encoder, NULL);
    a->CommandEncoderRelease(encoder);
    a->QueueSubmit(d->queue, 1, &commands);
    a->CommandBufferRelease(commands);
    return gpu_check(d, "copying states", err);
}

static wgpu_encoder encoder_of(const tern_store *s) {
    const tern_device *d = s->plan->device;
    return d->api.DeviceCreateCommandEncoder(d->device, NULL);
}

tern_status gpu_page_copy(tern_store *s, int group, tern_page from, tern_page to,
                          tern_error *err) {
    wgpu_encoder encoder = encoder_of(s);
    for (size_t i = 0; i < s->n_states[group]; i++)
        copy_piece(s, encoder, piece_of(s, group, from, i), piece_of(s, group, to, i));
    return submit(s, encoder, err);
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
        gpu_piece p = piece_of(s, group, page, i);
        TERN_TRY(gpu_read(s->plan->device, p.buffer, p.offset, at, p.bytes, err));
        at += p.bytes;
    }
    return TERN_OK;
}

tern_status gpu_page_write(tern_store *s, int group, tern_page page, const void *from,
                           tern_error *err) {
    const uint8_t *at = from;
    for (size_t i = 0; i < s->n_states[group]; i++) {
        gpu_piece p = piece_of(s, group, page, i);
        gpu_send(s->plan->device, p.buffer, p.offset, at, p.bytes);
        at += p.bytes;
    }
    return gpu_check(s->plan->device, "writing states", err);
}

// ---- Slots of fixed states ---------------------------------------------------------------------

static uint64_t greatest_state(const tern_store *s, int group) {
    uint64_t most = 0;
    for (size_t i = 0; i < s->n_states[group]; i++) {
        uint64_t bytes = state_bytes(s, s->states[group][i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

// As many slots as are wanted, in other buffers with the same contents.
static tern_status resize(tern_store *s, int group, uint32_t n_slots, tern_error *err) {
    gpu_page larger = {0};
    tern_device *d = s->plan->device;
    bool *taken = tern_alloc_array(TERN_MEM_KV, n_slots, sizeof *taken);
    tern_status status = taken ? TERN_OK : tern_fail_memory(err, n_slots * sizeof *taken);
    if (status == TERN_OK) status = open_buffers(s, group, n_slots, &larger, err);
    if (status == TERN_OK && s->n_slots > 0) {
        wgpu_encoder encoder = encoder_of(s);
        for (size_t i = 0; i < s->n_states[group]; i++)
            d->api.CommandEncoderCopyBufferToBuffer(
                encoder, s->slots.states[i], 0, larger.states[i], 0,
                s->n_slots * state_bytes(s, s->states[group][i]));
        status = submit(s, encoder, err);
        memcpy(taken, s->taken, s->n_slots * sizeof *taken);
    }
    if (status != TERN_OK) {
        tern_free(taken);
        free_buffers(s, group, &larger);
        return status;
    }
    free_buffers(s, group, &s->slots);
    tern_free(s->taken);
    s->slots = larger;
    s->taken = taken;
    s->n_slots = n_slots;
    s->growth++;
    return TERN_OK;
}

#define SLOTS_AT_FIRST 2 // a sequence, and where it can go back to
static tern_status grow(tern_store *s, int group, tern_error *err) {
    uint64_t state = greatest_state(s, group), most = s->plan->device->binding_bytes_max / state;
    uint64_t wanted = s->n_slots ? 2 * (uint64_t)s->n_slots : SLOTS_AT_FIRST;
    if (wanted > most) wanted = most;
    if (wanted <= s->n_slots)
        return tern_fail(err, TERN_ERR_MEMORY,
                         "the states of %u sequences and snapshots are all that a GPU's binding of "
                         "%llu MB has room for",
                         (unsigned)s->n_slots,
                         (unsigned long long)(s->plan->device->binding_bytes_max >> 20));
    if (!s->between)
        TERN_TRY(gpu_buffer_new(s->plan->device, GPU_USE_CACHE, state, STORAGE, "the cache",
                                &s->between, err));
    return resize(s, group, (uint32_t)wanted, err);
}

static tern_status take_slot(tern_store *s, int group, tern_page *out, tern_error *err) {
    uint32_t i = 0;
    while (i < s->n_slots && s->taken[i]) i++;
    if (i == s->n_slots) TERN_TRY(grow(s, group, err));
    out->index = i;
    TERN_TRY(gpu_page_clear(s, group, *out, err));
    s->taken[i] = true;
    return TERN_OK;
}

// ---- Pages -------------------------------------------------------------------------------------

tern_status gpu_page_new(tern_store *s, int group, tern_page *out, tern_error *err) {
    if (group == s->layout.fixed) return take_slot(s, group, out, err);
    size_t i = s->n_pages[group]; // never one that was freed: bind groups are told apart by it
    if (tern_array_reserve(TERN_MEM_KV, &s->pages[group], &s->capacity[group], i, 1) != 0)
        return tern_fail_memory(err, (i + 1) * sizeof(gpu_page));
    s->pages[group][s->n_pages[group]++] = (gpu_page){0};
    gpu_page *p = &s->pages[group][i];
    tern_status status = open_buffers(s, group, 1, p, err);
    if (status != TERN_OK) {
        free_buffers(s, group, p);
        return status;
    }
    out->index = (uint32_t)i;
    return TERN_OK;
}

void gpu_page_free(tern_store *s, int group, tern_page page) {
    if (group == s->layout.fixed) s->taken[page.index] = false;
    else free_buffers(s, group, &s->pages[group][page.index]);
}
