// Transcription: stretches of speech go through the encoder in turn, and the decoder turns its rows
// into text, token by token. (Recognizers of windows: transcribe_windows.c.)
//
// The two graphs have separate plans, with a sequence each. The encoder's rows are copied to the
// host and into the decoder's first batch, which keeps their keys and values.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "session/media/asr.h"

#define SECONDS_MOST    15.0 // of a segment, for a recognizer of windows
#define SECONDS_LEAST   0.1  // shorter sounds are padded with silence
#define TOKENS_A_SECOND 6.5

// ---- One part ----------------------------------------------------------------------------------

static tern_vid input_of(const tern_graph *g) {
    tern_vid pcm = tern_graph_find(g, "pcm");
    return pcm >= 0 ? pcm : tern_graph_find(g, "mel");
}

tern_status tern_asr_encode(asr_run *h, int64_t rows, int64_t n, int64_t *n_rows, tern_error *err) {
    const tern_graph *g = &h->m->graphs[h->encoder_graph].fused;
    tern_vid in = input_of(g), encoded = tern_graph_find(g, "encoded");
    tern_batch batch = {0};
    batch.counts[g->values[in].dim] = rows;
    tern_graph_count_windows(g, in, n, batch.counts);
    *n_rows = tern_graph_rows(g, encoded, batch.counts);
    batch.n_tokens = (int32_t)*n_rows;
    tern_batch_bind(&batch, in, h->input);
    tern_batch_bind(&batch, encoded, h->encoded);
    double began = tern_seconds();
    tern_status status = tern_runner_wait(&h->encoder, &batch, 0, err);
    h->encoder_seconds += tern_seconds() - began;
    return status;
}

tern_status tern_asr_decode(asr_run *h, const int32_t *ids, int32_t n, int32_t position,
                            int64_t n_rows, int32_t *next, float *logits, tern_error *err) {
    const tern_graph *g = &h->m->graphs[0].fused;
    float greatest = 0;
    tern_vid encoded = tern_graph_find(g, "encoded");
    tern_batch batch = {
        .ids = ids,
        .n_tokens = n,
        .n_outputs = 1,
        .wants = {.top_k = logits ? 0 : 1, .top_ids = next, .top_logits = &greatest}};
    if (position == 0) batch.counts[g->values[encoded].dim] = n_rows;
    if (position == 0) tern_batch_bind(&batch, encoded, h->encoded);
    if (logits) tern_batch_bind(&batch, tern_graph_scores(g), logits);
    double began = tern_seconds();
    TERN_TRY(tern_runner_wait(&h->decoder, &batch, position, err));
    h->decoder_seconds += tern_seconds() - began;
    h->n_read += n;
    for (int64_t i = 0; logits && i < h->m->config.n_vocab; i++) greatest += logits[i] * 0;
    if (isfinite(greatest)) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE, "%s: the sound produced NaN or infinity", h->m->path);
}

// An encoder that takes samples; of one that takes whole frames of them, an incomplete frame counts
// as silence.
static tern_status encode_samples(asr_run *h, const float *samples, int64_t n, int64_t *n_rows,
                                  tern_error *err) {
    const tern_config *c = &h->m->config;
    int64_t least = (int64_t)(SECONDS_LEAST * TERN_VOICE_RATE), all = n > least ? n : least;
    int64_t rows = (all + c->n_padding + c->n_step - 1) / c->n_step;
    memset(h->input, 0, (size_t)(rows * c->n_step) * sizeof *h->input);
    bool whole = h->recognizer->whole_frames;
    if (whole) n -= n % c->n_step;
    if (n > 0) memcpy(h->input, samples, (size_t)n * sizeof *h->input);
    if (whole) all = rows * c->n_step;
    return tern_asr_encode(h, rows, all + c->n_padding, n_rows, err);
}

// Whether the text ends with the same 4 to 8 tokens three times: it would go on repeating them.
// *n_kept: tokens up to the end of the first occurrence.
static bool goes_round(const int32_t *ids, int32_t n, int32_t *n_kept) {
    for (int32_t period = 4; period <= 8; period++) {
        int32_t first = n - 3 * period;
        if (first < 0) return false;
        if (memcmp(ids + first, ids + first + period, (size_t)(2 * period) * sizeof *ids) != 0)
            continue;
        *n_kept = first + period;
        return true;
    }
    return false;
}

