// Filters on records.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "store/store.h"

tern_status tern_store_check_filters(const tern_memory_filter *filters, size_t n, tern_error *err) {
    TERN_NEED_ARRAY(filters, n);
    for (size_t i = 0; i < n; i++) {
        if (!filters[i].key || !*filters[i].key || !filters[i].value)
            return tern_fail(err, TERN_ERR_ARGUMENT, "filter %zu has no key or no value", i + 1);
        if (filters[i].compare > TERN_MEMORY_BEGINS)
            return tern_fail(err, TERN_ERR_ARGUMENT, "filter %zu: there is no comparison %d", i + 1,
                             (int)filters[i].compare);
    }
    return TERN_OK;
}

// ---- Comparing ----------------------------------------------------------------------------------

static bool is_number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == 0;
}

static int compare_texts(const char *a, const char *b) {
    double x, y;
    if (is_number(a, &x) && is_number(b, &y)) return (x > y) - (x < y);
    return strcmp(a, b);
}

static bool fits_text(const tern_memory_filter *f, const char *text) {
    if (f->compare == TERN_MEMORY_BEGINS) return strncmp(text, f->value, strlen(f->value)) == 0;
    int order = compare_texts(text, f->value);
    switch (f->compare) {
    case TERN_MEMORY_EQUAL: return order == 0;
    case TERN_MEMORY_NOT_EQUAL: return order != 0;
    case TERN_MEMORY_LESS: return order < 0;
    case TERN_MEMORY_LESS_EQUAL: return order <= 0;
    case TERN_MEMORY_GREATER: return order > 0;
    default: return order >= 0;
    }
}

static bool fits_bytes(const tern_memory_filter *f, const char *bytes, size_t n) {
    tern_strbuf text = {0};
    tern_strbuf_append(&text, bytes, n);
    bool fits = fits_text(f, tern_strbuf_text(&text));
    tern_strbuf_free(&text);
    return fits;
}

static bool fits_value(const tern_memory_filter *f, const tern_json_doc *doc,
                       const tern_json *value) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    if (tern_json_is(value, TERN_JSON_STRING)) return fits_bytes(f, value->text, value->n);
    tern_json_put_value(&w, NULL, doc, value);
    bool fits = fits_text(f, tern_strbuf_text(&text));
    tern_strbuf_free(&text);
    return fits;
}

static bool fits_member(const tern_memory_filter *f, const tern_json_doc *doc,
                        const tern_json *value) {
    if (!tern_json_is(value, TERN_JSON_ARRAY)) return fits_value(f, doc, value);
    // One element that is equal is enough to fit EQUAL, and to miss NOT_EQUAL.
    bool all = f->compare == TERN_MEMORY_NOT_EQUAL;
    const tern_json *at = tern_json_first(doc, value);
    for (; at; at = tern_json_next(doc, value, at))
        if (fits_value(f, doc, at) != all) return !all;
    return all;
}

static bool fits_one(const tern_memory_filter *f, const tern_store_row *row,
                     const tern_json_doc *doc) {
    char number[24];
    const tern_json *value = tern_json_path(doc, f->key);
    if (value) return fits_member(f, doc, value);
    if (strcmp(f->key, "source") == 0 && row->source.len)
        return fits_bytes(f, row->source.ptr, row->source.len);
    snprintf(number, sizeof number, "%lld", (long long)row->created);
    if (strcmp(f->key, "created") == 0) return fits_text(f, number);
    return f->compare == TERN_MEMORY_NOT_EQUAL;
}

bool tern_store_fits(const tern_memory_filter *filters, size_t n, const tern_store_row *row) {
    tern_json_doc doc = {0};
    if (n == 0) return true;
    if (tern_json_parse(&doc, row->metadata.ptr, row->metadata.len, NULL) != TERN_OK) return false;
    bool fits = true;
    for (size_t i = 0; i < n && fits; i++) fits = fits_one(&filters[i], row, &doc);
    tern_json_free(&doc);
    return fits;
}

// ---- Chunks that fit ----------------------------------------------------------------------------

typedef struct id_list {
    int64_t *ids;
    size_t n, capacity;
} id_list;

static tern_status push(id_list *l, int64_t id, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &l->ids, &l->capacity, l->n, 1) != 0)
        return tern_fail_memory(err, sizeof id);
    l->ids[l->n++] = id;
    return TERN_OK;
}

static tern_status find_records(tern_memory_store *s, const tern_memory_filter *filters, size_t n,
                                id_list *out, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool more = true;
    TERN_TRY(tern_store_prepare(
        s, &st, "SELECT id, source, metadata, created FROM record ORDER BY id", err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && (status = tern_store_step(s, st, &more, err)) == TERN_OK && more) {
        const tern_store_row row = {tern_store_text(st, 1), tern_store_text(st, 2),
                                    sqlite3_column_int64(st, 3)};
        if (tern_store_fits(filters, n, &row)) status = push(out, sqlite3_column_int64(st, 0), err);
    }
    sqlite3_finalize(st);
    return status;
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Both sides are sorted by record, so one pass over the index of chunks suffices.
static tern_status find_chunks(tern_memory_store *s, const id_list *records, id_list *out,
                               tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool more = true;
    size_t at = 0;
    TERN_TRY(tern_store_prepare(s, &st, "SELECT record, id FROM chunk ORDER BY record", err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && (status = tern_store_step(s, st, &more, err)) == TERN_OK && more) {
        int64_t record = sqlite3_column_int64(st, 0);
        while (at < records->n && records->ids[at] < record) at++;
        if (at == records->n) break;
        if (records->ids[at] == record) status = push(out, sqlite3_column_int64(st, 1), err);
    }
    sqlite3_finalize(st);
    if (out->n) qsort(out->ids, out->n, sizeof *out->ids, by_value);
    return status;
}

tern_status tern_store_allowed(tern_memory_store *s, const tern_memory_filter *filters, size_t n,
                               int64_t **ids, size_t *n_ids, tern_error *err) {
    id_list records = {0}, chunks = {0};
    tern_status status = find_records(s, filters, n, &records, err);
    if (status == TERN_OK) status = find_chunks(s, &records, &chunks, err);
    if (status == TERN_OK && !chunks.ids) { // an empty list is not the same as no list
        chunks.ids = tern_alloc(TERN_MEM_MISC, sizeof *chunks.ids);
        if (!chunks.ids) status = tern_fail_memory(err, sizeof *chunks.ids);
    }
    tern_free(records.ids);
    if (status != TERN_OK) tern_free(chunks.ids), chunks = (id_list){0};
    *ids = chunks.ids;
    *n_ids = chunks.n;
    return status;
}
