#include "base/alloc.h"

#include <stdatomic.h>
#include <string.h>
#include "base/os/os_memory.h"

// Precedes every block: one cache line, so that the block itself stays aligned.
typedef struct header {
    size_t bytes;    // as requested
    size_t capacity; // usable without moving
    uint32_t tag;
    uint32_t is_mapped;
} header;
#define HEADER_BYTES 64
_Static_assert(sizeof(header) <= HEADER_BYTES, "the header must fit in its cache line");

static atomic_size_t bytes_now[TERN_MEM_TAG_COUNT], bytes_max[TERN_MEM_TAG_COUNT];
static atomic_size_t total_now, total_max;
static atomic_uint_fast64_t n_allocs, n_left_before_fail;

// Relaxed counting does not order memory between threads, so it hides no race from a race detector.
static size_t add(atomic_size_t *count, size_t bytes) {
    return atomic_fetch_add_explicit(count, bytes, memory_order_relaxed);
}

static void raise_max(atomic_size_t *max, size_t value) {
    size_t seen = atomic_load_explicit(max, memory_order_relaxed);
    while (value > seen && !atomic_compare_exchange_weak_explicit(
                               max, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void count_in(uint32_t tag, size_t bytes) {
    raise_max(&bytes_max[tag], add(&bytes_now[tag], bytes) + bytes);
    raise_max(&total_max, add(&total_now, bytes) + bytes);
}

static void count_out(uint32_t tag, size_t bytes) {
    add(&bytes_now[tag], -bytes);
    add(&total_now, -bytes);
}

static int must_fail(void) {
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    uint_fast64_t left = atomic_load_explicit(&n_left_before_fail, memory_order_relaxed);
    if (left == 0) return 0;
    if (left > 1) {
        atomic_store_explicit(&n_left_before_fail, left - 1, memory_order_relaxed);
        return 0;
    }
    return 1; // stays at 1: all later calls fail too
}

static header *header_of(void *block) { return (header *)((char *)block - HEADER_BYTES); }

size_t tern_alloc_resident(size_t bytes) {
    size_t whole = bytes < TERN_PAGES_BYTES ? 64 : TERN_PAGES_BYTES;
    return (bytes + HEADER_BYTES + whole - 1) & ~(whole - 1);
}

static header *take_mapped(tern_mem_tag tag, size_t bytes) {
    size_t length = tern_alloc_resident(bytes);
    // A cache fills slowly and in many places: huge pages would make all of it resident at once.
    header *h = tern_pages_take(length, tag != TERN_MEM_KV);
    if (!h) return NULL;
    h->capacity = length - HEADER_BYTES;
    h->is_mapped = 1;
    return h;
}

static header *take_heap(size_t bytes, bool clears) {
    // A block of nothing has bytes too: its address would be past its end, where a leak detector
    // does not look for the block that it belongs to.
    size_t capacity = bytes ? (bytes + 63) / 64 * 64 : 64;
    header *h = tern_heap_take(capacity + HEADER_BYTES);
    if (!h) return NULL;
    memset(h, 0, HEADER_BYTES + (clears ? capacity : 0));
#ifdef __SANITIZE_ADDRESS__
    if (!clears) memset((char *)h + HEADER_BYTES, 0xff, capacity); // NaN in any float type
#endif
    h->capacity = capacity;
    return h;
}

static void *take(tern_mem_tag tag, size_t bytes, bool clears) {
    if (must_fail() || bytes > SIZE_MAX / 2) return NULL;
    header *h = bytes >= TERN_PAGES_BYTES ? take_mapped(tag, bytes) : NULL;
    if (!h) h = take_heap(bytes, clears);
    if (!h) return NULL;
    h->bytes = bytes;
    h->tag = (uint32_t)tag;
    count_in(h->tag, bytes);
    return (char *)h + HEADER_BYTES;
}

void *tern_alloc(tern_mem_tag tag, size_t bytes) { return take(tag, bytes, true); }

void *tern_alloc_open(tern_mem_tag tag, size_t bytes) { return take(tag, bytes, false); }

void *tern_alloc_array(tern_mem_tag tag, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    return tern_alloc(tag, bytes);
}

void *tern_realloc(tern_mem_tag tag, void *block, size_t bytes) {
    if (!block) return tern_alloc(tag, bytes);
    header *h = header_of(block);
    if (bytes <= h->capacity && bytes >= h->capacity / 4) {
        if (must_fail()) return NULL;
        if (bytes > h->bytes) memset((char *)block + h->bytes, 0, bytes - h->bytes);
        // Counts only the difference: the block must never be counted twice.
        if (bytes > h->bytes)
            count_in(h->tag, bytes - h->bytes);
        else
            count_out(h->tag, h->bytes - bytes);
        h->bytes = bytes;
        return block;
    }
    void *moved = tern_alloc(tag, bytes);
    if (!moved) return NULL;
    memcpy(moved, block, bytes < h->bytes ? bytes : h->bytes);
    tern_free(block);
    return moved;
}

void tern_free(void *block) {
    if (!block) return;
    header *h = header_of(block);
    count_out(h->tag, h->bytes);
    if (h->is_mapped)
        tern_pages_give(h, h->capacity + HEADER_BYTES);
    else
        tern_heap_give(h);
}

char *tern_strndup(tern_mem_tag tag, const char *text, size_t n) {
    char *copy = tern_alloc(tag, n + 1);
    if (copy) memcpy(copy, text, n);
    return copy;
}

char *tern_strdup(tern_mem_tag tag, const char *text) {
    return tern_strndup(tag, text, strlen(text));
}

int tern_array_reserve_(tern_mem_tag tag, void **array, size_t *capacity, size_t n_used,
                        size_t n_more, size_t element_bytes) {
    size_t wanted, bytes;
    if (__builtin_add_overflow(n_used, n_more, &wanted)) return -1;
    if (wanted <= *capacity) return 0;
    size_t grown = *capacity * 2 > 16 ? *capacity * 2 : 16;
    if (grown < wanted) grown = wanted;
    if (__builtin_mul_overflow(grown, element_bytes, &bytes)) return -1;
    void *moved = tern_realloc(tag, *array, bytes);
    if (!moved) return -1;
    *array = moved;
    *capacity = grown;
    return 0;
}

void tern_mem_fail_at(uint64_t n) { atomic_store(&n_left_before_fail, n); }

void tern_mem_reset_max(void) {
    for (int i = 0; i < TERN_MEM_TAG_COUNT; i++)
        atomic_store(&bytes_max[i], atomic_load(&bytes_now[i]));
    atomic_store(&total_max, atomic_load(&total_now));
}

tern_mem_stats tern_mem_get_stats(void) {
    tern_mem_stats s;
    for (int i = 0; i < TERN_MEM_TAG_COUNT; i++) {
        s.bytes_now[i] = atomic_load(&bytes_now[i]);
        s.bytes_max[i] = atomic_load(&bytes_max[i]);
    }
    s.total_now = atomic_load(&total_now);
    s.total_max = atomic_load(&total_max);
    s.n_allocs = atomic_load(&n_allocs);
    return s;
}

const char *tern_mem_tag_name(tern_mem_tag tag) {
    static const char *const names[] = {
#define ROW(name, text) text,
        TERN_MEM_TAGS(ROW)
#undef ROW
    };
    return tag < TERN_MEM_TAG_COUNT ? names[tag] : "?";
}
