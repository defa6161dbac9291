#include "apps/serve/request/request_sounds.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/away.h"
#include "base/alloc.h"
#include "tern_audio.h"

#define SOUNDS_MAX  16   // more than a conversation has
#define SECONDS_MAX 3600 // of each

typedef struct recording {
    const tern_json *part;
    char *base64;
    size_t n_base64;
    tern_strbuf text; // what is said
} recording;

typedef struct heard {
    recording list[SOUNDS_MAX];
    size_t n;
} heard;

typedef struct hearing { // owns all until it is done
    task task;
    served *model;
    heard *heard;
    tern_error err;
} hearing;

bool sound_is_part(tern_str type) {
    return tern_str_is(type, "input_audio") || tern_str_is(type, "audio_url");
}

tern_str sound_text(const heard *h, const tern_json *part) {
    for (size_t i = 0; h && i < h->n; i++)
        if (h->list[i].part == part)
            return (tern_str){tern_strbuf_text(&h->list[i].text), h->list[i].text.len};
    return (tern_str){NULL, 0};
}

void heard_free(heard *h) {
    for (size_t i = 0; h && i < h->n; i++) {
        tern_free(h->list[i].base64);
        tern_strbuf_free(&h->list[i].text);
    }
    tern_free(h);
}

// ---- Transcribing, away ------------------------------------------------------------------------

tern_status sound_transcribe(task *by, tern_model *model, const tern_sound *sound,
                             const tern_transcribe_params *params, tern_transcription *out,
                             tern_error *err) {
    tern_transcriber *transcriber;
    bool done = false;
    tern_status status = tern_transcriber_open_sound(&transcriber, model, sound, params, err);
    while (status == TERN_OK && !done)
        if (task_pause(by))
            status = tern_transcriber_poll(transcriber, out, &done, err);
        else
            status = tern_fail(err, TERN_ERR_CANCELLED, "the transcription was cancelled");
    tern_transcriber_close(transcriber);
    return status;
}

static tern_status transcribe(hearing *h, recording *r, tern_error *err) {
    tern_strbuf bytes = {0};
    tern_sound sound;
    tern_transcription found = {0};
    tern_media_info info;
    tern_model_get_media_info(h->model->model, &info);
    const tern_sound_desc desc = {.rate = info.audio_rate, .seconds_max = SECONDS_MAX};
    tern_status status = TERN_OK;
    if (!tern_strbuf_unbase64(&bytes, (tern_str){r->base64, r->n_base64}))
        status = tern_fail(err, TERN_ERR_FORMAT, "this is not base64");
    else if (bytes.failed)
        status = tern_fail_memory(err, r->n_base64);
    else
        status = tern_sound_open_bytes(&sound, tern_strbuf_text(&bytes), bytes.len, &desc, err);
    tern_strbuf_free(&bytes);
    if (status != TERN_OK) return status;
    status = sound_transcribe(&h->task, h->model->model, &sound, NULL, &found, err);
    for (size_t i = 0; status == TERN_OK && i < found.n; i++)
        tern_strbuf_printf(&r->text, "%s%s", i ? " " : "", found.segments[i].text);
    if (r->text.failed) status = tern_fail_memory(err, r->text.len);
    tern_transcription_free(&found);
    tern_sound_close(&sound);
    return status;
}

static void run(task *e) {
    hearing *h = (hearing *)e;
    for (size_t i = 0; i < h->heard->n && task_pause(e); i++) {
        if (transcribe(h, &h->heard->list[i], &h->err) == TERN_OK) continue;
        char which[48];
        snprintf(which, sizeof which, "recording %zu of %zu", i + 1, h->heard->n);
        tern_fail_prefix(&h->err, h->err.status, which);
        return;
    }
}

static void done(task *e) {
    hearing *h = (hearing *)e;
    request *req = e->user;
    if (req) {
        api_error refused = {0};
        req->task = NULL;
        if (h->err.status != TERN_OK) api_fail_status(&refused, &h->err, "messages");
        if (refused.status) {
            reply_error(req, &refused);
        } else {
            req->heard = h->heard;
            h->heard = NULL;
            request_with_model(req, req->handle);
        }
    }
    registry_release(h->model);
    heard_free(h->heard);
    tern_free(h);
}

// ---- Asking for it -----------------------------------------------------------------------------

