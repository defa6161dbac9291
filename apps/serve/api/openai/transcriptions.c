// OpenAI's POST /v1/audio/transcriptions: a form with a sound file becomes text. A task computes
// it, piece by piece, so that neither a stream nor another task waits for a recording; with
// `stream` its segments are sent as they come.
#include <string.h>
#include "apps/serve/request/away.h"
#include "apps/serve/request/request_sounds.h"
#include "apps/serve/api/interfaces.h"
#include "base/alloc.h"
#include "base/os/os_thread.h"
#include "tern_audio.h"

// ---- Computing ---------------------------------------------------------------------------------

typedef enum form_of { FORM_JSON, FORM_TEXT, FORM_VERBOSE, FORM_SRT, FORM_VTT, FORMS } form_of;
static const char *const form_names[FORMS] = {"json", "text", "verbose_json", "srt", "vtt"};

typedef struct transcribing {
    task task;
    served *model;
    char *bytes; // of the file
    size_t n;
    form_of form;
    char language[8]; // "": not given
    bool translates, streams;
    tasks *tasks;
    tern_mutex lock;
    tern_strbuf unsent; // under the lock: not sent yet
    bool has_sent;      // used by the task's thread
    tern_transcription found;
    tern_error err;
} transcribing;

static bool go_on(void *user, const tern_segment *segment) {
    transcribing *t = user;
    if (t->streams) {
        tern_mutex_lock(&t->lock);
        tern_strbuf_printf(&t->unsent, "%s%s", t->has_sent ? " " : "", segment->text);
        tern_mutex_unlock(&t->lock);
        t->has_sent = true;
        tasks_report(t->tasks, &t->task);
    }
    return true;
}

static void run(task *e) {
    transcribing *t = (transcribing *)e;
    tern_sound sound;
    tern_media_info info;
    tern_model_get_media_info(t->model->model, &info);
    const tern_sound_desc desc = {.rate = info.audio_rate};
    const tern_transcribe_params params = {.language = t->language[0] ? t->language : NULL,
                                           .translate = t->translates,
                                           .on_segment = go_on,
                                           .user = t};
    if (tern_sound_open_bytes(&sound, t->bytes, t->n, &desc, &t->err) != TERN_OK) return;
    sound_transcribe(e, t->model->model, &sound, &params, &t->found, &t->err);
    tern_sound_close(&sound);
}

// ---- The answer --------------------------------------------------------------------------------

static void put_all(const tern_transcription *t, tern_strbuf *out) {
    for (size_t i = 0; i < t->n; i++)
        tern_strbuf_printf(out, "%s%s", i ? " " : "", t->segments[i].text);
}

static void put_time(double seconds, char point, tern_strbuf *out) {
    long long ms = (long long)(seconds * 1000 + 0.5);
    tern_strbuf_printf(out, "%02lld:%02lld:%02lld%c%03lld", ms / 3600000, ms / 60000 % 60,
                       ms / 1000 % 60, point, ms % 1000);
}

static void put_subtitles(const tern_transcription *t, bool vtt, tern_strbuf *out) {
    char point = vtt ? '.' : ',';
    if (vtt) tern_strbuf_puts(out, "WEBVTT\n\n");
    for (size_t i = 0; i < t->n; i++) {
        if (!vtt) tern_strbuf_printf(out, "%zu\n", i + 1);
        put_time(t->segments[i].start, point, out);
        tern_strbuf_puts(out, " --> ");
        put_time(t->segments[i].end, point, out);
        tern_strbuf_printf(out, "\n%s\n\n", t->segments[i].text);
    }
}

static void put_segment(tern_json_writer *w, const tern_segment *s, size_t i) {
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "id", (int64_t)i);
    tern_json_put_number(w, "start", s->start);
    tern_json_put_number(w, "end", s->end);
    tern_json_put_text(w, "text", s->text);
    tern_json_open(w, "tokens", '[');
    for (int32_t k = 0; k < s->n_ids; k++) tern_json_put_int(w, NULL, s->ids[k]);
    tern_json_close(w, ']');
    tern_json_close(w, '}');
}

static void put_json(const transcribing *t, tern_strbuf *out) {
    tern_strbuf text = {0};
    tern_json_writer w = {.out = out};
    put_all(&t->found, &text);
    tern_json_open(&w, NULL, '{');
    if (t->form == FORM_VERBOSE) {
        tern_json_put_text(&w, "task", t->translates ? "translate" : "transcribe");
        if (t->found.language[0]) tern_json_put_text(&w, "language", t->found.language);
        tern_json_put_number(&w, "duration", t->found.seconds);
    }
    tern_json_put_text(&w, "text", tern_strbuf_text(&text));
    if (t->form == FORM_VERBOSE) {
        tern_json_open(&w, "segments", '[');
        for (size_t i = 0; i < t->found.n; i++) put_segment(&w, &t->found.segments[i], i);
        tern_json_close(&w, ']');
    }
    tern_json_close(&w, '}');
    out->failed |= text.failed;
    tern_strbuf_free(&text);
}

