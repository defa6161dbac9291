#include "apps/serve/http/keys.h"

#include <string.h>
#include "apps/serve/sockets.h"

// ---- Keys --------------------------------------------------------------------------------------

tern_str key_of(const http_request *r) {
    static const char bearer[] = "Bearer ";
    tern_str value = http_field_of(r, "authorization");
    size_t n = sizeof bearer - 1;
    if (value.len > n && http_same_name((tern_str){value.ptr, n}, bearer))
        return (tern_str){value.ptr + n, value.len - n};
    value = http_field_of(r, "x-api-key");                  // Anthropic's clients
    return value.ptr ? value : http_field_of(r, "api-key"); // those for Azure
}

// Compares all that the client sent, wherever it differs; the length is not secret.
static bool is_same(const char *key, tern_str given) {
    size_t n = strlen(key);
    volatile unsigned char differs = n != given.len || n == 0;
    for (size_t i = 0; i < given.len; i++)
        differs = (unsigned char)(differs | (key[n ? i % n : 0] ^ given.ptr[i]));
    return !differs;
}

size_t find_key(const serve_list *keys, tern_str key) {
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < keys->n; i++)
        if (is_same(keys->items[i], key)) found = i;
    return found;
}

// ---- Names of this host ------------------------------------------------------------------------

// "name", without the port of "name:80" and "[::1]:80".
static tern_str without_port(tern_str host) {
    size_t n = host.len;
    if (n && host.ptr[0] == '[') {
        const char *end = memchr(host.ptr, ']', n);
        return end ? (tern_str){host.ptr, (size_t)(end - host.ptr) + 1} : host;
    }
    const char *colon = n ? memchr(host.ptr, ':', n) : NULL;
    return colon ? (tern_str){host.ptr, (size_t)(colon - host.ptr)} : host;
}

static bool is_address(tern_str name) {
    if (name.len && name.ptr[0] == '[') return true;
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] != '.' && (name.ptr[i] < '0' || name.ptr[i] > '9')) return false;
    return name.len > 0;
}

static bool ends_with(tern_str s, const char *end) {
    size_t n = strlen(end);
    return s.len > n && http_same_name((tern_str){s.ptr + s.len - n, n}, end);
}

static bool is_localhost(tern_str name) {
    return http_same_name(name, "localhost") || ends_with(name, ".localhost");
}

static bool is_loopback(tern_str name) {
    return is_localhost(name) || http_same_name(name, "[::1]") ||
           (is_address(name) && name.len > 4 && !memcmp(name.ptr, "127.", 4));
}

static bool is_loopback_address(tern_str host) { // as in --host, without brackets
    return is_loopback(host) || http_same_name(host, "::1");
}

// The host name of the machine or container.
static bool is_own_name(tern_str name) {
    char own[256];
    if (gethostname(own, sizeof own) != 0) return false;
    own[sizeof own - 1] = 0;
    return *own && http_same_name(name, own);
}

static bool is_listed(const serve_list *list, tern_str name) {
    for (size_t i = 0; i < list->n; i++)
        if (http_same_name(name, list->items[i])) return true;
    return false;
}

bool host_is_here(const serve_desc *d, tern_str host) {
    const tern_str own = {d->host ? d->host : "", d->host ? strlen(d->host) : 0};
    return !d->socket && is_loopback_address(own) && is_loopback(without_port(host));
}

bool host_is_allowed(const serve_desc *d, tern_str host) {
    tern_str name = without_port(host);
    tern_str own = {d->host ? d->host : "", d->host ? strlen(d->host) : 0};
    bool is_known = d->keys.n > 0 && !is_loopback_address(own); // requests need a key
    if (d->socket || (is_known && d->hosts.n == 0) || is_listed(&d->hosts, TERN_STR("*")))
        return true;
    return name.len == 0 || is_address(name) || is_localhost(name) ||
           http_same_name(name, d->host) || is_listed(&d->hosts, name) || is_own_name(name);
}

// Pages of programs on this machine, in a desktop shell or an editor: no site can have such an
// origin.
static bool is_of_program(tern_str origin) {
    static const char *const schemes[] = {"app://", "file://", "tauri://", "vscode-webview://",
                                          "vscode-file://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (origin.len >= n && !memcmp(origin.ptr, schemes[i], n)) return true;
    }
    return false;
}

bool origin_is_allowed(const serve_desc *d, tern_str origin, tern_str host) {
    if (is_listed(&d->origins, TERN_STR("*")) || is_listed(&d->origins, origin) ||
        is_of_program(origin))
        return true;
    size_t at = 0;
    for (size_t i = 0; i + 3 <= origin.len && !at; i++)
        if (!memcmp(origin.ptr + i, "://", 3)) at = i + 3;
    if (!at || memcmp(origin.ptr, "http", 4) != 0) return false;
    tern_str of = {origin.ptr + at, origin.len - at};
    return tern_str_eq(of, host) || is_loopback(without_port(of)) ||
           http_same_name(without_port(of), "0.0.0.0"); // what a local server may call itself
}

const char *manage_refusal(const serve_desc *d, const http_request *http) {
    const tern_str origin = http_field_of(http, "origin");
    serve_desc alone = *d;
    alone.origins = (serve_list){0};
    if (origin.ptr && !origin_is_allowed(&alone, origin, http->host))
        return "pages of other sites may not change this server's models";
    if (!d->manage_bytes && !host_is_here(d, http->host))
        return "only programs of the same machine may change this server's models: see --manage";
    return NULL;
}
