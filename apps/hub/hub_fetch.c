// One GET over HTTP, by libcurl. Redirections are followed here and not by libcurl, so that one
// place decides who gets the token: only the server of the original address.
#include <stdio.h>
#include <string.h>
#include "apps/hub/hub_private.h"
#include "base/status.h"

#if defined(TERN_CURL)

#include <stdlib.h>
#include "apps/hub/curl_options.h"
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/os/lazy.h"

#define REDIRECTS_MAX 8
#define STALL_SECONDS 30L // after this time without a byte the connection counts as cut

typedef struct fetch {
    const hub_request *request;
    hub_reply *reply;
    tern_error *err;
    CURL *curl;
    uint64_t range_from;
    bool has_range, has_begun, has_failed;
    tern_strbuf refusal; // the body of an unsuccessful answer
} fetch;

bool hub_can_fetch(void) { return true; }

// ---- What comes --------------------------------------------------------------------------------

static bool is_success(const fetch *f) {
    return f->reply->status == 200 || f->reply->status == 206;
}

static bool begin(fetch *f) {
    if (f->has_begun) return !f->has_failed;
    f->has_begun = true;
    uint64_t from = f->reply->status == 206 ? f->range_from : 0;
    if (f->reply->status == 206 && !f->has_range) {
        tern_fail(f->err, TERN_ERR_FORMAT, "the server does not say which part it sends");
        f->has_failed = true;
    } else if (!f->request->on_begin(f->request->user, from, f->err)) {
        f->has_failed = true;
    }
    return !f->has_failed;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user) {
    fetch *f = user;
    n *= size;
    if (!is_success(f)) {
        if (f->refusal.len < 4096) tern_strbuf_append(&f->refusal, bytes, n);
        return n;
    }
    if (!begin(f)) return 0;
    if (f->request->on_bytes(f->request->user, bytes, n, f->err)) return n;
    f->has_failed = true;
    return 0;
}

static bool header_is(tern_str line, const char *name, tern_str *value) {
    size_t n = strlen(name);
    if (!hub_begins(line, name) || line.len <= n || line.ptr[n] != ':') return false;
    for (n++; n < line.len && line.ptr[n] == ' '; n++) {
    }
    *value = (tern_str){line.ptr + n, line.len - n};
    while (value->len && strchr("\r\n ", value->ptr[value->len - 1])) value->len--;
    return true;
}

static void copy_message(hub_reply *r, tern_str s) {
    size_t n = s.len < sizeof r->message - 1 ? s.len : sizeof r->message - 1;
    if (n) memcpy(r->message, s.ptr, n);
    r->message[n] = 0;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *user) {
    fetch *f = user;
    tern_str line = {bytes, size * n}, value;
    if (hub_begins(line, "HTTP/")) { // resets: "100 Continue" may come before
        long status = 0;
        curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
        f->reply->status = (int)status;
        f->has_range = false;
    } else if (header_is(line, "Content-Range", &value) && hub_begins(value, "bytes ")) {
        char digits[24] = "";
        memcpy(digits, value.ptr + 6, value.len - 6 < 23 ? value.len - 6 : 23);
        f->has_range = digits[0] >= '0' && digits[0] <= '9';
        f->range_from = strtoull(digits, NULL, 10);
    } else if (header_is(line, "X-Error-Message", &value)) {
        copy_message(f->reply, value);
    }
    return size * n;
}

static int on_wait(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    fetch *f = user;
    (void)a, (void)b, (void)c, (void)d;
    if (!f->request->on_wait || f->request->on_wait(f->request->user)) return 0;
    tern_fail(f->err, TERN_ERR_CANCELLED,
              "cancelled; what came stays, and the next pull goes on from there");
    f->has_failed = true;
    return 1;
}

// ---- Whom to ask -------------------------------------------------------------------------------

// "https://host:port" of an address; false: an address that is not supported here.
static bool origin_of(const char *url, tern_strbuf *out) {
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL;
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              (!strcmp(scheme, "https") || !strcmp(scheme, "http"));
    tern_strbuf_clear(out);
    if (ok) tern_strbuf_printf(out, "%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    return ok && !out->failed;
}

static bool same_origin(const char *a, const char *b) {
    tern_strbuf left = {0}, right = {0};
    bool same = origin_of(a, &left) && origin_of(b, &right) && !strcmp(left.ptr, right.ptr);
    tern_strbuf_free(&left);
    tern_strbuf_free(&right);
    return same;
}

// ---- Asking ------------------------------------------------------------------------------------

static bool may_go_on(CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR: return true;
    default: return false;
    }
}

