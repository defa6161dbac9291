// JSON-RPC 2.0 as the Model Context Protocol uses it, for its clients and servers: reading and
// writing messages, and splitting a stream into lines. It uses neither pipes nor sockets.
//
// MCP narrows JSON-RPC: ids are strings or whole numbers and never null, `params` is an object, and
// there are no batches.
#ifndef TERN_MCP_JSONRPC_H
#define TERN_MCP_JSONRPC_H

#include "base/json/json.h"
#include "base/json/json_write.h"

typedef enum jsonrpc_code {
    JSONRPC_PARSE_ERROR = -32700,
    JSONRPC_INVALID_REQUEST = -32600,
    JSONRPC_METHOD_NOT_FOUND = -32601,
    JSONRPC_INVALID_PARAMS = -32602,
    JSONRPC_INTERNAL_ERROR = -32603,
    JSONRPC_SERVER_ERROR = -32000, // any other error
} jsonrpc_code;

// ---- Reading -----------------------------------------------------------------------------------

typedef enum jsonrpc_kind {
    JSONRPC_REQUEST,
    JSONRPC_NOTIFICATION,
    JSONRPC_RESULT, // a response
    JSONRPC_ERROR,  // an error response; it may have no id
} jsonrpc_kind;

// Everything points into the document.
typedef struct jsonrpc_message {
    jsonrpc_kind kind;
    const tern_json_doc *doc;
    const tern_json *id; // NULL: there is none
    tern_str method;     // of requests and notifications
    const tern_json *params, *result,
        *error; // objects, but for `result`, which is any value; or NULL
} jsonrpc_message;

typedef struct jsonrpc_fault {
    jsonrpc_code code; // 0: there is none
    char message[200];
} jsonrpc_fault;

// Reads a document as a message. False: it is not one, and `fault` says why; m->id is set if it
// could be read, for the answer.
bool jsonrpc_read(jsonrpc_message *m, const tern_json_doc *doc, jsonrpc_fault *fault);
// Whether two ids, perhaps of different documents, are equal. NULL equals nothing.
bool jsonrpc_same_id(const tern_json *a, const tern_json *b);
// The code and message of an error; message: {NULL, 0} if it has none.
int64_t jsonrpc_error_code(const jsonrpc_message *m, tern_str *message);

// ---- Writing: one line, without its end --------------------------------------------------------

// Opens a message, which the caller closes with '}': writes its version and, if it has them, its id
// and method. A result then needs "result", a request may have "params".
void jsonrpc_open_answer(tern_json_writer *w, const tern_json_doc *doc, const tern_json *id);
void jsonrpc_open_request(tern_json_writer *w, int64_t id, const char *method);
void jsonrpc_open_notification(tern_json_writer *w, const char *method);
// Writes a whole message. id: NULL if it could not be read; data: JSON, or NULL.
void jsonrpc_put_error(tern_json_writer *w, const tern_json_doc *doc, const tern_json *id,
                       int64_t code, const char *message, const char *data);

// ---- Lines -------------------------------------------------------------------------------------

typedef enum jsonrpc_line {
    JSONRPC_NO_LINE, // more bytes are needed
    JSONRPC_LINE,
    JSONRPC_LONG_LINE, // one of more than line_max bytes, which is dropped; reported once
    JSONRPC_NO_MEMORY,
} jsonrpc_line;

// A stream of messages, one a line. Zero-initialise it and set the limit; free it with
// jsonrpc_lines_free.
typedef struct jsonrpc_lines {
    size_t line_max;
    tern_strbuf text;
    size_t at;  // bytes already taken
    bool skips; // it skips the rest of a long line
} jsonrpc_lines;

void jsonrpc_lines_add(jsonrpc_lines *l, const char *bytes, size_t n);
// The next non-empty line, without its end; valid until the next call with `l`.
jsonrpc_line jsonrpc_lines_next(jsonrpc_lines *l, tern_str *line);
void jsonrpc_lines_free(jsonrpc_lines *l);

#endif
