#include "apps/serve/request/long_body.h"

#include <stdlib.h>
#include <string.h>
#if TERN_ZLIB
#include <zlib.h>
#endif
#include "apps/serve/request/away.h"
#include "apps/serve/route.h"
#include "base/alloc.h"
#include "base/json/json_index.h"
#include "base/utf8.h"

// ---- What is compressed ------------------------------------------------------------------------

bool encoding_read(request *req, api_error *e) {
    tern_str name = http_field_of(req->http, "content-encoding");
    size_t n = 0; // up to two encodings, nested
    for (size_t i = 0; i < req->http->n_fields; i++)
        n += http_same_name(req->http->fields[i].name, "content-encoding");
    if (n > 1) name = TERN_STR("more than one");
    if (name.len == 0 || http_same_name(name, "identity")) return true;
#if TERN_ZLIB
    static const char accepted[] = "gzip, deflate";
    if (http_same_name(name, "gzip") || http_same_name(name, "x-gzip"))
        req->encoding = ENCODING_GZIP;
    if (http_same_name(name, "deflate")) req->encoding = ENCODING_DEFLATE;
    if (req->encoding) return true;
#else
    static const char accepted[] = "identity";
#endif
    tern_strbuf_printf(&req->head, "Accept-Encoding: %s\r\n", accepted);
    api_fail(e, 415, "unsupported_encoding", NULL,
             "the body's Content-Encoding is '%.*s': this server reads %s",
             name.len < 40 ? (int)name.len : 40, name.ptr, accepted);
    return false;
}

#if TERN_ZLIB
// Stops at the first byte over the limit: a few compressed bytes can expand to gigabytes.
static void inflate_all(z_stream *z, size_t most, tern_strbuf *out, api_error *e) {
    int code = Z_OK;
    while (code == Z_OK && !e->status) {
        char some[16384];
        z->next_out = (unsigned char *)some;
        z->avail_out = sizeof some;
        code = inflate(z, Z_NO_FLUSH);
        size_t n = sizeof some - z->avail_out;
        if (n > most - out->len)
            api_fail(e, 413, NULL, NULL, "the body has more than %zu bytes when it is unpacked",
                     most);
        else
            tern_strbuf_append(out, some, n);
        if (out->failed || code == Z_MEM_ERROR) api_fail_memory(e);
    }
    if (code != Z_STREAM_END || z->avail_in > 0)
        api_fail(e, 400, NULL, NULL, "the body is not what its Content-Encoding says");
}

static void unpack(request *req, api_error *e) {
    const tern_str packed = req->http->body;
    const size_t limit = req->server->desc->body_bytes;
    z_stream z = {.next_in = (unsigned char *)packed.ptr, .avail_in = (unsigned)packed.len};
    if (inflateInit2(&z, req->encoding == ENCODING_GZIP ? 15 + 16 : 15) != Z_OK) {
        api_fail_memory(e);
        return;
    }
    inflate_all(&z, limit ? limit : SIZE_MAX, &req->text, e);
    inflateEnd(&z);
    req->decoded = *req->http;
    req->decoded.body = (tern_str){tern_strbuf_text(&req->text), req->text.len};
    req->http = &req->decoded;
}
#else
static void unpack(request *req, api_error *e) {
    (void)req;
    api_fail(e, 415, NULL, NULL, "compressed bodies are not read");
}
#endif

// ---- Reading -----------------------------------------------------------------------------------

static bool is_utf8(tern_str s) {
    for (size_t i = 0; i < s.len;) {
        uint32_t code;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) return false;
        i += (size_t)n;
    }
    return true;
}

bool body_read(request *req, tern_str text, api_error *e) {
    tern_error err = {0};
    if (text.len >= 2 && !memcmp(text.ptr, "\x1f\x8b", 2))
        api_fail(e, 415, NULL, NULL,
                 "the body is compressed with gzip: send it as it is, or say so (Content-Encoding: "
                 "gzip)");
    else if (!is_utf8(text))
        api_fail(e, 400, NULL, NULL, "the body is not UTF-8");
    else if (tern_json_parse(&req->body, text.ptr, text.len, &err) != TERN_OK ||
             tern_json_index(&req->body, &err) != TERN_OK)
        api_fail_status(e, &err, NULL);
    return e->status == 0;
}

