// llama-server's routes for LoRA adapters: which there are, and how much of each is applied for
// requests that choose none themselves.
#include "apps/serve/api/interfaces.h"
#include "apps/serve/http/keys.h"
#include "apps/serve/request/generation_request.h"

void llama_adapters(request *req) {
    const adapters *a = &req->server->registry->adapters;
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_json_open(&w, NULL, '[');
    for (size_t i = 0; i < a->n; i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_int(&w, "id", (int64_t)i);
        tern_json_put_bytes(&w, "name", a->names[i].ptr, a->names[i].len);
        tern_json_put_text(&w, "path", a->list[i].path);
        tern_json_put_float(&w, "scale", a->scales[i]);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

// Requests that have begun keep what they began with.
void llama_set_adapters(request *req) {
    api_error e = {0};
    const fields f = {.doc = &req->body, .prefix = "", .error = &e};
    const char *refusal = manage_refusal(req->server->desc, req->http);
    if (refusal)
        api_fail(&e, 403, NULL, NULL, "%s", refusal);
    else
        generation_read_adapters(req, &f, tern_json_root(&req->body),
                                 req->server->registry->adapters.scales);
    if (e.status)
        reply_error(req, &e);
    else
        llama_adapters(req);
}
