// Transcription of a sound that is still being recorded. Samples are kept from some seconds before
// the part not transcribed yet, so that the level of silence is known. Every half second they are
// examined: stretches of speech that have ended become segments, and an unfinished last one a
// partial text. Steps are counted in samples, so the result does not depend on how they are fed.
#include <string.h>
#include "base/alloc.h"
#include "base/use.h"
#include "session/media/asr.h"

#define STEP    (TERN_VOICE_RATE / 2)  // samples from one examination to the next
#define PAUSE   (TERN_VOICE_RATE / 2)  // of silence that ends speech, partly included in it
#define HISTORY (10 * TERN_VOICE_RATE) // by which loudness is judged
#define LEAD    TERN_VOICE_RATE        // that the network gets before the part to judge

struct tern_transcriber {
    tern_use use;
    tern_model *model;
    asr_run h;
    char *vad, *language; // the caller's, copied
    float *samples;       // [n]
    size_t n, capacity;
    int64_t first; // index of the first kept sample
    int64_t done;  // samples before this are transcribed, or not speech
    bool is_open;
};

static int64_t end_of(const tern_transcriber *s) { return s->first + (int64_t)s->n; }

static tern_status copy(const char *text, char **out, tern_error *err) {
    if (!text) return TERN_OK;
    *out = tern_strndup(TERN_MEM_SESSION, text, strlen(text));
    return *out ? TERN_OK : tern_fail_memory(err, strlen(text));
}

tern_status tern_transcriber_open(tern_transcriber **out, tern_model *m,
                                  const tern_transcribe_params *params, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    tern_transcribe_params own = {0};
    if (params) own = *params;
    tern_transcriber *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->model = m;
    tern_model_hold(m);
    tern_status status = copy(own.vad, &s->vad, err);
    if (status == TERN_OK) status = copy(own.language, &s->language, err);
    own.vad = s->vad;
    own.language = s->language;
    s->is_open = status == TERN_OK;
    if (status == TERN_OK) status = tern_asr_open(&s->h, m, &own, err);
    if (status == TERN_OK)
        *out = s;
    else
        tern_transcriber_close(s);
    return status;
}

void tern_transcriber_close(tern_transcriber *s) {
    if (!s || tern_use_waits(&s->use)) return;
    if (s->is_open) tern_asr_close(&s->h);
    tern_free(s->vad);
    tern_free(s->language);
    tern_free(s->samples);
    tern_model_let_go(s->model);
    tern_free(s);
}

// ---- A look ------------------------------------------------------------------------------------

static double seconds(int64_t sample) { return (double)sample / TERN_VOICE_RATE; }

// Passes on the part from `first` to `end`: as a segment, or as a partial text.
static tern_status write_part(tern_transcriber *s, int64_t first, int64_t end, bool is_final,
                              tern_error *err) {
    asr_run *h = &s->h;
    tern_transcription said = {0};
    segment_list list = {.out = &said};
    asr_run partial = *h;
    if (!is_final && !h->params.on_partial) return TERN_OK;
    const float *samples = s->samples + (first - s->first);
    tern_status status = tern_asr_decode_text(h, samples, end - first, err);
    partial.params.on_segment = is_final ? h->params.on_segment : h->params.on_partial;
    if (status == TERN_OK)
        status = tern_asr_add(&partial, &list, seconds(first), seconds(end), h->ids, h->n_ids, err);
    tern_transcription_free(&said);
    return status;
}

// Searches the samples from `from` on for speech. ends: nothing follows.
static tern_status look_from(tern_transcriber *s, int64_t from, bool ends, tern_error *err) {
    tern_voice_list speech = {0};
    const float *samples = s->samples + (from - s->first);
    tern_status status = tern_asr_find_speech(&s->h, samples, end_of(s) - from, &speech, err);
    for (size_t i = 0; status == TERN_OK && i < speech.n; i++) {
        int64_t first = from + speech.spans[i].first, end = from + speech.spans[i].end;
        bool is_last = i + 1 == speech.n;
        bool has_ended = ends || !is_last || end_of(s) - end >= PAUSE;
        if (end <= s->done) continue;
        if (first < s->done) first = s->done;
        status = write_part(s, first, end, has_ended, err);
        if (has_ended)
            s->done = end;
        else
            break;
    }
    bool is_speaking = speech.n > 0 && from + speech.spans[speech.n - 1].end > s->done;
    if (!is_speaking && s->done < end_of(s) - PAUSE) s->done = end_of(s) - PAUSE;
    tern_voice_free(&speech);
    return status;
}

static tern_status look(tern_transcriber *s, bool ends, tern_error *err) {
    int64_t before = s->h.params.whole ? 0 : s->h.params.vad ? LEAD : HISTORY;
    int64_t from = s->done - before > s->first ? s->done - before : s->first;
    tern_status status = TERN_OK;
    if (end_of(s) > s->done) status = look_from(s, from, ends, err);
    if (ends) s->done = end_of(s);
    int64_t keep = s->done - before > s->first ? s->done - before : s->first;
    s->n -= (size_t)(keep - s->first);
    if (s->n) memmove(s->samples, s->samples + (keep - s->first), s->n * sizeof *s->samples);
    s->first = keep;
    return status;
}

static tern_status feed(tern_transcriber *s, const float *samples, int64_t n, tern_error *err) {
    while (n > 0) {
        int64_t now = STEP - end_of(s) % STEP;
        if (now > n) now = n;
        if (tern_array_reserve(TERN_MEM_SESSION, &s->samples, &s->capacity, s->n, (size_t)now) != 0)
            return tern_fail_memory(err, (s->n + (size_t)now) * sizeof *s->samples);
        memcpy(s->samples + s->n, samples, (size_t)now * sizeof *samples);
        s->n += (size_t)now;
        samples += now;
        n -= now;
        if (end_of(s) % STEP == 0) TERN_TRY(look(s, false, err));
    }
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
    if (tern_use_end(&s->use)) tern_transcriber_close(s);
    return status;
}

tern_status tern_transcriber_end(tern_transcriber *s, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_TRY(tern_use_begin(&s->use, "the sound", err));
    tern_status status = look(s, true, err);
    if (tern_use_end(&s->use)) tern_transcriber_close(s);
    return status;
}
