// What the jobs of tern memory and tern ask share.
#ifndef TERN_CLI_MEMORY_H
#define TERN_CLI_MEMORY_H

#include "apps/cli/console/cli.h"
#include "tern_memory.h"

typedef struct memory_args {
    const char *folder;
    model_args model; // makes the vectors; path NULL: the one named in the memory
    string_list where;
    bool json;
    const char *reranker; // a model; NULL: none
    int n_candidates;     // that the reranker reads
} memory_args;
#define MEMORY_OPTION(a)                                                                           \
    {                                                                                              \
        0, "memory", OPTION_TEXT, &(a).folder, "DIR", "the folder that the memory is in",          \
            .position = 1                                                                          \
    }
#define WHERE_OPTION(a)                                                                            \
    {                                                                                              \
        0, "where", OPTION_TEXTS, &(a).where, "KEY=VALUE",                                         \
            "only records whose metadata (or source, created) fits; also != < <= > >= and ^= "     \
            "(begins); "                                                                           \
            "may be repeated"                                                                      \
    }
#define RERANK_OPTIONS(a)                                                                          \
    {0,           "rerank",                                                                        \
     OPTION_TEXT, &(a).reranker,                                                                   \
     "MODEL",     "a reranker reads the best passages with the question and orders them (none)"},  \
    {                                                                                              \
        0, "candidates", OPTION_COUNT, &(a).n_candidates, "N",                                     \
            "passages that it reads, 0: 32 (0)", 0, 1000                                           \
    }
#define JSON_OPTION(a)                                                                             \
    { 0, "json", OPTION_FLAG, &(a).json, NULL, "a line of JSON for each" }
#define EMBEDDER_OPTIONS(a, letter, option_name)                                                   \
    OPTIONS_GROUP("Model that makes the vectors"),                                                 \
        {letter,                                                                                   \
         option_name,                                                                              \
         OPTION_TEXT,                                                                              \
         &(a).model.path,                                                                          \
         "MODEL",                                                                                  \
         "an embedding model; none: words alone (the one that made the memory's vectors)"},        \
        MODELS_DIR_OPTION((a).model.folder), DEVICE_OPTION((a).model.device), {                    \
        0, "pooling", OPTION_CHOICE, &(a).model.pooling, "auto|mean|last|cls",                     \
            "how rows become a vector; auto: as the model's files say"                             \
    }
#define THREADS_OPTION(a)                                                                          \
    {                                                                                              \
        't', "threads", OPTION_COUNT, &(a).model.n_threads, "N",                                   \
            "threads, 0: one for each core (0)", 0, 1024                                           \
    }

typedef struct memory {
    tern_memory_store *store;
    tern_model *model; // NULL: words alone
    tern_model *reranker;
} memory;

// Opens the store, and the model that is given or named in the store. counter: counts tokens, NULL:
// the model does. False after printing why not; *status is then the exit status. Call close_memory
// in either case.
bool open_memory(const command *self, memory_args *args, bool must_exist, bool with_model,
                 const tern_model *counter, memory *out, int *status);
void close_memory(memory *m);
// Opens the reranker, if one is given. False after printing why not.
bool open_reranker(const command *self, const memory_args *args, memory *m, int *status);

// The path of the model named in the store in `folder`, if the file still exists; "": none is
// named. False after printing why there is no such store.
bool memory_model(const char *folder, bool must_exist, text *path);

// The filters of --where; false after printing an error in one. free_filters frees them in either
// case.
bool read_filters(const command *self, const string_list *where, tern_memory_filter **out);
void free_filters(tern_memory_filter *filters, size_t n);
// The end of a job with --where: closes, and frees its filters and the words they were read from.
void close_filtered(memory *m, memory_args *args, tern_memory_filter *filters);

void put_record(FILE *f, const tern_memory_record *record); // as JSON, without a newline
const char *time_text(int64_t seconds, char out[32]);       // "2026-01-31 12:00"

int memory_add(const command *self, int argc, char **argv);
int memory_import(const command *self, int argc, char **argv);
int memory_recall(const command *self, int argc, char **argv);

#endif
