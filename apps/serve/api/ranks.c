// POST /v1/score in vLLM's format, and /v1/rerank in the format of Jina, Cohere and llama-server,
// and in that of Text Embeddings Inference, which is recognised by its field "texts", as in
// llama-server.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/request/texts.h"
#include "base/alloc.h"

// ---- The answer --------------------------------------------------------------------------------

typedef struct ranked {
    size_t index;
    float score;
} ranked;

static int by_score(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static ranked *rank(const texts *t) {
    ranked *list = tern_alloc_array(TERN_MEM_SESSION, t->n, sizeof *list);
    for (size_t i = 0; i < t->n && list; i++) list[i] = (ranked){i, t->numbers[i]};
    if (list) qsort(list, t->n, sizeof *list, by_score);
    return list;
}

static void put_result(tern_json_writer *w, const texts *t, const ranked *r) {
    const tern_embed_text *text = &t->list[r->index];
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "index", (int64_t)r->index);
    tern_json_put_float(w, t->as_tei ? "score" : "relevance_score", r->score);
    if (t->with_documents && t->as_tei) {
        tern_json_put_bytes(w, "text", text->text, text->n_bytes);
    } else if (t->with_documents) {
        tern_json_open(w, "document", '{');
        tern_json_put_bytes(w, "text", text->text, text->n_bytes);
        tern_json_close(w, '}');
    }
    tern_json_close(w, '}');
}

static void reply(request *req, const texts *t) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    ranked *list = rank(t);
    int64_t n = (int64_t)texts_count_tokens(t);
    if (!list) out.failed = true;
    if (!t->as_tei) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "model", req->generation->model);
        tern_json_put_text(&w, "object", "list");
        tern_json_open(&w, "usage", '{');
        tern_json_put_int(&w, "prompt_tokens", n);
        tern_json_put_int(&w, "total_tokens", n);
        tern_json_close(&w, '}');
    }
    tern_json_open(&w, t->as_tei ? NULL : "results", '[');
    for (size_t i = 0; list && i < t->n && i < t->n_best; i++) put_result(&w, t, &list[i]);
    tern_json_close(&w, ']');
    if (!t->as_tei) tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
    tern_free(list);
}

// ---- The request -------------------------------------------------------------------------------

// A text, or an object with one, as in Cohere's interface.
static void add_document(texts *t, const fields *f, const tern_json *item) {
    const tern_json *text =
        tern_json_is(item, TERN_JSON_OBJECT) ? tern_json_get(f->doc, item, "text") : item;
    if (tern_json_is(text, TERN_JSON_STRING))
        texts_add_text(t, tern_json_str(text), f->error);
    else
        field_fail(f, t->param, "a list of at least one text");
}

static void read_query(texts *t, const fields *f) {
    tern_str query = field_text(f, "query");
    if (!query.ptr) {
        field_fail(f, "query", "given");
        return;
    }
    t->query = tern_strndup(TERN_MEM_SESSION, query.ptr, query.len);
    t->n_query = query.len;
    if (!t->query) api_fail_memory(f->error);
}

void llama_rerank(request *req) {
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    bool as_tei = field_any(&f, "texts") != NULL;
    texts *t = generation_new(req, NULL, &e)
                   ? texts_new(req, as_tei ? "texts" : "documents", reply, &e)
                   : NULL;
    if (!t) {
        reply_error(req, &e);
        return;
    }
    t->ranks = t->cuts = true;
    t->as_tei = as_tei;
    generation_read_model(req, &f);
    read_query(t, &f);
    t->n_best = as_tei ? SIZE_MAX : (size_t)field_int(&f, "top_n", INT32_MAX, 1, INT32_MAX);
    t->with_documents = field_bool(&f, as_tei ? "return_text" : "return_documents", false);
    const tern_json *list = field_array(&f, t->param);
    if (!list || list->n == 0) field_fail(&f, t->param, "a list of at least one text");
    for (const tern_json *item = tern_json_first(f.doc, list); item && !e.status;
         item = tern_json_next(f.doc, list, item))
        add_document(t, &f, item);
    texts_begin(req, t, &e);
}

