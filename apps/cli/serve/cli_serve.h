// What tern serve and tern mcp share: models for other programs.
#ifndef TERN_CLI_SERVE_H
#define TERN_CLI_SERVE_H

#include "apps/serve/serve.h"
#include "apps/cli/console/cli.h"

typedef struct serve_args {
    model_args model;
    session_args session;
    speculation_args speculation;
    const char *name, *folder, *keep_alive, *host, *socket, *certificate, *key, *key_file;
    string_list models, aliases, devices, keys, origins, hosts;
    int cache_scope;
    int port, n_parallel, n_queue, n_connections, n_client_connections, idle, lame_duck, drain;
    const char *cache_folder, *slot_folder;
    uint64_t manage; // bytes
    uint64_t models_memory, cache_memory, cache_device, cache_disk, body, inflight;
    bool no_page, mcp;
    const char *memory, *embedder, *reranker, *codec;
    int n_candidates; // that the reranker reads
    // n_models includes the embedder and the reranker; their places in the list count from 1, 0:
    // none.
    size_t n_models, n_embedder, n_reranker;
} serve_args;

#define MEMORY_OPTIONS(a)                                                                          \
    {0,           "memory",                                                                        \
     OPTION_TEXT, &(a).memory,                                                                     \
     "DIR",       "a memory (`tern memory`) to remember and recall with; it is made if need be"},  \
    {                                                                                              \
        0, "embed-model", OPTION_TEXT, &(a).embedder, "MODEL",                                     \
            "an embedding model besides, which makes the memory's vectors; none: words alone "     \
            "(the one that made them)"                                                             \
    }
#define SERVED_MODELS_OPTIONS(a)                                                                   \
    OPTIONS_GROUP("Models"),                                                                       \
        {'m',                                                                                      \
         "model",                                                                                  \
         OPTION_TEXTS,                                                                             \
         &(a).models,                                                                              \
         "MODEL",                                                                                  \
         "a .gguf file, a Hugging Face folder, or a name (`tern list`); may be repeated",          \
         .position = 1},                                                                           \
        HUB_OPTIONS, {                                                                             \
        0, "models", OPTION_MAYBE, &(a).folder, "[DIR]",                                           \
            "all models in a folder, too (without -m: that of `tern list`)"                        \
    }
#define SERVED_OPENING_OPTIONS(a)                                                                  \
    {0,                                                                                            \
     "keep-alive",                                                                                 \
     OPTION_TEXT,                                                                                  \
     &(a).keep_alive,                                                                              \
     "TIME",                                                                                       \
     "how long a model stays open unasked: 90, 5m, 1h, -1: for ever (5m; a single one: -1)"},      \
        {0,           "models-memory",                                                             \
         OPTION_SIZE, &(a).models_memory,                                                          \
         "BYTES",     "weights of open models together (three quarters of the machine's memory)"}, \
        MODELS_DIR_OPTION((a).model.folder), DEVICE_OPTION((a).model.device),                      \
        {'t',                                                                                      \
         "threads",                                                                                \
         OPTION_COUNT,                                                                             \
         &(a).model.n_threads,                                                                     \
         "N",                                                                                      \
         "threads, 0: one for each core (0)",                                                      \
         0,                                                                                        \
         1024},                                                                                    \
        MODEL_OPTIONS_END((a).model), TEMPLATE_OPTION((a).model),                                  \
        {0,                                                                                        \
         "pooling",                                                                                \
         OPTION_CHOICE,                                                                            \
         &(a).model.pooling,                                                                       \
         "auto|mean|last|cls",                                                                     \
         "of embeddings: how vectors of tokens become one"},                                       \
        OPTIONS_GROUP("Context"),                                                                  \
        {'c',                                                                                      \
         "context",                                                                                \
         OPTION_COUNT,                                                                             \
         &(a).session.n_context,                                                                   \
         "N",                                                                                      \
         "tokens of each context, 0: the model's, at most 8192 (0)",                               \
         0,                                                                                        \
         1 << 24},                                                                                 \
    {                                                                                              \
        0, "kv-type", OPTION_CHOICE, &(a).session.kv_type, "auto|f32|f16|q8_0|q4_0",               \
            "keys and values"                                                                      \
    }

typedef tern_status (*serve_fn)(const serve_desc *desc, tern_error *err);
// Finds the models that the arguments name and runs with them; an exit status.
int serve_models(const command *self, serve_args *a, serve_fn run);

#endif
