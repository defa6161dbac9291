// tern serve: serves models to other programs. The work is done in apps/serve.
#include "cli_serve.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "apps/hub/hub.h"
#include "apps/cli/memory/cli_memory.h"

// One key per line; blank lines and those that begin with # are skipped. The keys point into *all.
static bool read_keys(const char *path, text *all, string_list *keys) {
    if (!text_read(all, path)) return false;
    for (char *line = strtok(all->ptr, "\r\n"); line; line = strtok(NULL, "\r\n")) {
        line += strspn(line, " \t");
        size_t n = strlen(line);
        while (n && strchr(" \t", line[n - 1])) line[--n] = 0;
        if (n == 0 || *line == '#') continue;
        keys->items = must_alloc(keys->items, keys->n + 1, sizeof *keys->items);
        keys->items[keys->n++] = line;
    }
    if (keys->n > 0) return true;
    fail("%s: there is no key in it", path);
    return false;
}

static bool has_models(const char *folder) {
    hub_list list;
    if (!folder || hub_list_folder(&list, folder, NULL) != TERN_OK) return false;
    bool has = list.n > 0;
    hub_list_free(&list);
    return has;
}

// The folder of models from `tern pull`; if it has none, that of models installed with tern.
static const char *usual_folder(const char *given) {
    static char *installed; // as long as the program lives
    const char *folder = models_folder(given);
    if (has_models(folder)) return folder;
    if (!installed) installed = hub_installed_folder();
    if (has_models(installed)) return installed;
    fail("there are no models in %s: `tern pull` gets some, or name one", folder);
    return NULL;
}

// If no models are named: those on this machine. A named folder may be filled later.
static bool find_models(serve_args *a, serve_model *models) {
    bool is_said = a->folder || a->models.n || a->embedder || a->reranker;
    if (a->folder && !*a->folder) a->folder = models_folder(a->model.folder);
    if (!is_said && !(a->folder = usual_folder(a->model.folder))) return false;
    for (size_t i = 0; i < a->models.n; i++) {
        models[i].path = resolve_model(a->model.folder, a->models.items[i]);
        models[i].name = a->name;
        if (!models[i].path) return false;
    }
    a->n_models = a->models.n;
    return true;
}

// The place of a model among those that are served, from 1; adds it if it is missing.
static size_t place_of(serve_args *a, serve_model *models, const char *path) {
    for (size_t i = 0; i < a->n_models; i++)
        if (!strcmp(models[i].path, path)) return i + 1;
    models[a->n_models++] = (serve_model){.path = path};
    return a->n_models;
}

// The embedding model of the memory is served like the others. It is the named one, or none for
// "none", or by default the one that made the memory's vectors.
static bool find_embedder(serve_args *a, serve_model *models, text *known) {
    const char *path = NULL;
    if (a->embedder && strcmp(a->embedder, "none") != 0) {
        path = resolve_model(a->model.folder, a->embedder);
        if (!path) return false;
    } else if (a->memory && !a->embedder) {
        if (!memory_model(a->memory, false, known)) return false;
        if (known->n) path = known->ptr;
    }
    if (path) a->n_embedder = place_of(a, models, path);
    return true;
}

// So is the memory's reranker.
static bool find_reranker(serve_args *a, serve_model *models) {
    if (!a->reranker) return true;
    const char *path = resolve_model(a->model.folder, a->reranker);
    if (path) a->n_reranker = place_of(a, models, path);
    return path != NULL;
}

static bool find_codec(serve_args *a) {
    bool wanted = a->codec != NULL;
    if (wanted) a->codec = resolve_model(a->model.folder, a->codec);
    return !wanted || a->codec;
}

static bool is_one(const serve_args *a) { return a->models.n == 1 && !a->folder; }

// By default Ollama's time, or for ever if the server has only one model.
static bool read_keep(const serve_args *a, double *seconds) {
    const char *t = a->keep_alive ? a->keep_alive : is_one(a) ? "-1" : "5m";
    if (serve_read_duration(t, strlen(t), seconds)) return true;
    bad_usage("serve: --keep-alive must be seconds, or a time such as 5m: '%s'", t);
    return false;
}

// By default three quarters of the machine's memory; a single model is left to the operating
// system.
static uint64_t models_memory(const serve_args *a) {
    return a->models_memory || is_one(a) ? a->models_memory : system_memory() / 4 * 3;
}

