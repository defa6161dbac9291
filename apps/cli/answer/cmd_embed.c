// tern embed: vectors of texts, and the similarity of two lists of them.
#include "apps/cli/console/cli.h"
#include "cli_images.h"
#include "tern_embed.h"
#include "tern_tools.h"

#include <stdlib.h>
#include <string.h>

enum { FORMAT_JSON, FORMAT_NPY, FORMAT_RAW };

typedef struct texts { // pieces of memory owned elsewhere
    tern_embed_text *list;
    size_t n, capacity;
    text *sources; // own the memory
    size_t n_sources;
} texts;

typedef struct embed_args {
    model_args model;
    tern_embed_params params;
    string_list files, images;
    const char *field, *out, *similarity, *rerank;
    bool jsonl;
    int format, max_length, n_dims;
} embed_args;

typedef struct vectors { // [n_rows, n_dims]
    float *rows;
    size_t n_rows, n_dims;
} vectors;

// ---- Texts --------------------------------------------------------------------------------------

static void add_text(texts *t, const char *bytes, size_t n) {
    if (t->n == t->capacity) {
        t->capacity = 2 * t->capacity + 64;
        t->list = must_alloc(t->list, t->capacity, sizeof *t->list);
    }
    t->list[t->n++] = (tern_embed_text){.text = bytes, .n_bytes = n};
}

static void free_texts(texts *t) {
    for (size_t i = 0; i < t->n_sources; i++) free(t->sources[i].ptr);
    free(t->sources);
    free(t->list);
}

// A text for each line, without the newline; the last line need not have one.
static void add_lines(texts *t, const char *bytes, size_t n) {
    for (size_t at = 0, end; at < n; at = end + 1) {
        const char *feed = memchr(bytes + at, '\n', n - at);
        end = feed ? (size_t)(feed - bytes) : n;
        add_text(t, bytes + at, end - at - (end > at && bytes[end - 1] == '\r'));
    }
}

// Texts in JSON have escapes: decoded copies are kept, one after the other.
typedef struct json_texts {
    text *to;
    size_t *ends;
    size_t n, capacity;
} json_texts;

static bool on_json_text(void *user, const char *bytes, size_t n) {
    json_texts *j = user;
    if (j->n == j->capacity) {
        j->capacity = 2 * j->capacity + 64;
        j->ends = must_alloc(j->ends, j->capacity, sizeof *j->ends);
    }
    text_append(j->to, bytes, n);
    j->ends[j->n++] = j->to->n;
    return true;
}

static bool add_json_lines(texts *t, text *source, const char *path, const char *field) {
    text all = {0};
    json_texts j = {.to = &all};
    tern_error err = {0};
    bool ok = tern_json_lines(source->ptr, source->n, field, on_json_text, &j, &err) == TERN_OK;
    if (!ok) fail("%s: %s", strcmp(path, "-") ? path : "standard input", err.message);
    free(source->ptr);
    *source = all;
    for (size_t i = 0, at = 0; ok && i < j.n; at = j.ends[i++])
        add_text(t, all.ptr + at, j.ends[i] - at);
    free(j.ends);
    return ok;
}

static bool add_file(texts *t, const char *path, const embed_args *args) {
    t->sources = must_alloc(t->sources, t->n_sources + 1, sizeof *t->sources);
    text *source = &t->sources[t->n_sources];
    *source = (text){0};
    if (!text_read(source, path)) return false;
    t->n_sources++;
    if (args->jsonl) return add_json_lines(t, source, path, args->field);
    add_lines(t, source->ptr, source->n);
    return true;
}

static bool gather(texts *t, const embed_args *args, const char **words, int n_words) {
    for (int i = 0; i < n_words; i++) add_text(t, words[i], strlen(words[i]));
    for (size_t i = 0; i < args->files.n; i++)
        if (!add_file(t, args->files.items[i], args)) return false;
    return n_words > 0 || args->files.n > 0 || add_file(t, "-", args);
}

// ---- Output -------------------------------------------------------------------------------------

typedef struct sink {
    int format;
    const char *path;
    tern_output *out; // JSON and raw
    text line;
    vectors all; // for NPY, whose header has the number of rows
} sink;

