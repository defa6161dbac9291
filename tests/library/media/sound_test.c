// Sounds: each kind of file comes out with its samples at the rate that is asked for; what is
// damaged or too long is refused; what is written is read again.
#include <math.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "tests/support/harness.h"
#include "media/sound.h"

#define RATE 44100
#define N    (2 * RATE)

// Left and right are different tones; their mean is what is heard.
static double left(double t) { return 0.5 * sin(2 * 3.14159265358979 * 440 * t); }
static double right(double t) { return 0.3 * sin(2 * 3.14159265358979 * 1000 * t); }

static bool write_file(const char *path, int format) {
    // What the library calls is a stub in this program, too.
    if (TERN_LAZY_LOAD(sounds, NULL) != TERN_OK) return false;
    SF_INFO info = {.samplerate = RATE, .channels = 2, .format = format};
    SNDFILE *f = sf_open(path, SFM_WRITE, &info);
    if (!f) return false;
    float *x = calloc(2 * N, sizeof *x);
    for (int i = 0; i < N; i++) {
        x[2 * i] = (float)left((double)i / RATE);
        x[2 * i + 1] = (float)right((double)i / RATE);
    }
    bool ok = sf_writef_float(f, x, N) == N;
    free(x);
    return sf_close(f) == 0 && ok;
}

// Of the middle, where no filter feels the ends; at the best of some shifts, as lossy formats have
// a delay.
static double error_of(const tern_sound *s, int reach) {
    double best = 1e9;
    for (int shift = -reach; shift <= reach; shift++) {
        double sum = 0, all = 0;
        for (int64_t i = s->n / 4; i < s->n / 2; i++) {
            double t = (double)(i + shift) / s->rate, want = (left(t) + right(t)) / 2;
            sum += ((double)s->samples[i] - want) * ((double)s->samples[i] - want);
            all += want * want;
        }
        if (sum / all < best) best = sum / all;
    }
    return sqrt(best);
}

