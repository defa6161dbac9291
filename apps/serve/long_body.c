#include "apps/serve/long_body.h"

#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

typedef struct long_body {
    errand errand;
    tern_strbuf text; // the exchange's, which may have gone
    tern_json_doc doc;
    api_error error;
    void (*go_on)(exchange *x, api_error *e);
} long_body;

static bool is_utf8(tern_str s) {
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) return false;
        i += (size_t)n;
    }
    return true;
}

static bool read_json(tern_json_doc *doc, tern_str text, api_error *e) {
    tern_error err = {0};
    if (text.len > 2 && !memcmp(text.ptr, "\x1f\x8b", 2)) { // without the field that says so
        api_fail(e, 415, NULL, NULL, "the body is compressed with gzip: send it as it is");
        return false;
    }
    if (!is_utf8(text)) {
        api_fail(e, 400, NULL, NULL, "the body is not UTF-8");
        return false;
    }
    if (tern_json_parse(doc, text.ptr, text.len, &err) == TERN_OK) return true;
    api_fail_status(e, &err, NULL);
    return false;
}

bool body_read(exchange *x, tern_str text, api_error *e) {
    return read_json(&x->body, text, e);
}

// On the errand's thread.
static void run(errand *e) {
    long_body *b = (long_body *)e;
    read_json(&b->doc, (tern_str){b->text.ptr, b->text.len}, &b->error);
}

static void done(errand *e) {
    long_body *b = (long_body *)e, own = *b;
    exchange *x = e->user;
    tern_free(b);
    if (!x) {
        tern_json_free(&own.doc);
        tern_strbuf_free(&own.text);
        return;
    }
    x->errand = NULL;
    x->body = own.doc;
    x->text = own.text;
    own.go_on(x, &own.error);
}

bool body_read_later(exchange *x, void (*go_on)(exchange *x, api_error *e)) {
    api_error failed = {0};
    if (x->text.len <= LONG_BODY) return false;
    long_body *b = tern_alloc(TERN_MEM_SESSION, sizeof *b);
    if (!b) {
        api_fail_memory(&failed);
        go_on(x, &failed);
        return true;
    }
    *b = (long_body){
        .errand = {.run = run, .done = done, .user = x}, .text = x->text, .go_on = go_on};
    if (errands_submit(x->server->readers, &b->errand)) {
        x->errand = &b->errand;
        x->text = (tern_strbuf){0};
        return true;
    }
    tern_free(b);
    api_fail_full(&failed);
    go_on(x, &failed);
    return true;
}
