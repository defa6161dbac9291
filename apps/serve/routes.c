// From a request to its handler: checks access, finds the route, reads the body.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "apps/serve/request/away.h"
#include "apps/serve/home_page.h"
#include "apps/serve/openapi.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/http/keys.h"
#include "apps/serve/request/long_body.h"
#include "apps/serve/request/long_text.h"
#include "apps/serve/preset_merge.h"
#include "apps/serve/api/mcp/mcp_server.h"
#include "apps/serve/route.h"
#include "apps/serve/request/texts.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_time.h"

static const route routes[] = {
    {"GET", "/", &error_format_openai, page_home, NEEDS_NOTHING},
    {"GET", "/page/", &error_format_openai, page_file, NEEDS_NOTHING},
    {"GET", "/health", &error_format_llama, llama_health, NEEDS_NOTHING},
    {"GET", "/v1/health", &error_format_llama, llama_health, NEEDS_NOTHING},
    {"GET", "/version", &error_format_openai, server_version, NEEDS_NOTHING},
    {"GET", "/v1/models", &error_format_openai, openai_models, NEEDS_KEY},
    {"GET", "/v1/models/", &error_format_openai, openai_model, NEEDS_KEY},
    {"GET", "/models", &error_format_openai, openai_models, NEEDS_KEY},
    {"POST", "/models/load", &error_format_llama, llama_load, NEEDS_MODEL},
    {"POST", "/models/unload", &error_format_llama, llama_unload, NEEDS_NAME},
    {"POST", "/v1/chat/completions", &error_format_openai, openai_chat, NEEDS_MODEL},
    {"POST", "/chat/completions", &error_format_openai, openai_chat, NEEDS_MODEL},
    {"POST", "/v1/completions", &error_format_openai, openai_completions, NEEDS_MODEL},
    {"POST", "/v1/fim/completions", &error_format_openai, mistral_fim, NEEDS_MODEL},
    {"POST", "/v1/responses", &error_format_openai, openai_responses, NEEDS_MODEL},
    {"POST", "/v1/responses/input_tokens", &error_format_openai, openai_count_tokens, NEEDS_MODEL},
    {"POST", "/v1/embeddings", &error_format_openai, openai_embeddings, NEEDS_MODEL},
    {"POST", "/v1/audio/transcriptions", &error_format_openai, openai_transcriptions,
     NEEDS_MODEL_FORM},
    {"POST", "/v1/audio/translations", &error_format_openai, openai_translations, NEEDS_MODEL_FORM},
    {"POST", "/v1/audio/speech", &error_format_openai, openai_speech, NEEDS_MODEL},
    {"POST", "/v1/messages", &error_format_anthropic, anthropic_messages, NEEDS_MODEL},
    {"POST", "/v1/messages/count_tokens", &error_format_anthropic, anthropic_count_tokens,
     NEEDS_MODEL},
    {"POST", "/api/generate", &error_format_ollama, ollama_generate, NEEDS_NAME},
    {"POST", "/api/chat", &error_format_ollama, ollama_chat, NEEDS_NAME},
    {"POST", "/api/embed", &error_format_ollama, ollama_embed, NEEDS_NAME},
    {"POST", "/api/embeddings", &error_format_ollama, ollama_embeddings, NEEDS_NAME},
    {"GET", "/api/tags", &error_format_ollama, ollama_tags, NEEDS_KEY},
    {"GET", "/api/ps", &error_format_ollama, ollama_ps, NEEDS_KEY},
    {"POST", "/api/show", &error_format_ollama, ollama_show, NEEDS_NAME},
    {"POST", "/api/pull", &error_format_ollama, ollama_pull, NEEDS_KEY},
    {"POST", "/api/create", &error_format_ollama, ollama_create, NEEDS_KEY},
    {"POST", "/api/copy", &error_format_ollama, ollama_copy, NEEDS_KEY},
    {"DELETE", "/api/delete", &error_format_ollama, ollama_delete, NEEDS_KEY},
    {"GET", "/api/blobs/", &error_format_ollama, ollama_look_at_blob, NEEDS_KEY}, // and HEAD
    {"POST", "/api/blobs/", &error_format_ollama, ollama_take_blob, NEEDS_UPLOAD},
    {"POST", "/api/push", &error_format_ollama, ollama_push, NEEDS_KEY},
    {"GET", "/api/version", &error_format_ollama, ollama_version, NEEDS_KEY},
    {"POST", "/completion", &error_format_llama, llama_completion, NEEDS_MODEL},
    {"POST", "/completions", &error_format_llama, llama_completion, NEEDS_MODEL},
    {"POST", "/infill", &error_format_llama, llama_infill, NEEDS_MODEL},
    {"POST", "/embedding", &error_format_llama, llama_embedding, NEEDS_MODEL},
    {"POST", "/embeddings", &error_format_llama, llama_embedding, NEEDS_MODEL},
    {"POST", "/rerank", &error_format_llama, llama_rerank, NEEDS_MODEL},
    {"POST", "/reranking", &error_format_llama, llama_rerank, NEEDS_MODEL},
    {"POST", "/v1/rerank", &error_format_llama, llama_rerank, NEEDS_MODEL},
    {"POST", "/v1/reranking", &error_format_llama, llama_rerank, NEEDS_MODEL},
    {"POST", "/v1/score", &error_format_openai, score_pairs, NEEDS_MODEL},
    {"POST", "/score", &error_format_openai, score_pairs, NEEDS_MODEL},
    {"GET", "/openapi.json", &error_format_openai, serve_openapi, NEEDS_NOTHING},
    {"GET", "/props", &error_format_llama, llama_props, NEEDS_KEY},
    {"GET", "/slots", &error_format_llama, llama_slots, NEEDS_KEY},
    {"POST", "/slots/", &error_format_llama, llama_slot_action, NEEDS_MODEL_ALONE},
    {"GET", "/lora-adapters", &error_format_llama, llama_adapters, NEEDS_KEY},
    {"POST", "/lora-adapters", &error_format_llama, llama_set_adapters, NEEDS_KEY},
    {"POST", "/tokenize", &error_format_llama, llama_tokenize, NEEDS_MODEL},
    {"POST", "/detokenize", &error_format_llama, llama_detokenize, NEEDS_MODEL},
    {"POST", "/apply-template", &error_format_llama, llama_apply_template, NEEDS_MODEL},
    {"GET", "/metrics", &error_format_llama, llama_metrics, NEEDS_KEY},
    {"POST", "/mcp", &error_format_mcp, mcp_take_message, NEEDS_KEY},
};

