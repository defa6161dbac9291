// Writing answers: see http.h.
#include "apps/serve/http/http.h"

const char *http_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } table[] = {
        {100, "Continue"},
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status) return table[i].reason;
    return "Status";
}

void http_put_status(tern_strbuf *out, int status) {
    tern_strbuf_printf(out, "HTTP/1.1 %d %s\r\n", status, http_reason(status));
}

void http_put_field(tern_strbuf *out, const char *name, const char *value) {
    tern_strbuf_printf(out, "%s: %s\r\n", name, value);
}

void http_put_length(tern_strbuf *out, size_t n) {
    tern_strbuf_printf(out, "Content-Length: %zu\r\n", n);
}

void http_put_head_end(tern_strbuf *out) { tern_strbuf_puts(out, "\r\n"); }

void http_put_chunk(tern_strbuf *out, const char *bytes, size_t n) {
    tern_strbuf_printf(out, "%zx\r\n", n);
    tern_strbuf_append(out, bytes, n);
    tern_strbuf_puts(out, "\r\n");
}

void http_put_last_chunk(tern_strbuf *out) { tern_strbuf_puts(out, "0\r\n\r\n"); }
