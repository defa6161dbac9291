// The only access to the heap.
//
// Every block is zeroed (except those of tern_alloc_open), aligned to 64 bytes (a cache line, and
// the widest vector), tagged by purpose, and counted: peaks by tag can be queried, a test can
// assert that a stretch of code allocates nothing, and tests can make the n-th allocation fail.
// Blocks of 2 MiB and more come straight from the kernel, aligned for huge pages, since walking a
// weight matrix through 4 KiB pages is bound by TLB misses.
#ifndef TERN_BASE_ALLOC_H
#define TERN_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#define TERN_MEM_TAGS(ROW)                                                                         \
    ROW(TERN_MEM_MISC, "misc")       /* short-lived strings, parsing */                            \
    ROW(TERN_MEM_FILE, "file")       /* parsed headers, metadata */                                \
    ROW(TERN_MEM_TOKENIZER, "vocab") /* vocabulary, merges */                                      \
    ROW(TERN_MEM_GRAPH, "graph")     /* nodes, values, plans */                                    \
    ROW(TERN_MEM_WEIGHTS, "weights") /* repacked or unpacked weights */                            \
    ROW(TERN_MEM_KV, "kv cache")     /* keys and values of a session */                            \
    ROW(TERN_MEM_ACTIVATIONS, "activations")                                                       \
    ROW(TERN_MEM_SESSION, "session") /* sampler state, token history */

typedef enum tern_mem_tag {
#define ROW(name, text) name,
    TERN_MEM_TAGS(ROW)
#undef ROW
        TERN_MEM_TAG_COUNT
} tern_mem_tag;

// NULL if memory runs out; zero bytes give a valid unique pointer. Any thread.
void *tern_alloc(tern_mem_tag tag, size_t bytes);
// The same without zeroing, for large blocks that are written before they are read. Zeroing takes a
// third of a millisecond per cache page, and a long prompt takes hundreds of pages at once.
void *tern_alloc_open(tern_mem_tag tag, size_t bytes);
// What a block of this many bytes occupies once it is written: large ones whole pages.
size_t tern_alloc_resident(size_t bytes);
// n * size with overflow check: NULL on overflow.
void *tern_alloc_array(tern_mem_tag tag, size_t n, size_t size);
// Keeps the content, zeroes the new part; on failure the old block stays valid. block may be NULL.
void *tern_realloc(tern_mem_tag tag, void *block, size_t bytes);
// NULL is allowed.
void tern_free(void *block);
char *tern_strdup(tern_mem_tag tag, const char *text);
char *tern_strndup(tern_mem_tag tag, const char *text, size_t n);

typedef struct tern_mem_stats {
    size_t bytes_now[TERN_MEM_TAG_COUNT], bytes_max[TERN_MEM_TAG_COUNT];
    size_t total_now, total_max;
    uint64_t n_allocs; // allocations since the program began
} tern_mem_stats;
tern_mem_stats tern_mem_get_stats(void);
const char *tern_mem_tag_name(tern_mem_tag tag);

// Test hook: makes the n-th allocation from now (1 = the next) and all later ones fail; 0 turns it
// off.
void tern_mem_fail_at(uint64_t n);
// Resets the peaks, so that they count from now on.
void tern_mem_reset_max(void);

// Grows *array (n_used elements used, *capacity allocated) so that n_used + n_more fit; doubles.
// Returns 0 on success and -1 if memory runs out (the array stays valid).
int tern_array_reserve_(tern_mem_tag tag, void **array, size_t *capacity, size_t n_used,
                        size_t n_more, size_t element_bytes);
#define tern_array_reserve(tag, array, capacity, n_used, n_more)                                   \
    tern_array_reserve_(tag, (void **)(array), capacity, n_used, n_more, sizeof **(array))

#endif
