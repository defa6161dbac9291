// Text to speech: a language model turns a text into codes, frame by frame, and a codec turns
// finished frames into sound while more are generated.
//
// The possible next tokens are known: after the prompt the marks of an answer and of speech, then
// the codes of a frame in their order, and before a frame also the end. Only these are candidates,
// so frames are always complete.
//
// A long text is spoken piece by piece: each has its own prompt, and the codec's stream continues.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/use.h"
#include "base/os/os_time.h"
#include "media/media.h"
#include "runtime/runner.h"
#include "session/session.h"
#include "session/media/speak.h"

#define FRAMES_FIRST 2 // decoded at once; doubled each time
#define FRAMES_MOST  16

// The next step.
typedef enum stage { BEGIN, READ, SAY, DECODE_REST, END, OVER } stage;

// Ids of a text's pieces, concatenated.
typedef struct tern_pieces {
    tern_ids ids;
    size_t *ends, n, capacity;
} tern_pieces;

struct tern_speech {
    tern_use use;
    tern_model *m;
    const tern_speaker *speaker;
    const tern_speaking *speech;
    tern_speak_params params; // ids, voice and speaker are read only in open
    stage stage;
    const float *samples; // of this step: [n_samples]
    size_t n_samples;
    tern_runner runner;
    tern_codec_stream *codec;
    tern_stretch *stretch; // NULL: at the original speed
    tern_media_info sound; // of the codec
    tern_sampler sampler;
    int32_t n_context, n_batch;
    tern_pieces pieces;
    size_t piece;               // the current one
    int32_t *ids, *places;      // of the piece's prompt: [n_prompt], [n_prompt, 3]
    int32_t n_prompt, n_before; // n_before: tokens computed so far
    float *rows;                // [n_prompt, n_embd], with the voice's row in its place; NULL: none
    float *logits;              // [n_vocab]
    uint8_t *said;              // [n_codes * n_values]
    tern_candidate *candidates; // [n_values + 2]
    int32_t *frames;            // [FRAMES_MOST, n_codes], to be decoded
    int32_t n_pending, n_wanted;
    int32_t n_frames, n_frames_most; // of the piece: generated, allowed
    int64_t n_left;                  // frames allowed for this piece and all later ones
    // The computation under way.
    bool is_running, is_decoding; // a batch of the model; the codec
    int32_t n_read, code;         // tokens of the prompt that were begun; the frame's next code
    int32_t id, place[3];         // the batch's token
    tern_speak_stats stats;
    double began;
};

// ---- The model ---------------------------------------------------------------------------------

// Begins a batch of tokens, which gets the scores of those that may follow the last one: a frame's
// code of this number; -1: no scores.
static tern_status begin_run(tern_speech *s, const int32_t *ids, int32_t *places, float *rows,
                             int32_t n, int32_t code, tern_error *err) {
    const tern_graph *g = &s->m->graphs[0].fused;
    const tern_speaking *v = s->speech;
    const bool scored = code >= 0;
    int32_t ends[TERN_SPEAKER_ENDS];
    tern_batch batch = {.ids = ids, .n_tokens = n, .n_outputs = scored};
    if (scored) batch.first_score = s->speaker->frame(v, code);
    int32_t end = batch.first_score + (int32_t)v->n_values;
    for (int32_t i = 0; code == 0 && i < s->speaker->ends(v, ends); i++)
        if (ends[i] < batch.first_score) batch.first_score = ends[i];
    if (scored) batch.n_scores = end - batch.first_score;
    double began = tern_seconds();
    if (s->speech->frames_are_places) batch.places = places;
    tern_batch_bind(&batch, tern_graph_find(g, "rows"), rows);
    if (scored) tern_batch_bind(&batch, tern_graph_scores(g), s->logits);
    tern_status status = tern_runner_begin(&s->runner, &batch, s->n_before, err);
    s->is_running = status == TERN_OK;
    s->n_before += n;
    s->stats.model_seconds += tern_seconds() - began;
    return status;
}

static tern_status poll_run(tern_speech *s, tern_error *err) {
    bool done = false;
    double began = tern_seconds();
    tern_status status = tern_runner_poll(&s->runner, &done, err);
    s->is_running = status == TERN_OK && !done;
    s->stats.model_seconds += tern_seconds() - began;
    return status;
}

