// A memory (include/tern_memory.h) in a page: the unchanged store, over the page's SQLite, with a
// model outside this module (memory_model.h).
//
// Vectors and token counts are not available at once, and nothing here can wait. So a call may be
// made several times: if it needed unknown values, the page rolls back, computes them, and repeats
// the call.
//
// One store for each instance of the module. Calls follow web.h.
#include <string.h>
#include "apps/web/web.h"
#include "apps/web/web_args.h"
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "memory_model.h"
#include "tern_memory.h"

WEB_EXPORT(memory_open) int32_t memory_open(const char *json, uint32_t n);
WEB_EXPORT(memory_close) void memory_close(void);
WEB_EXPORT(memory_add) int32_t memory_add(const char *json, uint32_t n);
WEB_EXPORT(memory_recall) int32_t memory_recall(const char *json, uint32_t n);
WEB_EXPORT(memory_list) int32_t memory_list(const char *json, uint32_t n);
WEB_EXPORT(memory_forget) int32_t memory_forget(const char *json, uint32_t n);
WEB_EXPORT(memory_export) int32_t memory_export(const char *json, uint32_t n);
WEB_EXPORT(memory_import) int32_t memory_import(const char *json, uint32_t n);
WEB_EXPORT(memory_info) int32_t memory_info(void);
WEB_EXPORT(memory_compact) int32_t memory_compact(void);
WEB_EXPORT(memory_rules) int32_t memory_rules(void);

#define N(fields) (sizeof(fields) / sizeof *(fields))

// ---- Opening ------------------------------------------------------------------------------------

static struct {
    tern_memory_store *store;
    char *json; // model points into args
    web_args args;
    tern_model model;
    const char *folder;
    bool embeds, counts;
} here;

void memory_close(void) {
    tern_memory_close(here.store);
    web_args_free(&here.args);
    tern_free(here.model.prompts);
    tern_free(here.json);
    memset(&here, 0, sizeof here);
}

static tern_status read_prompts(const tern_json *list, tern_error *err) {
    const char *const *names;
    TERN_TRY(web_args_strings(&here.args, "memory", "prompts", list, &names, err));
    here.model.prompts = tern_alloc_array(TERN_MEM_MISC, list->n, sizeof *here.model.prompts);
    if (!here.model.prompts) return tern_fail_memory(err, list->n);
    here.model.n_prompts = list->n;
    for (size_t i = 0; i < list->n; i++)
        here.model.prompts[i] = (tern_embedding_prompt){names[i], ""};
    return TERN_OK;
}

static tern_status open_read(size_t n, tern_error *err) {
    const tern_json *prompts = NULL;
    const web_field fields[] = {
        {"folder", WEB_STRING, &here.folder, 0, 0, NULL},
        {"name", WEB_STRING, &here.model.name, 0, 0, NULL},
        {"path", WEB_STRING, &here.model.path, 0, 0, NULL},
        {"n_dims", WEB_INT, &here.model.n_dims, 0, 1 << 20, NULL},
        {"max_length", WEB_INT, &here.model.max_length, 0, INT32_MAX, NULL},
        {"prompts", WEB_ARRAY, &prompts, 0, 0, NULL},
        {"embeds", WEB_BOOL, &here.embeds, 0, 0, NULL},
        {"counts", WEB_BOOL, &here.counts, 0, 0, NULL},
    };
    TERN_TRY(web_args_read(&here.args, "memory", here.json, n, fields, N(fields), err));
    if (!here.folder || !here.model.path)
        return tern_fail(err, TERN_ERR_ARGUMENT, "memory: \"folder\" or \"path\" is missing");
    return prompts ? read_prompts(prompts, err) : TERN_OK;
}

int32_t memory_open(const char *json, uint32_t n) {
    tern_error err = {0};
    memory_close();
    here.json = tern_strndup(TERN_MEM_MISC, json, n);
    tern_status status = here.json ? open_read(n, &err) : tern_fail_memory(&err, n);
    const tern_memory_desc desc = {.model = here.embeds ? &here.model : NULL,
                                   .counter = here.counts ? &here.model : NULL,
                                   .n_threads = 1};
    if (status == TERN_OK) status = tern_memory_open(&here.store, here.folder, &desc, &err);
    if (status == TERN_OK) return 0;
    memory_close();
    return web_fail(&err);
}

// ---- Arguments ----------------------------------------------------------------------------------

typedef struct request { // for any of the calls
    web_args args;
    tern_memory_item item;
    tern_memory_add_params add;
    tern_memory_query query;
    tern_memory_filter *filters;
    size_t n_filters;
    tern_str text, lines;
    uint64_t id;
} request;

