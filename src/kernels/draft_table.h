// Runs of tokens to draft from, in a form in which a device can look up the continuation of a
// text's last tokens. The session fills it, a kernel reads it (webgpu/wgsl/head/draft.wgsl).
//
//     buckets  4 pairs each: the hash of a prefix, 1 + the number of its run; 0, 0: empty
//     runs     row_words tokens each, after the last one TERN_DRAFT_NONE
//
// A prefix whose bucket is full is left out, and two prefixes may have the same hash: a draft may
// be missing or wrong, but every draft is verified anyway.
#ifndef TERN_KERNELS_DRAFT_TABLE_H
#define TERN_KERNELS_DRAFT_TABLE_H

#include "base/status.h"

#define TERN_DRAFT_NONE         UINT32_MAX
#define TERN_DRAFT_PREFIX_MAX   5 // tokens of a prefix
#define TERN_DRAFT_BUCKET_WORDS 8

typedef struct tern_draft_table {
    uint32_t *words; // buckets, then runs
    size_t n_words;
    uint32_t n_buckets; // a power of two
    uint32_t row_words; // a multiple of 4
} tern_draft_table;

// Room for n prefixes, and runs of at most `longest` tokens.
tern_status tern_draft_table_open(tern_draft_table *t, size_t n_prefixes, size_t n_runs,
                                  size_t longest, tern_error *err);
void tern_draft_table_close(tern_draft_table *t);
void tern_draft_table_set_run(tern_draft_table *t, size_t run, const int32_t *tokens, size_t n);
// The run continues its own first n tokens, at most TERN_DRAFT_PREFIX_MAX.
void tern_draft_table_add_prefix(tern_draft_table *t, size_t run, size_t n);

#endif
