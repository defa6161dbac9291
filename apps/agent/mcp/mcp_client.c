// The protocol with an MCP server. See mcp_client.h.
#include "apps/agent/mcp/mcp_client.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"

#define MODERN_VERSION      "2026-07-28"
#define LEGACY_VERSION      "2025-11-25"
#define UNSUPPORTED_VERSION (-32022) // the code of an error
#define PROBE_SECONDS       10.0
#define BEGIN_SECONDS       60.0 // a server may be downloaded before it starts
#define CALL_SECONDS        120.0
#define PAGES_MAX           100
#define TOOLS_MAX           1000
#define ROUNDS_MAX          10 // of questions within a call
#define SCHEMA_BYTES_MAX    ((size_t)64 << 10)

struct mcp_client {
    char *name;
    mcp_carrier carrier;
    agent_tools *tools;
    char version[16]; // "": not agreed on yet
    bool is_modern;
    int64_t last_id;
    bool is_http;
    size_t n_users; // its tools, and the function that opens it
};

typedef struct mcp_tool {
    mcp_client *client;
    char *name;   // the server's name for it
    char *schema; // if arguments are also sent as HTTP fields; else NULL
} mcp_tool;

const agent_tools *mcp_client_tools(const mcp_client *c) { return c->tools; }
const char *mcp_client_name(const mcp_client *c) { return c->name; }
const char *mcp_client_version(const mcp_client *c) { return *c->version ? c->version : NULL; }
bool mcp_client_is_modern(const mcp_client *c) { return c->is_modern; }

static void release(mcp_client *c) {
    if (--c->n_users) return;
    if (c->carrier.close) c->carrier.close(c->carrier.self);
    tern_free(c->name);
    tern_free(c);
}

// ---- What comes --------------------------------------------------------------------------------

static void answer_request(mcp_client *c, const jsonrpc_message *m, tern_json_writer *w) {
    bool asks = c->tools->ask && tern_str_is(m->method, "elicitation/create");
    tern_strbuf result = {0};
    if (asks)
        w->out->failed |= !mcp_ask_user(c->tools, c->name, m->doc, m->params, &result);
    else if (tern_str_is(m->method, "ping"))
        tern_strbuf_puts(&result, "{}");
    if (result.len) {
        jsonrpc_open_answer(w, m->doc, m->id);
        tern_json_put_raw(w, "result", tern_strbuf_text(&result));
        tern_json_close(w, '}');
    } else { // sampling and roots, which are not supported
        jsonrpc_put_error(w, m->doc, m->id, JSONRPC_METHOD_NOT_FOUND,
                          "this client has no such method", NULL);
    }
    w->out->failed |= result.failed;
    tern_strbuf_free(&result);
}

mcp_taken mcp_client_take(mcp_client *c, const char *text, size_t n, int64_t id,
                          tern_strbuf *reply) {
    tern_json_doc doc = {0};
    jsonrpc_message m;
    jsonrpc_fault fault = {0};
    mcp_taken taken = MCP_NOTHING;
    tern_strbuf pruned = {0};
    if (mcp_parse(&doc, text, n, &pruned, NULL) != TERN_OK) {
        tern_strbuf_free(&pruned);
        return MCP_NOTHING;
    }
    tern_json_writer w = {.out = reply};
    if (!jsonrpc_read(&m, &doc, &fault)) {
        taken = MCP_NOTHING;
    } else if (m.kind == JSONRPC_RESULT || m.kind == JSONRPC_ERROR) {
        if (id >= 0 && tern_json_int(m.id, -1) == id) taken = MCP_ANSWER;
    } else if (m.kind == JSONRPC_REQUEST) {
        tern_strbuf_clear(reply);
        answer_request(c, &m, &w);
        taken = reply->failed ? MCP_NOTHING : MCP_REPLY;
    }
    tern_json_free(&doc);
    tern_strbuf_free(&pruned);
    return taken;
}

// ---- Requests ----------------------------------------------------------------------------------

typedef struct answer { // of a request
    tern_strbuf text, pruned;
    tern_json_doc doc;
    jsonrpc_message m;
    bool timed_out;
    int http_status;
} answer;

static void free_answer(answer *a) {
    tern_json_free(&a->doc);
    tern_strbuf_free(&a->text);
    tern_strbuf_free(&a->pruned);
    *a = (answer){0};
}

