// tern memory add and import: texts from words, files, folders and lines of JSON.
#include "cli_memory.h"

#include <stdlib.h>
#include <string.h>
#include "base/os/os_file.h"

typedef struct add_args {
    memory_args memory;
    string_list paths, texts, patterns, metadata;
    const char *source, *file;
    int chunk_tokens, overlap, format;
    bool whole, keep_secrets, again;
} add_args;

#define ADD_OPTIONS(a)                                                                             \
    {0,                                                                                            \
     "chunk-tokens",                                                                               \
     OPTION_COUNT,                                                                                 \
     &(a).chunk_tokens,                                                                            \
     "N",                                                                                          \
     "tokens of a chunk at most, 0: 256, or what the model takes (0)",                             \
     0,                                                                                            \
     1 << 20},                                                                                     \
        {0,                                                                                        \
         "overlap",                                                                                \
         OPTION_COUNT,                                                                             \
         &(a).overlap,                                                                             \
         "N",                                                                                      \
         "tokens that a chunk repeats of the one before it (an eighth of the size)",               \
         0,                                                                                        \
         1 << 20},                                                                                 \
        {0, "whole", OPTION_FLAG, &(a).whole, NULL, "a text is one chunk, whatever its size"},     \
        {0,                                                                                        \
         "redact",                                                                                 \
         OPTION_TEXTS,                                                                             \
         &(a).patterns,                                                                            \
         "PATTERN",                                                                                \
         "black this out, too: a regular expression; may be repeated"},                            \
        {0,           "keep-secrets",                                                              \
         OPTION_FLAG, &(a).keep_secrets,                                                           \
         NULL,        "do not black out what looks like a secret (`tern memory rules`)"},          \
        EMBEDDER_OPTIONS((a).memory, 'm', "model"), HUB_OPTIONS, THREADS_OPTION((a).memory)

static tern_memory_add_params params_of(const add_args *a, bool replace) {
    return (tern_memory_add_params){.chunk_tokens = a->chunk_tokens,
                                    .overlap_tokens = a->overlap < 0    ? 0
                                                      : a->overlap == 0 ? -1
                                                                        : a->overlap,
                                    .whole = a->whole,
                                    .replace = replace,
                                    .keep_secrets = a->keep_secrets,
                                    .patterns = a->patterns.items,
                                    .n_patterns = a->patterns.n,
                                    .on_progress = show_progress};
}

// ---- Metadata -----------------------------------------------------------------------------------

static bool looks_like_number(const char *s) {
    char *end;
    if (!strchr("-0123456789", *s) || !*s || (*s == '0' && s[1] >= '0' && s[1] <= '9'))
        return false;
    strtod(s, &end);
    return !*end && strspn(s, "-+.0123456789eE") == strlen(s) && end[-1] != '.';
}

// {"author": "Ann", "year": 2020} from author=Ann and year=2020, or a whole object as it is.
static bool make_metadata(const command *self, const string_list *words, text *out) {
    if (words->n == 1 && words->items[0][0] == '{') {
        text_puts(out, words->items[0]);
        return true;
    }
    text_puts(out, "{");
    for (size_t i = 0; i < words->n; i++) {
        const char *equals = strchr(words->items[i], '=');
        if (!equals || equals == words->items[i]) {
            bad_usage("%s: --metadata '%s': expected KEY=VALUE, or a JSON object", self->name,
                      words->items[i]);
            return false;
        }
        if (i) text_puts(out, ",");
        text_json(out, words->items[i], (size_t)(equals - words->items[i]));
        text_puts(out, ":");
        if (looks_like_number(equals + 1))
            text_puts(out, equals + 1);
        else
            text_json(out, equals + 1, strlen(equals + 1));
    }
    text_puts(out, "}");
    return true;
}

// ---- Texts --------------------------------------------------------------------------------------

typedef struct adder {
    const add_args *args;
    memory m;
    text metadata;
    size_t n_added, n_there, n_skipped;
} adder;

// Prints a line once the record is on the disk: from then on nothing of it is lost.
static bool add_text(adder *a, const text *t, const char *source, bool is_file, bool may_skip) {
    tern_error err = {0};
    tern_memory_added added;
    const tern_memory_item item = {.text = t->ptr,
                                   .n_bytes = t->n,
                                   .source = source,
                                   .metadata = a->metadata.ptr,
                                   .format = (tern_memory_format)a->args->format};
    const tern_memory_add_params params = params_of(a->args, is_file && !a->args->again);
    tern_status status = tern_memory_add(a->m.store, &item, &params, &added, &err);
    if (may_skip && source && (status == TERN_ERR_FORMAT || status == TERN_ERR_ARGUMENT) &&
        strncmp(err.message, source, strlen(source)) == 0) { // not the memory's fault
        a->n_skipped++;
        return true;
    }
    end_progress();
    if (status != TERN_OK) {
        exit_status(status, &err);
        return false;
    }
    a->n_added += !added.was_there;
    a->n_there += added.was_there;
    if (added.was_there) return true;
    printf("%lld  %zu chunk%s", (long long)added.id, added.n_chunks, many(added.n_chunks));
    if (added.n_redacted)
        printf(", %zu place%s blacked out", added.n_redacted, many(added.n_redacted));
    printf("  "), put_plain(stdout, source ? source : "-"), printf("\n");
    fflush(stdout);
    return !was_cancelled();
}

