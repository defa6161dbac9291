// `tern serve`: models, spoken to over HTTP as programs speak to OpenAI, Anthropic, Ollama and
// llama-server.
//
// The loop's thread (loop.c, connection.c) has the sockets: it reads requests (http_reader.c),
// finds who answers them (routes.c) and with which model (registry.c), and makes jobs of what is to
// be generated (generation.c and a file for each interface). Each model that is open has an
// engine's thread (scheduler.c), which computes its jobs, all together, a step at a time, and whose
// events become pieces of answers. Another thread opens and closes models (loading.c), and one has
// the tasks (task.h).
//
// This header is what the command line needs.
#ifndef TERN_SERVE_SERVE_H
#define TERN_SERVE_SERVE_H

#include "tern.h"

typedef struct serve_list {
    const char *const *items;
    size_t n;
} serve_list;

typedef struct serve_model {
    const char *path; // what tern_model_open takes
    const char *name; // for clients; NULL: the file's or folder's, without ".gguf"
} serve_model;

// The tools of MCP that the program has (mcp_tools.c). A test may have others.
struct serve_tools;
extern const struct serve_tools serve_tools;

typedef struct serve_desc {
    // What. The first of `models` is open when the server begins to listen.
    const serve_model *models;
    size_t n_models;
    const char *folder;      // all models in it, too (hub.h); NULL: none
    serve_list aliases;      // "NAME=MODEL": another name
    serve_list devices;      // "MODEL=cpu", "MODEL=webgpu": else opening.device
    tern_model_desc opening; // of each; on_progress: of the first
    double keep_seconds;     // a model nobody asks for stays open for so long; negative: for ever
    uint64_t models_bytes;   // weights of open models together; 0: no limit
    const char *codec;       // what makes sound of the codes of models that speak; NULL: none
    // Of each open model.
    tern_session_desc session;
    size_t n_parallel, n_queue; // answers at once; more that may wait
    // For prefixes (prefix_cache.h): of the host's memory, and of a GPU's besides.
    uint64_t cache_memory, cache_device, cache_disk;
    const char *cache_folder; // NULL: none on disk
    bool shares_cache;        // who has another key goes on from it, too
    const char *slot_folder;  // for files that clients name; NULL: none
    // For the Model Context Protocol.
    const struct serve_tools *tools; // NULL: it is not spoken
    const char *memory_folder; // of tern_memory.h, which these tools read and write; NULL: none
    size_t embedder;           // makes its vectors: a place in `models`, from 1; 0: none
    size_t reranker;           // orders what it finds: the same
    int n_candidates;          // that the reranker reads; 0: as many as recall has it
    // Where.
    const char *host;                      // an address or a name; not used with a socket
    int port;                              // 0: one that is free
    const char *socket;                    // a path; NULL: TCP
    const char *tls_certificate, *tls_key; // PEM files; NULL: no TLS
    // Who.
    serve_list keys;    // none: everybody
    serve_list origins; // of pages that may ask; "*": any. Pages of this host always may
    serve_list hosts; // names by which the server may be asked for, besides addresses and localhost
    // How much.
    size_t body_bytes, n_connections;
    size_t inflight_bytes;       // of bodies in memory at once; 0: no limit
    size_t n_client_connections; // of one address; 0: its share of n_connections
    double idle_seconds;      // a connection without a request; half of it for a request to arrive
    double lame_duck_seconds; // /health says that it is going for so long before it takes no more
    double drain_seconds;     // for answers that are not over when the server is to stop
    bool verbose;             // log each request as it begins, too
    bool no_page;             // for browsers at /
    bool is_silent;           // no log of models: tests
} serve_desc;

// A time as Ollama's clients write it: seconds ("300", "-1"), or "5m", "1h30m", "500ms". False: it
// is none.
bool serve_read_duration(const char *text, size_t n, double *seconds);

// Serves until SIGINT or SIGTERM, and then until what runs is over. Logs to standard error.
tern_status serve(const serve_desc *desc, tern_error *err);
// The same for one client, which speaks the Model Context Protocol through standard input and
// output, until the input ends. What then still runs is cancelled.
tern_status serve_stdio(const serve_desc *desc, tern_error *err);

#endif
