// Models that hear: rows, scores and greedy tokens of references, from every kind of file.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/blobs.h"
#include "formats/formats.h"
#include "tests/library/models/goldens.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"
#include "media/sound.h"
#include "tern_tools.h"

#define OWN              "tests/oracles/moonshine"
#define ORACLE           "oracle/moonshine"
#define OWN_STREAMING    "tests/oracles/moonshine_streaming"
#define ORACLE_STREAMING "oracle/moonshine_streaming"

// ---- Graphs by themselves ----------------------------------------------------------------------

// A recording of whole rows of 64 samples.
static void check_graphs(tern_model *m, const char *folder, const char *encoded, const char *ids,
                         double bound) {
    char path[512];
    tern_error err = {0};
    tern_file *file;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    REQUIRE_OK(tern_file_open(&file, path, &err), err);
    const tern_tensor *pcm = golden_tensor(file, "pcm");
    tern_array in = {.name = "pcm",
                     .n_dims = 2,
                     .dims = {(int64_t)golden_count(pcm) / 64, 64},
                     .data = (void *)(uintptr_t)test_bytes(&pcm->data)};
    golden_check_heard(m, file, &in, encoded, ids, bound);
    tern_file_close(file);
}

// transformers' own numbers. Seen to fail with the pairs of RoPE as halves, with the gate in the
// value's place, with a row less to attend to, and with another mean of all rows.
TEST(transcribe_has_transformers_rows_and_scores) {
    const char *folder = test_data(ORACLE);
    tern_error err = {0};
    tern_model *m;
    if (!folder) return;
    REQUIRE_OK(tern_model_open(&m, folder, NULL, &err), err);
    check_graphs(m, folder, "encoder", "decoder_input_ids", 1e-5);
    tern_model_close(m);
}

TEST(webgpu_transcribe_has_transformers_rows_and_scores) {
    const char *folder = test_data(ORACLE);
    if (!test_is_long()) {
        test_skip(TEST_LONG_REASON);
        return;
    }
    tern_model *m = folder ? gpu_open(folder, 16) : NULL;
    if (!m) return;
    check_graphs(m, folder, "encoder", "decoder_input_ids", 2e-3);
    tern_model_close(m);
}

// An array of rows out of one graph.
static void compute(tern_model *m, const char *graph, const tern_array *in, size_t n_in,
                    const char *out_name, tern_array *out) {
    tern_error err = {0};
    *out = (tern_array){.name = out_name};
    tern_compute_desc desc = {
        .graph = graph, .inputs = in, .n_inputs = n_in, .outputs = out, .n_outputs = 1};
    CHECK_MSG(tern_compute(m, &desc, &err) == TERN_OK, "%s", err.message);
}

static void check_greatest(const tern_array *logits, const tern_tensor *want) {
    const float *a = logits->data, *b = (const float *)test_bytes(&want->data);
    for (int64_t t = 0; t < logits->dims[0]; t++) {
        int64_t n = logits->dims[1], best[2] = {0, 0};
        for (int64_t i = 1; i < n; i++) {
            if (a[t * n + i] > a[t * n + best[0]]) best[0] = i;
            if (b[t * n + i] > b[t * n + best[1]]) best[1] = i;
        }
        CHECK_MSG(best[0] == best[1], "token %d: %d, not %d", (int)t, (int)best[0], (int)best[1]);
    }
}

// The encoder's rows with their places, which transformers adds in place, and what the decoder
// makes of ours.
static void check_streaming(tern_model *m, const char *folder, const char *rows,
                            const char *ids_name, double bound) {
    char path[512];
    tern_error err = {0};
    tern_file *file;
    tern_array encoded, logits;
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    REQUIRE_OK(tern_file_open(&file, path, &err), err);
    const tern_tensor *pcm = golden_tensor(file, "pcm"), *ids = golden_tensor(file, ids_name);
    size_t n_frames = (golden_count(pcm) + 79) / 80, n_full = golden_count(pcm) / 80;
    float *samples = calloc(n_frames * 80, sizeof *samples);
    memcpy(samples, test_bytes(&pcm->data), n_full * 80 * sizeof *samples);
    const tern_array in = {
        .name = "pcm", .n_dims = 2, .dims = {(int64_t)n_frames, 80}, .data = samples};
    compute(m, "encoder", &in, 1, "encoded", &encoded);
    const tern_array given[] = {{.name = "ids",
                                 .type = TERN_ARRAY_I32,
                                 .n_dims = 1,
                                 .dims = {(int64_t)golden_count(ids)},
                                 .data = (void *)(uintptr_t)test_bytes(&ids->data)},
                                encoded};
    compute(m, NULL, given, 2, "logits", &logits);
    if (encoded.data) golden_check(&encoded, golden_tensor(file, rows), bound);
    if (logits.data) golden_check(&logits, golden_tensor(file, "logits"), bound);
    if (logits.data) check_greatest(&logits, golden_tensor(file, "logits"));
    tern_array_free(&encoded);
    tern_array_free(&logits);
    free(samples);
    tern_file_close(file);
}

