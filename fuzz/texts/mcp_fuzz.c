// The Model Context Protocol at both of its ends. The first byte says what the rest is:
//
//   P   a POST of /mcp: lines "Name: value", an empty one, the body
//   L   lines of a pipe, which tern mcp reads
//   C   what a server says to tern agent's client, a line each
//
// The server is stopping: what is to be computed is refused when all of it has been read.
#include <string.h>
#include "apps/serve/request/long_body.h"
#include "apps/serve/api/mcp/mcp_server.h"
#include "base/alloc.h"
#include "fuzz/support.h"

enum { FIELDS_MAX = 16, LINE_MAX_BYTES = 4000, PIECE = 7 };

static const serve_model models[] = {{"models/stories.gguf", NULL},
                                     {"tests/oracles/bert/model.gguf", "bert"}};
static const serve_desc desc = {.models = models,
                                .n_models = sizeof models / sizeof *models,
                                .opening = {.n_threads = 1},
                                .keep_seconds = -1,
                                .session = {.n_context = 256},
                                .host = "127.0.0.1",
                                .n_parallel = 2,
                                .n_queue = 6,
                                .tools = &serve_tools,
                                .is_silent = true};
static server the_server;

static void wake(void *user) { (void)user; }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    fuzz_require(server_open(&the_server, &desc, wake, NULL, NULL) == TERN_OK);
    fuzz_require(server_load(&the_server, NULL) == TERN_OK);
    the_server.stopping = true;
    fuzz_require(served_open_now(the_server.registry->list[1], NULL) == TERN_OK);
    fuzz_require(the_server.mcp->about.n_tools == 2);
    return 0;
}

// ---- The server's answer -----------------------------------------------------------------------

typedef struct answer {
    tern_strbuf bytes;
    int n_ends;
} answer;

static void sink_write(void *to, const char *bytes, size_t n) {
    answer *a = to;
    fuzz_require(a->n_ends == 0);
    tern_strbuf_append(&a->bytes, bytes, n);
}
static void sink_end(void *to) { ((answer *)to)->n_ends++; }
static const sink to_http = {.write = sink_write, .end = sink_end};
static const sink to_pipe = {.write = sink_write, .end = sink_end, .is_plain = true};

// The answer to a message: to one with an id it has that id, and a result or an error.
static void check_line(const request *req, const char *text, size_t n) {
    const mcp_run *run = req->mcp;
    tern_json_doc doc;
    jsonrpc_message m;
    jsonrpc_fault fault = {0};
    tern_error err = {0};
    if (tern_json_parse(&doc, text, n, &err) != TERN_OK) {
        fuzz_require(err.status == TERN_ERR_MEMORY);
        tern_json_free(&doc);
        return;
    }
    fuzz_require(jsonrpc_read(&m, &doc, &fault));
    fuzz_require(m.kind == JSONRPC_RESULT || m.kind == JSONRPC_ERROR);
    if (run && run->call.message.id) fuzz_require(jsonrpc_same_id(run->call.message.id, m.id));
    if (m.kind == JSONRPC_ERROR) {
        tern_str why;
        fuzz_require(jsonrpc_error_code(&m, &why) < 0 && why.len > 0);
    }
    tern_json_free(&doc);
}

static void check_answer(const request *req, const answer *a) {
    if (a->bytes.failed || req->is_broken) return; // memory is out
    const char *text = tern_strbuf_text(&a->bytes);
    fuzz_require(a->n_ends == 1);
    if (!req->sink->is_plain) {
        const char *body = strstr(text, "\r\n\r\n");
        fuzz_require(body && ((req->status >= 400 && req->status <= 503) || req->status == 200 ||
                              req->status == 202));
        text = body + 4;
    }
    size_t n = a->bytes.len - (size_t)(text - tern_strbuf_text(&a->bytes));
    bool is_silent = req->status == 202 || (req->sink->is_plain && n == 0);
    if (is_silent)
        fuzz_require(n == 0 && req->mcp && req->mcp->call.message.kind != JSONRPC_REQUEST);
    if (req->sink->is_plain && n > 0) { // one line, with its end
        fuzz_require(memchr(text, '\n', n) == text + n - 1);
        n--;
    }
    if (n > 0 && !req->is_stream) check_line(req, text, n);
}

