// Recognizers of windows: spectrograms of the same length; each begins where the text of the
// previous one ends, according to the recognizer (models/arch_media.h), whose rules say which
// tokens may follow, too.
//
// A window's text is decoded greedily. If the model is unsure of it, or the text repeats itself, it
// is decoded again with sampled tokens, at rising temperatures.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "session/media/asr.h"

struct asr_windows {
    tern_mel *mel;
    float *logits;                      // [n_vocab]
    tern_recognition_segment *segments; // [n_context]
    int32_t *text;                      // [n_context] of a segment
    int64_t bins, rows;                 // of a window's spectrogram
    bool with_times;                    // the current text
    int32_t attempt, position;          // at it; of its next token
    double logs;                        // sum of its tokens' log-probabilities
    int32_t language;                   // -1: not known yet
    uint64_t random;
    double mean_log, silence; // of the last text: mean log-probability of its tokens; probability
                              // of no speech
};

// ---- Opening -----------------------------------------------------------------------------------

static tern_status find_language(asr_run *h, const char *wanted, tern_error *err) {
    const tern_config *c = &h->m->config;
    const char *name;
    const bool one = !h->recognizer->language(c, 1);
    h->windows->language = one ? 0 : -1;
    if (!wanted) return TERN_OK;
    for (int32_t i = 0; (name = h->recognizer->language(c, i)); i++)
        if (strcmp(name, wanted) == 0) {
            h->windows->language = i;
            return TERN_OK;
        }
    return tern_fail(err, TERN_ERR_ARGUMENT, "language \"%s\": expected %s%s", wanted,
                     h->recognizer->language(c, 0),
                     one ? "" : ", de, fr, zh and so on, as the model calls them");
}

int64_t tern_windows_rows(const asr_run *h) {
    return (int64_t)(h->recognizer->window(&h->m->config) / TERN_RECOGNIZER_ROW + 0.5);
}

