// tern transcribe: turns recordings into text.
#include "apps/cli/console/cli.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tern_audio.h"

#define WORDS_MAX 4096
#define LINE_MOST 79 // bytes of the current speech on a terminal's line: its end

enum { FORM_TEXT, FORM_JSON, FORM_SRT, FORM_VTT };

typedef struct transcribe_args {
    model_args model;
    bool json, srt, vtt, whole, ids, times, live, translate, no_fallback;
    float seconds;
    const char *vad, *language;
} transcribe_args;

typedef struct printing {
    const transcribe_args *args;
    int form;
    int n;        // segments printed
    bool is_open; // a partial text is on the terminal's line
} printing;

// "00:01:02,345"; VTT has a point in place of the comma.
static void put_time(double seconds, char point) {
    long long ms = (long long)(seconds * 1000 + 0.5);
    printf("%02lld:%02lld:%02lld%c%03lld", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, point,
           ms % 1000);
}

static void put_ids(const tern_segment *s) {
    for (int32_t i = 0; i < s->n_ids; i++) printf("%s%d", i ? " " : "", (int)s->ids[i]);
}

static void put_json_segment(const printing *p, const tern_segment *s) {
    printf("%s{\"start\": %.3f, \"end\": %.3f, \"text\": ", p->n ? ", " : "", s->start, s->end);
    put_json(stdout, s->text, strlen(s->text));
    if (p->args->ids) {
        printf(", \"ids\": [");
        for (int32_t i = 0; i < s->n_ids; i++) printf("%s%d", i ? ", " : "", (int)s->ids[i]);
        putchar(']');
    }
    putchar('}');
}

static bool on_segment(void *user, const tern_segment *s) {
    printing *p = user;
    if (p->is_open) printf("\r\033[K");
    p->is_open = false;
    if (p->form == FORM_JSON) {
        put_json_segment(p, s);
    } else {
        if (p->form == FORM_SRT) printf("%d\n", p->n + 1);
        if (p->form != FORM_TEXT) {
            char point = p->form == FORM_SRT ? ',' : '.';
            put_time(s->start, point);
            printf(" --> ");
            put_time(s->end, point);
            putchar('\n');
        } else if (p->args->times) {
            putchar('[');
            put_time(s->start, '.');
            printf("] ");
        }
        if (p->args->ids)
            put_ids(s);
        else
            write_shown(NULL, s->text, strlen(s->text));
        printf(p->form == FORM_TEXT ? "\n" : "\n\n");
    }
    p->n++;
    fflush(stdout);
    return !ferror(stdout) && !was_cancelled();
}

static tern_transcribe_params params_of(const transcribe_args *args, printing *p) {
    return (tern_transcribe_params){.vad = args->vad,
                                    .whole = args->whole,
                                    .seconds_max = args->seconds,
                                    .language = args->language,
                                    .translate = args->translate,
                                    .no_fallback = args->no_fallback,
                                    .on_segment = on_segment,
                                    .user = p};
}

static bool read_sound(tern_sound *out, const char *path, int32_t rate) {
    const tern_sound_desc desc = {.rate = rate};
    tern_error err = {0};
    text bytes = {0};
    bool is_input = strcmp(path, "-") == 0;
    if (is_input && !text_read(&bytes, path)) return false;
    tern_status status =
        is_input ? tern_sound_open_bytes(out, bytes.ptr ? bytes.ptr : "", bytes.n, &desc, &err)
                 : tern_sound_open(out, path, &desc, &err);
    free(bytes.ptr);
    if (status == TERN_OK) return true;
    fail("%s%s", is_input ? "standard input: " : "", err.message);
    return false;
}

static void print_transcription_stats(const tern_transcription *t) {
    double all = t->encoder_seconds + t->decoder_seconds;
    fprintf(stderr,
            "%.2f s of sound in %.2f s (encoder %.2f, decoder %.2f of %lld tokens): %.3f of real "
            "time\n",
            t->seconds, all, t->encoder_seconds, t->decoder_seconds, (long long)t->n_read,
            t->seconds > 0 ? all / t->seconds : 0);
}

static bool transcribe(tern_model *model, const transcribe_args *args, const char *path, int form) {
    tern_sound sound;
    tern_transcription out = {0};
    tern_error err = {0};
    printing p = {.args = args, .form = form};
    const tern_transcribe_params params = params_of(args, &p);
    tern_media_info info;
    tern_model_get_media_info(model, &info);
    if (!read_sound(&sound, path, info.audio_rate)) return false;
    if (form == FORM_JSON) {
        printf("{\"file\": ");
        put_json(stdout, path, strlen(path));
        printf(", \"seconds\": %.3f, \"segments\": [", (double)sound.n / sound.rate);
    }
    if (form == FORM_VTT) printf("WEBVTT\n\n");
    tern_status status = tern_transcribe(model, &sound, &params, &out, &err);
    if (form == FORM_JSON) {
        printf("]");
        if (out.language[0]) printf(", \"language\": \"%s\"", out.language);
        printf("}\n");
    }
    if (status == TERN_OK && args->model.verbose) print_transcription_stats(&out);
    tern_sound_close(&sound);
    tern_transcription_free(&out);
    if (status == TERN_OK || ferror(stdout)) return true;
    if (status != TERN_ERR_CANCELLED) fail("%s: %s", path, err.message);
    return false;
}

// ---- Live --------------------------------------------------------------------------------------

