// tern memory: a store of texts (tern_memory.h). memory_add.c and memory_recall.c have its larger
// jobs.
#include "cli_memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- Opening ------------------------------------------------------------------------------------

bool memory_model(const char *folder, bool must_exist, text *path) {
    tern_memory_store *store;
    tern_memory_info info;
    tern_error err = {0};
    const tern_memory_desc desc = {.must_exist = must_exist};
    bool ok = tern_memory_open(&store, folder, &desc, &err) == TERN_OK;
    ok = ok && tern_memory_get_info(store, &info, &err) == TERN_OK;
    text_puts(path, ok ? info.model_path : "");
    if (ok && path->n && access(path->ptr, F_OK) != 0) {
        fputs("note: ", stderr), put_plain(stderr, path->ptr),
            fputs(" is not there: words alone\n", stderr);
        path->n = 0;
    }
    if (!ok) fail("%s", err.message);
    tern_memory_close(store);
    return ok;
}

static bool open_embedder(const command *self, memory_args *args, bool must_exist, memory *out,
                          int *status) {
    text path = {0};
    bool ok = true;
    if (!args->model.path) {
        ok = memory_model(args->folder, must_exist, &path);
        if (path.n) args->model.path = path.ptr;
    } else if (!strcmp(args->model.path, "none")) {
        args->model.path = NULL;
    }
    if (ok && args->model.path) {
        out->model = open_model(self, &args->model, status);
        ok = out->model != NULL;
    }
    free(path.ptr);
    return ok;
}

bool open_memory(const command *self, memory_args *args, bool must_exist, bool with_model,
                 const tern_model *counter, memory *out, int *status) {
    tern_error err = {0};
    *out = (memory){0};
    *status = EXIT_FAILED;
    if (!args->folder) {
        *status =
            bad_usage("%s: no memory (usage: tern %s %s)", self->name, self->name, self->usage);
        return false;
    }
    if (with_model && !open_embedder(self, args, must_exist, out, status)) return false;
    const tern_memory_desc desc = {.model = out->model,
                                   .counter = counter,
                                   .must_exist = must_exist,
                                   .n_threads = args->model.n_threads};
    if (tern_memory_open(&out->store, args->folder, &desc, &err) != TERN_OK) {
        *status = fail("%s", err.message);
        return false;
    }
    *status = EXIT_OK;
    return true;
}

bool open_reranker(const command *self, const memory_args *args, memory *m, int *status) {
    model_args model = args->model;
    if (!args->reranker) return true;
    model.path = args->reranker;
    model.pooling = 0; // as its files specify
    m->reranker = open_model(self, &model, status);
    return m->reranker != NULL;
}

void close_memory(memory *m) {
    tern_memory_close(m->store);
    tern_model_close(m->reranker);
    tern_model_close(m->model);
}

// ---- Filters ------------------------------------------------------------------------------------

static bool read_filter(const char *word, tern_memory_filter *out) {
    static const struct {
        const char *mark;
        tern_memory_compare compare;
    } marks[] = {{"!=", TERN_MEMORY_NOT_EQUAL},     {"<=", TERN_MEMORY_LESS_EQUAL},
                 {">=", TERN_MEMORY_GREATER_EQUAL}, {"^=", TERN_MEMORY_BEGINS},
                 {"=", TERN_MEMORY_EQUAL},          {"<", TERN_MEMORY_LESS},
                 {">", TERN_MEMORY_GREATER}};
    size_t n = strcspn(word, "!<>^=");
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t length = strlen(marks[i].mark);
        if (n == 0 || strncmp(word + n, marks[i].mark, length) != 0) continue;
        text key = {0};
        text_append(&key, word, n);
        *out = (tern_memory_filter){key.ptr, word + n + length, marks[i].compare};
        return true;
    }
    return false;
}

bool read_filters(const command *self, const string_list *where, tern_memory_filter **out) {
    *out = must_alloc(NULL, where->n + 1, sizeof **out);
    memset(*out, 0, (where->n + 1) * sizeof **out);
    for (size_t i = 0; i < where->n; i++)
        if (!read_filter(where->items[i], &(*out)[i])) {
            bad_usage("%s: --where '%s': expected KEY=VALUE, also with != < <= > >= ^=", self->name,
                      where->items[i]);
            return false;
        }
    return true;
}

void free_filters(tern_memory_filter *filters, size_t n) {
    for (size_t i = 0; filters && i < n; i++) free((char *)filters[i].key);
    free(filters);
}

void close_filtered(memory *m, memory_args *args, tern_memory_filter *filters) {
    close_memory(m);
    free_filters(filters, args->where.n);
    free(args->where.items);
}