tern_status tern_windows_open(asr_run *h, tern_error *err) {
    const tern_config *c = &h->m->config;
    asr_windows *w = h->windows = tern_alloc(TERN_MEM_SESSION, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->bins = h->recognizer->bins(c);
    w->rows = tern_windows_rows(h);
    w->logits = tern_alloc_array(TERN_MEM_SESSION, (size_t)c->n_vocab, sizeof *w->logits);
    w->segments = tern_alloc_array(TERN_MEM_SESSION, (size_t)c->n_context, sizeof *w->segments);
    w->text = tern_alloc_array(TERN_MEM_SESSION, (size_t)c->n_context, sizeof *w->text);
    if (!w->logits || !w->segments || !w->text)
        return tern_fail_memory(err, (size_t)c->n_vocab * sizeof *w->logits);
    TERN_TRY(find_language(h, h->params.language, err));
    return tern_mel_open(&w->mel, (int32_t)w->bins, err);
}

void tern_windows_close(asr_windows *w) {
    if (!w) return;
    tern_mel_close(w->mel);
    tern_free(w->logits);
    tern_free(w->segments);
    tern_free(w->text);
    tern_free(w);
}

const char *tern_windows_language(const asr_run *h) {
    const char *name = h->recognizer->language(&h->m->config, h->windows->language);
    return name ? name : "";
}

// ---- Tokens ------------------------------------------------------------------------------------

static int32_t greatest(const float *x, int32_t from, int32_t to) {
    int32_t best = from;
    for (int32_t i = from + 1; i < to; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

// ln softmax(logits)[id].
static double log_probability(const asr_windows *w, int32_t n_vocab, int32_t id) {
    float most = w->logits[greatest(w->logits, 0, n_vocab)];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)(w->logits[i] - most));
    return (double)(w->logits[id] - most) - log(sum);
}

static double random_number(asr_windows *w) { // 0 to 1
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (double)(w->random >> 11) * 0x1p-53;
}

static int32_t choose(asr_windows *w, int32_t n_vocab, double temperature) {
    int32_t best = greatest(w->logits, 0, n_vocab);
    double sum = 0;
    if (temperature == 0) return best;
    for (int32_t i = 0; i < n_vocab; i++)
        sum += exp((double)(w->logits[i] - w->logits[best]) / temperature);
    double left = random_number(w) * sum;
    for (int32_t i = 0; i < n_vocab; i++) {
        left -= exp((double)(w->logits[i] - w->logits[best]) / temperature);
        if (left < 0) return i;
    }
    return best;
}

// ---- A window ----------------------------------------------------------------------------------

static tern_recognition text_of(const asr_run *h) {
    return (tern_recognition){.config = &h->m->config,
                              .with_times = h->windows->with_times,
                              .translates = h->params.translate,
                              .language = h->windows->language,
                              .ids = h->ids,
                              .n_ids = h->n_ids};
}

// The compression ratio in tokens, if each run of three or more tokens that occurred before counts
// as two (position and length).
static double repetition(const int32_t *ids, int32_t n) {
    int32_t cost = 0;
    for (int32_t at = 0; at < n;) {
        int32_t longest = 0;
        for (int32_t from = 0; from < at; from++) {
            int32_t k = 0;
            while (at + k < n && ids[from + k] == ids[at + k]) k++;
            if (k > longest) longest = k;
        }
        cost += longest >= 3 ? 2 : 1;
        at += longest >= 3 ? longest : 1;
    }
    return cost ? (double)n / cost : 1;
}

static bool is_silence(const asr_run *h) {
    const tern_recognition_doubts *d = &h->recognizer->doubts;
    return h->windows->silence > d->no_speech && h->windows->mean_log < d->unsure;
}

// Begins a window's text, of the spectrogram in `input`.
static tern_status begin_window(asr_run *h, bool with_times, tern_error *err) {
    asr_windows *w = h->windows;
    w->random = 88172645463325252u; // the same in each window
    w->with_times = with_times;
    w->attempt = 0;
    return tern_asr_encode(h, w->rows, w->rows * w->bins, err);
}

static tern_status begin_attempt(asr_run *h, tern_error *err) {
    int32_t begin = (int32_t)h->m->config.bos_id;
    h->windows->logs = 0;
    h->n_ids = 0;
    h->stage = ASR_OPENING;
    return tern_asr_decode(h, &begin, 1, 0, h->windows->logits, err);
}

static tern_status end_attempt(asr_run *h, tern_error *err) {
    const tern_recognition_doubts *d = &h->recognizer->doubts;
    asr_windows *w = h->windows;
    w->mean_log = w->logs / (h->n_ids + 1);
    bool doubtful = w->mean_log < d->unsure || repetition(h->ids, h->n_ids) > d->repeated;
    bool again = doubtful && !h->params.no_fallback && !is_silence(h) && w->attempt < d->n_more;
    if (!again && !w->with_times && is_silence(h)) h->n_ids = 0;
    h->stage = ASR_IDLE;
    w->attempt += again;
    return again ? begin_attempt(h, err) : TERN_OK;
}

static tern_status write_token(asr_run *h, tern_error *err) {
    asr_windows *w = h->windows;
    const tern_config *c = &h->m->config;
    const tern_recognition text = text_of(h);
    if (h->n_ids >= c->n_context / 2) return end_attempt(h, err);
    h->recognizer->allow(&text, w->logits);
    int32_t id = choose(w, (int32_t)c->n_vocab, w->attempt * h->recognizer->doubts.hotter);
    w->logs += log_probability(w, (int32_t)c->n_vocab, id);
    if (id == c->eos_id) return end_attempt(h, err);
    h->ids[h->n_ids++] = id;
    if (w->position == c->n_context) return end_attempt(h, err);
    return tern_asr_decode(h, &id, 1, w->position++, w->logits, err);
}

// After the first token: the language, and the rest of the prompt.
static tern_status write_prompt(asr_run *h, tern_error *err) {
    asr_windows *w = h->windows;
    const tern_config *c = &h->m->config;
    int32_t prompt[TERN_RECOGNIZER_PROMPT], n_languages = 0;
    int32_t first = h->recognizer->first_language(c);
    w->silence = exp(log_probability(w, (int32_t)c->n_vocab, h->recognizer->silence(c)));
    while (h->recognizer->language(c, n_languages)) n_languages++;
    if (w->language < 0) w->language = greatest(w->logits, first, first + n_languages) - first;
    const tern_recognition text = text_of(h);
    int32_t n = h->recognizer->prompt(&text, prompt);
    w->position = 1 + n;
    h->stage = ASR_WRITING;
    return n ? tern_asr_decode(h, prompt, n, 1, w->logits, err) : write_token(h, err);
}

tern_status tern_windows_go_on(asr_run *h, tern_error *err) {
    if (h->stage == ASR_ENCODING) return begin_attempt(h, err);
    return h->stage == ASR_OPENING ? write_prompt(h, err) : write_token(h, err);
}

tern_status tern_windows_begin_text(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const asr_windows *w = h->windows;
    size_t n_numbers = (size_t)(w->rows * w->bins);
    tern_mel_rows(w->mel, samples, n, 0, w->rows, h->input);
    tern_mel_level(h->input, n_numbers, h->input[greatest(h->input, 0, (int32_t)n_numbers)]);
    return begin_window(h, false, err);
}

// ---- All windows -------------------------------------------------------------------------------

// The maximum of the whole spectrogram, by which all windows are normalized: of one window more.
static void level_more(asr_run *h, asr_sound *s) {
    const asr_windows *w = h->windows;
    int64_t n_rows = s->n / TERN_MEL_HOP + 2 - s->n_leveled,
            n = n_rows < w->rows ? n_rows : w->rows;
    tern_mel_rows(w->mel, s->samples, s->n, s->n_leveled, n, h->input);
    float best = h->input[greatest(h->input, 0, (int32_t)(n * w->bins))];
    s->most = s->n_leveled ? fmaxf(s->most, best) : best;
    s->n_leveled += n;
}

// Appends the segments of a window of `size` rows that begins at row `at`, without their marks;
// *used: rows before the next window.
static tern_status add_segments(asr_run *h, segment_list *out, int64_t at, int64_t size,
                                int64_t *used, tern_error *err) {
    const asr_windows *w = h->windows;
    const tern_recognition text = text_of(h);
    const double start = (double)at * TERN_RECOGNIZER_ROW;
    int32_t n = h->recognizer->segments(&text, size, w->segments, used);
    for (int32_t i = 0; i < n; i++) {
        const tern_recognition_segment *s = &w->segments[i];
        int32_t n_text = 0;
        for (int32_t k = s->first; k < s->end; k++)
            if (h->recognizer->is_text(&h->m->config, h->ids[k])) w->text[n_text++] = h->ids[k];
        TERN_TRY(tern_asr_add(h, out, start + s->start, start + s->stop, w->text, n_text, err));
    }
    return TERN_OK;
}

// The first row from `row` on that has speech; INT64_MAX: none.
static int64_t next_speech(const tern_voice_list *speech, int64_t row) {
    for (size_t i = 0; i < speech->n; i++) {
        int64_t first = speech->spans[i].first / TERN_MEL_HOP;
        if (speech->spans[i].end / TERN_MEL_HOP > row) return first > row ? first : row;
    }
    return INT64_MAX;
}

// Begins the window at `at`, or at the first speech after it, unless all are done.
static tern_status begin_next(asr_run *h, asr_sound *s, tern_error *err) {
    const asr_windows *w = h->windows;
    int64_t content = s->n / TERN_MEL_HOP;
    if (h->params.vad && !h->params.whole) s->at = next_speech(&h->speech, s->at);
    if (s->at >= content) return TERN_OK;
    s->size = content - s->at < w->rows ? content - s->at : w->rows;
    tern_mel_rows(w->mel, s->samples, s->n, s->at, w->rows, h->input);
    tern_mel_level(h->input, (size_t)(w->rows * w->bins), s->most);
    return begin_window(h, true, err);
}

static tern_status end_window(asr_run *h, asr_sound *s, tern_error *err) {
    int64_t used = s->size;
    if (!is_silence(h)) TERN_TRY(add_segments(h, &s->list, s->at, s->size, &used, err));
    s->at += used;
    return begin_next(h, s, err);
}

tern_status tern_windows_poll_sound(asr_run *h, asr_sound *s, bool *done, tern_error *err) {
    const int64_t content = s->n / TERN_MEL_HOP;
    bool over = false;
    *done = false;
    if (s->n_leveled < content + 2) {
        TERN_TRY(tern_check_cancelled("the transcription", err));
        level_more(h, s);
    } else if (!s->is_searched) {
        s->is_searched = !h->params.vad || h->params.whole;
        if (!s->is_searched)
            TERN_TRY(tern_asr_poll_search(h, s->samples, s->n, &s->is_searched, err));
        if (s->is_searched) TERN_TRY(begin_next(h, s, err));
    } else if (s->at < content) {
        TERN_TRY(tern_asr_poll_text(h, &over, err));
        if (over) TERN_TRY(end_window(h, s, err));
    }
    *done = s->is_searched && s->at >= content;
    return TERN_OK;
}
