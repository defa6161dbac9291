// Reading requests: see http.h. A head is read line by line, and each line is checked as soon as it
// is complete, so that bytes that are not HTTP are refused by their first line. Lines stay in one
// buffer; since that moves as it grows, positions in it are offsets until the head is complete.
#include <string.h>
#include "apps/serve/http/http.h"
#include "base/alloc.h"

#define CHUNK_LINE_MAX 256 // a size of at most 16 digits, and extensions, which are rare
#define TARGET_MAX     8192

static http_progress refuse(http_reader *r, int status, const char *reason) {
    r->status = status;
    r->reason = reason;
    return HTTP_REFUSED;
}

static http_progress refuse_memory(http_reader *r) { return refuse(r, 500, "out of memory"); }

// ---- Characters --------------------------------------------------------------------------------

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool is_token_char(char c) { // of methods and names of fields
    return is_digit(c) || is_letter(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}
static bool is_target_char(char c) { // visible ASCII; others must be escaped
    return c > 0x20 && c < 0x7f && !strchr("\"<>\\^`{|}#", c);
}
static bool is_value_char(char c) { return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f); }

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

bool http_same_name(tern_str a, const char *b) {
    size_t n = strlen(b);
    if (a.len != n) return false;
    for (size_t i = 0; i < n; i++)
        if (lower(a.ptr[i]) != lower(b[i])) return false;
    return true;
}

static tern_str text_of(const http_reader *r, http_span s) {
    return (tern_str){tern_strbuf_text(&r->text) + s.at, s.n};
}

// ---- The request line --------------------------------------------------------------------------

// "http://host/path" is "/path" of that host.
static http_progress take_target(http_reader *r, http_span target) {
    static const char scheme[] = "http://";
    tern_str t = text_of(r, target);
    if (t.len > TARGET_MAX) return refuse(r, 414, "the target is too long");
    for (size_t i = 0; i < t.len; i++)
        if (!is_target_char(t.ptr[i])) return refuse(r, 400, "a character in the target");
    size_t at = 0;
    if (t.len == 1 && t.ptr[0] == '*') {
        if (!tern_str_is(text_of(r, r->method), "OPTIONS"))
            return refuse(r, 400, "the target * is for OPTIONS");
    } else if (t.len == 0 || t.ptr[0] != '/') {
        at = sizeof scheme - 1;
        if (t.len < at || !http_same_name((tern_str){t.ptr, at}, scheme))
            return refuse(r, 400, "the target is not a path");
        while (at < t.len && t.ptr[at] != '/') at++;
        if (at == sizeof scheme - 1 || at == t.len)
            return refuse(r, 400, "the target is not a path");
    }
    const char *mark = memchr(t.ptr + at, '?', t.len - at);
    size_t end = mark ? (size_t)(mark - t.ptr) : t.len;
    r->path = (http_span){target.at + at, end - at};
    r->query = mark ? (http_span){target.at + end + 1, t.len - end - 1} : (http_span){0};
    return HTTP_MORE;
}

static http_progress take_version(http_reader *r, tern_str v) {
    if (v.len != 8 || memcmp(v.ptr, "HTTP/", 5) != 0 || !is_digit(v.ptr[5]) || v.ptr[6] != '.' ||
        !is_digit(v.ptr[7]))
        return refuse(r, 400, "the request line does not end with a version of HTTP");
    if (v.ptr[5] != '1') return refuse(r, 505, "HTTP/1.1 is spoken here");
    r->request.minor = v.ptr[7] == '0' ? 0 : 1;
    r->request.keeps_alive = r->request.minor > 0;
    return HTTP_MORE;
}

static http_progress take_request_line(http_reader *r, http_span line) {
    tern_str s = text_of(r, line);
    if (s.len == 0 && !r->skipped_line) { // some clients send an extra line after a body
        r->skipped_line = true;
        r->text.len = 0;
        return HTTP_MORE;
    }
    size_t n = 0;
    while (n < s.len && is_token_char(s.ptr[n])) n++;
    if (n == 0 || n == s.len || s.ptr[n] != ' ')
        return refuse(r, 400, "the request line has no method");
    r->method = (http_span){line.at, n};
    size_t from = n + 1, end = s.len;
    while (end > from && s.ptr[end - 1] != ' ') end--;
    if (end <= from + 1) return refuse(r, 400, "the request line has no three words");
    http_progress p = take_version(r, (tern_str){s.ptr + end, s.len - end});
    if (p == HTTP_MORE) p = take_target(r, (http_span){line.at + from, end - 1 - from});
    r->place = HTTP_AT_FIELD;
    return p;
}

