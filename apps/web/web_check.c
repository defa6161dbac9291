// The ladder of `tern diagnose`, for a page. (The kernels' own checks are a module of their own:
// apps/web/checks.)
#include "web.h"

#include "base/alloc.h"
#include "tern_tools.h"
#include "web_args.h"

WEB_EXPORT(web_check) int32_t web_check(const char *json, uint32_t n);

// Its JSON as `tern diagnose --json` has it, in {"n_failed", "ladder"}. The GPU may be waited for.
int32_t web_check(const char *json, uint32_t n) {
    static const char *const devices[] = {"cpu", "webgpu", "auto"};
    tern_error err = {0};
    web_args args = {0};
    tern_webgpu_desc webgpu = {.symbol = web_gpu_symbol};
    tern_diagnose_desc desc = {.format = TERN_FORMAT_JSON, .webgpu = &webgpu};
    tern_strbuf text = {0};
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
    if (status == TERN_OK) status = tern_diagnose(&desc, web_append, &text, &n_failed, &err);
    int32_t answer = status == TERN_OK ? 0 : web_fail(&err);
    if (answer == 0) {
        tern_strbuf *b = web_result_begin();
        tern_strbuf_printf(b, "{\"n_failed\":%zu,\"ladder\":", n_failed);
        tern_strbuf_append(b, tern_strbuf_text(&text), text.len);
        tern_strbuf_puts(b, "}");
        answer = web_result_end();
    }
    tern_strbuf_free(&text);
    web_args_free(&args);
    return answer;
}
