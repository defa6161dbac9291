// Bytes in flight: bodies of requests that are being received or answered, and what is made of
// them. All clients share desc->inflight_bytes as share.h says.
#include "apps/serve/request/request.h"

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
