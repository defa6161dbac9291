// Whisper's transcription: windows of 30 seconds; each begins where the text of the previous one
// ends, according to its timestamp tokens; the rules are OpenAI's.
//
// A window's text is decoded greedily. If the model is unsure of it, or the text repeats itself, it
// is decoded again with sampled tokens, at rising temperatures.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "session/asr.h"

#define FRAME_SECONDS   0.02   // per row of the encoder, and per timestamp token
#define ROW_SECONDS     0.01   // of the spectrogram
#define FIRST_TIME_MOST 50     // timestamp tokens: a text begins in the first second
#define UNSURE          (-1.0) // mean log-probability of its tokens
#define REPEATED        2.0    // tokens, relative to those without repetitions
#define NO_SPEECH       0.6
#define HOTTER          0.2
#define TEXT_MOST       448 // tokens: half of the longest context (models/whisper.c)

struct whisper_state {
    tern_mel *mel;
    float *logits;                                                              // [n_vocab]
    int32_t begin, end, no_speech, no_times, first_time, transcribe, translate; // tokens
    int32_t n_languages, language;                                              // -1: not known yet
    bool is_multilingual;
    uint64_t random;
    double mean_log, silence; // of the last text: mean log-probability of its tokens; probability
                              // of no speech
};

// Languages, in the order of their tokens.
static const char *const languages[] = {
    "en", "zh", "de", "es",  "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv",
    "it", "id", "hi", "fi",  "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no",
    "th", "ur", "hr", "bg",  "lt", "la", "mi", "ml", "cy", "sk", "te", "fa", "lv", "bn", "sr",
    "az", "sl", "kn", "et",  "mk", "br", "eu", "is", "hy", "ne", "mn", "bs", "kk", "sq", "sw",
    "gl", "mr", "pa", "si",  "km", "sn", "yo", "so", "af", "oc", "ka", "be", "tg", "sd", "gu",
    "am", "yi", "lo", "uz",  "fo", "ht", "ps", "tk", "nn", "mt", "sa", "lb", "my", "bo", "tl",
    "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue"};
#define N_LANGUAGES ((int32_t)(sizeof languages / sizeof *languages))

// ---- Opening -----------------------------------------------------------------------------------

static tern_status find_language(whisper_state *w, const char *wanted, tern_error *err) {
    w->language = w->is_multilingual ? -1 : 0;
    if (!wanted) return TERN_OK;
    for (int32_t i = 0; i < w->n_languages; i++)
        if (strcmp(languages[i], wanted) == 0) {
            w->language = i;
            return TERN_OK;
        }
    return tern_fail(err, TERN_ERR_ARGUMENT, "language \"%s\": expected en%s", wanted,
                     w->is_multilingual ? ", de, fr, zh and so on, as Whisper calls them" : "");
}

tern_status tern_whisper_open(asr_run *h, tern_error *err) {
    const tern_config *c = &h->m->config;
    whisper_state *w = h->whisper = tern_alloc(TERN_MEM_SESSION, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->logits = tern_alloc_array(TERN_MEM_SESSION, (size_t)c->n_vocab, sizeof *w->logits);
    if (!w->logits) return tern_fail_memory(err, (size_t)c->n_vocab * sizeof *w->logits);
    w->begin = (int32_t)c->bos_id;
    w->end = (int32_t)c->eos_id;
    w->first_time = (int32_t)(c->n_vocab - c->whisper.n_frames - 1);
    w->no_times = w->first_time - 1;
    w->no_speech = w->first_time - 2;
    w->transcribe = w->first_time - 5;
    w->translate = w->first_time - 6;
    w->n_languages = w->translate - w->begin - 1;
    w->is_multilingual = c->whisper.is_multilingual;
    if (!w->is_multilingual) w->n_languages = 1;
    if (w->n_languages > N_LANGUAGES) w->n_languages = N_LANGUAGES;
    h->seconds_max = (double)c->whisper.n_frames * FRAME_SECONDS;
    TERN_TRY(find_language(w, h->params.language, err));
    return tern_mel_open(&w->mel, (int32_t)c->whisper.n_mels, err);
}

void tern_whisper_close(whisper_state *w) {
    if (!w) return;
    tern_mel_close(w->mel);
    tern_free(w->logits);
    tern_free(w);
}

const char *tern_whisper_language(const asr_run *h) {
    int32_t i = h->whisper->language;
    return i >= 0 && i < N_LANGUAGES ? languages[i] : "";
}

// ---- What may be written -----------------------------------------------------------------------

static void forbid(whisper_state *w, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) w->logits[i] = -INFINITY;
}

static bool is_time(const whisper_state *w, int32_t id) { return id >= w->first_time; }

