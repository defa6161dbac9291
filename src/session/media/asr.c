// Speech recognition, step by step: the encoder makes rows of a stretch of speech, and the decoder
// turns them into text, token by token. (Recognizers of windows: transcribe_windows.c.)
//
// The two graphs have separate plans, with a sequence each. The encoder's rows are copied to the
// host and into the decoder's first batch, which keeps their keys and values.
#include "session/media/asr.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"

#define SECONDS_MOST    15.0 // of a segment, for a recognizer of windows
#define SECONDS_LEAST   0.1  // shorter sounds are padded with silence
#define TOKENS_A_SECOND 6.5
#define HOPS_AT_ONCE    32 // a second, in which the network looks for speech

// ---- Batches -----------------------------------------------------------------------------------

static double *seconds_of(asr_run *h, const tern_runner *run) {
    return run == &h->encoder ? &h->encoder_seconds : &h->decoder_seconds;
}

static tern_status begin(asr_run *h, tern_runner *run, const tern_batch *batch, int32_t position,
                         tern_error *err) {
    double began = tern_seconds();
    TERN_TRY(tern_runner_begin(run, batch, position, err));
    *seconds_of(h, run) += tern_seconds() - began;
    h->running = run;
    return TERN_OK;
}

static tern_status check_scores(const asr_run *h, tern_error *err) {
    float sum = h->greatest;
    for (int64_t i = 0; h->logits && i < h->m->config.n_vocab; i++) sum += h->logits[i] * 0;
    if (isfinite(sum)) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE, "%s: the sound produced NaN or infinity", h->m->path);
}

static tern_status poll(asr_run *h, tern_error *err) {
    tern_runner *run = h->running;
    bool done = false;
    double began = tern_seconds();
    tern_status status = tern_runner_poll(run, &done, err);
    *seconds_of(h, run) += tern_seconds() - began;
    if (status != TERN_OK || done) h->running = NULL;
    return done && run == &h->decoder ? check_scores(h, err) : status;
}

static tern_vid input_of(const tern_graph *g) {
    tern_vid pcm = tern_graph_find(g, "pcm");
    return pcm >= 0 ? pcm : tern_graph_find(g, "mel");
}

tern_status tern_asr_encode(asr_run *h, int64_t rows, int64_t n, tern_error *err) {
    const tern_graph *g = &h->m->graphs[h->encoder_graph].fused;
    tern_vid in = input_of(g), encoded = tern_graph_find(g, "encoded");
    tern_batch batch = {0};
    batch.counts[g->values[in].dim] = rows;
    tern_graph_count_windows(g, in, n, batch.counts);
    h->n_rows = tern_graph_rows(g, encoded, batch.counts);
    batch.n_tokens = (int32_t)h->n_rows;
    tern_batch_bind(&batch, in, h->input);
    tern_batch_bind(&batch, encoded, h->encoded);
    h->stage = ASR_ENCODING;
    return begin(h, &h->encoder, &batch, 0, err);
}

tern_status tern_asr_decode(asr_run *h, const int32_t *ids, int32_t n, int32_t position,
                            float *logits, tern_error *err) {
    const tern_graph *g = &h->m->graphs[0].fused;
    tern_vid encoded = tern_graph_find(g, "encoded");
    memcpy(h->fed, ids, (size_t)n * sizeof *ids);
    h->logits = logits;
    h->greatest = 0;
    tern_batch batch = {
        .ids = h->fed,
        .n_tokens = n,
        .n_outputs = 1,
        .wants = {.top_k = logits ? 0 : 1, .top_ids = &h->next, .top_logits = &h->greatest}};
    if (position == 0) batch.counts[g->values[encoded].dim] = h->n_rows;
    if (position == 0) tern_batch_bind(&batch, encoded, h->encoded);
    if (logits) tern_batch_bind(&batch, tern_graph_scores(g), logits);
    h->n_read += n;
    return begin(h, &h->decoder, &batch, position, err);
}

// ---- A text ------------------------------------------------------------------------------------

// An encoder that takes samples; of one that takes whole frames of them, an incomplete frame counts
// as silence.
static tern_status encode_samples(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const tern_config *c = &h->m->config;
    int64_t least = (int64_t)(SECONDS_LEAST * TERN_VOICE_RATE), all = n > least ? n : least;
    int64_t rows = (all + c->n_padding + c->n_step - 1) / c->n_step;
    memset(h->input, 0, (size_t)(rows * c->n_step) * sizeof *h->input);
    bool whole = h->recognizer->whole_frames;
    if (whole) n -= n % c->n_step;
    if (n > 0) memcpy(h->input, samples, (size_t)n * sizeof *h->input);
    if (whole) all = rows * c->n_step;
    return tern_asr_encode(h, rows, all + c->n_padding, err);
}

