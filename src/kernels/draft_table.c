// Filling tables of drafts. The layout is in draft_table.h.
#include "kernels/draft_table.h"

#include "base/alloc.h"

tern_status tern_draft_table_open(tern_draft_table *t, size_t n_prefixes, size_t n_runs,
                                  size_t longest, tern_error *err) {
    *t = (tern_draft_table){.n_buckets = 1, .row_words = (uint32_t)(longest + 3) / 4 * 4};
    // About one prefix for a bucket of four: one in a thousand finds it full.
    while (t->n_buckets < n_prefixes && t->n_buckets < 1u << 24) t->n_buckets *= 2;
    t->n_words = (size_t)t->n_buckets * TERN_DRAFT_BUCKET_WORDS + n_runs * t->row_words;
    t->words = tern_alloc_array(TERN_MEM_SESSION, t->n_words, sizeof *t->words);
    return t->words ? TERN_OK : tern_fail_memory(err, t->n_words * sizeof *t->words);
}

void tern_draft_table_close(tern_draft_table *t) {
    tern_free(t->words);
    *t = (tern_draft_table){0};
}

static uint32_t *run_of(const tern_draft_table *t, size_t run) {
    return t->words + (size_t)t->n_buckets * TERN_DRAFT_BUCKET_WORDS + run * t->row_words;
}

void tern_draft_table_set_run(tern_draft_table *t, size_t run, const int32_t *tokens, size_t n) {
    uint32_t *row = run_of(t, run);
    for (size_t i = 0; i < t->row_words; i++)
        row[i] = i < n ? (uint32_t)tokens[i] : TERN_DRAFT_NONE;
}

// From the newest token to the oldest, so that the hashes of shorter prefixes are made on the way
// to the longest. The same as in draft.wgsl.
static uint32_t hash_of(const uint32_t *prefix, size_t n) {
    uint32_t h = 0x811C9DC5u;
    for (size_t i = n; i-- > 0;) {
        h = (h ^ prefix[i]) * 0x9E3779B1u;
        h ^= h >> 15;
    }
    return h;
}

static uint32_t bucket_of(const tern_draft_table *t, uint32_t hash) {
    uint32_t b = (hash ^ hash >> 13) * 0xC2B2AE35u;
    return (b ^ b >> 16) & (t->n_buckets - 1);
}

void tern_draft_table_add_prefix(tern_draft_table *t, size_t run, size_t n) {
    uint32_t hash = hash_of(run_of(t, run), n);
    uint32_t *pairs = t->words + (size_t)bucket_of(t, hash) * TERN_DRAFT_BUCKET_WORDS;
    for (size_t i = 0; i < TERN_DRAFT_BUCKET_WORDS; i += 2) {
        if (pairs[i + 1] != 0) continue;
        pairs[i] = hash;
        pairs[i + 1] = (uint32_t)run + 1;
        return;
    }
}
