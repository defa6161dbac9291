// MCP over a program's standard input and output: a message a line.
#include <string.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/alloc.h"
#include "base/os/os_time.h"

typedef struct stdio {
    mcp_client *client;
    child c;
    char **argv, **env; // copies
    jsonrpc_lines lines;
} stdio;

// ---- Copies of lists of texts ------------------------------------------------------------------

static void free_list(char **list) {
    for (char **at = list; at && *at; at++) tern_free(*at);
    tern_free(list);
}

static char **copy_list(const char *const *list) {
    size_t n = 0;
    while (list[n]) n++;
    char **copy = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = tern_strdup(TERN_MEM_MISC, list[i]))) {
            free_list(copy);
            return NULL;
        }
    return copy;
}

// ---- Exchange ----------------------------------------------------------------------------------

static tern_status start(stdio *s, tern_error *err) {
    const child_desc desc = {.argv = (const char *const *)s->argv,
                             .env = (const char *const *)s->env,
                             .shows_errors = mcp_client_tools(s->client)->shows_errors};
    jsonrpc_lines_free(&s->lines);
    s->lines = (jsonrpc_lines){.line_max = MCP_MESSAGE_MAX};
    return child_start(&s->c, &desc, err);
}

static tern_status fail_ended(stdio *s, tern_error *err) {
    return tern_fail(err, TERN_ERR_IO, "%s: the server has ended%s", mcp_client_name(s->client),
                     mcp_client_tools(s->client)->shows_errors ? ""
                                                               : " (--verbose shows what it says)");
}

static tern_status fail_waiting(stdio *s, mcp_exchange *x, tern_error *err) {
    if (agent_was_stopped(mcp_client_tools(s->client))) {
        x->was_stopped = true;
        return tern_fail(err, TERN_ERR_CANCELLED, "it was stopped");
    }
    x->timed_out = true;
    return tern_fail(err, TERN_ERR_IO, "%s: the server does not answer",
                     mcp_client_name(s->client));
}

static bool is_over(const stdio *s, const mcp_exchange *x) {
    return tern_seconds() > x->end || agent_was_stopped(mcp_client_tools(s->client));
}

static void wait_a_little(stdio *s, bool writes) {
    tern_strbuf bytes = {0}, none = {0};
    size_t n;
    child_wait(&s->c, writes, 0.05);
    child_read(&s->c, CHILD_OUT, &bytes, SIZE_MAX, &n);
    if (bytes.len) jsonrpc_lines_add(&s->lines, bytes.ptr, bytes.len);
    child_read(&s->c, CHILD_ERRORS, &none, 0, &n); // so that it does not block
    tern_strbuf_free(&bytes);
}

// While the server writes and does not read, its lines are read, or both would wait for ever.
static tern_status send_line(stdio *s, mcp_exchange *x, const char *bytes, size_t n,
                             tern_error *err) {
    tern_strbuf line = {0};
    tern_strbuf_append(&line, bytes, n);
    tern_strbuf_putc(&line, '\n');
    tern_status status = line.failed ? tern_fail_memory(err, n) : TERN_OK;
    for (size_t at = 0; at < line.len && status == TERN_OK;) {
        size_t written;
        if (!child_write(&s->c, line.ptr + at, line.len - at, &written))
            status = fail_ended(s, err);
        else if (is_over(s, x)) // after an incomplete line the server cannot parse others
            status = fail_waiting(s, x, err), child_close(&s->c, CHILD_IN);
        else if (!written)
            wait_a_little(s, true);
        at += written;
    }
    tern_strbuf_free(&line);
    return status;
}

// Handles the received lines. *done: one was the answer.
static tern_status take_lines(stdio *s, mcp_exchange *x, bool *done, tern_error *err) {
    tern_str line;
    tern_strbuf reply = {0};
    tern_status status = TERN_OK;
    jsonrpc_line kind = JSONRPC_NO_LINE;
    while (!*done && status == TERN_OK &&
           (kind = jsonrpc_lines_next(&s->lines, &line)) != JSONRPC_NO_LINE) {
        if (kind == JSONRPC_NO_MEMORY) {
            status = tern_fail_memory(err, s->lines.text.len);
        } else if (kind == JSONRPC_LINE) {
            double begin = tern_seconds();
            mcp_taken taken = mcp_client_take(s->client, line.ptr, line.len, x->id, &reply);
            x->end += tern_seconds() - begin;
            *done = taken == MCP_ANSWER;
            if (*done) tern_strbuf_append(&x->answer, line.ptr, line.len);
            if (taken == MCP_REPLY) status = send_line(s, x, reply.ptr, reply.len, err);
        }
    }
    if (status == TERN_OK && x->answer.failed) status = tern_fail_memory(err, MCP_MESSAGE_MAX);
    tern_strbuf_free(&reply);
    return status;
}

// The server may stop a request whose answer is no longer awaited.
static void tell_cancelled(stdio *s, mcp_exchange *x) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    jsonrpc_open_notification(&w, "notifications/cancelled");
    tern_json_open(&w, "params", '{');
    tern_json_put_int(&w, "requestId", x->id);
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    tern_strbuf_putc(&text, '\n');
    size_t n;
    if (!text.failed) child_write(&s->c, text.ptr, text.len, &n);
    tern_strbuf_free(&text);
}

static tern_status exchange(void *self, mcp_exchange *x, tern_error *err) {
    stdio *s = self;
    bool done = x->id < 0;
    if (!child_is_open(&s->c, CHILD_IN)) return fail_ended(s, err);
    TERN_TRY(send_line(s, x, x->message, x->n_bytes, err));
    while (!done) {
        TERN_TRY(take_lines(s, x, &done, err));
        if (done) break;
        if (is_over(s, x)) {
            tell_cancelled(s, x);
            return fail_waiting(s, x, err);
        }
        if (!child_is_open(&s->c, CHILD_OUT)) {
            child_close(&s->c, CHILD_IN);
            return fail_ended(s, err);
        }
        wait_a_little(s, false);
    }
    return TERN_OK;
}

static tern_status restart(void *self, tern_error *err) {
    stdio *s = self;
    child_kill(&s->c);
    return start(s, err);
}

static void close_stdio(void *self) {
    stdio *s = self;
    child_stop(&s->c, 1);
    jsonrpc_lines_free(&s->lines);
    free_list(s->argv);
    free_list(s->env);
    tern_free(s);
}

tern_status mcp_open_stdio(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                           tern_error *err) {
    stdio *s = tern_alloc(TERN_MEM_MISC, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    *s = (stdio){.client = client,
                 .c = CHILD_NONE,
                 .argv = copy_list(desc->argv),
                 .env = copy_list(desc->env)};
    *out = (mcp_carrier){exchange, restart, close_stdio, s};
    if (!s->argv || !s->env) return tern_fail_memory(err, sizeof *s);
    return start(s, err);
}
