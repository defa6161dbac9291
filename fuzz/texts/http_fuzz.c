// The server's reader of HTTP: any bytes, as one piece and byte by byte, give the same requests or
// the same refusal; what it accepts is within its limits and has no line ends in it.
#include <string.h>
#include "apps/serve/http/http.h"
#include "fuzz/support.h"

static const http_limits limits = {.head_bytes = 2000, .n_fields = 20, .body_bytes = 5000};

static bool same(tern_str a, tern_str b) { return tern_str_eq(a, b); }

static bool is_one_line(tern_str s) {
    return !s.len ||
           (!memchr(s.ptr, '\r', s.len) && !memchr(s.ptr, '\n', s.len) && !memchr(s.ptr, 0, s.len));
}

static void check_request(const http_reader *r) {
    const http_request *q = &r->request;
    fuzz_require(q->method.len > 0 && is_one_line(q->method) &&
                 !memchr(q->method.ptr, ' ', q->method.len));
    fuzz_require(is_one_line(q->path) && is_one_line(q->query) && is_one_line(q->host));
    fuzz_require(q->n_fields <= limits.n_fields && q->body.len <= limits.body_bytes);
    for (size_t i = 0; i < q->n_fields; i++)
        fuzz_require(is_one_line(q->fields[i].value) && q->fields[i].name.len > 0);
    fuzz_require(r->text.len <= limits.head_bytes);
}

static bool lacks_memory(const http_reader *r) { return r->status == 500; }

static http_progress by_bytes(http_reader *r, const char *bytes, size_t n, size_t *n_used) {
    http_progress p = HTTP_MORE;
    *n_used = 0;
    while (p == HTTP_MORE && *n_used < n) {
        size_t used;
        p = http_reader_feed(r, bytes + *n_used, 1, &used);
        fuzz_require(used == 1);
        *n_used += used;
    }
    return p;
}

// Seen to find: a request that pointed nowhere once its body had come.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *bytes = (const char *)data;
    http_reader whole = {.limits = limits}, cut = {.limits = limits};
    tern_strbuf path = {0};
    for (size_t at = 0; at < n;) {
        size_t used, used_cut;
        http_progress p = http_reader_feed(&whole, bytes + at, n - at, &used);
        http_progress q = by_bytes(&cut, bytes + at, n - at, &used_cut);
        if (lacks_memory(&whole) || lacks_memory(&cut)) break;
        fuzz_require(p == q && used == used_cut && whole.status == cut.status);
        if (p == HTTP_REFUSED) fuzz_require(whole.status >= 400 && whole.reason);
        if (p != HTTP_READY) break;
        check_request(&whole);
        fuzz_require(same(whole.request.path, cut.request.path) &&
                     same(whole.request.body, cut.request.body) &&
                     same(whole.request.host, cut.request.host) &&
                     whole.request.keeps_alive == cut.request.keeps_alive);
        tern_strbuf_clear(&path);
        if (http_unescape(whole.request.path, &path))
            fuzz_require(strlen(tern_strbuf_text(&path)) == path.len);
        at += used;
        http_reader_next(&whole);
        http_reader_next(&cut);
    }
    tern_strbuf_free(&path);
    http_reader_free(&whole);
    http_reader_free(&cut);
    return 0;
}
