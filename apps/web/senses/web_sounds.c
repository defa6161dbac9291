// Sounds, for models that hear (docs/sound.md): the page decodes them, and gives samples.
#include <string.h>
#include "apps/web/web.h"
#include "apps/web/web_args.h"
#include "tern_media.h"

WEB_EXPORT(web_transcribe)
int32_t web_transcribe(int32_t model, const float *samples, uint32_t n_samples, int32_t rate,
                       const char *json, uint32_t n);

// A segment as soon as it is there. The call is suspended meanwhile, where the browser can do so,
// and may be asked to end: 0.
WEB_IMPORT(web, segment) int32_t js_segment(const char *json, uint32_t n);

static bool on_segment(void *user, const tern_segment *s) {
    tern_strbuf b = {0};
    (void)user;
    tern_strbuf_puts(&b, "{\"start\":");
    tern_strbuf_json_number(&b, s->start);
    tern_strbuf_puts(&b, ",\"end\":");
    tern_strbuf_json_number(&b, s->end);
    tern_strbuf_puts(&b, ",\"text\":");
    tern_strbuf_json(&b, s->text, strlen(s->text));
    tern_strbuf_puts(&b, ",\"ids\":[");
    for (int32_t i = 0; i < s->n_ids; i++)
        tern_strbuf_printf(&b, i ? ",%d" : "%d", (int)s->ids[i]);
    tern_strbuf_puts(&b, "]}");
    bool goes_on = !b.failed && js_segment(b.ptr, (uint32_t)b.len) != 0;
    tern_strbuf_free(&b);
    web_gpu_enter(true); // others may have called meanwhile
    return goes_on;
}

// What is said, told segment by segment. The GPU may be waited for.
int32_t web_transcribe(int32_t model, const float *samples, uint32_t n_samples, int32_t rate,
                       const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    tern_transcript out = {0};
    tern_transcribe_params params = {.on_segment = on_segment};
    float seconds = 0, tokens = 0;
    // The samples stay the page's: they are read alone.
    const tern_sound sound = {
        .rate = rate, .n = n_samples, .samples = (float *)(uintptr_t)samples};
    const web_field fields[] = {{"whole", WEB_BOOL, &params.whole, 0, 0, NULL},
                                {"seconds_max", WEB_NUMBER, &seconds, 0, 1e6, NULL},
                                {"tokens_per_second", WEB_NUMBER, &tokens, 0, 1e6, NULL}};
    const web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    web_gpu_enter(true);
    tern_status status = web_args_read(&args, "transcribe", json, n, fields, 3, &err);
    params.seconds_max = (double)seconds;
    params.tokens_per_second = (double)tokens;
    if (status == TERN_OK) status = tern_transcribe(m->model, &sound, &params, &out, &err);
    tern_transcript_free(&out);
    web_args_free(&args);
    return status == TERN_OK ? 0 : web_fail(&err);
}
