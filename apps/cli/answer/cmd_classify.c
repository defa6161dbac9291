// tern classify: labels for images.
#include "apps/cli/console/cli.h"
#include "cli_images.h"

#include <stdlib.h>
#include <string.h>

#define STEP      64 // images in memory at once
#define WORDS_MAX 4096

typedef struct classify_args {
    model_args model;
    const char *labels;
    int top;
    bool json, as_stored;
} classify_args;

typedef struct label_names { // names for the labels, one per line; n 0: the model's
    text source;
    const char **list;
    size_t n;
} label_names;

static bool read_names(label_names *names, const char *path, int32_t n_labels) {
    size_t n = 0;
    if (!path) return true;
    if (!text_read(&names->source, path)) return false;
    names->list = must_alloc(NULL, (size_t)n_labels, sizeof *names->list);
    for (char *at = names->source.ptr; at && *at; n++) {
        char *end = strchr(at, '\n');
        if (n < (size_t)n_labels) names->list[n] = at;
        if (end) *end = 0;
        size_t length = strlen(at);
        if (length && at[length - 1] == '\r') at[length - 1] = 0;
        at = end ? end + 1 : NULL;
    }
    names->n = n;
    if (n == (size_t)n_labels) return true;
    fail("%s: %zu lines, but the model has %d labels", path, n, (int)n_labels);
    return false;
}

static const char *name_of(const label_names *names, const tern_classify_hit *hit) {
    return names->n ? names->list[hit->label_id] : hit->label;
}

static void print_json(const label_names *names, const char *path, const tern_classify_hit *hits,
                       int n_hits) {
    printf("{\"image\": ");
    put_json(stdout, path, strlen(path));
    printf(", \"labels\": [");
    for (int i = 0; i < n_hits; i++) {
        const char *name = name_of(names, &hits[i]);
        printf("%s{\"id\": %d, \"label\": ", i ? ", " : "", (int)hits[i].label_id);
        put_json(stdout, name, strlen(name));
        put_number(stdout, "probability", "%.9g", (double)hits[i].probability);
        put_number(stdout, "score", "%.9g", (double)hits[i].score);
        putchar('}');
    }
    printf("]}\n");
}

static void print_text(const label_names *names, const char *path, const tern_classify_hit *hits,
                       int n_hits) {
    printf("%s\n", path);
    for (int i = 0; i < n_hits; i++)
        printf("  %5.1f%%  %s\n", 100 * (double)hits[i].probability, name_of(names, &hits[i]));
}

static bool classify(tern_model *model, const classify_args *args, const label_names *names,
                     const char **paths, int n_paths) {
    tern_media_info info;
    tern_model_get_media_info(model, &info);
    int n_hits = args->top < info.n_labels ? args->top : info.n_labels;
    tern_classify_hit *hits = must_alloc(NULL, (size_t)STEP * (size_t)n_hits, sizeof *hits);
    const tern_classify_params params = {.n_hits = n_hits};
    bool ok = true;
    for (int first = 0; ok && first < n_paths && !ferror(stdout); first += STEP) {
        tern_image images[STEP] = {{0}};
        tern_error err = {0};
        int n = n_paths - first < STEP ? n_paths - first : STEP;
        ok = read_images(images, paths + first, n, args->as_stored);
        if (ok && tern_classify(model, images, (size_t)n, &params, hits, &err) != TERN_OK) {
            exit_status(err.status, &err);
            ok = false;
        }
        for (int i = 0; ok && i < n; i++)
            (args->json ? print_json : print_text)(names, paths[first + i],
                                                   hits + (size_t)i * (size_t)n_hits, n_hits);
        free_images(images, n);
    }
    free(hits);
    return ok;
}

int cmd_classify(const command *self, int argc, char **argv) {
    classify_args args = {.top = 5};
    const char *paths[WORDS_MAX];
    const option options[] = {
        {'k', "top", OPTION_COUNT, &args.top, "N", "labels of each image, the likeliest first (5)",
         1, 1 << 20},
        {0, "labels", OPTION_TEXT, &args.labels, "FILE",
         "names of the labels, a line each, where the model's files have none"},
        {0, "as-stored", OPTION_FLAG, &args.as_stored, NULL,
         "do not turn images as their camera was held"},
        {0, "json", OPTION_FLAG, &args.json, NULL, "a line of JSON for each image"},
        MODEL_OPTIONS(args.model),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, paths, WORDS_MAX, &n, &status)) return status;
    if (n == 0) return bad_usage("classify: no image is given (-: standard input)");
    cancel_on_signals(NULL);
    tern_model *model = open_model(self, &args.model, &status);
    if (!model) return status;
    tern_media_info info;
    label_names names = {.n = 0};
    tern_model_get_media_info(model, &info);
    bool ok;
    if (!info.n_labels) {
        fail("%s: the model %s", args.model.path,
             info.image_width ? "makes vectors of images and no labels (see tern embed --image)"
                              : "reads no images");
        ok = false;
    } else {
        ok = read_names(&names, args.labels, info.n_labels) &&
             classify(model, &args, &names, paths, n);
    }
    free(names.list);
    free(names.source.ptr);
    tern_model_close(model);
    return close_out(ok ? EXIT_OK : EXIT_FAILED);
}
