// The part of the loop that handles sockets: libevent, TLS, signals, time. See serve.h for an
// overview.
#ifndef TERN_SERVE_LOOP_H
#define TERN_SERVE_LOOP_H

#include "apps/serve/sockets.h" // before OpenSSL on Windows

#include <event2/event.h>
#include <event2/listener.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include "apps/serve/request/request.h"
#include "apps/serve/http/serve_log.h"

typedef struct connection connection;

typedef struct loop {
    server server;
    const serve_desc *desc;
    struct event_base *base;
    struct evconnlistener *listener; // NULL: it takes no more connections
    SSL_CTX *tls;                    // NULL: none
    evutil_socket_t wake[2];         // the scheduler sends, the loop receives
    struct event *woken, *tick, *interrupted, *terminated;
    model_wait first; // for the first model to open
    tern_error error; // why it could not be
    connection *connections;
    share places;    // of connections, by addresses
    double leave_at; // once it is leaving: when it stops taking requests
    double stop_at;  // once it is stopping: when running requests are cut off
    // Ticks of the timer, one a second: the unit of connections' timeouts. Seconds in which the
    // process did not run do not count: what clients sent meanwhile is still in the sockets.
    uint64_t ticks;
    double watchdog, last_alive; // seconds: notify.h; when the last sign of life was sent
} loop;

// ---- listen.c ----------------------------------------------------------------------------------

// Opens the socket that desc names, and TLS; logs where it listens, as "loading" while the first
// model is being opened.
tern_status loop_listen(loop *l, tern_error *err);
void loop_log_where(const loop *l); // the same line again
void loop_unlisten(loop *l);        // removes a Unix socket's file

// ---- connection.c ------------------------------------------------------------------------------

// Takes over an accepted socket. client: identifies it, for turns; peer: for the log.
void connection_open(loop *l, evutil_socket_t fd, uint64_t client, const char *peer);
void connection_close(connection *c); // at once; cancels what runs for it
// Once a second: closes connections that have waited too long, and keeps silent streams alive.
void connections_tick(loop *l, double now);
// The server is stopping: closes connections that wait for no answer. Returns how many are left.
size_t connections_drain(loop *l);

#endif
