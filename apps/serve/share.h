// Places that clients share: in a queue, among threads. One client alone may have all of them. When
// they are taken, a client that has less than its share still gets in, and those that have more get
// in again when there is room for all. So nobody feels the limit while alone, and nobody can keep
// others out by filling what there is.
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
    share_client *clients; // [n_clients] that have any
    size_t n_clients, capacity;
    size_t n; // places taken
} share;

// Takes n places of `room` for a client: all or none. False: it has to wait, or there is no memory.
bool share_take(share *s, uint64_t client, size_t n, size_t room);
// The same of bytes, which nobody gives back soon: a client may have as much as it leaves free, so
// alone the half, and the next one finds some.
bool share_take_some(share *s, uint64_t client, size_t n, size_t room);
bool share_may_take_some(const share *s, uint64_t client, size_t n, size_t room);
void share_give(share *s, uint64_t client, size_t n);
size_t share_of(const share *s, uint64_t client); // places that it has
void share_free(share *s);

#endif