static int run_desc(const serve_args *a, const serve_model *models, serve_fn run) {
    tern_error err = {0};
    serve_desc desc = {
        .models = models,
        .n_models = a->n_models,
        .folder = a->folder,
        .aliases = {a->aliases.items, a->aliases.n},
        .devices = {a->devices.items, a->devices.n},
        .models_bytes = models_memory(a),
        .session = {.n_context = a->session.n_context,
                    .kv_type = (tern_kv_type)a->session.kv_type,
                    .speculation = a->session.speculation},
        .n_parallel = (size_t)a->n_parallel,
        .n_queue = (size_t)a->n_queue,
        .cache_memory = a->cache_memory,
        .cache_device = a->cache_device,
        .cache_disk = a->cache_disk,
        .cache_folder = a->cache_folder,
        .shares_cache = a->cache_scope == 1,
        .slot_folder = a->slot_folder,
        .tools = a->mcp ? &serve_tools : NULL,
        .memory_folder = a->memory,
        .embedder = a->n_embedder,
        .reranker = a->n_reranker,
        .n_candidates = a->n_candidates,
        .manage_bytes = a->manage,
        .pull = hub_can_fetch() ? hub_pull : NULL,
        .hub_endpoint = getenv("HF_ENDPOINT"),
        .hub_token = getenv("HF_TOKEN"),
        .codec = a->codec,
        .host = a->host,
        .port = a->port,
        .socket = a->socket,
        .tls_certificate = a->certificate,
        .tls_key = a->key,
        .keys = {a->keys.items, a->keys.n},
        .origins = {a->origins.items, a->origins.n},
        .hosts = {a->hosts.items, a->hosts.n},
        .body_bytes = a->body,
        .inflight_bytes = a->inflight,
        .n_connections = (size_t)a->n_connections,
        .n_client_connections = (size_t)a->n_client_connections,
        .idle_seconds = a->idle,
        .lame_duck_seconds = a->lame_duck,
        .drain_seconds = a->drain,
        .verbose = a->model.verbose,
        .no_page = a->no_page,
    };
    if (!read_keep(a, &desc.keep_seconds)) return EXIT_USAGE;
    if (!read_model_desc(&a->model, &desc.opening)) return EXIT_FAILED;
    desc.opening.loras_by_session = true;
    tern_status status = run(&desc, &err);
    if (status != TERN_OK) end_progress();
    free_model_desc(&desc.opening);
    return exit_status(status, &err);
}

static bool is_for_one(const serve_args *a) {
    return a->name || a->speculation.chains || a->speculation.draft_model ||
           a->model.template_file || a->model.pooling || a->model.loras.n ||
           (a->model.mmproj && strcmp(a->model.mmproj, "none") != 0);
}

static bool open_drafters(serve_args *a, const serve_model *models) {
    if (a->n_models) a->model.path = models[0].path;
    return open_speculation(&a->speculation, &a->model, &a->session.speculation);
}

int serve_models(const command *self, serve_args *a, serve_fn run) {
    text key_text = {0}, known = {0};
    int status = EXIT_FAILED;
    if (a->reranker && !a->memory) return bad_usage("%s: --rerank is for a --memory", self->name);
    serve_model *models = must_alloc(NULL, a->models.n + 2, sizeof *models);
    bool ok = (!a->key_file || read_keys(a->key_file, &key_text, &a->keys)) &&
              find_models(a, models) && find_embedder(a, models, &known) &&
              find_reranker(a, models) && find_codec(a);
    if (ok && is_for_one(a) && (a->n_models != 1 || a->folder))
        status = bad_usage(
            "%s: --name, --chat-template, --pooling, --lora, --mmproj, --enable-chains and "
            "--draft-model are for one model",
            self->name);
    else if (ok && open_drafters(a, models))
        status = run_desc(a, models, run);
    close_speculation(&a->session.speculation);
    free(models);
    free(key_text.ptr);
    free(known.ptr);
    return status;
}

