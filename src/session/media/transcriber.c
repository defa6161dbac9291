// Transcription in steps, of a whole sound (transcribe.c) or of one that is still being recorded:
// then samples are kept from some seconds before the part not transcribed yet, so that the level of
// silence is known. Every half second they are examined: stretches of speech that have ended become
// segments, and an unfinished last one a partial text. Steps are counted in samples, so the result
// depends neither on how they are fed nor on when it is polled.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/use.h"
#include "session/media/asr.h"

#define STEP    (TERN_VOICE_RATE / 2)  // samples from one examination to the next
#define PAUSE   (TERN_VOICE_RATE / 2)  // of silence that ends speech, partly included in it
#define HISTORY (10 * TERN_VOICE_RATE) // by which loudness is judged
#define LEAD    TERN_VOICE_RATE        // that the network gets before the part to judge

// For a sound that is being recorded.
typedef enum stage { WAIT, SEARCH, WRITE } stage;

struct tern_transcriber {
    tern_use use;
    tern_model *model;
    asr_run h;
    char *vad, *language; // the caller's, copied
    bool is_open, is_live, is_over;
    asr_sound sound; // a whole one
    tern_transcription said;
    // One that is being recorded. Positions are samples since it began.
    float *samples; // [n], from `first` on
    size_t n, capacity;
    int64_t first;
    int64_t seen; // samples before this are examined
    int64_t done; // samples before this are transcribed, or not speech
    bool has_end; // no samples follow those that were fed
    // The examination under way.
    stage stage;
    bool ends; // nothing follows
    int64_t from;
    size_t part; // of the speech: the current one
    int64_t part_first, part_end;
    bool is_final; // the part has ended
};

static int64_t end_of(const tern_transcriber *s) { return s->first + (int64_t)s->n; }
static const float *samples_at(const tern_transcriber *s, int64_t at) {
    return s->samples + (at - s->first);
}

// ---- Opening -----------------------------------------------------------------------------------

static tern_status copy(const char *text, char **out, tern_error *err) {
    if (!text) return TERN_OK;
    *out = tern_strndup(TERN_MEM_SESSION, text, strlen(text));
    return *out ? TERN_OK : tern_fail_memory(err, strlen(text));
}

static tern_status open_model(tern_transcriber *s, const tern_transcribe_params *params,
                              tern_error *err) {
    tern_transcribe_params own = {0};
    if (params) own = *params;
    TERN_TRY(copy(own.vad, &s->vad, err));
    TERN_TRY(copy(own.language, &s->language, err));
    own.vad = s->vad;
    own.language = s->language;
    s->is_open = true;
    return tern_asr_open(&s->h, s->model, &own, err);
}

static tern_status check_sound(const tern_model *m, const tern_sound *sound, tern_error *err) {
    tern_media_info info;
    tern_model_get_media_info(m, &info);
    if (info.is_asr && sound->rate != info.audio_rate)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the sound has %d samples a second: the model hears %d", (int)sound->rate,
                         TERN_VOICE_RATE);
    if (sound->n < 0 || (sound->n > 0 && !sound->samples))
        return tern_fail(err, TERN_ERR_ARGUMENT, "a sound of %lld samples", (long long)sound->n);
    return TERN_OK;
}

static tern_status open_sound(tern_transcriber *s, const tern_sound *sound, tern_error *err) {
    const tern_transcribe_params *p = &s->h.params;
    s->sound = (asr_sound){.samples = sound->samples, .n = sound->n, .list = {.out = &s->said}};
    s->said.seconds = (double)sound->n / TERN_VOICE_RATE;
    if (s->h.windows && (!p->vad || p->whole)) return TERN_OK;
    return tern_asr_begin_search(&s->h, sound->samples, sound->n, err);
}

// sound NULL: it is fed.
static tern_status open_either(tern_transcriber **out, tern_model *m, const tern_sound *sound,
                               const tern_transcribe_params *params, tern_error *err) {
    if (sound) TERN_TRY(check_sound(m, sound, err));
    tern_transcriber *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->model = m;
    s->is_live = !sound;
    tern_model_hold(m);
    tern_status status = open_model(s, params, err);
    if (status == TERN_OK && sound) status = open_sound(s, sound, err);
    if (status == TERN_OK)
        *out = s;
    else
        tern_transcriber_close(s);
    return status;
}