// ---- Fields ------------------------------------------------------------------------------------

// Cuts "Name: value".
static http_progress split_field(http_reader *r, http_span line, http_field_span *out) {
    tern_str s = text_of(r, line);
    size_t n = 0;
    if (is_blank(s.ptr[0])) return refuse(r, 400, "a folded line");
    while (n < s.len && is_token_char(s.ptr[n])) n++;
    if (n == 0 || n == s.len || s.ptr[n] != ':')
        return refuse(r, 400, "a field without a name and a colon");
    size_t from = n + 1, end = s.len;
    for (size_t i = from; i < end; i++)
        if (!is_value_char(s.ptr[i])) return refuse(r, 400, "a control character in a field");
    while (from < end && is_blank(s.ptr[from])) from++;
    while (end > from && is_blank(s.ptr[end - 1])) end--;
    *out = (http_field_span){{line.at, n}, {line.at + from, end - from}};
    return HTTP_MORE;
}

static uint64_t body_max(const http_reader *r) {
    const tern_str path = text_of(r, r->path);
    const size_t n = r->limits.upload_path ? strlen(r->limits.upload_path) : 0;
    const bool is_upload = n && path.len > n && !memcmp(path.ptr, r->limits.upload_path, n);
    return is_upload ? r->limits.upload_bytes : r->limits.body_bytes;
}

// Digits alone: no sign, no list, no blanks within.
static http_progress take_length(http_reader *r, tern_str value) {
    uint64_t n = 0;
    if (r->has_length) return refuse(r, 400, "Content-Length twice");
    r->has_length = true;
    if (value.len == 0) return refuse(r, 400, "Content-Length is empty");
    for (size_t i = 0; i < value.len; i++) {
        if (!is_digit(value.ptr[i])) return refuse(r, 400, "Content-Length is not a number");
        if (n > UINT64_MAX / 10 - 1) return refuse(r, 413, "the body is too long");
        n = n * 10 + (uint64_t)(value.ptr[i] - '0');
    }
    if (n > body_max(r)) return refuse(r, 413, "the body is too long");
    r->left = n;
    return HTTP_MORE;
}

static http_progress take_encoding(http_reader *r, tern_str value) {
    if (r->is_chunked) return refuse(r, 400, "Transfer-Encoding twice");
    if (!http_same_name(value, "chunked"))
        return refuse(r, 501, "a Transfer-Encoding other than chunked");
    if (r->request.minor == 0) return refuse(r, 400, "Transfer-Encoding in HTTP/1.0");
    r->is_chunked = true;
    return HTTP_MORE;
}

static http_progress take_host(http_reader *r, http_span value) {
    tern_str s = text_of(r, value);
    if (r->host.at) return refuse(r, 400, "Host twice");
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!is_digit(c) && !is_letter(c) && !(c && strchr("-._~:[]%!$&'()*+,;=", c)))
            return refuse(r, 400, "a character in Host");
    }
    r->host = value; // never at offset 0, where the request line is
    return HTTP_MORE;
}

// A list of words: "keep-alive, Upgrade".
static void take_connection(http_reader *r, tern_str value) {
    for (size_t at = 0; at < value.len;) {
        size_t end = at, last;
        while (end < value.len && value.ptr[end] != ',') end++;
        for (last = end; at < last && is_blank(value.ptr[at]);) at++;
        while (last > at && is_blank(value.ptr[last - 1])) last--;
        tern_str word = {value.ptr + at, last - at};
        if (http_same_name(word, "close")) r->request.keeps_alive = false;
        if (http_same_name(word, "keep-alive") && r->request.minor == 0)
            r->request.keeps_alive = true;
        at = end + 1;
    }
}

static http_progress take_field(http_reader *r, http_span line) {
    http_field_span f;
    http_progress p = split_field(r, line, &f);
    if (p != HTTP_MORE) return p;
    if (r->n_spans == r->limits.n_fields) return refuse(r, 431, "too many fields");
    if (tern_array_reserve(TERN_MEM_MISC, &r->spans, &r->spans_capacity, r->n_spans, 1) != 0)
        return refuse_memory(r);
    r->spans[r->n_spans++] = f;
    tern_str name = text_of(r, f.name), value = text_of(r, f.value);
    if (http_same_name(name, "content-length")) return take_length(r, value);
    if (http_same_name(name, "transfer-encoding")) return take_encoding(r, value);
    if (http_same_name(name, "host")) return take_host(r, f.value);
    if (http_same_name(name, "connection")) take_connection(r, value);
    if (http_same_name(name, "expect")) {
        if (!http_same_name(value, "100-continue"))
            return refuse(r, 417, "an expectation other than 100-continue");
        r->request.expects_continue = r->request.minor > 0;
    }
    return HTTP_MORE;
}

