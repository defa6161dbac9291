#include "apps/serve/http/share.h"

#include "base/alloc.h"

// How far newcomers may go beyond the room: clients that come one after the other have 1, 1/2, 1/3
// ... of it, together four times the room after thirty.
#define BEYOND 4

static share_client *find(const share *s, uint64_t client) {
    for (size_t i = 0; i < s->n_clients; i++)
        if (s->clients[i].client == client) return &s->clients[i];
    return NULL;
}

size_t share_of(const share *s, uint64_t client) {
    const share_client *c = find(s, client);
    return c ? c->n : 0;
}

static bool fits(const share *s, size_t own, size_t n_clients, size_t n, size_t room) {
    if (n > room) return false;
    if (s->n + n <= room) return true;
    size_t fair = room / n_clients > 0 ? room / n_clients : 1;
    return own + n <= fair && s->n + n <= room * BEYOND;
}

static bool take(share *s, uint64_t client, size_t n) {
    share_client *c = find(s, client);
    if (n == 0) return true;
    if (!c) {
        if (tern_array_reserve(TERN_MEM_SESSION, &s->clients, &s->capacity, s->n_clients, 1) != 0)
            return false;
        c = &s->clients[s->n_clients++];
        *c = (share_client){.client = client};
    }
    c->n += n;
    s->n += n;
    return true;
}

bool share_take(share *s, uint64_t client, size_t n, size_t room) {
    const share_client *c = find(s, client);
    return fits(s, c ? c->n : 0, s->n_clients + !c, n, room) && take(s, client, n);
}

bool share_may_take_some(const share *s, uint64_t client, size_t n, size_t room) {
    return n <= room && s->n <= room - n && share_of(s, client) + n <= room - s->n - n;
}

bool share_take_some(share *s, uint64_t client, size_t n, size_t room) {
    return share_may_take_some(s, client, n, room) && take(s, client, n);
}

void share_give(share *s, uint64_t client, size_t n) {
    share_client *c = find(s, client);
    if (!c) return;
    s->n -= n;
    c->n -= n;
    if (c->n == 0) *c = s->clients[--s->n_clients];
}

void share_free(share *s) {
    tern_free(s->clients);
    *s = (share){0};
}