static tern_status read_filters(request *r, const tern_json *list, tern_error *err) {
    r->filters = tern_alloc_array(TERN_MEM_MISC, list->n, sizeof *r->filters);
    if (!r->filters) return tern_fail_memory(err, list->n * sizeof *r->filters);
    for (const tern_json *at = tern_json_first(&r->args.doc, list); at;
         at = tern_json_next(&r->args.doc, list, at)) {
        tern_memory_filter *f = &r->filters[r->n_filters++];
        int32_t compare = 0;
        const web_field fields[] = {{"key", WEB_STRING, &f->key, 0, 0, NULL},
                                    {"value", WEB_STRING, &f->value, 0, 0, NULL},
                                    {"compare", WEB_CHOICE, &compare, 0, 0, "= != < <= > >= ^="}};
        TERN_TRY(web_args_object(&r->args, "where", at, fields, N(fields), err));
        f->compare = (tern_memory_compare)compare;
    }
    return TERN_OK;
}

static tern_status request_read(request *r, const char *what, const char *json, size_t n,
                                tern_error *err) {
    const tern_json *where = NULL, *patterns = NULL;
    int32_t format = 0, search = 0;
    uint64_t created = 0;
    const web_field fields[] = {
        {"text", WEB_TEXT, &r->text, 0, 0, NULL},
        {"lines", WEB_TEXT, &r->lines, 0, 0, NULL},
        {"source", WEB_STRING, &r->item.source, 0, 0, NULL},
        {"metadata", WEB_STRING, &r->item.metadata, 0, 0, NULL},
        {"format", WEB_CHOICE, &format, 0, 0, "auto text markdown code"},
        {"created", WEB_COUNT, &created, 0, 0, NULL},
        {"chunk_tokens", WEB_INT, &r->add.chunk_tokens, 0, INT32_MAX, NULL},
        {"overlap_tokens", WEB_INT, &r->add.overlap_tokens, -1, INT32_MAX, NULL},
        {"whole", WEB_BOOL, &r->add.whole, 0, 0, NULL},
        {"replace", WEB_BOOL, &r->add.replace, 0, 0, NULL},
        {"keep_secrets", WEB_BOOL, &r->add.keep_secrets, 0, 0, NULL},
        {"patterns", WEB_ARRAY, &patterns, 0, 0, NULL},
        {"limit", WEB_INT, &r->query.n_most, 0, 100000, NULL},
        {"max_tokens", WEB_INT, &r->query.max_tokens, 0, INT32_MAX, NULL},
        {"search", WEB_CHOICE, &search, 0, 0, "hybrid vectors words"},
        {"least_similarity", WEB_NUMBER, &r->query.least_similarity, -1, 1, NULL},
        {"exact", WEB_BOOL, &r->query.exact, 0, 0, NULL},
        {"where", WEB_ARRAY, &where, 0, 0, NULL},
        {"id", WEB_COUNT, &r->id, 0, 0, NULL},
    };
    if (!here.store) return tern_fail(err, TERN_ERR_ARGUMENT, "%s: no memory is open", what);
    TERN_TRY(web_args_read(&r->args, what, json, n, fields, N(fields), err));
    r->item.format = (tern_memory_format)format;
    r->item.created = (int64_t)created;
    r->item.text = r->query.text = r->text.ptr ? r->text.ptr : "";
    r->item.n_bytes = r->query.n_bytes = r->text.len;
    r->query.search = (tern_memory_search)search;
    if (where) TERN_TRY(read_filters(r, where, err));
    r->query.filters = r->filters;
    r->query.n_filters = r->n_filters;
    if (!patterns) return TERN_OK;
    r->add.n_patterns = patterns->n;
    return web_args_strings(&r->args, what, "patterns", patterns, &r->add.patterns, err);
}

static int32_t request_end(request *r, tern_status status, const tern_error *err) {
    web_args_free(&r->args);
    tern_free(r->filters);
    return status == TERN_OK ? web_result_end() : web_fail(err);
}

// ---- Calls --------------------------------------------------------------------------------------

int32_t memory_add(const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    tern_memory_added added = {0};
    tern_status status = request_read(&r, "add", json, n, &err);
    if (status == TERN_OK) status = tern_memory_add(here.store, &r.item, &r.add, &added, &err);
    tern_json_writer w = {.out = web_result_begin()};
    tern_json_open(&w, NULL, '{');
    tern_json_put_int(&w, "id", added.id);
    tern_json_put_int(&w, "n_chunks", (int64_t)added.n_chunks);
    tern_json_put_int(&w, "n_redacted", (int64_t)added.n_redacted);
    tern_json_put_bool(&w, "was_there", added.was_there);
    tern_json_close(&w, '}');
    return request_end(&r, status, &err);
}

static void put_hit(tern_json_writer *w, const tern_memory_hit *h) {
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "id", h->id);
    tern_json_put_int(w, "record", h->record);
    tern_json_put_text(w, "text", h->text);
    tern_json_put_text(w, "source", h->source);
    tern_json_put_text(w, "heading", h->heading);
    tern_json_put_raw(w, "metadata", *h->metadata ? h->metadata : "{}");
    tern_json_put_int(w, "created", h->created);
    tern_json_put_int(w, "n_tokens", h->n_tokens);
    tern_json_put_int(w, "first_line", h->first_line);
    tern_json_put_float(w, "score", h->score);
    tern_json_put_float(w, "similarity", h->similarity);
    tern_json_put_int(w, "vector_rank", h->vector_rank);
    tern_json_put_int(w, "word_rank", h->word_rank);
    tern_json_close(w, '}');
}

