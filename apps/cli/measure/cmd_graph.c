// tern graph: a model's graph, after each pass.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

int cmd_graph(const command *self, int argc, char **argv) {
    model_args args = {0};
    int format = TERN_FORMAT_TEXT, status, n;
    const char *graph = NULL;
    tern_error err = {0};
    const option options[] = {
        {0, "graph", OPTION_TEXT, &graph, "NAME", "only this one of the model's graphs (all)"},
        {0, "format", OPTION_CHOICE, &format, "text|json|dot", "dot: for Graphviz"},
        MODEL_OPTIONS(args),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    tern_model *model = open_model(self, &args, &status);
    if (!model) return status;
    status = exit_status(
        tern_graph_report(model, graph, (tern_format)format, write_out, NULL, &err), &err);
    tern_model_close(model);
    return status;
}
