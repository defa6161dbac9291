#include "apps/serve/api/mcp/mcp_server.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_time.h"

#define PROGRESS_SECONDS 0.1 // between two messages about it

// ---- The words for errors ----------------------------------------------------------------------

// Errors before the body is known to be an MCP message: invalid JSON, wrong key, unknown path.
static void put_error(tern_json_writer *w, const request *req, const api_error *e) {
    int64_t code = e->status == 400   ? JSONRPC_PARSE_ERROR
                   : e->status >= 500 ? JSONRPC_INTERNAL_ERROR
                                      : JSONRPC_SERVER_ERROR;
    (void)req;
    jsonrpc_put_error(w, NULL, NULL, code, e->message, NULL);
}

// A failed tool is not a protocol error: its result gives the reason to the model that called it.
static void refuse(request *req, const api_error *e) {
    tern_strbuf line = {0};
    tern_json_writer w = {.out = &line};
    bool is_call = req->mcp && req->mcp->call.tool;
    if (is_call)
        mcp_put_failure(&req->mcp->call, e->message, &line);
    else
        put_error(&w, req, e);
    mcp_reply(req, is_call ? 200 : e->status, &line);
    tern_strbuf_free(&line);
}
const error_format error_format_mcp = {.put_error = put_error, .refuse = refuse};

// ---- Answers -----------------------------------------------------------------------------------

void mcp_put_event(const request *req, const tern_strbuf *line, tern_strbuf *out) {
    if (!req->sink->is_plain) tern_strbuf_puts(out, "event: message\ndata: ");
    tern_strbuf_append(out, tern_strbuf_text(line), line->len);
    tern_strbuf_puts(out, req->sink->is_plain ? "\n" : "\n\n");
    out->failed |= line->failed;
}

void mcp_reply(request *req, int status, tern_strbuf *line) {
    if (req->is_stream) {
        mcp_put_event(req, line, &req->piece);
        reply_piece(req, &req->piece);
        reply_end(req);
    } else {
        reply_whole(req, status, "application/json", line);
    }
    tern_strbuf_clear(line);
}

bool mcp_may_stream(const request *req) {
    static const char type[] = "text/event-stream";
    tern_str accept = http_field_of(req->http, "accept");
    return req->sink->is_plain ||
           (accept.ptr && memmem(accept.ptr, accept.len, type, sizeof type - 1) != NULL);
}

void mcp_begin_stream(request *req) {
    if (mcp_may_stream(req)) reply_stream(req, "text/event-stream");
}

void mcp_send_progress(request *req, double progress, double total, tern_strbuf *out) {
    mcp_run *r = req->mcp;
    double now = tern_seconds();
    tern_strbuf line = {0};
    if (!r->call.progress || !req->is_stream || now - r->progress_sent < PROGRESS_SECONDS) return;
    r->progress_sent = now;
    mcp_put_progress(&r->call, progress, total, &line);
    mcp_put_event(req, &line, out);
    tern_strbuf_free(&line);
}

// ---- Models ------------------------------------------------------------------------------------

// A decoder may be served for its vectors, too.
static bool is_good_for(const server *s, const served *m, const char *ability) {
    bool pools = s->desc->opening.pooling != TERN_POOLING_NONE && !strcmp(ability, "embedding");
    return pools || !strcmp(served_ability(m), ability);
}

served *mcp_model_for(const server *s, const char *ability) {
    served *m;
    for (size_t i = 0; registry_name(s->registry, i, &m).ptr; i++)
        if (is_good_for(s, m, ability)) return m;
    return NULL;
}

void mcp_with_model(request *req, const char *ability, void (*handle)(request *req)) {
    api_error e = {0};
    tern_error err = {0};
    fields f = fields_of_body(req, &e);
    tern_str name = field_text(&f, "model");
    if (!name.len) req->model = mcp_model_for(req->server, ability);
    if (!req->model && !e.status) req->model = registry_find(req->server->registry, name, &err);
    if (!req->model) api_fail(&e, 404, "model_not_found", "model", "%s", err.message);
    if (e.status)
        reply_error(req, &e);
    else
        request_with_model(req, handle);
}

// ---- Which run ---------------------------------------------------------------------------------