tern_status tern_asr_begin_text(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const tern_config *c = &h->m->config;
    double room = ceil((double)n / TERN_VOICE_RATE * h->tokens_per_second);
    h->n_ids_max = room < (double)c->n_context - 1 ? (int32_t)room : (int32_t)c->n_context - 1;
    h->n_ids = 0;
    if (h->windows) return tern_windows_begin_text(h, samples, n, err);
    return encode_samples(h, samples, n, err);
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

// Takes the token that a batch found. False: the text is over.
static bool take_token(asr_run *h) {
    if (h->next == h->m->config.eos_id) return false;
    h->ids[h->n_ids++] = h->next;
    return !goes_round(h->ids, h->n_ids, &h->n_ids);
}

// After a batch: the next one, or the end.
static tern_status go_on(asr_run *h, tern_error *err) {
    if (h->windows) return tern_windows_go_on(h, err);
    bool goes = h->stage == ASR_ENCODING || take_token(h);
    if (h->stage == ASR_ENCODING) h->next = (int32_t)h->m->config.bos_id;
    h->stage = goes && h->n_ids < h->n_ids_max ? ASR_WRITING : ASR_IDLE;
    return h->stage == ASR_IDLE ? TERN_OK : tern_asr_decode(h, &h->next, 1, h->n_ids, NULL, err);
}

tern_status tern_asr_poll_text(asr_run *h, bool *done, tern_error *err) {
    *done = false;
    if (h->running) TERN_TRY(poll(h, err));
    if (h->running) return TERN_OK;
    TERN_TRY(go_on(h, err));
    *done = h->stage == ASR_IDLE;
    return TERN_OK;
}

void tern_asr_stop(asr_run *h) {
    if (h->running) tern_runner_cancel(h->running);
    h->running = NULL;
    h->stage = ASR_IDLE;
}

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

// ---- Where speech is ---------------------------------------------------------------------------

static void forget_search(asr_run *h) {
    tern_free(h->voice);
    h->voice = NULL;
    tern_voice_free(&h->speech);
}

tern_status tern_asr_begin_search(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const bool by_net = h->params.vad && !h->params.whole;
    forget_search(h);
    h->n_hops_known = 0;
    if (!by_net) TERN_TRY(tern_voice_by_loudness(samples, n, &h->voice, &h->n_hops, err));
    if (!by_net) return TERN_OK;
    if (!h->net) TERN_TRY(tern_voice_net_open(&h->net, h->params.vad, err));
    tern_voice_net_begin(h->net);
    h->n_hops = (size_t)((n + TERN_VOICE_HOP - 1) / TERN_VOICE_HOP);
    h->voice = tern_alloc_array(TERN_MEM_SESSION, h->n_hops + 1, sizeof *h->voice);
    return h->voice ? TERN_OK : tern_fail_memory(err, h->n_hops * sizeof *h->voice);
}

tern_status tern_asr_poll_search(asr_run *h, const float *samples, int64_t n, bool *done,
                                 tern_error *err) {
    const bool by_net = h->params.vad && !h->params.whole;
    size_t end = h->n_hops;
    TERN_TRY(tern_check_cancelled("the transcription", err));
    if (by_net && end - h->n_hops_known > HOPS_AT_ONCE) end = h->n_hops_known + HOPS_AT_ONCE;
    for (size_t i = h->n_hops_known; by_net && i < end; i++) {
        int64_t at = (int64_t)i * TERN_VOICE_HOP;
        h->voice[i] = tern_voice_net_next(h->net, samples + at, n - at);
    }
    h->n_hops_known = end;
    *done = end == h->n_hops;
    if (!*done) return TERN_OK;
    for (size_t i = 0; h->params.whole && i < h->n_hops; i++) h->voice[i] = 1;
    tern_status status =
        tern_voice_spans(samples, n, h->voice, h->n_hops,
                         (int64_t)(h->seconds_max * TERN_VOICE_RATE), &h->speech, err);
    tern_free(h->voice);
    h->voice = NULL;
    return status;
}

// ---- Opening -----------------------------------------------------------------------------------

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
    tern_voice_net_close(h->net);
    forget_search(h);
    tern_free(h->input);
    tern_free(h->encoded);
    tern_free(h->ids);
}