// Timestamps come in pairs, the end of a segment and the beginning of the next, and never decrease;
// the first token is a timestamp in the first second.
static void forbid_times(whisper_state *w, const int32_t *said, int32_t n, int32_t n_vocab) {
    bool last = n > 0 && is_time(w, said[n - 1]), before = n < 2 || is_time(w, said[n - 2]);
    if (n == 0) {
        forbid(w, 0, w->first_time);
        forbid(w, w->first_time + FIRST_TIME_MOST + 1, n_vocab);
        return;
    }
    if (last && before)
        forbid(w, w->first_time, n_vocab);
    else if (last)
        forbid(w, 0, w->end);
    int32_t k = n;
    while (k > 0 && !is_time(w, said[k - 1])) k--;
    if (k > 0) forbid(w, w->first_time, said[k - 1] + !(last && !before));
}

// Only timestamps may follow if together they are likelier than the best text token.
static void prefer_times(whisper_state *w, int32_t n_vocab) {
    float most = -INFINITY;
    double times = 0;
    for (int32_t i = 0; i < w->first_time; i++) most = fmaxf(most, w->logits[i]);
    if (most == -INFINITY) return;
    for (int32_t i = w->first_time; i < n_vocab; i++) times += exp((double)(w->logits[i] - most));
    if (times > 1) forbid(w, 0, w->first_time);
}

static void apply_rules(const asr_run *h, bool with_times) {
    whisper_state *w = h->whisper;
    const tern_whisper *c = &h->m->config.whisper;
    int32_t n_vocab = (int32_t)h->m->config.n_vocab;
    for (int32_t i = 0; i < c->n_never; i++) w->logits[c->never[i]] = -INFINITY;
    forbid(w, w->end + 1, w->first_time);
    for (int32_t i = 0; h->n_ids == 0 && i < c->n_never_first; i++)
        w->logits[c->never_first[i]] = -INFINITY;
    if (!with_times) {
        forbid(w, w->first_time, n_vocab);
        return;
    }
    forbid_times(w, h->ids, h->n_ids, n_vocab);
    prefer_times(w, n_vocab);
}

static int32_t greatest(const float *x, int32_t from, int32_t to) {
    int32_t best = from;
    for (int32_t i = from + 1; i < to; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

// ln softmax(logits)[id].
static double log_probability(const whisper_state *w, int32_t n_vocab, int32_t id) {
    float most = w->logits[greatest(w->logits, 0, n_vocab)];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)(w->logits[i] - most));
    return (double)(w->logits[id] - most) - log(sum);
}

static double random_number(whisper_state *w) { // 0 to 1
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (double)(w->random >> 11) * 0x1p-53;
}

