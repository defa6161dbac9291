// The Model Context Protocol as a server of tools speaks it: a message in, an answer out, or the
// tool that is to be called. Pure, so that HTTP and pipes share it, and tests and fuzzers need
// neither.
//
// Two eras are answered side by side, told apart message by message:
//
//   modern, 2026-07-28: nothing is remembered. Each request says in params._meta which revision it
//     speaks and what its client can do; over HTTP, header fields repeat some of the body, and must
//     agree with it. Results say that they are complete, and who made them.
//   legacy, 2025-11-25 and before: a client begins with `initialize`.
//
// Of what servers may offer this one has tools alone. A list of them never changes while the server
// runs, and has the same order each time: models that have read it find it in their caches.
#ifndef TERN_MCP_MCP_H
#define TERN_MCP_MCP_H

#include "apps/mcp/jsonrpc.h"

#define MCP_VERSION        "2026-07-28"
#define MCP_LEGACY_VERSION "2025-11-25" // the newest of its era

enum { // codes of errors that MCP adds
    MCP_HEADER_MISMATCH = -32020,
    MCP_MISSING_CAPABILITY = -32021,
    MCP_UNSUPPORTED_VERSION = -32022,
};

typedef struct mcp_tool {
    const char *name;
    const char
        *definition; // as lists have it: a JSON object in one line, with its name and schemas
} mcp_tool;

typedef struct mcp_server_info {
    const char *name, *title, *version;
    const char *instructions; // for models: what this is good for
    const mcp_tool *const *tools;
    size_t n_tools;
} mcp_server_info;

// Fields of an HTTP request's head; {NULL, 0}: it has none of the name.
typedef struct mcp_head {
    bool is_http;
    tern_str version, method, name; // MCP-Protocol-Version, Mcp-Method, Mcp-Name
} mcp_head;

typedef enum mcp_step {
    MCP_ANSWER, // is written
    MCP_SILENT, // a notification or a response, which gets none (over HTTP status 202)
    MCP_CALL,   // of a tool
    MCP_CANCEL, // of a request that runs; silent, too
} mcp_step;

// All that it points to lies in the server and in the document.
typedef struct mcp_call {
    const mcp_server_info *server;
    jsonrpc_message message;
    bool is_modern;
    bool is_first;                 // an answer to `initialize`: a session begins
    int status;                    // of the answer, over HTTP
    const mcp_tool *tool;          // to be called
    const tern_json *arguments;    // an object, or NULL
    const tern_json *progress;     // the token of its progress; NULL: it wants to know of none
    const tern_json *capabilities; // of the client, if it is modern
    const tern_json *cancelled;    // the id of the request that is to be stopped
} mcp_call;

// Takes a message. With MCP_ANSWER the answer is in `out`, a line without its end.
mcp_step mcp_take(const mcp_server_info *server, const mcp_head *head, const tern_json_doc *doc,
                  mcp_call *c, tern_strbuf *out);

// ---- What a call comes to ----------------------------------------------------------------------

// The result, whose members come between: "content", "structuredContent" ...
tern_json_writer mcp_open_result(const mcp_call *c, tern_strbuf *out);
void mcp_close_result(tern_json_writer *w);
// "content": one text.
void mcp_put_text(tern_json_writer *w, const char *text, size_t n);
// The result of a tool that failed: `isError`, and why, for the model that called it.
void mcp_put_failure(const mcp_call *c, const char *why, tern_strbuf *out);
// An error of the protocol. data: JSON, or NULL.
void mcp_put_error(const mcp_call *c, int64_t code, const char *message, const char *data,
                   tern_strbuf *out);
// How far it is, for a client that gave a token; total: 0, nobody knows.
void mcp_put_progress(const mcp_call *c, double progress, double total, tern_strbuf *out);

#endif