// ---- Scores of pairs ---------------------------------------------------------------------------

static void reply_scores(request *req, const texts *t) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    int64_t n = (int64_t)texts_count_tokens(t);
    char id[64];
    snprintf(id, sizeof id, "score-%s", req->id + 4);
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "id", id);
    tern_json_put_text(&w, "object", "list");
    tern_json_put_int(&w, "created", req->generation->created);
    tern_json_put_text(&w, "model", req->generation->model);
    tern_json_open(&w, "data", '[');
    for (size_t i = 0; i < t->n; i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_int(&w, "index", (int64_t)i);
        tern_json_put_text(&w, "object", "score");
        tern_json_put_float(&w, "score", t->numbers[i]);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    tern_json_open(&w, "usage", '{');
    tern_json_put_int(&w, "prompt_tokens", n);
    tern_json_put_int(&w, "total_tokens", n);
    tern_json_put_int(&w, "completion_tokens", 0);
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void add_query(texts *t, const fields *f, tern_str query) {
    if (t->n_queries >= t->n) return; // that they are too many is said below
    if (tern_array_reserve(TERN_MEM_SESSION, &t->queries, &t->queries_capacity, t->n_queries, 1) !=
        0) {
        api_fail_memory(f->error);
        return;
    }
    char *copy = tern_strndup(TERN_MEM_SESSION, query.ptr, query.len);
    if (!copy) api_fail_memory(f->error);
    if (copy) t->queries[t->n_queries++] = (tern_embed_text){.text = copy, .n_bytes = query.len};
}

// One text for all of the others, or one for each.
static void read_first(texts *t, const fields *f, const char *name) {
    const tern_json *given = field_any(f, name);
    const bool is_list = tern_json_is(given, TERN_JSON_ARRAY);
    const size_t n = is_list ? given->n : 1;
    const tern_json *item = is_list ? tern_json_first(f->doc, given) : given;
    for (; item && !f->error->status; item = is_list ? tern_json_next(f->doc, given, item) : NULL) {
        const tern_str text = tern_json_str(item);
        if (!text.ptr)
            field_fail(f, name, "a text, or a list of texts");
        else if (n > 1)
            add_query(t, f, text);
        else if (!(t->query = tern_strndup(TERN_MEM_SESSION, text.ptr, text.len)))
            api_fail_memory(f->error);
        else
            t->n_query = text.len;
    }
    if (!given || n == 0) field_fail(f, name, "a text, or a list of texts");
    if (n > 1 && n != t->n && !f->error->status)
        api_fail(f->error, 400, NULL, name,
                 "'%s' has %zu texts, and '%s' has %zu: one for all, or as many", name, n, t->param,
                 t->n);
}

void score_pairs(request *req) {
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    const bool is_newer = field_any(&f, "queries") != NULL;
    const char *first = is_newer ? "queries" : "text_1",
               *second = is_newer ? "documents" : "text_2";
    texts *t = generation_new(req, NULL, &e) ? texts_new(req, second, reply_scores, &e) : NULL;
    if (!t) {
        reply_error(req, &e);
        return;
    }
    t->ranks = t->cuts = true;
    generation_read_model(req, &f);
    const tern_json *list = field_any(&f, second);
    if (tern_json_is(list, TERN_JSON_ARRAY) && list->n)
        for (const tern_json *item = tern_json_first(f.doc, list); item && !e.status;
             item = tern_json_next(f.doc, list, item))
            add_document(t, &f, item);
    else if (tern_json_is(list, TERN_JSON_STRING))
        texts_add_text(t, tern_json_str(list), &e);
    else
        field_fail(&f, second, "a text, or a list of texts");
    if (!e.status) read_first(t, &f, first);
    texts_begin(req, t, &e);
}