tern_status tern_transcriber_open(tern_transcriber **out, tern_model *m,
                                  const tern_transcribe_params *params, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    return open_either(out, m, NULL, params, err);
}

tern_status tern_transcriber_open_sound(tern_transcriber **out, tern_model *m,
                                        const tern_sound *sound,
                                        const tern_transcribe_params *params, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    TERN_NEED(sound);
    return open_either(out, m, sound, params, err);
}

void tern_transcriber_close(tern_transcriber *s) {
    if (!s || tern_use_waits(&s->use)) return;
    if (s->is_open) tern_asr_close(&s->h);
    tern_transcription_free(&s->said);
    tern_free(s->vad);
    tern_free(s->language);
    tern_free(s->samples);
    tern_model_let_go(s->model);
    tern_free(s);
}

// ---- An examination ----------------------------------------------------------------------------

static double seconds(int64_t sample) { return (double)sample / TERN_VOICE_RATE; }

// Samples that are kept before those that are not done.
static int64_t kept_from(const tern_transcriber *s) {
    const tern_transcribe_params *p = &s->h.params;
    int64_t at = s->done - (p->whole ? 0 : p->vad ? LEAD : HISTORY);
    return at > s->first ? at : s->first;
}

static void end_look(tern_transcriber *s) {
    const tern_voice_list *speech = &s->h.speech;
    bool is_speaking = speech->n > 0 && s->from + speech->spans[speech->n - 1].end > s->done;
    if (!is_speaking && s->done < s->seen - PAUSE) s->done = s->seen - PAUSE;
    if (s->ends) s->done = s->seen;
    s->stage = WAIT;
    size_t n_gone = (size_t)(kept_from(s) - s->first);
    if (n_gone == 0 || n_gone < s->n / 2) return; // many may wait: they are not moved each time
    s->n -= n_gone;
    s->first += (int64_t)n_gone;
    memmove(s->samples, s->samples + n_gone, s->n * sizeof *s->samples);
}

// Begins the text of the next part that is not done, or ends the examination.
static tern_status next_part(tern_transcriber *s, tern_error *err) {
    const tern_voice_list *speech = &s->h.speech;
    for (; s->part < speech->n; s->part++) {
        int64_t first = s->from + speech->spans[s->part].first;
        int64_t end = s->from + speech->spans[s->part].end;
        bool is_last = s->part + 1 == speech->n;
        if (end <= s->done) continue;
        s->is_final = s->ends || !is_last || s->seen - end >= PAUSE;
        if (!s->is_final && !s->h.params.on_partial) break;
        s->part_first = first > s->done ? first : s->done;
        s->part_end = end;
        s->stage = WRITE;
        return tern_asr_begin_text(&s->h, samples_at(s, s->part_first), end - s->part_first, err);
    }
    end_look(s);
    return TERN_OK;
}

// Passes on the part: as a segment, or as a partial text.
static tern_status give_part(tern_transcriber *s, tern_error *err) {
    tern_transcription said = {0};
    segment_list list = {.out = &said};
    asr_run now = s->h;
    if (!s->is_final) now.params.on_segment = now.params.on_partial;
    tern_status status = tern_asr_add(&now, &list, seconds(s->part_first), seconds(s->part_end),
                                      now.ids, now.n_ids, err);
    tern_transcription_free(&said);
    return status;
}

static tern_status end_part(tern_transcriber *s, tern_error *err) {
    TERN_TRY(give_part(s, err));
    if (s->is_final) s->done = s->part_end;
    s->part = s->is_final ? s->part + 1 : s->h.speech.n;
    return next_part(s, err);
}

// Begins an examination if enough samples are there. *done: they are not.
static tern_status begin_look(tern_transcriber *s, bool *done, tern_error *err) {
    int64_t next = (s->seen / STEP + 1) * STEP, end = end_of(s);
    *done = next > end && !s->has_end;
    if (*done) return TERN_OK;
    s->ends = next > end;
    s->seen = s->ends ? end : next;
    if (s->ends) s->has_end = false;
    if (s->seen == s->done) return TERN_OK;
    s->from = kept_from(s);
    s->part = 0;
    s->stage = SEARCH;
    return tern_asr_begin_search(&s->h, samples_at(s, s->from), s->seen - s->from, err);
}

