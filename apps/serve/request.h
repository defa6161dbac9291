// A request and its answer, on the loop's thread. It knows no sockets: what is
// written goes through a sink, which a connection is.
#ifndef TERN_SERVE_REQUEST_H
#define TERN_SERVE_REQUEST_H

#include "apps/serve/task.h"
#include "apps/serve/http.h"
#include "apps/serve/metrics.h"
#include "apps/serve/registry.h"
#include "apps/serve/serve.h"
#include "apps/serve/share.h"
#include "base/json.h"
#include "base/json_write.h"

typedef struct server {
    const serve_desc *desc;
    registry *registry;  // its models
    tasks *tasks;        // what is neither a step nor quick
    tasks *readers;      // what is long to read or to write (away.h)
    share inflight;      // bytes of bodies, and of what they became (budget.c)
    size_t n_loop_bytes; // most bytes of a request, or of an answer, that the loop's thread handled
    struct mcp_server *mcp; // its tools (mcp_server.h); NULL: none
    tern_model *codec;      // makes sound of codes; NULL: none
    metrics metrics;
    uint64_t n_requests;  // so far
    int64_t born;         // seconds since 1970
    size_t n_connections; // that are open
    bool is_leaving;      // it is going to stop, and still answers
    atomic_bool stopping; // handlers that are away look, too
} server;

// Why a request is refused. Each interface has its own words for it.
typedef struct api_error {
    int status;       // 0: there is none
    const char *code; // "model_not_found"; NULL: none
    char param[80];   // the field that is wrong; "": none
    char message[600];
} api_error;

// Opens the models and the threads for tasks. wake: something is to be taken, by any thread
// (server_take_events). server_close closes it, also if it could not be opened.
tern_status server_open(server *s, const serve_desc *desc, void (*wake)(void *user), void *user,
                        tern_error *err);
void server_close(server *s);

typedef struct request request;
typedef struct generation generation;

// How an interface writes its errors.
typedef struct error_format {
    void (*put_error)(tern_json_writer *w, const request *req, const api_error *e);
    // Answers with it, where that takes more than its words and its status; NULL: it does not.
    void (*refuse)(request *req, const api_error *e);
} error_format;
extern const error_format error_format_openai, error_format_anthropic, error_format_ollama,
    error_format_llama, error_format_mcp;

typedef struct sink {
    void (*write)(void *to, const char *bytes, size_t n);
    void (*end)(void *to); // the answer is complete, or broken
    // The same as write, of a long text, which is the sink's then; NULL: write it.
    void (*give)(void *to, tern_strbuf *text);
    bool is_plain; // it takes lines: bodies and pieces of streams alone, and no HTTP
} sink;

