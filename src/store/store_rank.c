// Orders the hits by a reranker: it reads the question with each passage, which is more accurate
// than vectors and slower, so it reads only the best.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "store/store_recall.h"

// By the reranker's scores; equal ones in the order of the fusion.
static int most_relevant_first(const void *a, const void *b) {
    const tern_memory_hit *x = a, *y = b;
    if (x->relevance != y->relevance) return x->relevance > y->relevance ? -1 : 1;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

// Passages for the reranker, one after the other: each under its headings, as they were embedded.
static tern_status write_passages(const tern_store_hits *h, tern_strbuf *all,
                                  tern_embed_text *passages, tern_error *err) {
    for (size_t i = 0; i < h->n_ranked; i++) {
        const tern_memory_hit *hit = &h->list[i];
        const size_t before = all->len;
        if (*hit->heading) tern_strbuf_printf(all, "%s\n\n", hit->heading);
        tern_strbuf_append(all, hit->text, hit->n_bytes);
        passages[i].n_bytes = all->len - before;
    }
    if (all->failed) return tern_fail_memory(err, all->len);
    const char *at = tern_strbuf_text(all);
    for (size_t i = 0; i < h->n_ranked; at += passages[i++].n_bytes) passages[i].text = at;
    return TERN_OK;
}

static tern_status score(const tern_recall *r, tern_embed_text *passages, float *scores,
                         tern_error *err) {
    const tern_memory_query *q = r->query;
    const tern_rerank_params params = {.query = q->text, .n_bytes = q->n_bytes};
    tern_strbuf all = {0};
    tern_status status = write_passages(r->hits, &all, passages, err);
    if (status == TERN_OK)
        status = tern_rerank(q->reranker, passages, r->hits->n_ranked, &params, scores, err);
    tern_strbuf_free(&all);
    return status;
}

tern_status tern_recall_rank(tern_recall *r, tern_error *err) {
    tern_store_hits *h = r->hits;
    const size_t n = h->n_ranked;
    tern_embed_text *passages = tern_alloc_array(TERN_MEM_MISC, n, sizeof *passages);
    float *scores = tern_alloc_array(TERN_MEM_MISC, n, sizeof *scores);
    tern_status status = TERN_OK;
    if (!passages || !scores) status = tern_fail_memory(err, n * sizeof *passages);
    if (status == TERN_OK) status = score(r, passages, scores, err);
    for (size_t i = 0; i < n && status == TERN_OK; i++) h->list[i].relevance = scores[i];
    tern_free(passages);
    tern_free(scores);
    if (status == TERN_OK) qsort(h->list, n, sizeof *h->list, most_relevant_first);
    for (size_t i = 0; i < n && status == TERN_OK && h->pub.n < (size_t)r->n_most; i++)
        status = tern_recall_take(r, i, err);
    return status;
}
