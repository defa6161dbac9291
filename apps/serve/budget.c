// Bytes in flight: bodies of requests that come or are answered, and what they became. All clients
// together have desc->inflight_bytes; share.h says how they share.
#include "apps/serve/request.h"

static size_t room(const request *x) {
    size_t most = x->server->desc->inflight_bytes;
    return most ? most : SIZE_MAX;
}

bool budget_may_take(const request *x, size_t n_bytes) {
    return share_may_take_some(&x->server->inflight, x->client, n_bytes, room(x));
}

bool budget_take(request *x, size_t n_bytes) {
    if (!share_take_some(&x->server->inflight, x->client, n_bytes, room(x))) return false;
    x->charged += n_bytes;
    return true;
}

void budget_give(request *x) {
    share_give(&x->server->inflight, x->client, x->charged);
    x->charged = 0;
}
