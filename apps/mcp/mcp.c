#include "apps/mcp/mcp.h"

#include <string.h>
#include "apps/mcp/mcp_head.h"

#define META(name) "io.modelcontextprotocol/" name
// How long clients may cache lists: only a restart of the server changes them.
#define TTL_MS 300000
#define META_NEEDED                                                                                \
    "every request needs '" META("protocolVersion") "' and '" META(                                \
        "clientCapabilities") "' in params._meta"

static const char *const legacy[] = {MCP_LEGACY_VERSION, "2025-06-18", "2025-03-26", "2024-11-05"};

static bool is_legacy_version(tern_str version) {
    for (size_t i = 0; i < sizeof legacy / sizeof *legacy; i++)
        if (tern_str_is(version, legacy[i])) return true;
    return false;
}

static const tern_json *param(const mcp_call *c, const char *name) {
    return tern_json_get(c->message.doc, c->message.params, name);
}

static const tern_json *meta(const mcp_call *c, const char *name) {
    return tern_json_get(c->message.doc, param(c, "_meta"), name);
}

// ---- Answers -----------------------------------------------------------------------------------

static void put_self(tern_json_writer *w, const char *key, const mcp_server_info *s) {
    tern_json_open(w, key, '{');
    tern_json_put_text(w, "name", s->name);
    tern_json_put_text(w, "title", s->title);
    tern_json_put_text(w, "version", s->version);
    tern_json_close(w, '}');
}

tern_json_writer mcp_open_result(const mcp_call *c, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    jsonrpc_open_answer(&w, c->message.doc, c->message.id);
    tern_json_open(&w, "result", '{');
    if (!c->is_modern) return w;
    tern_json_put_text(&w, "resultType", "complete");
    tern_json_open(&w, "_meta", '{');
    put_self(&w, META("serverInfo"), c->server);
    tern_json_close(&w, '}');
    return w;
}

void mcp_close_result(tern_json_writer *w) {
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

void mcp_put_text(tern_json_writer *w, const char *text, size_t n) {
    tern_json_open(w, "content", '[');
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "type", "text");
    tern_json_put_bytes(w, "text", text, n);
    tern_json_close(w, '}');
    tern_json_close(w, ']');
}

void mcp_put_failure(const mcp_call *c, const char *why, tern_strbuf *out) {
    tern_json_writer w = mcp_open_result(c, out);
    mcp_put_text(&w, why, strlen(why));
    tern_json_put_bool(&w, "isError", true);
    mcp_close_result(&w);
}

void mcp_put_error(const mcp_call *c, int64_t code, const char *message, const char *data,
                   tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    jsonrpc_put_error(&w, c->message.doc, c->message.id, code, message, data);
}

void mcp_put_progress(const mcp_call *c, double progress, double total, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    jsonrpc_open_notification(&w, "notifications/progress");
    tern_json_open(&w, "params", '{');
    tern_json_put_value(&w, "progressToken", c->message.doc, c->progress);
    tern_json_put_number(&w, "progress", progress);
    if (total > 0) tern_json_put_number(&w, "total", total);
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
}

static mcp_step refuse(mcp_call *c, int status, int64_t code, const char *message,
                       tern_strbuf *out) {
    c->status = status;
    mcp_put_error(c, code, message, NULL, out);
    return MCP_ANSWER;
}

static mcp_step refuse_version(mcp_call *c, tern_str asked, tern_strbuf *out) {
    tern_strbuf data = {0};
    tern_json_writer w = {.out = &data};
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "supported", '[');
    tern_json_put_text(&w, NULL, MCP_VERSION);
    tern_json_close(&w, ']');
    tern_json_put_bytes(&w, "requested", asked.ptr, asked.len);
    tern_json_close(&w, '}');
    c->status = 400;
    mcp_put_error(c, MCP_UNSUPPORTED_VERSION, "this version of the protocol is not supported",
                  tern_strbuf_text(&data), out);
    out->failed |= data.failed;
    tern_strbuf_free(&data);
    return MCP_ANSWER;
}

