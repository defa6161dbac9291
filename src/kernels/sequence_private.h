// Private to sequence.c and sequence_file.c: what sequences and their pages are.
#ifndef TERN_KERNELS_SEQUENCE_PRIVATE_H
#define TERN_KERNELS_SEQUENCE_PRIVATE_H

#include "base/os_thread.h"
#include "kernels/backend.h"

typedef struct held_page {
    tern_page page;
    int32_t n_holders;
    uint8_t *out;           // not NULL: its contents, in the host's memory; it has no page then
    struct held_page *next; // of the free ones
} held_page;

struct tern_cache {
    const tern_backend *backend;
    tern_store *store;
    tern_page_layout layout;
    int32_t page_positions;
    uint64_t n_sequences; // ever
    tern_mutex lock;      // of all below, and of the holders of every page
    held_page *free[TERN_PAGE_GROUPS];
    uint64_t n_pages[TERN_PAGE_GROUPS]; // on the device, the free ones included
    uint64_t n_free[TERN_PAGE_GROUPS], n_out[TERN_PAGE_GROUPS];
};

typedef struct page_table {
    held_page **held; // [n], NULL: no window reaches it
    tern_page *pages; // [n], what backends read
    int32_t n, capacity;
    int32_t n_swept; // pages before this one that nothing needs have been given back
} page_table;

// A position to go back to: its fixed states, and the pages that windows reach from there.
typedef struct snapshot {
    int32_t position; // 0: none
    held_page *page;  // NULL: there are no fixed states
} snapshot;

struct tern_sequence {
    tern_cache *cache;
    int32_t n_positions;
    uint64_t version;
    int32_t n_out; // pages in the host's memory
    page_table tables[TERN_PAGE_GROUPS];
    snapshot snapshots[TERN_SNAPSHOTS + 1]; // the last is the passing one
    bool is_torn;                           // a run that failed may have changed the fixed states
    bool is_stale; // pages before n_swept may be needed no more, or be there again
};

// The positions that n and those after it read through a window begin here.
static inline int32_t window_begin(int32_t n, int32_t window) {
    return n - window + 1 > 0 ? n - window + 1 : 0;
}
// One page more at the end of a table, what it holds left open; or a place without a page.
tern_status tern_sequence_append(tern_sequence *s, int group, tern_error *err);
tern_status tern_sequence_skip(tern_sequence *s, int group, tern_error *err);
// Whether a position to go back to needs the page.
bool tern_sequence_remembers(const tern_sequence *s, int32_t window, int32_t page);
// Whether all that positions from n on will read is there.
bool tern_sequence_reaches_back(const tern_sequence *s, int32_t n);

#endif
