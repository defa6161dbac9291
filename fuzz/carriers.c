// What carries the messages of MCP's client in fuzz targets: no program is started and no address
// is reached. What a server says is the target's input, a line at a time.
#include <string.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/alloc.h"
#include "fuzz/support.h"

static struct {
    const char *bytes;
    size_t n, at;
} server;

void fuzz_server_says(const uint8_t *bytes, size_t n) {
    server.bytes = (const char *)bytes;
    server.n = n;
    server.at = 0;
}

static tern_str next_line(void) {
    const char *begin = server.bytes + server.at;
    size_t rest = server.n - server.at;
    const char *end = rest ? memchr(begin, '\n', rest) : NULL;
    size_t n = end ? (size_t)(end - begin) : rest;
    server.at += n + (end != NULL);
    return (tern_str){begin, n};
}

// What the client sends must be a message of one line; its answers to the server, too.
static void check_message(const char *text, size_t n) {
    tern_json_doc doc;
    jsonrpc_message m;
    jsonrpc_fault fault = {0};
    tern_error err = {0};
    bool ok = tern_json_parse(&doc, text, n, &err) == TERN_OK;
    fuzz_require(n > 0 && !memchr(text, '\n', n));
    fuzz_require((ok && jsonrpc_read(&m, &doc, &fault)) || err.status == TERN_ERR_MEMORY);
    tern_json_free(&doc);
}

static tern_status exchange(void *self, mcp_exchange *x, tern_error *err) {
    tern_strbuf reply = {0};
    bool done = x->id < 0;
    check_message(x->message, x->n_bytes);
    while (!done && server.at < server.n) {
        tern_str line = next_line();
        mcp_taken taken = mcp_client_take(self, line.ptr, line.len, x->id, &reply);
        if (taken == MCP_REPLY) check_message(reply.ptr, reply.len);
        done = taken == MCP_ANSWER;
        if (done) tern_strbuf_append(&x->answer, line.ptr, line.len);
    }
    tern_strbuf_free(&reply);
    if (x->answer.failed) return tern_fail_memory(err, x->answer.len);
    x->http_status = done ? 200 : 404;
    return done ? TERN_OK : tern_fail(err, TERN_ERR_IO, "the server does not answer");
}

static tern_status restart(void *self, tern_error *err) {
    (void)self, (void)err;
    return TERN_OK;
}

tern_status mcp_open_http(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                          tern_error *err) {
    (void)desc, (void)err;
    *out = (mcp_carrier){exchange, NULL, NULL, client};
    return TERN_OK;
}

tern_status mcp_open_stdio(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                           tern_error *err) {
    (void)desc, (void)err;
    *out = (mcp_carrier){exchange, restart, NULL, client};
    return TERN_OK;
}

// ---- The client --------------------------------------------------------------------------------

static bool gather(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// What the user says to a server's question stands between what the server says.
static bool answer_question(void *user, const char *question, size_t n, tern_strbuf *line) {
    (void)user;
    fuzz_require(n > 0 && question[n] == 0);
    if (server.at >= server.n) return false;
    tern_str said = next_line();
    tern_strbuf_append(line, said.ptr, said.len);
    return true;
}

void fuzz_ask_server(const uint8_t *bytes, size_t n, bool is_http) {
    static const char *const argv[] = {"server", NULL}, *const env[] = {NULL};
    const mcp_server_desc about = {
        .name = "s", .argv = argv, .env = env, .url = is_http ? "http://localhost/" : NULL};
    agent_tools tools = {.ask = answer_question};
    tern_error err = {0};
    fuzz_server_says(bytes, n);
    tern_status status = agent_add_server(&tools, &about, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    for (size_t i = 0; i < tools.n; i++) {
        const agent_tool *t = &tools.list[i];
        const tern_agent_call call = {
            .name = t->name, .id = "call_1", .arguments = "{\"a\":\"b\"}"};
        tern_strbuf out = {0};
        fuzz_require(!strncmp(t->name, "s_", 2) && strlen(t->name) <= 64);
        if (t->parameters) fuzz_require(fuzz_is_json(t->parameters, strlen(t->parameters)));
        t->run(t->user, &call, gather, &out);
        fuzz_require(out.len > 0 || out.failed);
        tern_strbuf_free(&out);
    }
    agent_tools_free(&tools);
}
