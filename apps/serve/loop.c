// The loop: waits for sockets, the scheduler, time and signals, until a signal stops it.
#include "apps/serve/loop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include "apps/serve/http/notify.h"
#include "base/os/lazy.h"
#include "base/os/os_time.h"
#include "base/status.h"

#define WRITE_SECONDS 60 // to write prefixes in memory to disk at the end

// ---- What wakes it -----------------------------------------------------------------------------

static void wake(void *user) { // the scheduler's thread
    const loop *l = user;
    // If it is full, the loop has been woken already.
    while (send(l->wake[1], "", 1, 0) < 0 && EVUTIL_SOCKET_ERROR() == EINTR) {
    }
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    loop *l = arg;
    char many[256];
    (void)what;
    while (recv(fd, many, sizeof many, 0) > 0) {
    }
    server_take_events(&l->server);
}

static void stop_if_done(loop *l) {
    if (!l->server.stopping) return;
    if (connections_drain(l) == 0 || tern_seconds() > l->stop_at) event_base_loopbreak(l->base);
}

static void log_stopping(const char *what, const server *s, int number) {
    size_t n_running = 0, n_waiting = 0;
    for (size_t i = 0; i < s->registry->n; i++) {
        scheduler_view v;
        if (s->registry->list[i]->state != SERVED_OPEN) continue;
        scheduler_look(s->registry->list[i]->scheduler, &v);
        n_running += v.n_running;
        n_waiting += v.n_waiting;
    }
    log_line(what, "signal=%d running=%zu waiting=%zu", number, n_running, n_waiting);
}

// Announces the stop and how long it may take: the lame duck time, the time for running answers,
// then writing computed prefixes.
static void notify_stopping(double seconds, const char *what) {
    notify("STOPPING=1\nEXTEND_TIMEOUT_USEC=%.0f\nSTATUS=%s", (seconds + WRITE_SECONDS) * 1e6,
           what);
}

// No sign of life if a model has been in one step for minutes: the manager may then restart the
// process.
static void notify_alive(loop *l, double now) {
    if (l->watchdog <= 0 || now - l->last_alive < l->watchdog / 2 - 1) return;
    if (registry_is_stuck(l->server.registry, now)) return;
    l->last_alive = now;
    notify("WATCHDOG=1");
}

// Takes no more requests; running ones may finish.
static void stop(loop *l, int number) {
    log_stopping("stopping", &l->server, number);
    notify_stopping(l->desc->drain_seconds, "running answers come to their end");
    l->server.stopping = true;
    l->stop_at = tern_seconds() + l->desc->drain_seconds;
    loop_unlisten(l);
    registry_stop(l->server.registry);
    stop_if_done(l);
}

// The first signal only makes /health report the coming stop; the next one stops the server, and
// the one after that cuts off running requests.
static void on_signal(evutil_socket_t number, short what, void *arg) {
    loop *l = arg;
    (void)what;
    if (l->server.stopping) {
        event_base_loopbreak(l->base);
    } else if (l->server.is_leaving || l->desc->lame_duck_seconds <= 0) {
        stop(l, (int)number);
    } else {
        log_stopping("leaving", &l->server, (int)number);
        notify_stopping(l->desc->lame_duck_seconds + l->desc->drain_seconds,
                        "about to take no more requests");
        l->server.is_leaving = true;
        l->leave_at = tern_seconds() + l->desc->lame_duck_seconds;
    }
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
    loop *l = arg;
    double now = tern_seconds();
    (void)fd;
    (void)what;
    notify_alive(l, now);
    l->ticks++;
    connections_tick(l, now);
    registry_tick(l->server.registry, now);
    if (l->listener && l->server.n_connections < l->desc->n_connections)
        evconnlistener_enable(l->listener);
    if (l->server.is_leaving && !l->server.stopping && now >= l->leave_at) stop(l, 0);
    stop_if_done(l);
}

// ---- Beginning and end -------------------------------------------------------------------------

