// Transcription of whole sounds: the stretches of speech in turn. (Recognizers of windows:
// transcribe_windows.c.)
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "session/media/asr.h"

// ---- Segments ----------------------------------------------------------------------------------

tern_status tern_asr_add(const asr_run *h, segment_list *list, double start, double end,
                         const int32_t *said, int32_t n, tern_error *err) {
    tern_transcription *t = list->out;
    char *text = NULL;
    if (n == 0) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &t->segments, &list->capacity, t->n, 1) != 0)
        return tern_fail_memory(err, sizeof *t->segments);
    TERN_TRY(tern_asr_text(h, said, n, &text, err));
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, (size_t)n, sizeof *ids);
    if (!ids) {
        tern_free(text);
        return tern_fail_memory(err, (size_t)n * sizeof *ids);
    }
    memcpy(ids, said, (size_t)n * sizeof *ids);
    t->segments[t->n++] =
        (tern_segment){.start = start, .end = end, .text = text, .ids = ids, .n_ids = n};
    if (!h->params.on_segment || h->params.on_segment(h->params.user, &t->segments[t->n - 1]))
        return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
}

// ---- Stretches of speech -----------------------------------------------------------------------

// Begins the current part's text, if there is one.
static tern_status begin_part(asr_run *h, const asr_sound *s, tern_error *err) {
    if (s->part == h->speech.n) return TERN_OK;
    const tern_voice_span *span = &h->speech.spans[s->part];
    return tern_asr_begin_text(h, s->samples + span->first, span->end - span->first, err);
}

static tern_status end_part(asr_run *h, asr_sound *s, tern_error *err) {
    const tern_voice_span *span = &h->speech.spans[s->part++];
    TERN_TRY(tern_asr_add(h, &s->list, (double)span->first / TERN_VOICE_RATE,
                          (double)span->end / TERN_VOICE_RATE, h->ids, h->n_ids, err));
    return begin_part(h, s, err);
}

tern_status tern_asr_poll_sound(asr_run *h, asr_sound *s, bool *done, tern_error *err) {
    bool over = false;
    if (!s->is_searched) {
        TERN_TRY(tern_asr_poll_search(h, s->samples, s->n, &s->is_searched, err));
        if (s->is_searched) TERN_TRY(begin_part(h, s, err));
    } else if (s->part < h->speech.n) {
        TERN_TRY(tern_asr_poll_text(h, &over, err));
        if (over) TERN_TRY(end_part(h, s, err));
    }
    *done = s->is_searched && s->part == h->speech.n;
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

tern_status tern_transcribe(tern_model *m, const tern_sound *sound,
                            const tern_transcribe_params *params, tern_transcription *out,
                            tern_error *err) {
    tern_clear(err);
    tern_transcriber *t;
    TERN_NEED(out);
    *out = (tern_transcription){0};
    TERN_NEED(m);
    TERN_NEED(sound);
    TERN_TRY(tern_transcriber_open_sound(&t, m, sound, params, err));
    tern_status status = TERN_OK;
    for (bool done = false; status == TERN_OK && !done;)
        status = tern_transcriber_poll(t, out, &done, err);
    tern_transcriber_close(t);
    return status;
}

void tern_transcription_free(tern_transcription *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n; i++) {
        tern_free((void *)(uintptr_t)t->segments[i].text);
        tern_free((void *)(uintptr_t)t->segments[i].ids);
    }
    tern_free(t->segments);
    *t = (tern_transcription){0};
}