int32_t memory_recall(const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    tern_memory_hits *hits = NULL;
    tern_status status = request_read(&r, "recall", json, n, &err);
    if (status == TERN_OK) status = tern_memory_recall(here.store, &r.query, &hits, &err);
    tern_json_writer w = {.out = web_result_begin()};
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "hits", '[');
    for (size_t i = 0; hits && i < hits->n; i++) put_hit(&w, &hits->list[i]);
    tern_json_close(&w, ']');
    tern_json_put_text(&w, "context", hits ? hits->context : "");
    tern_json_put_int(&w, "n_tokens", hits ? hits->n_tokens : 0);
    tern_json_close(&w, '}');
    tern_memory_hits_free(hits);
    return request_end(&r, status, &err);
}

static bool put_record(void *user, const tern_memory_record *record) {
    tern_json_writer *w = user;
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "id", record->id);
    tern_json_put_text(w, "source", record->source);
    tern_json_put_raw(w, "metadata", *record->metadata ? record->metadata : "{}");
    tern_json_put_int(w, "created", record->created);
    tern_json_put_int(w, "n_chunks", record->n_chunks);
    tern_json_put_int(w, "n_tokens", record->n_tokens);
    tern_json_put_int(w, "n_bytes", record->n_bytes);
    if (record->text) tern_json_put_text(w, "text", record->text);
    tern_json_close(w, '}');
    return !w->out->failed;
}

// Lists all records that fit, or one record by its id, with its text.
int32_t memory_list(const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    tern_status status = request_read(&r, "list", json, n, &err);
    tern_json_writer w = {.out = web_result_begin()};
    tern_json_open(&w, NULL, '[');
    if (status == TERN_OK && r.id)
        status = tern_memory_show(here.store, (int64_t)r.id, put_record, &w, &err);
    else if (status == TERN_OK)
        status = tern_memory_list(here.store, r.filters, r.n_filters, put_record, &w, &err);
    tern_json_close(&w, ']');
    return request_end(&r, status, &err);
}

int32_t memory_forget(const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    int64_t n_records = 1;
    tern_status status = request_read(&r, "forget", json, n, &err);
    if (status == TERN_OK && r.id)
        status = tern_memory_forget(here.store, (int64_t)r.id, &err);
    else if (status == TERN_OK)
        status = tern_memory_forget_where(here.store, r.filters, r.n_filters, &n_records, &err);
    tern_strbuf_printf(web_result_begin(), "%lld", (long long)n_records);
    return request_end(&r, status, &err);
}

int32_t memory_export(const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    tern_strbuf lines = {0};
    tern_status status = request_read(&r, "export", json, n, &err);
    if (status == TERN_OK)
        status = tern_memory_export(here.store, r.filters, r.n_filters, web_append, &lines, &err);
    tern_strbuf_json(web_result_begin(), tern_strbuf_text(&lines), lines.len);
    tern_strbuf_free(&lines);
    return request_end(&r, status, &err);
}

int32_t memory_import(const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    int64_t n_records = 0;
    tern_status status = request_read(&r, "import", json, n, &err);
    if (status == TERN_OK)
        status = tern_memory_import(here.store, r.lines.ptr ? r.lines.ptr : "", r.lines.len, &r.add,
                                    &n_records, &err);
    tern_strbuf_printf(web_result_begin(), "%lld", (long long)n_records);
    return request_end(&r, status, &err);
}

int32_t memory_info(void) {
    tern_error err = {0};
    tern_memory_info i;
    if (tern_memory_get_info(here.store, &i, &err) != TERN_OK) return web_fail(&err);
    tern_json_writer w = {.out = web_result_begin()};
    tern_json_open(&w, NULL, '{');
    tern_json_put_int(&w, "n_records", i.n_records);
    tern_json_put_int(&w, "n_chunks", i.n_chunks);
    tern_json_put_int(&w, "n_tokens", i.n_tokens);
    tern_json_put_int(&w, "n_vectors", i.n_vectors);
    tern_json_put_int(&w, "n_dims", i.n_dims);
    tern_json_put_int(&w, "n_bytes", (int64_t)i.n_bytes);
    tern_json_put_text(&w, "model", i.model_name);
    tern_json_close(&w, '}');
    return web_result_end();
}

int32_t memory_compact(void) {
    tern_error err = {0};
    return tern_memory_compact(here.store, &err) == TERN_OK ? 0 : web_fail(&err);
}

int32_t memory_rules(void) {
    tern_json_writer w = {.out = web_result_begin()};
    const char *pattern, *name;
    tern_json_open(&w, NULL, '[');
    for (size_t i = 0; (name = tern_memory_rule(i, &pattern)); i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "name", name);
        tern_json_put_text(&w, "pattern", pattern);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    return web_result_end();
}
