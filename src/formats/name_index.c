#include "formats/file_private.h"

#include <string.h>
#include "base/alloc.h"

#define PROBES_MAX 512 // at a load of 1/4 even a chain of 30 never occurs

uint64_t tern_name_hash(const char *name) { // FNV-1a, then mixed so that the low bits are good
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static const char *name_at(const void *items, size_t item_bytes, size_t i) {
    const char *name;
    memcpy(&name, (const char *)items + i * item_bytes, sizeof name);
    return name;
}

tern_status tern_name_index_build(tern_name_index *index, const void *items, size_t n,
                                  size_t item_bytes, const char *what, tern_error *err) {
    size_t n_slots = 16;
    if (n > UINT32_MAX / 8) return tern_fail(err, TERN_ERR_FORMAT, "too many %ss: %zu", what, n);
    while (n_slots < n * 4) n_slots *= 2;
    index->slots = tern_alloc_array(TERN_MEM_FILE, n_slots, sizeof *index->slots);
    if (!index->slots) return tern_fail_memory(err, n_slots * sizeof *index->slots);
    index->mask = n_slots - 1;
    for (size_t i = 0; i < n; i++) {
        const char *name = name_at(items, item_bytes, i);
        size_t slot = tern_name_hash(name) & index->mask, n_probes = 0;
        for (; index->slots[slot]; slot = (slot + 1) & index->mask) {
            if (!strcmp(name_at(items, item_bytes, index->slots[slot] - 1), name))
                return tern_fail(err, TERN_ERR_FORMAT, "%s '%s' is there twice", what, name);
            if (++n_probes > PROBES_MAX)
                return tern_fail(err, TERN_ERR_FORMAT, "%s names collide on purpose, at '%s'", what,
                                 name);
        }
        index->slots[slot] = (uint32_t)i + 1;
    }
    return TERN_OK;
}

int64_t tern_name_index_find(const tern_name_index *index, const void *items, size_t item_bytes,
                             const char *name) {
    if (!index->slots) return -1;
    size_t slot = tern_name_hash(name) & index->mask;
    for (; index->slots[slot]; slot = (slot + 1) & index->mask) {
        size_t i = index->slots[slot] - 1;
        if (!strcmp(name_at(items, item_bytes, i), name)) return (int64_t)i;
    }
    return -1;
}

void tern_name_index_free(tern_name_index *index) {
    tern_free(index->slots);
    *index = (tern_name_index){0};
}