static bool failed(const tern_error *err) {
    exit_status(err->status, err);
    return false;
}

static bool open_sink(sink *s, const embed_args *args, size_t n_rows, size_t n_dims) {
    tern_error err = {0};
    s->format = args->format;
    s->path = args->out && strcmp(args->out, "-") ? args->out : "/dev/stdout";
    s->all.n_dims = n_dims;
    if (s->format == FORMAT_NPY) {
        s->all.rows = must_alloc(NULL, n_rows * n_dims, sizeof *s->all.rows);
        return true;
    }
    return tern_output_open(&s->out, s->path, &err) == TERN_OK || failed(&err);
}

static void put_row(text *line, const float *row, size_t n) {
    char number[40];
    for (size_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%s%.9g", i ? ", " : "[", (double)row[i]);
        text_puts(line, number);
    }
    text_puts(line, n ? "]" : "[]");
}

static void put_raw(text *line, const float *row, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], 4);
        const char b[4] = {(char)bits, (char)(bits >> 8), (char)(bits >> 16), (char)(bits >> 24)};
        text_append(line, b, 4);
    }
}

// A line of JSON is an object with the text's number and its vector, or a list of similarities.
static bool write_row(sink *s, const float *row, const char *name, size_t index) {
    tern_error err = {0};
    size_t n = s->all.n_dims;
    char front[80];
    if (s->format == FORMAT_NPY) {
        memcpy(s->all.rows + s->all.n_rows++ * n, row, n * sizeof *row);
        return true;
    }
    s->line.n = 0;
    snprintf(front, sizeof front, "{\"index\": %zu, \"%s\": ", index, name ? name : "");
    if (s->format == FORMAT_RAW) {
        put_raw(&s->line, row, n);
    } else {
        if (name) text_puts(&s->line, front);
        put_row(&s->line, row, n);
        text_puts(&s->line, name ? "}\n" : "\n");
    }
    return tern_output_write(s->out, s->line.ptr, s->line.n, &err) == TERN_OK || failed(&err);
}

static bool finish_sink(sink *s) {
    tern_error err = {0};
    const tern_array a = {
        .n_dims = 2, .dims = {(int64_t)s->all.n_rows, (int64_t)s->all.n_dims}, .data = s->all.rows};
    tern_status status = s->format == FORMAT_NPY ? tern_array_write(&a, s->path, &err)
                                                 : tern_output_finish(s->out, &err);
    return status == TERN_OK || failed(&err);
}

static void close_sink(sink *s) {
    tern_output_close(s->out);
    free(s->line.ptr);
    free(s->all.rows);
}

// ---- Vectors ------------------------------------------------------------------------------------

#define PIECE 4096 // texts whose vectors are computed, then written

typedef bool (*rows_fn)(void *user, const float *rows, size_t first, size_t n);

typedef struct progress {
    size_t first, n, n_all;
} progress;

static bool on_embedded(void *user, const char *phase, double fraction) {
    const progress *p = user;
    return show_progress(NULL, phase,
                         ((double)p->first + fraction * (double)p->n) / (double)p->n_all);
}

static size_t dims_of(tern_model *model, const embed_args *args) {
    tern_embedding_info info;
    tern_embedding_get_info(model, &info);
    return (size_t)(args->n_dims ? args->n_dims : info.n_dims);
}

// For a decoder whose files name no pooling: the library's message does not name the option.
static bool lacks_pooling(const tern_model *model) {
    tern_embedding_info info;
    tern_embedding_get_info(model, &info);
    return info.n_dims == 0 && info.n_labels == 0;
}

