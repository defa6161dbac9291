// Vectors of texts (docs/embeddings.md), computed in steps: the page polls until they are done.
#include "web.h"

#include <string.h>
#include "base/alloc.h"
#include "web_args.h"
#include "tern_embed.h"

WEB_EXPORT(web_embed) int32_t web_embed(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_embed_poll) int32_t web_embed_poll(int32_t id);
WEB_EXPORT(web_embed_vectors) const float *web_embed_vectors(int32_t id);
WEB_EXPORT(web_embed_close) int32_t web_embed_close(int32_t id);

struct web_embedding {
    int32_t id;
    char *json; // args point into it
    web_args args;
    tern_embed_text *texts;
    size_t n_texts;
    tern_embed_params params;
    int32_t n_dims;
    const float *vectors; // once it is done
    int64_t *n_tokens;
    bool *was_cut;
    tern_embedding *begun;
    struct web_embedding *next;
};
static int32_t last_embedding;

static web_embedding **place_of(int32_t id, tern_error *err) {
    for (web_model *m = web_model_first(); m; m = m->next)
        for (web_embedding **at = &m->embeddings; *at; at = &(*at)->next)
            if ((*at)->id == id) return at;
    tern_fail(err, TERN_ERR_ARGUMENT, "there is no embedding %d", id);
    return NULL;
}

static void embedding_free(web_embedding *e) {
    tern_embed_close(e->begun);
    web_args_free(&e->args);
    tern_free(e->json);
    tern_free(e->texts);
    tern_free(e->n_tokens);
    tern_free(e->was_cut);
    tern_free(e);
}

void web_embeddings_close(web_model *m) {
    while (m->embeddings) {
        web_embedding *e = m->embeddings;
        m->embeddings = e->next;
        embedding_free(e);
    }
}

// ---- Beginning ----------------------------------------------------------------------------------

static tern_status read_texts(web_embedding *e, const tern_json *array, tern_error *err) {
    e->texts = tern_alloc_array(TERN_MEM_MISC, array->n, sizeof *e->texts);
    if (!e->texts) return tern_fail_memory(err, array->n * sizeof *e->texts);
    for (const tern_json *item = tern_json_first(&e->args.doc, array); item;
         item = tern_json_next(&e->args.doc, array, item)) {
        tern_str text = tern_json_str(item);
        if (!text.ptr) return tern_fail(err, TERN_ERR_ARGUMENT, "embed: \"texts\" must be texts");
        e->texts[e->n_texts++] = (tern_embed_text){.text = text.ptr, .n_bytes = text.len};
    }
    return TERN_OK;
}

static tern_status embedding_read(web_embedding *e, size_t n, tern_error *err) {
    const tern_json *texts = NULL;
    tern_embed_params *p = &e->params;
    const web_field fields[] = {
        {"texts", WEB_ARRAY, &texts, 0, 0, NULL},
        {"prompt", WEB_STRING, &p->prompt, 0, 0, NULL},
        {"prefix", WEB_STRING, &p->prefix, 0, 0, NULL},
        {"max_length", WEB_INT, &p->max_length, 0, INT32_MAX, NULL},
        {"dimensions", WEB_INT, &p->n_dims, 0, INT32_MAX, NULL},
    };
    TERN_TRY(
        web_args_read(&e->args, "embed", e->json, n, fields, sizeof fields / sizeof *fields, err));
    if (!texts) return tern_fail(err, TERN_ERR_ARGUMENT, "embed: \"texts\" is missing");
    return read_texts(e, texts, err);
}

static tern_status make_room(web_embedding *e, const tern_model *model, tern_error *err) {
    tern_embedding_info info;
    tern_embedding_get_info(model, &info);
    e->n_dims = e->params.n_dims ? e->params.n_dims : info.n_dims;
    e->n_tokens = tern_alloc_array(TERN_MEM_MISC, e->n_texts, sizeof *e->n_tokens);
    e->was_cut = tern_alloc_array(TERN_MEM_MISC, e->n_texts, sizeof *e->was_cut);
    e->params.n_tokens = e->n_tokens;
    e->params.was_cut = e->was_cut;
    if (e->n_tokens && e->was_cut) return TERN_OK;
    return tern_fail_memory(err, e->n_texts * sizeof *e->n_tokens);
}

// Begins an embedding; returns its id.
int32_t web_embed(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    web_gpu_enter(false);
    web_embedding *e = tern_alloc(TERN_MEM_MISC, sizeof *e);
    if (e) e->json = tern_strndup(TERN_MEM_MISC, json, n);
    tern_status status = e && e->json ? embedding_read(e, n, &err) : tern_fail_memory(&err, n);
    if (status == TERN_OK) status = make_room(e, m->model, &err);
    if (status == TERN_OK)
        status = tern_embed_begin(&e->begun, m->model, e->texts, e->n_texts, &e->params, &err);
    if (status != TERN_OK) {
        if (e) embedding_free(e);
        return web_fail(&err);
    }
    e->id = ++last_embedding;
    e->next = m->embeddings;
    m->embeddings = e;
    return e->id;
}

// ---- Steps --------------------------------------------------------------------------------------

static int32_t put_result(const web_embedding *e) {
    tern_strbuf *b = web_result_begin();
    tern_strbuf_printf(b, "{\"n_dims\":%d,\"n_tokens\":[", e->n_dims);
    for (size_t i = 0; i < e->n_texts; i++)
        tern_strbuf_printf(b, i ? ",%lld" : "%lld", (long long)e->n_tokens[i]);
    tern_strbuf_puts(b, "],\"cut\":[");
    for (size_t i = 0; i < e->n_texts; i++) tern_strbuf_printf(b, i ? ",%d" : "%d", e->was_cut[i]);
    tern_strbuf_puts(b, "]}");
    return web_result_end();
}

// 0: not yet; 1: done, with a description in web_result. After a failure the id is no longer valid.
int32_t web_embed_poll(int32_t id) {
    tern_error err = {0};
    bool done = false;
    web_embedding **at = place_of(id, &err), *e = at ? *at : NULL;
    if (!e) return web_fail(&err);
    web_gpu_enter(false);
    tern_status status = tern_embed_poll(e->begun, &done, &e->vectors, &err);
    if (status != TERN_OK) {
        *at = e->next;
        embedding_free(e);
        return web_fail(&err);
    }
    int32_t failed = done ? put_result(e) : 0;
    return failed ? failed : done;
}

// [texts, n_dims], until it is closed. NULL: not done, or no such id.
const float *web_embed_vectors(int32_t id) {
    tern_error err = {0};
    web_embedding **at = place_of(id, &err);
    return at ? (*at)->vectors : NULL;
}

int32_t web_embed_close(int32_t id) {
    tern_error err = {0};
    web_embedding **at = place_of(id, &err), *e = at ? *at : NULL;
    if (!e) return web_fail(&err);
    web_gpu_enter(false);
    *at = e->next;
    embedding_free(e);
    return 0;
}
