// Memory of Linux, macOS, the BSDs and Emscripten. It needs nothing else of base, and alloc.c needs
// it.
#if !defined(_WIN32) && !defined(__wasi__)
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/os/os_memory.h"

void *tern_heap_take(size_t n) { return aligned_alloc(64, n); }
void tern_heap_give(void *block) { free(block); }

#if !defined(__EMSCRIPTEN__)
#if !defined(MAP_NORESERVE) // Linux, macOS: no memory is reserved for pages never written
#define MAP_NORESERVE 0
#endif
void *tern_pages_take(size_t n, bool huge) {
    // Map one huge page more than needed, then unmap what is outside the aligned part.
    char *raw = mmap(NULL, n + TERN_PAGES_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    uintptr_t mask = TERN_PAGES_BYTES - 1;
    char *start = (char *)(((uintptr_t)raw + mask) & ~mask);
    if (start > raw) munmap(raw, (size_t)(start - raw));
    size_t tail = (size_t)(raw + TERN_PAGES_BYTES - start);
    if (tail) munmap(start + n, tail);
#if defined(MADV_HUGEPAGE)
    if (huge) madvise(start, n, MADV_HUGEPAGE);
#else
    (void)huge;
#endif
    return start;
}
void tern_pages_give(void *pages, size_t n) { munmap(pages, n); }
#else
void *tern_pages_take(size_t n, bool huge) {
    (void)n, (void)huge;
    return NULL;
}
void tern_pages_give(void *pages, size_t n) { (void)pages, (void)n; }
#endif

size_t tern_process_memory_max(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#if defined(__APPLE__)
    return (size_t)usage.ru_maxrss;
#else
    return (size_t)usage.ru_maxrss * 1024;
#endif
}

// The number after `key` at the beginning of a line of a small file; 0: none.
static uint64_t number_in(const char *path, const char *key) {
    char line[256];
    unsigned long long n = 0;
    size_t length = strlen(key);
    FILE *f = fopen(path, "r");
    while (f && n == 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, length) == 0 && sscanf(line + length, "%llu", &n) != 1) n = 0;
    if (f) fclose(f);
    return n;
}

size_t tern_process_memory_now(void) {
    size_t bytes = (size_t)number_in("/proc/self/status", "VmRSS:") * 1024;
    return bytes ? bytes : tern_process_memory_max();
}

// Linux alone says it. A limit of "max", or near 2^63, changes nothing.
uint64_t tern_memory_available(void) {
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    uint64_t available = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    for (int i = 0; i < 2; i++) {
        uint64_t limit = number_in(limits[i], ""), now = tern_process_memory_now();
        if (limit == 0) continue;
        uint64_t left = limit > now ? limit - now : 1;
        if (left < available) available = left;
    }
    return available;
}

void *tern_map(int fd, size_t n) {
    void *mapped = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

void tern_unmap(void *mapped, size_t n) { munmap(mapped, n); }

void tern_map_drop(const void *part, size_t n) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)part;
    uintptr_t first = (at + page - 1) & ~(page - 1), last = (at + n) & ~(page - 1);
    if (last > first) madvise((void *)first, last - first, MADV_DONTNEED);
}
#endif
