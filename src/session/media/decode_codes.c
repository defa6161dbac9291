// Decodes codes to sound, frame by frame, by a codec's one graph: a sequence keeps the past inputs
// of its convolutions, so that pieces join without a seam.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runner.h"
#include "session/media/speak.h"
#include "session/session.h"

struct tern_codec_stream {
    tern_model *m;
    tern_runner runner;
    tern_vid codes, sound;
    int32_t n_done; // frames
    float *samples;
    size_t capacity;
    // The frames under way: those of a batch at a time.
    const int32_t *given; // [n_given, n_codes]
    size_t n_given, n_decoded;
    int32_t n_now; // of the batch under way; 0: none is
};

static tern_codec codec_of(const tern_codec_stream *s) {
    return s->m->arch->media->codec(&s->m->config);
}

static tern_status begin(tern_codec_stream *s, tern_error *err) {
    tern_model *m = s->m;
    const tern_runner_desc desc = {.kv_type = TERN_KV_F32,
                                   .n_context = (int32_t)m->config.n_context};
    const tern_graph *g = &m->graphs[0].fused;
    s->codes = tern_graph_find(g, "codes");
    s->sound = tern_graph_find(g, "sound");
    return tern_runner_open(&s->runner, m, &desc, err);
}

tern_status tern_codec_open(tern_codec_stream **out, tern_model *m, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    if (m->vocab_only || !tern_is_codec(m->arch))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: not a codec, which makes sound of codes",
                         m->path);
    TERN_TRY(tern_model_refuse_damaged(m, err));
    tern_codec_stream *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->m = m;
    tern_model_hold(m);
    tern_status status = begin(s, err);
    if (status == TERN_OK)
        *out = s;
    else
        tern_codec_close(s);
    return status;
}

void tern_codec_close(tern_codec_stream *s) {
    if (!s) return;
    tern_runner_close(&s->runner);
    tern_free(s->samples);
    tern_model_let_go(s->m);
    tern_free(s);
}

static tern_status check_codes(const tern_codec_stream *s, const int32_t *codes, size_t n,
                               tern_error *err) {
    int32_t n_values = (int32_t)s->m->config.n_vocab;
    for (size_t i = 0; i < n; i++)
        if (codes[i] < 0 || codes[i] >= n_values)
            return tern_fail(err, TERN_ERR_ARGUMENT, "code %zu is %d: expected 0 to %d", i,
                             (int)codes[i], (int)n_values - 1);
    return TERN_OK;
}

// Begins a batch of the frames that are left.
static tern_status begin_some(tern_codec_stream *s, tern_error *err) {
    const tern_codec c = codec_of(s);
    size_t n = s->n_given - s->n_decoded, most = (size_t)s->m->n_batch;
    const int32_t *codes = s->given + s->n_decoded * (size_t)c.n_codes;
    tern_batch batch = {.n_tokens = (int32_t)(n < most ? n : most)};
    tern_batch_bind(&batch, s->codes, (void *)(uintptr_t)codes);
    tern_batch_bind(&batch, s->sound, s->samples + s->n_decoded * (size_t)c.n_frame);
    TERN_TRY(tern_runner_begin(&s->runner, &batch, s->n_done, err));
    s->n_now = batch.n_tokens;
    return TERN_OK;
}

tern_status tern_codec_begin(tern_codec_stream *s, const int32_t *codes, size_t n_frames,
                             tern_error *err) {
    const tern_codec c = codec_of(s);
    size_t n_samples = n_frames * (size_t)c.n_frame;
    if (n_frames > (size_t)(s->m->config.n_context - s->n_done))
        return tern_fail(err, TERN_ERR_CONTEXT_FULL, "more than %lld frames",
                         (long long)s->m->config.n_context);
    TERN_TRY(check_codes(s, codes, n_frames * (size_t)c.n_codes, err));
    if (tern_array_reserve(TERN_MEM_SESSION, &s->samples, &s->capacity, 0, n_samples) != 0)
        return tern_fail_memory(err, n_samples * sizeof *s->samples);
    s->given = codes;
    s->n_given = n_frames;
    s->n_decoded = 0;
    return TERN_OK;
}

// The codec's last step; NaN becomes silence.
static void clip(float *samples, size_t n) {
    for (size_t i = 0; i < n; i++)
        samples[i] = samples[i] > 1 ? 1 : samples[i] >= -1 ? samples[i] : samples[i] < -1 ? -1 : 0;
}

tern_status tern_codec_poll(tern_codec_stream *s, const float **samples, size_t *n_samples,
                            bool *done, tern_error *err) {
    bool over = false;
    *done = false;
    if (s->n_now == 0 && s->n_decoded < s->n_given) TERN_TRY(begin_some(s, err));
    tern_status status = s->n_now ? tern_runner_poll(&s->runner, &over, err) : TERN_OK;
    if (status == TERN_OK && over) {
        s->n_done += s->n_now;
        s->n_decoded += (size_t)s->n_now;
    }
    if (status != TERN_OK || over) s->n_now = 0;
    *done = status == TERN_OK && s->n_decoded == s->n_given;
    if (!*done) return status;
    *n_samples = s->n_given * (size_t)codec_of(s).n_frame;
    clip(s->samples, *n_samples);
    *samples = s->samples;
    return TERN_OK;
}

tern_status tern_codec_decode(tern_codec_stream *s, const int32_t *codes, size_t n_frames,
                              const float **samples, size_t *n_samples, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED(samples);
    TERN_NEED(n_samples);
    TERN_NEED_ARRAY(codes, n_frames);
    *samples = NULL;
    *n_samples = 0;
    TERN_TRY(tern_codec_begin(s, codes, n_frames, err));
    for (bool done = false; !done;) TERN_TRY(tern_codec_poll(s, samples, n_samples, &done, err));
    return TERN_OK;
}