static void answer(request *req, const transcribing *t) {
    api_error e = {0};
    tern_strbuf out = {0};
    if (t->err.status != TERN_OK) {
        api_fail_status(&e, &t->err, "file");
        reply_error(req, &e);
        return;
    }
    if (t->form == FORM_JSON || t->form == FORM_VERBOSE) {
        put_json(t, &out);
        reply_json(req, &out);
    } else {
        if (t->form == FORM_TEXT)
            put_all(&t->found, &out);
        else
            put_subtitles(&t->found, t->form == FORM_VTT, &out);
        if (t->form == FORM_TEXT) tern_strbuf_putc(&out, '\n');
        reply_whole(req, 200, t->form == FORM_VTT ? "text/vtt" : "text/plain; charset=utf-8", &out);
    }
    tern_strbuf_free(&out);
}

// ---- A stream ----------------------------------------------------------------------------------

static void send_event(request *req, const char *type, const char *member, const char *text) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    if (!req->is_stream) reply_stream(req, "text/event-stream");
    tern_strbuf_puts(&out, "data: ");
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "type", type);
    tern_json_put_text(&w, member, text);
    tern_json_close(&w, '}');
    tern_strbuf_puts(&out, "\n\n");
    reply_piece(req, &out);
    tern_strbuf_free(&out);
}

static void send_progress(task *e) {
    transcribing *t = (transcribing *)e;
    tern_mutex_lock(&t->lock);
    tern_strbuf text = t->unsent;
    t->unsent = (tern_strbuf){0};
    tern_mutex_unlock(&t->lock);
    if (e->user && text.len > 0)
        send_event(e->user, "transcript.text.delta", "delta", tern_strbuf_text(&text));
    tern_strbuf_free(&text);
}

static void end_stream(request *req, const transcribing *t) {
    tern_strbuf text = {0};
    put_all(&t->found, &text);
    send_event(req, "transcript.text.done", "text", tern_strbuf_text(&text));
    tern_strbuf_free(&text);
    reply_end(req);
}

static void free_transcribing(transcribing *t) {
    if (!t) return;
    tern_mutex_free(&t->lock);
    tern_strbuf_free(&t->unsent);
    tern_transcription_free(&t->found);
    tern_free(t->bytes);
    tern_free(t);
}

static void done(task *e) {
    transcribing *t = (transcribing *)e;
    request *req = e->user;
    if (req) {
        req->task = NULL;
        if (t->streams && t->err.status == TERN_OK)
            end_stream(req, t);
        else
            answer(req, t);
    }
    registry_release(t->model);
    free_transcribing(t);
}

// ---- The request -------------------------------------------------------------------------------

static transcribing *new_transcribing(request *req, tern_str file) {
    transcribing *t = tern_alloc(TERN_MEM_SESSION, sizeof *t);
    if (!t) return NULL;
    tern_mutex_init(&t->lock);
    t->bytes = tern_strndup(TERN_MEM_SESSION, file.ptr, file.len);
    if (!t->bytes) {
        free_transcribing(t);
        return NULL;
    }
    t->task = (task){.run = run, .done = done, .progress = send_progress};
    t->tasks = req->server->tasks;
    t->model = req->model;
    t->n = file.len;
    return t;
}

static void read_request(const request *req, tern_str *file, form_of *form, api_error *e) {
    tern_str name = form_field(req->http, "response_format");
    *file = form_field(req->http, "file");
    *form = FORM_JSON;
    while (name.ptr && *form < FORMS && !tern_str_is(name, form_names[*form])) ++*form;
    tern_media_info info;
    tern_model_get_media_info(req->model->model, &info);
    if (!info.is_asr)
        api_fail(e, 400, "unsupported_model", "model", "this model does not transcribe");
    else if (!file->ptr)
        api_fail(e, 400, NULL, "file",
                 "'file' is missing: a form (multipart/form-data) with the bytes of a sound file");
    else if (*form == FORMS)
        api_fail(e, 400, NULL, "response_format",
                 "'response_format' must be json, text, verbose_json, srt or vtt");
    else if (form_has(req->http, "timestamp_granularities[]", "word"))
        api_fail(e, 400, "unsupported_parameter", "timestamp_granularities[]",
                 "'timestamp_granularities[]' must be segment: this server times no single words");
    else if (form_has(req->http, "include[]", "logprobs"))
        api_fail(e, 400, "unsupported_parameter", "include[]",
                 "'include[]' of logprobs is not supported by this server");
    else if (req->server->stopping)
        api_fail(e, 503, "stopping", NULL, "the server is stopping");
}

static void transcribe(request *req, bool translates) {
    api_error e = {0};
    tern_str file, stream = form_field(req->http, "stream");
    tern_str language = form_field(req->http, "language");
    form_of form;
    read_request(req, &file, &form, &e);
    transcribing *t = e.status ? NULL : new_transcribing(req, file);
    if (!e.status && !t) api_fail_memory(&e);
    if (!e.status) {
        t->form = form;
        t->translates = translates;
        t->streams = stream.ptr && tern_str_is(stream, "true");
        if (language.len > 0 && language.len < sizeof t->language)
            memcpy(t->language, language.ptr, language.len);
        request_run(req, req->server->tasks, &t->task, t->model);
        return;
    }
    free_transcribing(t);
    reply_error(req, &e);
}

void openai_transcriptions(request *req) { transcribe(req, false); }
void openai_translations(request *req) { transcribe(req, true); }