// On a terminal the last line is the current speech; elsewhere only JSON has it.
static bool on_partial(void *user, const tern_segment *s) {
    printing *p = user;
    if (p->form == FORM_JSON) {
        printf("{\"partial\": ");
        put_json(stdout, s->text, strlen(s->text));
        printf("}\n");
    } else if (p->args->ids) {
        return !was_cancelled();
    } else {
        size_t n = strlen(s->text);
        const char *from = s->text + (n > LINE_MOST ? n - LINE_MOST : 0);
        while (((unsigned char)*from & 0xC0) == 0x80) from++; // start at a whole character
        printf("\r\033[K"), write_shown(NULL, from, strlen(from));
        p->is_open = true;
    }
    fflush(stdout);
    return !ferror(stdout) && !was_cancelled();
}

static bool on_line(void *user, const tern_segment *s) {
    printing *p = user;
    if (p->form != FORM_JSON) return on_segment(user, s);
    p->n = 0;
    put_json_segment(p, s);
    putchar('\n');
    fflush(stdout);
    return !ferror(stdout) && !was_cancelled();
}

// Has everything computed that was fed.
static tern_status finish(tern_transcriber *transcriber, tern_error *err) {
    tern_status status = TERN_OK;
    for (bool done = false; status == TERN_OK && !done;)
        status = tern_transcriber_poll(transcriber, NULL, &done, err);
    return status;
}

// Reads 16-bit samples as they arrive: one channel, at the model's rate, without a header.
static bool listen_to_input(tern_model *model, const transcribe_args *args, int form) {
    enum { MOST = 1600 };
    tern_error err = {0};
    tern_transcriber *transcriber;
    printing p = {.args = args, .form = form};
    tern_transcribe_params params = params_of(args, &p);
    unsigned char bytes[2 * MOST];
    float samples[MOST];
    size_t n, left = 0;
    params.on_segment = on_line;
    if (form == FORM_JSON || isatty(STDOUT_FILENO)) params.on_partial = on_partial;
    if (form == FORM_VTT) printf("WEBVTT\n\n");
    tern_status status = tern_transcriber_open(&transcriber, model, &params, &err);
    while (status == TERN_OK && !was_cancelled() &&
           (n = fread(bytes + left, 1, sizeof bytes - left, stdin)) > 0) {
        n += left;
        for (size_t i = 0; i < n / 2; i++)
            samples[i] = (float)(int16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8) / 32768;
        status = tern_transcriber_feed(transcriber, samples, (int64_t)(n / 2), &err);
        if (status == TERN_OK) status = finish(transcriber, &err);
        left = n % 2;
        if (left) bytes[0] = bytes[n - 1];
    }
    if (status == TERN_OK) status = tern_transcriber_end(transcriber, &err);
    if (status == TERN_OK) status = finish(transcriber, &err);
    if (p.is_open) putchar('\n');
    tern_transcriber_close(transcriber);
    if (status == TERN_OK || ferror(stdout)) return true;
    if (status != TERN_ERR_CANCELLED) fail("standard input: %s", err.message);
    return false;
}

int cmd_transcribe(const command *self, int argc, char **argv) {
    transcribe_args args = {0};
    const char *paths[WORDS_MAX];
    const option options[] = {
        {0, "json", OPTION_FLAG, &args.json, NULL, "a line of JSON for each file"},
        {0, "srt", OPTION_FLAG, &args.srt, NULL, "subtitles as SubRip has them"},
        {0, "vtt", OPTION_FLAG, &args.vtt, NULL, "subtitles as WebVTT has them"},
        {0, "times", OPTION_FLAG, &args.times, NULL, "when each segment begins, before its text"},
        {0, "ids", OPTION_FLAG, &args.ids, NULL, "token ids instead of text; in JSON besides it"},
        {0, "vad", OPTION_TEXT, &args.vad, "FILE",
         "Silero VAD (ONNX), which finds the speech; else loudness does"},
        {0, "language", OPTION_TEXT, &args.language, "CODE",
         "Whisper: the language, en, de, zh ...; else it is detected"},
        {0, "translate", OPTION_FLAG, &args.translate, NULL, "Whisper: into English"},
        {0, "no-fallback", OPTION_FLAG, &args.no_fallback, NULL,
         "Whisper: only the likeliest tokens, also where it is unsure"},
        {0, "live", OPTION_FLAG, &args.live, NULL,
         "FILE is -: samples of 16 bits at 16 kHz as they come, text while they do"},
        {0, "whole", OPTION_FLAG, &args.whole, NULL, "leave nothing out, not even silence"},
        {0, "seconds", OPTION_NUMBER, &args.seconds, "N", "of a segment at most (15)", 1, 15},
        MODEL_OPTIONS(args.model),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, paths, WORDS_MAX, &n, &status)) return status;
    if (args.json + args.srt + args.vtt > 1)
        return bad_usage("transcribe: --json, --srt and --vtt are one choice");
    if (n == 0) return bad_usage("transcribe: no file is given (-: standard input)");
    if (args.live && (n != 1 || strcmp(paths[0], "-") != 0))
        return bad_usage("transcribe: --live is for standard input alone (-)");
    int form = args.json ? FORM_JSON : args.srt ? FORM_SRT : args.vtt ? FORM_VTT : FORM_TEXT;
    cancel_on_signals(NULL);
    tern_model *model = open_model(self, &args.model, &status);
    if (!model) return status;
    tern_media_info info;
    tern_model_get_media_info(model, &info);
    bool ok = info.is_asr;
    if (!ok) fail("%s: the model does not transcribe", args.model.path);
    if (ok && args.live) ok = listen_to_input(model, &args, form);
    for (int i = 0; ok && !args.live && i < n && !ferror(stdout); i++)
        ok = transcribe(model, &args, paths[i], form);
    tern_model_close(model);
    return close_out(ok ? EXIT_OK : EXIT_FAILED);
}
