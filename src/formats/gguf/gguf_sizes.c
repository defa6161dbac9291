// Facts that follow only from the room between two tensors of a GGUF file: the bytes of types with
// unknown blocks, and which of its layouts a type's number means.
//
// - 42 is Q2_0: 64 weights in 18 bytes. The first files with it, and the most downloaded, have 128
//   weights in 34 bytes: today that is 142, PQ2_0. The first files of STQ1_0 have it, too: 256
//   weights in 42 bytes.
// - 40 is NVFP4, 64 weights in 36 bytes. In the oldest files with one bit per weight it is 32
//   weights in 6 bytes.
// All tensors of a file have the same one.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/file_private.h"

typedef struct room {
    uint64_t *sorted; // the offsets of all tensors, and the end of the data
    size_t n;
    uint64_t alignment;
} room;

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// Bytes from an offset to the next greater one.
static uint64_t room_at(const room *r, uint64_t offset) {
    size_t low = 0, high = r->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->sorted[middle] > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low < r->n ? r->sorted[low] - offset : 0;
}

// ---- Layouts ------------------------------------------------------------------------------------

typedef struct layout {
    tern_dtype type;
    uint32_t block_n, block_bytes;
} layout;

static const struct {
    uint32_t type_id;
    layout layouts[3]; // the usual one first; no more than N_LAYOUTS
} doubtful[] = {
    {42, {{TERN_DTYPE_Q2_0, 64, 18}, {TERN_DTYPE_PQ2_0, 128, 34}, {TERN_DTYPE_STQ1_0, 256, 42}}},
    {40, {{TERN_DTYPE_NVFP4, 64, 36}, {TERN_DTYPE_Q1_0_32, 32, 6}}},
};
enum { N_DOUBTFUL = sizeof doubtful / sizeof *doubtful, N_LAYOUTS = 3 };

// The bytes of a tensor in a layout; false: it does not fit, or leaves more room than alignment
// explains.
static bool fits(const room *r, const layout *l, const tern_tensor *t, uint64_t offset,
                 uint64_t *bytes) {
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3], place = room_at(r, offset);
    if (!l->block_n || t->ne[0] % l->block_n ||
        __builtin_mul_overflow(n / l->block_n, l->block_bytes, bytes))
        return false;
    return *bytes <= place && place - *bytes < r->alignment;
}

static tern_status settle(tern_tensor *tensors, const uint64_t *offsets, size_t n, const room *r,
                          int which, tern_error *err) {
    const layout *l = doubtful[which].layouts;
    const tern_tensor *misfit[N_LAYOUTS] = {NULL};
    uint64_t bytes;
    int fit = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < N_LAYOUTS; k++)
            if (tensors[i].type_id == doubtful[which].type_id &&
                !fits(r, &l[k], &tensors[i], offsets[i], &bytes))
                misfit[k] = &tensors[i];
    while (fit < N_LAYOUTS && misfit[fit]) fit++;
    if (fit == N_LAYOUTS)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor '%s' of type %u has room neither for blocks of %u weights in %u "
                         "bytes nor for %u in %u",
                         misfit[1]->name, doubtful[which].type_id, l[0].block_n, l[0].block_bytes,
                         l[1].block_n, l[1].block_bytes);
    l += fit;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].type_id != doubtful[which].type_id) continue;
        tensors[i].type = l->type;
        fits(r, l, &tensors[i], offsets[i], &tensors[i].bytes);
    }
    return TERN_OK;
}

// ---- All tensors -------------------------------------------------------------------------------

static int doubt_of(const tern_tensor *t) { // -1: none
    for (int i = 0; i < N_DOUBTFUL; i++)
        if (t->type_id == doubtful[i].type_id) return i;
    return -1;
}

tern_status tern_gguf_settle_sizes(tern_tensor *tensors, const uint64_t *offsets, size_t n,
                                   uint64_t n_data, uint64_t alignment, tern_error *err) {
    room r = {.n = n + 1, .alignment = alignment};
    bool in_doubt[N_DOUBTFUL] = {false}, any = false;
    for (size_t i = 0; i < n; i++) {
        int which = doubt_of(&tensors[i]);
        if (which >= 0) in_doubt[which] = true;
        any |= which >= 0 || (!tensors[i].bytes && !tern_dtype_is_readable(tensors[i].type));
    }
    if (!any) return TERN_OK;
    r.sorted = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *r.sorted);
    if (!r.sorted) return tern_fail_memory(err, (n + 1) * sizeof *r.sorted);
    memcpy(r.sorted, offsets, n * sizeof *r.sorted);
    r.sorted[n] = n_data;
    qsort(r.sorted, n + 1, sizeof *r.sorted, by_value);
    tern_status status = TERN_OK;
    for (int which = 0; which < N_DOUBTFUL && status == TERN_OK; which++)
        if (in_doubt[which]) status = settle(tensors, offsets, n, &r, which, err);
    for (size_t i = 0; i < n; i++)
        if (!tensors[i].bytes && !tern_dtype_is_readable(tensors[i].type))
            tensors[i].bytes = room_at(&r, offsets[i]);
    tern_free(r.sorted);
    return status;
}