static int32_t choose(whisper_state *w, int32_t n_vocab, double temperature) {
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

// Reads the prompt: the language and the task. Returns the position after it.
static tern_status begin_text(asr_run *h, int64_t n_rows, bool with_times, int32_t *position,
                              tern_error *err) {
    whisper_state *w = h->whisper;
    int32_t n_vocab = (int32_t)h->m->config.n_vocab, prompt[3], n = 0;
    TERN_TRY(tern_asr_decode(h, &w->begin, 1, 0, n_rows, NULL, w->logits, err));
    w->silence = exp(log_probability(w, n_vocab, w->no_speech));
    if (w->language < 0)
        w->language =
            greatest(w->logits, w->begin + 1, w->begin + 1 + w->n_languages) - w->begin - 1;
    if (w->is_multilingual) {
        prompt[n++] = w->begin + 1 + w->language;
        prompt[n++] = h->params.translate ? w->translate : w->transcribe;
    }
    if (!with_times) prompt[n++] = w->no_times;
    *position = 1 + n;
    return n ? tern_asr_decode(h, prompt, n, 1, 0, NULL, w->logits, err) : TERN_OK;
}

static tern_status write_text(asr_run *h, int64_t n_rows, bool with_times, double temperature,
                              tern_error *err) {
    whisper_state *w = h->whisper;
    int32_t n_vocab = (int32_t)h->m->config.n_vocab, position;
    double logs = 0;
    h->n_ids = 0;
    TERN_TRY(begin_text(h, n_rows, with_times, &position, err));
    while (h->n_ids < h->m->config.n_context / 2) {
        apply_rules(h, with_times);
        int32_t id = choose(w, n_vocab, temperature);
        logs += log_probability(w, n_vocab, id);
        if (id == w->end) break;
        h->ids[h->n_ids++] = id;
        if (position == h->m->config.n_context) break;
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

static bool is_silence(const whisper_state *w) {
    return w->silence > NO_SPEECH && w->mean_log < UNSURE;
}

static tern_status write_window(asr_run *h, bool with_times, tern_error *err) {
    const tern_config *c = &h->m->config;
    whisper_state *w = h->whisper;
    int64_t n_rows, rows = 2 * c->whisper.n_frames;
    w->random = 88172645463325252u; // the same in each window
    TERN_TRY(tern_asr_encode(h, rows, rows * c->whisper.n_mels, &n_rows, err));
    for (int i = 0; i <= 5; i++) {
        TERN_TRY(write_text(h, n_rows, with_times, i * HOTTER, err));
        bool doubtful = w->mean_log < UNSURE || repetition(h->ids, h->n_ids) > REPEATED;
        if (h->params.no_fallback || !doubtful || is_silence(w)) break;
    }
    return TERN_OK;
}

tern_status tern_whisper_write_down(asr_run *h, const float *samples, int64_t n, tern_error *err) {
    const tern_whisper *c = &h->m->config.whisper;
    size_t n_numbers = (size_t)(2 * c->n_frames * c->n_mels);
    tern_mel_rows(h->whisper->mel, samples, n, 0, 2 * c->n_frames, h->input);
    tern_mel_level(h->input, n_numbers, h->input[greatest(h->input, 0, (int32_t)n_numbers)]);
    TERN_TRY(write_window(h, false, err));
    if (is_silence(h->whisper)) h->n_ids = 0;
    return TERN_OK;
}

// ---- All windows -------------------------------------------------------------------------------

// The maximum of the whole spectrogram, by which all windows are normalized.
static float greatest_of_all(asr_run *h, const tern_sound *sound) {
    int64_t bins = h->m->config.whisper.n_mels, most = 2 * h->m->config.whisper.n_frames;
    int64_t n_rows = sound->n / TERN_MEL_HOP + 2;
    float best = -INFINITY;
    for (int64_t t = 0; t < n_rows; t += most) {
        int64_t n = n_rows - t < most ? n_rows - t : most;
        tern_mel_rows(h->whisper->mel, sound->samples, sound->n, t, n, h->input);
        best = fmaxf(best, h->input[greatest(h->input, 0, (int32_t)(n * bins))]);
    }
    return best;
}

// Appends a segment's text, without its timestamps.
static tern_status add_segment(asr_run *h, segment_list *out, double start, double end,
                               const int32_t *said, int32_t n, tern_error *err) {
    int32_t text[TEXT_MOST], n_text = 0;
    for (int32_t i = 0; i < n; i++)
        if (said[i] < h->whisper->end && n_text < TEXT_MOST) text[n_text++] = said[i];
    return tern_asr_add(h, out, start, end, text, n_text, err);
}

// Appends the segments of a window of `size` rows that begins at row `at`; *used: rows before the
// next window.
static tern_status add_segments(asr_run *h, segment_list *out, int64_t at, int64_t size,
                                int64_t *used, tern_error *err) {
    const whisper_state *w = h->whisper;
    const int32_t *said = h->ids;
    int32_t n = h->n_ids, begin = 0, last_time = 0;
    double start = (double)at * ROW_SECONDS;
    bool lone_end = n > 1 && is_time(w, said[n - 1]) && !is_time(w, said[n - 2]);
    for (int32_t i = 1; i <= n; i++) {
        bool pair = i < n && is_time(w, said[i]) && is_time(w, said[i - 1]);
        if (is_time(w, said[i - 1])) last_time = said[i - 1] - w->first_time;
        if (!pair && !(i == n && lone_end && begin > 0)) continue;
        TERN_TRY(add_segment(h, out, start + (said[begin] - w->first_time) * FRAME_SECONDS,
                             start + (said[i - 1] - w->first_time) * FRAME_SECONDS, said + begin,
                             i - begin, err));
        begin = i;
    }
    *used = size;
    if (begin > 0) {
        int64_t rows = 2 * (said[begin - 1] - w->first_time);
        if (!lone_end && rows > 0) *used = rows;
        return TERN_OK;
    }
    double end = last_time > 0 ? last_time * FRAME_SECONDS : (double)size * ROW_SECONDS;
    return add_segment(h, out, start, start + end, said, n, err);
}

// The first row from `row` on that has speech; INT64_MAX: none.
static int64_t next_speech(const tern_voice_list *speech, int64_t row) {
    for (size_t i = 0; i < speech->n; i++) {
        int64_t first = speech->spans[i].first / TERN_MEL_HOP;
        if (speech->spans[i].end / TERN_MEL_HOP > row) return first > row ? first : row;
    }
    return INT64_MAX;
}

tern_status tern_whisper_transcribe(asr_run *h, const tern_sound *sound, segment_list *out,
                                    tern_error *err) {
    const tern_whisper *c = &h->m->config.whisper;
    int64_t rows = 2 * c->n_frames, content = sound->n / TERN_MEL_HOP, used;
    float most = greatest_of_all(h, sound);
    tern_voice_list speech = {0};
    tern_status status = TERN_OK;
    if (h->params.vad && !h->params.whole)
        status = tern_asr_find_speech(h, sound->samples, sound->n, &speech, err);
    for (int64_t at = 0; status == TERN_OK && at < content; at += used) {
        if (h->params.vad && !h->params.whole) at = next_speech(&speech, at);
        if (at >= content) break;
        int64_t size = content - at < rows ? content - at : rows;
        tern_mel_rows(h->whisper->mel, sound->samples, sound->n, at, rows, h->input);
        tern_mel_level(h->input, (size_t)(rows * c->n_mels), most);
        status = write_window(h, true, err);
        used = size;
        if (status == TERN_OK && !is_silence(h->whisper))
            status = add_segments(h, out, at, size, &used, err);
    }
    tern_voice_free(&speech);
    return status;
}
