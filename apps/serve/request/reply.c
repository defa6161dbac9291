// Answers as bytes: heads, errors, streams. See request.h.
#include "apps/serve/request/long_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/os/os_time.h"

// ---- Errors ------------------------------------------------------------------------------------

void api_fail(api_error *e, int status, const char *code, const char *param, const char *format,
              ...) {
    if (e->status) return; // the first error is kept
    e->status = status;
    e->code = code;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list args;
    va_start(args, format);
    vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
}

void api_fail_memory(api_error *e) { api_fail(e, 503, "out_of_memory", NULL, "out of memory"); }

void api_fail_full(api_error *e) {
    api_fail(e, 429, "queue_full", NULL, "too many requests are waiting: try again later");
}

void api_fail_inflight(api_error *e) {
    api_fail(e, 429, "too_many_bytes", NULL,
             "the bodies of your requests in flight are too many bytes: try again later");
}

void api_fail_status(api_error *e, const tern_error *err, const char *param) {
    switch (err->status) {
    case TERN_ERR_MEMORY: api_fail(e, 503, "out_of_memory", NULL, "%s", err->message); break;
    case TERN_ERR_IO:
    case TERN_ERR_DEVICE: api_fail(e, 500, NULL, NULL, "%s", err->message); break;
    case TERN_ERR_CONTEXT_FULL:
        api_fail(e, 400, "context_length_exceeded", param, "%s", err->message);
        break;
    default: api_fail(e, 400, NULL, param, "%s", err->message);
    }
}

// ---- Heads -------------------------------------------------------------------------------------

static void put_date(tern_strbuf *out) {
    static const char days[] = "SunMonTueWedThuFriSat",
                      months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm t;
    gmtime_r(&now, &t);
    tern_strbuf_printf(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday,
                       t.tm_mday, months + 3 * t.tm_mon, t.tm_year + 1900, t.tm_hour, t.tm_min,
                       t.tm_sec);
}

static void put_head(tern_strbuf *out, const request *req, int status, const char *type) {
    http_put_status(out, status);
    put_date(out);
    http_put_field(out, "Server", "tern");
    // Browsers must not guess the type: an answer is never a script.
    http_put_field(out, "X-Content-Type-Options", "nosniff");
    if (type) http_put_field(out, "Content-Type", type);
    http_put_field(out, "x-request-id", req->id); // as OpenAI's client reads it
    http_put_field(out, "request-id", req->id);   // and Anthropic's
    if (req->has_prefix_hash) {
        char prefix[12];
        snprintf(prefix, sizeof prefix, "%lu", (unsigned long)req->prefix_hash);
        http_put_field(out, "x-tern-prefix", prefix);
    }
    if (req->allow_origin[0]) {
        http_put_field(out, "Access-Control-Allow-Origin", req->allow_origin);
        http_put_field(out, "Access-Control-Expose-Headers",
                       "x-request-id, request-id, x-tern-prefix, Retry-After, Mcp-Session-Id");
        http_put_field(out, "Vary", "Origin");
    }
    if (status == 429 || status == 503) http_put_field(out, "Retry-After", "2");
    if (status == 401) http_put_field(out, "WWW-Authenticate", "Bearer");
    if (!req->http->keeps_alive)
        http_put_field(out, "Connection", "close");
    else if (req->http->minor == 0)
        http_put_field(out, "Connection", "keep-alive");
}

static void begin(request *req, int status) {
    req->status = status;
    req->wrote = tern_seconds();
    if (req->is_away)
        req->counts = true;
    else
        metrics_count_request(&req->server->metrics, req->route ? req->route : "other", status);
}

static void finish(request *req) {
    if (req->is_over) return;
    req->is_over = true;
    if (req->is_away) return; // away.c ends it
    metrics_add(&req->server->metrics.request, tern_seconds() - req->arrived);
    req->sink->end(req->to);
}

// Sends the buffer. If memory ran out while writing it, the client could not tell a truncated
// answer from a whole one: so nothing more is sent, and the connection closes.
static void send(request *req, tern_strbuf *out) {
    if (req->is_over) return;
    if (out->failed) {
        req->is_broken = true;
        finish(req);
    } else if (req->is_away && req->said.len == 0) {
        tern_strbuf_free(&req->said);
        req->said = *out;
        *out = (tern_strbuf){0};
    } else if (req->is_away) {
        tern_strbuf_append(&req->said, tern_strbuf_text(out), out->len);
        if (!req->said.failed) return;
        req->is_broken = true;
        finish(req);
    } else if (out->len > 0) {
        req->sink->write(req->to, out->ptr, out->len);
    }
}

// ---- Whole answers -----------------------------------------------------------------------------

