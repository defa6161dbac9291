#include "apps/mcp/jsonrpc.h"

#include <stdio.h>
#include <string.h>

static bool refuse(jsonrpc_fault *fault, jsonrpc_code code, const char *message) {
    fault->code = code;
    snprintf(fault->message, sizeof fault->message, "%s", message);
    return false;
}

// ---- Reading -----------------------------------------------------------------------------------

static bool is_id(const tern_json *v) {
    uint64_t whole;
    bool is_negative;
    return tern_json_is(v, TERN_JSON_STRING) || tern_json_whole(v, &whole, &is_negative);
}

static bool read_call(jsonrpc_message *m, const tern_json *method, jsonrpc_fault *fault) {
    if (!tern_json_is(method, TERN_JSON_STRING))
        return refuse(fault, JSONRPC_INVALID_REQUEST, "'method' must be a string");
    m->kind = m->id ? JSONRPC_REQUEST : JSONRPC_NOTIFICATION;
    m->method = tern_json_str(method);
    if (m->params && !tern_json_is(m->params, TERN_JSON_OBJECT))
        return refuse(fault, JSONRPC_INVALID_PARAMS, "'params' must be an object");
    return true;
}

static bool read_response(jsonrpc_message *m, jsonrpc_fault *fault) {
    m->kind = m->error ? JSONRPC_ERROR : JSONRPC_RESULT;
    if (!m->error == !m->result)
        return refuse(fault, JSONRPC_INVALID_REQUEST,
                      "a message has one of 'method', 'result' and 'error'");
    if (m->error && !tern_json_is(m->error, TERN_JSON_OBJECT))
        return refuse(fault, JSONRPC_INVALID_REQUEST, "'error' must be an object");
    if (m->result && !m->id)
        return refuse(fault, JSONRPC_INVALID_REQUEST, "a result needs the 'id' of its request");
    return true;
}

bool jsonrpc_read(jsonrpc_message *m, const tern_json_doc *doc, jsonrpc_fault *fault) {
    const tern_json *root = tern_json_root(doc);
    *m = (jsonrpc_message){.doc = doc};
    if (tern_json_is(root, TERN_JSON_ARRAY))
        return refuse(fault, JSONRPC_INVALID_REQUEST, "batches are not supported: one message");
    if (!tern_json_is(root, TERN_JSON_OBJECT))
        return refuse(fault, JSONRPC_INVALID_REQUEST, "a message is a JSON object");
    const tern_json *id = tern_json_get(doc, root, "id");
    const tern_json *method = tern_json_get(doc, root, "method");
    m->params = tern_json_get(doc, root, "params");
    m->result = tern_json_get(doc, root, "result");
    m->error = tern_json_get(doc, root, "error");
    if (is_id(id)) m->id = id;
    if (!tern_str_is(tern_json_str(tern_json_get(doc, root, "jsonrpc")), "2.0"))
        return refuse(fault, JSONRPC_INVALID_REQUEST, "'jsonrpc' must be \"2.0\"");
    // JSON-RPC allows null if an error's request could not be read.
    bool may_lack = m->error && !method && tern_json_is(id, TERN_JSON_NULL);
    if (id && !m->id && !may_lack)
        return refuse(fault, JSONRPC_INVALID_REQUEST, "'id' must be a string or a whole number");
    return method ? read_call(m, method, fault) : read_response(m, fault);
}

bool jsonrpc_same_id(const tern_json *a, const tern_json *b) {
    uint64_t x, y;
    bool is_x_negative, is_y_negative;
    if (tern_json_is(a, TERN_JSON_STRING) && tern_json_is(b, TERN_JSON_STRING))
        return tern_str_eq(tern_json_str(a), tern_json_str(b));
    return tern_json_whole(a, &x, &is_x_negative) && tern_json_whole(b, &y, &is_y_negative) &&
           x == y && is_x_negative == is_y_negative;
}

int64_t jsonrpc_error_code(const jsonrpc_message *m, tern_str *message) {
    *message = tern_json_str(tern_json_get(m->doc, m->error, "message"));
    return tern_json_int(tern_json_get(m->doc, m->error, "code"), 0);
}

// ---- Writing -----------------------------------------------------------------------------------

static void open_message(tern_json_writer *w) {
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "jsonrpc", "2.0");
}

void jsonrpc_open_answer(tern_json_writer *w, const tern_json_doc *doc, const tern_json *id) {
    open_message(w);
    if (id) tern_json_put_value(w, "id", doc, id);
}

void jsonrpc_open_request(tern_json_writer *w, int64_t id, const char *method) {
    open_message(w);
    tern_json_put_int(w, "id", id);
    tern_json_put_text(w, "method", method);
}

void jsonrpc_open_notification(tern_json_writer *w, const char *method) {
    open_message(w);
    tern_json_put_text(w, "method", method);
}

void jsonrpc_put_error(tern_json_writer *w, const tern_json_doc *doc, const tern_json *id,
                       int64_t code, const char *message, const char *data) {
    jsonrpc_open_answer(w, doc, id);
    tern_json_open(w, "error", '{');
    tern_json_put_int(w, "code", code);
    tern_json_put_text(w, "message", message);
    if (data) tern_json_put_raw(w, "data", data);
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

// ---- Lines -------------------------------------------------------------------------------------

void jsonrpc_lines_add(jsonrpc_lines *l, const char *bytes, size_t n) {
    if (l->at > 0) { // moves the rest to the front
        size_t rest = l->text.len - l->at;
        memmove(l->text.ptr, l->text.ptr + l->at, rest);
        l->text.len = rest;
        l->at = 0;
    }
    tern_strbuf_append(&l->text, bytes, n);
}

// Drops the buffered text, which has no line end.
static void drop(jsonrpc_lines *l) {
    tern_strbuf_clear(&l->text);
    l->at = 0;
}

jsonrpc_line jsonrpc_lines_next(jsonrpc_lines *l, tern_str *line) {
    if (l->text.failed) return JSONRPC_NO_MEMORY;
    while (l->at < l->text.len) {
        const char *begin = l->text.ptr + l->at;
        size_t rest = l->text.len - l->at;
        const char *end = memchr(begin, '\n', rest);
        size_t n = end ? (size_t)(end - begin) : rest;
        bool is_rest = l->skips, is_long = !is_rest && n > l->line_max;
        l->skips = (is_rest || is_long) && !end;
        if (!end && !is_rest && !is_long) return JSONRPC_NO_LINE;
        if (end)
            l->at += n + 1;
        else
            drop(l);
        if (is_long) return JSONRPC_LONG_LINE;
        if (n > 0 && begin[n - 1] == '\r') n--;
        if (is_rest || n == 0) continue;
        *line = (tern_str){begin, n};
        return JSONRPC_LINE;
    }
    return JSONRPC_NO_LINE;
}

void jsonrpc_lines_free(jsonrpc_lines *l) { tern_strbuf_free(&l->text); }
