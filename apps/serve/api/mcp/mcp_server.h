// The Model Context Protocol (apps/mcp) in the server: POST /mcp, or lines of a pipe (mcp_stdio.c).
// A message becomes a request like any other; a tool's handler reads its arguments as other
// interfaces read a body, and answers with a result instead of a body.
//
// The answer to a call is a stream if the client accepts one: progress, then the result. A client
// that closes it, or sends notifications/cancelled, ends the work within a step.
#ifndef TERN_SERVE_MCP_SERVER_H
#define TERN_SERVE_MCP_SERVER_H

#include "apps/mcp/mcp.h"
#include "apps/serve/request/generation_request.h"

typedef struct serve_tool {
    const char *name;
    bool (*is_offered)(const server *s); // asked when the server starts; NULL: yes
    void (*call)(request *req);
} serve_tool;

struct serve_tools {
    // {"instructions": "...", "tools": [...]}: the tools as and in the order that tools/list sends
    // them.
    tern_str json;
    const serve_tool *list; // [n] their handlers, by name
    size_t n;
};

typedef struct mcp_server_tool {
    mcp_tool about;
    const serve_tool *does;
    const tern_json *json; // in the server's document
} mcp_server_tool;

// A message that is being answered: req->mcp.
typedef struct mcp_run {
    struct mcp_run *next, **link; // of running messages
    request *request;
    mcp_call call;
    char session[40];     // of a legacy client over HTTP; "": none
    double progress_sent; // seconds: when progress was last sent
} mcp_run;

typedef struct mcp_memory mcp_memory;

typedef struct mcp_server {
    mcp_server_info about;
    tern_json_doc doc;
    char *instructions;
    mcp_server_tool *tools;   // [about.n_tools]
    const mcp_tool **offered; // [about.n_tools] the same, for the protocol
    mcp_run *running;
    mcp_memory *memory; // NULL: none
} mcp_server;

tern_status mcp_server_open(server *s, tern_error *err); // if desc->tools is not NULL
void mcp_server_close(server *s);                        // after all tasks have ended

void mcp_take_message(request *req); // the one in req->body

// ---- For tools ---------------------------------------------------------------------------------

// The first model with this ability (served_ability); NULL: none.
served *mcp_model_for(const server *s, const char *ability);
// Calls `handle` when the model named by the argument "model" is open; without the argument, the
// first model with this ability.
void mcp_with_model(request *req, const char *ability, void (*handle)(request *req));
bool mcp_may_stream(const request *req);
void mcp_begin_stream(request *req); // if it may
// Sends a line, the result or the error, ends the answer, and clears the line.
void mcp_reply(request *req, int status, tern_strbuf *line);
// Appends a message in the stream's format: an event, or a line of a pipe.
void mcp_put_event(const request *req, const tern_strbuf *line, tern_strbuf *out);
// Appends a progress event if the client asked for progress, at a limited rate.
void mcp_send_progress(request *req, double progress, double total, tern_strbuf *out);

void mcp_generate(request *req); // mcp_generate.c
void mcp_embed(request *req);    // embeddings.c
// mcp_memory.c
tern_status mcp_memory_open(server *s, tern_error *err); // if desc->memory_folder is not NULL
void mcp_memory_close(server *s);
void mcp_memory_take(server *s); // answers finished calls: for server_take_events
void mcp_remember(request *req);
void mcp_recall(request *req);
void mcp_forget(request *req);

#endif
