// Places that clients share: in a queue, among threads. A single client may have all of them. When
// all are taken, a client that has less than its share still gets one; clients that have more must
// wait until there is room. So sharing does not limit a single client, and no client can keep
// others out by taking all places.
#ifndef TERN_SERVE_SHARE_H
#define TERN_SERVE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Zero-initialise it; free it with share_free.
typedef struct share_client {
    uint64_t client;
    size_t n; // places that it has
} share_client;
typedef struct share {
    share_client *clients; // [n_clients] those that have places
    size_t n_clients, capacity;
    size_t n; // places taken
} share;

// Takes n places of `room` for a client: all or none. False: it has to wait, or memory is out.
bool share_take(share *s, uint64_t client, size_t n, size_t room);
// The same for bytes, which are held for long: a client may have as much as it leaves free (half,
// if alone), so that the next client finds some.
bool share_take_some(share *s, uint64_t client, size_t n, size_t room);
bool share_may_take_some(const share *s, uint64_t client, size_t n, size_t room);
void share_give(share *s, uint64_t client, size_t n);
size_t share_of(const share *s, uint64_t client); // places that it has
void share_free(share *s);

#endif
