// Reranking: a model reads a query and a document together, and scores how well they match.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

#define LOGITS_MAX 16 // rows of scores of all tokens in memory at once

typedef struct reranker {
    tern_reader reader;
    const tern_rerank_params *params;
    tern_str query;
    int32_t max_length;
    bool decodes; // else an encoder with a classifier
    int32_t yes, no;
    tern_ids front, back;
    tern_strbuf text;
    float *scores;
} reranker;

// ---- Decoders ----------------------------------------------------------------------------------

static tern_status find_word(const tern_tokenizer *t, const char *word, int32_t *id,
                             tern_error *err) {
    tern_ids ids = {0};
    tern_status status =
        tern_tokenizer_encode(t, word, strlen(word), TERN_TOKENIZE_PLAIN, &ids, err);
    *id = status == TERN_OK && ids.n == 1 ? ids.ids[0] : -1;
    tern_free(ids.ids);
    if (status != TERN_OK || *id >= 0) return status;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "the model has no token \"%s\" to answer with",
                     word);
}

static tern_status prepare_decoder(reranker *k, tern_error *err) {
    const tern_tokenizer *t = k->reader.m->tokenizer;
    const tern_rerank_prompt *p = &tern_rerank_prompt_usual;
    if (tern_tokenizer_find(t, (tern_str){p->mark, strlen(p->mark)}) < 0)
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "the model is not a reranker: it has neither a classifier nor the tokens of "
            "%s's template",
            p->name);
    TERN_TRY(find_word(t, "yes", &k->yes, err));
    TERN_TRY(find_word(t, "no", &k->no, err));
    TERN_TRY(tern_tokenizer_encode(t, p->front, strlen(p->front), TERN_TOKENIZE_SPECIAL, &k->front,
                                   err));
    return tern_tokenizer_encode(t, p->back, strlen(p->back), TERN_TOKENIZE_SPECIAL, &k->back, err);
}

static tern_status append(tern_ids *out, const tern_ids *more, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, out->n, more->n) != 0)
        return tern_fail_memory(err, more->n * sizeof *out->ids);
    memcpy(out->ids + out->n, more->ids, more->n * sizeof *out->ids);
    out->n += more->n;
    return TERN_OK;
}

// The document, at the end of the middle part, is cut to fit.
static tern_status encode_question(reranker *k, tern_str document, tern_error *err) {
    tern_ids *ids = &k->reader.ids;
    size_t begin = ids->n, most = (size_t)k->max_length;
    const char *instruct =
        k->params->instruction ? k->params->instruction : tern_rerank_prompt_usual.instruction;
    tern_strbuf_clear(&k->text);
    tern_strbuf_printf(&k->text, "<Instruct>: %s\n<Query>: ", instruct);
    tern_strbuf_append(&k->text, k->query.ptr, k->query.len);
    tern_strbuf_puts(&k->text, "\n<Document>: ");
    tern_strbuf_append(&k->text, document.ptr, document.len);
    if (k->text.failed) return tern_fail_memory(err, document.len);
    TERN_TRY(append(ids, &k->front, err));
    TERN_TRY(tern_tokenizer_encode(k->reader.m->tokenizer, k->text.ptr, k->text.len,
                                   TERN_TOKENIZE_PLAIN, ids, err));
    if (k->front.n + k->back.n >= most)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the question alone has %zu tokens: at most %zu",
                         k->front.n + k->back.n, most);
    if (ids->n - begin + k->back.n > most) ids->n = begin + most - k->back.n;
    return append(ids, &k->back, err);
}

// ---- All ---------------------------------------------------------------------------------------

static void take(void *user, size_t text, const float *row) {
    const reranker *k = user;
    k->scores[text] =
        k->decodes ? (float)(1 / (1 + exp((double)row[k->no] - (double)row[k->yes]))) : row[0];
}

// Whether and how the model ranks.
static tern_status look(reranker *k, tern_error *err) {
    const tern_model *m = k->reader.m;
    if (!k->decodes && m->embedding.n_labels == 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the model makes vectors and no scores of pairs");
    if (!m->tokenizer) return tern_fail(err, TERN_ERR_UNSUPPORTED, "the model has no tokenizer");
    return k->decodes ? prepare_decoder(k, err) : TERN_OK;
}

static tern_status settle(reranker *k, tern_error *err) {
    tern_reader *r = &k->reader;
    const tern_model *m = r->m;
    k->decodes = m->config.pooling == TERN_POOLING_NONE;
    tern_status status = look(k, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, m->path);
    r->output = k->decodes ? "logits" : "scores";
    r->width = k->decodes ? (size_t)m->config.n_vocab : (size_t)m->embedding.n_labels;
    r->n_outputs = k->decodes;
    r->works_max = k->decodes ? LOGITS_MAX : 0;
    r->take = take;
    r->user = k;
    const tern_embed_params params = {.max_length = k->params->max_length,
                                      .n_step = k->params->n_step,
                                      .kv_type = k->params->kv_type,
                                      .on_progress = k->params->on_progress,
                                      .user = k->params->user};
    return tern_reader_settle(r, &params, m->embedding.max_length, &k->max_length, err);
}

static tern_status add(reranker *k, const tern_embed_text *text, size_t i, tern_error *err) {
    tern_ids *ids = &k->reader.ids;
    size_t begin = ids->n;
    char which[40];
    tern_str document = {text->n_bytes ? text->text : "", text->n_bytes};
    tern_status status =
        k->decodes ? encode_question(k, document, err)
                   : tern_tokenizer_encode_pair(k->reader.m->tokenizer, k->query, document,
                                                (size_t)k->max_length, ids, err);
    snprintf(which, sizeof which, "document %zu", i + 1);
    if (status != TERN_OK) return tern_fail_prefix(err, status, which);
    if (k->params->n_tokens) k->params->n_tokens[i] = (int64_t)(ids->n - begin);
    return tern_reader_add(&k->reader, ids->n - begin, err);
}

static tern_status rerank(reranker *k, const tern_embed_text *documents, tern_error *err) {
    TERN_TRY(settle(k, err));
    for (size_t i = 0; i < k->reader.n_texts; i++) TERN_TRY(add(k, &documents[i], i, err));
    return tern_reader_finish(&k->reader, err);
}

tern_status tern_rerank(tern_model *m, const tern_embed_text *documents, size_t n_documents,
                        const tern_rerank_params *params, float *scores, tern_error *err) {
    tern_clear(err);
    TERN_NEED(m);
    TERN_NEED(params);
    TERN_NEED_ARRAY(params->query, params->n_bytes);
    TERN_NEED_ARRAY(documents, n_documents);
    TERN_NEED_ARRAY(scores, n_documents);
    for (size_t i = 0; i < n_documents; i++)
        TERN_NEED_ARRAY(documents[i].text, documents[i].n_bytes);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    reranker k = {.reader = {.m = m, .n_texts = n_documents},
                  .params = params,
                  .query = {params->n_bytes ? params->query : "", params->n_bytes},
                  .scores = scores};
    tern_model_hold(m);
    tern_status status = rerank(&k, documents, err);
    tern_reader_close(&k.reader);
    tern_free(k.front.ids);
    tern_free(k.back.ids);
    tern_strbuf_free(&k.text);
    tern_model_let_go(m);
    return status;
}
