// A request and its answer, on the loop's thread. It has no sockets: it writes through a sink, such
// as a connection.
#ifndef TERN_SERVE_REQUEST_H
#define TERN_SERVE_REQUEST_H

#include "apps/serve/http/task.h"
#include "apps/serve/http/http.h"
#include "apps/serve/engine/metrics.h"
#include "apps/serve/engine/registry.h"
#include "apps/serve/serve.h"
#include "apps/serve/http/share.h"
#include "base/json/json.h"
#include "base/json/json_write.h"

typedef struct server {
    const serve_desc *desc;
    registry *registry;  // its models
    tasks *tasks;        // threads for work that is neither a step nor quick
    tasks *managers;     // threads that change which models there are; NULL: none may
    tasks *readers;      // threads for long reading and writing (away.h)
    share inflight;      // bytes of bodies and of what is made of them (request.c)
    size_t n_loop_bytes; // most bytes of one request or answer that the loop's thread has handled
    struct mcp_server *mcp;   // its tools (mcp_server.h); NULL: none
    struct item_store *items; // what was answered lately (item_store.h)
    tern_model *codec;        // decodes codes to sound; NULL: none
    metrics metrics;
    uint64_t n_requests;  // so far
    int64_t born;         // seconds since 1970
    size_t n_connections; // open ones
    bool is_loading;      // its first model is not open yet: it answers with 503
    bool is_leaving;      // it will stop soon, and still answers
    atomic_bool stopping; // also read by handlers that are away
} server;

// Why a request is refused. Each interface has its own format for it.
typedef struct api_error {
    int status;       // 0: there is none
    const char *code; // "model_not_found"; NULL: none
    char param[80];   // the field at fault; "": none
    char message[600];
} api_error;

// Lists the models, and opens the threads for tasks. wake: called by any thread when
// server_take_events should be called. server_close is needed even if it fails. Before requests
// are answered the first model must be open: server_load, or registry_ask_first.
tern_status server_open(server *s, const serve_desc *desc, void (*wake)(void *user), void *user,
                        tern_error *err);
tern_status server_load(server *s, tern_error *err);
void server_close(server *s);
void server_take_events(server *s); // what schedulers and tasks have done becomes answers

typedef struct request request;
typedef struct generation generation;

// How an interface writes its errors.
typedef struct error_format {
    void (*put_error)(tern_json_writer *w, const request *req, const api_error *e);
    // Answers with the error, if this takes more than its text and status; NULL: it does not.
    void (*refuse)(request *req, const api_error *e);
    int unsupported; // status of what the model cannot do; 0: 400
    bool is_llamas;  // the fields that only llama-server has are there
} error_format;
extern const error_format error_format_openai, error_format_anthropic, error_format_ollama,
    error_format_llama, error_format_mcp;

typedef struct sink {
    void (*write)(void *to, const char *bytes, size_t n);
    void (*end)(void *to); // the answer is complete, or broken
    // Like write, for a long text, which the sink takes over; NULL: use write.
    void (*give)(void *to, tern_strbuf *text);
    void (*more)(void *to); // the piece of a body that it gave is written; of sockets alone
    bool is_plain;          // it takes lines: only bodies and pieces of streams, without HTTP
} sink;

