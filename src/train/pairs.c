// Pairs of texts for training an embedding model, as token ids in memory.
//
// A line of JSON is {"query": ..., "positive": ..., "negatives": [...]}: the positive is the right
// answer to the query, negatives are wrong ones that are hard to tell from it. The ids are those
// that tern_embed would make from the text, cut to the same length.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "train/data/data.h"
#include "train/pairs.h"

// ---- Reading -----------------------------------------------------------------------------------

typedef struct reader {
    tern_pairs *pairs;
    tern_documents *documents;
    const tern_tokenizer *tokenizer;
    size_t length; // maximum tokens of a text
    size_t texts_capacity, firsts_capacity;
} reader;

static tern_status add_text(reader *r, tern_str text, tern_error *err) {
    tern_pairs *p = r->pairs;
    size_t first = p->ids.n;
    if (tern_array_reserve(TERN_MEM_FILE, &p->texts, &r->texts_capacity, p->n_texts, 1) != 0)
        return tern_fail_memory(err, sizeof *p->texts);
    if (text.len == 0) return tern_documents_fail(r->documents, "an empty text", err);
    TERN_TRY(
        tern_tokenizer_encode(r->tokenizer, text.ptr, text.len, TERN_TOKENIZE_BOS, &p->ids, err));
    size_t n = p->ids.n - first;
    if (n == 0) return tern_documents_fail(r->documents, "a text without a token", err);
    if (n > r->length) {
        TERN_TRY(tern_tokenizer_cut(r->tokenizer, p->ids.ids + first, &n, r->length, err));
        p->ids.n = first + n;
        p->n_cut++;
    }
    uint64_t key = tern_hash64(0, p->ids.ids + first, n * sizeof *p->ids.ids);
    p->texts[p->n_texts++] = (tern_pair_text){first, (int32_t)n, key};
    p->checksum = tern_crc32(p->checksum, p->ids.ids + first, n * sizeof *p->ids.ids);
    return TERN_OK;
}

static tern_status add_negatives(reader *r, const tern_json *list, tern_error *err) {
    const tern_json_doc *doc = tern_documents_json(r->documents);
    const char *wrong = "\"negatives\" is not a list of at most 32 texts";
    int32_t n = 0;
    if (!list) return TERN_OK;
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return tern_documents_fail(r->documents, wrong, err);
    for (const tern_json *j = tern_json_first(doc, list); j; j = tern_json_next(doc, list, j)) {
        tern_str text = tern_json_str(j);
        if (!text.ptr || ++n > TERN_NEGATIVES_MAX)
            return tern_documents_fail(r->documents, wrong, err);
        TERN_TRY(add_text(r, text, err));
    }
    if (n > r->pairs->n_negatives_most) r->pairs->n_negatives_most = n;
    return TERN_OK;
}

static tern_status add_pair(reader *r, tern_str query, tern_error *err) {
    tern_pairs *p = r->pairs;
    const tern_json_doc *doc = tern_documents_json(r->documents);
    const tern_json *root = doc ? tern_json_root(doc) : NULL;
    if (!tern_json_is(root, TERN_JSON_OBJECT))
        return tern_documents_fail(r->documents, "pairs are lines of JSON in a .jsonl file", err);
    tern_str positive = tern_json_str(tern_json_get(doc, root, "positive"));
    if (!positive.ptr) return tern_documents_fail(r->documents, "no text as \"positive\"", err);
    if (tern_array_reserve(TERN_MEM_FILE, &p->firsts, &r->firsts_capacity, p->n, 2) != 0)
        return tern_fail_memory(err, sizeof *p->firsts);
    p->firsts[p->n] = p->n_texts;
    TERN_TRY(add_text(r, query, err));
    TERN_TRY(add_text(r, positive, err));
    TERN_TRY(add_negatives(r, tern_json_get(doc, root, "negatives"), err));
    p->firsts[++p->n] = p->n_texts;
    return TERN_OK;
}

static tern_status read_all(reader *r, tern_error *err) {
    tern_document d;
    for (bool more = true;;) {
        TERN_TRY(tern_documents_next(r->documents, &d, &more, err));
        if (!more) return TERN_OK;
        if (d.chat) return tern_documents_fail(r->documents, "a chat is not a pair of texts", err);
        if (!d.is_rest) TERN_TRY(add_pair(r, d.text, err));
    }
}

tern_status tern_pairs_open(tern_pairs **out, const char *path, const tern_tokenizer *tokenizer,
                            int32_t length, tern_error *err) {
    *out = NULL;
    tern_pairs *p = tern_alloc(TERN_MEM_FILE, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    reader r = {.pairs = p, .tokenizer = tokenizer, .length = (size_t)length};
    tern_data_source source = {.paths = &path, .n_paths = 1, .field = "query"};
    tern_status status = tern_documents_open(&r.documents, &source, err);
    if (status == TERN_OK) status = read_all(&r, err);
    tern_documents_close(r.documents);
    if (status == TERN_OK && p->n == 0)
        status = tern_fail(err, TERN_ERR_ARGUMENT, "%s: there are no pairs in it", path);
    if (status == TERN_OK)
        *out = p;
    else
        tern_pairs_close(p);
    return status;
}

void tern_pairs_close(tern_pairs *p) {
    if (!p) return;
    tern_free(p->ids.ids);
    tern_free(p->texts);
    tern_free(p->firsts);
    tern_free(p);
}