// For a sink that takes lines.
static void reply_line(request *req, const tern_strbuf *body) {
    tern_strbuf out = {.failed = body->failed};
    tern_strbuf_append(&out, tern_strbuf_text(body), body->len);
    tern_strbuf_putc(&out, '\n');
    send(req, &out);
    tern_strbuf_free(&out);
    finish(req);
}

static bool is_head(const request *req) { return tern_str_is(req->http->method, "HEAD"); }

// What a page may send: any header field, since clients have many of their own.
static void put_permissions(tern_strbuf *out, const request *req) {
    tern_str asked = http_field_of(req->http, "access-control-request-headers");
    http_put_field(out, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    tern_strbuf_puts(out, "Access-Control-Allow-Headers: ");
    if (asked.len)
        tern_strbuf_append(out, asked.ptr, asked.len);
    else
        tern_strbuf_puts(out, "Authorization, Content-Type");
    tern_strbuf_puts(out, "\r\nAccess-Control-Max-Age: 600\r\n");
}

void reply_whole(request *req, int status, const char *type, const tern_strbuf *body) {
    static const char sorry[] = "{\"error\":{\"message\":\"out of memory\"}}";
    const tern_strbuf no_memory = {.ptr = (char *)sorry, .len = sizeof sorry - 1};
    tern_strbuf out = {0};
    if (body->failed) {
        status = 503;
        body = &no_memory;
        type = "application/json";
    }
    begin(req, status);
    if (req->sink->is_plain) {
        reply_line(req, body);
        return;
    }
    put_head(&out, req, status, type);
    if (req->preflight) put_permissions(&out, req);
    tern_strbuf_append(&out, tern_strbuf_text(&req->head), req->head.len);
    out.failed |= req->head.failed;
    if (status != 204 && status != 304) http_put_length(&out, body->len);
    http_put_head_end(&out);
    if (!is_head(req)) tern_strbuf_append(&out, tern_strbuf_text(body), body->len);
    send(req, &out);
    tern_strbuf_free(&out);
    finish(req);
}

void reply_json(request *req, const tern_strbuf *body) {
    server *s = req->server;
    if (!req->is_away && body->len > s->n_loop_bytes) s->n_loop_bytes = body->len;
    reply_whole(req, 200, "application/json", body);
}

void reply_error(request *req, const api_error *e) {
    if (long_text_begin(req, e)) return;
    if (req->error_format->refuse) {
        req->error_format->refuse(req, e);
        return;
    }
    tern_strbuf body = {0};
    tern_json_writer w = {.out = &body};
    req->error_format->put_error(&w, req, e);
    reply_whole(req, e->status, "application/json", &body);
    tern_strbuf_free(&body);
}

void reply_refusal(tern_strbuf *out, const error_format *format, int status, const char *reason) {
    tern_strbuf body = {0};
    tern_json_writer w = {.out = &body};
    const request nobody = {0};
    api_error e = {0};
    api_fail(&e, status, NULL, NULL, "HTTP: %s", reason);
    format->put_error(&w, &nobody, &e);
    http_put_status(out, status);
    put_date(out);
    http_put_field(out, "Content-Type", "application/json");
    http_put_field(out, "Connection", "close");
    http_put_length(out, body.len);
    http_put_head_end(out);
    tern_strbuf_append(out, tern_strbuf_text(&body), body.len);
    tern_strbuf_free(&body);
}

// ---- Streams -----------------------------------------------------------------------------------

// HTTP/1.0 has no chunks: there the end of the connection is the end of the answer.
static bool is_chunked(const request *req) { return !req->sink->is_plain && req->http->minor > 0; }

void reply_stream(request *req, const char *type) {
    tern_strbuf out = {0};
    begin(req, 200);
    req->is_stream = true;
    req->pings = !strcmp(type, "text/event-stream");
    if (req->sink->is_plain) return;
    put_head(&out, req, 200, type);
    http_put_field(&out, "Cache-Control", "no-cache");
    http_put_field(&out, "X-Accel-Buffering", "no");
    if (is_chunked(req)) http_put_field(&out, "Transfer-Encoding", "chunked");
    http_put_head_end(&out);
    send(req, &out);
    tern_strbuf_free(&out);
}

void reply_piece(request *req, tern_strbuf *text) {
    tern_strbuf *out = &req->frame; // its memory stays for the next piece
    tern_strbuf_clear(out);
    out->failed |= text->failed;
    if (is_chunked(req) && text->len > 0)
        http_put_chunk(out, text->ptr, text->len);
    else
        tern_strbuf_append(out, tern_strbuf_text(text), text->len);
    req->wrote = tern_seconds();
    tern_strbuf_clear(text);
    send(req, out);
}

void reply_end(request *req) {
    tern_strbuf out = {0};
    if (is_chunked(req)) http_put_last_chunk(&out);
    send(req, &out);
    tern_strbuf_free(&out);
    finish(req);
}
