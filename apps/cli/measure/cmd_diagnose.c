// tern diagnose: checks that the device works, and computes a model as the CPU does.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

#include <stdlib.h>

int cmd_diagnose(const command *self, int argc, char **argv) {
    tern_diagnose_desc desc = {0};
    bool json = false;
    int status, n;
    size_t n_failed = 0;
    tern_error err = {0};
    const option options[] = {
        {'m', "model", OPTION_TEXT, &desc.model, "MODEL", "also this model's weights and values",
         .position = 1},
        HUB_OPTIONS,
        DEVICE_OPTION(desc.device),
        {'t', "threads", OPTION_COUNT, &desc.n_threads, "N", "threads, 0: one for each core (0)", 0,
         1024},
        FEATURES_OPTION(desc.cpu_features),
        {0, "no-limits", OPTION_FLAG, &desc.quick, NULL, "do not measure the machine"},
        {0, "json", OPTION_FLAG, &json, NULL, "print an array of facts and checks"},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (desc.model && !(desc.model = resolve_model(NULL, desc.model))) return EXIT_FAILED;
    desc.webgpu = cli_webgpu();
    desc.format = json ? TERN_FORMAT_JSON : TERN_FORMAT_TEXT;
    if (!desc.cpu_features) desc.cpu_features = getenv("TERN_CPU_FEATURES");
    status = exit_status(tern_diagnose(&desc, write_out, NULL, &n_failed, &err), &err);
    return status == EXIT_OK && n_failed > 0 ? EXIT_FAILED : status;
}
