// `tern serve`: serves models over HTTP with the APIs of OpenAI, Anthropic, Ollama and
// llama-server.
//
// The loop's thread (loop.c, connection.c) has the sockets: it reads requests (http_reader.c),
// finds their handler (routes.c) and model (registry.c), and turns generations into jobs
// (generation_request.c and a file for each interface). Each open model has an engine's thread
// (scheduler.c), which computes its jobs, all together, a step at a time, and whose events become
// pieces of answers. Another thread opens and closes models (loading.c), and further ones run tasks
// (task.h).
//
// This header is what the command line needs.
#ifndef TERN_SERVE_SERVE_H
#define TERN_SERVE_SERVE_H

#include "tern.h"

struct hub_pull_desc;

typedef struct serve_list {
    const char *const *items;
    size_t n;
} serve_list;

typedef struct serve_model {
    const char *path; // what tern_model_open takes
    const char *name; // for clients; NULL: the file's or folder's name, without ".gguf"
} serve_model;

// The tools of MCP that the program has (mcp_tools.c). A test may have others.
struct serve_tools;
extern const struct serve_tools serve_tools;

typedef struct serve_desc {
    // What. The first of `models` opens when the server starts.
    const serve_model *models;
    size_t n_models;
    const char *folder;      // all models in it are served, too (hub.h); NULL: none
    serve_list aliases;      // "NAME=MODEL": another name
    serve_list devices;      // "MODEL=cpu", "MODEL=webgpu": else opening.device
    tern_model_desc opening; // of each; on_progress: of the first
    double keep_seconds;     // how long an unused model stays open; negative: for ever
    uint64_t models_bytes;   // weights of open models together; 0: no limit
    // Whether clients may pull, create, copy and delete models: bytes that the folder may have; 0:
    // those of this machine alone may, and there is no limit.
    uint64_t manage_bytes;
    // hub_pull (hub.h), if the program can download, and what it gets; NULL: it cannot.
    tern_status (*pull)(const struct hub_pull_desc *desc, char **name, size_t *n_new,
                        tern_error *err);
    const char *hub_endpoint, *hub_token;
    const char *codec; // model that decodes the codes of TTS models to sound; NULL: none
    // For each open model.
    tern_session_desc session;
    size_t n_parallel, n_queue; // answers at once; more that may wait
    // Limits for prefixes (prefix_cache.h): the host's memory, a GPU's memory and the disk.
    uint64_t cache_memory, cache_device, cache_disk;
    const char *cache_folder; // NULL: none on disk
    bool shares_cache;        // clients with different keys share prefixes
    const char *slot_folder;  // for files that clients name; NULL: none
    // For the Model Context Protocol.
    const struct serve_tools *tools; // NULL: no MCP
    const char *memory_folder; // of the memory store (tern_memory.h) for these tools; NULL: none
    size_t embedder;           // computes its vectors: a position in `models`, from 1; 0: none
    size_t reranker;           // orders its results: the same
    int n_candidates;          // that the reranker reads; 0: recall's default
    // Where.
    const char *host;                      // an address or a name; not used with a socket
    int port;                              // 0: any free one
    const char *socket;                    // a path; NULL: TCP
    const char *tls_certificate, *tls_key; // PEM files; NULL: no TLS
    // Who.
    serve_list keys;    // none: no key is needed
    serve_list origins; // of pages that may send requests; "*": any. Pages of this host always may
    serve_list hosts;   // names of this server in the field Host, besides addresses and localhost
    // How much.
    size_t body_bytes, n_connections;
    size_t inflight_bytes;       // limit for bodies in memory at once; 0: none
    size_t n_client_connections; // for each address; 0: its share of n_connections
    double idle_seconds;      // before a connection without a request is closed; half of it for a
                              // request to arrive
    double lame_duck_seconds; // how long /health reports the coming stop before it refuses requests
    double drain_seconds;     // for running answers when the server stops
    bool verbose;             // also log each request when it begins
    bool no_page;             // no page for browsers at /
    bool is_silent;           // no log of models: tests
} serve_desc;

// A time as Ollama's clients write it: seconds ("300", "-1"), or "5m", "1h30m", "500ms". False:
// invalid.
bool serve_read_duration(const char *text, size_t n, double *seconds);

// Serves until SIGINT or SIGTERM, and then until running requests are answered. Logs to standard
// error.
tern_status serve(const serve_desc *desc, tern_error *err);
// The same for one client, which speaks the Model Context Protocol over standard input and output,
// until the input ends. Then running requests are cancelled.
tern_status serve_stdio(const serve_desc *desc, tern_error *err);

#endif
