// The checks of `tern diagnose`, for a page.
#include <string.h>
#include "apps/web/web.h"
#include "apps/web/web_args.h"
#include "tern_tools.h"

WEB_EXPORT(web_check) int32_t web_check(const char *json, uint32_t n);

// Receives a piece of the report, as soon as it is known.
WEB_IMPORT(web, report) void js_report(const char *text, uint32_t n);
static bool on_text(void *user, const char *text, size_t n) {
    (void)user;
    js_report(text, (uint32_t)n);
    return true;
}

// Reports the JSON of `tern diagnose --json` piece by piece; returns the number of failed checks.
// May wait for the GPU.
int32_t web_check(const char *json, uint32_t n) {
    static const char *const devices[] = {"cpu", "webgpu", "auto"};
    tern_error err = {0};
    web_args args = {0};
    tern_webgpu_desc webgpu = {.symbol = web_gpu_symbol};
    tern_diagnose_desc desc = {.format = TERN_FORMAT_JSON, .webgpu = &webgpu};
    size_t n_failed = 0;
    int32_t device = 0;
    const web_field fields[] = {
        {"device", WEB_CHOICE, &device, 0, 0, "cpu webgpu auto"},
        {"model", WEB_STRING, &desc.model, 0, 0, NULL},
        {"cpu_features", WEB_STRING, &desc.cpu_features, 0, 0, NULL},
        {"n_threads", WEB_INT, &desc.n_threads, 0, 1024, NULL},
        {"quick", WEB_BOOL, &desc.quick, 0, 0, NULL},
        {"state", WEB_STRING, &webgpu.state_folder, 0, 0, NULL},
    };
    web_gpu_enter(true);
    tern_status status =
        web_args_read(&args, "check", json, n, fields, sizeof fields / sizeof *fields, &err);
    desc.device = devices[device];
    if (status == TERN_OK) status = tern_diagnose(&desc, on_text, NULL, &n_failed, &err);
    web_args_free(&args);
    return status == TERN_OK ? (int32_t)n_failed : web_fail(&err);
}