// Announces elicitation if there is a user.
static const char *capabilities(const mcp_client *c) {
    if (!c->tools->ask) return "{}";
    return c->is_modern ? "{\"elicitation\":{\"form\":{}}}" : "{\"elicitation\":{}}";
}

static void put_meta(const mcp_client *c, tern_json_writer *w) {
    tern_json_open(w, "_meta", '{');
    tern_json_put_text(w, "io.modelcontextprotocol/protocolVersion", MODERN_VERSION);
    tern_json_open(w, "io.modelcontextprotocol/clientInfo", '{');
    tern_json_put_text(w, "name", "tern");
    tern_json_put_text(w, "version", tern_version());
    tern_json_close(w, '}');
    tern_json_put_raw(w, "io.modelcontextprotocol/clientCapabilities", capabilities(c));
    tern_json_close(w, '}');
}

typedef struct request {
    const char *method, *name; // name: of the tool
    const char *members;       // of params, JSON without braces; NULL: none
    const char *fields;        // of HTTP: mcp_exchange's params
    double seconds;
} request;

// TERN_OK: *out is a response, a result or an error. The caller frees it in any case.
static tern_status ask(mcp_client *c, const request *r, answer *out, tern_error *err) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    mcp_exchange x = {.method = r->method,
                      .name = r->name,
                      .params = r->fields,
                      .id = ++c->last_id,
                      .end = tern_seconds() + r->seconds};
    *out = (answer){0};
    jsonrpc_open_request(&w, x.id, r->method);
    tern_json_open(&w, "params", '{');
    if (c->is_modern) put_meta(c, &w);
    if (r->members) {
        if (w.follows) tern_strbuf_putc(&text, ',');
        tern_strbuf_puts(&text, r->members);
    }
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    x.message = tern_strbuf_text(&text);
    x.n_bytes = text.len;
    tern_status status = text.failed ? tern_fail_memory(err, text.len)
                                     : c->carrier.exchange(c->carrier.self, &x, err);
    out->timed_out = x.timed_out;
    out->http_status = x.http_status;
    out->text = x.answer;
    jsonrpc_fault fault = {0};
    if (status == TERN_OK)
        status =
            mcp_parse(&out->doc, tern_strbuf_text(&out->text), out->text.len, &out->pruned, err);
    if (status == TERN_OK && !jsonrpc_read(&out->m, &out->doc, &fault))
        status = tern_fail(err, TERN_ERR_FORMAT, "%s: %s", c->name, fault.message);
    tern_strbuf_free(&text);
    return status;
}

static tern_status notify(mcp_client *c, const char *method, tern_error *err) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    jsonrpc_open_notification(&w, method);
    tern_json_close(&w, '}');
    mcp_exchange x = {.message = tern_strbuf_text(&text),
                      .n_bytes = text.len,
                      .method = method,
                      .id = -1,
                      .end = tern_seconds() + PROBE_SECONDS};
    tern_status status = text.failed ? tern_fail_memory(err, text.len)
                                     : c->carrier.exchange(c->carrier.self, &x, err);
    tern_strbuf_free(&x.answer);
    tern_strbuf_free(&text);
    return status;
}

static tern_status fail_error(const mcp_client *c, const answer *a, tern_error *err) {
    tern_str message = {0};
    int64_t code = jsonrpc_error_code(&a->m, &message);
    return tern_fail(err, TERN_ERR_IO, "%s: the server answers with error %lld: %.*s", c->name,
                     (long long)code, message.len < 300 ? (int)message.len : 300,
                     message.ptr ? message.ptr : "");
}

// ---- Beginning ---------------------------------------------------------------------------------

static bool has_modern(const tern_json_doc *doc, const tern_json *list) {
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return false;
    for (const tern_json *v = tern_json_first(doc, list); v; v = tern_json_next(doc, list, v))
        if (tern_str_is(tern_json_str(v), MODERN_VERSION)) return true;
    return false;
}

// Whether the server supports the newest version.
static bool offers_modern(const answer *a) {
    return a->m.kind == JSONRPC_RESULT &&
           has_modern(&a->doc, tern_json_get(&a->doc, a->m.result, "supportedVersions"));
}