// transformers' own numbers. Seen to fail with windows as wide ahead as back, with a row more back,
// with a frame's gain of x + 1 for exp(x), with another epsilon, and with convolutions that look
// ahead.
TEST(transcribe_streaming_has_transformers_rows_and_scores) {
    const char *folder = test_data(ORACLE_STREAMING);
    tern_error err = {0};
    tern_model *m;
    if (!folder) return;
    REQUIRE_OK(tern_model_open(&m, folder, NULL, &err), err);
    check_streaming(m, folder, "encoder", "decoder_input_ids", 1e-5);
    tern_model_close(m);
}

TEST(webgpu_transcribe_streaming_has_transformers_rows_and_scores) {
    const char *folder = test_data(ORACLE_STREAMING);
    if (!test_is_long()) {
        test_skip(TEST_LONG_REASON);
        return;
    }
    tern_model *m = folder ? gpu_open(folder, 16) : NULL;
    if (!m) return;
    check_streaming(m, folder, "encoder", "decoder_input_ids", 2e-3);
    tern_model_close(m);
}

// ---- Greedily ----------------------------------------------------------------------------------

static void check_text_of(tern_model *m, const char *path, const char *own) {
    char golden[512];
    tern_error err = {0};
    tern_file *file;
    tern_transcription t;
    snprintf(golden, sizeof golden, "%s/golden.safetensors", own);
    REQUIRE_OK(tern_file_open(&file, golden, &err), err);
    const tern_tensor *pcm = golden_tensor(file, "pcm"), *greedy = golden_tensor(file, "greedy");
    const tern_sound sound = {.rate = 16000,
                              .n = (int64_t)golden_count(pcm),
                              .samples = (float *)(uintptr_t)test_bytes(&pcm->data)};
    double seconds = (double)sound.n / 16000, n_tokens = (double)golden_count(greedy);
    const tern_transcribe_params params = {.whole = true,
                                           .tokens_per_second = (n_tokens - 0.5) / seconds};
    CHECK_MSG(tern_transcribe(m, &sound, &params, &t, &err) == TERN_OK, "%s: %s", path,
              err.message);
    CHECK(t.n == 1 && t.segments && t.segments[0].start == 0);
    if (t.n == 1) {
        const tern_segment *s = &t.segments[0];
        CHECK(fabs(s->end - (double)sound.n / 16000) < 1e-9 && s->text[0] == 0);
        CHECK_MSG(s->n_ids == (int32_t)golden_count(greedy), "%d tokens", (int)s->n_ids);
        if (s->n_ids == (int32_t)golden_count(greedy))
            CHECK(memcmp(s->ids, test_bytes(&greedy->data),
                         golden_count(greedy) * sizeof *s->ids) == 0);
    }
    tern_transcription_free(&t);
    tern_file_close(file);
}

static void check_text(const char *path, const char *own) {
    tern_error err = {0};
    tern_model *m;
    REQUIRE_OK(tern_model_open(&m, path, NULL, &err), err);
    check_text_of(m, path, own);
    tern_model_close(m);
}

// A folder, a GGUF of it, and a folder of that.
static void check_all_ways(const char *own, const char *name) {
    char gguf[512], back[512];
    tern_error err = {0};
    snprintf(gguf, sizeof gguf, "%s.gguf", test_tmp(name));
    snprintf(back, sizeof back, "%s.folder", test_tmp(name));
    check_text(own, own);
    REQUIRE_OK(tern_convert(own, gguf, NULL, &err), err);
    check_text(gguf, own);
    REQUIRE_OK(tern_convert(gguf, back, NULL, &err), err);
    check_text(back, own);
}

// The recording is a sample short of another row of
// the first convolution. Seen to fail with windows of two numbers more than the taps and with the
// pairs of RoPE as halves.
TEST(transcribe_writes_down_the_references_tokens) { check_all_ways(OWN, "moonshine"); }