int cmd_serve(const command *self, int argc, char **argv) {
    serve_args a = {.model.finds_gpu = true,
                    .host = "127.0.0.1",
                    .port = 8080,
                    .n_parallel = 16,
                    .n_queue = 256,
                    .n_connections = 1024,
                    .idle = 60,
                    .drain = 30,
                    .cache_memory = 1 << 30,
                    .cache_device = 1 << 30,
                    .cache_disk = (uint64_t)16 << 30,
                    .body = 16 << 20,
                    .inflight = (uint64_t)1 << 30};
    const option options[] = {
        OPTIONS_GROUP("Where"),
        {0, "host", OPTION_TEXT, &a.host, "ADDRESS",
         "where it listens (127.0.0.1), 0.0.0.0: everywhere"},
        {0, "port", OPTION_COUNT, &a.port, "N", "0: one that is free (8080)", 0, 65535},
        {0, "socket", OPTION_TEXT, &a.socket, "PATH", "a Unix socket instead"},
        {0, "no-page", OPTION_FLAG, &a.no_page, NULL, "no page for browsers at /"},
        {0, "tls-cert", OPTION_TEXT, &a.certificate, "FILE", "speak TLS: the certificate, PEM"},
        {0, "tls-key", OPTION_TEXT, &a.key, "FILE", "its key, PEM"},
        OPTIONS_GROUP("Who"),
        {0, "api-key", OPTION_TEXTS, &a.keys, "KEY",
         "clients must have one; may be repeated (none: all may ask)"},
        {0, "api-key-file", OPTION_TEXT, &a.key_file, "FILE", "the same, a key a line"},
        {0, "cors", OPTION_TEXTS, &a.origins, "ORIGIN",
         "pages from there may ask, *: from anywhere; may be repeated"},
        {0, "allow-host", OPTION_TEXTS, &a.hosts, "NAME",
         "a name by which it may be asked for, *: any; may be repeated"},
        {0, "manage", OPTION_SIZE, &a.manage, "BYTES",
         "clients may pull, create, copy and delete models (without it, those of this machine "
         "alone): at most this many bytes in the folder of models"},
        OPTIONS_GROUP("How much"),
        {0, "parallel", OPTION_COUNT, &a.n_parallel, "N", "answers at once (16)", 1, 4096},
        {0, "queue", OPTION_COUNT, &a.n_queue, "N", "answers that may wait for their turn (256)", 0,
         1 << 20},
        {0, "cache-memory", OPTION_SIZE, &a.cache_memory, "BYTES",
         "of memory for what texts that are over leave, for those that begin alike (1G)"},
        {0, "cache-device", OPTION_SIZE, &a.cache_device, "BYTES", "of a GPU's besides (1G)"},
        {0, "cache-dir", OPTION_TEXT, &a.cache_folder, "FOLDER",
         "keep some of it there, too, over a restart"},
        {0, "cache-disk", OPTION_SIZE, &a.cache_disk, "BYTES", "of files in it (16G)"},
        {0, "cache-scope", OPTION_CHOICE, &a.cache_scope, "key|all",
         "who may reuse cached prompts: requests with the same API key (key), or all"},
        {0, "slot-save-path", OPTION_TEXT, &a.slot_folder, "FOLDER",
         "where clients may have what a slot computed saved, and restored"},
        {0, "connections", OPTION_COUNT, &a.n_connections, "N", "at once (1024)", 1, 1 << 20},
        {0, "client-connections", OPTION_COUNT, &a.n_client_connections, "N",
         "of one address, 0: what others leave (0)", 0, 1 << 20},
        {0, "max-body", OPTION_SIZE, &a.body, "BYTES", "of a request (16M)", 1024, 1000000000},
        {0, "max-inflight", OPTION_SIZE, &a.inflight, "BYTES",
         "of requests in memory at once; of one client what it leaves free (1G)"},
        {0, "idle", OPTION_COUNT, &a.idle, "SECONDS",
         "a connection may say nothing; half of it for a request to arrive (60)", 1, 86400},
        {0, "lame-duck", OPTION_COUNT, &a.lame_duck, "SECONDS",
         "when it is to stop, /health says so for so long before it takes no more requests (0)", 0,
         86400},
        {0, "drain", OPTION_COUNT, &a.drain, "SECONDS",
         "for answers to come to their end when it is to stop (30)", 0, 86400},
        OPTIONS_GROUP("Speculation (never changes the text)"),
        {0, "enable-chains", OPTION_MAYBE, &a.speculation.chains, "[PATH]",
         "draft from chains (default: chain-buckets.bin next to the model)"},
        {0, "lookup", OPTION_FLAG, &a.speculation.lookup, NULL, "draft from the text itself"},
        {0, "draft-model", OPTION_TEXT, &a.speculation.draft_model, "MODEL",
         "draft with a smaller model"},
        OPTIONS_GROUP("Tools for programs that speak MCP (docs/server.md)"),
        {0, "mcp", OPTION_FLAG, &a.mcp, NULL,
         "POST /mcp: the Model Context Protocol, with tools to generate, embed and remember"},
        MEMORY_OPTIONS(a),
        RERANK_OPTIONS(a),
        SERVED_MODELS_OPTIONS(a),
        {0, "codec", OPTION_TEXT, &a.codec, "MODEL",
         "what makes sound of the codes of models that speak (NanoCodec)"},
        {0, "name", OPTION_TEXT, &a.name, "NAME", "what clients call it (its file's name)"},
        {0, "alias", OPTION_TEXTS, &a.aliases, "NAME=MODEL", "another name; may be repeated"},
        {0, "device-of", OPTION_TEXTS, &a.devices, "MODEL=DEVICE",
         "where one of them runs; may be repeated"},
        SERVED_OPENING_OPTIONS(a),
        OPTIONS_END,
    };
    int status, n_positional;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    if (!a.certificate != !a.key)
        return bad_usage("serve: --tls-cert and --tls-key need each other");
    if (a.memory && !a.mcp) return bad_usage("serve: --memory is for the tools of --mcp");
#ifdef TERN_SERVE
    status = serve_models(self, &a, serve);
#else
    status = fail("serve: this tern was built without libevent (install libevent-dev and "
                  "libssl-dev, and build it again)");
#endif
    free(a.models.items);
    free(a.aliases.items);
    free(a.devices.items);
    free(a.keys.items);
    free(a.origins.items);
    free(a.hosts.items);
    return status;
}
