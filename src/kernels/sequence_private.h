// Private to sequence.c and sequence_file.c: the definitions of sequences and their pages.
#ifndef TERN_KERNELS_SEQUENCE_PRIVATE_H
#define TERN_KERNELS_SEQUENCE_PRIVATE_H

#include "base/os/os_thread.h"
#include "kernels/backend.h"

typedef struct held_page {
    tern_page page;
    int32_t n_holders;
    uint8_t *out; // not NULL: its contents in the host's memory; it has no page, and one holder
    struct held_page *next; // in the list of free pages
} held_page;

struct tern_cache {
    const tern_backend *backend;
    tern_page_pool *page_pool;
    tern_page_layout layout;
    int32_t page_positions;
    uint64_t n_sequences; // ever
    tern_mutex lock;      // for all below, and for the holders of every page
    held_page *free[TERN_PAGE_GROUPS];
    uint64_t n_pages[TERN_PAGE_GROUPS]; // on the device, free ones included
    uint64_t n_free[TERN_PAGE_GROUPS], n_out[TERN_PAGE_GROUPS];
};

typedef struct page_table {
    held_page **held; // [n], NULL: no window reaches it
    tern_page *pages; // [n], what backends read
    int32_t n, capacity;
    int32_t n_swept; // unneeded pages before this one have been given back
} page_table;

// A position to go back to: its fixed states, and the pages that windows reach from there.
typedef struct snapshot {
    int32_t position; // 0: none
    held_page *page;  // NULL: no fixed states
} snapshot;

struct tern_sequence {
    tern_cache *cache;
    int32_t n_positions;
    uint64_t version;
    int32_t n_out; // pages in the host's memory
    page_table tables[TERN_PAGE_GROUPS];
    snapshot snapshots[TERN_SNAPSHOTS + 1]; // the last is the passing one
    bool is_torn;                           // a run that failed may have changed the fixed states
    bool is_stale; // pages before n_swept may have become unneeded, or be back
};

// The first position that positions from n on read through a window.
static inline int32_t window_begin(int32_t n, int32_t window) {
    return n - window + 1 > 0 ? n - window + 1 : 0;
}
// Appends one page to a table, with undefined contents; or an entry without a page.
tern_status tern_sequence_append(tern_sequence *s, int group, tern_error *err);
tern_status tern_sequence_skip(tern_sequence *s, int group, tern_error *err);
// Whether a position to go back to needs the page.
bool tern_sequence_remembers(const tern_sequence *s, int32_t window, int32_t page);
// Whether all pages that positions from n on will read exist.
bool tern_sequence_reaches_back(const tern_sequence *s, int32_t n);

#endif
