// Sound files: decoded by libsndfile, resampled by soxr, block by block, so that only the result is
// in memory.
#include <math.h>
#include <sndfile.h>
#include <soxr.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "media/sound.h"

// ---- Bytes as a file ---------------------------------------------------------------------------

typedef struct bytes_file {
    const uint8_t *at;
    sf_count_t n, position;
    sf_count_t n_at[2];  // offsets of sizes that the writer never filled in; 0: none
    uint8_t sizes[2][4]; // and the right sizes
} bytes_file;

static sf_count_t length_of(void *user) { return ((bytes_file *)user)->n; }

static sf_count_t seek_to(sf_count_t offset, int whence, void *user) {
    bytes_file *f = user;
    sf_count_t base = whence == SEEK_CUR ? f->position : whence == SEEK_END ? f->n : 0;
    if (offset > f->n - base || offset < -base) return -1;
    return f->position = base + offset;
}

static sf_count_t read_some(void *to, sf_count_t n, void *user) {
    bytes_file *f = user;
    if (n > f->n - f->position) n = f->n - f->position;
    if (n <= 0) return 0;
    memcpy(to, f->at + f->position, (size_t)n);
    for (size_t k = 0; k < 8; k++) {
        sf_count_t at = f->n_at[k / 4] + (sf_count_t)(k % 4) - f->position;
        if (f->n_at[k / 4] && at >= 0 && at < n) ((uint8_t *)to)[at] = f->sizes[k / 4][k % 4];
    }
    f->position += n;
    return n;
}

static sf_count_t write_none(const void *from, sf_count_t n, void *user) {
    (void)from, (void)n, (void)user;
    return 0;
}

static sf_count_t tell(void *user) { return ((bytes_file *)user)->position; }

// ---- Sizes that a stream's writer could not know ------------------------------------------------

static uint32_t size_at(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void set_size(bytes_file *f, int which, sf_count_t at, sf_count_t n) {
    uint32_t size = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    f->n_at[which] = at;
    for (int i = 0; i < 4; i++) f->sizes[which][i] = (uint8_t)(size >> 8 * i);
}

// Whether the rest of the file is valid chunks: then the sizes before are right.
static bool are_chunks(const bytes_file *f, sf_count_t at) {
    while (f->n - at >= 8) {
        for (int i = 0; i < 4; i++)
            if (f->at[at + i] < 32 || f->at[at + i] > 126) return false;
        sf_count_t size = size_at(f->at + at + 4);
        at += 8 + size + size % 2;
    }
    return at == f->n || at == f->n + 1;
}

// A WAV written into a pipe gives 0, or the maximum, as the size of its samples: they go to the end
// of the file.
static void find_sizes(bytes_file *f) {
    if (f->n < 12 || memcmp(f->at, "RIFF", 4) != 0 || memcmp(f->at + 8, "WAVE", 4) != 0) return;
    for (sf_count_t at = 12; f->n - at >= 8;) {
        sf_count_t size = size_at(f->at + at + 4), rest = f->n - at - 8;
        if (memcmp(f->at + at, "data", 4) == 0) {
            if (rest == 0 || (size <= rest && (size != 0 || are_chunks(f, at + 8)))) return;
            set_size(f, 0, 4, f->n - 8);
            set_size(f, 1, at + 4, rest);
            return;
        }
        at += 8 + size + size % 2;
    }
}

// ---- Blocks ------------------------------------------------------------------------------------

#define BLOCK 4096 // frames read at once

typedef struct reading {
    SNDFILE *file;
    SF_INFO info;
    soxr_t resampler; // NULL: the rate stays
    float *frames;    // [BLOCK, channels]
    float *resampled; // [room]
    size_t room, capacity;
    double seconds_max;
    tern_sound *out;
} reading;

static tern_status append(reading *r, const float *samples, size_t n, tern_error *err) {
    double most = r->seconds_max * r->out->rate;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(samples[i]))
            return tern_fail(err, TERN_ERR_FORMAT,
                             "the sound has samples that are NaN or infinite");
    if ((double)r->out->n + (double)n > most)
        return tern_fail(err, TERN_ERR_FORMAT, "the sound is longer than %g seconds",
                         r->seconds_max);
    if (tern_sound_append(r->out, &r->capacity, samples, n)) return TERN_OK;
    return tern_fail_memory(err, n * sizeof *samples);
}

