// A connection: bytes become requests, one after the other, and answers become bytes. See loop.h.
//
// While a request is being answered, later ones wait in the socket: answers come in order. A little
// is still read from the socket, so that a disconnect is noticed at once, also while the prompt is
// computed or the job waits in the queue.
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/generation_request.h"
#include "apps/serve/request/away.h"
#include "apps/serve/request/long_body.h"
#include "apps/serve/loop.h"
#include "base/alloc.h"
#include "base/os/os_time.h"

#define READ_AHEAD     65536              // bytes of later requests that are read from the socket
#define UNREAD_MAX     ((size_t)16 << 20) // bytes of a stream that its client has not read
#define PING_SECONDS   15                 // of silence in a stream
#define DISCARD_MAX    65536              // bytes of a body that is read only to be thrown away
#define LINGER_SECONDS 2                  // for a client to read the refusal

struct connection {
    loop *loop;
    connection *next, **link;
    struct bufferevent *socket;
    struct event *go_on; // the answer or the connection is over
    http_reader reader;
    request *coming;  // its head is there, its body is being received; NULL: none
    request *request; // being answered; NULL: none
    uint64_t client;
    char peer[64];
    // In the loop's ticks: when it began to wait for a request, or the request's first byte came;
    // when bytes were last sent, or began to wait to be sent.
    uint64_t since, moved;
    bool in_request, continued, closing, lingers, is_doomed;
    bool is_writing; // a piece of its upload: nothing is read meanwhile
};

static void free_connection(connection *c) {
    if (c->coming) request_free(c->coming);
    if (c->request) request_free(c->request);
    if (c->socket) bufferevent_free(c->socket);
    if (c->go_on) event_free(c->go_on);
    if (c->link) {
        *c->link = c->next;
        if (c->next) c->next->link = c->link;
        c->loop->server.n_connections--;
        share_give(&c->loop->places, c->client, 1);
    }
    http_reader_free(&c->reader);
    tern_free(c);
}

void connection_close(connection *c) {
    loop *l = c->loop;
    free_connection(c);
    if (l->listener && l->server.n_connections <= l->desc->n_connections)
        evconnlistener_enable(l->listener); // there is room again
}

static size_t unsent(const connection *c) {
    return evbuffer_get_length(bufferevent_get_output(c->socket));
}

// Closes when everything is sent. If the client still sends, closing the socket would lose the
// answer: so only this side is shut down, and input is discarded for a moment.
static void finish(connection *c) {
    c->closing = true;
    if (unsent(c) > 0 || c->lingers) return;
    if (c->loop->tls || shutdown(bufferevent_getfd(c->socket), SHUT_WR) != 0) {
        c->is_doomed = true;
        event_active(c->go_on, EV_TIMEOUT, 0);
        return;
    }
    c->lingers = true;
    c->since = c->loop->ticks;
}

// ---- Answers -----------------------------------------------------------------------------------

static void sink_write(void *to, const char *bytes, size_t n) {
    connection *c = to;
    if (c->is_doomed) return;
    bufferevent_write(c->socket, bytes, n);
    if (c->request && c->request->is_stream && unsent(c) > UNREAD_MAX) {
        c->is_doomed = true; // it reads too slowly
        event_active(c->go_on, EV_TIMEOUT, 0);
    }
}

// Not at once: the caller that ends an answer may still use it.
static void sink_end(void *to) {
    connection *c = to;
    event_active(c->go_on, EV_TIMEOUT, 0);
}

static void free_sent(const void *bytes, size_t n, void *arg) {
    (void)n;
    (void)arg;
    tern_free((void *)bytes);
}

// Without a copy: it may be long.
static void sink_give(void *to, tern_strbuf *text) {
    connection *c = to;
    struct evbuffer *out = bufferevent_get_output(c->socket);
    if (!c->is_doomed && evbuffer_add_reference(out, text->ptr, text->len, free_sent, NULL) == 0)
        *text = (tern_strbuf){0};
    else
        sink_write(to, text->ptr, text->len);
}
static void sink_more(void *to);
static const sink socket_sink = {
    .write = sink_write, .end = sink_end, .give = sink_give, .more = sink_more};

