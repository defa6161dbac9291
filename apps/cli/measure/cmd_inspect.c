// tern inspect: the contents of a model file.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

int cmd_inspect(const command *self, int argc, char **argv) {
    bool tensors = false, histogram = false, json = false;
    const char *path = NULL;
    const option options[] = {
        {'m', "model", OPTION_TEXT, &path, "MODEL", "a .gguf file, a Hugging Face folder or a name",
         .position = 1},
        HUB_OPTIONS,
        {0, "tensors", OPTION_FLAG, &tensors, NULL, "list every tensor"},
        {0, "histogram", OPTION_FLAG, &histogram, NULL, "draw the shares of -1, 0 and 1"},
        {0, "json", OPTION_FLAG, &json, NULL, "print JSON"},
        OPTIONS_END,
    };
    int status, n;
    tern_error err = {0};
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!path) return bad_usage("inspect: no model (usage: tern inspect %s)", self->usage);
    const tern_inspect_desc desc = {
        .format = json ? TERN_FORMAT_JSON : TERN_FORMAT_TEXT,
        .tensors = tensors,
        .histogram = histogram,
    };
    path = resolve_model(NULL, path);
    if (!path) return EXIT_FAILED;
    return exit_status(tern_inspect(path, &desc, write_out, NULL, &err), &err);
}