// samples NULL: the end; flushes the resampler.
static tern_status add_mono(reading *r, const float *samples, size_t n, tern_error *err) {
    if (!r->resampler) return append(r, samples, n, err);
    size_t made = 1, used = 0;
    for (size_t first = 0; samples ? first < n : made > 0; first += used) {
        soxr_error_t bad =
            soxr_process(r->resampler, samples ? samples + first : NULL, samples ? n - first : 0,
                         &used, r->resampled, r->room, &made);
        if (bad) return tern_fail(err, TERN_ERR_FORMAT, "resampling fails: %s", bad);
        TERN_TRY(append(r, r->resampled, made, err));
        if (samples && used == 0 && made == 0) break;
    }
    return TERN_OK;
}

static tern_status read_blocks(reading *r, tern_error *err) {
    size_t channels = (size_t)r->info.channels;
    for (;;) {
        sf_count_t n = sf_readf_float(r->file, r->frames, BLOCK);
        if (n <= 0) break;
        for (size_t t = 0; t < (size_t)n; t++) {
            double sum = 0; // in place: the mono output never overtakes its input
            for (size_t c = 0; c < channels; c++) sum += (double)r->frames[t * channels + c];
            r->frames[t] = (float)(sum / (double)channels);
        }
        TERN_TRY(add_mono(r, r->frames, (size_t)n, err));
    }
    int bad = sf_error(r->file);
    if (bad) return tern_fail(err, TERN_ERR_FORMAT, "%s", sf_error_number(bad));
    return r->resampler ? add_mono(r, NULL, 0, err) : TERN_OK;
}

static tern_status prepare(reading *r, int32_t rate, tern_error *err) {
    if (r->info.samplerate < TERN_RATE_LEAST || r->info.samplerate > TERN_RATE_MOST ||
        r->info.channels < 1 || r->info.channels > 1024)
        return tern_fail(err, TERN_ERR_FORMAT, "%d samples a second of %d channels make no sense",
                         r->info.samplerate, r->info.channels);
    r->out->rate = rate ? rate : r->info.samplerate;
    r->frames =
        tern_alloc_array(TERN_MEM_MISC, BLOCK * (size_t)r->info.channels, sizeof *r->frames);
    r->room = BLOCK;
    r->resampled = tern_alloc_array(TERN_MEM_MISC, r->room, sizeof *r->resampled);
    if (!r->frames || !r->resampled || !tern_sound_append(r->out, &r->capacity, NULL, 0))
        return tern_fail_memory(err, BLOCK * (size_t)r->info.channels * sizeof *r->frames);
    if (r->out->rate == r->info.samplerate) return TERN_OK;
    soxr_error_t bad = NULL;
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    r->resampler = soxr_create(r->info.samplerate, r->out->rate, 1, &bad, NULL, &quality, NULL);
    if (r->resampler && !bad) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "from %d to %d samples a second: %s", r->info.samplerate,
                     (int)r->out->rate, bad ? bad : "no resampler");
}

tern_status tern_sound_decode(tern_sound *out, const void *bytes, size_t n_bytes, int32_t rate,
                              double seconds_max, tern_error *err) {
    SF_VIRTUAL_IO io = {length_of, seek_to, read_some, write_none, tell};
    bytes_file file = {.at = bytes, .n = (sf_count_t)n_bytes};
    find_sizes(&file);
    reading r = {.out = out, .seconds_max = seconds_max};
    TERN_TRY(TERN_LAZY_LOAD(sounds, err));
    r.file = sf_open_virtual(&io, SFM_READ, &r.info, &file);
    if (!r.file)
        return tern_fail(err, TERN_ERR_FORMAT, "this is no WAV, FLAC, MP3, Ogg or AIFF%s",
                         n_bytes ? "" : " (it is empty)");
    tern_status status = prepare(&r, rate, err);
    if (status == TERN_OK) status = read_blocks(&r, err);
    if (r.resampler) soxr_delete(r.resampler);
    tern_free(r.frames);
    tern_free(r.resampled);
    sf_close(r.file);
    return status;
}

// ---- Writing -----------------------------------------------------------------------------------

// A file that grows in memory.
typedef struct memory_file {
    uint8_t *at;
    size_t n, capacity, position;
    bool failed;
} memory_file;

static sf_count_t memory_length(void *user) { return (sf_count_t)((memory_file *)user)->n; }

static sf_count_t memory_seek(sf_count_t offset, int whence, void *user) {
    memory_file *f = user;
    sf_count_t n = (sf_count_t)f->n;
    sf_count_t base = whence == SEEK_CUR ? (sf_count_t)f->position : whence == SEEK_END ? n : 0;
    if (offset > n - base || offset < -base) return -1;
    f->position = (size_t)(base + offset);
    return base + offset;
}