static bool embed(tern_model *model, const embed_args *args, const texts *t, rows_fn on_rows,
                  void *user) {
    size_t n_dims = dims_of(model, args), n_cut = 0;
    float *rows = must_alloc(NULL, PIECE * n_dims, sizeof *rows);
    bool *was_cut = must_alloc(NULL, PIECE, sizeof *was_cut), ok = true;
    progress p = {.n_all = t->n};
    tern_embed_params params = args->params;
    params.was_cut = was_cut;
    params.on_progress = on_embedded;
    params.user = &p;
    for (; ok && p.first < t->n; p.first += p.n) {
        tern_error err = {0};
        p.n = t->n - p.first < PIECE ? t->n - p.first : PIECE;
        tern_status done = tern_embed(model, t->list + p.first, p.n, &params, rows, &err);
        ok = done == TERN_OK;
        if (!ok) end_progress();
        if (!ok && lacks_pooling(model))
            fail("%s: --pooling", err.message);
        else
            exit_status(done, &err);
        for (size_t i = 0; ok && i < p.n; i++) n_cut += was_cut[i];
        ok = ok && on_rows(user, rows, p.first, p.n);
    }
    if (ok && n_cut)
        fprintf(stderr, "note: %zu of %zu texts were cut to the greatest length\n", n_cut, t->n);
    free(rows);
    free(was_cut);
    return ok;
}

static bool write_rows(void *user, const float *rows, size_t first, size_t n) {
    sink *s = user;
    for (size_t i = 0; i < n; i++)
        if (!write_row(s, rows + i * s->all.n_dims, "embedding", first + i)) return false;
    return true;
}

static int run_embed(const command *self, embed_args *args, const char **words, int n_words) {
    int status = EXIT_FAILED;
    texts t = {0};
    sink s = {0};
    if (gather(&t, args, words, n_words)) {
        tern_model *model = open_model(self, &args->model, &status);
        if (model) {
            bool ok = open_sink(&s, args, t.n, dims_of(model, args)) &&
                      embed(model, args, &t, write_rows, &s) && finish_sink(&s);
            status = ok ? EXIT_OK : EXIT_FAILED;
        }
        tern_model_close(model);
    }
    close_sink(&s);
    free_texts(&t);
    return status;
}

// ---- Images -----------------------------------------------------------------------------------

#define IMAGES 64 // in memory at once

static bool embed_images(tern_model *model, const embed_args *args, sink *s) {
    float *rows = must_alloc(NULL, IMAGES * s->all.n_dims, sizeof *rows);
    bool ok = true;
    for (size_t first = 0; ok && first < args->images.n; first += IMAGES) {
        tern_image images[IMAGES] = {{0}};
        tern_error err = {0};
        size_t left = args->images.n - first, n = left < IMAGES ? left : IMAGES;
        ok = read_images(images, args->images.items + first, (int)n, false) &&
             (tern_embed_images(model, images, n, rows, &err) == TERN_OK || failed(&err)) &&
             write_rows(s, rows, first, n);
        free_images(images, (int)n);
    }
    free(rows);
    return ok;
}

static int run_images(const command *self, embed_args *args) {
    int status = EXIT_FAILED;
    sink s = {0};
    tern_media_info info;
    tern_model *model = open_model(self, &args->model, &status);
    if (!model) return status;
    tern_model_get_media_info(model, &info);
    bool ok = open_sink(&s, args, args->images.n, (size_t)info.n_dims) &&
              embed_images(model, args, &s) && finish_sink(&s);
    tern_model_close(model);
    close_sink(&s);
    return ok ? EXIT_OK : EXIT_FAILED;
}

// ---- Reranking ----------------------------------------------------------------------------------

typedef struct ranked {
    size_t index;
    float score;
} ranked;

