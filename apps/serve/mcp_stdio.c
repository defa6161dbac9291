// The Model Context Protocol over a pair of pipes: one message a line, in and out. See serve.h.
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "apps/serve/request/long_body.h"
#include "apps/serve/api/mcp/mcp_server.h"
#include "apps/serve/sockets.h"
#include "apps/serve/stdio_in.h"
#include "base/alloc.h"
#include "base/os/os_time.h"

typedef struct pipe_request { // a message, until its answer is out
    request req;
    struct pipe_request *next;
    bool is_over;
} pipe_request;

typedef struct pipes {
    server server;
    jsonrpc_lines lines;
    pipe_request *list;
    bool is_ended; // no more input, or the client has stopped reading
    tern_error err;
} pipes;

static const http_request no_request = {.minor = 1};

// ---- Out ---------------------------------------------------------------------------------------

static pipes *pipes_of(request *req) { return (pipes *)req->server; }

// A client that has gone is not an error; a full disk is.
static void end_output(pipes *p) {
    p->is_ended = true;
    if (errno != EPIPE) tern_fail(&p->err, TERN_ERR_IO, "standard output: %s", strerror(errno));
}

static void sink_write(void *to, const char *bytes, size_t n) {
    pipe_request *p = to;
    while (n > 0 && !pipes_of(&p->req)->is_ended) {
        ssize_t some = write(STDOUT_FILENO, bytes, n);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) end_output(pipes_of(&p->req));
        bytes += some < 0 ? 0 : some;
        n -= some < 0 ? 0 : (size_t)some;
    }
}
static void sink_end(void *to) {
    pipe_request *p = to;
    p->is_over = true;
}
static const sink pipe_sink = {.write = sink_write, .end = sink_end, .is_plain = true};

static void free_over(pipes *p, bool all) {
    for (pipe_request **at = &p->list; *at;) {
        pipe_request *one = *at;
        if (one->is_over || all) {
            *at = one->next;
            if (one->req.is_broken) { // an answer could not be written
                p->is_ended = true;
                tern_fail_memory(&p->err, one->req.text.len);
            }
            request_free(&one->req);
        } else {
            at = &one->next;
        }
    }
}

// ---- In ----------------------------------------------------------------------------------------

static void take_body(request *req, api_error *e) {
    if (e->status)
        reply_error(req, e);
    else
        mcp_take_message(req);
}

static bool take_line(pipes *p, tern_str line, jsonrpc_line kind) {
    pipe_request *one = tern_alloc(TERN_MEM_SESSION, sizeof *one);
    api_error e = {0};
    if (!one) return false;
    *one = (pipe_request){.req = {.server = &p->server,
                                  .sink = &pipe_sink,
                                  .to = one,
                                  .http = &no_request,
                                  .error_format = &error_format_mcp,
                                  .route = "stdio"},
                          .next = p->list};
    p->list = one;
    request *req = &one->req;
    request_name(req);
    if (kind == JSONRPC_LINE)
        tern_strbuf_append(&req->text, line.ptr, line.len);
    else
        api_fail(&e, 400, NULL, NULL, "a message has more than %zu bytes", p->lines.line_max);
    if (req->text.failed) api_fail_memory(&e);
    if (e.status)
        take_body(req, &e);
    else
        body_read_then(req, take_body);
    return true;
}

static void take_lines(pipes *p, const char *bytes, size_t n) {
    tern_str line = {NULL, 0};
    jsonrpc_lines_add(&p->lines, bytes, n);
    for (jsonrpc_line kind; (kind = jsonrpc_lines_next(&p->lines, &line)) != JSONRPC_NO_LINE;)
        if (kind == JSONRPC_NO_MEMORY || !take_line(p, line, kind)) {
            p->is_ended = true;
            tern_fail_memory(&p->err, p->lines.text.len);
            return;
        }
}

// ---- The loop ----------------------------------------------------------------------------------

static void wake(void *user) { // any thread
    (void)user;
    stdio_in_wake();
}

static tern_status run(pipes *p, tern_error *err) {
    double ticked = tern_seconds();
    char bytes[65536];
    while (!p->is_ended) {
        bool woken;
        int64_t n = stdio_in_wait(1, bytes, sizeof bytes, &woken);
        if (woken) server_take_events(&p->server);
        if (n > 0) take_lines(p, bytes, (size_t)n);
        p->is_ended |= n < 0;
        free_over(p, false);
        if (tern_seconds() - ticked < 1) continue;
        ticked = tern_seconds();
        registry_tick(p->server.registry, ticked);
    }
    if (p->err.status == TERN_OK) return TERN_OK;
    return tern_fail(err, p->err.status, "%s", p->err.message);
}

tern_status serve_stdio(const serve_desc *desc, tern_error *err) {
    pipes p = {.lines = {.line_max = desc->body_bytes}};
    sockets_begin();
    tern_status status = TERN_OK;
    if (!stdio_in_open())
        status = tern_fail(err, TERN_ERR_IO, "standard input: %s", strerror(errno));
    if (status == TERN_OK) status = server_open(&p.server, desc, wake, &p, err);
    if (status == TERN_OK) status = server_load(&p.server, err);
    if (status == TERN_OK) status = run(&p, err);
    free_over(&p, true);
    server_close(&p.server);
    jsonrpc_lines_free(&p.lines);
    stdio_in_close();
    return status;
}