// The logarithm, which folders have as a number by itself.
static void check_gain(void) {
    char back[512];
    tern_error err = {0};
    tern_file *file;
    snprintf(back, sizeof back, "%s.folder", test_tmp("moonshine_streaming"));
    REQUIRE_OK(tern_file_open(&file, back, &err), err);
    CHECK(golden_tensor(file, "model.encoder.embedder.comp.log_k")->n_dims == 0);
    tern_file_close(file);
}

// The recording ends within a frame, an encoder's head is of other dimensions than a decoder's, and
// 7 of its 10 turn.
TEST(transcribe_streaming_writes_down_the_references_tokens) {
    tern_error err = {0};
    tern_model *m;
    check_all_ways(OWN_STREAMING, "moonshine_streaming");
    check_gain();
    REQUIRE_OK(tern_model_open(&m, OWN_STREAMING, NULL, &err), err);
    check_streaming(m, OWN_STREAMING, "encoded", "ids", 1e-5);
    tern_model_close(m);
}

TEST(webgpu_transcribe_writes_down_the_references_tokens) {
    tern_model *m = gpu_open(OWN, 16);
    if (!m) return;
    check_graphs(m, OWN, "encoded", "ids", 2e-3);
    check_text_of(m, "webgpu", OWN);
    tern_model_close(m);
}

TEST(webgpu_transcribe_streaming_writes_down_the_references_tokens) {
    tern_model *m = gpu_open(OWN_STREAMING, 16);
    if (!m) return;
    check_streaming(m, OWN_STREAMING, "encoded", "ids", 2e-3);
    check_text_of(m, "webgpu", OWN_STREAMING);
    tern_model_close(m);
}

// ---- While it is said --------------------------------------------------------------------------

typedef struct live {
    double times[16][2];
    int32_t n_ids[16], ids[16][64];
    int n, n_partial;
} live;

static bool keep_segment(void *user, const tern_segment *s) {
    live *l = user;
    if (l->n == 16) return false;
    l->times[l->n][0] = s->start;
    l->times[l->n][1] = s->end;
    for (int32_t i = 0; i < s->n_ids && i < 64; i++) l->ids[l->n][i] = s->ids[i];
    l->n_ids[l->n++] = s->n_ids;
    return true;
}

static bool count_partial(void *user, const tern_segment *s) {
    live *l = user;
    l->n_partial += s->n_ids > 0;
    return true;
}

#define LIVE_SECONDS 24 // more than is kept of what is written down
enum { N_LIVE = LIVE_SECONDS * 16000 };

// Tones, each of another pitch that rises, over a little noise: from 1 to 3 seconds, from 5 to 6,
// from 18 to 20, from 22 to the end.
static float *make_tones(void) {
    float *x = calloc(N_LIVE, sizeof *x);
    uint32_t noise = 1;
    for (int i = 0; x && i < N_LIVE; i++) {
        double at = (double)i / 16000;
        bool loud = (at >= 1 && at < 3) || (at >= 5 && at < 6) || (at >= 18 && at < 20) || at >= 22;
        noise = noise * 1664525u + 1013904223u;
        double hiss = 0.001 * ((double)(noise >> 16) / 32768 - 1);
        x[i] = (float)((loud ? 0.3 : 0) * sin(at * (900 + 60 * at)) + hiss);
    }
    return x;
}

// Polls after each piece, or only at the end.
static void poll_all(tern_transcriber *hear) {
    tern_error err = {0};
    for (bool done = false; !done && !err.status;)
        CHECK_MSG(tern_transcriber_poll(hear, NULL, &done, &err) == TERN_OK, "%s", err.message);
}

// Fed in pieces.
static void feed_tones(tern_model *m, float *x, int64_t piece, bool late, live *out) {
    enum { N = N_LIVE };
    tern_error err = {0};
    tern_transcriber *hear;
    const tern_transcribe_params params = {.on_segment = keep_segment,
                                           .on_partial = count_partial,
                                           .tokens_per_second = 20,
                                           .user = out};
    *out = (live){0};
    REQUIRE_OK(tern_transcriber_open(&hear, m, &params, &err), err);
    for (int64_t i = 0; i < N; i += piece) {
        CHECK_MSG(tern_transcriber_feed(hear, x + i, N - i < piece ? N - i : piece, &err) ==
                      TERN_OK,
                  "%s", err.message);
        if (!late) poll_all(hear);
    }
    CHECK_MSG(tern_transcriber_end(hear, &err) == TERN_OK, "%s", err.message);
    CHECK(tern_transcriber_feed(hear, x, 1, &err) == TERN_ERR_ARGUMENT); // not polled yet
    poll_all(hear);
    CHECK(tern_transcriber_feed(hear, x, 1, &err) == TERN_OK);
    tern_transcriber_close(hear);
}

