// Speech (docs/sound.md): a model and a codec speak a text step by step, so that the page can run
// in between and may stop.
#include "apps/web/web.h"
#include "apps/web/web_args.h"
#include "base/alloc.h"
#include "tern_audio.h"

WEB_EXPORT(web_speak) int32_t web_speak(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_speak_next) int32_t web_speak_next(int32_t id);
WEB_EXPORT(web_speak_close) int32_t web_speak_close(int32_t id);

typedef struct speech {
    int32_t id;
    const web_model *model, *codec;
    tern_speech *speech;
    struct speech *next;
} speech;
static speech *speeches;
static int32_t last_speech;

static void close_at(speech **at) {
    speech *s = *at;
    *at = s->next;
    tern_speech_close(s->speech);
    tern_free(s);
}

void web_speeches_close(const web_model *m) {
    for (speech **at = &speeches; *at;)
        if ((*at)->model == m || (*at)->codec == m)
            close_at(at);
        else
            at = &(*at)->next;
}

// The request.
typedef struct request {
    web_args args;
    const char *text;
    const tern_json *ids;
    int32_t codec;
    tern_speak_params params;
} request;

static tern_status read_request(request *r, const char *json, size_t n, tern_error *err) {
    uint64_t speaker = 0;
    int32_t n_speaker = 0;
    float speed = 0, seconds = 0;
    tern_speak_params *p = &r->params;
    const web_field fields[] = {
        {"text", WEB_STRING, &r->text, 0, 0, NULL},
        {"ids", WEB_ARRAY, &r->ids, 0, 0, NULL},
        {"codec", WEB_INT, &r->codec, 0, INT32_MAX, NULL},
        {"voice", WEB_STRING, &p->voice, 0, 0, NULL},
        {"speaker", WEB_COUNT, &speaker, 0, 0, NULL}, // the address where the page put it
        {"n_speaker", WEB_INT, &n_speaker, 0, INT32_MAX, NULL},
        {"temperature", WEB_NUMBER, &p->temperature, -1, 100, NULL},
        {"top_p", WEB_NUMBER, &p->top_p, 0, 1, NULL},
        {"repeat_penalty", WEB_NUMBER, &p->repeat_penalty, 0, 1e6, NULL},
        {"seed", WEB_COUNT, &p->seed, 0, 0, NULL},
        {"speed", WEB_NUMBER, &speed, -1e6, 1e6, NULL},
        {"seconds_max", WEB_NUMBER, &seconds, -1e6, 1e6, NULL},
    };
    TERN_TRY(
        web_args_read(&r->args, "speak", json, n, fields, sizeof fields / sizeof *fields, err));
    p->speaker = (const float *)(uintptr_t)speaker;
    p->n_speaker = (size_t)n_speaker;
    p->speed = (double)speed;
    p->seconds_max = (double)seconds;
    if (!r->text == !r->ids)
        return tern_fail(err, TERN_ERR_ARGUMENT, "speak: give one of \"text\" and \"ids\"");
    return TERN_OK;
}

static tern_status begin(speech *s, const request *r, tern_error *err) {
    tern_model *model = s->model->model, *codec = s->codec->model;
    tern_speak_params params = r->params;
    int32_t *ids = NULL;
    if (r->ids) TERN_TRY(web_args_ids(&r->args, "speak", r->ids, &ids, &params.n_ids, err));
    params.ids = ids;
    tern_status status = tern_speech_open(&s->speech, model, codec, r->text, &params, err);
    tern_free(ids);
    return status;
}

static int32_t add_speech(web_model *m, web_model *codec, const request *r, tern_error *err) {
    speech *s = tern_alloc(TERN_MEM_MISC, sizeof *s);
    if (!s)
        tern_fail_memory(err, sizeof *s);
    else
        *s = (speech){.id = ++last_speech, .model = m, .codec = codec};
    if (!s || begin(s, r, err) != TERN_OK) {
        tern_free(s);
        return web_fail(err);
    }
    s->next = speeches;
    speeches = s;
    return s->id;
}

// Begins a speech; returns its id.
int32_t web_speak(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {.codec = 0};
    web_model *m = web_model_find(model, &err), *codec = NULL;
    if (!m) return web_fail(&err);
    web_gpu_enter(false);
    if (read_request(&r, json, n, &err) == TERN_OK) codec = web_model_find(r.codec, &err);
    int32_t answer = codec ? add_speech(m, codec, &r, &err) : web_fail(&err);
    web_args_free(&r.args);
    return answer;
}

static speech **place_of(int32_t id, tern_error *err) {
    for (speech **at = &speeches; *at; at = &(*at)->next)
        if ((*at)->id == id) return at;
    tern_fail(err, TERN_ERR_ARGUMENT, "there is no speech %d", id);
    return NULL;
}

// One step, by tern_speech_poll: {"at", "n", "done", ...}, with samples in the module's memory,
// valid until the next step, and the text so far. May wait for the GPU.
int32_t web_speak_next(int32_t id) {
    tern_error err = {0};
    const float *samples;
    size_t n;
    bool done;
    tern_speak_stats now;
    const tern_speak_stats *stats = &now;
    speech **at = place_of(id, &err);
    if (!at) return web_fail(&err);
    web_gpu_enter(true);
    if (tern_speech_poll((*at)->speech, &samples, &n, &done, &err) != TERN_OK)
        return web_fail(&err);
    tern_speech_get_stats((*at)->speech, &now);
    tern_strbuf *b = web_result_begin();
    tern_strbuf_printf(
        b, "{\"at\":%zu,\"n\":%zu,\"done\":%s,\"stats\":{\"rate\":%d,\"n_frames\":%d,\"seconds\":",
        (size_t)samples, n, done ? "true" : "false", (int)stats->rate, (int)stats->n_frames);
    tern_strbuf_json_number(b, stats->seconds);
    tern_strbuf_puts(b, ",\"model_seconds\":");
    tern_strbuf_json_number(b, stats->model_seconds);
    tern_strbuf_puts(b, ",\"codec_seconds\":");
    tern_strbuf_json_number(b, stats->codec_seconds);
    tern_strbuf_puts(b, ",\"first_seconds\":");
    tern_strbuf_json_number(b, stats->first_seconds);
    tern_strbuf_printf(b, ",\"is_cut\":%s}}", stats->is_cut ? "true" : "false");
    return web_result_end();
}

int32_t web_speak_close(int32_t id) {
    tern_error err = {0};
    speech **at = place_of(id, &err);
    if (!at) return web_fail(&err);
    web_gpu_enter(false);
    close_at(at);
    return 0;
}
