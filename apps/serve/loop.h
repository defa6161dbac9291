// The loop's side that knows sockets: libevent, TLS, signals, time. See serve.h for the whole.
#ifndef TERN_SERVE_LOOP_H
#define TERN_SERVE_LOOP_H

#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/ssl.h>
#include "apps/serve/request.h"
#include "apps/serve/serve_log.h"

typedef struct connection connection;

typedef struct loop {
    server server;
    const serve_desc *desc;
    struct event_base *base;
    struct evconnlistener *listener; // NULL: it takes no more connections
    SSL_CTX *tls;                    // NULL: none
    int wake[2];                     // a pipe: the scheduler writes, the loop reads
    struct event *woken, *tick, *interrupted, *terminated;
    connection *connections;
    share places;    // of connections, by addresses
    double leave_at; // when it takes no more requests, once it is leaving
    double stop_at;  // when what still runs is cut off, once it is stopping
    // How often it has looked at the time, once a second: what connections' times are counted in. A
    // second in which the machine had no time for this process is none: what clients sent in it is
    // still in their sockets.
    uint64_t ticks;
    double watchdog, last_alive; // seconds: notify.h; when the last sign of life was
} loop;

// ---- listen.c ----------------------------------------------------------------------------------

// Opens the socket that desc names, and TLS; says in the log where it listens.
tern_status loop_listen(loop *l, tern_error *err);
void loop_unlisten(loop *l); // removes a Unix socket's file

// ---- connection.c ------------------------------------------------------------------------------

// Takes over a socket that was accepted. client: who it is, for turns; peer: for the log.
void connection_open(loop *l, evutil_socket_t fd, uint64_t client, const char *peer);
void connection_close(connection *c); // at once; cancels what runs for it
// Once a second: closes those that have waited too long, and keeps silent streams alive.
void connections_tick(loop *l, double now);
// The server is stopping: closes those that have no answer to wait for. Returns how many are left.
size_t connections_drain(loop *l);

#endif