// Whether it refuses a version and lists that same one as supported: a second try may succeed.
static bool contradicts_itself(const answer *a) {
    tern_str message;
    const tern_json *data = tern_json_get(&a->doc, a->m.error, "data");
    return a->m.kind == JSONRPC_ERROR &&
           jsonrpc_error_code(&a->m, &message) == UNSUPPORTED_VERSION &&
           has_modern(&a->doc, tern_json_get(&a->doc, data, "supported"));
}

// *is_old: the server responds, but does not support this era.
static tern_status discover(mcp_client *c, bool *is_old, tern_error *err) {
    const request r = {.method = "server/discover", .seconds = PROBE_SECONDS};
    answer a;
    c->is_modern = true;
    snprintf(c->version, sizeof c->version, "%s", MODERN_VERSION);
    tern_status status = ask(c, &r, &a, err);
    if (status == TERN_OK && contradicts_itself(&a)) {
        free_answer(&a);
        status = ask(c, &r, &a, err);
    }
    // Old servers refuse by an HTTP status, do not answer, or send an error of their own.
    *is_old = status != TERN_OK ? a.timed_out || a.http_status >= 400 || status == TERN_ERR_FORMAT
                                : !offers_modern(&a);
    free_answer(&a);
    if (*is_old) {
        c->is_modern = false;
        *c->version = 0;
        return TERN_OK;
    }
    return status;
}

static tern_status initialize(mcp_client *c, tern_error *err) {
    tern_strbuf members = {0};
    tern_strbuf_printf(&members,
                       "\"protocolVersion\":\"%s\",\"capabilities\":%s,\"clientInfo\":{\"name\":"
                       "\"tern\",\"version\":\"%s\"}",
                       LEGACY_VERSION, capabilities(c), tern_version());
    const request r = {
        .method = "initialize", .members = tern_strbuf_text(&members), .seconds = BEGIN_SECONDS};
    answer a = {0};
    tern_status status = members.failed ? tern_fail_memory(err, members.len) : ask(c, &r, &a, err);
    tern_strbuf_free(&members);
    if (status == TERN_OK && a.m.kind == JSONRPC_ERROR) status = fail_error(c, &a, err);
    if (status == TERN_OK) {
        static const char *const known[] = {LEGACY_VERSION, "2025-06-18", "2025-03-26",
                                            "2024-11-05"};
        tern_str version = tern_json_str(tern_json_get(&a.doc, a.m.result, "protocolVersion"));
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (tern_str_is(version, known[i]))
                snprintf(c->version, sizeof c->version, "%s", known[i]);
        if (!*c->version)
            status = tern_fail(
                err, TERN_ERR_UNSUPPORTED, "%s: the server speaks version '%.*s' of the protocol",
                c->name, version.len < 40 ? (int)version.len : 40, version.ptr ? version.ptr : "");
    }
    free_answer(&a);
    return status == TERN_OK ? notify(c, "notifications/initialized", err) : status;
}

static tern_status begin(mcp_client *c, tern_error *err) {
    bool is_old = false;
    tern_error first = {0};
    tern_status status = discover(c, &is_old, &first);
    if (status != TERN_OK && status != TERN_ERR_CANCELLED &&
        c->carrier.restart) { // the probe may have ended it
        c->is_modern = false;
        *c->version = 0;
        if (c->carrier.restart(c->carrier.self, err) != TERN_OK) return TERN_ERR_IO;
        is_old = true;
    } else if (status != TERN_OK) {
        return tern_fail(err, status, "%s", first.message);
    }
    return is_old ? initialize(c, err) : TERN_OK;
}

// ---- Calls -------------------------------------------------------------------------------------

// more: members of params besides; NULL: none.
static tern_status ask_call(mcp_tool *tool, const tern_agent_call *call, const char *more,
                            answer *a, tern_error *err) {
    mcp_client *c = tool->client;
    tern_strbuf members = {0}, fields = {0};
    tern_json_writer w = {.out = &members};
    double seconds = CALL_SECONDS;
    if (call->seconds_left > 0 && call->seconds_left < seconds) seconds = call->seconds_left;
    tern_json_put_text(&w, "name", tool->name);
    tern_json_put_raw(&w, "arguments", call->arguments);
    if (more) tern_strbuf_puts(&members, more);
    *a = (answer){0};
    tern_status status = TERN_OK;
    if (tool->schema) status = mcp_params_put(tool->schema, call->arguments, &fields, err);
    if (status == TERN_OK && members.failed) status = tern_fail_memory(err, members.len);
    const request r = {.method = "tools/call",
                       .name = tool->name,
                       .members = tern_strbuf_text(&members),
                       .fields = fields.ptr,
                       .seconds = seconds};
    if (status == TERN_OK) status = ask(c, &r, a, err);
    // The server has forgotten the session: begins another one.
    if (status != TERN_OK && a->http_status == 404 && !c->is_modern) {
        free_answer(a);
        *c->version = 0;
        status = initialize(c, err);
        if (status == TERN_OK) status = ask(c, &r, a, err);
    }
    tern_strbuf_free(&members);
    tern_strbuf_free(&fields);
    return status;
}

