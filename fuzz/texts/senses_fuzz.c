// Fuzzing of models that hear and speak, as Hugging Face folders: a short sound is written down, a
// codec's codes become samples, and a text codes and sound of a codec that is whole.
#include <math.h>
#include <string.h>
#include "fuzz/support.h"
#include "tern_audio.h"

#define SECONDS_N 9000 // samples: half a second and a bit, within a frame of any size

static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors"};

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t room, unsigned seed) {
    return fuzz_mutate_parts(bytes, n, room, seed);
}

static void hear(tern_model *m) {
    static float samples[SECONDS_N];
    tern_error err = {0};
    tern_transcription t;
    for (int i = 0; i < SECONDS_N; i++) samples[i] = 0.4f * sinf((float)i * 0.11f);
    const tern_sound sound = {.rate = 16000, .n = SECONDS_N, .samples = samples};
    const tern_transcribe_params params = {.whole = true, .no_fallback = true};
    tern_status status = tern_transcribe(m, &sound, &params, &t, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    for (size_t i = 0; i < t.n; i++) {
        const tern_segment *s = &t.segments[i];
        fuzz_require(s->text && s->n_ids > 0 && s->start >= 0 && s->end >= s->start);
    }
    tern_transcription_free(&t);
}

static void speak(tern_model *m) {
    enum { FRAMES = 2 };
    tern_media_info info;
    tern_codec_stream *stream;
    tern_error err = {0};
    int32_t codes[FRAMES * 64] = {0};
    const float *samples = NULL;
    size_t n_samples = 0;
    tern_model_get_media_info(m, &info);
    if (info.n_codes < 1 || info.n_codes > 64) return;
    for (int32_t i = 0; i < FRAMES * info.n_codes; i++) codes[i] = i % info.n_values;
    if (tern_codec_open(&stream, m, &err) != TERN_OK) return;
    if (tern_codec_decode(stream, codes, FRAMES, &samples, &n_samples, &err) == TERN_OK) {
        fuzz_require(n_samples == FRAMES * (size_t)info.codec_frame);
        for (size_t i = 0; i < n_samples; i++) fuzz_require(!(fabsf(samples[i]) > 1));
    }
    tern_codec_close(stream);
}

static tern_model *codec; // the repository's; NULL where it is not (in another folder)

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    tern_error err = {0};
    (void)argc, (void)argv;
    if (tern_model_open(&codec, "tests/oracles/nanocodec", NULL, &err) != TERN_OK) codec = NULL;
    return 0;
}

static void say(tern_model *m, int32_t n_speaker) {
    static const int32_t text[] = {1, 5, 3};
    static float voice[256];
    tern_error err = {0};
    tern_speak_stats stats;
    if (!codec || n_speaker > 256) return;
    for (int with_voice = 0; with_voice <= (n_speaker > 0); with_voice++) {
        tern_speak_params params = {
            .ids = text, .n_ids = 3, .seed = 7, .seconds_max = 5 * 6 / 22050.0};
        for (int i = 0; i < 256; i++) voice[i] = (float)(i % 7) - 3;
        if (with_voice) params.speaker = voice;
        params.n_speaker = with_voice ? (size_t)n_speaker : 0;
        tern_status status = tern_speak(m, codec, NULL, &params, &stats, &err);
        fuzz_require(status == TERN_OK ? stats.n_frames <= 5 : err.message[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    char folder[512];
    tern_error err = {0};
    tern_model *m;
    fuzz_write_parts(bytes, n, names, sizeof names / sizeof *names);
    const char *path = fuzz_path("config.json");
    size_t n_folder = (size_t)(strrchr(path, '/') - path);
    memcpy(folder, path, n_folder);
    folder[n_folder] = 0;
    const tern_model_desc desc = {.n_threads = 1, .n_batch = 4};
    if (tern_model_open(&m, folder, &desc, &err) != TERN_OK) {
        fuzz_require(err.message[0]);
        return 0;
    }
    tern_media_info info;
    tern_model_get_media_info(m, &info);
    if (info.is_asr) hear(m);
    speak(m);
    if (info.is_tts) say(m, info.n_speaker);
    tern_model_close(m);
    return 0;
}
