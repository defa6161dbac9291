// Sound files: decoded by libsndfile, resampled by soxr, block by block, so that no more is in
// memory than what comes out.
#include <math.h>
#include <sndfile.h>
#include <soxr.h>
#include <string.h>
#include "base/alloc.h"
#include "media/sound.h"

// ---- Bytes as a file ---------------------------------------------------------------------------

typedef struct bytes_file {
    const uint8_t *at;
    sf_count_t n, position;
} bytes_file;

static sf_count_t length_of(void *user) {
    return ((bytes_file *)user)->n;
}

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
    f->position += n;
    return n;
}

static sf_count_t write_none(const void *from, sf_count_t n, void *user) {
    (void)from, (void)n, (void)user;
    return 0;
}

static sf_count_t tell(void *user) {
    return ((bytes_file *)user)->position;
}

// ---- Blocks ------------------------------------------------------------------------------------

#define BLOCK 4096 // frames of the file at once

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
            return tern_fail(err, TERN_ERR_FORMAT, "the sound has samples that are no numbers");
    if ((double)r->out->n + (double)n > most)
        return tern_fail(err, TERN_ERR_FORMAT, "the sound is longer than %g seconds",
                         r->seconds_max);
    if (tern_sound_append(r->out, &r->capacity, samples, n)) return TERN_OK;
    return tern_fail_memory(err, n * sizeof *samples);
}

// samples NULL: the end, what the resampler still holds.
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
            double sum = 0; // in place: mono is never ahead of what it is made of
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
    bytes_file file = {bytes, (sf_count_t)n_bytes, 0};
    reading r = {.out = out, .seconds_max = seconds_max};
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
