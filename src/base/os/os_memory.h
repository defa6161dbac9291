// Memory and mapped files from the system. All other code uses alloc.h.
#ifndef TERN_BASE_OS_MEMORY_H
#define TERN_BASE_OS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- Blocks ------------------------------------------------------------------------------------

// At a multiple of 64 bytes, not zeroed; n is a multiple of 64. NULL: out of memory.
void *tern_heap_take(size_t n);
void tern_heap_give(void *block);

// Zeroed and resident only once touched; n and the address are multiples of TERN_PAGES_BYTES. huge:
// prefer large pages, which the first touch then makes resident whole. NULL: the system has nothing
// better than the heap, or is out of memory.
#define TERN_PAGES_BYTES ((size_t)2 << 20)
void *tern_pages_take(size_t n, bool huge);
void tern_pages_give(void *pages, size_t n);

// In bytes, 0: unknown. Resident at most so far, and now; what the machine has for new blocks
// without paging, a container's limit included.
size_t tern_process_memory_max(void);
size_t tern_process_memory_now(void);
uint64_t tern_memory_available(void);

// ---- Files in memory ---------------------------------------------------------------------------

// The first n > 0 bytes of an open file, read-only. NULL: the system cannot map it, errno. Closing
// the descriptor later does no harm.
void *tern_map(int fd, size_t n);
void tern_unmap(void *mapped, size_t n);
// A hint about the whole pages in a part of a mapping: it need not stay resident. Loses no byte.
void tern_map_drop(const void *part, size_t n);

#endif