// Begins the prompt's next batch.
static tern_status read_more(tern_speech *s, tern_error *err) {
    size_t width = (size_t)s->m->config.n_embd;
    int32_t i = s->n_read, n = s->n_prompt - i < s->n_batch ? s->n_prompt - i : s->n_batch;
    s->n_read += n;
    return begin_run(s, s->ids + i, s->places + 3 * i, s->rows ? s->rows + (size_t)i * width : NULL,
                     n, s->n_read == s->n_prompt ? 0 : -1, err);
}

// Chooses the next token: a frame's code of this number, or, before a frame, the end (-1).
static tern_status choose(tern_speech *s, int32_t code, int32_t *out, tern_error *err) {
    const tern_speaking *v = s->speech;
    int32_t first = s->speaker->frame(v, code), n = (int32_t)v->n_values;
    const uint8_t *said = s->said + (size_t)code * (size_t)n;
    float penalty =
        s->params.repeat_penalty != 0 ? s->params.repeat_penalty : s->speaker->repeat_penalty;
    for (int32_t i = 0; i < n; i++) {
        float logit = s->logits[first + i];
        if (!isfinite(logit))
            return tern_fail(err, TERN_ERR_DEVICE, "%s: the text produced NaN or infinity",
                             s->m->path);
        if (said[i] && s->sampler.params.temperature != 0)
            logit = logit > 0 ? logit / penalty : logit * penalty;
        s->candidates[i] = (tern_candidate){.id = first + i, .logit = logit};
    }
    int32_t ends[TERN_SPEAKER_ENDS], n_ends = code > 0 ? 0 : s->speaker->ends(v, ends);
    for (int32_t i = 0; i < n_ends; i++)
        s->candidates[n++] = (tern_candidate){.id = ends[i], .logit = s->logits[ends[i]]};
    int32_t id = tern_sampler_choose(&s->sampler, s->candidates, (size_t)n, NULL, 0);
    *out = id >= first ? id - first : -1;
    return TERN_OK;
}

// ---- The prompt --------------------------------------------------------------------------------

// The voice's vector, projected to the width of the model's rows.
static tern_status make_voice(tern_speech *s, float *row, tern_error *err) {
    const tern_tensor *t = tern_arch_tensor(s->m->file, s->m->arch, "speaker.weight");
    size_t n = s->params.n_speaker, n_rows = (size_t)s->m->config.n_embd;
    float *w = t ? tern_alloc_array(TERN_MEM_SESSION, n * n_rows, sizeof *w) : NULL;
    if (!w) return tern_fail_memory(err, n * n_rows * sizeof *w);
    tern_status status = tern_tensor_decode(t, w, err);
    for (size_t i = 0; status == TERN_OK && i < n_rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++) sum += (double)w[i * n + j] * (double)s->params.speaker[j];
        row[i] = (float)sum;
    }
    tern_free(w);
    return status;
}

// How many marks are around a text.
static size_t n_marks(const tern_model *m) {
    int32_t marks[TERN_SPEAKER_MARKS];
    const tern_speaker *s = tern_speaker_of(m->arch);
    const tern_speaking *v = s->of(&m->config);
    return (size_t)(s->before(v, marks) + s->after(v, marks));
}

// Puts the marks around the text, and the voice after the first token.
static void make_prompt(tern_speech *s, const int32_t *ids, size_t n_ids) {
    int32_t marks[TERN_SPEAKER_MARKS], n = 0;
    const int32_t n_before = s->speaker->before(s->speech, marks);
    for (int32_t i = 0; i < n_before; i++) {
        s->ids[n++] = marks[i];
        if (i == 0 && s->rows) s->ids[n++] = -1;
    }
    if (n_ids) memcpy(s->ids + n, ids, n_ids * sizeof *ids);
    n += (int32_t)n_ids;
    s->n_prompt = n + s->speaker->after(s->speech, s->ids + n);
}