const route *route_at(size_t i) { return i < sizeof routes / sizeof *routes ? &routes[i] : NULL; }

static bool matches(const route *r, tern_str path) {
    size_t n = strlen(r->path);
    if (n > 1 && r->path[n - 1] == '/') return path.len > n && !memcmp(path.ptr, r->path, n);
    return tern_str_is(path, r->path);
}

// The first route of the path with this method.
static const route *find_route(const request *req, tern_str method) {
    tern_str path = {tern_strbuf_text(&req->path), req->path.len};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (matches(&routes[i], path) && tern_str_is(method, routes[i].method)) return &routes[i];
    return NULL;
}

// No route has the path and the method: 405 with the methods that the path has, if it has any.
static void refuse_route(request *req, api_error *e) {
    static const char *const methods[] = {"GET", "POST", "DELETE"};
    tern_strbuf takes = {0}, allow = {0};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (!find_route(req, (tern_str){methods[i], strlen(methods[i])})) continue;
        tern_strbuf_printf(&takes, "%s%s", takes.len ? " and " : "", methods[i]);
        tern_strbuf_printf(&allow, "%s, %s", methods[i], i == 0 ? "HEAD, " : "");
    }
    if (takes.failed || allow.failed)
        api_fail_memory(e);
    else if (!takes.len)
        api_fail(e, 404, NULL, NULL, "there is no %s here", tern_strbuf_text(&req->path));
    else
        api_fail(e, 405, NULL, NULL, "%s takes %s", tern_strbuf_text(&req->path), takes.ptr);
    if (e->status == 405) tern_strbuf_printf(&req->head, "Allow: %sOPTIONS\r\n", allow.ptr);
    tern_strbuf_free(&takes);
    tern_strbuf_free(&allow);
}

