// tern speak: turns text, or the codes of a sound, into sound.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>
#include "tern_audio.h"
#include "tern_tools.h"

#define WORDS_MAX 4096

typedef struct speak_args {
    model_args model;
    const char *codec, *out, *voice, *language, *speaker, *codes;
    float temperature, top_p, repeat_penalty, speed, seconds;
    uint64_t seed;
    bool greedy, ids;
} speak_args;

typedef struct speech {
    const speak_args *args;
    tern_sound sound; // the whole sound, for a file
    size_t capacity;
    bool failed;
} speech;

// ---- Sound -------------------------------------------------------------------------------------

static bool to_pipe(const speak_args *args) { return strcmp(args->out, "-") == 0; }

// 16 bits, little-endian, one channel.
static bool put_pcm(const float *samples, size_t n) {
    enum { PIECE = 1024 };
    uint8_t bytes[2 * PIECE];
    for (size_t i = 0; i < n; i += PIECE) {
        size_t now = n - i < PIECE ? n - i : PIECE;
        tern_sound_pcm16(samples + i, now, bytes);
        fwrite(bytes, 2, now, stdout);
    }
    return fflush(stdout) == 0;
}

static bool on_samples(void *user, const float *samples, size_t n) {
    speech *s = user;
    if (was_cancelled()) return false;
    if (to_pipe(s->args)) return put_pcm(samples, n) && !ferror(stdout);
    size_t have = (size_t)s->sound.n;
    if (have + n > s->capacity) {
        s->capacity = 2 * (have + n);
        s->sound.samples = must_alloc(s->sound.samples, s->capacity, sizeof *samples);
    }
    memcpy(s->sound.samples + have, samples, n * sizeof *samples);
    s->sound.n += (int64_t)n;
    return true;
}

static bool on_codes(void *user, const int32_t *codes, size_t n) {
    (void)user;
    for (size_t i = 0; i < n; i++) fprintf(stderr, "%s%d", i ? " " : "", (int)codes[i]);
    fputc('\n', stderr);
    return true;
}

static bool write_sound(const speech *s) {
    tern_error err = {0};
    if (to_pipe(s->args)) return true;
    if (tern_sound_write(&s->sound, s->args->out, &err) == TERN_OK) return true;
    fail("%s", err.message);
    return false;
}

// ---- What is said ------------------------------------------------------------------------------

// A vector that describes a voice: an NPY file, or raw floats.
static bool read_speaker(const char *path, float **out, size_t *n) {
    tern_array array = {0};
    tern_error err = {0};
    text raw = {0};
    *out = NULL;
    if (!path) return true;
    if (tern_array_read(&array, path, &err) == TERN_OK && array.type == TERN_ARRAY_F32) {
        *n = 1;
        for (int i = 0; i < array.n_dims; i++) *n *= (size_t)array.dims[i];
        *out = must_alloc(NULL, *n, sizeof **out);
        memcpy(*out, array.data, *n * sizeof **out);
        tern_array_free(&array);
        return true;
    }
    tern_array_free(&array);
    if (!text_read(&raw, path)) return false;
    *n = raw.n / sizeof **out;
    bool fits = raw.n > 0 && raw.n % sizeof **out == 0;
    if (fits) {
        *out = must_alloc(NULL, *n, sizeof **out);
        memcpy(*out, raw.ptr, raw.n);
    } else {
        fail("%s: neither an array of numpy nor floats", path);
    }
    free(raw.ptr);
    return fits;
}

static void print_speech_stats(const tern_speak_stats *s) {
    double all = s->model_seconds + s->codec_seconds;
    fprintf(stderr,
            "%.2f s of sound in %.2f s (codes %.2f, sound %.2f), the first after %.2f s: %.2f of "
            "real time%s\n",
            s->seconds, all, s->model_seconds, s->codec_seconds, s->first_seconds,
            s->seconds > 0 ? all / s->seconds : 0, s->is_cut ? "; it was cut" : "");
}

static bool say(tern_model *model, tern_model *codec, const speak_args *args, const char *words,
                speech *out) {
    tern_error err = {0};
    tern_speak_stats stats;
    float *speaker;
    size_t n_speaker = 0;
    if (!read_speaker(args->speaker, &speaker, &n_speaker)) return false;
    tern_speak_params params = {.voice = args->voice ? args->voice : args->language,
                                .speaker = speaker,
                                .n_speaker = n_speaker,
                                .temperature = args->greedy ? -1 : args->temperature,
                                .top_p = args->top_p > 0 ? args->top_p : 1e-30f, // 0: the likeliest
                                .repeat_penalty = args->repeat_penalty,
                                .seed = args->seed,
                                .speed = args->speed,
                                .seconds_max = args->seconds,
                                .on_samples = on_samples,
                                .on_codes = args->ids ? on_codes : NULL,
                                .user = out};
    tern_status status = tern_speak(model, codec, words, &params, &stats, &err);
    free(speaker);
    if (status == TERN_OK) {
        print_speech_stats(&stats);
        return true;
    }
    if (status != TERN_ERR_CANCELLED && !ferror(stdout)) fail("%s", err.message);
    return false;
}

