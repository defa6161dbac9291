// OpenAI's POST /v1/audio/speech: a text becomes sound. A task computes it, piece by piece, so that
// neither a stream nor another task waits for it; samples are sent as they come, as raw 16-bit PCM
// or as a WAV of unspecified length; other formats are encoded when all samples are there.
#include <string.h>
#include "apps/serve/request/fields.h"
#include "apps/serve/request/away.h"
#include "apps/serve/api/interfaces.h"
#include "base/alloc.h"
#include "base/os/os_thread.h"
#include "tern_audio.h"

#define PIECE 1024 // samples

typedef enum sound_form { FORM_WAV, FORM_PCM, FORM_MP3, FORM_OPUS, FORM_FLAC, FORMS } sound_form;
static const struct {
    const char *name, *type;
    bool is_whole; // sent only when complete
} forms[FORMS] = {{"wav", "audio/wav", false},
                  {"pcm", "audio/pcm", false},
                  {"mp3", "audio/mpeg", true},
                  {"opus", "audio/ogg", true},
                  {"flac", "audio/flac", true}};

typedef struct speaking {
    task task;
    served *model;
    tern_model *codec;
    tasks *tasks;
    char *text, *voice; // voice NULL: none is named
    sound_form form;
    tern_speak_params params;
    tern_error err;
    tern_sound sound; // so far, if is_whole
    size_t capacity;
    // Under the lock: samples not sent yet.
    tern_mutex lock;
    tern_strbuf ready;
} speaking;

// ---- Computing, on the task's thread ---------------------------------------------------------

static bool keep_samples(speaking *s, const float *samples, size_t n) {
    tern_sound *all = &s->sound;
    if (tern_array_reserve(TERN_MEM_SESSION, &all->samples, &s->capacity, (size_t)all->n, n) != 0)
        return false;
    memcpy(all->samples + all->n, samples, n * sizeof *samples);
    all->n += (int64_t)n;
    return true;
}

static bool take_samples(speaking *s, const float *samples, size_t n) {
    if (forms[s->form].is_whole) return keep_samples(s, samples, n);
    tern_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i += PIECE) {
        uint8_t bytes[2 * PIECE];
        size_t now = n - i < PIECE ? n - i : PIECE;
        tern_sound_pcm16(samples + i, now, bytes);
        tern_strbuf_append(&s->ready, bytes, 2 * now);
    }
    bool failed = s->ready.failed;
    tern_mutex_unlock(&s->lock);
    tasks_report(s->tasks, &s->task);
    return !failed;
}

static tern_status speak(speaking *s) {
    tern_speech *speech;
    const float *samples;
    size_t n;
    bool done = false;
    tern_status status =
        tern_speech_open(&speech, s->model->model, s->codec, s->text, &s->params, &s->err);
    while (status == TERN_OK && !done) {
        if (task_pause(&s->task))
            status = tern_speech_poll(speech, &samples, &n, &done, &s->err);
        else
            status = tern_fail(&s->err, TERN_ERR_CANCELLED, "the speech was cancelled");
        if (status == TERN_OK && n > 0 && !take_samples(s, samples, n))
            status = tern_fail_memory(&s->err, n * sizeof *samples);
    }
    tern_speech_close(speech);
    return status;
}

static bool on_file(void *user, const void *bytes, size_t n) {
    speaking *s = user;
    tern_mutex_lock(&s->lock);
    tern_strbuf_append(&s->ready, bytes, n);
    bool failed = s->ready.failed;
    tern_mutex_unlock(&s->lock);
    return !failed;
}

static void run(task *e) {
    speaking *s = (speaking *)e;
    s->params.voice = s->voice;
    tern_status status = speak(s);
    tern_media_info info;
    tern_model_get_media_info(s->codec, &info);
    s->sound.rate = info.codec_rate;
    if (status == TERN_OK && forms[s->form].is_whole)
        tern_sound_encode(&s->sound, forms[s->form].name, on_file, s, &s->err);
}

// ---- The answer --------------------------------------------------------------------------------

static void begin_stream(request *req, const speaking *s) {
    tern_media_info info;
    uint8_t head[TERN_WAV_HEADER_BYTES];
    if (req->is_stream) return;
    reply_stream(req, forms[s->form].type);
    tern_model_get_media_info(s->codec, &info);
    tern_strbuf_clear(&req->piece);
    if (s->form != FORM_WAV) return;
    tern_sound_wav_header(info.codec_rate, -1, head);
    tern_strbuf_append(&req->piece, head, sizeof head);
    reply_piece(req, &req->piece);
}