// Allocates memory for the longest piece's prompt; *most: its length.
static tern_status open_prompt(tern_speech *s, size_t *most, tern_error *err) {
    size_t n_voice = s->params.speaker != NULL, width = (size_t)s->m->config.n_embd, n_ids = 0;
    for (size_t i = 0; i < s->pieces.n; i++) {
        size_t n = s->pieces.ends[i] - (i ? s->pieces.ends[i - 1] : 0);
        if (n > n_ids) n_ids = n;
    }
    size_t n_around = n_marks(s->m), n = n_ids + n_voice + n_around;
    if (n >= (size_t)s->n_context)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL, "a text of %zu tokens: the model reads %d",
                         n_ids, s->n_context - (int)n_around);
    s->ids = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *s->ids);
    s->places = tern_alloc_array(TERN_MEM_SESSION, 3 * n, sizeof *s->places);
    if (n_voice) s->rows = tern_alloc_array(TERN_MEM_SESSION, n * width, sizeof *s->rows);
    if (!s->ids || !s->places || (n_voice && !s->rows))
        return tern_fail_memory(err, n * width * sizeof *s->rows);
    for (size_t i = 0; i < 3 * n; i++) s->places[i] = (int32_t)(i / 3);
    *most = n;
    return n_voice ? make_voice(s, s->rows + width, err) : TERN_OK;
}

static tern_status encode(const tern_model *m, const char *text, size_t n, const char *voice,
                          tern_ids *out, tern_error *err) {
    tern_strbuf all = {0};
    if (voice) tern_strbuf_printf(&all, "%s: ", voice);
    tern_strbuf_append(&all, text, n);
    tern_status status = all.failed ? tern_fail_memory(err, n)
                                    : tern_tokenizer_encode(m->tokenizer, tern_strbuf_text(&all),
                                                            all.len, TERN_TOKENIZE_BOS, out, err);
    tern_strbuf_free(&all);
    return status;
}

// Encodes the first piece of the text, *n bytes: as much as is spoken well and leaves room for its
// codes.
static tern_status encode_piece(const tern_model *m, const char *text, size_t *n, const char *voice,
                                tern_ids *out, tern_error *err) {
    size_t before = out->n, room = (size_t)m->config.n_context / 2, n_all = *n;
    for (size_t most = TERN_SPEAK_CHARACTERS;; most /= 2) {
        out->n = before;
        size_t n_said = *n = tern_speak_cut(text, n_all, most);
        while (n_said > 0 && strchr(" \t\r\n", text[n_said - 1])) n_said--;
        TERN_TRY(encode(m, text, n_said, voice, out, err));
        if (out->n - before + n_marks(m) < room || most < 20) return TERN_OK;
    }
}