tern_status tern_asr_decode_text(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const tern_config *c = &h->m->config;
    int64_t n_rows;
    double room = ceil((double)n / TERN_VOICE_RATE * h->tokens_per_second);
    int32_t most = room < (double)c->n_context - 1 ? (int32_t)room : (int32_t)c->n_context - 1;
    int32_t id = (int32_t)c->bos_id;
    h->n_ids = 0;
    if (h->windows) return tern_windows_write_down(h, samples, n, err);
    TERN_TRY(encode_samples(h, samples, n, &n_rows, err));
    while (h->n_ids < most) {
        TERN_TRY(tern_asr_decode(h, &id, 1, h->n_ids, n_rows, &id, NULL, err));
        if (id == c->eos_id) break;
        h->ids[h->n_ids++] = id;
        if (goes_round(h->ids, h->n_ids, &h->n_ids)) break;
    }
    return TERN_OK;
}

// ---- Segments ----------------------------------------------------------------------------------

tern_status tern_asr_text(const asr_run *h, const int32_t *ids, int32_t n, char **out,
                          tern_error *err) {
    tern_strbuf text = {0};
    tern_status status = TERN_OK;
    tern_decoder decoder = {0};
    for (int32_t i = 0; h->m->tokenizer && i < n; i++)
        tern_tokenizer_decode(h->m->tokenizer, &decoder, ids[i], &text);
    tern_tokenizer_decode_end(&decoder, &text);
    const char *from = text.ptr ? text.ptr : "";
    size_t first = 0, n_bytes = text.len;
    while (first < n_bytes && from[first] == ' ') first++; // marks the beginning of a word
    if (text.failed) status = tern_fail_memory(err, n_bytes);
    if (status == TERN_OK) {
        *out = tern_strndup(TERN_MEM_SESSION, from + first, n_bytes - first);
        if (!*out) status = tern_fail_memory(err, n_bytes);
    }
    tern_strbuf_free(&text);
    return status;
}

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

tern_status tern_asr_find_speech(const asr_run *h, const float *samples, int64_t n,
                                 tern_voice_list *out, tern_error *err) {
    float *voice = NULL;
    size_t n_hops = 0;
    if (h->params.vad && !h->params.whole)
        TERN_TRY(tern_voice_by_net(h->params.vad, samples, n, &voice, &n_hops, err));
    else
        TERN_TRY(tern_voice_by_loudness(samples, n, &voice, &n_hops, err));
    for (size_t i = 0; h->params.whole && i < n_hops; i++) voice[i] = 1;
    tern_status status = tern_voice_spans(samples, n, voice, n_hops,
                                          (int64_t)(h->seconds_max * TERN_VOICE_RATE), out, err);
    tern_free(voice);
    return status;
}

static tern_status hear(asr_run *h, const tern_sound *sound, segment_list *out, tern_error *err) {
    tern_voice_list speech = {0};
    tern_status status = tern_asr_find_speech(h, sound->samples, sound->n, &speech, err);
    for (size_t i = 0; status == TERN_OK && i < speech.n; i++) {
        const tern_voice_span *s = &speech.spans[i];
        status = tern_asr_decode_text(h, sound->samples + s->first, s->end - s->first, err);
        if (status == TERN_OK)
            status = tern_asr_add(h, out, (double)s->first / TERN_VOICE_RATE,
                                  (double)s->end / TERN_VOICE_RATE, h->ids, h->n_ids, err);
    }
    tern_voice_free(&speech);
    return status;
}

// ---- The whole ---------------------------------------------------------------------------------

static tern_status open_runner(const asr_run *h, int graph, int64_t n_context, tern_runner *out,
                               tern_error *err) {
    const tern_runner_desc desc = {
        .graph = graph, .kv_type = TERN_KV_F32, .n_context = (int32_t)n_context};
    return tern_runner_open(out, h->m, &desc, err);
}