static int better_first(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

// The best first, as lines of JSON; in the order of the documents as an array.
static bool write_ranking(const embed_args *args, const float *scores, size_t n) {
    sink s = {0};
    char line[80];
    tern_error err = {0};
    ranked *list = must_alloc(NULL, n, sizeof *list);
    bool ok = open_sink(&s, args, n, 1);
    for (size_t i = 0; i < n; i++) list[i] = (ranked){i, scores[i]};
    if (args->format == FORMAT_JSON) qsort(list, n, sizeof *list, better_first);
    for (size_t i = 0; ok && i < n; i++) {
        if (args->format != FORMAT_JSON) {
            ok = write_row(&s, &list[i].score, NULL, i);
            continue;
        }
        int length = snprintf(line, sizeof line, "{\"index\": %zu, \"score\": %.9g}\n",
                              list[i].index, (double)list[i].score);
        ok = tern_output_write(s.out, line, (size_t)length, &err) == TERN_OK || failed(&err);
    }
    ok = ok && finish_sink(&s);
    close_sink(&s);
    free(list);
    return ok;
}

static int run_rerank(const command *self, embed_args *args, const char **words, int n_words) {
    int status = EXIT_FAILED;
    texts t = {0};
    tern_error err = {0};
    tern_model *model = NULL;
    if (gather(&t, args, words, n_words)) model = open_model(self, &args->model, &status);
    float *scores = must_alloc(NULL, t.n, sizeof *scores);
    const tern_rerank_params params = {.query = args->rerank,
                                       .n_bytes = strlen(args->rerank),
                                       .instruction = args->params.prefix,
                                       .max_length = args->params.max_length,
                                       .on_progress = show_progress};
    if (model && tern_rerank(model, t.list, t.n, &params, scores, &err) != TERN_OK) {
        end_progress();
        status = exit_status(err.status, &err);
    } else if (model) {
        status = write_ranking(args, scores, t.n) ? EXIT_OK : EXIT_FAILED;
    }
    free(scores);
    tern_model_close(model);
    free_texts(&t);
    return status;
}

// ---- Similarity ---------------------------------------------------------------------------------

static bool keep_rows(void *user, const float *rows, size_t first, size_t n) {
    vectors *v = user;
    v->rows = must_alloc(v->rows, (first + n) * v->n_dims, sizeof *v->rows);
    memcpy(v->rows + first * v->n_dims, rows, n * v->n_dims * sizeof *rows);
    v->n_rows = first + n;
    return true;
}

static bool is_npy(const char *path) {
    size_t n = strlen(path);
    return n > 4 && !strcmp(path + n - 4, ".npy");
}

static bool read_vectors(vectors *v, const char *path) {
    tern_array a = {0};
    tern_error err = {0};
    if (tern_array_read(&a, path, &err) != TERN_OK) return failed(&err);
    bool ok = a.type == TERN_ARRAY_F32 && a.n_dims >= 1 && a.n_dims <= 2;
    if (!ok) {
        fail("%s: expected floats [vectors, dimensions]", path);
    } else {
        v->n_rows = a.n_dims == 2 ? (size_t)a.dims[0] : 1;
        v->n_dims = (size_t)a.dims[a.n_dims - 1];
        v->rows = must_alloc(NULL, v->n_rows * v->n_dims, sizeof *v->rows);
        memcpy(v->rows, a.data, v->n_rows * v->n_dims * sizeof *v->rows);
    }
    tern_array_free(&a);
    return ok;
}

// The vectors of a file, or those of its texts; the model is opened when it is first needed.
static bool load_vectors(vectors *v, const char *path, const command *self, embed_args *args,
                         tern_model **model, int *status) {
    texts t = {0};
    if (is_npy(path)) return read_vectors(v, path);
    bool ok = add_file(&t, path, args);
    if (ok && !*model) *model = open_model(self, &args->model, status);
    ok = ok && *model;
    if (ok) {
        v->n_dims = dims_of(*model, args);
        ok = embed(*model, args, &t, keep_rows, v);
    }
    free_texts(&t);
    return ok;
}

static bool compare(const vectors *a, const vectors *b, const embed_args *args) {
    sink s = {0};
    float *row = must_alloc(NULL, b->n_rows, sizeof *row);
    bool ok = open_sink(&s, args, a->n_rows, b->n_rows);
    for (size_t i = 0; ok && i < a->n_rows; i++) {
        for (size_t k = 0; k < b->n_rows; k++)
            row[k] =
                (float)tern_similarity(a->rows + i * a->n_dims, b->rows + k * a->n_dims, a->n_dims);
        ok = write_row(&s, row, NULL, i);
    }
    ok = ok && finish_sink(&s);
    close_sink(&s);
    free(row);
    return ok;
}

// `tern embed --similarity A B` without a model: B is then the word that otherwise names the model.
static int run_similarity(const command *self, embed_args *args, const char **words, int n_words) {
    const char *paths[2] = {args->similarity, n_words ? words[0] : args->model.path};
    vectors v[2] = {{0}, {0}};
    tern_model *model = NULL;
    int status = EXIT_FAILED;
    if (n_words > 1 || args->files.n || !paths[1])
        return bad_usage("embed: --similarity takes two files (usage: tern embed [MODEL] "
                         "--similarity A B)");
    if (!n_words) args->model.path = NULL;
    bool ok = true;
    for (int i = 0; ok && i < 2; i++)
        ok = load_vectors(&v[i], paths[i], self, args, &model, &status);
    if (ok && v[0].n_dims != v[1].n_dims) {
        fail("%s has vectors of %zu numbers, %s of %zu", paths[0], v[0].n_dims, paths[1],
             v[1].n_dims);
        ok = false;
    }
    ok = ok && compare(&v[0], &v[1], args);
    tern_model_close(model);
    free(v[0].rows);
    free(v[1].rows);
    return ok ? EXIT_OK : status == EXIT_OK ? EXIT_FAILED : status;
}

// ---- Command ------------------------------------------------------------------------------------

#define WORDS_MAX 1024

int cmd_embed(const command *self, int argc, char **argv) {
    embed_args args = {0};
    const char *words[WORDS_MAX];
    const option options[] = {
        {'f', "file", OPTION_TEXTS, &args.files, "FILE",
         "a text for each line; -: standard input (without texts: the default)"},
        {0, "jsonl", OPTION_FLAG, &args.jsonl, NULL,
         "lines are JSON: strings, or objects with a text"},
        {0, "field", OPTION_TEXT, &args.field, "NAME", "which member of the objects (text)"},
        {0, "prompt", OPTION_TEXT, &args.params.prompt, "NAME",
         "one of the model's prompts, in front of each text; \"\": none"},
        {0, "prefix", OPTION_TEXT, &args.params.prefix, "TEXT", "this text instead of a prompt"},
        {0, "max-length", OPTION_COUNT, &args.max_length, "N",
         "tokens of a text, the rest is cut off, 0: as many as the model takes (0)", 0, 1 << 24},
        {0, "dimensions", OPTION_COUNT, &args.n_dims, "N",
         "the first numbers of each vector, 0: all (0)", 0, 1 << 24},
        {0, "pooling", OPTION_CHOICE, &args.model.pooling, "auto|mean|last|cls",
         "how rows become a vector; auto: as the model's files say"},
        {0, "similarity", OPTION_TEXT, &args.similarity, "A B",
         "cosines of each vector of A with each of B: .npy files, or texts"},
        {0, "rerank", OPTION_TEXT, &args.rerank, "QUERY",
         "how well the texts answer it, the best first: of a model that reads both at once"},
        {0, "image", OPTION_TEXTS, &args.images, "FILE",
         "an image instead of a text, of a model that reads images"},
        {0, "format", OPTION_CHOICE, &args.format, "json|npy|raw",
         "a line of JSON for each; an array of numpy; its float32 alone"},
        {'o', "output", OPTION_TEXT, &args.out, "FILE", "- or none: standard output"},
        MODEL_OPTIONS(args.model),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, words, WORDS_MAX, &n, &status)) return status;
    args.params.max_length = args.max_length;
    args.params.n_dims = args.n_dims;
    cancel_on_signals(args.out ? "nothing was written" : "what is printed so far is complete");
    if (args.rerank && args.similarity)
        status = bad_usage("embed: --rerank and --similarity exclude each other");
    else if (args.similarity)
        status = run_similarity(self, &args, words, n);
    else if (args.images.n && (n || args.files.n || args.rerank))
        status = bad_usage("embed: give texts or --image, not both");
    else if (args.images.n)
        status = run_images(self, &args);
    else if (n && args.files.n)
        status = bad_usage("embed: give texts as words or with -f");
    else if (args.rerank)
        status = run_rerank(self, &args, words, n);
    else
        status = run_embed(self, &args, words, n);
    free(args.files.items);
    free(args.images.items);
    return status;
}