// Seen to fail with one channel alone.
TEST(sound_reads_each_kind_of_file) {
    static const struct {
        const char *name;
        int format;
        double error; // of what the kind keeps
        int reach;
    } kinds[] = {
        {"wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 2e-4, 0},
        {"float.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 2e-5, 0},
        {"flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 2e-5, 0},
        {"ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 0.05, 2},
        {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 0.05, 1200},
        {"aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 2e-4, 0},
    };
    tern_error err = {0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[512];
        tern_sound s;
        snprintf(path, sizeof path, "%s.%s", test_tmp("sound"), kinds[i].name);
        CHECK_MSG(write_file(path, kinds[i].format), "%s", path);
        for (int32_t rate = 0; rate <= 16000; rate += 16000) {
            const tern_sound_desc desc = {.rate = rate};
            CHECK_MSG(tern_sound_open(&s, path, &desc, &err) == TERN_OK, "%s", err.message);
            CHECK(s.rate == (rate ? rate : RATE));
            CHECK_MSG(llabs(s.n - 2 * s.rate) < s.rate / 10, "%s: %lld", path, (long long)s.n);
            double e = error_of(&s, kinds[i].reach);
            CHECK_MSG(e < kinds[i].error, "%s at %d: %g off", path, (int)s.rate, e);
            tern_sound_close(&s);
        }
    }
}

// Seen to fail with another loudest number.
TEST(sound_writes_what_it_reads) {
    tern_error err = {0};
    tern_sound s, again;
    char path[512];
    snprintf(path, sizeof path, "%s.wav", test_tmp("sound_written"));
    REQUIRE_OK(tern_sound_create(&s, 22050, 5000, &err), err);
    for (int i = 0; i < 5000; i++) s.samples[i] = 1.5f * sinf((float)i * 0.01f); // some too loud
    s.samples[7] = NAN;
    REQUIRE_OK(tern_sound_write(&s, path, &err), err);
    REQUIRE_OK(tern_sound_open(&again, path, NULL, &err), err);
    CHECK(again.rate == 22050 && again.n == 5000);
    for (int i = 0; i < 5000; i++) {
        float want = i == 7 ? 0 : fminf(1, fmaxf(-1, s.samples[i]));
        CHECK_MSG(fabsf(again.samples[i] * 32768 / 32767 - want) < 2.0 / 32767, "%d", i);
    }
    tern_sound_close(&again);
    tern_sound_close(&s);
    s = (tern_sound){.rate = 5};
    CHECK(tern_sound_write(&s, path, &err) == TERN_ERR_ARGUMENT);
}

typedef struct bytes_got {
    uint8_t first[8];
    size_t n;
    bool stops;
} bytes_got;

static bool on_bytes(void *user, const void *bytes, size_t n) {
    bytes_got *g = user;
    g->n += n;
    memcpy(g->first, bytes, n < 8 ? n : 8);
    return !g->stops;
}

// A tone, through files of each kind and back. Seen to fail: the high byte first.
TEST(sound_writes_what_other_programs_read) {
    static const struct {
        const char *kind, *begins;
        int32_t rate;
        double off;
    } kinds[] = {{"wav", "RIFF", 22050, 2e-4},
                 {"flac", "fLaC", 22050, 2e-4},
                 {"mp3", "", 22050, 0.05},
                 {"ogg", "OggS", 22050, 0.05},
                 {"opus", "OggS", 48000, 0.05}};
    tern_error err = {0};
    tern_sound s, again;
    REQUIRE_OK(tern_sound_create(&s, 22050, 22050, &err), err);
    for (int i = 0; i < 22050; i++) s.samples[i] = 0.5f * sinf((float)i * 0.1f);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char path[512];
        bytes_got got = {.n = 0};
        double square = 0;
        snprintf(path, sizeof path, "%s.%s", test_tmp("sound_kind"), kinds[k].kind);
        REQUIRE_OK(tern_sound_encode(&s, kinds[k].kind, on_bytes, &got, &err), err);
        CHECK(got.n > 1000 && !memcmp(got.first, kinds[k].begins, strlen(kinds[k].begins)));
        REQUIRE_OK(tern_sound_write(&s, path, &err), err);
        REQUIRE_OK(tern_sound_open(&again, path, NULL, &err), err);
        double seconds = (double)again.n / again.rate;
        CHECK_MSG(again.rate == kinds[k].rate || k == 4, "%s: %d", path, (int)again.rate);
        CHECK_MSG(fabs(seconds - 1) < 0.06, "%s: %g s", path, seconds);
        for (int64_t i = again.n / 4; i < again.n / 2; i++)
            square += (double)again.samples[i] * (double)again.samples[i];
        double loud = sqrt(square / (double)(again.n / 2 - again.n / 4)) / sqrt(0.125);
        CHECK_MSG(fabs(loud - 1) <= kinds[k].off + 0.002, "%s: %g as loud", path, loud);
        tern_sound_close(&again);
    }
    bytes_got got = {.stops = true};
    CHECK(tern_sound_encode(&s, "flac", on_bytes, &got, &err) == TERN_ERR_CANCELLED);
    CHECK(tern_sound_encode(&s, "aac", on_bytes, &got, &err) == TERN_ERR_UNSUPPORTED &&
          strstr(err.message, "aac"));
    tern_sound_close(&s);
}

// By the bytes. Seen to fail: a length that is not the samples'; the high byte first.
TEST(sound_has_the_pieces_of_a_wav) {
    static const float samples[] = {0, 0.5f, -0.5f, 2, -2, NAN};
    static const uint8_t pcm[] = {0, 0, 0, 64, 0, 192, 255, 127, 1, 128, 0, 0};
    static const uint8_t head[TERN_WAV_HEADER_BYTES] = {
        'R', 'I', 'F', 'F', 48, 0, 0,   0,   'W', 'A',  'V', 'E', 'f', 'm', 't',
        ' ', 16,  0,   0,   0,  1, 0,   1,   0,   0x80, 62,  0,   0,   0,   125,
        0,   0,   2,   0,   16, 0, 'd', 'a', 't', 'a',  12,  0,   0,   0};
    uint8_t bytes[TERN_WAV_HEADER_BYTES];
    tern_sound_pcm16(samples, 6, bytes);
    CHECK(memcmp(bytes, pcm, sizeof pcm) == 0);
    tern_sound_wav_header(16000, 6, bytes);
    CHECK(memcmp(bytes, head, sizeof head) == 0);
    tern_sound_wav_header(16000, -1, bytes);
    CHECK(memcmp(bytes, "RIFF\xff\xff\xff\xff", 8) == 0);
    CHECK(memcmp(bytes + 8, head + 8, 32) == 0 && memcmp(bytes + 40, "\xff\xff\xff\xff", 4) == 0);
}

// A WAV that was written into a pipe has all its samples, and an empty one none. Seen to fail with
// the sizes taken as they are.
TEST(sound_of_a_wav_without_sizes) {
    static const struct {
        uint32_t riff, data;
        bool has_list; // behind the samples
        size_t n_frames;
        int64_t n;
    } rows[] = {
        {36 + 2000, 0, false, 1000, 1000},           {0, 0, false, 1000, 1000},
        {UINT32_MAX, UINT32_MAX, false, 1000, 1000}, {UINT32_MAX, 1u << 31, false, 1000, 1000},
        {36 + 2000, 2000, false, 1000, 1000},        {36 + 12, 0, true, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t bytes[TERN_WAV_HEADER_BYTES + 2012] = {0};
        float samples[1000];
        size_t n = TERN_WAV_HEADER_BYTES + 2 * rows[i].n_frames;
        tern_error err = {0};
        tern_sound s = {0};
        for (size_t t = 0; t < 1000; t++) samples[t] = 0.5f * sinf((float)t);
        tern_sound_wav_header(16000, 1000, bytes);
        tern_sound_pcm16(samples, rows[i].n_frames, bytes + TERN_WAV_HEADER_BYTES);
        memcpy(bytes + 4, &rows[i].riff, 4);
        memcpy(bytes + 40, &rows[i].data, 4);
        if (rows[i].has_list) memcpy(bytes + n, "LIST\4\0\0\0INFO", 12), n += 12;
        tern_status status = tern_sound_decode(&s, bytes, n, 0, 60, &err);
        CHECK_MSG(status == TERN_OK && s.n == rows[i].n, "row %zu: %lld, %s", i, (long long)s.n,
                  err.message);
        tern_sound_close(&s);
    }
}

TEST(sound_refuses_what_is_none_or_too_long) {
    tern_error err = {0};
    tern_sound s;
    char path[512];
    snprintf(path, sizeof path, "%s.flac", test_tmp("sound_refused"));
    CHECK(write_file(path, SF_FORMAT_FLAC | SF_FORMAT_PCM_16));
    const tern_sound_desc brief = {.rate = 16000, .seconds_max = 1}, slow = {.rate = 10},
                          endless = {.seconds_max = 1e9};
    CHECK(tern_sound_open(&s, path, &brief, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "longer than 1 seconds") && strstr(err.message, path));
    CHECK(tern_sound_open(&s, path, &slow, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_sound_open(&s, path, &endless, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_sound_open_bytes(&s, "", 0, NULL, &err) == TERN_ERR_FORMAT);
    CHECK(strstr(err.message, "it is empty"));
    CHECK(tern_sound_open_bytes(&s, "no sound at all", 15, NULL, &err) == TERN_ERR_FORMAT);
    CHECK(tern_sound_open(&s, "tests/none.wav", NULL, &err) == TERN_ERR_IO);
    CHECK(s.samples == NULL);
}

TEST(sound_survives_failing_allocations) {
    tern_error err = {0};
    tern_sound s;
    char path[512];
    bool done = false;
    const tern_sound_desc desc = {.rate = 16000};
    snprintf(path, sizeof path, "%s.wav", test_tmp("sound_memory"));
    CHECK(write_file(path, SF_FORMAT_WAV | SF_FORMAT_PCM_16));
    for (uint64_t n = 1; !done && n < 100; n++) {
        tern_mem_fail_at(n);
        tern_status status = tern_sound_open(&s, path, &desc, &err);
        tern_mem_fail_at(0);
        done = status == TERN_OK;
        CHECK_MSG(done || status == TERN_ERR_MEMORY, "%s", err.message);
        tern_sound_close(&s);
    }
    CHECK(done);
}
