// Recall: the lists by vectors and by words, their fusion, and reading the hits.
#include "store/store_recall.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// Candidates fused from each list. More would only change places after the sixtieth.
#define CANDIDATES 64
// Hits that a reranker reads: the default, and the maximum.
#define RANKED     32
#define RANKED_MAX 1000

static tern_status make_room(tern_recall *r, tern_error *err) {
    size_t most = (size_t)(r->n_ranked ? r->n_ranked : r->n_most);
    r->k = 4 * most > CANDIDATES ? 4 * most : CANDIDATES;
    size_t bytes = 2 * r->k * sizeof(tern_match);
    r->near = tern_alloc(TERN_MEM_MISC, bytes); // room for twice as many before rescoring
    r->words = tern_alloc_array(TERN_MEM_MISC, r->k, sizeof *r->words);
    r->fused = tern_alloc_array(TERN_MEM_MISC, 2 * r->k, sizeof *r->fused);
    return r->near && r->words && r->fused ? TERN_OK : tern_fail_memory(err, bytes);
}

static tern_status embed_query(const tern_memory_store *s, const tern_memory_query *query,
                               float **vector, tern_error *err) {
    size_t n = (size_t)s->embedding.n_dims;
    const tern_embed_text text = {.text = query->text, .n_bytes = query->n_bytes};
    const tern_embed_params params = {.prompt = s->query_prompt};
    *vector = tern_alloc_array(TERN_MEM_MISC, n, sizeof **vector);
    if (!*vector) return tern_fail_memory(err, n * sizeof **vector);
    return tern_embed(s->model, &text, 1, &params, *vector, err);
}

static tern_status search(tern_recall *r, tern_error *err) {
    tern_memory_store *s = r->s;
    TERN_TRY(tern_store_know_model(s, err));
    if (r->query->n_filters)
        TERN_TRY(tern_store_allowed(s, r->query->filters, r->query->n_filters, &r->allowed,
                                    &r->n_allowed, err));
    if (r->vector && s->n_dims) TERN_TRY(tern_recall_vectors(r, err));
    if (r->query->search != TERN_MEMORY_VECTORS) TERN_TRY(tern_recall_words(r, err));
    int64_t *ids = tern_alloc_array(TERN_MEM_MISC, r->n_near + 1, sizeof *ids);
    if (!ids) return tern_fail_memory(err, r->n_near * sizeof *ids);
    for (size_t i = 0; i < r->n_near; i++) ids[i] = r->near[i].id;
    tern_fuse(r->fused, &r->n_fused, ids, r->n_near, r->words, r->n_words);
    tern_free(ids);
    return tern_recall_hits(r, err);
}

static tern_status check(const tern_memory_store *s, const tern_memory_query *q, tern_error *err) {
    TERN_NEED_ARRAY(q->text, q->n_bytes);
    TERN_TRY(tern_store_check_filters(q->filters, q->n_filters, err));
    if (q->n_most < 0 || q->n_most > 100000 || q->max_tokens < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "recall of %d hits in %d tokens: out of range",
                         (int)q->n_most, (int)q->max_tokens);
    if (q->n_candidates < 0 || q->n_candidates > RANKED_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d candidates: a reranker reads up to %d",
                         (int)q->n_candidates, RANKED_MAX);
    if (q->reranker && q->n_most > RANKED_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d hits: a reranker reads up to %d",
                         (int)q->n_most, RANKED_MAX);
    if (isnan(q->least_similarity))
        return tern_fail(err, TERN_ERR_ARGUMENT, "least_similarity is not a number");
    if (q->search > TERN_MEMORY_WORDS)
        return tern_fail(err, TERN_ERR_ARGUMENT, "there is no search %d", (int)q->search);
    if (q->search == TERN_MEMORY_VECTORS && !s->model)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: a search of vectors needs the model that made them", s->path);
    return TERN_OK;
}

static void free_recall(tern_recall *r) {
    tern_free(r->near);
    tern_free(r->words);
    tern_free(r->fused);
    tern_free(r->allowed);
}

tern_status tern_store_recall(tern_memory_store *s, const tern_memory_query *query,
                              const float *vector, tern_memory_hits **out, tern_error *err) {
    tern_recall r = {
        .s = s, .query = query, .n_most = query->n_most ? query->n_most : 8, .vector = vector};
    if (query->reranker) {
        r.n_ranked = query->n_candidates ? query->n_candidates : RANKED;
        if (r.n_ranked < r.n_most) r.n_ranked = r.n_most;
    }
    tern_status status = make_room(&r, err);
    if (status == TERN_OK) status = tern_store_begin(s, "BEGIN", err);
    if (status == TERN_OK) status = tern_store_end(s, search(&r, err), err);
    if (status == TERN_OK && r.hits->n_ranked) status = tern_recall_rank(&r, err);
    free_recall(&r);
    if (status == TERN_OK) {
        r.hits->pub.context = tern_strbuf_text(&r.hits->context);
        r.hits->pub.n_bytes = r.hits->context.len;
        *out = &r.hits->pub;
    } else if (r.hits) {
        tern_memory_hits_free(&r.hits->pub);
    }
    return status;
}

tern_status tern_memory_recall(tern_memory_store *store, const tern_memory_query *query,
                               tern_memory_hits **out, tern_error *err) {
    tern_clear(err);
    float *vector = NULL;
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(store);
    TERN_NEED(query);
    TERN_TRY(check(store, query, err));
    tern_status status = TERN_OK;
    if (store->model && query->search != TERN_MEMORY_WORDS && query->n_bytes)
        status = embed_query(store, query, &vector, err);
    if (status == TERN_OK) status = tern_store_recall(store, query, vector, out, err);
    tern_free(vector);
    return status;
}
