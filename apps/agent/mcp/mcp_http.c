// MCP over HTTP, with libcurl: each message is a POST, and its answer comes as JSON or as a stream
// of events. Redirects are not followed, so that fields with keys only go to the given address.
#include "apps/agent/mcp/mcp_client.h"

#if defined(TERN_CURL)

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "apps/hub/curl_options.h"
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "base/os/os_time.h"

#define REPLY_SECONDS 10.0
#define REFUSAL_BYTES 4096

typedef struct http {
    mcp_client *client;
    char *url;
    char **fields; // [n_fields]
    size_t n_fields;
    tern_strbuf session; // the server's id for it; "": none
} http;

typedef struct transfer {
    http *h;
    mcp_exchange *x;
    CURL *curl;
    tern_strbuf body; // of an answer that is not a stream
    mcp_events events;
    tern_strbuf reply;
    size_t n;                     // bytes received
    bool is_stream, done, failed; // done: the answer is there
} transfer;

static tern_status post(http *h, mcp_exchange *x, tern_error *err);

// ---- What comes --------------------------------------------------------------------------------

static void take(transfer *t, const char *text, size_t n) {
    double begin = tern_seconds();
    mcp_taken taken = mcp_client_take(t->h->client, text, n, t->x->id, &t->reply);
    t->x->end += tern_seconds() - begin;
    if (taken == MCP_ANSWER) {
        tern_strbuf_append(&t->x->answer, text, n);
        t->failed |= t->x->answer.failed;
        t->done = true;
    } else if (taken == MCP_REPLY) { // sent at once: the answer may depend on it
        double end = tern_seconds() + REPLY_SECONDS;
        mcp_exchange reply = {.message = t->reply.ptr,
                              .n_bytes = t->reply.len,
                              .id = -1,
                              .end = end < t->x->end ? end : t->x->end};
        post(t->h, &reply, NULL);
        tern_strbuf_free(&reply.answer);
    }
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user) {
    transfer *t = user;
    n *= size;
    t->n += n;
    size_t most = t->x->http_status < 300 ? MCP_MESSAGE_MAX : REFUSAL_BYTES;
    if (!t->is_stream) {
        if (t->body.len + n > most) {
            t->failed = t->x->http_status < 300;
            return t->failed ? 0 : n;
        }
        tern_strbuf_append(&t->body, bytes, n);
        return t->body.failed ? 0 : n;
    }
    for (size_t i = 0; i < n && !t->done; i++)
        if (mcp_events_put(&t->events, bytes[i])) {
            take(t, tern_strbuf_text(&t->events.data), t->events.data.len);
            tern_strbuf_clear(&t->events.data);
        }
    t->failed |= t->events.data.failed || t->events.line.failed || t->n > 4 * MCP_MESSAGE_MAX;
    return t->done || t->failed ? 0 : n; // no more data is needed
}

static bool field_is(const char *line, size_t n, const char *name, tern_str *value) {
    size_t len = strlen(name);
    if (n <= len || strncasecmp(line, name, len) != 0 || line[len] != ':') return false;
    for (len++; len < n && strchr(" \t", line[len]);) len++;
    while (n > len && strchr("\r\n \t", line[n - 1])) n--;
    *value = (tern_str){line + len, n - len};
    return true;
}

static size_t on_field(char *line, size_t size, size_t n, void *user) {
    transfer *t = user;
    tern_str value;
    long status = 0;
    n *= size;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    t->x->http_status = (int)status;
    if (field_is(line, n, "Content-Type", &value))
        t->is_stream = value.len >= 17 && !strncasecmp(value.ptr, "text/event-stream", 17);
    bool is_session = field_is(line, n, "Mcp-Session-Id", &value) && value.len < 1000;
    if (is_session && t->x->method && !strcmp(t->x->method, "initialize")) {
        tern_strbuf_clear(&t->h->session);
        tern_strbuf_append(&t->h->session, value.ptr, value.len);
    }
    return n;
}

static int on_wait(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    transfer *t = user;
    (void)a, (void)b, (void)c, (void)d;
    t->x->was_stopped = agent_was_stopped(mcp_client_tools(t->h->client));
    t->x->timed_out = tern_seconds() > t->x->end;
    return t->x->was_stopped || t->x->timed_out;
}

// ---- What is sent ------------------------------------------------------------------------------

typedef struct fields {
    struct curl_slist *list;
    bool failed;
} fields;

static void add_line(fields *f, const char *text, size_t n) {
    tern_strbuf line = {0};
    tern_strbuf_append(&line, text, n);
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(f->list, line.ptr);
    if (more) f->list = more;
    f->failed |= !more;
    tern_strbuf_free(&line);
}

static void add_field(fields *f, const char *name, const char *value) {
    tern_strbuf line = {0};
    tern_strbuf_printf(&line, "%s: %s", name, value);
    add_line(f, tern_strbuf_text(&line), line.len);
    f->failed |= line.failed;
    tern_strbuf_free(&line);
}

static void add_lines(fields *f, const char *lines) {
    for (const char *end; lines && (end = strchr(lines, '\n')); lines = end + 1)
        add_line(f, lines, (size_t)(end - lines));
}

static fields make_fields(const http *h, const mcp_exchange *x) {
    fields f = {0};
    const char *version = mcp_client_version(h->client);
    for (size_t i = 0; i < h->n_fields; i++) add_line(&f, h->fields[i], strlen(h->fields[i]));
    add_field(&f, "Content-Type", "application/json");
    add_field(&f, "Accept", "application/json, text/event-stream");
    add_field(&f, "Expect", "");
    if (version) add_field(&f, "MCP-Protocol-Version", version);
    if (h->session.len) add_field(&f, "Mcp-Session-Id", h->session.ptr);
    if (mcp_client_is_modern(h->client) && x->method) {
        tern_strbuf value = {0};
        add_field(&f, "Mcp-Method", x->method);
        if (x->name) mcp_field_value((tern_str){x->name, strlen(x->name)}, &value);
        if (x->name) add_field(&f, "Mcp-Name", tern_strbuf_text(&value));
        add_lines(&f, x->params);
        f.failed |= value.failed;
        tern_strbuf_free(&value);
    }
    return f;
}

