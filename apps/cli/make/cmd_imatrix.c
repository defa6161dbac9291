// tern imatrix: how large the inputs of each matrix are, for tern convert --imatrix.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

#include <stdlib.h>
#include <string.h>

int cmd_imatrix(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    tern_imatrix_desc desc = {.on_progress = show_progress};
    tern_imatrix_stats stats;
    const char *path = NULL, *out = NULL;
    tern_error err = {0};
    text words = {0};
    int status, n;
    const option options[] = {
        {'f', "file", OPTION_TEXT, &path, "FILE", "the text; -: standard input", .position = 2},
        {'o', "output", OPTION_TEXT, &out, "FILE", "where it goes (imatrix.gguf)"},
        {0, "window", OPTION_COUNT, &desc.window, "N",
         "tokens that are read together (512, at most the context)", 2, 1 << 24},
        {0, "limit", OPTION_COUNT, &desc.n_windows, "N", "windows at most, 0: all (0)"},
        MODEL_OPTIONS(model_options),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!path) return bad_usage("imatrix: no text (usage: tern %s %s)", self->name, self->usage);
    if (!text_read(&words, path)) return EXIT_FAILED;
    if (!out) out = "imatrix.gguf";
    desc.text = words.ptr;
    desc.n_bytes = words.n;
    desc.dataset = strcmp(path, "-") == 0 ? NULL : path;
    cancel_on_signals("nothing was written");
    tern_model *model = open_model(self, &model_options, &status);
    if (model) {
        tern_status done = tern_imatrix(model, out, &desc, &stats, &err);
        end_progress();
        status = exit_status(done, &err);
        if (done == TERN_OK)
            printf("%s: %zu matri%s, %lld tokens in %lld window%s of %d\n", out, stats.n_matrices,
                   stats.n_matrices == 1 ? "x" : "ces", (long long)stats.n_tokens,
                   (long long)stats.n_windows, many((uint64_t)stats.n_windows), stats.window);
    }
    tern_model_close(model);
    free(words.ptr);
    return status;
}