// ---- Which era ---------------------------------------------------------------------------------

// An unknown version counts as modern: all old ones are known.
static bool is_modern(const mcp_call *c, const mcp_head *h) {
    return meta(c, META("protocolVersion")) || meta(c, META("clientCapabilities")) ||
           tern_str_is(c->message.method, "server/discover") ||
           (h->version.ptr && !is_legacy_version(h->version));
}

// Checks a modern request's metadata. False: invalid, and the answer says why.
static bool check_modern(mcp_call *c, const mcp_head *h, tern_strbuf *out) {
    tern_str version = tern_json_str(meta(c, META("protocolVersion")));
    char why[200];
    c->capabilities = meta(c, META("clientCapabilities"));
    if (!version.ptr) {
        if (h->version.ptr && !tern_str_is(h->version, MCP_VERSION) &&
            !is_legacy_version(h->version))
            refuse_version(c, h->version, out);
        else
            refuse(c, 400, JSONRPC_INVALID_PARAMS, META_NEEDED, out);
    } else if (h->is_http && !tern_str_eq(version, h->version)) {
        refuse(c, 400, MCP_HEADER_MISMATCH,
               "the header MCP-Protocol-Version is not what params._meta says", out);
    } else if (!tern_str_is(version, MCP_VERSION)) {
        refuse_version(c, version, out);
    } else if (!tern_json_is(c->capabilities, TERN_JSON_OBJECT)) {
        refuse(c, 400, JSONRPC_INVALID_PARAMS, META_NEEDED, out);
    } else if (h->is_http && !mcp_head_agrees(h, &c->message, why, sizeof why)) {
        refuse(c, 400, MCP_HEADER_MISMATCH, why, out);
    } else {
        return true;
    }
    return false;
}

// ---- Methods -----------------------------------------------------------------------------------

static void put_abilities(tern_json_writer *w, const mcp_server_info *s) {
    tern_json_put_raw(w, "capabilities", "{\"tools\":{}}");
    if (s->instructions) tern_json_put_text(w, "instructions", s->instructions);
}

static void put_cache(tern_json_writer *w, const mcp_call *c) {
    if (!c->is_modern) return;
    tern_json_put_int(w, "ttlMs", TTL_MS);
    tern_json_put_text(w, "cacheScope", "private");
}

static mcp_step discover(mcp_call *c, tern_strbuf *out) {
    tern_json_writer w = mcp_open_result(c, out);
    tern_json_open(&w, "supportedVersions", '[');
    tern_json_put_text(&w, NULL, MCP_VERSION);
    tern_json_close(&w, ']');
    put_abilities(&w, c->server);
    put_cache(&w, c);
    mcp_close_result(&w);
    return MCP_ANSWER;
}

static mcp_step initialize(mcp_call *c, tern_strbuf *out) {
    tern_str asked = tern_json_str(param(c, "protocolVersion"));
    if (!asked.ptr)
        return refuse(c, 200, JSONRPC_INVALID_PARAMS, "'protocolVersion' must be a string", out);
    if (!is_legacy_version(asked)) asked = TERN_STR(MCP_LEGACY_VERSION);
    tern_json_writer w = mcp_open_result(c, out);
    tern_json_put_bytes(&w, "protocolVersion", asked.ptr, asked.len);
    put_abilities(&w, c->server);
    put_self(&w, "serverInfo", c->server);
    mcp_close_result(&w);
    c->is_first = true;
    return MCP_ANSWER;
}

static mcp_step ping(mcp_call *c, tern_strbuf *out) {
    tern_json_writer w = mcp_open_result(c, out);
    mcp_close_result(&w);
    return MCP_ANSWER;
}