static void log_request(const connection *c, const request *req) {
    tern_strbuf path = {0}, model = {0};
    generation_usage u = {0};
    if (req->generation && !req->is_away) u = generation_usage_of(req->generation);
    tern_strbuf_json(&path, req->http->path.ptr, req->http->path.len);
    if (req->model) {
        tern_strbuf_puts(&model, " model=");
        tern_strbuf_json(&model, req->model->about.name, strlen(req->model->about.name));
    }
    if (req->waited > 0.001) tern_strbuf_printf(&model, " opening=%.3f", req->waited);
    log_line("request",
             "id=%s client=%s method=%.*s path=%s status=%d seconds=%.3f prompt=%zu "
             "cached=%zu generated=%zu%s%s",
             req->id, c->peer, (int)req->http->method.len, req->http->method.ptr,
             tern_strbuf_text(&path), req->status, tern_seconds() - req->arrived, u.n_prompt,
             u.n_cached, u.n_generated, tern_strbuf_text(&model), req->is_over ? "" : " left=true");
    tern_strbuf_free(&path);
    tern_strbuf_free(&model);
}

static void doom(connection *c) { // no memory
    c->is_doomed = c->closing = true;
    event_active(c->go_on, EV_TIMEOUT, 0);
}

static request *make_request(connection *c) {
    request *req = tern_alloc(TERN_MEM_SESSION, sizeof *req);
    if (!req) return NULL;
    req->server = &c->loop->server;
    req->sink = &socket_sink;
    req->to = c;
    req->http = &c->reader.request;
    req->client = c->client;
    return req;
}

// Moves the head to the request, which may outlive the connection.
static void begin_request(connection *c) {
    request *req = c->coming ? c->coming : make_request(c);
    c->coming = NULL;
    if (!req) {
        doom(c);
        return;
    }
    req->reader = c->reader;
    req->http = &req->reader.request;
    c->reader = (http_reader){.limits = req->reader.limits};
    c->request = req;
    request_begin(req);
    if (c->loop->desc->verbose)
        log_line("begin", "id=%s client=%s path=%s", req->id, c->peer,
                 tern_strbuf_text(&req->path));
}

// ---- Requests ----------------------------------------------------------------------------------

static void refuse(connection *c) {
    tern_strbuf out = {0};
    reply_refusal(&out, &error_format_openai, c->reader.status, c->reader.reason);
    log_line("refused", "client=%s status=%d reason=\"%s\"", c->peer, c->reader.status,
             c->reader.reason);
    metrics_count_request(&c->loop->server.metrics, "other", c->reader.status);
    if (!out.failed) bufferevent_write(c->socket, out.ptr, out.len);
    tern_strbuf_free(&out);
    finish(c);
}

// Refuses a request before its body has come. A short body is awaited, so that the connection can
// be reused; else the connection closes.
static void refuse_early(connection *c, request *req, const api_error *e) {
    http_reader *r = &c->reader;
    bool is_short = r->has_length && r->left <= DISCARD_MAX && !r->request.expects_continue;
    req->refusal = is_short ? tern_alloc(TERN_MEM_SESSION, sizeof *req->refusal) : NULL;
    r->discards = true;
    if (req->refusal) {
        *req->refusal = *e;
        c->coming = req;
        return;
    }
    r->request.keeps_alive = false;
    c->request = req;
    request_refuse(req, e);
}

static void refuse_inflight(connection *c, request *req) {
    api_error e = {0};
    api_fail_inflight(&e);
    c->coming = NULL;
    c->reader.has_length = false; // the body is not awaited
    refuse_early(c, req, &e);
}

// The head is there: a request that is not allowed is refused before a byte of its body is kept.
static void look_at_head(connection *c) {
    api_error e = {0};
    request *req = make_request(c);
    if (!req) {
        doom(c);
    } else if (!request_screen(req, &e)) {
        refuse_early(c, req, &e);
    } else if (!request_takes_body(req)) {
        c->reader.discards = true; // of a GET
        c->coming = req;
    } else if (c->reader.left > SHORT_BYTES && !budget_may_take(req, (size_t)c->reader.left)) {
        refuse_inflight(c, req);
    } else {
        c->coming = req;
    }
}

// Received bytes are in memory, and are charged to the client.
static void weigh_body(connection *c) {
    size_t n = c->reader.body.capacity;
    request *req = c->coming;
    if (n > SHORT_BYTES && n > req->charged && !budget_take(req, n - req->charged))
        refuse_inflight(c, req);
}

// What has come of an upload is written.
static void write_piece(connection *c) {
    http_reader *r = &c->reader;
    if (!c->coming || !c->coming->upload || r->discards || r->body.len < UPLOAD_PIECE) return;
    r->n_discarded += r->body.len;
    c->is_writing = true;
    upload_take(c->coming, &r->body);
}