// What was written down of a segment is what these samples of the recording say by themselves.
static void check_samples(tern_model *m, float *x, const live *l) {
    tern_error err = {0};
    const tern_transcribe_params params = {.whole = true, .tokens_per_second = 20};
    for (int i = 0; i < l->n; i++) {
        tern_transcription t;
        int64_t first = (int64_t)(l->times[i][0] * 16000 + 0.5);
        int64_t end = (int64_t)(l->times[i][1] * 16000 + 0.5);
        const tern_sound part = {.rate = 16000, .n = end - first, .samples = x + first};
        REQUIRE_OK(tern_transcribe(m, &part, &params, &t, &err), err);
        bool same =
            t.n == 1 && t.segments[0].n_ids == l->n_ids[i] && l->n_ids[i] <= 64 &&
            memcmp(t.segments[0].ids, l->ids[i], (size_t)l->n_ids[i] * sizeof l->ids[i][0]) == 0;
        CHECK_MSG(same, "segment %d is not what its samples say", i);
        tern_transcription_free(&t);
    }
}

static void check_live(const char *folder) {
    static const double want[4][2] = {{1, 3}, {5, 6}, {18, 20}, {22, 24}};
    tern_error err = {0};
    tern_model *m;
    live whole, small;
    float *x = make_tones();
    REQUIRE_OK(tern_model_open(&m, folder, NULL, &err), err);
    feed_tones(m, x, N_LIVE, true, &whole);
    feed_tones(m, x, 777, false, &small);
    CHECK_MSG(whole.n == 4 && small.n == 4, "%d and %d segments", whole.n, small.n);
    for (int i = 0; i < 4 && whole.n == 4; i++)
        CHECK_MSG(fabs(whole.times[i][0] - want[i][0]) < 0.6 &&
                      fabs(whole.times[i][1] - want[i][1]) < 0.6,
                  "segment %d from %g to %g", i, whole.times[i][0], whole.times[i][1]);
    CHECK(memcmp(whole.times, small.times, sizeof whole.times) == 0);
    CHECK(memcmp(whole.n_ids, small.n_ids, sizeof whole.n_ids) == 0);
    CHECK(memcmp(whole.ids, small.ids, sizeof whole.ids) == 0);
    CHECK_MSG(whole.n_partial == small.n_partial && whole.n_partial >= 8, "%d partial texts",
              whole.n_partial);
    check_samples(m, x, &whole);
    tern_model_close(m);
    free(x);
}

// Seen to fail: an examination of all that was fed instead of half a second more; a segment that is
// told again with each look; a look where a piece ends; samples
// that are forgotten too early, not moved to the front, counted from another one, or left out where
// a look is.
TEST(transcribe_while_it_is_said) {
    check_live(OWN);
    check_live(OWN_STREAMING);
}

static bool goes_round(const tern_segment *s) {
    for (int32_t period = 4; period <= 8; period++) {
        const int32_t *last = s->ids + s->n_ids - 3 * period;
        if (s->n_ids >= 3 * period && memcmp(last, last + period, 8 * (size_t)period) == 0)
            return true;
    }
    return false;
}

// Seen to fail without the end of such texts: then most of these tones go round.
TEST(transcribe_ends_texts_that_go_round) {
    tern_error err = {0};
    tern_model *m;
    tern_sound sound;
    tern_transcription t;
    const tern_transcribe_params params = {.whole = true, .tokens_per_second = 100};
    REQUIRE_OK(tern_model_open(&m, OWN, NULL, &err), err);
    REQUIRE_OK(tern_sound_create(&sound, 16000, 16000, &err), err);
    for (int tone = 1; tone <= 8; tone++) {
        for (int64_t i = 0; i < sound.n; i++)
            sound.samples[i] = 0.5f * sinf((float)i * 0.03f * (float)tone);
        REQUIRE_OK(tern_transcribe(m, &sound, &params, &t, &err), err);
        for (size_t i = 0; i < t.n; i++)
            CHECK_MSG(!goes_round(&t.segments[i]), "tone %d: %d tokens", tone,
                      (int)t.segments[i].n_ids);
        tern_transcription_free(&t);
    }
    tern_sound_close(&sound);
    tern_model_close(m);
}

