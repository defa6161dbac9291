// Jobs that wait for a slot. Clients take turns: the next job is the oldest of the client with the
// fewest running jobs; among such clients, of the one whose last turn is longest ago. So a client
// with a thousand requests delays another client's only request by no more than one of its own.
#ifndef TERN_SERVE_WAITING_H
#define TERN_SERVE_WAITING_H

#include <stdbool.h>
#include <stddef.h>
#include "apps/serve/engine/job.h"

typedef struct waiting_client {
    uint64_t client;
    size_t n_running, n_waiting;
    uint64_t turn; // when its last job was taken; 0: unknown
} waiting_client;

// Zero-initialise it; free it with waiting_free.
typedef struct waiting {
    job *first; // oldest first, linked by job->next
    size_t n;
    waiting_client *clients; // that wait or run
    size_t n_clients, capacity;
    uint64_t turn;
} waiting;

bool waiting_add(waiting *w, job *j); // false: no memory
// The job whose turn it is among those that `may` allows (NULL: all); from now on it counts as
// running. NULL: none.
job *waiting_take(waiting *w, bool (*may)(void *user, job *j), void *user);
// Takes out a cancelled job, which does not count as running. NULL: none.
job *waiting_take_cancelled(waiting *w);
void waiting_done(waiting *w, const job *j); // a job that was taken has ended
void waiting_free(waiting *w);

#endif