static bool add_file(adder *a, const char *path, bool may_skip) {
    text t = {0};
    const char *source = a->args->source;
    bool is_file = !source && strcmp(path, "-") != 0; // only a file's name identifies it
    bool ok = text_read(&t, path) && add_text(a, &t, is_file ? path : source, is_file, may_skip);
    free(t.ptr);
    return ok;
}

static bool add_path(adder *a, const char *path, bool from_folder);

// Everything below a folder, in the order of names, except links and names that begin with a dot.
static bool add_folder(adder *a, const char *path) {
    tern_names names = {0};
    tern_error err = {0};
    bool ok = tern_folder_list(&names, path, "", "", &err) == TERN_OK;
    if (!ok) fail("%s", err.message);
    for (size_t i = 0; i < names.n && ok; i++) {
        text full = {0};
        if (names.list[i][0] == '.') continue;
        text_puts(&full, path);
        if (path[strlen(path) - 1] != '/') text_puts(&full, "/");
        text_puts(&full, names.list[i]);
        ok = add_path(a, full.ptr, true);
        free(full.ptr);
    }
    tern_names_free(&names);
    return ok;
}

static bool add_path(adder *a, const char *path, bool from_folder) {
    if (!strcmp(path, "-")) return add_file(a, path, false);
    const tern_path_kind kind = from_folder ? tern_path_look_at(path) : tern_path_look(path);
    if (kind == TERN_PATH_NONE) {
        fail("%s: there is no such file", path);
        return false;
    }
    if (kind == TERN_PATH_FOLDER) return add_folder(a, path);
    if (from_folder && kind != TERN_PATH_FILE) return true;
    return add_file(a, path, from_folder);
}

static bool add_all(adder *a) {
    const add_args *args = a->args;
    for (size_t i = 0; i < args->texts.n; i++) {
        text t = {0};
        text_puts(&t, args->texts.items[i]);
        bool ok = add_text(a, &t, args->source, false, false);
        free(t.ptr);
        if (!ok) return false;
    }
    for (size_t i = 0; i < args->paths.n; i++)
        if (!add_path(a, args->paths.items[i], false)) return false;
    return args->texts.n || args->paths.n || add_path(a, "-", false);
}

int memory_add(const command *self, int argc, char **argv) {
    add_args args = {.overlap = -1};
    adder a = {.args = &args};
    const option options[] = {
        MEMORY_OPTION(args.memory),
        {'f', "file", OPTION_TEXTS, &args.paths, "FILE",
         "a file, or all files below a folder; -: standard input (without texts: the default)",
         .position = 2},
        {0, "text", OPTION_TEXTS, &args.texts, "TEXT", "this text; may be repeated"},
        {0, "source", OPTION_TEXT, &args.source, "NAME", "where it is from (the file's name)"},
        {0, "metadata", OPTION_TEXTS, &args.metadata, "KEY=VALUE",
         "what else to know of it, to filter by; or a JSON object; may be repeated"},
        {0, "format", OPTION_CHOICE, &args.format, "auto|text|markdown|code",
         "how it is cut; auto: by the end of its name"},
        {0, "again", OPTION_FLAG, &args.again, NULL,
         "keep what was added before from the same file"},
        ADD_OPTIONS(args),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    cancel_on_signals("records that were printed stay");
    if (!make_metadata(self, &args.metadata, &a.metadata)) {
        status = EXIT_USAGE;
    } else if (open_memory(self, &args.memory, false, true, NULL, &a.m, &status)) {
        if (!add_all(&a)) status = EXIT_FAILED;
        if (a.n_there || a.n_skipped)
            fprintf(stderr, "note: %zu record%s added, %zu %s there, %zu file%s no text\n",
                    a.n_added, many(a.n_added), a.n_there, a.n_there == 1 ? "was" : "were",
                    a.n_skipped, a.n_skipped == 1 ? " is" : "s are");
    }
    close_memory(&a.m);
    free(a.metadata.ptr);
    free(args.paths.items);
    free(args.texts.items);
    free(args.patterns.items);
    free(args.metadata.items);
    return status;
}

int memory_import(const command *self, int argc, char **argv) {
    add_args args = {.overlap = -1};
    memory m = {0};
    text lines = {0};
    tern_error err = {0};
    const option options[] = {
        MEMORY_OPTION(args.memory),
        {'f', "file", OPTION_TEXT, &args.file, "FILE", "lines of JSON; - or none: standard input",
         .position = 2},
        ADD_OPTIONS(args),
        OPTIONS_END,
    };
    int status, n;
    int64_t n_records;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    cancel_on_signals("nothing was added");
    const tern_memory_add_params params = params_of(&args, false);
    if (!text_given(&lines, NULL, args.file)) {
        status = EXIT_FAILED;
    } else if (open_memory(self, &args.memory, false, true, NULL, &m, &status)) {
        tern_status done =
            tern_memory_import(m.store, lines.ptr, lines.n, &params, &n_records, &err);
        end_progress();
        status = exit_status(done, &err);
        printf("%lld record%s added\n", (long long)n_records, many((uint64_t)n_records));
    }
    close_memory(&m);
    free(lines.ptr);
    free(args.patterns.items);
    return status;
}
