#include "apps/serve/home_page.h"

#include <stdio.h>
#include <string.h>
#include "base/hash.h"

typedef struct page_part {
    const char *name, *type;
    const unsigned char *bytes;
    size_t n;
} page_part;

// tools/embed_files.sh makes it: `static const unsigned char page_index_html[] = {...};` and so on.
#include "serve_page.inc"

static const page_part parts[] = {
    {"index.html", "text/html; charset=utf-8", page_index_html, sizeof page_index_html},
    {"page.css", "text/css; charset=utf-8", page_page_css, sizeof page_page_css},
    {"page.js", "text/javascript; charset=utf-8", page_page_js, sizeof page_page_js},
    {"icon.svg", "image/svg+xml", page_icon_svg, sizeof page_icon_svg},
};

// The page may load its own files and send requests to this server. A model's text cannot become
// code: no inline script or style, and (trusted types) no way from text to elements.
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

// The browser caches the files and asks each time whether they have changed.
static void reply_part(request *req, const page_part *p) {
    char tag[24];
    const tern_strbuf body = {.ptr = (char *)p->bytes, .len = p->n};
    snprintf(tag, sizeof tag, "\"%016llx\"", (unsigned long long)tern_hash64(0, p->bytes, p->n));
    http_put_field(&req->head, "Content-Security-Policy", policy);
    http_put_field(&req->head, "ETag", tag);
    http_put_field(&req->head, "Cache-Control", "no-cache");
    http_put_field(&req->head, "Vary", "Accept");
    http_put_field(&req->head, "Referrer-Policy", "no-referrer");
    http_put_field(&req->head, "Cross-Origin-Opener-Policy", "same-origin");
    http_put_field(&req->head, "Cross-Origin-Resource-Policy", "same-origin");
    if (tern_str_is(http_field_of(req->http, "if-none-match"), tag))
        reply_whole(req, 304, NULL, &(const tern_strbuf){0});
    else
        reply_whole(req, 200, p->type, &body);
}

static bool contains(tern_str text, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.len; i++)
        if (http_same_name((tern_str){text.ptr + i, n}, word)) return true;
    return false;
}

void page_home(request *req) {
    tern_strbuf text = {0};
    if (!req->server->desc->no_page && contains(http_field_of(req->http, "accept"), "text/html")) {
        reply_part(req, &parts[0]);
        return;
    }
    http_put_field(&req->head, "Vary", "Accept");
    tern_strbuf_puts(&text, "Ollama is running");
    reply_whole(req, 200, "text/plain; charset=utf-8", &text);
    tern_strbuf_free(&text);
}

void page_file(request *req) {
    const char *name = tern_strbuf_text(&req->path) + strlen("/page/");
    api_error e = {0};
    for (size_t i = 1; i < sizeof parts / sizeof *parts && !req->server->desc->no_page; i++)
        if (!strcmp(parts[i].name, name)) {
            reply_part(req, &parts[i]);
            return;
        }
    api_fail(&e, 404, NULL, NULL, "there is no %s here", tern_strbuf_text(&req->path));
    reply_error(req, &e);
}
