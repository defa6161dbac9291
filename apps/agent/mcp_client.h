// A client of MCP servers (Model Context Protocol): their tools become the agent's. Of the protocol
// it has what tools need: the newest era, in which every request stands alone, and the one before
// it, which begins with `initialize`; over a program's standard input and output, and over HTTP.
//
// mcp_client.c says what is said, mcp_asking.c asks the user what a server wants to know of him;
// mcp_pipe.c and mcp_http.c carry it. What a server sends is not
// trusted: it is bounded in size and time, and what is no message is passed over.
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
    const char *method, *name; // of a request, and of a call its tool's; for fields of HTTP
    const char *params;        // of a call: more fields, "Name: value\n" each; NULL: none
    int64_t id;                // whose answer is waited for; -1: none comes
    double end;                // by tern_seconds: then it has failed
    tern_strbuf answer;        // the message that came
    bool timed_out, was_stopped;
    int http_status; // 0: none, or not over HTTP
} mcp_exchange;

typedef struct mcp_carrier {
    // Sends the message, and waits for its answer. What comes besides goes to mcp_client_take.
    tern_status (*exchange)(void *self, mcp_exchange *x, tern_error *err);
    // A server that has ended is started again; other carriers have nothing to do.
    tern_status (*restart)(void *self, tern_error *err);
    void (*close)(void *self);
    void *self;
} mcp_carrier;

typedef struct mcp_server_desc {
    const char *name;          // letters, digits, '_' and '-': begins the names of its tools
    const char *const *argv;   // [n + 1] a program, or
    const char *const *env;    // [n + 1] its environment
    const char *url;           // an address
    const char *const *fields; // [n_fields] "Name: value" that requests to it have
    size_t n_fields;
} mcp_server_desc;

tern_status mcp_open_stdio(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                           tern_error *err);
tern_status mcp_open_http(mcp_carrier *out, mcp_client *client, const mcp_server_desc *desc,
                          tern_error *err);

// What a carrier does with a message that came while it waits for the answer to `id`. It may take
// as long as the user does, who is asked; what waits for a server does not count that.
typedef enum mcp_taken {
    MCP_NOTHING, // it has been heard, or was no message
    MCP_ANSWER,
    MCP_REPLY, // *reply must be sent
} mcp_taken;
mcp_taken mcp_client_take(mcp_client *c, const char *text, size_t n, int64_t id,
                          tern_strbuf *reply);
const agent_tools *mcp_client_tools(const mcp_client *c);
const char *mcp_client_name(const mcp_client *c);
const char *mcp_client_version(const mcp_client *c); // that was agreed on; NULL: not yet
bool mcp_client_is_modern(const mcp_client *c);

// A message, or what of it is not nested too deeply: what is has become this text. The document
// points into the message or into *pruned.
#define MCP_TOO_DEEP "[nested too deeply]"
tern_status mcp_parse(tern_json_doc *doc, const char *text, size_t n, tern_strbuf *pruned,
                      tern_error *err);

// SERVER_TOOL, in the characters that models' templates take, and not too long. Whether it says as
// much as the tool's name.
bool mcp_tool_name(const char *server, tern_str name, char out[AGENT_NAME_BYTES]);
// A name that had to be changed (has_name: it is as it was) says more than what is left of it.
void mcp_tool_description(tern_strbuf *out, const tern_json_doc *doc, const tern_json *tool,
                          tern_str name, bool has_name);

// What the result of a call says to a model that reads text.
void mcp_put_result(tern_strbuf *out, const tern_json_doc *doc, const tern_json *result);

// The value of a field of HTTP for a text of any kind: as it is, or as "=?base64?...?=".
void mcp_field_value(tern_str text, tern_strbuf *out);

// ---- Arguments as fields of HTTP (mcp_params.c) -------------------------------------------------

// Why a tool with this schema is to be left out: its "x-mcp-header" are not as they may be. NULL:
// it is not.
const char *mcp_params_check(const tern_json_doc *doc, const tern_json *schema);
// "Mcp-Param-NAME: value\n" for each argument of a call that has such a field.
tern_status mcp_params_put(const char *schema, const char *arguments, tern_strbuf *out,
                           tern_error *err);

// ---- Questions to the user (mcp_asking.c) -------------------------------------------------------

// The result of elicitation/create with these params, JSON: what the user answers, or that he does
// not. False: no memory.
bool mcp_ask_user(const agent_tools *t, const char *server, const tern_json_doc *doc,
                  const tern_json *params, tern_strbuf *out);

// ---- Server-sent events (mcp_http.c's, apart for tests) ----------------------------------------

typedef struct mcp_events { // zero-initialise
    tern_strbuf line, data;
    bool has_data, after_cr;
} mcp_events;
// The next byte. True: an event is complete, in e->data, which is to be cleared.
bool mcp_events_put(mcp_events *e, char c);
void mcp_events_free(mcp_events *e);

// ---- For the command ---------------------------------------------------------------------------

// Starts or reaches the server, and adds its tools, as NAME_TOOL.
tern_status agent_add_server(agent_tools *t, const mcp_server_desc *desc, tern_error *err);
// What --mcp takes: "NAME=COMMAND WORDS...", "NAME=https://...", or a JSON file with "mcpServers".
tern_status agent_add_servers(agent_tools *t, const char *what, tern_error *err);
// Words as a command line has them: blanks between, quotes around. Ends with NULL. For tests.
tern_status agent_split_words(const char *line, char ***words, tern_error *err);
void agent_free_words(char **words);

#endif