// On any thread.
static void read_any(request *req, api_error *e) {
    tern_str body = req->http->body;
    if (req->sink->is_plain) body = (tern_str){tern_strbuf_text(&req->text), req->text.len};
    if (req->encoding) {
        unpack(req, e);
        body = req->http->body;
    }
    if (e->status) return;
    if (req->rule && req->rule->needs == NEEDS_MODEL_FORM) {
        req->form_model = form_field(req->http, "model");
        return;
    }
    if (body.len == 0 && req->rule && req->rule->needs == NEEDS_MODEL_ALONE) body = TERN_STR("{}");
    if (body.len > 0)
        body_read(req, body, e);
    else
        api_fail(e, 400, NULL, NULL, "the request has no body");
}

static void read_it(request *req) {
    api_error e = {0};
    read_any(req, &e);
    if (!e.status) return;
    req->refusal = tern_alloc(TERN_MEM_SESSION, sizeof *req->refusal);
    if (req->refusal)
        *req->refusal = e;
    else
        req->body_failed = true;
}

// Nodes are much larger than their JSON.
static void charge(request *req, api_error *e) {
    size_t n_bytes =
        req->body.n_nodes * sizeof *req->body.nodes + (req->encoding ? req->text.capacity : 0);
    if (n_bytes > SHORT_BYTES && !budget_take(req, n_bytes)) api_fail_inflight(e);
}

static void go_on(request *req) {
    api_error e = {0};
    if (req->refusal)
        e = *req->refusal;
    else if (req->body_failed)
        api_fail_memory(&e);
    tern_free(req->refusal);
    req->refusal = NULL;
    if (!e.status) charge(req, &e);
    req->with_body(req, &e);
}

void body_read_then(request *req, void (*with_body)(request *req, api_error *e)) {
    req->with_body = with_body;
    // A compressed body may expand to a long one.
    size_t n = req->encoding ? SHORT_BYTES + 1 : req->http->body.len + req->text.len;
    req->n_body = n;
    request_do(req, n, read_it, go_on);
}

// ---- Uploads -----------------------------------------------------------------------------------

typedef struct upload {
    hub_blob *blob; // NULL: nothing is written yet
    hub_blob_desc desc;
    char digest[65];
    void (*then)(request *req);
} upload;

void upload_begin(request *req, tern_str digest, api_error *e) {
    const tern_str length = http_field_of(req->http, "content-length");
    upload *u = e->status ? NULL : tern_alloc(TERN_MEM_SESSION, sizeof *u);
    if (e->status) return;
    if (!u) {
        api_fail_memory(e);
        return;
    }
    memcpy(u->digest, digest.ptr, sizeof u->digest - 1);
    u->desc = (hub_blob_desc){.folder = req->server->desc->folder,
                              .digest = u->digest,
                              .n_bytes = length.len ? strtoull(length.ptr, NULL, 10) : 0,
                              .bytes_max = req->server->desc->manage_bytes};
    req->upload = u;
}

void upload_free(upload *u) {
    if (u) hub_blob_drop(u->blob);
    tern_free(u);
}

static void refuse(request *req, const tern_error *err) {
    req->refusal = tern_alloc(TERN_MEM_SESSION, sizeof *req->refusal);
    if (req->refusal)
        api_fail_status(req->refusal, err, NULL);
    else
        req->body_failed = true;
}

static tern_status put(upload *u, tern_str bytes, tern_error *err) {
    if (!u->blob) TERN_TRY(hub_blob_open(&u->blob, &u->desc, err));
    return hub_blob_write(u->blob, bytes.ptr, bytes.len, err);
}

static void write_piece(request *req) {
    tern_error err = {0};
    if (put(req->upload, (tern_str){req->text.ptr, req->text.len}, &err) != TERN_OK)
        refuse(req, &err);
    tern_strbuf_free(&req->text);
}

static void wrote_piece(request *req) { req->sink->more(req->to); }

void upload_take(request *req, tern_strbuf *piece) {
    req->text = *piece;
    *piece = (tern_strbuf){0};
    request_do_away(req, req->server->readers, true, write_piece, wrote_piece);
}

static void write_rest(request *req) {
    tern_error err = {0};
    tern_status status = put(req->upload, req->http->body, &err);
    if (status == TERN_OK) status = hub_blob_end(req->upload->blob, &err);
    if (status != TERN_OK) refuse(req, &err);
    hub_blob_drop(req->upload->blob);
    req->upload->blob = NULL;
}

static void wrote_rest(request *req) {
    api_error e = {0};
    if (req->refusal) e = *req->refusal;
    if (req->body_failed) api_fail_memory(&e);
    tern_free(req->refusal);
    req->refusal = NULL;
    if (e.status)
        reply_error(req, &e);
    else
        req->upload->then(req);
}

void upload_end(request *req, void (*then)(request *req)) {
    req->upload->then = then;
    request_do_away(req, req->server->readers, true, write_rest, wrote_rest);
}