// ---- Questions to the user ----------------------------------------------------------------------

// The user's answers to the questions in a result, as members of params for repeating the same
// call.
static tern_status answer_questions(const mcp_client *c, const answer *a, tern_strbuf *more,
                                    tern_error *err) {
    const tern_json_doc *doc = &a->doc;
    const tern_json *list = tern_json_get(doc, a->m.result, "inputRequests");
    const tern_json *state = tern_json_get(doc, a->m.result, "requestState");
    tern_strbuf result = {0};
    tern_json_writer w = {.out = more, .follows = true};
    tern_status status = TERN_OK;
    tern_strbuf_clear(more);
    tern_json_open(&w, "inputResponses", '{');
    if (!tern_json_is(list, TERN_JSON_OBJECT)) list = NULL;
    for (const tern_json *key = list ? tern_json_first(doc, list) : NULL; key && status == TERN_OK;
         key = tern_json_next(doc, list, key)) {
        const tern_json *one = tern_json_value_of(doc, key);
        tern_str method = tern_json_str(tern_json_get(doc, one, "method"));
        tern_strbuf_clear(&result);
        if (!tern_str_is(method, "elicitation/create"))
            status =
                tern_fail(err, TERN_ERR_UNSUPPORTED,
                          "%s: the tool wants '%.*s', which this program does not do", c->name,
                          method.len < 40 ? (int)method.len : 40, method.ptr ? method.ptr : "");
        else if (!c->tools->ask)
            status = tern_fail(
                err, TERN_ERR_UNSUPPORTED,
                "%s: the tool wants to ask the user something, and there is nobody to ask",
                c->name);
        else if (!mcp_ask_user(c->tools, c->name, doc, tern_json_get(doc, one, "params"), &result))
            status = tern_fail_memory(err, result.len);
        tern_str name = tern_json_str(key);
        tern_json_put_bytes(&w, NULL, name.ptr, name.len);
        tern_strbuf_putc(more, ':');
        tern_strbuf_append(more, tern_strbuf_text(&result), result.len);
    }
    tern_json_close(&w, '}');
    if (state) tern_json_put_value(&w, "requestState", doc, state);
    if (status == TERN_OK && more->failed) status = tern_fail_memory(err, more->len);
    tern_strbuf_free(&result);
    return status;
}

// Calls, and repeats the call with the user's answers as long as the server asks.
static tern_status call_and_answer(mcp_tool *tool, const tern_agent_call *call, answer *a,
                                   tern_error *err) {
    tern_strbuf more = {0};
    tern_status status = ask_call(tool, call, NULL, a, err);
    for (int round = 1; status == TERN_OK && a->m.kind == JSONRPC_RESULT; round++) {
        tern_str type = tern_json_str(tern_json_get(&a->doc, a->m.result, "resultType"));
        if (!tern_str_is(type, "input_required")) break;
        status = round > ROUNDS_MAX
                     ? tern_fail(err, TERN_ERR_FORMAT,
                                 "%s: the tool has asked %d times and goes on asking",
                                 tool->client->name, ROUNDS_MAX)
                     : answer_questions(tool->client, a, &more, err);
        if (status != TERN_OK) break;
        free_answer(a);
        status = ask_call(tool, call, more.ptr, a, err);
    }
    tern_strbuf_free(&more);
    return status;
}

