// Sounds, for speech recognition (docs/sound.md): the page decodes them and passes samples.
#include <string.h>
#include "apps/web/web.h"
#include "apps/web/web_args.h"
#include "base/alloc.h"
#include "tern_audio.h"

WEB_EXPORT(web_transcribe)
int32_t web_transcribe(int32_t model, const float *samples, uint32_t n_samples, int32_t rate,
                       const char *json, uint32_t n);
WEB_EXPORT(web_transcriber) int32_t web_transcriber(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_transcriber_feed)
int32_t web_transcriber_feed(int32_t id, const float *samples, uint32_t n_samples);
WEB_EXPORT(web_transcriber_end) int32_t web_transcriber_end(int32_t id);
WEB_EXPORT(web_transcriber_close) int32_t web_transcriber_close(int32_t id);

// Receives a segment as soon as it is complete. The call is suspended meanwhile if the browser can;
// returning 0 ends the transcription.
WEB_IMPORT(web, segment) int32_t js_segment(const char *json, uint32_t n);

static bool tell(const tern_segment *s, bool partial) {
    tern_strbuf b = {0};
    tern_strbuf_puts(&b, "{\"start\":");
    tern_strbuf_json_number(&b, s->start);
    tern_strbuf_puts(&b, ",\"end\":");
    tern_strbuf_json_number(&b, s->end);
    tern_strbuf_puts(&b, ",\"text\":");
    tern_strbuf_json(&b, s->text, strlen(s->text));
    tern_strbuf_puts(&b, ",\"ids\":[");
    for (int32_t i = 0; i < s->n_ids; i++) tern_strbuf_printf(&b, i ? ",%d" : "%d", (int)s->ids[i]);
    tern_strbuf_puts(&b, partial ? "],\"partial\":true}" : "]}");
    bool goes_on = !b.failed && js_segment(b.ptr, (uint32_t)b.len) != 0;
    tern_strbuf_free(&b);
    web_gpu_enter(true); // other calls may have come meanwhile
    return goes_on;
}

static bool on_segment(void *user, const tern_segment *s) {
    (void)user;
    return tell(s, false);
}

static bool on_partial(void *user, const tern_segment *s) {
    (void)user;
    return tell(s, true);
}

// Reads the parameters of a whole or live transcription. The texts live as long as args.
static tern_status read_params(web_args *args, const char *what, const char *json, size_t n,
                               tern_transcribe_params *params, tern_error *err) {
    float seconds = 0, tokens = 0;
    bool partial = false;
    const web_field fields[] = {{"whole", WEB_BOOL, &params->whole, 0, 0, NULL},
                                {"seconds_max", WEB_NUMBER, &seconds, 0, 1e6, NULL},
                                {"tokens_per_second", WEB_NUMBER, &tokens, 0, 1e6, NULL},
                                {"language", WEB_STRING, &params->language, 0, 0, NULL},
                                {"translate", WEB_BOOL, &params->translate, 0, 0, NULL},
                                {"no_fallback", WEB_BOOL, &params->no_fallback, 0, 0, NULL},
                                {"partial", WEB_BOOL, &partial, 0, 0, NULL}};
    TERN_TRY(web_args_read(args, what, json, n, fields, sizeof fields / sizeof *fields, err));
    params->seconds_max = (double)seconds;
    params->tokens_per_second = (double)tokens;
    params->on_segment = on_segment;
    if (partial) params->on_partial = on_partial;
    return TERN_OK;
}

// Transcribes, and reports segment by segment; leaves {"language"}. May wait for the GPU.
int32_t web_transcribe(int32_t model, const float *samples, uint32_t n_samples, int32_t rate,
                       const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    tern_transcription out = {0};
    tern_transcribe_params params = {0};
    // The samples stay the page's: they are only read.
    const tern_sound sound = {.rate = rate, .n = n_samples, .samples = (float *)(uintptr_t)samples};
    const web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    web_gpu_enter(true);
    tern_status status = read_params(&args, "transcribe", json, n, &params, &err);
    if (status == TERN_OK) status = tern_transcribe(m->model, &sound, &params, &out, &err);
    web_args_free(&args);
    char language[sizeof out.language];
    memcpy(language, out.language, sizeof language);
    tern_transcription_free(&out);
    if (status != TERN_OK) return web_fail(&err);
    tern_strbuf *b = web_result_begin();
    tern_strbuf_puts(b, "{\"language\":");
    tern_strbuf_json(b, language, strlen(language));
    tern_strbuf_puts(b, "}");
    return web_result_end();
}

// ---- While it is said ---------------------------------------------------------------------------

typedef struct live_transcriber {
    int32_t id;
    const web_model *model;
    tern_transcriber *transcriber;
    struct live_transcriber *next;
} live_transcriber;
static live_transcriber *transcribers;
static int32_t last_id;

static void close_at(live_transcriber **at) {
    live_transcriber *h = *at;
    *at = h->next;
    tern_transcriber_close(h->transcriber);
    tern_free(h);
}

void web_transcribers_close(const web_model *m) {
    for (live_transcriber **at = &transcribers; *at;)
        if ((*at)->model == m)
            close_at(at);
        else
            at = &(*at)->next;
}

static live_transcriber **place_of(int32_t id, tern_error *err) {
    for (live_transcriber **at = &transcribers; *at; at = &(*at)->next)
        if ((*at)->id == id) return at;
    tern_fail(err, TERN_ERR_ARGUMENT, "there is no transcription %d", id);
    return NULL;
}

// The id of a live transcription, which the page then feeds.
int32_t web_transcriber(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    tern_transcribe_params params = {0};
    web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    web_gpu_enter(false);
    live_transcriber *h = tern_alloc(TERN_MEM_MISC, sizeof *h);
    tern_status status = h ? read_params(&args, "transcriber", json, n, &params, &err)
                           : tern_fail_memory(&err, sizeof *h);
    if (status == TERN_OK) status = tern_transcriber_open(&h->transcriber, m->model, &params, &err);
    web_args_free(&args);
    if (status != TERN_OK) {
        tern_free(h);
        return web_fail(&err);
    }
    h->id = ++last_id;
    h->model = m;
    h->next = transcribers;
    transcribers = h;
    return h->id;
}

// Has everything computed that can be said by now.
static int32_t finish(tern_transcriber *t, tern_status status, tern_error *err) {
    for (bool done = false; status == TERN_OK && !done;)
        status = tern_transcriber_poll(t, NULL, &done, err);
    return status == TERN_OK ? 0 : web_fail(err);
}

// Takes more samples, or the end; reports the segments completed meanwhile. May wait for the GPU.
int32_t web_transcriber_feed(int32_t id, const float *samples, uint32_t n_samples) {
    tern_error err = {0};
    live_transcriber **at = place_of(id, &err);
    if (!at) return web_fail(&err);
    web_gpu_enter(true);
    tern_transcriber *t = (*at)->transcriber;
    return finish(t, tern_transcriber_feed(t, samples, n_samples, &err), &err);
}

int32_t web_transcriber_end(int32_t id) {
    tern_error err = {0};
    live_transcriber **at = place_of(id, &err);
    if (!at) return web_fail(&err);
    web_gpu_enter(true);
    tern_transcriber *t = (*at)->transcriber;
    return finish(t, tern_transcriber_end(t, &err), &err);
}

int32_t web_transcriber_close(int32_t id) {
    tern_error err = {0};
    live_transcriber **at = place_of(id, &err);
    if (!at) return web_fail(&err);
    web_gpu_enter(false);
    close_at(at);
    return 0;
}
