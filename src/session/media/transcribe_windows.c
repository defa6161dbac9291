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

static tern_recognition text_of(const asr_run *h, bool with_times) {
    return (tern_recognition){.config = &h->m->config,
                              .with_times = with_times,
                              .translates = h->params.translate,
                              .language = h->windows->language,
                              .ids = h->ids,
                              .n_ids = h->n_ids};
}

// Reads the prompt. Returns the position after it.
static tern_status begin_text(asr_run *h, int64_t n_rows, bool with_times, int32_t *position,
                              tern_error *err) {
    asr_windows *w = h->windows;
    const tern_config *c = &h->m->config;
    int32_t n_vocab = (int32_t)c->n_vocab, prompt[TERN_RECOGNIZER_PROMPT], n_languages = 0;
    int32_t begin = (int32_t)c->bos_id, first = h->recognizer->first_language(c);
    TERN_TRY(tern_asr_decode(h, &begin, 1, 0, n_rows, NULL, w->logits, err));
    w->silence = exp(log_probability(w, n_vocab, h->recognizer->silence(c)));
    while (h->recognizer->language(c, n_languages)) n_languages++;
    if (w->language < 0) w->language = greatest(w->logits, first, first + n_languages) - first;
    tern_recognition text = text_of(h, with_times);
    int32_t n = h->recognizer->prompt(&text, prompt);
    *position = 1 + n;
    return n ? tern_asr_decode(h, prompt, n, 1, 0, NULL, w->logits, err) : TERN_OK;
}

static tern_status write_text(asr_run *h, int64_t n_rows, bool with_times, double temperature,
                              tern_error *err) {
    asr_windows *w = h->windows;
    const tern_config *c = &h->m->config;
    int32_t n_vocab = (int32_t)c->n_vocab, position;
    double logs = 0;
    h->n_ids = 0;
    TERN_TRY(begin_text(h, n_rows, with_times, &position, err));
    while (h->n_ids < c->n_context / 2) {
        tern_recognition text = text_of(h, with_times);
        h->recognizer->allow(&text, w->logits);
        int32_t id = choose(w, n_vocab, temperature);
        logs += log_probability(w, n_vocab, id);
        if (id == c->eos_id) break;
        h->ids[h->n_ids++] = id;
        if (position == c->n_context) break;
        TERN_TRY(tern_asr_decode(h, &id, 1, position++, 0, NULL, w->logits, err));
    }
    w->mean_log = logs / (h->n_ids + 1);
    return TERN_OK;
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

static tern_status write_window(asr_run *h, bool with_times, tern_error *err) {
    const tern_recognition_doubts *d = &h->recognizer->doubts;
    asr_windows *w = h->windows;
    int64_t n_rows;
    w->random = 88172645463325252u; // the same in each window
    TERN_TRY(tern_asr_encode(h, w->rows, w->rows * w->bins, &n_rows, err));
    for (int32_t i = 0; i <= d->n_more; i++) {
        TERN_TRY(write_text(h, n_rows, with_times, i * d->hotter, err));
        bool doubtful = w->mean_log < d->unsure || repetition(h->ids, h->n_ids) > d->repeated;
        if (h->params.no_fallback || !doubtful || is_silence(h)) break;
    }
    return TERN_OK;
}

tern_status tern_windows_write_down(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const asr_windows *w = h->windows;
    size_t n_numbers = (size_t)(w->rows * w->bins);
    tern_mel_rows(w->mel, samples, n, 0, w->rows, h->input);
    tern_mel_level(h->input, n_numbers, h->input[greatest(h->input, 0, (int32_t)n_numbers)]);
    TERN_TRY(write_window(h, false, err));
    if (is_silence(h)) h->n_ids = 0;
    return TERN_OK;
}

// ---- All windows -------------------------------------------------------------------------------

// The maximum of the whole spectrogram, by which all windows are normalized.
static float greatest_of_all(asr_run *h, const tern_sound *sound) {
    const asr_windows *w = h->windows;
    int64_t n_rows = sound->n / TERN_MEL_HOP + 2;
    float best = -INFINITY;
    for (int64_t t = 0; t < n_rows; t += w->rows) {
        int64_t n = n_rows - t < w->rows ? n_rows - t : w->rows;
        tern_mel_rows(w->mel, sound->samples, sound->n, t, n, h->input);
        best = fmaxf(best, h->input[greatest(h->input, 0, (int32_t)(n * w->bins))]);
    }
    return best;
}

// Appends the segments of a window of `size` rows that begins at row `at`, without their marks;
// *used: rows before the next window.
static tern_status add_segments(asr_run *h, segment_list *out, int64_t at, int64_t size,
                                int64_t *used, tern_error *err) {
    const asr_windows *w = h->windows;
    const tern_recognition text = text_of(h, true);
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

tern_status tern_windows_transcribe(asr_run *h, const tern_sound *sound, segment_list *out,
                                    tern_error *err) {
    const asr_windows *w = h->windows;
    int64_t content = sound->n / TERN_MEL_HOP, used;
    float most = greatest_of_all(h, sound);
    tern_voice_list speech = {0};
    tern_status status = TERN_OK;
    if (h->params.vad && !h->params.whole)
        status = tern_asr_find_speech(h, sound->samples, sound->n, &speech, err);
    for (int64_t at = 0; status == TERN_OK && at < content; at += used) {
        if (h->params.vad && !h->params.whole) at = next_speech(&speech, at);
        if (at >= content) break;
        int64_t size = content - at < w->rows ? content - at : w->rows;
        tern_mel_rows(w->mel, sound->samples, sound->n, at, w->rows, h->input);
        tern_mel_level(h->input, (size_t)(w->rows * w->bins), most);
        status = write_window(h, true, err);
        used = size;
        if (status == TERN_OK && !is_silence(h))
            status = add_segments(h, out, at, size, &used, err);
    }
    tern_voice_free(&speech);
    return status;
}