static bool run_call(void *user, const tern_agent_call *call, tern_text_fn put, void *put_user) {
    mcp_tool *tool = user;
    tern_error err = {0};
    tern_strbuf out = {0};
    answer a;
    tern_status status = call_and_answer(tool, call, &a, &err);
    if (status == TERN_OK && a.m.kind == JSONRPC_ERROR) status = fail_error(tool->client, &a, &err);
    tern_str type = tern_json_str(tern_json_get(&a.doc, a.m.result, "resultType"));
    bool ok = false;
    if (status != TERN_OK) {
        agent_tool_fail(put, put_user, "%s", err.message);
    } else if (type.ptr && !tern_str_is(type, "complete")) {
        agent_tool_fail(put, put_user, "%s: a result of a kind that this program does not know",
                        tool->client->name);
    } else {
        mcp_put_result(&out, &a.doc, a.m.result);
        ok = !tern_json_bool(tern_json_get(&a.doc, a.m.result, "isError"), false);
        agent_tool_put(put, put_user, &out);
    }
    tern_strbuf_free(&out);
    free_answer(&a);
    return ok;
}

// ---- Tools -------------------------------------------------------------------------------------

static void free_tool(void *user) {
    mcp_tool *tool = user;
    if (tool->client) release(tool->client);
    tern_free(tool->name);
    tern_free(tool->schema);
    tern_free(tool);
}

static bool offers(const mcp_client *c, tern_str name) {
    for (size_t i = 0; i < c->tools->n; i++) {
        const agent_tool *row = &c->tools->list[i];
        if (row->run == run_call && ((mcp_tool *)row->user)->client == c &&
            tern_str_is(name, ((mcp_tool *)row->user)->name))
            return true;
    }
    return false;
}

// The tool's data for calls. parameters: its schema; "": none.
static mcp_tool *new_tool(const mcp_client *c, tern_str own, const tern_strbuf *parameters) {
    mcp_tool *tool = tern_alloc(TERN_MEM_MISC, sizeof *tool);
    if (!tool) return NULL;
    bool has_params = c->is_http && c->is_modern && parameters->len &&
                      strstr(parameters->ptr, "\"x-mcp-header\"");
    *tool = (mcp_tool){.name = tern_strndup(TERN_MEM_MISC, own.ptr, own.len),
                       .schema = has_params ? tern_strdup(TERN_MEM_MISC, parameters->ptr) : NULL};
    if (tool->name && (tool->schema || !has_params)) return tool;
    free_tool(tool);
    return NULL;
}

static void note_left_out(const mcp_client *c, tern_str name, const char *why) {
    tern_strbuf line = {0};
    tern_strbuf_printf(&line, "%s: the tool '%.*s' is left out: %s", c->name,
                       name.len < 100 ? (int)name.len : 100, name.ptr ? name.ptr : "", why);
    if (c->tools->note && !line.failed) c->tools->note(c->tools->user, line.ptr);
    tern_strbuf_free(&line);
}

// Why a tool is unusable; NULL: it is usable.
static const char *fault_of(const mcp_client *c, const tern_json_doc *doc, tern_str name,
                            const tern_json *schema, const tern_strbuf *parameters) {
    if (!name.len || memchr(name.ptr, 0, name.len)) return "it has no name";
    if (offers(c, name)) return "another one has its name";
    if (schema && !tern_json_is(schema, TERN_JSON_OBJECT)) return "its schema is not an object";
    if (parameters->len > SCHEMA_BYTES_MAX) return "its schema has more than 64 KB";
    if (parameters->len && strstr(parameters->ptr, MCP_TOO_DEEP))
        return "its schema is nested too deeply";
    return c->is_http && c->is_modern ? mcp_params_check(doc, schema) : NULL;
}

static tern_status add_row(mcp_client *c, const char *name, tern_str own, const tern_strbuf *text,
                           const tern_strbuf *parameters, tern_error *err) {
    agent_tool *row;
    mcp_tool *tool = text->failed || parameters->failed ? NULL : new_tool(c, own, parameters);
    if (!tool) return tern_fail_memory(err, sizeof *tool);
    tern_status status = agent_tools_add(c->tools, name, tern_strbuf_text(text),
                                         parameters->len ? parameters->ptr : NULL, &row, err);
    if (status != TERN_OK) {
        free_tool(tool);
        return status;
    }
    tool->client = c;
    c->n_users++;
    row->from = c->name;
    row->run = run_call;
    row->user = tool;
    row->free = free_tool;
    return TERN_OK;
}