static tern_status encode_pieces(const tern_model *m, const char *text, const char *voice,
                                 tern_pieces *out, tern_error *err) {
    size_t left = strlen(text), n;
    if (!m->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
    do {
        if (tern_array_reserve(TERN_MEM_SESSION, &out->ends, &out->capacity, out->n, 1) != 0)
            return tern_fail_memory(err, (out->n + 1) * sizeof *out->ends);
        n = left;
        TERN_TRY(encode_piece(m, text, &n, voice, &out->ids, err));
        out->ends[out->n++] = out->ids.n;
        for (text += n, left -= n; left > 0 && strchr(" \t\r\n", *text); text++) left--;
    } while (left > 0);
    return TERN_OK;
}

// ---- Sound -------------------------------------------------------------------------------------

static tern_status cancelled(tern_error *err) {
    return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
}

// Sets this step's samples, stretched to the wanted speed.
static tern_status give(tern_speech *s, const float *samples, size_t n, bool last,
                        tern_error *err) {
    if (s->stretch) TERN_TRY(tern_stretch_push(s->stretch, samples, n, last, &samples, &n, err));
    s->samples = samples;
    s->n_samples = n;
    return TERN_OK;
}

static tern_status begin_decoding(tern_speech *s, tern_error *err) {
    if (s->n_pending == 0) return TERN_OK;
    TERN_TRY(tern_codec_begin(s->codec, s->frames, (size_t)s->n_pending, err));
    s->is_decoding = true;
    return TERN_OK;
}

static tern_status poll_decoding(tern_speech *s, tern_error *err) {
    const float *samples;
    size_t n;
    bool done;
    double began = tern_seconds();
    tern_status status = tern_codec_poll(s->codec, &samples, &n, &done, err);
    s->stats.codec_seconds += tern_seconds() - began;
    if (!done) return status;
    s->is_decoding = false;
    if (s->stats.n_frames == 0) s->stats.first_seconds = tern_seconds() - s->began;
    s->stats.n_frames += s->n_pending;
    s->stats.seconds = (double)(s->stats.n_frames * s->sound.codec_frame) / s->sound.codec_rate;
    s->n_pending = 0;
    if (s->n_wanted < FRAMES_MOST) s->n_wanted *= 2;
    return give(s, samples, n, false, err);
}

// ---- Frames ------------------------------------------------------------------------------------

static tern_status begin_piece(tern_speech *s, tern_error *err) {
    size_t first = s->piece ? s->pieces.ends[s->piece - 1] : 0;
    s->n_frames = s->n_before = s->n_read = s->code = 0;
    memset(s->said, 0, (size_t)(s->speech->n_codes * s->speech->n_values));
    make_prompt(s, s->pieces.ids.ids + first, s->pieces.ends[s->piece] - first);
    s->stage = READ;
    return read_more(s, err);
}

// After the frame's last code.
static tern_status end_frame(tern_speech *s, tern_error *err) {
    int32_t n = (int32_t)s->speech->n_codes;
    if (s->params.on_codes &&
        !s->params.on_codes(s->params.user, s->frames + s->n_pending * n, (size_t)n))
        return cancelled(err);
    s->code = 0;
    s->n_frames++;
    s->n_left--;
    return ++s->n_pending < s->n_wanted ? TERN_OK : begin_decoding(s, err);
}

// Chooses the frame's next code, and begins to compute the scores after it; *over: the end came
// instead.
static tern_status say_code(tern_speech *s, bool *over, tern_error *err) {
    const tern_speaking *v = s->speech;
    int32_t n = (int32_t)v->n_codes, k = s->code, at = s->n_prompt + s->n_frames, value = 0;
    TERN_TRY(choose(s, k, &value, err));
    *over = value < 0;
    if (*over) return TERN_OK;
    s->frames[s->n_pending * n + k] = value;
    s->said[(size_t)k * (size_t)v->n_values + (size_t)value] = 1;
    s->id = s->speaker->frame(v, k) + value;
    for (int i = 0; i < 3; i++) s->place[i] = at;
    s->code++;
    return begin_run(s, &s->id, s->place, NULL, 1, s->code % n, err);
}

static tern_status say_more(tern_speech *s, tern_error *err) {
    if (s->code == (int32_t)s->speech->n_codes) return end_frame(s, err);
    bool over = s->code == 0 && (s->n_frames == s->n_frames_most || s->n_left == 0);
    s->stats.is_cut |= over;
    if (!over) TERN_TRY(say_code(s, &over, err));
    if (!over) return TERN_OK;
    s->stage = DECODE_REST;
    return ++s->piece < s->pieces.n && s->n_left > 0 ? begin_piece(s, err) : TERN_OK;
}

// A piece of what is under way; then what is to follow is begun.
static tern_status step(tern_speech *s, tern_error *err) {
    if (s->is_decoding) return poll_decoding(s, err);
    if (s->is_running) TERN_TRY(poll_run(s, err));
    if (s->is_running) return TERN_OK;
    switch (s->stage) {
    case BEGIN: return begin_piece(s, err);
    case READ:
        if (s->n_read < s->n_prompt) return read_more(s, err);
        s->stage = SAY;
        return say_more(s, err);
    case SAY: return say_more(s, err);
    case DECODE_REST: s->stage = END; return begin_decoding(s, err);
    case END: s->stage = OVER; return give(s, NULL, 0, true, err);
    case OVER: break;
    }
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

static tern_status settle_sampling(tern_speech *s, tern_error *err) {
    const tern_speak_params *p = &s->params;
    tern_model_info info;
    tern_sampling sampling = tern_sampling_default();
    float usual = s->speaker->temperature(s->speech);
    sampling.temperature = p->temperature < 0 ? 0 : p->temperature > 0 ? p->temperature : usual;
    sampling.top_k = 0;
    sampling.top_p = p->top_p != 0 ? p->top_p : s->speaker->top_p;
    sampling.min_p = 0;
    sampling.repeat_penalty = 1;
    sampling.seed = p->seed;
    if (isnan(p->temperature))
        return tern_fail(err, TERN_ERR_ARGUMENT, "temperature is not a number");
    if (!(p->repeat_penalty >= 0 && p->repeat_penalty < 1e6f))
        return tern_fail(err, TERN_ERR_ARGUMENT, "repeat_penalty is %g: expected 0 or more",
                         (double)p->repeat_penalty);
    if (!(sampling.top_p > 0))
        return tern_fail(err, TERN_ERR_ARGUMENT, "top_p is %g: expected more than 0, up to 1",
                         (double)p->top_p);
    tern_model_get_info(s->m, &info);
    TERN_TRY(tern_sampler_prepare(&s->sampler, &sampling, &info, err));
    return tern_sampler_reserve(&s->sampler, NULL, NULL, 0, err);
}

static tern_status settle(tern_speech *s, tern_model *codec, tern_error *err) {
    const tern_speak_params *p = &s->params;
    const tern_speaking *v = s->speech;
    double most = p->seconds_max != 0 ? p->seconds_max : s->speaker->seconds(v);
    tern_model_get_media_info(codec, &s->sound);
    if (s->sound.n_codes != v->n_codes || s->sound.n_values != v->n_values)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: no codec of the model's codes, %d of %d values in a frame",
                         codec->path, (int)v->n_codes, (int)v->n_values);
    if (p->speaker && p->n_speaker != (size_t)v->n_speaker)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a voice of %zu numbers: the model takes %d",
                         p->n_speaker, (int)v->n_speaker);
    if (p->speed != 0 && !(p->speed >= 0.25 && p->speed <= 4))
        return tern_fail(err, TERN_ERR_ARGUMENT, "speed is %g: expected 0.25 to 4", p->speed);
    if (!(most > 0))
        return tern_fail(err, TERN_ERR_ARGUMENT, "seconds_max is %g: expected more than 0", most);
    s->n_context = (int32_t)s->m->config.n_context;
    s->n_batch = s->m->n_batch;
    double frames = ceil(most * s->sound.codec_rate / s->sound.codec_frame);
    s->n_frames_most = frames < s->n_context ? (int32_t)frames : s->n_context;
    s->n_left = p->seconds_max != 0 && frames < 1e12 ? (int64_t)frames : INT64_MAX;
    TERN_TRY(settle_sampling(s, err));
    return tern_model_refuse_damaged(s->m, err);
}

