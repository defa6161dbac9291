// tern pull, list, show, ps, rm: models by their names. The work is done in apps/hub.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "apps/hub/hub.h"

// ---- Printing ----------------------------------------------------------------------------------

static void put_text(FILE *f, const char *key, const char *s) {
    fprintf(f, "\"%s\":", key);
    put_json(f, s, strlen(s));
}

// ---- tern pull ---------------------------------------------------------------------------------

static int list_shorts(void) {
    size_t n;
    const hub_short *rows = hub_shorts(&n);
    printf("%-21s %9s  %-11s  %-13s %s\n", "NAME", "ABOUT", "LICENCE", "IS", "ON HUGGING FACE");
    for (size_t i = 0; i < n; i++) {
        char size[24];
        printf("%-21s %9s  %-11s  %-13s %s\n", rows[i].name,
               size_text((uint64_t)rows[i].megabytes * 1000000, size), rows[i].licence,
               rows[i].what, rows[i].source);
    }
    return EXIT_OK;
}

int cmd_pull(const command *self, int argc, char **argv) {
    const char *name = NULL, *folder = NULL, *token = NULL, *endpoint = NULL, *revision = NULL;
    int n_retries = 5;
    bool text_only = false, lists = false;
    const option options[] = {
        {0, "name", OPTION_TEXT, &name, "NAME",
         "a short name (--list), or hf:OWNER/NAME with /FILE, :TYPE or @REVISION after it",
         .position = 1},
        {0, "list", OPTION_FLAG, &lists, NULL, "print the short names"},
        MODELS_DIR_OPTION(folder),
        {0, "token", OPTION_TEXT, &token, "TOKEN", "for gated models (HF_TOKEN)"},
        {0, "endpoint", OPTION_TEXT, &endpoint, "URL",
         "a hub laid out like Hugging Face's (HF_ENDPOINT)"},
        {0, "revision", OPTION_TEXT, &revision, "NAME", "a branch, tag or commit (main)"},
        {0, "text-only", OPTION_FLAG, &text_only, NULL,
         "leave out what a GGUF sees with (mmproj*.gguf), which else comes beside it"},
        {0, "retries", OPTION_COUNT, &n_retries, "N",
         "tries after a cut without a byte between them (5)", 0, 1000},
        OPTIONS_END,
    };
    int status, n_positional;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    if (lists) return list_shorts();
    if (!name)
        return bad_usage(
            "pull: which model? `tern pull --list` has short names (usage: tern pull %s)",
            self->usage);
    if (!token) token = getenv("HF_TOKEN");
    hub_pull_desc desc = {
        .folder = models_folder(folder),
        .name = name,
        .endpoint = endpoint ? endpoint : getenv("HF_ENDPOINT"),
        .token = token && *token ? token : NULL,
        .revision = revision,
        .n_retries = n_retries,
        .text_only = text_only,
    };
    char *own = NULL;
    size_t n_new;
    cancel_on_signals(PULL_LEFT);
    status = pull_model(&desc, &own, &n_new);
    if (own) {
        put_plain(stdout, own);
        printf("%s\n", n_new ? "" : " (nothing new)");
    }
    free(own);
    return status;
}

// ---- tern list ---------------------------------------------------------------------------------

static void list_row(const hub_model *m, int width) {
    hub_facts f;
    char size[24], day[24] = "";
    time_t when = (time_t)m->modified;
    struct tm t;
    if (localtime_r(&when, &t)) strftime(day, sizeof day, "%Y-%m-%d", &t);
    hub_read_facts(&f, m->path, NULL);
    put_plain(stdout, m->name);
    printf("%*s  %8s  %-10s  %-9s  ", width - (int)strlen(m->name), "", size_text(m->bytes, size),
           day, f.kind[0] ? f.kind : "-");
    put_plain(stdout, f.types[0] ? f.types : "-");
    printf("\n");
}

static void list_json(const hub_list *list) {
    printf("[");
    for (size_t i = 0; i < list->n; i++) {
        const hub_model *m = &list->models[i];
        hub_facts f;
        hub_read_facts(&f, m->path, NULL);
        printf("%s{", i ? ",\n" : "");
        put_text(stdout, "name", m->name);
        printf(",");
        put_text(stdout, "path", m->path);
        printf(",\"bytes\":%llu,\"modified\":%lld,", (unsigned long long)m->bytes,
               (long long)m->modified);
        put_text(stdout, "kind", f.kind);
        printf(",");
        put_text(stdout, "type", f.types);
        printf("}");
    }
    printf("]\n");
}

int cmd_list(const command *self, int argc, char **argv) {
    const char *folder = NULL;
    bool json = false;
    const option options[] = {
        MODELS_DIR_OPTION(folder), {0, "json", OPTION_FLAG, &json, NULL, "as JSON"}, OPTIONS_END};
    int status, n_positional, width = 4;
    hub_list list;
    tern_error err = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    bool is_named = folder != NULL;
    folder = models_folder(folder);
    tern_status status_of = hub_list_folder(&list, folder, &err);
    if (status_of == TERN_OK && !is_named) status_of = hub_list_installed(&list, &err);
    if (status_of != TERN_OK) return fail("%s", err.message);
    for (size_t i = 0; i < list.n; i++)
        if ((int)strlen(list.models[i].name) > width) width = (int)strlen(list.models[i].name);
    if (json)
        list_json(&list);
    else if (list.n)
        printf("%-*s  %8s  %-10s  %-9s  TYPE\n", width, "NAME", "SIZE", "DATE", "KIND");
    else
        fprintf(stderr, "there are no models in %s (`tern pull --list` has names of some)\n",
                folder);
    for (size_t i = 0; i < list.n && !json; i++) list_row(&list.models[i], width);
    hub_list_free(&list);
    return EXIT_OK;
}