static void set_options(fetch *f, const char *url, char *why) {
    CURL *c = f->curl;
    char range[32];
    curl_set_usual(c, url, why);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, STALL_SECONDS);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_wait);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (f->request->token && same_origin(url, f->request->url)) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, f->request->token);
    }
    snprintf(range, sizeof range, "%llu-", (unsigned long long)f->request->from);
    if (f->request->from > 0) curl_easy_setopt(c, CURLOPT_RANGE, range);
}

static tern_status judge(fetch *f, CURLcode code, const char *why, const char *url) {
    hub_reply *r = f->reply;
    if (f->has_failed) return f->err->status;
    if (code != CURLE_OK) {
        r->may_go_on = may_go_on(code);
        r->was_reached = code != CURLE_COULDNT_RESOLVE_HOST && code != CURLE_COULDNT_CONNECT;
        return tern_fail(f->err, TERN_ERR_IO, "%.300s: %s", url,
                         *why ? why : curl_easy_strerror(code));
    }
    if (is_success(f)) return begin(f) ? TERN_OK : f->err->status;
    r->may_go_on = r->status == 408 || r->status == 429 || r->status >= 500;
    tern_json_doc doc = {0};
    if (!r->message[0] &&
        tern_json_parse(&doc, tern_strbuf_text(&f->refusal), f->refusal.len, NULL) == TERN_OK) {
        const tern_json *e = tern_json_path(&doc, "error");
        if (tern_json_is(e, TERN_JSON_OBJECT)) e = tern_json_get(&doc, e, "message");
        copy_message(r, tern_json_str(e));
    }
    tern_json_free(&doc);
    return tern_fail(f->err, TERN_ERR_IO, "%.300s: the server answers %d%s%s", url, r->status,
                     r->message[0] ? ": " : "", r->message);
}

// One request. *next: the address to which the server redirects; the caller frees it.
static tern_status ask_once(const hub_request *r, const char *url, hub_reply *reply, char **next,
                            tern_error *err) {
    char why[CURL_ERROR_SIZE] = "", *to = NULL;
    fetch f = {.request = r, .reply = reply, .err = err, .curl = curl_easy_init()};
    *reply = (hub_reply){.was_reached = true};
    if (!f.curl) return tern_fail_memory(err, 0);
    set_options(&f, url, why);
    CURLcode code = curl_easy_perform(f.curl);
    tern_status status = TERN_OK;
    bool leads_on = code == CURLE_OK && reply->status >= 300 && reply->status < 400;
    if (leads_on) curl_easy_getinfo(f.curl, CURLINFO_REDIRECT_URL, &to);
    if (to) {
        *next = tern_strdup(TERN_MEM_MISC, to);
        if (!*next) status = tern_fail_memory(err, strlen(to));
    } else {
        status = judge(&f, code, why, url);
    }
    curl_easy_cleanup(f.curl);
    tern_strbuf_free(&f.refusal);
    return status;
}

tern_status hub_fetch(const hub_request *r, hub_reply *reply, tern_error *err) {
    static bool is_ready;
    char *url = tern_strdup(TERN_MEM_MISC, r->url);
    tern_status status = url ? TERN_OK : tern_fail_memory(err, strlen(r->url));
    *reply = (hub_reply){0};
    if (status == TERN_OK) status = TERN_LAZY_LOAD(curl, err);
    if (status == TERN_OK && !is_ready)
        curl_global_init(CURL_GLOBAL_DEFAULT); // the program fetches from one thread
    is_ready |= status == TERN_OK;
    for (int i = 0; status == TERN_OK; i++) {
        char *next = NULL;
        status = ask_once(r, url, reply, &next, err);
        if (status != TERN_OK || !next) break;
        tern_strbuf origin = {0};
        if (i == REDIRECTS_MAX)
            status = tern_fail(err, TERN_ERR_IO, "%.300s: it leads on and on", r->url);
        else if (!origin_of(next, &origin))
            status = tern_fail(err, TERN_ERR_IO, "%.300s: it leads to '%.200s'", r->url, next);
        else if (hub_begins((tern_str){url, strlen(url)}, "https:") &&
                 !hub_begins((tern_str){next, strlen(next)}, "https:"))
            status =
                tern_fail(err, TERN_ERR_IO, "%.300s: it leads to an address without TLS, '%.200s'",
                          r->url, next);
        tern_strbuf_free(&origin);
        tern_free(url);
        url = next;
    }
    tern_free(url);
    return status;
}

#else

bool hub_can_fetch(void) { return false; }

tern_status hub_fetch(const hub_request *r, hub_reply *reply, tern_error *err) {
    (void)r;
    *reply = (hub_reply){0};
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this tern was built without libcurl (install libcurl4-openssl-dev, and build "
                     "it again)");
}

#endif
