// Ollama's /api/blobs/sha256:DIGEST: files to create models from.
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/ollama/ollama.h"
#include "apps/serve/request/long_body.h"

// The digits of the path. {NULL, 0}: refused.
static tern_str read_digest(const request *req, api_error *e) {
    static const char front[] = UPLOAD_PATH "sha256";
    const tern_str path = {tern_strbuf_text(&req->path), req->path.len};
    const size_t n = sizeof front; // with the colon; some clients send a hyphen
    if (e->status) return (tern_str){NULL, 0};
    if (path.len == n + 64 && !memcmp(path.ptr, front, n - 1) &&
        (path.ptr[n - 1] == ':' || path.ptr[n - 1] == '-') && hub_digest_is_valid(path.ptr + n, 64))
        return (tern_str){path.ptr + n, 64};
    api_fail(e, 400, NULL, NULL, "a blob's name is sha256: and 64 hexadecimal digits");
    return (tern_str){NULL, 0};
}

static void reply_status(request *req, int status) {
    tern_strbuf none = {0};
    reply_whole(req, status, NULL, &none);
}

void ollama_look_at_blob(request *req) {
    api_error e = {0};
    if (ollama_may_manage(req, &e)) {
        const tern_str digest = read_digest(req, &e);
        if (digest.ptr && !hub_blob_exists(req->server->desc->folder, digest.ptr))
            api_fail(&e, 404, NULL, NULL, "there is no such blob");
    }
    if (e.status)
        reply_error(req, &e);
    else
        reply_status(req, 200);
}

void ollama_begin_blob(request *req, api_error *e) {
    if (!ollama_may_manage(req, e)) return;
    const tern_str digest = read_digest(req, e);
    if (req->encoding)
        api_fail(e, 415, "unsupported_encoding", NULL, "a blob is sent as it is, not compressed");
    if (digest.ptr) upload_begin(req, digest, e);
}

static void created(request *req) { reply_status(req, 201); }

void ollama_take_blob(request *req) { upload_end(req, created); }