// ---- Records ------------------------------------------------------------------------------------

const char *time_text(int64_t seconds, char out[32]) {
    time_t when = (time_t)seconds;
    struct tm parts;
    if (!localtime_r(&when, &parts) || !strftime(out, 32, "%Y-%m-%d %H:%M", &parts))
        strcpy(out, "?");
    return out;
}

void put_record(FILE *f, const tern_memory_record *r) {
    fprintf(f, "{\"id\":%lld,\"source\":", (long long)r->id);
    if (*r->source)
        put_json(f, r->source, strlen(r->source));
    else
        fputs("null", f);
    fprintf(f, ",\"metadata\":%s,\"created\":%lld,\"chunks\":%lld,\"tokens\":%lld,\"bytes\":%lld",
            *r->metadata ? r->metadata : "{}", (long long)r->created, (long long)r->n_chunks,
            (long long)r->n_tokens, (long long)r->n_bytes);
    if (r->text) {
        fprintf(f, ",\"text\":");
        put_json(f, r->text, strlen(r->text));
    }
    fputc('}', f);
}

static bool print_record(void *user, const tern_memory_record *r) {
    const memory_args *args = user;
    char when[32];
    if (args->json) {
        put_record(stdout, r);
        putchar('\n');
    } else if (r->text) {
        size_t end = strlen(r->text);
        write_shown(NULL, r->text, end);
        if (!end || r->text[end - 1] != '\n') putchar('\n');
    } else {
        printf("%6lld  %s  %5lld chunks %7lld tokens  ", (long long)r->id,
               time_text(r->created, when), (long long)r->n_chunks, (long long)r->n_tokens);
        put_plain(stdout, *r->source ? r->source : "-");
        if (strcmp(r->metadata, "{}")) printf("  "), put_plain(stdout, r->metadata);
        putchar('\n');
    }
    return !ferror(stdout);
}

static bool read_id(const command *self, const char *word, int64_t *id) {
    char *end;
    *id = strtoll(word, &end, 10);
    if (*word >= '0' && *word <= '9' && !*end) return true;
    bad_usage("%s: '%s': expected the number of a record (tern memory list has them)", self->name,
              word);
    return false;
}

// ---- Jobs ---------------------------------------------------------------------------------------

static int list(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_memory_filter *filters = NULL;
    tern_error err = {0};
    const option options[] = {MEMORY_OPTION(args), WHERE_OPTION(args), JSON_OPTION(args),
                              OPTIONS_END};
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!read_filters(self, &args.where, &filters))
        status = EXIT_USAGE;
    else if (open_memory(self, &args, true, false, NULL, &m, &status))
        status = exit_status(
            tern_memory_list(m.store, filters, args.where.n, print_record, &args, &err), &err);
    close_filtered(&m, &args, filters);
    return status;
}

static int show(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_error err = {0};
    const option options[] = {MEMORY_OPTION(args), JSON_OPTION(args), OPTIONS_END};
    const char *word;
    int64_t id;
    int status, n;
    if (!parse_options(self, options, argc, argv, &word, 1, &n, &status)) return status;
    if (n == 0)
        return bad_usage("%s: no record (usage: tern %s %s)", self->name, self->name, self->usage);
    if (!read_id(self, word, &id)) return EXIT_USAGE;
    if (open_memory(self, &args, true, false, NULL, &m, &status))
        status = exit_status(tern_memory_show(m.store, id, print_record, &args, &err), &err);
    close_memory(&m);
    return status;
}

static int forget_records(const command *self, memory *m, const char **words, int n,
                          const memory_args *args, const tern_memory_filter *filters) {
    tern_error err = {0};
    int64_t n_records = 0, id;
    for (int i = 0; i < n; i++) {
        if (!read_id(self, words[i], &id)) return EXIT_USAGE;
        if (tern_memory_forget(m->store, id, &err) != TERN_OK) return fail("%s", err.message);
        n_records++;
    }
    if (args->where.n &&
        tern_memory_forget_where(m->store, filters, args->where.n, &n_records, &err) != TERN_OK)
        return fail("%s", err.message);
    printf("%lld record%s forgotten\n", (long long)n_records, many((uint64_t)n_records));
    return EXIT_OK;
}

#define WORDS_MAX 1024

