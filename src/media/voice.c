// Which parts of a sound are speech.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "media/sound.h"

#define HOP        TERN_VOICE_HOP
#define AVERAGED   16      // hops, half a second: window of the mean
#define MARGIN     8192    // samples kept before and after speech
#define STANDS_OUT 6.0     // decibels above the recording's background
#define AUDIBLE    (-60.0) // decibels below the loudest: anything quieter is silence

static double decibels(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return 10 * log10(sum / (double)(n > 0 ? n : 1) + 1e-12);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

// The background is the loudness that a tenth of the hops is below. If all hops are about equally
// loud, no hop can be above it, and every audible hop counts.
tern_status tern_voice_by_loudness(const float *samples, int64_t n, float **out, size_t *n_hops,
                                   tern_error *err) {
    size_t count = (size_t)((n + HOP - 1) / HOP);
    float *loud = tern_alloc_array(TERN_MEM_MISC, count + 1, sizeof *loud);
    float *sorted = tern_alloc_array(TERN_MEM_MISC, count + 1, sizeof *sorted);
    *out = NULL;
    *n_hops = count;
    if (!loud || !sorted) {
        tern_free(loud);
        tern_free(sorted);
        return tern_fail_memory(err, count * sizeof *loud);
    }
    for (size_t i = 0; i < count; i++) {
        int64_t first = (int64_t)i * HOP, left = n - first;
        loud[i] = sorted[i] = (float)decibels(samples + first, left < HOP ? left : HOP);
    }
    qsort(sorted, count, sizeof *sorted, by_size);
    double quiet = count ? (double)sorted[count / 10] : 0;
    double high = count ? (double)sorted[count - 1 - count / 10] : 0;
    double least = high - quiet < 2 * STANDS_OUT ? AUDIBLE : quiet + STANDS_OUT;
    if (least < AUDIBLE) least = AUDIBLE;
    for (size_t i = 0; i < count; i++) loud[i] = (double)loud[i] > least ? 1 : 0;
    tern_free(sorted);
    *out = loud;
    return TERN_OK;
}

void tern_voice_free(tern_voice_list *speech) {
    tern_free(speech->spans);
    *speech = (tern_voice_list){0};
}

static tern_status add_span(tern_voice_list *s, int64_t first, int64_t end, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &s->spans, &s->capacity, s->n, 1) != 0)
        return tern_fail_memory(err, sizeof *s->spans);
    s->spans[s->n++] = (tern_voice_span){first, end};
    return TERN_OK;
}

// The middle of the quietest hop of the last third.
static int64_t quietest(const float *samples, int64_t first, int64_t n_most) {
    int64_t best = first + n_most;
    double least = INFINITY;
    for (int64_t at = first + n_most * 2 / 3; at + HOP <= first + n_most; at += HOP / 2) {
        double d = decibels(samples + at, HOP);
        if (d >= least) continue;
        least = d;
        best = at + HOP / 2;
    }
    return best;
}

static tern_status add_cut(const float *samples, int64_t first, int64_t end, int64_t n_most,
                           tern_voice_list *out, tern_error *err) {
    while (end - first > n_most) {
        int64_t at = quietest(samples, first, n_most);
        TERN_TRY(add_span(out, first, at, err));
        first = at;
    }
    return first < end ? add_span(out, first, end, err) : TERN_OK;
}

// Speech begins and ends where the mean over half a second passes one half. Spans whose margins
// overlap are merged.
tern_status tern_voice_spans(const float *samples, int64_t n, const float *voice, size_t n_hops,
                             int64_t n_most, tern_voice_list *out, tern_error *err) {
    int64_t first = -1, end = -1;
    double sum = 0;
    *out = (tern_voice_list){0};
    for (size_t i = 0; i < n_hops; i++) {
        sum += (double)voice[i] - (i >= AVERAGED ? (double)voice[i - AVERAGED] : 0);
        size_t of = i + 1 < AVERAGED ? i + 1 : AVERAGED;
        if (sum < 0.5 * (double)of - 1e-6) continue;
        int64_t begins = (int64_t)(i + 1 - of) * HOP - MARGIN / 2;
        int64_t ends = (int64_t)(i + 1) * HOP + MARGIN / 2;
        if (begins < 0) begins = 0;
        if (ends > n) ends = n;
        if (first >= 0 && begins > end) {
            tern_status status = add_cut(samples, first, end, n_most, out, err);
            if (status != TERN_OK) return status;
            first = -1;
        }
        if (first < 0) first = begins;
        end = ends;
    }
    return first >= 0 ? add_cut(samples, first, end, n_most, out, err) : TERN_OK;
}
