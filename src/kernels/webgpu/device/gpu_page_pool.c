// Pages of states on the GPU. A page of a positional group holds GPU_PAGE_POSITIONS positions of
// all states with one window, a page of the fixed group all fixed states of a sequence. Each state
// has one buffer, [page][state], that all sequences share: so a batch of many sequences binds each
// state once, and kernels find a page by its number. Where there is no page left, all buffers of
// the group are replaced by larger ones.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/device/gpu.h"

#define STORAGE (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

// The pages of a group.
typedef struct arena {
    tern_vid *states; // [n_states], in order
    size_t n_states;
    wgpu_buffer *buffers;     // [n_states], each of n_pages; NULL: no pages yet
    uint32_t n_pages, n_used; // pages from n_used on were never taken: they are zero
    uint32_t *freed;          // [n_freed <= n_used]
    size_t n_freed, freed_capacity;
} arena;

struct tern_page_pool {
    tern_plan *plan;
    tern_page_layout layout;
    gpu_cache cache;
    arena arenas[TERN_PAGE_GROUPS];
    size_t *number;      // [n_values] of a state in its group
    uint32_t growth;     // how often buffers were replaced
    wgpu_buffer between; // WebGPU copies nothing from a buffer to itself
};

// Bytes of a position's keys or values. Q8_0: an int8 each, a float for each 32.
static uint64_t row_bytes(int64_t n_cols, gpu_cache cache) {
    uint64_t n = (uint64_t)n_cols;
    return cache == GPU_CACHE_F32 ? 4 * n : cache == GPU_CACHE_F16 ? 2 * n : n + n / 8;
}

// Bytes of a state in a page.
uint64_t gpu_state_bytes(const tern_page_pool *s, tern_vid v) {
    const tern_value *value = &s->plan->g->values[v];
    if (value->state == TERN_STATE_FIXED)
        return (uint64_t)(value->rows * value->cols) * sizeof(float);
    return GPU_PAGE_POSITIONS * row_bytes(value->cols, s->cache);
}

