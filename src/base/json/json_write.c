#include "base/json/json_write.h"

#include <inttypes.h>
#include <string.h>

static void begin(tern_json_writer *w, const char *key) {
    if (w->follows) tern_strbuf_putc(w->out, ',');
    w->follows = true;
    if (!key) return;
    tern_strbuf_json(w->out, key, strlen(key));
    tern_strbuf_putc(w->out, ':');
}

void tern_json_open(tern_json_writer *w, const char *key, char bracket) {
    begin(w, key);
    tern_strbuf_putc(w->out, bracket);
    w->follows = false;
}

void tern_json_close(tern_json_writer *w, char bracket) {
    tern_strbuf_putc(w->out, bracket);
    w->follows = true;
}

void tern_json_put_text(tern_json_writer *w, const char *key, const char *text) {
    if (text)
        tern_json_put_bytes(w, key, text, strlen(text));
    else
        tern_json_put_null(w, key);
}

void tern_json_put_bytes(tern_json_writer *w, const char *key, const char *bytes, size_t n) {
    begin(w, key);
    tern_strbuf_json(w->out, bytes, n);
}

void tern_json_put_int(tern_json_writer *w, const char *key, int64_t value) {
    begin(w, key);
    tern_strbuf_printf(w->out, "%" PRId64, value);
}

void tern_json_put_number(tern_json_writer *w, const char *key, double value) {
    begin(w, key);
    tern_strbuf_json_number(w->out, value);
}

void tern_json_put_float(tern_json_writer *w, const char *key, float value) {
    begin(w, key);
    tern_strbuf_json_float(w->out, value);
}

void tern_json_put_bool(tern_json_writer *w, const char *key, bool value) {
    tern_json_put_raw(w, key, value ? "true" : "false");
}

void tern_json_put_null(tern_json_writer *w, const char *key) { tern_json_put_raw(w, key, "null"); }

void tern_json_put_raw(tern_json_writer *w, const char *key, const char *json) {
    begin(w, key);
    tern_strbuf_puts(w->out, json);
}

static void put_number(tern_json_writer *w, const tern_json *value) {
    if (value->n == TERN_JSON_LONG) { // its digits are the node after it
        tern_str digits = {value[1].text, value[1].n};
        begin(w, NULL);
        tern_strbuf_append(w->out, digits.ptr, digits.len);
    } else {
        size_t from = w->out->len;
        tern_json_put_number(w, NULL, value->number);
        const char *text = tern_strbuf_text(w->out);
        bool looks_whole = !w->out->failed && !strpbrk(text + from, ".e");
        if (value->n == TERN_JSON_FRACTION && looks_whole) tern_strbuf_puts(w->out, ".0");
    }
}

// Documents are TERN_JSON_DEPTH_MAX deep at most, and so are these calls.
void tern_json_put_value(tern_json_writer *w, const char *key, const tern_json_doc *doc,
                         const tern_json *value) {
    if (key) begin(w, key), w->follows = false;
    switch (value ? value->type : TERN_JSON_NULL) {
    case TERN_JSON_BOOL: tern_json_put_bool(w, NULL, value->n); break;
    case TERN_JSON_NUMBER: put_number(w, value); break;
    case TERN_JSON_STRING: tern_json_put_bytes(w, NULL, value->text, value->n); break;
    case TERN_JSON_ARRAY:
        tern_json_open(w, NULL, '[');
        for (const tern_json *at = tern_json_first(doc, value); at;
             at = tern_json_next(doc, value, at))
            tern_json_put_value(w, NULL, doc, at);
        tern_json_close(w, ']');
        break;
    case TERN_JSON_OBJECT:
        tern_json_open(w, NULL, '{');
        for (const tern_json *at = tern_json_first(doc, value); at;
             at = tern_json_next(doc, value, at)) {
            tern_json_put_member(w, tern_json_str(at), doc, tern_json_value_of(doc, at));
        }
        tern_json_close(w, '}');
        break;
    default: tern_json_put_null(w, NULL); break;
    }
    w->follows = true;
}

void tern_json_put_member(tern_json_writer *w, tern_str name, const tern_json_doc *doc,
                          const tern_json *value) {
    tern_json_put_bytes(w, NULL, name.ptr, name.len);
    tern_strbuf_putc(w->out, ':');
    w->follows = false;
    tern_json_put_value(w, NULL, doc, value);
}