// An unknown path's error has the format of the interface that the path resembles.
static const error_format *error_format_of(const request *req) {
    const char *path = tern_strbuf_text(&req->path);
    if (!strncmp(path, "/api/", 5)) return &error_format_ollama;
    if (!strncmp(path, "/v1/messages", 12)) return &error_format_anthropic;
    if (!strcmp(path, "/mcp")) return &error_format_mcp;
    return &error_format_openai;
}

// ---- May it ask? -------------------------------------------------------------------------------

static bool check_origin(request *req, api_error *e) {
    const serve_desc *d = req->server->desc;
    tern_str origin = http_field_of(req->http, "origin");
    if (!host_is_allowed(d, req->http->host)) {
        api_fail(e, 403, NULL, NULL, "the name '%.*s' is not this server's: see --allow-host",
                 req->http->host.len < 200 ? (int)req->http->host.len : 200, req->http->host.ptr);
        return false;
    }
    if (!origin.ptr) return true;
    if (!origin_is_allowed(d, origin, req->http->host)) {
        api_fail(e, 403, NULL, NULL, "pages of '%.*s' may not ask this server: see --cors",
                 origin.len < 200 ? (int)origin.len : 200, origin.ptr);
        return false;
    }
    if (origin.len < sizeof req->allow_origin) {
        memcpy(req->allow_origin, origin.ptr, origin.len);
        req->allow_origin[origin.len] = 0;
    }
    return true;
}

// As llama-server has it: only its lists of models and its page are there at once.
static bool check_loaded(const request *req, const route *r, api_error *e) {
    static void (*const early[])(request *) = {page_home,     page_file,   server_version,
                                               openai_models, ollama_tags, ollama_version,
                                               serve_openapi};
    if (!req->server->is_loading) return true;
    for (size_t i = 0; i < sizeof early / sizeof *early; i++)
        if (r->handle == early[i]) return true;
    api_fail(e, 503, "loading", NULL, "Loading model");
    return false;
}

static bool check_key(request *req, const route *r, api_error *e) {
    const serve_desc *d = req->server->desc;
    tern_str key = key_of(req->http);
    if (d->keys.n == 0 || r->needs == NEEDS_NOTHING) return true;
    size_t which = find_key(&d->keys, key);
    // If there are several keys, each key is a client, from any address.
    req->client = tern_mix64((d->keys.n > 1 ? 0 : req->client) + which + 1);
    req->owner = registry_owner(req->server->registry, which);
    if (which != SIZE_MAX) return true;
    api_fail(e, 401, "invalid_api_key", NULL,
             key.ptr ? "the API key is wrong" : "an API key is needed: Authorization: Bearer KEY");
    return false;
}

// ---- The model ---------------------------------------------------------------------------------

// By the body's "model" (Ollama's clients also say "name"), or the query's.
static bool find_model(request *req, api_error *e) {
    tern_error err = {0};
    tern_strbuf room = {0};
    const tern_json *root = tern_json_root(&req->body);
    tern_str name = tern_json_str(tern_json_get(&req->body, root, "model"));
    if (!name.ptr && req->error_format == &error_format_ollama)
        name = tern_json_str(tern_json_get(&req->body, root, "name"));
    if (req->rule->needs == NEEDS_MODEL_FORM) name = req->form_model;
    if (!name.ptr) name = request_query(req, "model", &room);
    req->preset = preset_hold(registry_preset(req->server->registry, name));
    if (req->preset) name = (tern_str){req->preset->from, strlen(req->preset->from)};
    req->adapter = registry_adapter(req->server->registry, name) + 1; // SIZE_MAX: none
    req->model = registry_find(req->server->registry, name, &err);
    if (!req->model)
        api_fail(e, name.len ? 404 : 400, name.len ? "model_not_found" : NULL, "model", "%s",
                 err.message);
    tern_strbuf_free(&room);
    return req->model != NULL;
}