// ---- tern show ---------------------------------------------------------------------------------

static void show_json(const char *path, const hub_facts *f) {
    printf("{");
    put_text(stdout, "path", path);
    const char *const texts[][2] = {{"kind", f->kind},
                                    {"architecture", f->architecture},
                                    {"label", f->label},
                                    {"type", f->types},
                                    {"refusal", f->refusal}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf(",");
        put_text(stdout, texts[i][0], texts[i][1]);
    }
    printf(",\"format\":\"%s\",\"weights\":%lld,\"bytes\":%lld,\"context\":%lld,\"width\":%lld,"
           "\"layers\":%lld,\"vocabulary\":%lld}\n",
           f->is_gguf ? "gguf" : "safetensors", (long long)f->n_weights, (long long)f->file_bytes,
           (long long)f->n_context, (long long)f->n_embd, (long long)f->n_layers,
           (long long)f->n_vocab);
}

static void show_row(const char *name, const char *value) {
    printf("%-14s", name);
    put_plain(stdout, value);
    printf("\n");
}

static void show_text(const char *path, const hub_facts *f) {
    char size[24];
    show_row("path", path);
    show_row("architecture", f->architecture);
    if (f->label[0]) show_row("label", f->label);
    printf("%-14s%s\n", "kind", f->kind[0] ? f->kind : "unknown");
    printf("%-14s%.3g million, %s of %s\n", "weights", (double)f->n_weights * 1e-6,
           size_text((uint64_t)f->file_bytes, size), f->types);
    printf("%-14s%lld tokens\n%-14s%lld layers of %lld, %lld tokens in the vocabulary\n", "context",
           (long long)f->n_context, "shape", (long long)f->n_layers, (long long)f->n_embd,
           (long long)f->n_vocab);
    if (f->refusal[0]) printf("%-14sno: ", "runs"), put_plain(stdout, f->refusal), printf("\n");
}

int cmd_show(const command *self, int argc, char **argv) {
    const char *name = NULL, *folder = NULL;
    bool json = false;
    const option options[] = {
        {'m', "model", OPTION_TEXT, &name, "NAME", "a model's name, or a path", .position = 1},
        HUB_OPTIONS,
        MODELS_DIR_OPTION(folder),
        {0, "json", OPTION_FLAG, &json, NULL, "as JSON"},
        OPTIONS_END};
    int status, n_positional;
    hub_facts facts;
    tern_error err = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    if (!name) return bad_usage("show: which model? (usage: tern show %s)", self->usage);
    const char *path = resolve_model(folder, name);
    if (!path) return EXIT_FAILED;
    if (hub_read_facts(&facts, path, &err) != TERN_OK) return fail("%s", err.message);
    if (json)
        show_json(path, &facts);
    else
        show_text(path, &facts);
    return EXIT_OK;
}

// ---- tern ps -----------------------------------------------------------------------------------

int cmd_ps(const command *self, int argc, char **argv) {
    const char *server = NULL, *key = NULL;
    const option options[] = {
        {0, "server", OPTION_TEXT, &server, "URL",
         "of the server (TERN_SERVER, else http://127.0.0.1:8080)", .position = 1},
        {0, "api-key", OPTION_TEXT, &key, "KEY", "if it asks for one (TERN_API_KEY)"},
        OPTIONS_END};
    int status, n_positional;
    hub_running *list;
    size_t n;
    tern_error err = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n_positional, &status)) return status;
    if (!server) server = getenv("TERN_SERVER");
    if (!server || !*server) server = "http://127.0.0.1:8080";
    if (!key) key = getenv("TERN_API_KEY");
    if (hub_ask_running(&list, &n, server, key && *key ? key : NULL, &err) != TERN_OK)
        return fail("%s", err.message);
    printf("%-40s  %8s  %8s  %8s  UNTIL\n", "NAME", "SIZE", "GPU", "CONTEXT");
    for (size_t i = 0; i < n; i++) {
        char size[24], device[24];
        int n_name = (int)strlen(list[i].name);
        put_plain(stdout, list[i].name);
        printf("%*s  %8s  %8s  %8lld  ", n_name < 40 ? 40 - n_name : 0, "",
               size_text(list[i].bytes, size),
               list[i].device_bytes ? size_text(list[i].device_bytes, device) : "-",
               (long long)list[i].n_context);
        put_plain(stdout, list[i].until[0] ? list[i].until : "it stays");
        printf("\n");
    }
    hub_running_free(list, n);
    return EXIT_OK;
}

// ---- tern rm -----------------------------------------------------------------------------------

int cmd_rm(const command *self, int argc, char **argv) {
    const char *folder = NULL;
    const char **names = must_alloc(NULL, (size_t)argc, sizeof *names);
    const option options[] = {MODELS_DIR_OPTION(folder), OPTIONS_END};
    int status, n = 0;
    if (parse_options(self, options, argc, argv, names, argc, &n, &status))
        status = n ? EXIT_OK : bad_usage("rm: which models? (usage: tern rm %s)", self->usage);
    for (int i = 0; i < n && status == EXIT_OK; i++) {
        uint64_t bytes;
        char size[24];
        tern_error err = {0};
        status = exit_status(hub_remove(models_folder(folder), names[i], &bytes, &err), &err);
        if (status == EXIT_OK) printf("%s: %s freed\n", names[i], size_text(bytes, size));
    }
    free(names);
    return status;
}