static tern_status open_events(loop *l, tern_error *err) {
    const struct timeval second = {.tv_sec = 1};
    if (evutil_socketpair(WAKE_FAMILY, SOCK_STREAM, 0, l->wake) != 0)
        return tern_fail(err, TERN_ERR_IO, "a pair of sockets: %s",
                         evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    for (int i = 0; i < 2; i++) {
        evutil_make_socket_nonblocking(l->wake[i]);
        evutil_make_socket_closeonexec(l->wake[i]);
    }
    l->base = event_base_new();
    if (!l->base) return tern_fail(err, TERN_ERR_MEMORY, "out of memory");
    l->woken = event_new(l->base, l->wake[0], EV_READ | EV_PERSIST, on_wake, l);
    l->tick = event_new(l->base, -1, EV_PERSIST, on_tick, l);
    l->interrupted = evsignal_new(l->base, SIGINT, on_signal, l);
    l->terminated = evsignal_new(l->base, SIGTERM, on_signal, l);
    if (!l->woken || !l->tick || !l->interrupted || !l->terminated ||
        event_add(l->woken, NULL) != 0 || event_add(l->tick, &second) != 0 ||
        event_add(l->interrupted, NULL) != 0 || event_add(l->terminated, NULL) != 0)
        return tern_fail(err, TERN_ERR_MEMORY, "out of memory");
    return TERN_OK;
}

static void close_loop(loop *l) {
    loop_unlisten(l);
    while (l->connections) connection_close(l->connections);
    server_close(&l->server);
    struct event *const events[] = {l->woken, l->tick, l->interrupted, l->terminated};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i]) event_free(events[i]);
    if (l->base) event_base_free(l->base);
    SSL_CTX_free(l->tls);
    share_free(&l->places);
    for (int i = 0; i < 2; i++)
        if (l->wake[i] >= 0) evutil_closesocket(l->wake[i]);
}

// ---- The first model ---------------------------------------------------------------------------

static void notify_ready(const loop *l) {
    notify("READY=1\nSTATUS=%zu model%s", l->server.registry->n,
           l->server.registry->n == 1 ? "" : "s");
}

static void on_first_model(model_wait *w, const tern_error *err) {
    loop *l = (loop *)((char *)w - offsetof(loop, first));
    if (!err) {
        l->server.is_loading = false;
        loop_log_where(l);
        notify_ready(l);
        registry_release(l->server.registry->list[0]);
    } else if (!l->server.stopping) {
        l->error = *err;
        event_base_loopbreak(l->base);
    }
}

// It opens while /health says so; one that cannot be opened ends the server.
static tern_status begin(loop *l, tern_error *err) {
    l->server.is_loading = l->desc->n_models > 0;
    TERN_TRY(loop_listen(l, err));
    l->watchdog = notify_watchdog_seconds();
    l->first.ready = on_first_model;
    if (l->server.is_loading)
        registry_ask_first(l->server.registry, &l->first);
    else
        notify_ready(l);
    if (event_base_dispatch(l->base) < 0)
        return tern_fail(err, TERN_ERR_IO, "waiting for events: %s", strerror(errno));
    if (l->error.status == TERN_OK) return TERN_OK;
    return tern_fail(err, l->error.status, "%s", l->error.message);
}

tern_status serve(const serve_desc *desc, tern_error *err) {
    loop l = {.desc = desc, .wake = {-1, -1}};
    TERN_TRY(TERN_LAZY_LOAD(serve, err));
    sockets_begin();
    tern_status status = open_events(&l, err);
    if (status == TERN_OK) status = server_open(&l.server, desc, wake, &l, err);
    if (status == TERN_OK) status = begin(&l, err);
    if (status == TERN_OK)
        log_line("stopped", "requests=%llu", (unsigned long long)l.server.n_requests);
    notify_stopping(0, "cached prompts are written");
    close_loop(&l);
    return status;
}
