// A page: 16 consecutive positions of a sequence (a GPU's has 32: page_positions), for all
// states that grow by position and have the same window, in one piece of memory. A table of pages
// is a sequence's cache: page b holds the positions 16 b .. 16 b + 15. A state's rows begin at the
// same offset in all pages.
#ifndef TERN_KERNELS_PAGE_H
#define TERN_KERNELS_PAGE_H

#include <stdint.h>

#define TERN_PAGE_POSITIONS 16

// Whether the CPU's kernels have a Q4_0 cache; in a browser they must be small.
#if defined(__wasm__)
#define TERN_HAS_Q4_CACHE 0
#else
#define TERN_HAS_Q4_CACHE 1
#endif

typedef union tern_page {
    uint8_t *memory; // host memory, aligned to 64; NULL: absent, no row reads it any more
    uint32_t index;  // on a GPU
} tern_page;

#endif