struct request {
    server *server;
    served *model;                // the model that answers; NULL: none is needed
    preset *preset;               // held: what else belongs to the name that it gave; NULL: nothing
    tern_strbuf merged;           // the body with it
    model_wait wait;              // for the model to open
    void (*handle)(request *req); // called once it is open
    bool holds;                   // the model is open and held
    double waited;                // seconds: for the model to open
    double keep_seconds;          // if has_keep: how long it stays open after this
    bool has_keep;
    const sink *sink;
    void *to;
    const http_request *http;
    const error_format *error_format;
    const struct route *rule; // of the path and method; NULL: there is none
    const char *route;        // for metrics and the log: "/v1/models/"
    tern_strbuf path;         // without escapes
    char id[40];              // "req_..."
    uint64_t client;          // for turns
    size_t owner;             // of its texts: registry.h
    size_t adapter;           // that it names as its model, from 1; 0: none
    char allow_origin[256];   // "": none
    // The parsed request. Its head is in the connection's reader until its body is complete.
    http_reader reader;
    http_request decoded; // the same if its body was compressed: that is in `text`, decompressed
    tern_strbuf text;     // that body; or a pipe's line; else empty
    tern_json_doc body;   // of a request with JSON
    tern_str form_model;  // a form's field "model"
    size_t n_uncounted_tokens; // of texts that were tokenized away: counted when it is back
    size_t charged;            // its bytes in server.inflight
    api_error *refusal;        // sent once its body has been received and dropped; NULL: none
    // For the work while it is away (away.h).
    task away;
    void (*work)(request *req);
    void (*then)(request *req); // when it is back
    void (*stop)(request *req); // called instead of `then`, if the loop's thread wants it to end
    tern_strbuf said;           // what the work wrote
    struct texts *texts;        // the texts whose vectors it asks for (texts.h)
    struct upload *upload;      // its body is written to disk as it comes (long_body.h)
    struct heard *heard;        // its recordings, transcribed (request_sounds.h); NULL: none
    tasks *tasks;               // the tasks that `task` is submitted to
    served *task_model;
    struct mcp_run *mcp;        // the message in the body (mcp_server.h); NULL: it is not MCP
    const tern_json *arguments; // of the call in that message: its fields
    void (*free_mcp)(request *req);
    generation *generation;               // NULL: it generates nothing
    task *task;                           // running for it; NULL: none
    struct long_texts *later;             // texts being tokenized (long_text.h); NULL: none
    struct long_text *known, *next_known; // texts whose tokens are there
    // The grammar that it asked for, or the error (answer_forms.h).
    struct shared_grammar *known_grammar;
    struct api_error *grammar_error;
    size_t n_read;            // bytes of texts whose tokens its handler asked for
    tern_strbuf head;         // header fields that only its route has, with their line ends
    tern_strbuf piece, frame; // of a stream: buffers for a piece, and for the piece as a chunk
    double arrived, wrote;    // seconds: when it arrived, when something was last written
    uint32_t prefix_hash;     // of its (first) prompt: prefix_hash.c
    int status;               // of the answer; 0: not begun
    bool is_stream, is_over, preflight, has_prefix_hash;
    bool is_away, is_left, is_emptied; // is_left: its client has gone; freed when it is back
    bool counts;                       // its answer began while it was away
    bool is_screened, body_failed;
    void (*with_body)(request *req, api_error *e);
    size_t n_body;     // bytes its bytes, or more if it was compressed: is it long to handle?
    unsigned encoding; // of the body: content_encoding (long_body.h)
    bool pings;        // a stream that may get comments while it is silent
    bool is_broken;    // no memory to write the answer: the connection must close
};

// ---- Answering (reply.c) -----------------------------------------------------------------------

// A whole answer. body is the caller's; if it failed, the answer is an error.
void reply_whole(request *req, int status, const char *type, const tern_strbuf *body);
void reply_json(request *req, const tern_strbuf *body); // 200
void reply_error(request *req,
                 const api_error *e); // in the interface's format; also within a stream
// A stream: its head, pieces, its end.
void reply_stream(request *req, const char *type);
void reply_piece(request *req, tern_strbuf *text); // and clears `text`
void reply_end(request *req);
// The answer to a request that the reader refused; the connection closes after it.
void reply_refusal(tern_strbuf *out, const error_format *format, int status, const char *reason);

void api_fail(api_error *e, int status, const char *code, const char *param, const char *format,
              ...) __attribute__((format(printf, 5, 6)));
void api_fail_memory(api_error *e);
void api_fail_full(api_error *e);     // the queue is full
void api_fail_inflight(api_error *e); // the client has too much in memory
// Turns a failure of the library into a client's error (4xx) or the server's (5xx).
void api_fail_status(api_error *e, const tern_error *err, const char *param);

// ---- Life --------------------------------------------------------------------------------------

// Checks the request's head, before any of its body is read. False: it is refused, and e says why.
bool request_screen(request *req, api_error *e); // routes.c
// The request is complete: answers it, now or later, and screens it unless that is done.
void request_begin(request *req);                      // routes.c
void request_refuse(request *req, const api_error *e); // that was screened
// Calls req->handle: away, if the request is long.
void request_handle(request *req);           // request.c
bool request_takes_body(const request *req); // after screening: whether its body is read
void request_free_parts(request *req);       // request.c: the parts that the loop's thread frees
void request_name(request *req);             // gives it an id; request_begin does this
// The client has gone, or has its answer: cancels what still runs for it.
void request_free(request *req);
// Charges bytes that it has in memory. False: its client would exceed its share of bytes in flight
// (request.c).
bool budget_take(request *req, size_t n_bytes);
bool budget_may_take(const request *req, size_t n_bytes);
void budget_give(request *req); // all of its bytes
// The value of a field of the query, decoded into *room; {NULL, 0}: absent.
tern_str request_query(const request *req, const char *name, tern_strbuf *room);
// Calls handle when req->model is open, now or later; answers with an error if it cannot be opened.
void request_with_model(request *req, void (*handle)(request *req)); // request.c

#endif