static void set_options(transfer *t, const struct curl_slist *list, char *why) {
    CURL *c = t->curl;
    curl_set_usual(c, t->h->url, why);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_field);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_wait);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
}

// A refusal may still be an answer: a JSON-RPC error with status 400 or 404.
static tern_status judge(transfer *t, CURLcode code, const char *why, tern_error *err) {
    mcp_exchange *x = t->x;
    const char *name = mcp_client_name(t->h->client);
    if (x->was_stopped) return tern_fail(err, TERN_ERR_CANCELLED, "it was stopped");
    if (x->timed_out) return tern_fail(err, TERN_ERR_IO, "%s: the server does not answer", name);
    if (t->failed) return tern_fail(err, TERN_ERR_IO, "%s: the server's answer is too long", name);
    if (code != CURLE_OK && !t->done)
        return tern_fail(err, TERN_ERR_IO, "%s: %.200s: %s", name, t->h->url,
                         *why ? why : curl_easy_strerror(code));
    if (!t->is_stream && t->body.len && x->id >= 0) take(t, t->body.ptr, t->body.len);
    bool is_refusal = x->http_status < 200 || x->http_status >= 300;
    if (is_refusal && !(t->done && (x->http_status == 400 || x->http_status == 404)))
        return tern_fail(err, TERN_ERR_IO, "%s: %.200s: the server answers %d%s", name, t->h->url,
                         x->http_status,
                         x->http_status == 401
                             ? ": it wants to know who asks (\"headers\" in a file for --mcp)"
                             : "");
    if (x->id >= 0 && !t->done)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: %.200s: the server does not answer the request",
                         name, t->h->url);
    return TERN_OK;
}

static tern_status post(http *h, mcp_exchange *x, tern_error *err) {
    char why[CURL_ERROR_SIZE] = "";
    transfer t = {.h = h, .x = x, .curl = curl_easy_init()};
    fields f = make_fields(h, x);
    tern_status status = TERN_OK;
    if (!t.curl || f.failed) {
        status = tern_fail_memory(err, x->n_bytes);
    } else {
        set_options(&t, f.list, why);
        curl_easy_setopt(t.curl, CURLOPT_POST, 1L);
        curl_easy_setopt(t.curl, CURLOPT_POSTFIELDS, x->message);
        curl_easy_setopt(t.curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->n_bytes);
        status = judge(&t, curl_easy_perform(t.curl), why, err);
    }
    if (t.curl) curl_easy_cleanup(t.curl);
    curl_slist_free_all(f.list);
    tern_strbuf_free(&t.body);
    tern_strbuf_free(&t.reply);
    mcp_events_free(&t.events);
    return status;
}

static tern_status exchange(void *self, mcp_exchange *x, tern_error *err) {
    http *h = self;
    if (x->method && !strcmp(x->method, "initialize")) tern_strbuf_clear(&h->session);
    return post(h, x, err);
}

// Tells a server with sessions to end this one.
static void end_session(http *h) {
    char why[CURL_ERROR_SIZE] = "";
    mcp_exchange x = {.id = -1, .end = tern_seconds() + 2};
    transfer t = {.h = h, .x = &x, .curl = curl_easy_init()};
    fields f = make_fields(h, &x);
    if (t.curl && !f.failed) {
        set_options(&t, f.list, why);
        curl_easy_setopt(t.curl, CURLOPT_CUSTOMREQUEST, "DELETE");
        curl_easy_perform(t.curl);
    }
    if (t.curl) curl_easy_cleanup(t.curl);
    curl_slist_free_all(f.list);
    tern_strbuf_free(&t.body);
    mcp_events_free(&t.events);
}

static void close_http(void *self) {
    http *h = self;
    if (h->session.len) end_session(h);
    for (size_t i = 0; h->fields && i < h->n_fields; i++) tern_free(h->fields[i]);
    tern_free(h->fields);
    tern_free(h->url);
    tern_strbuf_free(&h->session);
    tern_free(h);
}

tern_status mcp_open_http(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                          tern_error *err) {
    static bool is_ready;
    TERN_TRY(TERN_LAZY_LOAD(curl, err));
    if (!is_ready) curl_global_init(CURL_GLOBAL_DEFAULT); // the program has only one thread yet
    is_ready = true;
    http *h = tern_alloc(TERN_MEM_MISC, sizeof *h);
    if (!h) return tern_fail_memory(err, sizeof *h);
    *h = (http){.client = client,
                .url = tern_strdup(TERN_MEM_MISC, desc->url),
                .fields = tern_alloc_array(TERN_MEM_MISC, desc->n_fields, sizeof *h->fields)};
    *out = (mcp_carrier){exchange, NULL, close_http, h};
    bool ok = h->url && h->fields;
    for (; ok && h->n_fields < desc->n_fields; h->n_fields += ok)
        ok = (h->fields[h->n_fields] = tern_strdup(TERN_MEM_MISC, desc->fields[h->n_fields]));
    return ok ? TERN_OK : tern_fail_memory(err, sizeof *h);
}

#else

tern_status mcp_open_http(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                          tern_error *err) {
    (void)out, (void)client, (void)desc;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this tern was built without libcurl, and so without servers by address "
                     "(install libcurl4-openssl-dev, and build it again)");
}

#endif