static void on_ready(model_wait *w, const tern_error *err) {
    request *req = (request *)((char *)w - offsetof(request, wait));
    served *recognizer = registry_recognizer(req->server->registry);
    hearing *h = err ? NULL : tern_alloc(TERN_MEM_SESSION, sizeof *h);
    api_error e = {0};
    if (err)
        api_fail(&e, req->server->stopping ? 503 : 500, "model_unavailable", "messages", "%s",
                 err->message);
    else if (!h)
        api_fail_memory(&e);
    if (h) {
        *h =
            (hearing){.task = {.run = run, .done = done}, .model = recognizer, .heard = req->heard};
        req->heard = NULL;
        request_run(req, req->server->tasks, &h->task, recognizer);
    } else {
        reply_error(req, &e);
    }
    if (!err) registry_release(recognizer); // the task holds it, too
}

// The model that answers may have to make room for the one that hears.
static void ask(request *req) {
    served *recognizer = registry_recognizer(req->server->registry);
    if (req->holds) registry_release(req->model);
    req->holds = false;
    req->wait.ready = on_ready;
    registry_ask(recognizer, &req->wait);
}

// Its bytes: {"data"}, or the end of a data: URL.
static tern_str base64_of(const fields *f, const tern_json *part) {
    const tern_json *given = tern_json_get(f->doc, part, "input_audio");
    const tern_str data = tern_json_str(tern_json_get(f->doc, given, "data"));
    const tern_json *where = tern_json_get(f->doc, part, "audio_url");
    tern_str url = tern_json_str(where);
    if (given || !where) return data;
    if (!url.ptr) url = tern_json_str(tern_json_get(f->doc, where, "url"));
    const char *comma = url.len ? memchr(url.ptr, ',', url.len) : NULL;
    if (!comma || memcmp(url.ptr, "data:", url.len < 5 ? url.len : 5) != 0)
        return (tern_str){NULL, 0}; // nothing is fetched
    return (tern_str){comma + 1, url.len - (size_t)(comma + 1 - url.ptr)};
}

static void add(request *req, const fields *f, const tern_json *part) {
    const tern_str data = base64_of(f, part);
    heard *h = req->heard;
    if (!data.len)
        api_fail(f->error, 400, "unsupported_content", "messages",
                 "a recording must have its bytes, as base64 in 'input_audio.data' or a data: URL");
    if (h && h->n == SOUNDS_MAX)
        api_fail(f->error, 400, NULL, "messages", "there are more than %d recordings", SOUNDS_MAX);
    if (!h && !f->error->status) h = req->heard = tern_alloc(TERN_MEM_SESSION, sizeof *h);
    if (f->error->status) return;
    char *copy = h ? tern_strndup(TERN_MEM_SESSION, data.ptr, data.len) : NULL;
    if (copy)
        h->list[h->n++] = (recording){.part = part, .base64 = copy, .n_base64 = data.len};
    else
        api_fail_memory(f->error);
}

static void find(request *req, const fields *f, const tern_json *messages) {
    for (const tern_json *m =
             tern_json_is(messages, TERN_JSON_ARRAY) ? tern_json_first(f->doc, messages) : NULL;
         m && !f->error->status; m = tern_json_next(f->doc, messages, m)) {
        const tern_json *content =
            tern_json_is(m, TERN_JSON_OBJECT) ? tern_json_get(f->doc, m, "content") : NULL;
        if (!tern_json_is(content, TERN_JSON_ARRAY)) continue;
        for (const tern_json *part = tern_json_first(f->doc, content); part && !f->error->status;
             part = tern_json_next(f->doc, content, part))
            if (tern_json_is(part, TERN_JSON_OBJECT) &&
                sound_is_part(tern_json_str(tern_json_get(f->doc, part, "type"))))
                add(req, f, part);
    }
}

bool request_hear(request *req, const fields *f, const tern_json *messages) {
    if (req->heard || f->error->status) return true;
    find(req, f, messages);
    if (!req->heard && !f->error->status) return true;
    if (!registry_recognizer(req->server->registry))
        api_fail(f->error, 400, "unsupported_content", "messages",
                 "there is a recording, and no model that transcribes is served beside this one: "
                 "-m whisper-base.en, for instance");
    if (f->error->status)
        reply_error(req, f->error);
    else
        request_then(req, ask);
    return false;
}
