// Where the server listens: an address or a Unix socket, with TLS or without. See loop.h.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#if !defined(_WIN32)
#include <sys/stat.h>
#include <sys/un.h>
#endif
#include "apps/serve/loop.h"
#include "base/hash.h"
#include "base/status.h"

#define BACKLOG 1024

// ---- Accepting ---------------------------------------------------------------------------------

// A client is an address without the port: connections of one program take turns as one client. For
// IPv6 it is the network, in which one machine may have any number of addresses.
static uint64_t name_peer(const struct sockaddr *address, char *out, size_t size) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    if (address->sa_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, out, (socklen_t)size))
        return tern_hash64(4, &v4->sin_addr, sizeof v4->sin_addr);
    if (address->sa_family == AF_INET6 && inet_ntop(AF_INET6, &v6->sin6_addr, out, (socklen_t)size))
        return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? tern_hash64(4, v6->sin6_addr.s6_addr + 12, 4)
                                                    : tern_hash64(6, &v6->sin6_addr, 8);
    snprintf(out, size, "unix");
    return 1;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
                      int n, void *arg) {
    char peer[64];
    int on = 1;
    (void)listener;
    (void)n;
    uint64_t client = name_peer(address, peer, sizeof peer);
    if (address->sa_family != AF_UNIX) // sends each token at once
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, (const void *)&on, sizeof on);
    connection_open(arg, fd, client, peer);
}

// Most likely too many open files: the tick tries again.
static void on_accept_error(struct evconnlistener *listener, void *arg) {
    (void)arg;
    log_line("accept", "error=\"%s\"", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    evconnlistener_disable(listener);
}

static tern_status listen_on(loop *l, const struct sockaddr *address, socklen_t n) {
    const unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    l->listener = evconnlistener_new_bind(l->base, on_accept, l, flags, BACKLOG, address, (int)n);
    if (!l->listener) return TERN_ERR_IO;
    evconnlistener_set_error_cb(l->listener, on_accept_error);
    return TERN_OK;
}

// ---- Addresses ---------------------------------------------------------------------------------

// The name of the model for requests that name none, if there is one.
static const char *first_name(const loop *l) {
    const served *s = registry_find(l->server.registry, (tern_str){NULL, 0}, NULL);
    return s ? s->about.name : "";
}

static bool is_loopback(const struct sockaddr *a) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    if (a->sa_family == AF_INET) return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static void warn_if_open(const loop *l, const struct sockaddr *a) {
    if (l->desc->keys.n > 0 || is_loopback(a)) return;
    log_line("warning", "message=\"everybody who reaches this machine may use the server: it "
                        "listens beyond the machine, and asks for no key (--api-key-file)\"");
}

static const char *state_of(const loop *l) {
    return l->server.is_loading ? "loading" : "listening";
}

static void log_address(const loop *l) {
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    char address[64];
    const struct sockaddr *a = (const struct sockaddr *)&bound;
    if (getsockname(evconnlistener_get_fd(l->listener), (struct sockaddr *)&bound, &n) != 0) return;
    name_peer(a, address, sizeof address);
    bool v6 = a->sa_family == AF_INET6;
    int port = ntohs(v6 ? ((const struct sockaddr_in6 *)a)->sin6_port
                        : ((const struct sockaddr_in *)a)->sin_port);
    if (!l->server.is_loading) warn_if_open(l, a);
    log_line(state_of(l), "url=%s://%s%s%s:%d model=\"%s\" models=%zu", l->tls ? "https" : "http",
             v6 ? "[" : "", address, v6 ? "]" : "", port, first_name(l), l->server.registry->n);
}

static tern_status listen_on_host(loop *l, tern_error *err) {
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    char port[16];
    snprintf(port, sizeof port, "%d", l->desc->port);
    int code = getaddrinfo(l->desc->host, port, &hints, &list);
    if (code != 0) return tern_fail(err, TERN_ERR_IO, "%s: %s", l->desc->host, gai_strerror(code));
    tern_status status = TERN_ERR_IO;
    for (const struct addrinfo *a = list; a && status != TERN_OK; a = a->ai_next)
        status = listen_on(l, a->ai_addr, a->ai_addrlen);
    const char *why = evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR());
    freeaddrinfo(list);
    if (status != TERN_OK)
        return tern_fail(err, status, "%s port %s: %s", l->desc->host, port, why);
    return TERN_OK;
}

// ---- Unix sockets ------------------------------------------------------------------------------

#if !defined(_WIN32)
// Removes a dead server's socket file, which refuses connections; a running server's stays.
static void remove_stale(const struct sockaddr_un *address) {
    struct stat st;
    if (stat(address->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                   errno == ECONNREFUSED;
    if (fd >= 0) close(fd);
    if (refused) unlink(address->sun_path);
}

static tern_status listen_on_socket(loop *l, tern_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = l->desc->socket;
    if (strlen(name) >= sizeof address.sun_path)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: a socket's name has at most %zu bytes", name,
                         sizeof address.sun_path - 1);
    memcpy(address.sun_path, name, strlen(name) + 1);
    remove_stale(&address);
    mode_t old = umask(0117); // for the user and the group
    tern_status status = listen_on(l, (const struct sockaddr *)&address, sizeof address);
    int why = errno;
    umask(old);
    if (status != TERN_OK) return tern_fail(err, status, "%s: %s", name, strerror(why));
    return TERN_OK;
}
#else // it has them, but no permissions that keep others from them
static tern_status listen_on_socket(loop *l, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: no Unix sockets on Windows", l->desc->socket);
}
#endif

// ---- TLS ---------------------------------------------------------------------------------------

static tern_status fail_tls(const char *path, tern_error *err) {
    const char *reason = ERR_reason_error_string(ERR_get_error());
    return tern_fail(err, TERN_ERR_IO, "%s: %s", path, reason ? reason : "it cannot be used");
}

static tern_status open_tls(loop *l, tern_error *err) {
    const serve_desc *d = l->desc;
    if (!d->tls_certificate) return TERN_OK;
    l->tls = SSL_CTX_new(TLS_server_method());
    if (!l->tls) return fail_tls("TLS", err);
    SSL_CTX_set_min_proto_version(l->tls, TLS1_2_VERSION);
    if (SSL_CTX_use_certificate_chain_file(l->tls, d->tls_certificate) != 1)
        return fail_tls(d->tls_certificate, err);
    if (SSL_CTX_use_PrivateKey_file(l->tls, d->tls_key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(l->tls) != 1)
        return fail_tls(d->tls_key, err);
    return TERN_OK;
}

void loop_log_where(const loop *l) {
    if (l->desc->socket)
        log_line(state_of(l), "socket=\"%s\" model=\"%s\" models=%zu", l->desc->socket,
                 first_name(l), l->server.registry->n);
    else
        log_address(l);
}

tern_status loop_listen(loop *l, tern_error *err) {
    TERN_TRY(open_tls(l, err));
    TERN_TRY(l->desc->socket ? listen_on_socket(l, err) : listen_on_host(l, err));
    loop_log_where(l);
    return TERN_OK;
}

void loop_unlisten(loop *l) {
    if (l->listener) evconnlistener_free(l->listener);
    if (l->listener && l->desc->socket) unlink(l->desc->socket);
    l->listener = NULL;
}
