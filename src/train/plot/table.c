// Logs as a table: what any line has of numbers, in columns.
#include <string.h>
#include "base/alloc.h"
#include "train/plot/plot.h"

enum { COLUMNS_MAX = 64 };
typedef struct table {
    char *names[COLUMNS_MAX];
    size_t n;
    tern_strbuf *out;
} table;

typedef tern_status (*line_fn)(table *t, const char *log, const tern_json_doc *doc,
                               tern_error *err);

static bool is_column(const tern_json *value) {
    return tern_json_is(value, TERN_JSON_NUMBER) || tern_json_is(value, TERN_JSON_NULL);
}

// The first pass: the names of all numbers.
static tern_status find_columns(table *t, const char *log, const tern_json_doc *doc,
                                tern_error *err) {
    const tern_json *root = tern_json_root(doc);
    (void)log;
    for (const tern_json *key = tern_json_first(doc, root); key;
         key = tern_json_next(doc, root, key)) {
        tern_str name = tern_json_str(key);
        size_t k = 0;
        if (!is_column(tern_json_value_of(doc, key)) || t->n == COLUMNS_MAX) continue;
        while (k < t->n && !tern_str_is(name, t->names[k])) k++;
        if (k < t->n) continue;
        t->names[k] = tern_strndup(TERN_MEM_MISC, name.ptr, name.len);
        if (!t->names[k]) return tern_fail_memory(err, name.len);
        t->n++;
    }
    return TERN_OK;
}

static void put_quoted(tern_strbuf *out, const char *text) {
    tern_strbuf_putc(out, '"');
    for (; *text; text++) tern_strbuf_puts(out, *text == '"' ? "\"\"" : (char[]){*text, 0});
    tern_strbuf_putc(out, '"');
}

// The second pass. A number that is not finite, null in JSON, is an empty cell, as a missing one.
static tern_status put_line(table *t, const char *log, const tern_json_doc *doc, tern_error *err) {
    const tern_json *root = tern_json_root(doc);
    (void)err;
    if (!tern_json_is(tern_json_get(doc, root, "step"), TERN_JSON_NUMBER)) return TERN_OK;
    put_quoted(t->out, log);
    for (size_t k = 0; k < t->n; k++) {
        const tern_json *value = tern_json_get(doc, root, t->names[k]);
        tern_strbuf_putc(t->out, ',');
        if (tern_json_is(value, TERN_JSON_NUMBER))
            tern_strbuf_json_number(t->out, tern_json_number(value, 0));
    }
    tern_strbuf_putc(t->out, '\n');
    return TERN_OK;
}

static tern_status for_lines(table *t, const char *log, line_fn fn, tern_error *err) {
    tern_lines l;
    bool more = true;
    TERN_TRY(tern_lines_open(&l, log, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK) {
        tern_json_doc doc;
        status = tern_log_next(&l, &doc, &more, err);
        if (status != TERN_OK || !more) break;
        if (tern_json_get(&doc, tern_json_root(&doc), "step")) status = fn(t, log, &doc, err);
        tern_json_free(&doc);
    }
    tern_lines_close(&l);
    return status;
}

tern_status tern_plot_table(const char *const *logs, size_t n_logs, tern_strbuf *out,
                            tern_error *err) {
    table t = {.out = out};
    tern_status status = TERN_OK;
    for (size_t i = 0; status == TERN_OK && i < n_logs; i++)
        status = for_lines(&t, logs[i], find_columns, err);
    tern_strbuf_puts(out, "log");
    for (size_t k = 0; k < t.n; k++) {
        tern_strbuf_putc(out, ',');
        tern_strbuf_puts(out, t.names[k]);
    }
    tern_strbuf_putc(out, '\n');
    for (size_t i = 0; status == TERN_OK && i < n_logs; i++)
        status = for_lines(&t, logs[i], put_line, err);
    for (size_t k = 0; k < t.n; k++) tern_free(t.names[k]);
    return status;
}
