// Export and import: a line of JSON for each record.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "store/store.h"

// ---- Export -------------------------------------------------------------------------------------

typedef struct exporter {
    tern_text_fn on_text;
    void *user;
    tern_strbuf line;
} exporter;

static bool export_record(void *user, const tern_memory_record *record) {
    exporter *x = user;
    tern_json_writer w = {.out = &x->line};
    tern_strbuf_clear(&x->line);
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "text", record->text);
    if (*record->source) tern_json_put_text(&w, "source", record->source);
    tern_json_put_raw(&w, "metadata", *record->metadata ? record->metadata : "{}");
    tern_json_put_int(&w, "created", record->created);
    tern_json_close(&w, '}');
    tern_strbuf_putc(&x->line, '\n');
    return !x->line.failed && x->on_text(x->user, x->line.ptr, x->line.len);
}

tern_status tern_memory_export(tern_memory_store *store, const tern_memory_filter *filters,
                               size_t n_filters, tern_text_fn on_text, void *user,
                               tern_error *err) {
    tern_clear(err);
    exporter x = {on_text, user, {0}};
    TERN_NEED(store);
    TERN_NEED(on_text);
    TERN_TRY(tern_store_check_filters(filters, n_filters, err));
    TERN_TRY(tern_store_begin(store, "BEGIN", err));
    tern_use_enter(&store->use);
    tern_status status = tern_store_each(store, filters, n_filters, true, export_record, &x, err);
    if (status == TERN_ERR_CANCELLED && x.line.failed) status = tern_fail_memory(err, x.line.len);
    tern_strbuf_free(&x.line);
    status = tern_store_end(store, status, err);
    tern_store_leave(store);
    return status;
}

// ---- Import -------------------------------------------------------------------------------------

#define BATCH 64 // records per transaction

typedef struct importer {
    tern_memory_store *s;
    const tern_memory_add_params *p;
    tern_redactor *redactor;
    tern_store_item batch[BATCH];
    size_t n_batch;
    int64_t n_added;
    bool only_check;
} importer;

static tern_status write_batch(importer *m, tern_error *err) {
    int64_t id;
    if (m->n_batch == 0) return TERN_OK;
    tern_status status = tern_store_begin(m->s, "BEGIN IMMEDIATE", err);
    if (status == TERN_OK) {
        for (size_t i = 0; i < m->n_batch && status == TERN_OK; i++)
            status = tern_store_write_item(m->s, &m->batch[i], m->p->replace, &id, err);
        status = tern_store_end(m->s, status, err);
    }
    if (status == TERN_OK) m->n_added += (int64_t)m->n_batch;
    for (size_t i = 0; i < m->n_batch; i++) tern_store_free_item(&m->batch[i]);
    m->n_batch = 0;
    return status;
}

static tern_status add_item(importer *m, const tern_memory_item *item, tern_error *err) {
    tern_store_item *to = &m->batch[m->n_batch];
    TERN_TRY(tern_store_make_item(m->s, to, item, m->p, m->redactor, err));
    if (m->only_check) {
        tern_store_free_item(to);
        return TERN_OK;
    }
    m->n_batch++;
    TERN_TRY(tern_store_embed_item(m->s, to, m->p, err));
    return m->n_batch == BATCH ? write_batch(m, err) : TERN_OK;
}

// A member that is a text or missing; the caller frees *text.
static tern_status take_text(const tern_json_doc *doc, const char *name, char **text,
                             tern_error *err) {
    const tern_json *value = tern_json_get(doc, tern_json_root(doc), name);
    *text = NULL;
    if (!value || tern_json_is(value, TERN_JSON_NULL)) return TERN_OK;
    if (!tern_json_is(value, TERN_JSON_STRING) || memchr(value->text, 0, value->n))
        return tern_fail(err, TERN_ERR_FORMAT, "\"%s\" is not a text", name);
    *text = tern_strndup(TERN_MEM_MISC, value->text, value->n);
    return *text ? TERN_OK : tern_fail_memory(err, value->n);
}

static tern_status add_object(importer *m, const tern_json_doc *doc, tern_error *err) {
    const tern_json *root = tern_json_root(doc), *extra = tern_json_get(doc, root, "metadata");
    tern_str text = tern_json_str(
        tern_json_is(root, TERN_JSON_OBJECT) ? tern_json_get(doc, root, "text") : root);
    tern_memory_item item = {.text = text.ptr, .n_bytes = text.len};
    tern_strbuf metadata = {0};
    char *source = NULL;
    if (!text.ptr)
        return tern_fail(err, TERN_ERR_FORMAT, "expected a string, or an object with a \"text\"");
    tern_status status = take_text(doc, "source", &source, err);
    if (status == TERN_OK && extra) {
        tern_json_writer w = {.out = &metadata};
        tern_json_put_value(&w, NULL, doc, extra);
        item.metadata = tern_strbuf_text(&metadata);
        if (metadata.failed) status = tern_fail_memory(err, 1);
    }
    item.source = source;
    item.created = tern_json_int(tern_json_get(doc, root, "created"), 0);
    if (status == TERN_OK) status = add_item(m, &item, err);
    tern_free(source);
    tern_strbuf_free(&metadata);
    return status;
}

static tern_status add_line(importer *m, const char *line, size_t n, tern_error *err) {
    tern_json_doc doc = {0};
    size_t at = 0;
    while (at < n && strchr(" \t\r", line[at]) && line[at]) at++;
    if (at == n) return TERN_OK;
    TERN_TRY(tern_json_parse_part(&doc, line, n, err));
    tern_status status = add_object(m, &doc, err);
    tern_json_free(&doc);
    return status;
}

static tern_status add_lines(importer *m, const char *lines, size_t n, tern_error *err) {
    size_t number = 1;
    for (size_t at = 0, end; at < n; at = end + 1, number++) {
        const char *feed = memchr(lines + at, '\n', n - at);
        char which[40];
        end = feed ? (size_t)(feed - lines) : n;
        tern_status status = add_line(m, lines + at, end - at, err);
        if (status == TERN_OK) continue;
        snprintf(which, sizeof which, "line %zu", number);
        return tern_fail_prefix(err, status, which);
    }
    return write_batch(m, err);
}

tern_status tern_memory_import(tern_memory_store *store, const char *lines, size_t n_bytes,
                               const tern_memory_add_params *params, int64_t *n_records,
                               tern_error *err) {
    tern_clear(err);
    static const tern_memory_add_params none;
    if (n_records) *n_records = 0;
    TERN_NEED(store);
    TERN_NEED_ARRAY(lines, n_bytes);
    if (!params) params = &none;
    TERN_TRY(tern_store_check_params(params, err));
    importer *m = tern_alloc(TERN_MEM_MISC, sizeof *m);
    if (!m) return tern_fail_memory(err, sizeof *m);
    m->s = store;
    m->p = params;
    m->only_check = true;
    tern_use_enter(&store->use);
    tern_status status = tern_redactor_open(&m->redactor, params->keep_secrets, params->patterns,
                                            params->n_patterns, err);
    if (status == TERN_OK) status = add_lines(m, lines, n_bytes, err);
    m->only_check = false;
    if (status == TERN_OK) status = add_lines(m, lines, n_bytes, err);
    for (size_t i = 0; i < m->n_batch; i++) tern_store_free_item(&m->batch[i]);
    if (n_records) *n_records = m->n_added;
    tern_redactor_close(m->redactor);
    tern_free(m);
    tern_store_leave(store);
    return status;
}