static int forget(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_memory_filter *filters = NULL;
    const option options[] = {MEMORY_OPTION(args), WHERE_OPTION(args), OPTIONS_END};
    const char *words[WORDS_MAX];
    int status, n;
    if (!parse_options(self, options, argc, argv, words, WORDS_MAX, &n, &status)) return status;
    if ((n > 0) == (args.where.n > 0))
        status = bad_usage("%s: give records by their numbers, or --where (usage: tern %s %s)",
                           self->name, self->name, self->usage);
    else if (!read_filters(self, &args.where, &filters))
        status = EXIT_USAGE;
    else if (open_memory(self, &args, true, false, NULL, &m, &status))
        status = forget_records(self, &m, words, n, &args, filters);
    close_filtered(&m, &args, filters);
    return status;
}

static int export_all(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_memory_filter *filters = NULL;
    tern_error err = {0};
    const option options[] = {MEMORY_OPTION(args), WHERE_OPTION(args), OPTIONS_END};
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!read_filters(self, &args.where, &filters))
        status = EXIT_USAGE;
    else if (open_memory(self, &args, true, false, NULL, &m, &status))
        status = exit_status(
            tern_memory_export(m.store, filters, args.where.n, write_out, NULL, &err), &err);
    close_filtered(&m, &args, filters);
    return status;
}

static void print_maker(const tern_memory_info *i) {
    printf("%lld vector%s of %d numbers, made by ", (long long)i->n_vectors,
           many((uint64_t)i->n_vectors), (int)i->n_dims);
    put_plain(stdout, i->model_name);
    printf(" (");
    put_plain(stdout, i->model_path);
    printf(")\n");
}

static int stats(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_memory_info i;
    tern_error err = {0};
    const option options[] = {MEMORY_OPTION(args),
                              {0, "json", OPTION_FLAG, &args.json, NULL, "one JSON object"},
                              OPTIONS_END};
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (open_memory(self, &args, true, false, NULL, &m, &status)) {
        if (tern_memory_get_info(m.store, &i, &err) != TERN_OK) {
            status = fail("%s", err.message);
        } else if (args.json) {
            printf("{\"records\":%lld,\"chunks\":%lld,\"tokens\":%lld,\"vectors\":%lld,"
                   "\"dimensions\":%d,\"bytes\":%llu,\"model\":",
                   (long long)i.n_records, (long long)i.n_chunks, (long long)i.n_tokens,
                   (long long)i.n_vectors, (int)i.n_dims, (unsigned long long)i.n_bytes);
            put_json(stdout, i.model_name, strlen(i.model_name));
            printf("}\n");
        } else {
            printf("%lld record%s in %lld chunk%s of %lld token%s, %.1f MB\n",
                   (long long)i.n_records, many((uint64_t)i.n_records), (long long)i.n_chunks,
                   many((uint64_t)i.n_chunks), (long long)i.n_tokens, many((uint64_t)i.n_tokens),
                   (double)i.n_bytes * 1e-6);
            if (i.n_dims)
                print_maker(&i);
            else
                printf("no vectors: recall by words alone\n");
        }
    }
    close_memory(&m);
    return status;
}

static int compact(const command *self, int argc, char **argv) {
    memory_args args = {0};
    memory m = {0};
    tern_error err = {0};
    const option options[] = {MEMORY_OPTION(args), OPTIONS_END};
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (open_memory(self, &args, true, false, NULL, &m, &status))
        status = exit_status(tern_memory_compact(m.store, &err), &err);
    close_memory(&m);
    return status;
}

static int rules(const command *self, int argc, char **argv) {
    const option options[] = {OPTIONS_END};
    const char *pattern, *name;
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    for (size_t i = 0; (name = tern_memory_rule(i, &pattern)); i++)
        printf("%s\t%s\n", name, pattern);
    return EXIT_OK;
}

const command memory_jobs[] = {
    {"memory add", "DIR [FILE|FOLDER... | --text TEXT] [-m MODEL] [options]",
     "put texts into a memory, and make one if need be", memory_add, NULL},
    {"memory recall", "DIR QUERY [options]", "the passages that answer a question best",
     memory_recall, NULL},
    {"memory list", "DIR [options]", "what was added", list, NULL},
    {"memory show", "DIR NUMBER [options]", "the text of a record", show, NULL},
    {"memory forget", "DIR NUMBER... | --where KEY=VALUE", "delete records", forget, NULL},
    {"memory import", "DIR [FILE] [-m MODEL] [options]", "add records from lines of JSON",
     memory_import, NULL},
    {"memory export", "DIR [options]", "all records as lines of JSON", export_all, NULL},
    {"memory stats", "DIR [options]", "how much there is", stats, NULL},
    {"memory compact", "DIR", "reclaim space; nothing of a forgotten text remains", compact, NULL},
    {"memory rules", "", "the patterns that are blacked out before a text is stored", rules, NULL},
    {0},
};
