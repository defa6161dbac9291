// One recall, shared by its files: store_recall.c (the overall order), store_near.c (vectors),
// store_words.c (the index), store_hits.c (loading the best hits), store_rank.c (reranking).
#ifndef TERN_STORE_STORE_RECALL_H
#define TERN_STORE_STORE_RECALL_H

#include "store/store.h"

typedef struct tern_store_hits {
    tern_memory_hits pub;
    tern_memory_hit *list; // [n_read]
    tern_strbuf *texts;    // [4 * n_read]: text, source, heading, metadata of each
    tern_strbuf context;
    size_t n_read;   // room, in hits
    size_t n_ranked; // that a reranker reads
} tern_store_hits;

typedef struct tern_recall {
    tern_memory_store *s;
    const tern_memory_query *query;
    int32_t n_most;
    int32_t n_ranked;    // hits that the reranker reads; 0: no reranker
    size_t k;            // candidates of each list at most
    const float *vector; // of the query, or NULL
    int64_t *allowed;    // chunks that the filters allow, rising; NULL: all
    size_t n_allowed;
    tern_match *near;  // [2 k] by cosine
    int64_t *words;    // [k]
    tern_fused *fused; // [2 k]
    size_t n_near, n_words, n_fused;
    tern_store_hits *hits;
} tern_recall;

// tern_memory_recall with the query's vector, [n_dims], or NULL: without one.
tern_status tern_store_recall(tern_memory_store *s, const tern_memory_query *query,
                              const float *vector, tern_memory_hits **out, tern_error *err);
bool tern_recall_allows(const tern_recall *r, int64_t id);
tern_status tern_recall_vectors(tern_recall *r, tern_error *err);
tern_status tern_recall_words(tern_recall *r, tern_error *err);
// Reads the best hits; without a reranker, as many as requested that fit the budget.
tern_status tern_recall_hits(tern_recall *r, tern_error *err);
// Adds hit number i of those read to the result, if it fits the budget.
tern_status tern_recall_take(tern_recall *r, size_t i, tern_error *err);
// Orders the hits read by the reranker, and takes the best. Outside of the transaction.
tern_status tern_recall_rank(tern_recall *r, tern_error *err);

#endif
