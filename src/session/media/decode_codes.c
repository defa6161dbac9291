// Decodes codes to sound, frame by frame, by a codec's one graph: a sequence keeps the past inputs
// of its convolutions, so that pieces join without a seam.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "runtime/runner.h"
#include "session/session.h"
#include "tern_audio.h"

struct tern_codec_stream {
    tern_model *m;
    tern_runner runner;
    tern_vid codes, sound;
    int32_t n_done; // frames
    float *samples;
    size_t capacity;
};

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

// At most as many frames as a batch holds.
static tern_status decode_some(tern_codec_stream *s, const int32_t *codes, int32_t n,
                               float *samples, tern_error *err) {
    tern_batch batch = {.n_tokens = n};
    tern_batch_bind(&batch, s->codes, (void *)(uintptr_t)codes);
    tern_batch_bind(&batch, s->sound, samples);
    TERN_TRY(tern_runner_wait(&s->runner, &batch, s->n_done, err));
    s->n_done += n;
    return TERN_OK;
}

tern_status tern_codec_decode(tern_codec_stream *s, const int32_t *codes, size_t n_frames,
                              const float **samples, size_t *n_samples, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED(samples);
    TERN_NEED(n_samples);
    TERN_NEED_ARRAY(codes, n_frames);
    const tern_codec codec = s->m->arch->media->codec(&s->m->config);
    size_t each = (size_t)codec.n_frame, most = (size_t)s->m->n_batch;
    *samples = NULL;
    *n_samples = 0;
    if (n_frames > (size_t)(s->m->config.n_context - s->n_done))
        return tern_fail(err, TERN_ERR_CONTEXT_FULL, "more than %lld frames",
                         (long long)s->m->config.n_context);
    TERN_TRY(check_codes(s, codes, n_frames * (size_t)codec.n_codes, err));
    if (tern_array_reserve(TERN_MEM_SESSION, &s->samples, &s->capacity, 0, n_frames * each) != 0)
        return tern_fail_memory(err, n_frames * each * sizeof *s->samples);
    for (size_t i = 0; i < n_frames; i += most) {
        size_t n = n_frames - i < most ? n_frames - i : most;
        TERN_TRY(decode_some(s, codes + i * (size_t)codec.n_codes, (int32_t)n,
                             s->samples + i * each, err));
    }
    for (size_t i = 0; i < n_frames * each; i++) // the codec's last step; NaN becomes silence
        s->samples[i] = s->samples[i] > 1     ? 1
                        : s->samples[i] >= -1 ? s->samples[i]
                        : s->samples[i] < -1  ? -1
                                              : 0;
    *samples = s->samples;
    *n_samples = n_frames * each;
    return TERN_OK;
}