static void copy_session(mcp_run *r, tern_str session) {
    if (session.len < sizeof r->session) {
        memcpy(r->session, session.ptr ? session.ptr : "", session.len);
        r->session[session.len] = 0;
    }
}

static void free_run(request *req) {
    mcp_run *r = req->mcp;
    *r->link = r->next;
    if (r->next) r->next->link = r->link;
    tern_free(r);
}

static mcp_run *begin_run(request *req) {
    mcp_server *d = req->server->mcp;
    mcp_run *r = tern_alloc(TERN_MEM_SESSION, sizeof *r);
    if (!r) return NULL;
    *r = (mcp_run){.request = req, .next = d->running, .link = &d->running};
    if (r->next) r->next->link = &r->next;
    d->running = req->mcp = r;
    req->free_mcp = free_run;
    copy_session(r, http_field_of(req->http, "mcp-session-id"));
    return r;
}

// Ends it without an answer. Over HTTP, though, a request must be answered if it has not been.
static void stop(request *req) {
    const mcp_run *r = req->mcp;
    if (req->is_away) { // it is stopped when it is back
        req->stop = stop;
        tern_cancel_request(&req->away.cancel);
        return;
    }
    if (req->is_stream || req->sink->is_plain) {
        reply_end(req);
        return;
    }
    tern_strbuf line = {0};
    mcp_put_error(&r->call, JSONRPC_SERVER_ERROR, "the request was cancelled", NULL, &line);
    mcp_reply(req, 200, &line);
    tern_strbuf_free(&line);
}

// Clients number their requests from 0: over HTTP the ids are unique only within one session and
// key. (A modern client closes its stream instead.)
static void cancel(request *req) {
    const mcp_run *by = req->mcp;
    bool is_plain = req->sink->is_plain;
    if (!is_plain && !by->session[0]) return;
    for (mcp_run *r = req->server->mcp->running, *next; r; r = next) {
        next = r->next;
        if (r != by && !r->request->is_over && r->request->client == req->client &&
            !strcmp(r->session, by->session) &&
            jsonrpc_same_id(r->call.message.id, by->call.cancelled))
            stop(r->request);
    }
}

// ---- Messages ----------------------------------------------------------------------------------

// Models misspell arguments: an unknown one is refused if it would change the answer.
static bool knows_arguments(request *req, const mcp_server_tool *t, api_error *e) {
    const tern_json_doc *mine = &req->server->mcp->doc;
    const mcp_call *c = &req->mcp->call;
    const tern_json *schema = tern_json_get(mine, t->json, "inputSchema");
    const tern_json *known = tern_json_get(mine, schema, "properties");
    bool is_open = tern_json_bool(tern_json_get(mine, schema, "additionalProperties"), true);
    for (const tern_json *key = c->arguments ? tern_json_first(&req->body, c->arguments) : NULL;
         key && !is_open && !e->status; key = tern_json_next(&req->body, c->arguments, key)) {
        tern_str name = tern_json_str(key);
        const tern_json *k = known ? tern_json_first(mine, known) : NULL;
        while (k && !tern_str_eq(tern_json_str(k), name)) k = tern_json_next(mine, known, k);
        if (!k)
            api_fail(e, 400, NULL, NULL, "%s has no argument '%.*s'", t->about.name,
                     name.len < 80 ? (int)name.len : 80, name.ptr);
    }
    return e->status == 0;
}

static void call(request *req) {
    const mcp_server_tool *t = (const mcp_server_tool *)req->mcp->call.tool; // its first member
    api_error e = {0};
    if (knows_arguments(req, t, &e))
        t->does->call(req);
    else
        reply_error(req, &e);
}

// A session is only a name: the server keeps no state for it.
static void put_session(request *req) {
    uint64_t a = tern_mix64(tern_random_seed()), b = tern_mix64(a ^ tern_random_seed());
    tern_strbuf_printf(&req->head, "Mcp-Session-Id: %016llx%016llx\r\n", (unsigned long long)a,
                       (unsigned long long)b);
}

static void reply_nothing(request *req) {
    tern_strbuf none = {0};
    if (req->sink->is_plain)
        reply_end(req);
    else
        reply_whole(req, 202, NULL, &none);
}