static tern_status settle(asr_run *h, tern_error *err) {
    const tern_model *m = h->m;
    const tern_transcribe_params *p = &h->params;
    const tern_recognizer *r = h->recognizer = tern_recognizer_of(m->arch);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    if (!r)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model does not transcribe", m->path);
    double most = r->allow ? SECONDS_MOST : r->window(&m->config);
    h->seconds_max = p->seconds_max != 0 ? p->seconds_max : most;
    h->tokens_per_second = p->tokens_per_second != 0 ? p->tokens_per_second : TOKENS_A_SECOND;
    if (m->config.bos_id < 0 || m->config.bos_id >= m->config.n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: it is not said which token begins a text",
                         m->path);
    if (!(h->seconds_max >= 1 && h->seconds_max <= most))
        return tern_fail(err, TERN_ERR_ARGUMENT, "seconds_max is %g: expected 1 to %g, or 0 for %g",
                         p->seconds_max, most, most);
    if (!(h->tokens_per_second > 0 && h->tokens_per_second <= 1000))
        return tern_fail(err, TERN_ERR_ARGUMENT, "tokens_per_second is %g: expected at most 1000",
                         p->tokens_per_second);
    if (p->translate && !(r->translates && r->translates(&m->config)))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model does not translate", m->path);
    h->encoder_graph = tern_model_graph_find(m, "encoder", err);
    if (h->encoder_graph < 0) return TERN_ERR_FORMAT;
    return tern_model_refuse_damaged(m, err);
}

tern_status tern_asr_open(asr_run *h, tern_model *m, const tern_transcribe_params *params,
                          tern_error *err) {
    const tern_config *c = &m->config;
    *h = (asr_run){.m = m};
    if (params) h->params = *params;
    TERN_TRY(settle(h, err));
    size_t n_input = (size_t)(h->seconds_max * TERN_VOICE_RATE) + 4 * (size_t)c->n_step + 2048;
    if (h->recognizer->allow) h->seconds_max = h->recognizer->window(c);
    if (h->recognizer->bins) n_input = (size_t)(tern_windows_rows(h) * h->recognizer->bins(c));
    h->input = tern_alloc_array(TERN_MEM_SESSION, n_input, sizeof *h->input);
    h->encoded =
        tern_alloc_array(TERN_MEM_SESSION, (size_t)(c->n_source * c->n_embd), sizeof *h->encoded);
    h->ids = tern_alloc_array(TERN_MEM_SESSION, (size_t)c->n_context, sizeof *h->ids);
    if (!h->input || !h->encoded || !h->ids)
        return tern_fail_memory(err, n_input * sizeof *h->input);
    if (h->recognizer->allow) TERN_TRY(tern_windows_open(h, err));
    TERN_TRY(open_runner(h, h->encoder_graph, c->n_source, &h->encoder, err));
    return open_runner(h, 0, c->n_context, &h->decoder, err);
}

void tern_asr_close(asr_run *h) {
    tern_runner_close(&h->encoder);
    tern_runner_close(&h->decoder);
    tern_windows_close(h->windows);
    tern_free(h->input);
    tern_free(h->encoded);
    tern_free(h->ids);
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

tern_status tern_transcribe(tern_model *m, const tern_sound *sound,
                            const tern_transcribe_params *params, tern_transcription *out,
                            tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = (tern_transcription){0};
    TERN_NEED(m);
    TERN_NEED(sound);
    asr_run h;
    segment_list list = {.out = out};
    TERN_TRY(check_sound(m, sound, err));
    out->seconds = (double)sound->n / TERN_VOICE_RATE;
    tern_model_hold(m);
    tern_status status = tern_asr_open(&h, m, params, err);
    if (status == TERN_OK)
        status = h.windows ? tern_windows_transcribe(&h, sound, &list, err)
                           : hear(&h, sound, &list, err);
    if (h.windows) snprintf(out->language, sizeof out->language, "%s", tern_windows_language(&h));
    out->encoder_seconds = h.encoder_seconds;
    out->decoder_seconds = h.decoder_seconds;
    out->n_read = h.n_read;
    tern_asr_close(&h);
    if (status != TERN_OK) tern_transcription_free(out);
    tern_model_let_go(m);
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