// Allocates memory for the longest prompt and as many frames as may follow.
static tern_status open_speaking(tern_speech *s, tern_model *codec, size_t n_prompt,
                                 tern_error *err) {
    const tern_speaking *v = s->speech;
    int32_t n_codes = (int32_t)v->n_codes, room = (s->n_context - (int32_t)n_prompt) / n_codes;
    if (s->n_frames_most > room) s->n_frames_most = room;
    const tern_runner_desc desc = {.n_context = (int32_t)n_prompt + s->n_frames_most * n_codes};
    s->logits = tern_alloc_array(TERN_MEM_SESSION, (size_t)s->m->config.n_vocab, sizeof *s->logits);
    s->said = tern_alloc_array(TERN_MEM_SESSION, (size_t)(v->n_codes * v->n_values), 1);
    s->candidates = tern_alloc_array(TERN_MEM_SESSION, (size_t)v->n_values + TERN_SPEAKER_ENDS,
                                     sizeof *s->candidates);
    s->frames =
        tern_alloc_array(TERN_MEM_SESSION, (size_t)n_codes * FRAMES_MOST, sizeof *s->frames);
    if (!s->logits || !s->said || !s->candidates || !s->frames)
        return tern_fail_memory(err, (size_t)s->m->config.n_vocab * sizeof *s->logits);
    TERN_TRY(tern_codec_open(&s->codec, codec, err));
    if (s->params.speed != 0 && s->params.speed != 1)
        TERN_TRY(tern_stretch_open(&s->stretch, s->sound.codec_rate, s->params.speed, err));
    return tern_runner_open(&s->runner, s->m, &desc, err);
}

static void free_pieces(tern_pieces *p) {
    tern_free(p->ids.ids);
    tern_free(p->ends);
}

void tern_speech_close(tern_speech *s) {
    if (!s || tern_use_waits(&s->use)) return;
    free_pieces(&s->pieces);
    tern_runner_close(&s->runner);
    tern_codec_close(s->codec);
    tern_stretch_close(s->stretch);
    tern_free(s->ids);
    tern_free(s->places);
    tern_free(s->rows);
    tern_free(s->logits);
    tern_free(s->said);
    tern_free(s->candidates);
    tern_free(s->frames);
    tern_model_let_go(s->m);
    tern_free(s);
}