// The empty line after the fields.
static http_progress end_head(http_reader *r) {
    if (!r->host.at && r->request.minor > 0) return refuse(r, 400, "no Host");
    if (r->is_chunked && r->has_length)
        return refuse(r, 400, "both Content-Length and Transfer-Encoding");
    if (tern_array_reserve(TERN_MEM_MISC, &r->fields, &r->fields_capacity, 0, r->n_spans + 1) != 0)
        return refuse_memory(r);
    r->place = r->is_chunked ? HTTP_AT_CHUNK_SIZE : r->left > 0 ? HTTP_AT_BODY : HTTP_AT_END;
    return HTTP_MORE;
}

// ---- Chunks ------------------------------------------------------------------------------------

static int hex_digit(char c) {
    c = lower(c);
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "1a3" or "1a3;extension", which is ignored.
static http_progress take_chunk_size(http_reader *r, tern_str line) {
    uint64_t size = 0;
    size_t n = 0;
    for (; n < line.len && hex_digit(line.ptr[n]) >= 0; n++) {
        if (n == 16) return refuse(r, 400, "the size of a chunk is too long");
        size = size << 4 | (uint64_t)hex_digit(line.ptr[n]);
    }
    if (n == 0 || (n < line.len && line.ptr[n] != ';'))
        return refuse(r, 400, "the size of a chunk is not a number");
    for (size_t i = n; i < line.len; i++)
        if (!is_value_char(line.ptr[i])) return refuse(r, 400, "a control character in a chunk");
    if (size > body_max(r) - r->body.len - r->n_discarded)
        return refuse(r, 413, "the body is too long");
    r->left = size;
    r->place = size > 0 ? HTTP_AT_CHUNK : HTTP_AT_TRAILER;
    return HTTP_MORE;
}

// Trailers are skipped; one that would change how the request is read is an attack.
static http_progress take_trailer(http_reader *r, http_span line) {
    http_field_span f;
    if (line.n == 0) {
        r->place = HTTP_AT_END;
        return HTTP_MORE;
    }
    r->n_trailer += line.n + 2;
    if (r->n_trailer > r->limits.head_bytes) return refuse(r, 431, "the trailers are too long");
    http_progress p = split_field(r, line, &f);
    if (p != HTTP_MORE) return p;
    tern_str name = text_of(r, f.name);
    if (http_same_name(name, "content-length") || http_same_name(name, "transfer-encoding") ||
        http_same_name(name, "host"))
        return refuse(r, 400, "a field that may not be in a trailer");
    return HTTP_MORE;
}

// ---- Lines and bodies --------------------------------------------------------------------------

static http_progress take_line(http_reader *r) {
    http_progress p = HTTP_MORE;
    http_span line = {r->line, r->text.len - r->line};
    bool keeps = false; // the line's bytes, to which the request will point
    switch (r->place) {
    case HTTP_AT_START:
        p = take_request_line(r, line);
        keeps = true;
        break;
    case HTTP_AT_FIELD:
        p = line.n == 0 ? end_head(r) : take_field(r, line);
        keeps = true;
        break;
    case HTTP_AT_CHUNK_SIZE: p = take_chunk_size(r, text_of(r, line)); break;
    case HTTP_AT_CHUNK_END:
        if (line.n) return refuse(r, 400, "a chunk is longer than its size");
        r->place = HTTP_AT_CHUNK_SIZE;
        break;
    default: p = take_trailer(r, line);
    }
    if (!keeps) r->text.len = r->line;
    r->line = r->text.len;
    return p;
}

// The limit of the text's length, including the current line.
static size_t text_room(const http_reader *r) {
    if (r->place <= HTTP_AT_FIELD) return r->limits.head_bytes;
    size_t most = r->place == HTTP_AT_TRAILER ? r->limits.head_bytes : CHUNK_LINE_MAX;
    return r->line + most;
}

// Takes bytes up to the end of the line, which must be CR LF.
static http_progress read_line(http_reader *r, const char *bytes, size_t n, size_t *n_used) {
    size_t room = text_room(r);
    for (size_t i = 0; i < n; i++) {
        char c = bytes[i];
        bool after_cr = r->text.len > r->line && r->text.ptr[r->text.len - 1] == '\r';
        *n_used = i + 1;
        if (c == '\n') {
            if (!after_cr) return refuse(r, 400, "bare LF");
            r->text.ptr[--r->text.len] = 0;
            return take_line(r);
        }
        if (after_cr) return refuse(r, 400, "bare CR");
        if (c == 0) return refuse(r, 400, "a zero byte");
        if (r->text.len == room)
            return r->place == HTTP_AT_CHUNK_SIZE || r->place == HTTP_AT_CHUNK_END
                       ? refuse(r, 400, "the line of a chunk is too long")
                       : refuse(r, 431, "the head is too long");
        tern_strbuf_putc(&r->text, c);
        if (r->text.failed) return refuse_memory(r);
    }
    return HTTP_MORE;
}

static http_progress read_body(http_reader *r, const char *bytes, size_t n, size_t *n_used) {
    *n_used = n < r->left ? n : (size_t)r->left;
    if (r->discards)
        r->n_discarded += *n_used;
    else
        tern_strbuf_append(&r->body, bytes, *n_used);
    if (r->body.failed) return refuse_memory(r);
    r->left -= *n_used;
    if (r->left == 0) r->place = r->place == HTTP_AT_CHUNK ? HTTP_AT_CHUNK_END : HTTP_AT_END;
    return HTTP_MORE;
}

// The text may have moved as it grew: makes the request's pointers from the offsets.
static void point(http_reader *r) {
    http_request *q = &r->request;
    for (size_t i = 0; i < r->n_spans; i++)
        r->fields[i] = (http_field){text_of(r, r->spans[i].name), text_of(r, r->spans[i].value)};
    q->fields = r->fields;
    q->n_fields = r->n_spans;
    q->method = text_of(r, r->method);
    q->path = text_of(r, r->path);
    q->query = text_of(r, r->query);
    q->host = r->host.at ? text_of(r, r->host) : TERN_STR("");
    q->body = (tern_str){tern_strbuf_text(&r->body), r->body.len};
}

http_progress http_reader_feed(http_reader *r, const char *bytes, size_t n, size_t *n_used) {
    *n_used = 0;
    if (r->status) return HTTP_REFUSED;
    while (r->place != HTTP_AT_END && *n_used < n) {
        bool in_body = r->place == HTTP_AT_BODY || r->place == HTTP_AT_CHUNK;
        size_t used = 0;
        http_progress p = (in_body ? read_body : read_line)(r, bytes + *n_used, n - *n_used, &used);
        *n_used += used;
        if (p != HTTP_MORE) return p;
    }
    if (r->place >= HTTP_AT_BODY) point(r);
    return r->place == HTTP_AT_END ? HTTP_READY : HTTP_MORE;
}

void http_reader_next(http_reader *r) {
    http_reader old = *r;
    *r = (http_reader){.limits = old.limits,
                       .text = old.text,
                       .body = old.body,
                       .spans = old.spans,
                       .spans_capacity = old.spans_capacity,
                       .fields = old.fields,
                       .fields_capacity = old.fields_capacity};
    tern_strbuf_clear(&r->text);
    tern_strbuf_clear(&r->body);
    if (r->body.capacity > 65536) tern_strbuf_free(&r->body); // idle connections hold little
}

void http_reader_free(http_reader *r) {
    tern_strbuf_free(&r->text);
    tern_strbuf_free(&r->body);
    tern_free(r->spans);
    tern_free(r->fields);
    *r = (http_reader){0};
}

// ---- What is asked of a request ----------------------------------------------------------------

tern_str http_field_of(const http_request *r, const char *name) {
    for (size_t i = 0; i < r->n_fields; i++)
        if (http_same_name(r->fields[i].name, name)) return r->fields[i].value;
    return (tern_str){NULL, 0};
}

bool http_unescape(tern_str path, tern_strbuf *out) {
    for (size_t i = 0; i < path.len; i++) {
        if (path.ptr[i] != '%') {
            tern_strbuf_putc(out, path.ptr[i]);
            continue;
        }
        if (path.len - i < 3) return false;
        int high = hex_digit(path.ptr[i + 1]), low = hex_digit(path.ptr[i + 2]);
        if (high < 0 || low < 0 || high + low == 0) return false;
        tern_strbuf_putc(out, (char)(high << 4 | low));
        i += 2;
    }
    tern_strbuf_append(out, "", 0);
    return !out->failed;
}