// ---- Beginning and ending ----------------------------------------------------------------------

// Answers a page's preflight request.
static void reply_preflight(request *req) {
    tern_strbuf none = {0};
    req->preflight = true;
    reply_whole(req, 204, NULL, &none);
}

static void handle(request *req) {
    const route *r = req->rule;
    if (r->needs >= NEEDS_MODEL)
        request_with_model(req, r->handle);
    else
        r->handle(req);
}

static void merge(request *req) {
    api_error e = {0};
    if (!preset_merge(req, &e)) reply_error(req, &e);
}

// Its body, if any, is complete; or e says why it is refused.
static void go_on(request *req, api_error *e) {
    bool ok = !e->status && req->rule;
    if (ok && req->rule->needs >= NEEDS_NAME) ok = find_model(req, e);
    if (!ok)
        reply_error(req, e);
    else if (req->preset)
        request_do(req, req->n_body, merge, handle);
    else
        handle(req);
}

// A base URL that ends with a slash, or an address with one too many, makes "//" and "/" at the
// end.
static void tidy_path(tern_strbuf *path) {
    size_t n = 0;
    for (size_t i = 0; i < path->len; i++)
        if (path->ptr[i] != '/' || n == 0 || path->ptr[n - 1] != '/') path->ptr[n++] = path->ptr[i];
    while (n > 1 && path->ptr[n - 1] == '/') n--;
    if (!path->len) return;
    path->len = n;
    path->ptr[n] = 0;
}

// Checks that need only the path and the fields.
static void screen(request *req, api_error *e) {
    const tern_str method = req->http->method;
    const route *r;
    if (!http_unescape(req->http->path, &req->path))
        req->path.failed ? api_fail_memory(e)
                         : api_fail(e, 400, NULL, NULL, "the path has a wrong escape");
    if (!e->status) tidy_path(&req->path);
    req->error_format = error_format_of(req);
    r = req->rule = find_route(req, tern_str_is(method, "HEAD") ? TERN_STR("GET") : method);
    if (r) req->route = r->path;
    if (e->status || !check_origin(req, e) || tern_str_is(method, "OPTIONS")) return;
    if (r) {
        req->error_format = r->error_format;
        if (check_key(req, r, e) && check_loaded(req, r, e) && encoding_read(req, e) &&
            r->needs == NEEDS_UPLOAD)
            ollama_begin_blob(req, e);
    } else {
        refuse_route(req, e);
    }
}

bool request_screen(request *req, api_error *e) {
    request_name(req);
    req->error_format = &error_format_openai;
    req->is_screened = true;
    screen(req, e);
    return e->status == 0;
}

bool request_takes_body(const request *req) {
    return req->rule && strcmp(req->rule->method, "GET") != 0 &&
           tern_str_is(req->http->method, req->rule->method) && !req->refusal;
}

void request_refuse(request *req, const api_error *e) {
    req->rule = NULL;
    reply_error(req, e);
}

void request_begin(request *req) {
    api_error e = {0};
    if (!req->is_screened) {
        request_screen(req, &e);
    } else if (req->refusal) {
        e = *req->refusal;
    }
    tern_free(req->refusal);
    req->refusal = NULL;
    if (!e.status && tern_str_is(req->http->method, "OPTIONS"))
        reply_preflight(req);
    else if (!e.status && request_takes_body(req) && !req->upload)
        body_read_then(req, go_on);
    else
        go_on(req, &e);
}
