// tern compute: runs one of a model's graphs on arrays from files.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

#include <stdlib.h>
#include <string.h>

typedef struct arrays {
    tern_array *list; // owns the names
    const char **paths;
    size_t n;
} arrays;

static void free_arrays(arrays *a) {
    for (size_t i = 0; i < a->n; i++) {
        tern_array_free(&a->list[i]);
        free((void *)(uintptr_t)a->list[i].name);
    }
    free(a->list);
    free(a->paths);
}

// "NAME=FILE" each. Returns false after printing an error.
static bool name_arrays(arrays *a, const string_list *words, const char *which) {
    a->list = must_alloc(NULL, words->n + 1, sizeof *a->list);
    a->paths = must_alloc(NULL, words->n + 1, sizeof *a->paths);
    for (size_t i = 0; i < words->n; i++) {
        const char *word = words->items[i], *equals = strchr(word, '=');
        if (!equals || equals == word || !equals[1]) {
            bad_usage("compute: %s '%s': expected NAME=FILE.npy", which, word);
            return false;
        }
        size_t n = (size_t)(equals - word);
        char *name = must_alloc(NULL, n + 1, 1);
        memcpy(name, word, n);
        name[n] = 0;
        a->list[a->n] = (tern_array){.name = name};
        a->paths[a->n++] = equals + 1;
    }
    return true;
}

static int compute(tern_model *model, const tern_compute_desc *desc, const arrays *out) {
    tern_error err = {0};
    tern_status status = tern_compute(model, desc, &err);
    for (size_t i = 0; i < out->n && status == TERN_OK; i++)
        status = tern_array_write(&out->list[i], out->paths[i], &err);
    return exit_status(status, &err);
}

static int read_all(arrays *in) {
    tern_error err = {0};
    for (size_t i = 0; i < in->n; i++)
        if (tern_array_read(&in->list[i], in->paths[i], &err) != TERN_OK)
            return fail("%s", err.message);
    return EXIT_OK;
}

static int run(const command *self, model_args *args, tern_compute_desc *desc, arrays *in,
               arrays *out, bool json) {
    int status = read_all(in); // before opening the model, which takes longer
    tern_error err = {0};
    tern_model *model = status == EXIT_OK ? open_model(self, args, &status) : NULL;
    if (!model) return status;
    desc->inputs = in->list;
    desc->n_inputs = in->n;
    desc->outputs = out->list;
    desc->n_outputs = out->n;
    if (in->n > 0)
        status = compute(model, desc, out);
    else
        status = exit_status(tern_compute_report(model, desc->graph,
                                                 json ? TERN_FORMAT_JSON : TERN_FORMAT_TEXT,
                                                 write_out, NULL, &err),
                             &err);
    tern_model_close(model);
    return status;
}

int cmd_compute(const command *self, int argc, char **argv) {
    model_args args = {0};
    tern_compute_desc desc = {0};
    string_list in_words = {0}, out_words = {0};
    arrays in = {0}, out = {0};
    int kv_type = TERN_KV_AUTO, status, n;
    bool json = false;
    const option options[] = {
        {0, "graph", OPTION_TEXT, &desc.graph, "NAME", "which of the model's graphs (its first)"},
        {0, "in", OPTION_TEXTS, &in_words, "NAME=FILE",
         "an input, of a .npy file; may be repeated"},
        {0, "out", OPTION_TEXTS, &out_words, "NAME=FILE",
         "writes a value to a .npy file; may be repeated"},
        {0, "kv-type", OPTION_CHOICE, &kv_type, "auto|f32|f16|q8_0|q4_0", "keys and values (f32)"},
        {0, "json", OPTION_FLAG, &json, NULL, "list the graphs as JSON"},
        MODEL_OPTIONS(args),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    desc.kv_type = (tern_kv_type)kv_type;
    if (!in_words.n != !out_words.n)
        status = bad_usage("compute: %s (usage: tern compute %s)",
                           in_words.n ? "--in without --out" : "--out without --in", self->usage);
    else if (!name_arrays(&in, &in_words, "--in") || !name_arrays(&out, &out_words, "--out"))
        status = EXIT_USAGE;
    else
        status = run(self, &args, &desc, &in, &out, json);
    free_arrays(&in);
    free_arrays(&out);
    free(in_words.items);
    free(out_words.items);
    return status;
}