void mcp_take_message(request *req) {
    api_error e = {0};
    tern_strbuf line = {0};
    const mcp_head head = {.is_http = !req->sink->is_plain,
                           .version = http_field_of(req->http, "mcp-protocol-version"),
                           .method = http_field_of(req->http, "mcp-method"),
                           .name = http_field_of(req->http, "mcp-name")};
    if (!req->server->mcp)
        api_fail(&e, 404, NULL, NULL, "this server has no tools for MCP: see tern serve --mcp");
    else if (!begin_run(req))
        api_fail_memory(&e);
    if (e.status) {
        reply_error(req, &e);
        return;
    }
    mcp_call *c = &req->mcp->call;
    mcp_step step = mcp_take(&req->server->mcp->about, &head, &req->body, c, &line);
    req->arguments = c->arguments;
    if (step == MCP_CANCEL) cancel(req);
    if (step == MCP_CALL) {
        call(req);
    } else if (step == MCP_ANSWER) {
        if (c->is_first && head.is_http) put_session(req);
        mcp_reply(req, c->status, &line);
    } else {
        reply_nothing(req);
    }
    tern_strbuf_free(&line);
}

// ---- Beginning and end -------------------------------------------------------------------------

static const serve_tool *find_tool(const struct serve_tools *all, tern_str name) {
    for (size_t i = 0; i < all->n; i++)
        if (tern_str_is(name, all->list[i].name)) return &all->list[i];
    return NULL;
}

static tern_status add_tool(server *s, const tern_json *json, tern_error *err) {
    mcp_server *d = s->mcp;
    tern_str name = tern_json_str(tern_json_get(&d->doc, json, "name"));
    const serve_tool *does = find_tool(s->desc->tools, name);
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    if (!does)
        return tern_fail(err, TERN_ERR_FORMAT, "an MCP tool without an implementation: '%.*s'",
                         (int)name.len, name.ptr ? name.ptr : "");
    if (does->is_offered && !does->is_offered(s)) return TERN_OK;
    tern_json_put_value(&w, NULL, &d->doc, json);
    if (text.failed) return tern_fail_memory(err, text.len);
    mcp_server_tool *t = &d->tools[d->about.n_tools];
    *t = (mcp_server_tool){{does->name, text.ptr}, does, json};
    d->offered[d->about.n_tools++] = &t->about;
    return TERN_OK;
}

static tern_status read_tools(server *s, tern_error *err) {
    mcp_server *d = s->mcp;
    tern_str json = s->desc->tools->json;
    TERN_TRY(tern_json_parse(&d->doc, json.ptr, json.len, err));
    const tern_json *root = tern_json_root(&d->doc);
    const tern_json *list = tern_json_get(&d->doc, root, "tools");
    tern_str words = tern_json_str(tern_json_get(&d->doc, root, "instructions"));
    size_t n = list ? list->n : 0;
    d->instructions = tern_strndup(TERN_MEM_SESSION, words.ptr ? words.ptr : "", words.len);
    d->tools = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *d->tools);
    d->offered = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *d->offered);
    if (!d->instructions || !d->tools || !d->offered)
        return tern_fail_memory(err, n * sizeof *d->tools);
    for (const tern_json *t = tern_json_first(&d->doc, list); t;
         t = tern_json_next(&d->doc, list, t))
        TERN_TRY(add_tool(s, t, err));
    d->about = (mcp_server_info){"tern",          "tern",     tern_version(),
                                 d->instructions, d->offered, d->about.n_tools};
    return TERN_OK;
}

tern_status mcp_server_open(server *s, tern_error *err) {
    if (!s->desc->tools) return TERN_OK;
    s->mcp = tern_alloc(TERN_MEM_SESSION, sizeof *s->mcp);
    if (!s->mcp) return tern_fail_memory(err, sizeof *s->mcp);
    TERN_TRY(mcp_memory_open(s, err));
    return read_tools(s, err);
}

void mcp_server_close(server *s) {
    mcp_server *d = s->mcp;
    if (!d) return;
    mcp_memory_close(s);
    for (size_t i = 0; i < d->about.n_tools; i++) tern_free((char *)d->tools[i].about.definition);
    tern_json_free(&d->doc);
    tern_free(d->instructions);
    tern_free(d->tools);
    tern_free(d->offered);
    tern_free(d);
    s->mcp = NULL;
}
