// tern mcp: the engine as tools for the program that starts it, by the Model Context Protocol on
// standard input and output. The work is done in apps/serve.
#include "apps/cli/memory/cli_memory.h"
#include "cli_serve.h"

#include <stdlib.h>

int cmd_mcp(const command *self, int argc, char **argv) {
    serve_args a = {.model.finds_gpu = true,
                    .n_parallel = 4,
                    .n_queue = 256,
                    .cache_memory = 1 << 30,
                    .cache_device = 1 << 30,
                    .body = 16 << 20,
                    .mcp = true};
    const option options[] = {
        OPTIONS_GROUP("Memory"),
        MEMORY_OPTIONS(a),
        RERANK_OPTIONS(a),
        OPTIONS_GROUP("How much"),
        {0, "parallel", OPTION_COUNT, &a.n_parallel, "N", "answers at once (4)", 1, 4096},
        {0, "cache-memory", OPTION_SIZE, &a.cache_memory, "BYTES",
         "of memory for what texts that are over leave, for those that begin alike (1G)"},
        {0, "cache-device", OPTION_SIZE, &a.cache_device, "BYTES", "of a GPU's besides (1G)"},
        {0, "max-body", OPTION_SIZE, &a.body, "BYTES", "of a message (16M)", 1024, 1000000000},
        SERVED_MODELS_OPTIONS(a),
        SERVED_OPENING_OPTIONS(a),
        OPTIONS_END,
    };
    int status, n_positional;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    status = serve_models(self, &a, serve_stdio);
    free(a.models.items);
    return status;
}
