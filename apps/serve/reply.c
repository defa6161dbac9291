// Answers as bytes: heads, errors, streams. See request.h.
#include "apps/serve/long_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/os_time.h"

// ---- Errors ------------------------------------------------------------------------------------

void api_fail(api_error *e, int status, const char *code, const char *param, const char *format,
              ...) {
    if (e->status) return; // the first one says it
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

static void put_head(tern_strbuf *out, const request *x, int status, const char *type) {
    http_put_status(out, status);
    put_date(out);
    http_put_field(out, "Server", "tern");
    // Nothing here is what a browser may guess it to be: an answer is never a page's script.
    http_put_field(out, "X-Content-Type-Options", "nosniff");
    if (type) http_put_field(out, "Content-Type", type);
    http_put_field(out, "x-request-id", x->id); // as OpenAI's client reads it
    http_put_field(out, "request-id", x->id);   // and Anthropic's
    if (x->has_front) {
        char front[12];
        snprintf(front, sizeof front, "%lu", (unsigned long)x->front);
        http_put_field(out, "x-tern-front", front);
    }
    if (x->allow_origin[0]) {
        http_put_field(out, "Access-Control-Allow-Origin", x->allow_origin);
        http_put_field(out, "Access-Control-Expose-Headers",
                       "x-request-id, request-id, x-tern-front, Retry-After, Mcp-Session-Id");
        http_put_field(out, "Vary", "Origin");
    }
    if (status == 429 || status == 503) http_put_field(out, "Retry-After", "2");
    if (status == 401) http_put_field(out, "WWW-Authenticate", "Bearer");
    if (!x->http->keeps_alive)
        http_put_field(out, "Connection", "close");
    else if (x->http->minor == 0)
        http_put_field(out, "Connection", "keep-alive");
}

static void begin(request *x, int status) {
    x->status = status;
    x->wrote = tern_seconds();
    if (x->is_away)
        x->counts = true;
    else
        metrics_count_request(&x->server->metrics, x->route ? x->route : "other", status);
}

static void finish(request *x) {
    if (x->is_over) return;
    x->is_over = true;
    if (x->is_away) return; // away.c ends it
    metrics_add(&x->server->metrics.request, tern_seconds() - x->arrived);
    x->sink->end(x->to);
}

// Sends what was put together. If there was no memory for it, nobody could tell the rest from the
// whole: so nothing more is sent, and the connection closes.
static void send(request *x, tern_strbuf *out) {
    if (x->is_over) return;
    if (out->failed) {
        x->is_broken = true;
        finish(x);
    } else if (x->is_away && x->said.len == 0) {
        tern_strbuf_free(&x->said);
        x->said = *out;
        *out = (tern_strbuf){0};
    } else if (x->is_away) {
        tern_strbuf_append(&x->said, tern_strbuf_text(out), out->len);
        if (!x->said.failed) return;
        x->is_broken = true;
        finish(x);
    } else if (out->len > 0) {
        x->sink->write(x->to, out->ptr, out->len);
    }
}

// ---- Whole answers -----------------------------------------------------------------------------

// For a sink that takes lines.
static void reply_line(request *x, const tern_strbuf *body) {
    tern_strbuf out = {.failed = body->failed};
    tern_strbuf_append(&out, tern_strbuf_text(body), body->len);
    tern_strbuf_putc(&out, '\n');
    send(x, &out);
    tern_strbuf_free(&out);
    finish(x);
}

static bool is_head(const request *x) { return tern_str_is(x->http->method, "HEAD"); }

// What a page may send. Any field: clients have many of their own.
static void put_permissions(tern_strbuf *out, const request *x) {
    tern_str asked = http_field_of(x->http, "access-control-request-headers");
    http_put_field(out, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    tern_strbuf_puts(out, "Access-Control-Allow-Headers: ");
    if (asked.len)
        tern_strbuf_append(out, asked.ptr, asked.len);
    else
        tern_strbuf_puts(out, "Authorization, Content-Type");
    tern_strbuf_puts(out, "\r\nAccess-Control-Max-Age: 600\r\n");
}

void reply_whole(request *x, int status, const char *type, const tern_strbuf *body) {
    static const char sorry[] = "{\"error\":{\"message\":\"out of memory\"}}";
    const tern_strbuf no_memory = {.ptr = (char *)sorry, .len = sizeof sorry - 1};
    tern_strbuf out = {0};
    if (body->failed) {
        status = 503;
        body = &no_memory;
        type = "application/json";
    }
    begin(x, status);
    if (x->sink->is_plain) {
        reply_line(x, body);
        return;
    }
    put_head(&out, x, status, type);
    if (x->allow) http_put_field(&out, "Allow", x->allow);
    if (x->preflight) put_permissions(&out, x);
    tern_strbuf_append(&out, tern_strbuf_text(&x->head), x->head.len);
    out.failed |= x->head.failed;
    if (status != 204 && status != 304) http_put_length(&out, body->len);
    http_put_head_end(&out);
    if (!is_head(x)) tern_strbuf_append(&out, tern_strbuf_text(body), body->len);
    send(x, &out);
    tern_strbuf_free(&out);
    finish(x);
}

void reply_json(request *x, const tern_strbuf *body) {
    server *s = x->server;
    if (!x->is_away && body->len > s->n_loop_bytes) s->n_loop_bytes = body->len;
    reply_whole(x, 200, "application/json", body);
}

void reply_error(request *x, const api_error *e) {
    if (long_text_begin(x, e)) return;
    if (x->error_format->refuse) {
        x->error_format->refuse(x, e);
        return;
    }
    tern_strbuf body = {0};
    tern_json_writer w = {.out = &body};
    x->error_format->put_error(&w, x, e);
    reply_whole(x, e->status, "application/json", &body);
    tern_strbuf_free(&body);
}

void reply_refusal(tern_strbuf *out, int status, const char *reason) {
    tern_strbuf body = {0};
    tern_json_writer w = {.out = &body};
    const request nobody = {0};
    api_error e = {0};
    api_fail(&e, status, NULL, NULL, "HTTP: %s", reason);
    error_format_openai.put_error(&w, &nobody, &e);
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

// HTTP/1.0 knows no chunks: there the end of the connection is the end of the answer.
static bool is_chunked(const request *x) { return !x->sink->is_plain && x->http->minor > 0; }

void reply_stream(request *x, const char *type) {
    tern_strbuf out = {0};
    begin(x, 200);
    x->is_stream = true;
    x->pings = !strcmp(type, "text/event-stream");
    if (x->sink->is_plain) return;
    put_head(&out, x, 200, type);
    http_put_field(&out, "Cache-Control", "no-cache");
    http_put_field(&out, "X-Accel-Buffering", "no");
    if (is_chunked(x)) http_put_field(&out, "Transfer-Encoding", "chunked");
    http_put_head_end(&out);
    send(x, &out);
    tern_strbuf_free(&out);
}

void reply_piece(request *x, tern_strbuf *text) {
    tern_strbuf *out = &x->frame; // its memory stays for the next piece
    tern_strbuf_clear(out);
    out->failed |= text->failed;
    if (is_chunked(x) && text->len > 0)
        http_put_chunk(out, text->ptr, text->len);
    else
        tern_strbuf_append(out, tern_strbuf_text(text), text->len);
    x->wrote = tern_seconds();
    tern_strbuf_clear(text);
    send(x, out);
}

void reply_end(request *x) {
    tern_strbuf out = {0};
    if (is_chunked(x)) http_put_last_chunk(&out);
    send(x, &out);
    tern_strbuf_free(&out);
    finish(x);
}