static sf_count_t memory_read(void *to, sf_count_t n, void *user) {
    memory_file *f = user;
    if (n > (sf_count_t)(f->n - f->position)) n = (sf_count_t)(f->n - f->position);
    if (n <= 0) return 0;
    memcpy(to, f->at + f->position, (size_t)n);
    f->position += (size_t)n;
    return n;
}

static sf_count_t memory_write(const void *from, sf_count_t n, void *user) {
    memory_file *f = user;
    if (n <= 0) return 0;
    f->failed |=
        tern_array_reserve(TERN_MEM_MISC, &f->at, &f->capacity, f->position, (size_t)n) != 0;
    if (f->failed) return 0;
    memcpy(f->at + f->position, from, (size_t)n);
    f->position += (size_t)n;
    if (f->position > f->n) f->n = f->position;
    return n;
}

static sf_count_t memory_tell(void *user) { return (sf_count_t)((memory_file *)user)->position; }

static int format_of(const char *kind) {
    static const struct {
        const char *kind;
        int format;
    } kinds[] = {{"flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
                 {"mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III},
                 {"ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS},
                 {"opus", SF_FORMAT_OGG | SF_FORMAT_OPUS}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0) return kinds[i].format;
    return 0;
}

#define OPUS_RATE 24000 // one of the few rates of Opus, above those for speech

// The sound at a rate of Opus; the caller frees *out.
static tern_status resample(const tern_sound *s, int32_t rate, tern_sound *out, tern_error *err) {
    size_t made = 0, n = (size_t)s->n, room = (size_t)((double)n * rate / s->rate) + 16;
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    *out = (tern_sound){.rate = rate};
    out->samples = tern_alloc_array(TERN_MEM_MISC, room, sizeof *out->samples);
    if (!out->samples) return tern_fail_memory(err, room * sizeof *out->samples);
    soxr_error_t bad = n ? soxr_oneshot(s->rate, rate, 1, s->samples, n, NULL, out->samples, room,
                                        &made, NULL, &quality, NULL)
                         : NULL;
    out->n = (int64_t)made;
    return bad ? tern_fail(err, TERN_ERR_FORMAT, "resampling fails: %s", bad) : TERN_OK;
}

static tern_status write_blocks(SNDFILE *file, const tern_sound *s, const char *kind,
                                tern_error *err) {
    uint8_t bytes[2 * BLOCK];
    short block[BLOCK];
    for (int64_t first = 0; first < s->n; first += BLOCK) {
        size_t n = (size_t)(s->n - first < BLOCK ? s->n - first : BLOCK);
        tern_sound_pcm16(s->samples + first, n, bytes);
        for (size_t i = 0; i < n; i++)
            block[i] = (short)(int16_t)(uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8);
        if (sf_write_short(file, block, (sf_count_t)n) != (sf_count_t)n)
            return tern_fail(err, TERN_ERR_FORMAT, "%s: %s", kind, sf_strerror(file));
    }
    return TERN_OK;
}

static tern_status pack(const tern_sound *s, const char *kind, int format, memory_file *f,
                        tern_error *err) {
    SF_VIRTUAL_IO io = {memory_length, memory_seek, memory_read, memory_write, memory_tell};
    SF_INFO info = {.samplerate = (int)s->rate, .channels = 1, .format = format};
    SNDFILE *file = sf_open_virtual(&io, SFM_WRITE, &info, f);
    if (!file)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s of %d samples a second: %s", kind,
                         (int)s->rate, sf_strerror(NULL));
    tern_status status = write_blocks(file, s, kind, err);
    int bad = sf_close(file);
    if (f->failed) return tern_fail_memory(err, f->n);
    if (status == TERN_OK && bad)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: %s", kind, sf_error_number(bad));
    return status;
}

tern_status tern_sound_pack(const tern_sound *sound, const char *kind, uint8_t **out, size_t *n,
                            tern_error *err) {
    int format = format_of(kind);
    memory_file f = {0};
    tern_sound other = {0};
    if (!format)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: expected wav, flac, mp3, ogg or opus",
                         kind);
    TERN_TRY(TERN_LAZY_LOAD(sounds, err));
    bool is_opus = strcmp(kind, "opus") == 0;
    tern_status status = is_opus ? resample(sound, OPUS_RATE, &other, err) : TERN_OK;
    if (status == TERN_OK) status = pack(is_opus ? &other : sound, kind, format, &f, err);
    tern_free(other.samples);
    if (status == TERN_OK) {
        *out = f.at;
        *n = f.n;
    } else {
        tern_free(f.at);
    }
    return status;
}