static void send_ready(request *req, speaking *s) {
    tern_mutex_lock(&s->lock);
    bool any = s->ready.len > 0 || s->ready.failed;
    tern_mutex_unlock(&s->lock);
    if (!any) return;
    begin_stream(req, s); // before the piece: its head uses the same buffer
    tern_strbuf_clear(&req->piece);
    tern_mutex_lock(&s->lock);
    tern_strbuf_append(&req->piece, tern_strbuf_text(&s->ready), s->ready.len);
    req->piece.failed |= s->ready.failed;
    tern_strbuf_clear(&s->ready);
    tern_mutex_unlock(&s->lock);
    reply_piece(req, &req->piece);
}

static void send_progress(task *e) {
    if (e->user) send_ready(e->user, (speaking *)e);
}

static void free_speaking(speaking *s) {
    tern_mutex_free(&s->lock);
    tern_strbuf_free(&s->ready);
    tern_free(s->sound.samples);
    tern_free(s->text);
    tern_free(s->voice);
    tern_free(s);
}

static void done(task *e) {
    speaking *s = (speaking *)e;
    request *req = e->user;
    api_error failure = {0};
    if (req) {
        req->task = NULL;
        if (s->err.status == TERN_OK || req->is_stream) send_ready(req, s);
        if (s->err.status == TERN_OK) {
            begin_stream(req, s);
            reply_end(req);
        } else if (req->is_stream) { // a truncated sound must not look complete
            req->piece.failed = true;
            reply_piece(req, &req->piece);
        } else {
            api_fail_status(&failure, &s->err, "input");
            reply_error(req, &failure);
        }
    }
    registry_release(s->model);
    free_speaking(s);
}

// ---- The request -------------------------------------------------------------------------------

static bool is_vector(const tern_json *voice) { return tern_json_is(voice, TERN_JSON_ARRAY); }

static void read_request(const request *req, const fields *f, speaking *s, api_error *e) {
    tern_str input = field_text(f, "input"), form = field_text(f, "response_format");
    const tern_json *voice = field_any(f, "voice");
    tern_str name = voice ? tern_json_str(voice) : (tern_str){NULL, 0};
    s->params.speed = field_number(f, "speed", 1, 0.25, 4);
    s->params.temperature = (float)field_number(f, "temperature", 0, 0, 100);
    s->params.seed = (uint64_t)field_int(f, "seed", 0, 0, INT64_MAX);
    while (form.ptr && s->form < FORMS && !tern_str_is(form, forms[s->form].name)) s->form++;
    if (e->status) return;
    tern_media_info info;
    tern_model_get_media_info(req->model->model, &info);
    if (!info.is_tts)
        api_fail(e, 400, "unsupported_model", "model", "this model is not a speech model");
    else if (!req->server->codec)
        api_fail(e, 400, "no_codec", "model",
                 "the server has no codec to make sound with (tern serve --codec)");
    else if (!input.ptr || input.len == 0)
        api_fail(e, 400, NULL, "input", "'input' is missing: the text to say");
    else if (s->form == FORMS)
        api_fail(e, 400, NULL, "response_format",
                 "'response_format' must be wav, pcm, mp3, opus or flac");
    else if (voice && (!name.ptr || is_vector(voice)))
        api_fail(e, 400, NULL, "voice", "'voice' must be a text");
    else if (req->server->stopping)
        api_fail(e, 503, "stopping", NULL, "the server is stopping");
    if (e->status) return;
    s->text = tern_strndup(TERN_MEM_SESSION, input.ptr, input.len);
    // OpenAI's clients must name a voice; "default" stands for none.
    bool named = name.len > 0 && !tern_str_is(name, "default");
    if (named) s->voice = tern_strndup(TERN_MEM_SESSION, name.ptr, name.len);
    if (!s->text || (named && !s->voice)) api_fail_memory(e);
}

void openai_speech(request *req) {
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    speaking *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (s) tern_mutex_init(&s->lock);
    if (s)
        read_request(req, &f, s, &e);
    else
        api_fail_memory(&e);
    if (!e.status) {
        s->task.run = run;
        s->task.progress = send_progress;
        s->task.done = done;
        s->model = req->model;
        s->codec = req->server->codec;
        s->tasks = req->server->tasks;
        request_run(req, req->server->tasks, &s->task, s->model);
        return;
    }
    if (s) free_speaking(s);
    reply_error(req, &e);
}