struct request {
    server *server;
    served *model;                // that answers; NULL: none is needed
    model_wait wait;              // until it is open
    void (*handle)(request *req); // once it is
    bool holds;                   // it is open, and stays so
    double waited;                // seconds: until it was open
    double keep_seconds;          // how long it is to stay open after this, if has_keep
    bool has_keep;
    const sink *sink;
    void *to;
    const http_request *http;
    const error_format *error_format;
    const struct route *rule; // of the path and method; NULL: there is none
    const char *route;        // for metrics and the log: "/v1/models/"
    const char *allow;        // the methods of a path that has not this one; else NULL
    tern_strbuf path;         // without escapes
    char id[40];              // "req_..."
    uint64_t client;          // for turns: who asks
    size_t owner;             // whose its texts are: registry.h
    char allow_origin[256];   // "": none
    // The request, whose head is in another reader until its body is there.
    http_reader reader;
    http_request decoded;      // the same with a body that was compressed, which is in `text`
    tern_strbuf text;          // that body; or a line of a pipe; else empty
    tern_json_doc body;        // of a request with JSON
    tern_str form_model;       // what a form says that the model is
    size_t n_uncounted_tokens; // of texts that were read away: counted when it is back
    size_t charged;            // bytes of server.inflight that are its
    api_error *refusal;        // sent once its body, which is dropped, has come; NULL: none
    // While it is away (away.h), and what for.
    task away;
    void (*work)(request *req);
    void (*then)(request *req); // when it is back
    void (*stop)(request *req); // instead: of the loop's thread
    tern_strbuf said;           // what was written
    struct texts *texts;        // whose vectors it asks for (texts.h)
    tasks *tasks;               // that `task` is for
    served *task_model;
    struct mcp_run *mcp;      // the message that the body is (mcp_server.h); NULL: it is none
    generation *generation;   // what it generates; NULL: nothing
    task *task;               // that runs for it; NULL: none
    struct long_texts *later; // whose tokens it asked for (long_text.h); NULL: none
    struct long_text *known, *next_known; // whose tokens are there
    // The grammar that it asked for is there, or why not (answer_forms.h).
    struct shared_grammar *known_grammar;
    struct api_error *grammar_error;
    size_t n_read;            // bytes of texts whose tokens its handler asked for
    tern_strbuf head;         // fields of the answer that only its route has, with their line ends
    tern_strbuf piece, frame; // of a stream: room for a piece, and for it as a chunk
    double arrived, wrote;    // seconds: when it came, when something was last written
    uint32_t prefix_hash;     // of its (first) prompt: prefix_hash.c
    int status;               // of the answer; 0: not begun
    bool is_stream, is_over, preflight, has_prefix_hash;
    bool is_away, is_left, is_emptied; // is_left: its client has gone: it is freed when it is back
    bool counts;                       // it began to be answered while away
    bool is_screened, body_failed;
    void (*with_body)(request *req, api_error *e);
    size_t n_body;     // bytes of it, and more if it was compressed: whether handling it is short
    unsigned encoding; // of the body: content_encoding (long_body.h)
    bool pings;        // a stream that may have comments while it is silent
    bool is_broken;    // there was no memory to say what was to be said: the connection must close
};

// ---- Answering (reply.c) -----------------------------------------------------------------------

// A whole answer. body is the caller's; if it failed, the answer is an error.
void reply_whole(request *req, int status, const char *type, const tern_strbuf *body);
void reply_json(request *req, const tern_strbuf *body); // 200
void reply_error(request *req,
                 const api_error *e); // in the interface's words; also within a stream
// A stream: its head, pieces, its end.
void reply_stream(request *req, const char *type);
void reply_piece(request *req, tern_strbuf *text); // and clears it
void reply_end(request *req);
// The answer to what the reader refused: the connection closes after it.
void reply_refusal(tern_strbuf *out, int status, const char *reason);

void api_fail(api_error *e, int status, const char *code, const char *param, const char *format,
              ...) __attribute__((format(printf, 5, 6)));
void api_fail_memory(api_error *e);
void api_fail_full(api_error *e);     // the queue is
void api_fail_inflight(api_error *e); // the client has too much in memory
// What a failure of the library means to a client: what it asked for was wrong, or it was not.
void api_fail_status(api_error *e, const tern_error *err, const char *param);

// ---- Life --------------------------------------------------------------------------------------

// The request's head is there: may it be asked at all? Nothing of its body is read before. False:
// e says why not.
bool request_screen(request *req, api_error *e); // routes.c
// The request is complete. Answers it, now or later; screens it, unless that is done.
void request_begin(request *req);                      // routes.c
void request_refuse(request *req, const api_error *e); // that was screened
// Calls req->handle: away, if the request is long.
void request_handle(request *req);
bool request_takes_body(const request *req); // that was screened: its body is looked at
void request_free_parts(request *req);       // routes.c: what the loop's thread frees
void request_name(request *req);             // gives it its id: request_begin does
// The client has gone, or has its answer: what runs for it is cancelled.
void request_free(request *req);
// Bytes that it has in memory. False: its client has more than its share in flight (budget.c).
bool budget_take(request *req, size_t n_bytes);
bool budget_may_take(const request *req, size_t n_bytes);
void budget_give(request *req); // all that it has
// What the scheduler sent becomes pieces of answers.
void server_take_events(server *s); // generation.c
// What a field of the query says, decoded into *room; {NULL, 0}: it is not there.
tern_str request_query(const request *req, const char *name, tern_strbuf *room);
// Calls handle when req->model is open, now or later; answers with an error if it cannot be opened.
void request_with_model(request *req, void (*handle)(request *req)); // routes.c

#endif