// A file of codes, [frames, codes of a frame].
static bool sound_of_codes(tern_model *codec, const char *path, speech *out) {
    tern_array codes = {0};
    tern_error err = {0};
    tern_media_info info;
    tern_codec_stream *stream = NULL;
    tern_model_get_media_info(codec, &info);
    bool ok = tern_array_read(&codes, path, &err) == TERN_OK;
    if (!ok) fail("%s", err.message);
    if (ok && (codes.type != TERN_ARRAY_I32 || codes.n_dims != 2 || codes.dims[1] != info.n_codes))
        ok = !fail("%s: not whole numbers, %d in each row", path, (int)info.n_codes);
    if (ok && tern_codec_open(&stream, codec, &err) != TERN_OK) ok = !fail("%s", err.message);
    for (int64_t i = 0; ok && i < codes.dims[0]; i += 16) {
        const float *samples;
        size_t n, left = (size_t)(codes.dims[0] - i);
        ok = tern_codec_decode(stream, (const int32_t *)codes.data + i * info.n_codes,
                               left < 16 ? left : 16, &samples, &n, &err) == TERN_OK;
        if (!ok) fail("%s: %s", path, err.message);
        ok = ok && on_samples(out, samples, n);
    }
    tern_codec_close(stream);
    tern_array_free(&codes);
    return ok;
}

// ---- The command -------------------------------------------------------------------------------

static tern_model *open_codec(const command *self, const speak_args *args, int *status) {
    model_args codec = {.path = args->codec,
                        .folder = args->model.folder,
                        .device = device_of(&args->model),
                        .cpu_features = args->model.cpu_features,
                        .n_threads = args->model.n_threads,
                        .verbose = args->model.verbose};
    tern_model *model = open_model(self, &codec, status);
    tern_media_info info;
    tern_model_get_media_info(model, &info);
    if (!model || info.is_codec) return model;
    *status = fail("%s: not a codec, which makes sound of codes", codec.path);
    tern_model_close(model);
    return NULL;
}

// The words of the command line, else standard input.
static bool read_words(const char **paths, int n, text *out) {
    if (n == 0) return text_read(out, "-");
    size_t room = 1;
    for (int i = 0; i < n; i++) room += strlen(paths[i]) + 1;
    out->ptr = must_alloc(NULL, room, 1);
    out->ptr[0] = 0;
    for (int i = 0; i < n; i++) {
        if (i) strcat(out->ptr, " ");
        strcat(out->ptr, paths[i]);
    }
    out->n = strlen(out->ptr);
    return true;
}

static int speak(const command *self, speak_args *args, const char **words, int n) {
    int status;
    text said = {0};
    tern_model *model = NULL, *codec = open_codec(self, args, &status);
    tern_media_info info;
    if (!codec) return status;
    if (!args->codes) model = open_model(self, &args->model, &status);
    bool ok = args->codes || model;
    tern_model_get_media_info(codec, &info);
    speech out = {.args = args, .sound = {.rate = info.codec_rate}};
    if (ok && !args->codes) ok = read_words(words, n, &said);
    if (ok) {
        ok = args->codes ? sound_of_codes(codec, args->codes, &out)
                         : say(model, codec, args, said.ptr ? said.ptr : "", &out);
        ok = ok && write_sound(&out);
    }
    free(said.ptr);
    free(out.sound.samples);
    tern_model_close(model);
    tern_model_close(codec);
    return close_out(ok ? EXIT_OK : status != EXIT_OK ? status : EXIT_FAILED);
}

int cmd_speak(const command *self, int argc, char **argv) {
    speak_args args = {.top_p = 0.95f};
    const char *words[WORDS_MAX];
    const option options[] = {
        {0, "codec", OPTION_TEXT, &args.codec, "MODEL", "what makes sound of codes (NanoCodec)"},
        {'o', "output", OPTION_TEXT, &args.out, "FILE",
         "a WAV, or .flac, .mp3, .ogg, .opus; -: samples of 16 bits as soon as they are there"},
        {0, "voice", OPTION_TEXT, &args.voice, "NAME",
         "of a model that knows voices by name, as \"andrew\""},
        {0, "lang", OPTION_TEXT, &args.language, "TAG",
         "of a model that knows languages, as \"en_us\""},
        {0, "speaker", OPTION_TEXT, &args.speaker, "FILE",
         "a vector that describes a voice: of numpy, or floats"},
        {0, "speed", OPTION_NUMBER, &args.speed, "S", "times as fast, at the same pitch (1)", 0.25,
         4},
        {0, "seconds", OPTION_NUMBER, &args.seconds, "N", "at most (60, or the model's)", 0.1,
         3600},
        {0, "codes", OPTION_TEXT, &args.codes, "FILE",
         "sound of an array of codes of numpy, a row a frame; without a model"},
        {0, "ids", OPTION_FLAG, &args.ids, NULL, "each frame's codes on standard error"},
        OPTIONS_GROUP("Choosing codes"),
        {0, "temp", OPTION_NUMBER, &args.temperature, "T", "temperature (1, or the makers')", 0,
         100},
        {0, "top-p", OPTION_NUMBER, &args.top_p, "P", "the likeliest that reach P, 0: one (0.95)",
         0, 1},
        {0, "repeat-penalty", OPTION_NUMBER, &args.repeat_penalty, "R",
         "of codes that were said (1.1)", 0, 10},
        {0, "greedy", OPTION_FLAG, &args.greedy, NULL, "the likeliest, which soon goes round"},
        {0, "seed", OPTION_SEED, &args.seed, "S", "0: another one each time (0)"},
        MODEL_OPTIONS(args.model),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, words, WORDS_MAX, &n, &status)) return status;
    if (!args.codec) return bad_usage("speak: no --codec (NanoCodec)");
    if (!args.out) return bad_usage("speak: no -o FILE (-: standard output)");
    if (args.voice && args.language)
        return bad_usage("speak: --voice and --lang both stand before the text: one of them");
    if (!args.codes && !args.model.path) return bad_usage("speak: no model");
    cancel_on_signals(NULL);
    return speak(self, &args, words, n);
}
