// Counting runs of tokens in a corpus of any size, in bounded memory and exactly.
//
// Level by level, n = 2 .. 8, each in two passes over the corpus:
// 1. A sketch: every n-gram adds one to the cell that its hash falls into. A cell holds at least
//    the count of each n-gram that falls into it.
// 2. With t the least number that at most TERN_NGRAMS_KEPT cells reach, n-grams whose cell is below
//    t occur fewer than t times and are left out. All others are counted exactly, in a hash table.
// An n-gram occurs no more often than its prefix and its end of n - 1 tokens, so at the next level
// only n-grams whose prefix and end were kept are considered (Agrawal and Srikant 1994). With t
// never falling from level to level this loses nothing: *every* n-gram that occurs t_n times or
// more is in the table of level n, with its exact count.
#ifndef TERN_TASKS_MINE_NGRAMS_H
#define TERN_TASKS_MINE_NGRAMS_H

#include "base/status.h"
#include "tern_train.h"

enum { TERN_NGRAM_MIN = 2, TERN_NGRAM_MAX = 8, TERN_NGRAMS_KEPT = 1 << 16 };

// Where tokens come from: documents, one after the other. An n-gram lies in one document.
typedef struct tern_corpus {
    void *self;
    uint64_t n_documents, n_tokens;
    uint64_t (*document_tokens)(void *self, uint64_t document);
    tern_status (*read)(void *self, uint64_t document, uint64_t first, uint64_t n, int32_t *ids,
                        tern_error *err);
    int32_t end_id; // -1: none. Runs that contain it are not counted
} tern_corpus;

typedef struct tern_ngram {
    int32_t tokens[TERN_NGRAM_MAX];
    uint64_t count;
    uint64_t p_sum, n_p; // of the scoring: see mine.c
    bool is_likeliest;   // of those with the same prefix
} tern_ngram;

typedef struct tern_ngrams {
    tern_ngram *at[TERN_NGRAM_MAX + 1]; // [n]: sorted by tokens
    size_t n[TERN_NGRAM_MAX + 1];
    uint64_t least[TERN_NGRAM_MAX + 1]; // t
} tern_ngrams;

typedef struct tern_ngrams_desc {
    size_t memory;         // bytes of the sketch
    const tern_comm *comm; // NULL: one process. Each counts its documents; all get the sums
    tern_progress_fn on_progress;
    void *user;
} tern_ngrams_desc;

tern_status tern_ngrams_count(tern_ngrams *out, const tern_corpus *corpus,
                              const tern_ngrams_desc *desc, tern_error *err);
void tern_ngrams_free(tern_ngrams *g);
// The first of the n-grams of level n that are not before `tokens` [n_tokens], n_tokens <= n: that
// is, the first that begins with it, if any does.
size_t tern_ngrams_lower(const tern_ngrams *g, int n, const int32_t *tokens, int n_tokens);

// Exact sums of whole numbers below 2^48 over the group; nothing to do for one process.
tern_status tern_ngrams_sum(const tern_comm *comm, uint64_t *values, size_t n, tern_error *err);

#endif
