// The fields of a form, multipart/form-data (RFC 7578): parts between lines "--BOUNDARY", each with
// header fields, an empty line, and its content.
#include <string.h>
#include "apps/serve/http/http.h"

static const char *find(tern_str in, const char *what, size_t n) {
    return n > 0 && in.len >= n ? memmem(in.ptr, in.len, what, n) : NULL;
}

// The value of a field's parameter, name="value" or name=value; {NULL, 0}: absent.
static tern_str parameter(tern_str field, const char *name) {
    size_t n = strlen(name);
    const char *at = find(field, name, n), *end = field.ptr + field.len;
    // "filename" ends with "name".
    while (at && at > field.ptr && at[-1] != ' ' && at[-1] != ';')
        at = find((tern_str){at + 1, (size_t)(end - at - 1)}, name, n);
    if (!at || at + n >= end) return (tern_str){NULL, 0};
    at += n;
    const char *stop = *at == '"' ? memchr(at + 1, '"', (size_t)(end - at - 1))
                                  : memchr(at, ';', (size_t)(end - at));
    at += *at == '"';
    if (!stop) stop = end;
    return (tern_str){at, (size_t)(stop - at)};
}

// The next part's name and content; false: there is none.
static bool take_part(tern_str *rest, const tern_strbuf *mark, tern_str *name, tern_str *value) {
    const char *end = rest->ptr + rest->len;
    const char *begin = find(*rest, tern_strbuf_text(mark) + 2, mark->len - 2); // without CR LF
    if (!begin) return false;
    begin += mark->len - 2;
    const char *fields_end = find((tern_str){begin, (size_t)(end - begin)}, "\r\n\r\n", 4);
    if (!fields_end) return false;
    const char *data = fields_end + 4;
    const char *stop =
        find((tern_str){data, (size_t)(end - data)}, tern_strbuf_text(mark), mark->len);
    if (!stop) return false;
    *name = parameter((tern_str){begin, (size_t)(fields_end - begin)}, "name=");
    *value = (tern_str){data, (size_t)(stop - data)};
    *rest = (tern_str){stop + 2, (size_t)(end - stop - 2)};
    return true;
}

// The first field with that name, and with that value unless it is NULL.
static tern_str find_field(const http_request *r, const char *wanted, const char *holding) {
    tern_str type = http_field_of(r, "content-type"), found = {NULL, 0}, name, value;
    tern_str boundary = {NULL, 0}, rest = r->body;
    tern_strbuf mark = {0};
    if (type.ptr && find(type, "multipart/form-data", 19)) boundary = parameter(type, "boundary=");
    if (!boundary.ptr || boundary.len == 0 || boundary.len > 200) return found;
    tern_strbuf_puts(&mark, "\r\n--");
    tern_strbuf_append(&mark, boundary.ptr, boundary.len);
    while (!mark.failed && !found.ptr && take_part(&rest, &mark, &name, &value))
        if (name.ptr && tern_str_is(name, wanted) && (!holding || tern_str_is(value, holding)))
            found = value;
    tern_strbuf_free(&mark);
    return found;
}

tern_str form_field(const http_request *r, const char *wanted) {
    return find_field(r, wanted, NULL);
}

bool form_has(const http_request *r, const char *wanted, const char *value) {
    return find_field(r, wanted, value).ptr != NULL;
}
