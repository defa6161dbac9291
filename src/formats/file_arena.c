#include "formats/file_private.h"

#include <string.h>
#include "base/alloc.h"

// A chunk is one allocation; large requests get a chunk of their own. tern_alloc aligns the header
// to 64, and its size keeps what follows aligned to 16.
typedef struct tern_arena_chunk {
    struct tern_arena_chunk *next;
    size_t used, capacity; // bytes after the header
    size_t reserved;
} chunk;
_Static_assert(sizeof(chunk) % 16 == 0, "the blocks after the header must stay aligned");
#define CHUNK_BYTES ((size_t)16 << 10)

void *tern_arena_take(tern_arena *pool, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    chunk *c = pool->chunks;
    if (!c || c->capacity - c->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        chunk *fresh = tern_alloc(TERN_MEM_FILE, sizeof *fresh + capacity);
        if (!fresh) return NULL;
        fresh->capacity = capacity;
        if (c && capacity > CHUNK_BYTES) { // full at once: keep the open one in front
            fresh->next = c->next;
            c->next = fresh;
        } else {
            fresh->next = c;
            pool->chunks = fresh;
        }
        c = fresh;
    }
    void *block = (char *)(c + 1) + c->used;
    c->used += bytes;
    return block;
}

char *tern_arena_text(tern_arena *pool, tern_str text) {
    char *copy = tern_arena_take(pool, text.len + 1);
    if (copy && text.len) memcpy(copy, text.ptr, text.len);
    return copy;
}

void tern_arena_free(tern_arena *pool) {
    for (chunk *c = pool->chunks; c;) {
        chunk *next = c->next;
        tern_free(c);
        c = next;
    }
    pool->chunks = NULL;
}