static void finish(request *req, answer *a) {
    check_answer(req, a);
    for (size_t i = 0; i < the_server.registry->n; i++)
        registry_keep(the_server.registry->list[i], -1);
    request_free(req);
    for (size_t i = 0; i < the_server.registry->n; i++)
        fuzz_require(the_server.registry->list[i]->n_users == 0);
    fuzz_require(!the_server.mcp->running);
    tern_strbuf_free(&a->bytes);
}

// ---- HTTP --------------------------------------------------------------------------------------

static tern_str take_line(tern_str *rest) {
    const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    tern_str line = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t used = line.len + (end != NULL);
    *rest = (tern_str){rest->ptr + used, rest->len - used};
    return line;
}

static void post(tern_str input) {
    http_field list[FIELDS_MAX];
    size_t n = 0;
    answer a = {.n_ends = 0};
    for (tern_str line = take_line(&input); line.len; line = take_line(&input)) {
        const char *colon = memchr(line.ptr, ':', line.len);
        size_t at = colon ? (size_t)(colon - line.ptr) : 0, from = at + 1;
        if (!colon || n == FIELDS_MAX) continue;
        while (from < line.len && line.ptr[from] == ' ') from++;
        list[n++] =
            (http_field){.name = {line.ptr, at}, .value = {line.ptr + from, line.len - from}};
    }
    const http_request http = {.method = TERN_STR("POST"),
                               .path = TERN_STR("/mcp"),
                               .host = TERN_STR("localhost"),
                               .minor = 1,
                               .keeps_alive = true,
                               .fields = list,
                               .n_fields = n,
                               .body = input};
    request *req = tern_alloc(TERN_MEM_SESSION, sizeof *req);
    if (!req) return;
    *req = (request){.server = &the_server, .sink = &to_http, .to = &a, .http = &http};
    request_begin(req);
    finish(req, &a);
}

// ---- A pipe ------------------------------------------------------------------------------------

static void take_body(request *req, api_error *e) {
    if (e->status)
        reply_error(req, e);
    else
        mcp_take_message(req);
}

static void take_message(tern_str line) {
    static const http_request none = {.minor = 1};
    answer a = {.n_ends = 0};
    api_error e = {0};
    request *req = tern_alloc(TERN_MEM_SESSION, sizeof *req);
    if (!req) return;
    *req = (request){.server = &the_server,
                     .sink = &to_pipe,
                     .to = &a,
                     .http = &none,
                     .error_format = &error_format_mcp,
                     .route = "stdio"};
    request_name(req);
    tern_strbuf_append(&req->text, line.ptr, line.len);
    if (req->text.failed) api_fail_memory(&e);
    if (!e.status) body_read(req, (tern_str){req->text.ptr, req->text.len}, &e);
    take_body(req, &e);
    finish(req, &a);
}

// The same lines come of the whole and of its pieces; messages are taken of the pieces.
static void read_lines(tern_str input) {
    jsonrpc_lines whole = {.line_max = LINE_MAX_BYTES}, cut = {.line_max = LINE_MAX_BYTES};
    tern_str line, same;
    jsonrpc_lines_add(&whole, input.ptr, input.len);
    for (size_t at = 0; at < input.len; at += PIECE) {
        size_t n = input.len - at < PIECE ? input.len - at : PIECE;
        jsonrpc_lines_add(&cut, input.ptr + at, n);
        for (jsonrpc_line kind; (kind = jsonrpc_lines_next(&cut, &line)) == JSONRPC_LINE ||
                                kind == JSONRPC_LONG_LINE;) {
            jsonrpc_line other = jsonrpc_lines_next(&whole, &same);
            if (other == JSONRPC_NO_MEMORY) break;
            fuzz_require(kind == other);
            if (kind != JSONRPC_LINE) continue;
            fuzz_require(tern_str_eq(line, same) && line.len <= LINE_MAX_BYTES);
            take_message(line);
        }
    }
    if (!whole.text.failed && !cut.text.failed)
        fuzz_require(jsonrpc_lines_next(&whole, &same) == JSONRPC_NO_LINE);
    jsonrpc_lines_free(&whole);
    jsonrpc_lines_free(&cut);
}

// ---- All ---------------------------------------------------------------------------------------

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const tern_str rest = {(const char *)bytes + 1, n ? n - 1 : 0};
    if (n == 0) return 0;
    if (bytes[0] == 'P')
        post(rest);
    else if (bytes[0] == 'L')
        read_lines(rest);
    else
        fuzz_ask_server(bytes + 1, n - 1, bytes[0] == 'C');
    return 0;
}