static tern_status begin(tern_speech *s, tern_model *codec, tern_error *err) {
    const tern_ids *ids = &s->pieces.ids;
    size_t n_prompt = 0;
    TERN_TRY(settle(s, codec, err));
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] < 0 || ids->ids[i] >= s->m->config.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d: expected 0 to %d", (int)ids->ids[i],
                             (int)s->m->config.n_vocab - 1);
    s->stats.rate = s->sound.codec_rate;
    s->n_wanted = FRAMES_FIRST;
    TERN_TRY(open_prompt(s, &n_prompt, err));
    return open_speaking(s, codec, n_prompt, err);
}

// Takes over pieces, even on failure.
static tern_status say_open(tern_speech **out, tern_model *m, tern_model *codec,
                            tern_pieces *pieces, const tern_speak_params *params, tern_error *err) {
    tern_speech *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) {
        free_pieces(pieces);
        return tern_fail_memory(err, sizeof *s);
    }
    s->pieces = *pieces;
    s->m = m;
    tern_model_hold(m);
    s->speaker = tern_speaker_of(m->arch);
    s->speech = s->speaker->of(&m->config);
    s->params = *params;
    s->began = tern_seconds();
    tern_status status = begin(s, codec, err);
    if (status == TERN_OK)
        *out = s;
    else
        tern_speech_close(s);
    return status;
}

// One piece of the caller's ids.
static tern_status take_ids(const tern_speak_params *p, tern_pieces *out, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &out->ends, &out->capacity, 0, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &out->ids.ids, &out->ids.capacity, 0, p->n_ids) != 0)
        return tern_fail_memory(err, p->n_ids * sizeof *p->ids);
    memcpy(out->ids.ids, p->ids, p->n_ids * sizeof *p->ids);
    out->ids.n = out->ends[0] = p->n_ids;
    out->n = 1;
    return TERN_OK;
}

tern_status tern_speech_open(tern_speech **out, tern_model *m, tern_model *codec, const char *text,
                             const tern_speak_params *params, tern_error *err) {
    tern_clear(err);
    static const tern_speak_params defaults = {0};
    const tern_speak_params *p = params ? params : &defaults;
    tern_pieces pieces = {0};
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    TERN_NEED(codec);
    TERN_NEED_ARRAY(p->ids, p->n_ids);
    if (!text == !p->n_ids)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: expected either a text or its ids", __func__);
    tern_media_info info;
    tern_model_get_media_info(m, &info);
    if (!info.is_tts)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model is not a speech model", m->path);
    tern_status status =
        text ? encode_pieces(m, text, p->voice, &pieces, err) : take_ids(p, &pieces, err);
    if (status == TERN_OK) return say_open(out, m, codec, &pieces, p, err);
    free_pieces(&pieces);
    return status;
}

void tern_speech_get_stats(const tern_speech *s, tern_speak_stats *stats) {
    if (stats) *stats = s ? s->stats : (tern_speak_stats){0};
}

tern_status tern_speech_poll(tern_speech *s, const float **samples, size_t *n_samples, bool *done,
                             tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED(samples);
    TERN_NEED(n_samples);
    TERN_NEED(done);
    TERN_TRY(tern_use_begin(&s->use, "the text", err));
    s->samples = NULL;
    s->n_samples = 0;
    tern_status status = step(s, err);
    const bool is_closed = tern_use_end(&s->use);
    if (status != TERN_OK || is_closed) s->stage = OVER;
    *samples = is_closed ? NULL : s->samples;
    *n_samples = status == TERN_OK && !is_closed ? s->n_samples : 0;
    *done = s->stage == OVER;
    if (is_closed) tern_speech_close(s);
    return status;
}

// Polls it to its end; the samples go to the caller's callback.
static tern_status say_all(tern_speech *s, tern_speak_stats *stats, tern_error *err) {
    const tern_speak_params *p = &s->params;
    const float *samples;
    size_t n;
    for (bool done = false; !done;) {
        tern_status status = tern_speech_poll(s, &samples, &n, &done, err);
        tern_speech_get_stats(s, stats);
        TERN_TRY(status);
        if (n > 0 && p->on_samples && !p->on_samples(p->user, samples, n)) return cancelled(err);
    }
    return TERN_OK;
}

tern_status tern_speak(tern_model *m, tern_model *codec, const char *text,
                       const tern_speak_params *params, tern_speak_stats *stats, tern_error *err) {
    tern_clear(err);
    tern_speech *s;
    if (stats) *stats = (tern_speak_stats){0};
    TERN_TRY(tern_speech_open(&s, m, codec, text, params, err));
    tern_status status = say_all(s, stats, err);
    tern_speech_close(s);
    return status;
}
