// The Model Context Protocol for a server of tools: takes a message and gives an answer, or the
// tool to be called. It does no I/O, so that HTTP and pipes share it, and tests and fuzzers need
// neither.
//
// Two eras of the protocol are supported side by side, recognised for each message:
//
//   modern, 2026-07-28: nothing is remembered. Each request says in params._meta which revision it
//     speaks and what its client can do; over HTTP, header fields repeat some of the body, and must
//     agree with it. Results say that they are complete, and who made them.
//   legacy, 2025-11-25 and before: a client begins with `initialize`.
//
// This server offers only tools. Their list never changes while the server runs and always has the
// same order, so that prompts that contain it stay in models' prefix caches.
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
        *definition; // as tools/list sends it: a JSON object in one line, with its name and schemas
} mcp_tool;

typedef struct mcp_server_info {
    const char *name, *title, *version;
    const char *instructions; // for models: what the tools are for
    const mcp_tool *const *tools;
    size_t n_tools;
} mcp_server_info;

// Fields of an HTTP request's head; {NULL, 0}: absent.
typedef struct mcp_head {
    bool is_http;
    tern_str version, method, name; // MCP-Protocol-Version, Mcp-Method, Mcp-Name
} mcp_head;

typedef enum mcp_step {
    MCP_ANSWER, // it is written
    MCP_SILENT, // a notification or a response, which gets no answer (over HTTP, status 202)
    MCP_CALL,   // of a tool
    MCP_CANCEL, // of a running request; also without an answer
} mcp_step;

// Its pointers point into the server and the document.
typedef struct mcp_call {
    const mcp_server_info *server;
    jsonrpc_message message;
    bool is_modern;
    bool is_first;                 // the answer to `initialize`: a session begins
    int status;                    // of the answer, over HTTP
    const mcp_tool *tool;          // to be called
    const tern_json *arguments;    // an object, or NULL
    const tern_json *progress;     // its progress token; NULL: it wants no progress
    const tern_json *capabilities; // of a modern client
    const tern_json *cancelled;    // the id of the request to be stopped
} mcp_call;

// Takes a message. MCP_ANSWER: the answer is in `out`, a line without its end.
mcp_step mcp_take(const mcp_server_info *server, const mcp_head *head, const tern_json_doc *doc,
                  mcp_call *c, tern_strbuf *out);

// ---- What a call comes to ----------------------------------------------------------------------

// Opens and closes the result; the caller writes its members in between: "content",
// "structuredContent" ...
tern_json_writer mcp_open_result(const mcp_call *c, tern_strbuf *out);
void mcp_close_result(tern_json_writer *w);
// "content": one text.
void mcp_put_text(tern_json_writer *w, const char *text, size_t n);
// The result of a failed tool: `isError` and the reason, for the model that called it.
void mcp_put_failure(const mcp_call *c, const char *why, tern_strbuf *out);
// An error of the protocol. data: JSON, or NULL.
void mcp_put_error(const mcp_call *c, int64_t code, const char *message, const char *data,
                   tern_strbuf *out);
// Progress, for a client that gave a token; total: 0 if unknown.
void mcp_put_progress(const mcp_call *c, double progress, double total, tern_strbuf *out);

#endif