static tern_status add_tool(mcp_client *c, const tern_json_doc *doc, const tern_json *t,
                            tern_error *err) {
    char name[AGENT_NAME_BYTES];
    tern_str own = tern_json_str(tern_json_get(doc, t, "name"));
    const tern_json *schema = tern_json_get(doc, t, "inputSchema");
    tern_strbuf text = {0}, parameters = {0};
    tern_json_writer w = {.out = &parameters};
    if (tern_json_is(schema, TERN_JSON_NULL)) schema = NULL;
    if (tern_json_is(schema, TERN_JSON_OBJECT)) tern_json_put_value(&w, NULL, doc, schema);
    const char *why = fault_of(c, doc, own, schema, &parameters);
    tern_status status = TERN_OK;
    if (why) {
        note_left_out(c, own, why);
    } else {
        bool has_name = mcp_tool_name(c->name, own, name);
        has_name &= !agent_tools_make_distinct(c->tools, name);
        mcp_tool_description(&text, doc, t, own, has_name);
        status = add_row(c, name, own, &text, &parameters, err);
    }
    tern_strbuf_free(&text);
    tern_strbuf_free(&parameters);
    return status;
}

// One page. *cursor: where the next one begins; empty: there is none.
static tern_status take_page(mcp_client *c, tern_strbuf *cursor, size_t *n, tern_error *err) {
    tern_strbuf members = {0};
    tern_json_writer w = {.out = &members};
    if (cursor->len) tern_json_put_bytes(&w, "cursor", cursor->ptr, cursor->len);
    const request r = {.method = "tools/list",
                       .seconds = BEGIN_SECONDS,
                       .members = members.len ? members.ptr : NULL};
    answer a;
    tern_status status = ask(c, &r, &a, err);
    if (status == TERN_OK && a.m.kind == JSONRPC_ERROR) status = fail_error(c, &a, err);
    const tern_json *list = tern_json_get(&a.doc, a.m.result, "tools");
    if (status == TERN_OK && !tern_json_is(list, TERN_JSON_ARRAY))
        status = tern_fail(err, TERN_ERR_FORMAT, "%s: the server names no tools", c->name);
    for (const tern_json *t = status == TERN_OK ? tern_json_first(&a.doc, list) : NULL;
         t && status == TERN_OK; t = tern_json_next(&a.doc, list, t)) {
        if ((*n)++ == TOOLS_MAX) {
            note_left_out(c, tern_json_str(tern_json_get(&a.doc, t, "name")),
                          "the server has more than 1000, and so are those after it");
            break;
        }
        status = add_tool(c, &a.doc, t, err);
    }
    tern_strbuf_clear(cursor);
    tern_str next = {0};
    if (status == TERN_OK) next = tern_json_str(tern_json_get(&a.doc, a.m.result, "nextCursor"));
    if (next.len) tern_strbuf_append(cursor, next.ptr, next.len);
    free_answer(&a);
    tern_strbuf_free(&members);
    return status;
}

static tern_status take_tools(mcp_client *c, tern_error *err) {
    tern_strbuf cursor = {0};
    size_t n = 0;
    tern_status status = take_page(c, &cursor, &n, err);
    for (int i = 1; cursor.len && i < PAGES_MAX && n <= TOOLS_MAX && status == TERN_OK; i++)
        status = take_page(c, &cursor, &n, err);
    tern_strbuf_free(&cursor);
    return status;
}

static bool is_name(const char *s) {
    size_t n = strlen(s);
    return n > 0 && n <= 32 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

tern_status agent_add_server(agent_tools *t, const mcp_server_desc *desc, tern_error *err) {
    if (!is_name(desc->name))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a server's name is 1 to 32 letters, digits, '_' and '-', and not '%.80s'",
                         desc->name);
    mcp_client *c = tern_alloc(TERN_MEM_MISC, sizeof *c);
    if (!c) return tern_fail_memory(err, sizeof *c);
    *c = (mcp_client){.tools = t,
                      .n_users = 1,
                      .is_http = desc->url != NULL,
                      .name = tern_strdup(TERN_MEM_MISC, desc->name)};
    tern_status status = c->name ? TERN_OK : tern_fail_memory(err, strlen(desc->name));
    if (status == TERN_OK)
        status = desc->url ? mcp_open_http(&c->carrier, c, desc, err)
                           : mcp_open_stdio(&c->carrier, c, desc, err);
    if (status == TERN_OK) status = begin(c, err);
    if (status == TERN_OK) status = take_tools(c, err);
    release(c);
    return status;
}
