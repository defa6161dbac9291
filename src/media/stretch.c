// Faster or slower speech at the same pitch, by overlapping pieces (WSOLA, Verhelst and Roelands
// 1993): each piece of the result comes from the sound near its time, at the place that continues
// the previous piece best.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "media/sound.h"

struct tern_stretch {
    double speed, at;    // position in the sound, in samples of `in`
    int64_t step, reach; // samples of a piece, and the farthest move
    int64_t before;      // where the previous piece continues in `in`; -1: none
    float *in, *out;
    size_t n_in, in_capacity, out_capacity;
    int64_t n_all, n_given; // samples of the sound, of the result
};

tern_status tern_stretch_open(tern_stretch **out, int32_t rate, double speed, tern_error *err) {
    tern_stretch *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    *out = s;
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->speed = speed;
    s->step = rate / 80 > 1 ? rate / 80 : 1; // 12.5 ms
    s->reach = rate / 100;
    s->before = -1;
    return TERN_OK;
}

void tern_stretch_close(tern_stretch *s) {
    if (!s) return;
    tern_free(s->in);
    tern_free(s->out);
    tern_free(s);
}

// Where, within `reach` of `at`, the piece begins that is most like the one at `like`.
static int64_t most_alike(const tern_stretch *s, int64_t at, int64_t like) {
    int64_t best = at, first = at > s->reach ? at - s->reach : 0;
    double most = -1e300;
    for (int64_t from = first; from <= at + s->reach; from++) {
        double sum = 0, size = 1e-9;
        for (int64_t i = 0; i < s->step; i++) {
            sum += (double)s->in[from + i] * (double)s->in[like + i];
            size += (double)s->in[from + i] * (double)s->in[from + i];
        }
        sum /= sqrt(size);
        if (sum <= most) continue;
        most = sum;
        best = from;
    }
    return best;
}

// Adds a piece, cross-faded with the continuation of the previous one.
static void add_piece(tern_stretch *s, float *out) {
    int64_t at = (int64_t)s->at, like = s->before >= 0 ? s->before : at;
    int64_t from = s->before >= 0 ? most_alike(s, at, like) : at;
    for (int64_t i = 0; i < s->step; i++) {
        double w = 0.5 - 0.5 * cos(3.14159265358979323846 * ((double)i + 0.5) / (double)s->step);
        out[i] = (float)((1 - w) * (double)s->in[like + i] + w * (double)s->in[from + i]);
    }
    s->before = from + s->step;
    s->at += (double)s->step * s->speed;
}

// Drops samples before the earliest start of any later piece.
static void forget(tern_stretch *s) {
    int64_t keep = (int64_t)s->at - s->reach;
    if (s->before >= 0 && s->before < keep) keep = s->before;
    if (keep <= 0) return;
    if (keep > (int64_t)s->n_in) keep = (int64_t)s->n_in;
    memmove(s->in, s->in + keep, (s->n_in - (size_t)keep) * sizeof *s->in);
    s->n_in -= (size_t)keep;
    s->at -= (double)keep;
    if (s->before >= 0) s->before -= keep;
}

// Adds all pieces for which there are enough samples.
static tern_status go_on(tern_stretch *s, size_t *n_out, tern_error *err) {
    while ((int64_t)s->at + s->reach + s->step <= (int64_t)s->n_in &&
           s->before + s->step <= (int64_t)s->n_in) {
        if (tern_array_reserve(TERN_MEM_SESSION, &s->out, &s->out_capacity, *n_out,
                               (size_t)s->step) != 0)
            return tern_fail_memory(err, *n_out * sizeof *s->out);
        add_piece(s, s->out + *n_out);
        *n_out += (size_t)s->step;
    }
    return TERN_OK;
}

tern_status tern_stretch_push(tern_stretch *s, const float *samples, size_t n, bool last,
                              const float **out, size_t *n_out, tern_error *err) {
    size_t silence = last ? (size_t)(s->reach + 2 * s->step) + (size_t)(s->step * s->speed) : 0;
    *out = NULL;
    *n_out = 0;
    if (tern_array_reserve(TERN_MEM_SESSION, &s->in, &s->in_capacity, s->n_in, n + silence) != 0)
        return tern_fail_memory(err, (s->n_in + n + silence) * sizeof *s->in);
    if (n) memcpy(s->in + s->n_in, samples, n * sizeof *samples);
    memset(s->in + s->n_in + n, 0, silence * sizeof *s->in);
    s->n_in += n + silence;
    s->n_all += (int64_t)n;
    TERN_TRY(go_on(s, n_out, err));
    forget(s);
    int64_t most = (int64_t)((double)s->n_all / s->speed + 0.5) - s->n_given;
    if (last && (int64_t)*n_out > most) *n_out = (size_t)(most > 0 ? most : 0);
    s->n_given += (int64_t)*n_out;
    *out = s->out;
    return TERN_OK;
}