// ---- Refusals ----------------------------------------------------------------------------------

static bool stop(void *user, const tern_segment *segment) {
    (void)user;
    return segment->n_ids < 0;
}

TEST(transcribe_refuses_what_it_cannot_do) {
    tern_error err = {0};
    tern_model *m, *other;
    tern_session *session;
    tern_transcription t;
    tern_sound sound;
    REQUIRE_OK(tern_model_open(&m, OWN, NULL, &err), err);
    REQUIRE_OK(tern_model_open(&other, "tests/oracles/llama", NULL, &err), err);
    REQUIRE_OK(tern_sound_create(&sound, 16000, 20000, &err), err);
    tern_media_info info, no_media;
    tern_model_get_media_info(m, &info);
    tern_model_get_media_info(other, &no_media);
    CHECK(info.is_asr && info.audio_rate == 16000 && !no_media.is_asr && !no_media.audio_rate);
    CHECK(tern_transcribe(other, &sound, NULL, &t, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "does not transcribe"));
    CHECK(tern_session_open(&session, m, NULL, &err) == TERN_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(err.message, "does not go on with texts"), "%s", err.message);
    CHECK(tern_transcribe(m, &sound, NULL, &t, &err) == TERN_OK && t.n == 0); // silence
    CHECK(t.seconds == 1.25);
    tern_transcription_free(&t);
    for (int64_t i = 0; i < sound.n; i++) sound.samples[i] = 0.5f * sinf((float)i * 0.1f);
    const tern_transcribe_params stops = {.on_segment = stop}, long_ones = {.seconds_max = 16};
    CHECK(tern_transcribe(m, &sound, &stops, &t, &err) == TERN_ERR_CANCELLED && t.n == 0);
    CHECK(tern_transcribe(m, &sound, &long_ones, &t, &err) == TERN_ERR_ARGUMENT);
    const tern_model_desc pooled = {.pooling = TERN_POOLING_MEAN};
    tern_model *vectors;
    REQUIRE_OK(tern_model_open(&vectors, OWN, &pooled, &err), err);
    CHECK(tern_transcribe(vectors, &sound, NULL, &t, &err) == TERN_ERR_UNSUPPORTED);
    tern_model_close(vectors);
    sound.rate = 44100;
    CHECK(tern_transcribe(m, &sound, NULL, &t, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "44100 samples"));
    tern_sound_close(&sound);
    tern_model_close(other);
    tern_model_close(m);
}

TEST(transcribe_survives_failing_allocations) {
    tern_error err = {0};
    tern_model *m;
    tern_sound sound;
    tern_transcription t;
    bool done = false;
    const tern_model_desc desc = {.n_threads = 1};
    REQUIRE_OK(tern_model_open(&m, OWN, &desc, &err), err);
    REQUIRE_OK(tern_sound_create(&sound, 16000, 20000, &err), err);
    for (int64_t i = 0; i < sound.n; i++) sound.samples[i] = 0.5f * sinf((float)i * 0.1f);
    for (uint64_t n = 1; !done && n < 1000; n++) {
        tern_mem_fail_at(n);
        tern_status status = tern_transcribe(m, &sound, NULL, &t, &err);
        tern_mem_fail_at(0);
        done = status == TERN_OK;
        CHECK_MSG(done || status == TERN_ERR_MEMORY, "%s", err.message);
        CHECK(done || (t.n == 0 && !t.segments));
        tern_transcription_free(&t);
    }
    CHECK(done);
    tern_sound_close(&sound);
    tern_model_close(m);
}

// ---- Which parts are speech --------------------------------------------------------------------

