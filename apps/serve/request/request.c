// What a request does on its way, whatever its interface: it gets a name, waits for its model, is
// handled, and is freed.
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/away.h"
#include "apps/serve/request/long_text.h"
#include "apps/serve/request/request_sounds.h"
#include "apps/serve/request/texts.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_time.h"

void request_name(request *req) {
    server *s = req->server;
    uint64_t id = tern_mix64(tern_random_seed() + ++s->n_requests);
    snprintf(req->id, sizeof req->id, "req_%016llx", (unsigned long long)id);
    req->arrived = tern_seconds();
}

tern_str request_query(const request *req, const char *name, tern_strbuf *room) {
    tern_str rest = req->http->query;
    size_t n = strlen(name);
    while (rest.len > 0) {
        const char *end = memchr(rest.ptr, '&', rest.len);
        size_t length = end ? (size_t)(end - rest.ptr) : rest.len, used = length + (end != NULL);
        if (length > n && !memcmp(rest.ptr, name, n) && rest.ptr[n] == '=' &&
            http_unescape((tern_str){rest.ptr + n + 1, length - n - 1}, room))
            return (tern_str){tern_strbuf_text(room), room->len};
        rest = (tern_str){rest.ptr + used, rest.len - used};
    }
    return (tern_str){NULL, 0};
}

// ---- The model ---------------------------------------------------------------------------------

static void on_ready(model_wait *w, const tern_error *err) {
    request *req = (request *)((char *)w - offsetof(request, wait));
    api_error e = {0};
    if (!err) {
        req->holds = true;
        req->waited = tern_seconds() - req->arrived;
        if (req->has_keep) registry_keep(req->model, req->keep_seconds);
        request_handle(req);
        return;
    }
    if (req->server->stopping)
        api_fail(&e, 503, "stopping", NULL, "%s", err->message);
    else
        api_fail(&e, 500, "model_unavailable", "model", "%s", err->message);
    reply_error(req, &e);
}

void request_handle(request *req) { request_do(req, req->n_body, req->handle, NULL); }

static void ask_registry(request *req) { registry_ask(req->model, &req->wait); }

void request_with_model(request *req, void (*handle)(request *req)) {
    req->handle = handle;
    req->wait.ready = on_ready;
    request_then(req, ask_registry);
}

// ---- Bytes in flight ---------------------------------------------------------------------------

// Bodies of requests that are being received or answered, and what is made of them. All clients
// share desc->inflight_bytes as share.h says.
static size_t room(const request *req) {
    size_t most = req->server->desc->inflight_bytes;
    return most ? most : SIZE_MAX;
}

bool budget_may_take(const request *req, size_t n_bytes) {
    return share_may_take_some(&req->server->inflight, req->client, n_bytes, room(req));
}

bool budget_take(request *req, size_t n_bytes) {
    if (!share_take_some(&req->server->inflight, req->client, n_bytes, room(req))) return false;
    req->charged += n_bytes;
    return true;
}

void budget_give(request *req) {
    share_give(&req->server->inflight, req->client, req->charged);
    req->charged = 0;
}

// ---- The end -----------------------------------------------------------------------------------

void request_free_parts(request *req) {
    long_text_free(req);
    if (req->mcp) req->free_mcp(req);
    texts_free(req->texts);
    heard_free(req->heard);
    preset_release(req->preset);
    generation_free(req->generation);
    tern_free(req->refusal);
}
