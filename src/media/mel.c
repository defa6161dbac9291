// Spectrograms as Whisper was trained on them: frames of 400 samples every 160 samples, with a Hann
// window, and the powers of 201 frequencies summed in triangular filters that are evenly spaced on
// Slaney's mel scale.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "media/sound.h"

#define N_FRAME 400
#define N_FREQS (N_FRAME / 2 + 1)
#define PI      3.14159265358979323846

typedef struct number { // complex
    double re, im;
} number;

struct tern_mel {
    int32_t n_bins;
    double window[N_FRAME];
    number roots[N_FRAME]; // e^(-2 pi i k / 400)
    number in[N_FRAME], out[N_FRAME];
    double power[2][N_FREQS];
    int32_t *first, *end; // frequencies of a bin
    float *filters;       // [n_bins, N_FREQS]
};

// ---- Filters -----------------------------------------------------------------------------------

static double to_mel(double hz) {
    return hz < 1000 ? 3 * hz / 200 : 15 + log(hz / 1000) * 27 / log(6.4);
}

static double to_hz(double mel) {
    return mel < 15 ? 200 * mel / 3 : 1000 * exp((mel - 15) * log(6.4) / 27);
}

// A triangle of area 1 from the previous point to the next one.
static void fill_filter(tern_mel *m, int32_t bin) {
    double most = to_mel(TERN_VOICE_RATE / 2), point[3];
    for (int k = 0; k < 3; k++) point[k] = to_hz(most * (bin + k) / (m->n_bins + 1));
    m->first[bin] = m->end[bin] = 0;
    for (int32_t i = 0; i < N_FREQS; i++) {
        double hz = (double)i * (TERN_VOICE_RATE / 2) / (N_FREQS - 1);
        double up = (hz - point[0]) / (point[1] - point[0]);
        double down = (point[2] - hz) / (point[2] - point[1]);
        double w = fmax(0, fmin(up, down)) * 2 / (point[2] - point[0]);
        m->filters[bin * N_FREQS + i] = (float)w;
        if (w > 0 && m->end[bin] == 0) m->first[bin] = i;
        if (w > 0) m->end[bin] = i + 1;
    }
}

tern_status tern_mel_open(tern_mel **out, int32_t n_bins, tern_error *err) {
    *out = NULL;
    tern_mel *m = tern_alloc(TERN_MEM_SESSION, sizeof *m);
    if (!m) return tern_fail_memory(err, sizeof *m);
    m->n_bins = n_bins;
    m->first = tern_alloc_array(TERN_MEM_SESSION, (size_t)n_bins, sizeof *m->first);
    m->end = tern_alloc_array(TERN_MEM_SESSION, (size_t)n_bins, sizeof *m->end);
    m->filters = tern_alloc_array(TERN_MEM_SESSION, (size_t)n_bins, N_FREQS * sizeof *m->filters);
    if (!m->first || !m->end || !m->filters) {
        tern_mel_close(m);
        return tern_fail_memory(err, (size_t)n_bins * N_FREQS * sizeof *m->filters);
    }
    for (int32_t i = 0; i < n_bins; i++) fill_filter(m, i);
    for (int i = 0; i < N_FRAME; i++) {
        double angle = 2 * PI * i / N_FRAME;
        m->window[i] = 0.5 - 0.5 * cos(angle);
        m->roots[i] = (number){cos(angle), -sin(angle)};
    }
    *out = m;
    return TERN_OK;
}

void tern_mel_close(tern_mel *m) {
    if (!m) return;
    tern_free(m->first);
    tern_free(m->end);
    tern_free(m->filters);
    tern_free(m);
}

const float *tern_mel_filters(const tern_mel *m) { return m->filters; }

// ---- Rows --------------------------------------------------------------------------------------

static number times(number a, number b) {
    return (number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// Fourier transform of n numbers, `step` apart: radix 5 or 2.
static void transform(const tern_mel *m, const number *in, size_t step, size_t n, number *out) {
    size_t parts = n % 5 == 0 ? 5 : 2, each = n / parts;
    number part[5];
    if (n == 1) {
        *out = *in;
        return;
    }
    for (size_t r = 0; r < parts; r++)
        transform(m, in + r * step, step * parts, each, out + r * each);
    for (size_t k = 0; k < each; k++) {
        for (size_t r = 0; r < parts; r++)
            part[r] = times(out[r * each + k], m->roots[r * k * (N_FRAME / n)]);
        for (size_t s = 0; s < parts; s++) {
            number sum = part[0];
            for (size_t r = 1; r < parts; r++) {
                number turned = times(part[r], m->roots[r * s % parts * (N_FRAME / parts)]);
                sum.re += turned.re;
                sum.im += turned.im;
            }
            out[s * each + k] = sum;
        }
    }
}

// The sound, mirrored at its beginning, and followed by silence.
static double sample(const float *samples, int64_t n, int64_t at) {
    if (at < 0) at = -at;
    return at < n ? (double)samples[at] : 0;
}

// The powers of two neighbouring frames: one is the real part of the transform's input, the other
// the imaginary part.
static void find_powers(tern_mel *m, const float *samples, int64_t n, int64_t row) {
    int64_t at = row * TERN_MEL_HOP - N_FRAME / 2;
    for (int i = 0; i < N_FRAME; i++)
        m->in[i] = (number){m->window[i] * sample(samples, n, at + i),
                            m->window[i] * sample(samples, n, at + TERN_MEL_HOP + i)};
    transform(m, m->in, 1, N_FRAME, m->out);
    for (int k = 0; k < N_FREQS; k++) {
        number a = m->out[k], b = m->out[(N_FRAME - k) % N_FRAME];
        number one = {a.re + b.re, a.im - b.im}, two = {a.im + b.im, b.re - a.re};
        m->power[0][k] = (one.re * one.re + one.im * one.im) / 4;
        m->power[1][k] = (two.re * two.re + two.im * two.im) / 4;
    }
}

void tern_mel_rows(tern_mel *m, const float *samples, int64_t n, int64_t first, int64_t n_rows,
                   float *out) {
    for (int64_t t = 0; t < n_rows; t += 2) {
        find_powers(m, samples, n, first + t);
        for (int64_t k = 0; k < 2 && t + k < n_rows; k++)
            for (int32_t bin = 0; bin < m->n_bins; bin++) {
                double sum = 0;
                for (int32_t i = m->first[bin]; i < m->end[bin]; i++)
                    sum += (double)m->filters[bin * N_FREQS + i] * m->power[k][i];
                out[(t + k) * m->n_bins + bin] = (float)log10(fmax(sum, 1e-10));
            }
    }
}

void tern_mel_level(float *x, size_t n, float most) {
    for (size_t i = 0; i < n; i++) x[i] = (fmaxf(x[i], most - 8) + 4) / 4;
}