static mcp_step list_tools(mcp_call *c, tern_strbuf *out) {
    const tern_json *cursor = param(c, "cursor");
    if (cursor && !tern_json_is(cursor, TERN_JSON_NULL))
        return refuse(c, 200, JSONRPC_INVALID_PARAMS, "'cursor': there is one page only", out);
    tern_json_writer w = mcp_open_result(c, out);
    tern_json_open(&w, "tools", '[');
    for (size_t i = 0; i < c->server->n_tools; i++)
        tern_json_put_raw(&w, NULL, c->server->tools[i]->definition);
    tern_json_close(&w, ']');
    put_cache(&w, c);
    mcp_close_result(&w);
    return MCP_ANSWER;
}

static mcp_step call_tool(mcp_call *c, tern_strbuf *out) {
    tern_str name = tern_json_str(param(c, "name"));
    const tern_json *token = meta(c, "progressToken");
    c->arguments = param(c, "arguments");
    if (tern_json_is(c->arguments, TERN_JSON_NULL)) c->arguments = NULL;
    for (size_t i = 0; name.ptr && i < c->server->n_tools; i++)
        if (tern_str_is(name, c->server->tools[i]->name)) c->tool = c->server->tools[i];
    if (!name.ptr) return refuse(c, 200, JSONRPC_INVALID_PARAMS, "'name' must be a string", out);
    if (!c->tool) return refuse(c, 200, JSONRPC_INVALID_PARAMS, "there is no such tool", out);
    if (c->arguments && !tern_json_is(c->arguments, TERN_JSON_OBJECT)) {
        c->tool = NULL;
        return refuse(c, 200, JSONRPC_INVALID_PARAMS, "'arguments' must be an object", out);
    }
    if (tern_json_is(token, TERN_JSON_STRING) || tern_json_is(token, TERN_JSON_NUMBER))
        c->progress = token;
    return MCP_CALL;
}

static const struct {
    const char *name;
    mcp_step (*answer)(mcp_call *c, tern_strbuf *out);
    bool is_legacy, is_modern;
} methods[] = {
    {"initialize", initialize, true, false},    {"ping", ping, true, false},
    {"server/discover", discover, false, true}, {"tools/list", list_tools, true, true},
    {"tools/call", call_tool, true, true},
};

static mcp_step answer(mcp_call *c, tern_strbuf *out) {
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (tern_str_is(c->message.method, methods[i].name) &&
            (c->is_modern ? methods[i].is_modern : methods[i].is_legacy))
            return methods[i].answer(c, out);
    return refuse(c, c->is_modern ? 404 : 200, JSONRPC_METHOD_NOT_FOUND, "there is no such method",
                  out);
}

// Over HTTP a modern notification has header fields, too; which metadata it must have is not
// settled.
static mcp_step take_notification(mcp_call *c, const mcp_head *h, tern_strbuf *out) {
    char why[200];
    if (tern_str_is(h->version, MCP_VERSION) && !mcp_head_agrees(h, &c->message, why, sizeof why))
        return refuse(c, 400, MCP_HEADER_MISMATCH, why, out);
    if (!tern_str_is(c->message.method, "notifications/cancelled")) return MCP_SILENT;
    c->cancelled = param(c, "requestId");
    return c->cancelled ? MCP_CANCEL : MCP_SILENT;
}

mcp_step mcp_take(const mcp_server_info *server, const mcp_head *head, const tern_json_doc *doc,
                  mcp_call *c, tern_strbuf *out) {
    jsonrpc_fault fault = {0};
    *c = (mcp_call){.server = server, .status = 200};
    if (!jsonrpc_read(&c->message, doc, &fault))
        return refuse(c, 400, fault.code, fault.message, out);
    if (c->message.kind == JSONRPC_NOTIFICATION) return take_notification(c, head, out);
    if (c->message.kind != JSONRPC_REQUEST) return MCP_SILENT; // a response
    c->is_modern = is_modern(c, head);
    if (c->is_modern && !check_modern(c, head, out)) return MCP_ANSWER;
    return answer(c, out);
}