static tern_status poll_live(tern_transcriber *s, bool *done, tern_error *err) {
    bool over = false;
    if (s->stage == WAIT) return begin_look(s, done, err);
    if (s->stage == SEARCH) {
        TERN_TRY(
            tern_asr_poll_search(&s->h, samples_at(s, s->from), s->seen - s->from, &over, err));
        return over ? next_part(s, err) : TERN_OK;
    }
    TERN_TRY(tern_asr_poll_text(&s->h, &over, err));
    return over ? end_part(s, err) : TERN_OK;
}

// ---- Polling -----------------------------------------------------------------------------------

// The result goes to the caller.
static void give_result(tern_transcriber *s, tern_transcription *out) {
    if (s->h.windows)
        snprintf(s->said.language, sizeof s->said.language, "%s", tern_windows_language(&s->h));
    s->said.encoder_seconds = s->h.encoder_seconds;
    s->said.decoder_seconds = s->h.decoder_seconds;
    s->said.n_read = s->h.n_read;
    if (!out) return;
    *out = s->said;
    s->said = (tern_transcription){0};
}

// After a failure a sound that is being recorded goes on with what is not done.
static void stop(tern_transcriber *s) {
    tern_asr_stop(&s->h);
    s->stage = WAIT;
    s->is_over = !s->is_live;
}

static tern_status poll(tern_transcriber *s, bool *done, tern_error *err) {
    if (s->is_over)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the transcription is over: open another one");
    if (s->is_live) return poll_live(s, done, err);
    tern_status status = s->h.windows ? tern_windows_poll_sound(&s->h, &s->sound, done, err)
                                      : tern_asr_poll_sound(&s->h, &s->sound, done, err);
    s->is_over = *done;
    return status;
}

tern_status tern_transcriber_poll(tern_transcriber *s, tern_transcription *out, bool *done,
                                  tern_error *err) {
    tern_clear(err);
    bool over = false;
    if (out) *out = (tern_transcription){0};
    TERN_NEED(done);
    *done = false;
    TERN_NEED(s);
    TERN_TRY(tern_use_begin(&s->use, "the sound", err));
    tern_status status = poll(s, &over, err);
    if (status == TERN_OK && over && !s->is_live) give_result(s, out);
    *done = status == TERN_OK && over;
    if (status != TERN_OK) stop(s);
    if (tern_use_end(&s->use)) tern_transcriber_close(s);
    return status;
}

// ---- Feeding -----------------------------------------------------------------------------------

static tern_status check_feeding(const tern_transcriber *s, tern_error *err) {
    if (!s->is_live)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the sound is whole: nothing can be added to it");
    if (s->has_end)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the last sound has ended: poll it to its end before another one");
    return TERN_OK;
}

static tern_status feed(tern_transcriber *s, const float *samples, int64_t n, tern_error *err) {
    TERN_TRY(check_feeding(s, err));
    if (n == 0) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &s->samples, &s->capacity, s->n, (size_t)n) != 0)
        return tern_fail_memory(err, (s->n + (size_t)n) * sizeof *s->samples);
    memcpy(s->samples + s->n, samples, (size_t)n * sizeof *samples);
    s->n += (size_t)n;
    return TERN_OK;
}

tern_status tern_transcriber_feed(tern_transcriber *s, const float *samples, int64_t n,
                                  tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    if (n < 0 || (n > 0 && !samples))
        return tern_fail(err, TERN_ERR_ARGUMENT, "a sound of %lld samples", (long long)n);
    TERN_TRY(tern_use_begin(&s->use, "the sound", err));
    tern_status status = feed(s, samples, n, err);
    tern_use_end(&s->use);
    return status;
}

tern_status tern_transcriber_end(tern_transcriber *s, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_TRY(tern_use_begin(&s->use, "the sound", err));
    tern_status status = check_feeding(s, err);
    s->has_end |= status == TERN_OK;
    tern_use_end(&s->use);
    return status;
}
