#include "apps/serve/engine/waiting.h"

#include <string.h>
#include "base/alloc.h"

static waiting_client *find(const waiting *w, uint64_t client) {
    for (size_t i = 0; i < w->n_clients; i++)
        if (w->clients[i].client == client) return &w->clients[i];
    return NULL;
}

static void forget_if_idle(waiting *w, waiting_client *c) {
    if (c->n_running || c->n_waiting) return;
    *c = w->clients[--w->n_clients];
}

bool waiting_add(waiting *w, job *j) {
    waiting_client *c = find(w, j->client);
    if (!c) {
        if (tern_array_reserve(TERN_MEM_SESSION, &w->clients, &w->capacity, w->n_clients, 1) != 0)
            return false;
        c = &w->clients[w->n_clients++];
        *c = (waiting_client){.client = j->client};
    }
    c->n_waiting++;
    w->n++;
    job **end = &w->first;
    while (*end) end = &(*end)->next;
    j->next = NULL;
    *end = j;
    return true;
}

static job *unlink_job(waiting *w, job **link) {
    job *j = *link;
    *link = j->next;
    j->next = NULL;
    w->n--;
    find(w, j->client)->n_waiting--;
    return j;
}

static bool before(const waiting_client *a, const waiting_client *b) {
    if (a->n_running != b->n_running) return a->n_running < b->n_running;
    return a->turn < b->turn;
}

job *waiting_take(waiting *w, bool (*may)(void *user, job *j), void *user) {
    job **best = NULL;
    const waiting_client *first = NULL;
    for (job **link = &w->first; *link; link = &(*link)->next) {
        const waiting_client *c = find(w, (*link)->client);
        if (first && !before(c, first)) continue; // among equals, and within one client, the oldest
        if (may && !may(user, *link)) continue;
        first = c;
        best = link;
    }
    if (!best) return NULL;
    job *j = unlink_job(w, best);
    waiting_client *c = find(w, j->client);
    c->n_running++;
    c->turn = ++w->turn;
    return j;
}

job *waiting_take_cancelled(waiting *w) {
    for (job **link = &w->first; *link; link = &(*link)->next) {
        if (!atomic_load(&(*link)->cancelled)) continue;
        job *j = unlink_job(w, link);
        forget_if_idle(w, find(w, j->client));
        return j;
    }
    return NULL;
}

void waiting_done(waiting *w, const job *j) {
    waiting_client *c = find(w, j->client);
    c->n_running--;
    forget_if_idle(w, c);
}

void waiting_free(waiting *w) {
    tern_free(w->clients);
    *w = (waiting){0};
}