static uint64_t greatest_state(const tern_page_pool *s, const arena *a) {
    uint64_t most = 0;
    for (size_t i = 0; i < a->n_states; i++) {
        uint64_t bytes = gpu_state_bytes(s, a->states[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

// ---- Opening -----------------------------------------------------------------------------------

static tern_status list_states(tern_page_pool *s, tern_error *err) {
    const tern_graph *g = s->plan->g;
    s->number = tern_alloc_array(TERN_MEM_KV, g->n_values + 1, sizeof *s->number);
    if (!s->number) return tern_fail_memory(err, g->n_values * sizeof *s->number);
    for (int i = 0; i < s->layout.n_groups; i++) {
        arena *a = &s->arenas[i];
        a->states = tern_alloc_array(TERN_MEM_KV, g->n_values + 1, sizeof *a->states);
        if (!a->states) return tern_fail_memory(err, g->n_values * sizeof *a->states);
    }
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *value = &g->values[v];
        if (!tern_is_paged(value)) continue;
        arena *a = &s->arenas[tern_page_group_of(&s->layout, value)];
        s->number[v] = a->n_states;
        a->states[a->n_states++] = (tern_vid)v;
    }
    return TERN_OK;
}

tern_status gpu_page_pool_open(tern_plan *p, const tern_page_layout *layout,
                               const tern_cache_desc *desc, tern_page_pool **out, tern_error *err) {
    *out = NULL;
    tern_kv_type kv = desc->kv_type;
    TERN_TRY(tern_kv_choose(p->g, desc->n_context, kv, &kv, err));
    if (kv == TERN_KV_Q4_0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a Q4_0 cache is for the CPU: a GPU's smallest is Q8_0");
    tern_page_pool *s = tern_alloc(TERN_MEM_KV, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->plan = p;
    s->layout = *layout;
    s->cache = kv == TERN_KV_F32    ? GPU_CACHE_F32
               : kv == TERN_KV_Q8_0 ? GPU_CACHE_Q8_0
                                    : GPU_CACHE_F16;
    tern_status status = list_states(s, err);
    if (status == TERN_OK)
        *out = s;
    else
        gpu_page_pool_close(s);
    return status;
}

static void free_buffers(tern_page_pool *s, wgpu_buffer *buffers, size_t n) {
    for (size_t i = 0; buffers && i < n; i++)
        gpu_buffer_free(s->plan->device, GPU_USE_CACHE, buffers[i]);
    tern_free(buffers);
}

void gpu_page_pool_close(tern_page_pool *s) {
    if (!s) return;
    for (int g = 0; g < s->layout.n_groups; g++) {
        arena *a = &s->arenas[g];
        free_buffers(s, a->buffers, a->n_states);
        tern_free(a->freed);
        tern_free(a->states);
    }
    gpu_buffer_free(s->plan->device, GPU_USE_CACHE, s->between);
    tern_free(s->number);
    tern_free(s);
}

int32_t gpu_page_positions(const tern_page_pool *s) {
    (void)s;
    return GPU_PAGE_POSITIONS;
}
gpu_cache gpu_page_pool_cache(const tern_page_pool *s) { return s->cache; }
const tern_page_layout *gpu_page_pool_layout(const tern_page_pool *s) { return &s->layout; }
uint32_t gpu_page_pool_growth(const tern_page_pool *s) { return s->growth; }

wgpu_buffer gpu_page_pool_buffer(const tern_page_pool *s, tern_vid v) {
    const arena *a = &s->arenas[tern_page_group_of(&s->layout, &s->plan->g->values[v])];
    return a->buffers ? a->buffers[s->number[v]] : NULL;
}

uint64_t gpu_page_bytes(const tern_page_pool *s, int group) {
    const arena *a = &s->arenas[group];
    uint64_t bytes = 0;
    for (size_t i = 0; i < a->n_states; i++) bytes += gpu_state_bytes(s, a->states[i]);
    return bytes;
}

// ---- Copying -----------------------------------------------------------------------------------

// A state in a page.
static gpu_piece piece_of(const tern_page_pool *s, const arena *a, tern_page page, size_t i) {
    uint64_t bytes = gpu_state_bytes(s, a->states[i]);
    return (gpu_piece){a->buffers[i], page.index * bytes, bytes};
}

static void copy_piece(const tern_page_pool *s, wgpu_encoder encoder, gpu_piece from,
                       gpu_piece to) {
    const wgpu_api *a = &s->plan->device->api;
    a->CommandEncoderCopyBufferToBuffer(encoder, from.buffer, from.offset, s->between, 0,
                                        from.bytes);
    a->CommandEncoderCopyBufferToBuffer(encoder, s->between, 0, to.buffer, to.offset, from.bytes);
}

static tern_status submit(const tern_page_pool *s, wgpu_encoder encoder, tern_error *err) {
    tern_device *d = s->plan->device;
    const wgpu_api *a = &d->api;
    wgpu_commands commands = a->CommandEncoderFinish(encoder, NULL);
    a->CommandEncoderRelease(encoder);
    a->QueueSubmit(d->queue, 1, &commands);
    a->CommandBufferRelease(commands);
    return gpu_check(d, "copying states", err);
}

static wgpu_encoder encoder_of(const tern_page_pool *s) {
    const tern_device *d = s->plan->device;
    return d->api.DeviceCreateCommandEncoder(d->device, NULL);
}

tern_status gpu_page_copy(tern_page_pool *s, int group, tern_page from, tern_page to,
                          tern_error *err) {
    const arena *a = &s->arenas[group];
    uint64_t most = 0;
    for (int g = 0; g < s->layout.n_groups; g++) {
        uint64_t bytes = greatest_state(s, &s->arenas[g]);
        if (bytes > most) most = bytes;
    }
    if (!s->between)
        TERN_TRY(gpu_buffer_new(s->plan->device, GPU_USE_CACHE, most, STORAGE, "the cache",
                                &s->between, err));
    wgpu_encoder encoder = encoder_of(s);
    for (size_t i = 0; i < a->n_states; i++)
        copy_piece(s, encoder, piece_of(s, a, from, i), piece_of(s, a, to, i));
    return submit(s, encoder, err);
}

tern_status gpu_page_clear(tern_page_pool *s, int group, tern_page page, tern_error *err) {
    const arena *a = &s->arenas[group];
    wgpu_encoder encoder = encoder_of(s);
    for (size_t i = 0; i < a->n_states; i++) {
        gpu_piece p = piece_of(s, a, page, i);
        s->plan->device->api.CommandEncoderClearBuffer(encoder, p.buffer, p.offset, p.bytes);
    }
    return submit(s, encoder, err);
}

tern_status gpu_page_read(tern_page_pool *s, int group, tern_page page, void *to, tern_error *err) {
    enum { AT_ONCE = 64 };
    const arena *a = &s->arenas[group];
    gpu_piece pieces[AT_ONCE];
    uint8_t *at = to;
    for (size_t i = 0; i < a->n_states;) {
        size_t n = 0;
        uint64_t bytes = 0;
        for (; n < AT_ONCE && i < a->n_states; i++, n++) {
            pieces[n] = piece_of(s, a, page, i);
            bytes += pieces[n].bytes;
        }
        TERN_TRY(gpu_read_pieces(s->plan->device, pieces, n, at, err));
        at += bytes;
    }
    return TERN_OK;
}

tern_status gpu_page_write(tern_page_pool *s, int group, tern_page page, const void *from,
                           tern_error *err) {
    const arena *a = &s->arenas[group];
    const uint8_t *at = from;
    for (size_t i = 0; i < a->n_states; i++) {
        gpu_piece p = piece_of(s, a, page, i);
        gpu_send_piece(s->plan->device, p.buffer, p.offset, at, p.bytes);
        at += p.bytes;
    }
    if (a->n_states > 0) gpu_sent(s->plan->device, a->buffers[0]);
    return gpu_check(s->plan->device, "writing states", err);
}

// ---- Room --------------------------------------------------------------------------------------

static tern_status open_buffers(tern_page_pool *s, const arena *a, uint64_t n_pages,
                                wgpu_buffer **out, tern_error *err) {
    wgpu_buffer *buffers = tern_alloc_array(TERN_MEM_KV, a->n_states + 1, sizeof *buffers);
    if (!buffers) return tern_fail_memory(err, a->n_states * sizeof *buffers);
    tern_status status = TERN_OK;
    for (size_t i = 0; status == TERN_OK && i < a->n_states; i++)
        status = gpu_buffer_new(s->plan->device, GPU_USE_CACHE,
                                n_pages * gpu_state_bytes(s, a->states[i]), STORAGE, "the cache",
                                &buffers[i], err);
    if (status == TERN_OK)
        *out = buffers;
    else
        free_buffers(s, buffers, a->n_states);
    return status;
}

// Other buffers with the same contents.
static tern_status resize(tern_page_pool *s, arena *a, uint32_t n_pages, tern_error *err) {
    const tern_device *d = s->plan->device;
    wgpu_buffer *larger = NULL;
    TERN_TRY(open_buffers(s, a, n_pages, &larger, err));
    tern_status status = TERN_OK;
    if (a->n_used > 0) {
        wgpu_encoder encoder = encoder_of(s);
        for (size_t i = 0; i < a->n_states; i++)
            d->api.CommandEncoderCopyBufferToBuffer(encoder, a->buffers[i], 0, larger[i], 0,
                                                    a->n_used * gpu_state_bytes(s, a->states[i]));
        status = submit(s, encoder, err);
    }
    if (status != TERN_OK) {
        free_buffers(s, larger, a->n_states);
        return status;
    }
    free_buffers(s, a->buffers, a->n_states);
    a->buffers = larger;
    a->n_pages = n_pages;
    s->growth++;
    return TERN_OK;
}

// A quarter more, so that copying stays a small part of filling, but no less than is wanted.
static tern_status grow(tern_page_pool *s, arena *a, uint64_t wanted, tern_error *err) {
    uint64_t binding = s->plan->device->binding_bytes_max, most = binding / greatest_state(s, a);
    uint64_t n = a->n_pages + (uint64_t)a->n_pages / 4;
    if (wanted > most)
        return tern_fail(err, TERN_ERR_MEMORY,
                         "the cache: %llu pages of states are more than the %llu that a GPU's "
                         "binding of %llu MB has room for",
                         (unsigned long long)wanted, (unsigned long long)most,
                         (unsigned long long)(binding >> 20));
    if (n < wanted) n = wanted;
    if (n > most) n = most;
    tern_status status = resize(s, a, (uint32_t)n, err);
    // All of it exists twice for a moment; less may still fit.
    if (status != TERN_OK && n > wanted && !s->plan->device->lost)
        status = resize(s, a, (uint32_t)wanted, err);
    return status;
}

// First sizes when pages are taken one after the other.
#define POSITIONS_AT_FIRST 256
#define SLOTS_AT_FIRST     2 // a sequence, and where it can go back to
tern_status gpu_pages_expect(tern_page_pool *s, int group, int32_t n, tern_error *err) {
    arena *a = &s->arenas[group];
    uint64_t wanted = a->n_used + (uint64_t)n;
    if (a->n_states == 0 || n <= 0 || (uint64_t)n <= a->n_freed) return TERN_OK;
    wanted -= a->n_freed;
    if (wanted <= a->n_pages) return TERN_OK;
    return grow(s, a, wanted, err);
}

tern_status gpu_page_new(tern_page_pool *s, int group, tern_page *out, tern_error *err) {
    arena *a = &s->arenas[group];
    bool fixed = group == s->layout.fixed;
    if (a->n_freed > 0) {
        out->index = a->freed[--a->n_freed];
        return TERN_OK;
    }
    // Room to list it as free again.
    if (tern_array_reserve(TERN_MEM_KV, &a->freed, &a->freed_capacity, a->n_used, 1) != 0)
        return tern_fail_memory(err, (a->n_used + 1) * sizeof *a->freed);
    if (a->n_used == a->n_pages) {
        uint32_t first = fixed ? SLOTS_AT_FIRST : POSITIONS_AT_FIRST / GPU_PAGE_POSITIONS;
        uint64_t most = s->plan->device->binding_bytes_max / greatest_state(s, a);
        uint64_t more = a->n_pages ? 1 : first < most ? first : 1;
        TERN_TRY(grow(s, a, a->n_pages + more, err));
    }
    out->index = a->n_used++;
    return TERN_OK;
}

void gpu_page_free(tern_page_pool *s, int group, tern_page page) {
    arena *a = &s->arenas[group];
    a->freed[a->n_freed++] = page.index;
    if (a->n_freed < a->n_used) return;
    // No page is in use: the memory is given back.
    free_buffers(s, a->buffers, a->n_states);
    a->buffers = NULL;
    a->n_pages = a->n_used = 0;
    a->n_freed = 0;
    s->growth++;
}