// Answers "Expect: 100-continue", once.
static void continue_body(connection *c) {
    static const char leave[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->reader.place < HTTP_AT_BODY) return;
    if (!c->coming && !c->request) look_at_head(c);
    if (c->coming) weigh_body(c);
    if (c->continued || !c->coming || !c->reader.request.expects_continue) return;
    c->continued = true;
    bufferevent_write(c->socket, leave, sizeof leave - 1);
}

// Checks the buffer's length: a buffer without bytes may still have an empty chain in front, if the
// end of the stream was read while the last event of an answer was pending.
static void read_some(connection *c) {
    struct evbuffer *in = bufferevent_get_input(c->socket);
    if (c->lingers) evbuffer_drain(in, evbuffer_get_length(in));
    for (size_t n;
         !c->request && !c->closing && !c->is_writing && (n = evbuffer_get_length(in)) > 0;) {
        size_t used;
        const char *bytes = (const char *)evbuffer_pullup(in, -1);
        if (!bytes) {
            doom(c);
            return;
        }
        if (!c->in_request) c->since = c->loop->ticks;
        c->in_request = true;
        http_progress p = http_reader_feed(&c->reader, bytes, n, &used);
        if (p == HTTP_REFUSED) refuse(c);
        if (p == HTTP_MORE) continue_body(c);
        evbuffer_drain(in, used);
        if (p == HTTP_MORE) write_piece(c);
        if (p == HTTP_READY) begin_request(c);
    }
}

static void sink_more(void *to) {
    connection *c = to;
    request *req = c->coming;
    api_error e = {0};
    c->is_writing = false;
    c->since = c->loop->ticks; // each piece has its own time
    if (!req->refusal && !req->body_failed) {
        read_some(c);
        return;
    }
    if (req->refusal) e = *req->refusal;
    if (req->body_failed) api_fail_memory(&e);
    tern_free(req->refusal);
    req->refusal = NULL;
    c->coming = NULL;
    c->reader.has_length = false; // the rest is not awaited
    refuse_early(c, req, &e);
}

static void on_read(struct bufferevent *socket, void *arg) {
    (void)socket;
    read_some(arg);
}

static void on_written(struct bufferevent *socket, void *arg) {
    connection *c = arg;
    (void)socket;
    if (c->closing && !c->request) finish(c);
}

// A client's time to read starts when there is something to read, since an answer may take long.
static void on_moved(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg) {
    connection *c = arg;
    (void)out;
    if (info->n_deleted || info->orig_size == 0) c->moved = c->loop->ticks;
}

static void on_event(struct bufferevent *socket, short what, void *arg) {
    connection *c = arg;
    (void)socket;
    if (!(what & (BEV_EVENT_EOF | BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT))) return;
    if (c->request) log_request(c, c->request);
    connection_close(c);
}

// Keeps the reader's memory for the next request, unless it is large.
static void take_back(connection *c, request *req) {
    if (req->http != &req->reader.request && req->http != &req->decoded)
        return; // the reader is here
    if (req->is_away || req->reader.body.capacity > SHORT_BYTES) return;
    c->reader = req->reader;
    req->reader = (http_reader){0};
}

static void on_go_on(evutil_socket_t fd, short what, void *arg) {
    connection *c = arg;
    request *req = c->request;
    (void)fd;
    (void)what;
    if (req) log_request(c, req);
    if (c->is_doomed || (req && req->is_broken)) {
        connection_close(c);
        return;
    }
    if (!req) return;
    bool stays = req->http->keeps_alive && !c->loop->server.stopping;
    take_back(c, req);
    request_free(req);
    c->request = NULL;
    c->in_request = c->continued = false;
    c->since = c->loop->ticks;
    http_reader_next(&c->reader);
    if (stays)
        read_some(c);
    else
        finish(c);
}

// ---- Opening -----------------------------------------------------------------------------------

static struct bufferevent *open_socket(loop *l, evutil_socket_t fd) {
    // Callbacks are never called from within a write, so a request cannot be freed under its
    // handler.
    const int options = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    if (!l->tls) return bufferevent_socket_new(l->base, fd, options);
    SSL *ssl = SSL_new(l->tls);
    if (!ssl) return NULL;
    struct bufferevent *b =
        bufferevent_openssl_socket_new(l->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, options);
    if (b)
        bufferevent_openssl_set_allow_dirty_shutdown(b, 1);
    else
        SSL_free(ssl);
    return b;
}

// ---- Room --------------------------------------------------------------------------------------

