// Options common to all our transfers, for files built with libcurl.
#ifndef TERN_APPS_HUB_CURL_OPTIONS_H
#define TERN_APPS_HUB_CURL_OPTIONS_H

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "tern.h"

#define CURL_CONNECT_SECONDS 20L

// A libcurl that is part of the program knows no certificates of the system it runs on: where
// distributions have theirs. Debian's libcurl knows, and OpenSSL reads SSL_CERT_FILE by itself.
static inline void curl_set_certificates(CURL *c) {
#if LIBCURL_VERSION_NUM >= 0x074600
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt",
                                         "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    if (curl_version_info(CURLVERSION_NOW)->cainfo || getenv("SSL_CERT_FILE")) return;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (access(places[i], R_OK) != 0) continue;
        curl_easy_setopt(c, CURLOPT_CAINFO, places[i]);
        return;
    }
#endif
}

// HTTP only, to the given address and no other: redirections and .netrc have no effect. why:
// CURL_ERROR_SIZE bytes for the reason of a failure, which live as long as the transfer.
static inline void curl_set_usual(CURL *c, const char *url, char *why) {
    char agent[64];
    snprintf(agent, sizeof agent, "tern/%s", tern_version());
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, CURL_CONNECT_SECONDS);
    curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(c, CURLOPT_USERAGENT, agent);
    curl_set_certificates(c);
}

#endif