// Two seconds of a tone, silence, then 22 of one with a quieter place at 20. Seen to fail with a
// cut after 15 seconds whatever is there.
TEST(transcribe_finds_speech_by_loudness) {
    enum { RATE = 16000, N = 30 * RATE };
    tern_error err = {0};
    float *x = calloc(N, sizeof *x), *voice;
    size_t n_hops;
    tern_voice_list s;
    uint32_t noise = 1;
    for (int i = 0; i < N; i++) {
        double at = (double)i / RATE, loud = (at >= 2 && at < 4) || at >= 8 ? 0.3 : 0;
        if (at >= 20 && at < 20.2) loud = 0.05;
        noise = noise * 1664525u + 1013904223u;
        x[i] = (float)(loud * sin(at * 2500) + 0.0005 * ((double)(noise >> 16) / 32768 - 1));
    }
    REQUIRE_OK(tern_voice_by_loudness(x, N, &voice, &n_hops, &err), err);
    CHECK(n_hops == (N + TERN_VOICE_HOP - 1) / TERN_VOICE_HOP);
    REQUIRE_OK(tern_voice_spans(x, N, voice, n_hops, 15 * RATE, &s, &err), err);
    CHECK_MSG(s.n == 3, "%zu spans", s.n);
    if (s.n == 3) {
        const double want[3][2] = {{2, 4}, {8, 20}, {20, 30}};
        for (int i = 0; i < 3; i++) {
            double first = (double)s.spans[i].first / RATE, end = (double)s.spans[i].end / RATE;
            CHECK_MSG(fabs(first - want[i][0]) < 0.6 && first <= want[i][0] + 0.2, "%g", first);
            CHECK_MSG(fabs(end - want[i][1]) < 0.6 && end >= want[i][1] - 0.01, "%g", end);
        }
        CHECK(s.spans[1].end == s.spans[2].first);
    }
    tern_voice_free(&s);
    REQUIRE_OK(tern_voice_spans(x, 0, voice, 0, 15 * RATE, &s, &err), err);
    CHECK(s.n == 0);
    tern_voice_free(&s);
    tern_free(voice);
    free(x);
}

static float *run_net(tern_voice_net *net, const tern_sound *s, size_t *n_hops) {
    *n_hops = (size_t)((s->n + TERN_VOICE_HOP - 1) / TERN_VOICE_HOP);
    float *voice = calloc(*n_hops + 1, sizeof *voice);
    tern_voice_net_begin(net);
    for (size_t i = 0; voice && i < *n_hops; i++) {
        int64_t at = (int64_t)i * TERN_VOICE_HOP;
        voice[i] = tern_voice_net_next(net, s->samples + at, s->n - at);
    }
    return voice;
}

// Real weights: what the same mathematics in numpy makes of a recording, where it is least certain;
// noise and silence are not likely. Seen to fail with the gates in another order, and without the
// samples before a hop.
TEST(transcribe_finds_speech_by_sileros_network) {
    static const struct {
        size_t hop;
        double likelihood;
    } wanted[] = {{3, 0.13349},  {10, 0.3433},  {69, 0.6791},   {90, 0.02781}, {119, 0.39293},
                  {124, 0.5944}, {136, 0.7672}, {148, 0.04035}, {238, 0.4279}, {322, 0.98653}};
    const char *path = test_data("models/silero_vad/silero_vad.onnx");
    const char *speech = test_data("audio/jfk.wav");
    tern_error err = {0};
    tern_sound s;
    tern_voice_net *net;
    float *voice;
    size_t n_hops, n_low = 0;
    const tern_sound_desc desc = {.rate = 16000};
    if (!path || !speech) return;
    tern_status status = tern_sound_open(&s, speech, &desc, &err);
    if (status == TERN_ERR_UNSUPPORTED) { // built without sounds
        test_skip(err.message);
        return;
    }
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    REQUIRE_OK(tern_voice_net_open(&net, path, &err), err);
    voice = run_net(net, &s, &n_hops);
    CHECK(n_hops == 344);
    for (size_t i = 0; n_hops == 344 && i < sizeof wanted / sizeof *wanted; i++)
        CHECK_MSG(fabs((double)voice[wanted[i].hop] - wanted[i].likelihood) < 1e-4, "hop %zu: %g",
                  wanted[i].hop, (double)voice[wanted[i].hop]);
    free(voice);
    uint32_t noise = 1;
    for (int64_t i = 0; i < s.n; i++) {
        noise = noise * 1664525u + 1013904223u;
        s.samples[i] = i < s.n / 2 ? 0 : 0.2f * ((float)(noise >> 16) / 32768 - 1);
    }
    voice = run_net(net, &s, &n_hops);
    tern_voice_net_close(net);
    for (size_t i = 0; i < n_hops; i++) n_low += voice[i] < 0.5f;
    CHECK_MSG(n_low * 100 > n_hops * 95, "%zu of %zu hops", n_low, n_hops);
    free(voice);
    tern_sound_close(&s);
}

TEST(transcribe_refuses_files_that_are_no_network) {
    tern_error err = {0};
    tern_voice_net *net;
    CHECK(tern_voice_net_open(&net, "README.md", &err) == TERN_ERR_FORMAT && !net);
    CHECK(strstr(err.message, "README.md: this is no Silero VAD"));
    CHECK(tern_voice_net_open(&net, "tests/none", &err) == TERN_ERR_IO);
}