// The client's connection that has waited longest for a request, or, with `half`, for the rest of
// one.
static connection *find_idle(const loop *l, uint64_t client, const connection *but, bool half) {
    connection *best = NULL;
    for (connection *c = l->connections; c; c = c->next) {
        bool is_idle = !c->request && !c->closing && (half || !c->in_request);
        if (!is_idle || c == but || c->client != client) continue;
        if (!best || c->since < best->since) best = c;
    }
    return best;
}

static const share_client *who_has_most(const share *s) {
    const share_client *most = s->clients;
    for (size_t i = 1; i < s->n_clients; i++)
        if (s->clients[i].n > most->n) most = &s->clients[i];
    return most;
}

// There is one connection too many: closes an idle one of the address that has most. For an address
// with fewer, this may be one whose request is incomplete.
static bool make_room(loop *l, const connection *newest) {
    const share_client *most = who_has_most(&l->places);
    bool has_fewer = share_of(&l->places, newest->client) < most->n;
    connection *goes = find_idle(l, most->client, newest, false);
    if (!goes && has_fewer) goes = find_idle(l, most->client, newest, true);
    if (!goes) return false;
    log_line("closed", "client=%s reason=\"all connections are taken\"", goes->peer);
    connection_close(goes);
    return true;
}

static bool may_connect(const loop *l, uint64_t client) {
    size_t most = l->desc->n_client_connections;
    return most == 0 || share_of(&l->places, client) < most;
}

void connection_open(loop *l, evutil_socket_t fd, uint64_t client, const char *peer) {
    connection *c = may_connect(l, client) ? tern_alloc(TERN_MEM_SESSION, sizeof *c) : NULL;
    struct bufferevent *b =
        c && share_take(&l->places, client, 1, SIZE_MAX) ? open_socket(l, fd) : NULL;
    if (!b) {
        if (c) share_give(&l->places, client, 1);
        evutil_closesocket(fd);
        tern_free(c);
        return;
    }
    c->loop = l;
    c->socket = b;
    c->client = client;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    c->since = c->moved = l->ticks;
    c->reader.limits = (http_limits){.head_bytes = 32768,
                                     .n_fields = 100,
                                     .body_bytes = l->desc->body_bytes,
                                     .upload_path = UPLOAD_PATH,
                                     .upload_bytes = UINT64_MAX / 2};
    c->go_on = event_new(l->base, -1, 0, on_go_on, c);
    if (!c->go_on) {
        share_give(&l->places, client, 1);
        free_connection(c);
        return;
    }
    c->next = l->connections;
    c->link = &l->connections;
    if (c->next) c->next->link = &c->next;
    l->connections = c;
    l->server.n_connections++;
    evbuffer_add_cb(bufferevent_get_output(b), on_moved, c);
    bufferevent_setcb(b, on_read, on_written, on_event, c);
    bufferevent_setwatermark(b, EV_READ, 0, READ_AHEAD);
    bufferevent_enable(b, EV_READ | EV_WRITE);
    if (l->server.n_connections > l->desc->n_connections && !make_room(l, c))
        evconnlistener_disable(l->listener);
}

// ---- Time --------------------------------------------------------------------------------------

// Whether it has waited too long: for a request, for the rest of one, or for its client to read.
static bool is_late(const connection *c) {
    double most = c->loop->desc->idle_seconds, waited = (double)(c->loop->ticks - c->since);
    if (c->is_writing) return false;
    if (c->lingers) return waited > LINGER_SECONDS;
    if (unsent(c) > 0) return (double)(c->loop->ticks - c->moved) > most;
    if (c->request) return false;
    return waited > (c->in_request ? most / 2 : most);
}

static void ping(request *req, double now) {
    tern_strbuf text = {0};
    if (!req->pings || req->is_over || req->is_away || now - req->wrote < PING_SECONDS) return;
    tern_strbuf_puts(&text, ": ping\n\n");
    reply_piece(req, &text);
    tern_strbuf_free(&text);
}

static void give_up(connection *c) {
    if (c->in_request && !c->request && !c->closing) {
        c->reader.status = 408;
        c->reader.reason = "the request did not come to its end in time";
        refuse(c);
        return;
    }
    if (c->request) log_request(c, c->request);
    connection_close(c);
}

void connections_tick(loop *l, double now) {
    for (connection *c = l->connections, *next; c; c = next) {
        next = c->next;
        if (c->request) ping(c->request, now);
        if (is_late(c)) give_up(c);
    }
}

size_t connections_drain(loop *l) {
    for (connection *c = l->connections, *next; c; c = next) {
        next = c->next;
        if (!c->request && unsent(c) == 0) connection_close(c);
    }
    return l->server.n_connections;
}
