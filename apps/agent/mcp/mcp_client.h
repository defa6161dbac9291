// A client of MCP servers (Model Context Protocol): their tools become the agent's. It supports the
// part of the protocol that tools need: the newest era, in which every request stands alone, and
// the one before it, which begins with `initialize`; over a program's standard input and output,
// and over HTTP.
//
// mcp_client.c implements the protocol, mcp_asking.c asks the user a server's questions; mcp_pipe.c
// and mcp_http.c are the transports. What a server sends is not trusted: it is bounded in size and
// time, and invalid messages are ignored.
#ifndef TERN_AGENT_MCP_CLIENT_H
#define TERN_AGENT_MCP_CLIENT_H

#include "apps/agent/child.h"
#include "apps/agent/tools.h"
#include "apps/mcp/jsonrpc.h"

#define MCP_MESSAGE_MAX ((size_t)16 << 20) // bytes of a message

typedef struct mcp_client mcp_client;

// ---- Carriers ----------------------------------------------------------------------------------

typedef struct mcp_exchange {
    const char *message; // one line of JSON, without its end
    size_t n_bytes;
    const char *method, *name; // of a request, and of a call's tool; for HTTP fields
    const char *params;        // of a call: more HTTP fields, "Name: value\n" each; NULL: none
    int64_t id;                // of the request; -1: it gets no answer
    double end;                // deadline, by tern_seconds
    tern_strbuf answer;        // the received message
    bool timed_out, was_stopped;
    int http_status; // 0: none, or not over HTTP
} mcp_exchange;

typedef struct mcp_carrier {
    // Sends the message and waits for its answer. Other messages go to mcp_client_take.
    tern_status (*exchange)(void *self, mcp_exchange *x, tern_error *err);
    // Starts a server again that has ended; other carriers have nothing to do.
    tern_status (*restart)(void *self, tern_error *err);
    void (*close)(void *self);
    void *self;
} mcp_carrier;

typedef struct mcp_server_desc {
    const char *name;          // letters, digits, '_' and '-': the prefix of its tools' names
    const char *const *argv;   // [n + 1] a program, or
    const char *const *env;    // [n + 1] its environment
    const char *url;           // an address
    const char *const *fields; // [n_fields] "Name: value", sent with each request
    size_t n_fields;
} mcp_server_desc;

tern_status mcp_open_stdio(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                           tern_error *err);
tern_status mcp_open_http(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                          tern_error *err);

// Handles a message that a carrier receives while it waits for the answer to `id`. It may ask the
// user and take as long as he does; time limits of servers do not count that.
typedef enum mcp_taken {
    MCP_NOTHING, // it was handled, or was not a message
    MCP_ANSWER,
    MCP_REPLY, // *reply must be sent
} mcp_taken;
mcp_taken mcp_client_take(mcp_client *c, const char *text, size_t n, int64_t id,
                          tern_strbuf *reply);
const agent_tools *mcp_client_tools(const mcp_client *c);
const char *mcp_client_name(const mcp_client *c);
const char *mcp_client_version(const mcp_client *c); // the one agreed on; NULL: not yet
bool mcp_client_is_modern(const mcp_client *c);

// Parses a message. Values that are nested too deeply are replaced by this text. The document
// points into the message or into *pruned.
#define MCP_TOO_DEEP "[nested too deeply]"
tern_status mcp_parse(tern_json_doc *doc, const char *text, size_t n, tern_strbuf *pruned,
                      tern_error *err);

// SERVER_TOOL, limited to the characters that models' templates take, and not too long. Returns
// whether the tool's name is complete in it.
bool mcp_tool_name(const char *server, tern_str name, char out[AGENT_NAME_BYTES]);
// A tool's description; with its original name if that had to be changed (has_name: it was not).
void mcp_tool_description(tern_strbuf *out, const tern_json_doc *doc, const tern_json *tool,
                          tern_str name, bool has_name);

// The result of a call as text for a model.
void mcp_put_result(tern_strbuf *out, const tern_json_doc *doc, const tern_json *result);

// The value of an HTTP field for any text: literal, or as "=?base64?...?=".
void mcp_field_value(tern_str text, tern_strbuf *out);

// ---- Arguments as fields of HTTP (mcp_params.c) -------------------------------------------------

// Why a tool with this schema must be left out: its "x-mcp-header" are invalid. NULL: they are
// valid.
const char *mcp_params_check(const tern_json_doc *doc, const tern_json *schema);
// Writes "Mcp-Param-NAME: value\n" for each argument of a call that has such a field.
tern_status mcp_params_put(const char *schema, const char *arguments, tern_strbuf *out,
                           tern_error *err);

// ---- Questions to the user (mcp_asking.c) -------------------------------------------------------

// The result of elicitation/create with these params, as JSON: the user's answers, or that he
// declines. False: no memory.
bool mcp_ask_user(const agent_tools *t, const char *server, const tern_json_doc *doc,
                  const tern_json *params, tern_strbuf *out);

// ---- Server-sent events (mcp_http.c's, apart for tests) ----------------------------------------

typedef struct mcp_events { // zero-initialise
    tern_strbuf line, data;
    bool has_data, after_cr;
} mcp_events;
// Takes the next byte. True: an event is complete, in e->data, which the caller clears.
bool mcp_events_put(mcp_events *e, char c);
void mcp_events_free(mcp_events *e);

// ---- For the command ---------------------------------------------------------------------------

// Starts or connects to the server, and adds its tools as NAME_TOOL.
tern_status agent_add_server(agent_tools *t, const mcp_server_desc *desc, tern_error *err);
// The argument of --mcp: "NAME=COMMAND WORDS...", "NAME=https://...", or a JSON file with
// "mcpServers".
tern_status agent_add_servers(agent_tools *t, const char *what, tern_error *err);
// Splits a command line into words at blanks, with quotes. The list ends with NULL. Public for
// tests.
tern_status agent_split_words(const char *line, char ***words, tern_error *err);
void agent_free_words(char **words);

#endif
