// Sounds in memory, and written as WAV.
#include "media/sound.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file/blob.h"
#include "base/file/out_set.h"

void tern_sound_close(tern_sound *sound) {
    if (!sound) return;
    tern_free(sound->samples);
    *sound = (tern_sound){0};
}

static tern_status check_rate(int32_t rate, tern_error *err) {
    if (rate >= TERN_RATE_LEAST && rate <= TERN_RATE_MOST) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%d samples a second: expected %d to %d", (int)rate,
                     TERN_RATE_LEAST, TERN_RATE_MOST);
}

tern_status tern_sound_create(tern_sound *out, int32_t rate, int64_t n, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = (tern_sound){0};
    TERN_TRY(check_rate(rate, err));
    if (n < 0 || n > (int64_t)TERN_SECONDS_MAX * TERN_RATE_MOST)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a sound of %lld samples", (long long)n);
    out->samples = tern_alloc_array(TERN_MEM_MISC, (size_t)n + 1, sizeof *out->samples);
    if (!out->samples) return tern_fail_memory(err, (size_t)n * sizeof *out->samples);
    out->rate = rate;
    out->n = n;
    return TERN_OK;
}

bool tern_sound_append(tern_sound *sound, size_t *capacity, const float *samples, size_t n) {
    if (tern_array_reserve(TERN_MEM_MISC, &sound->samples, capacity, (size_t)sound->n, n + 1) != 0)
        return false;
    if (n) memcpy(sound->samples + sound->n, samples, n * sizeof *samples);
    sound->n += (int64_t)n;
    return true;
}

// ---- Files -------------------------------------------------------------------------------------

tern_status tern_sound_open_bytes(tern_sound *out, const void *bytes, size_t n_bytes,
                                  const tern_sound_desc *desc, tern_error *err) {
    tern_clear(err);
    static const tern_sound_desc defaults = {0};
    TERN_NEED(out);
    *out = (tern_sound){0};
    TERN_NEED(bytes);
    if (!desc) desc = &defaults;
    if (desc->rate) TERN_TRY(check_rate(desc->rate, err));
    if (!(desc->seconds_max >= 0 && desc->seconds_max <= TERN_SECONDS_MAX))
        return tern_fail(err, TERN_ERR_ARGUMENT, "seconds_max is %g: expected at most %d",
                         desc->seconds_max, TERN_SECONDS_MAX);
    double most = desc->seconds_max > 0 ? desc->seconds_max : TERN_SECONDS_MAX;
    tern_status status = tern_sound_decode(out, bytes, n_bytes, desc->rate, most, err);
    if (status != TERN_OK) tern_sound_close(out);
    return status;
}

tern_status tern_sound_open(tern_sound *out, const char *path, const tern_sound_desc *desc,
                            tern_error *err) {
    tern_clear(err);
    tern_blob_file *file;
    tern_blob all;
    tern_hold hold;
    TERN_NEED(out);
    *out = (tern_sound){0};
    TERN_NEED(path);
    TERN_TRY(tern_blob_open(&file, path, false, &all, err));
    tern_status status = tern_blob_hold(&all, &hold, err);
    if (status == TERN_OK) {
        status = tern_sound_open_bytes(out, hold.data ? hold.data : "", (size_t)all.n, desc, err);
        if (status != TERN_OK) status = tern_fail_prefix(err, status, path);
        tern_blob_release(&hold);
    }
    tern_blob_close(file);
    return status;
}

static void put_little(uint8_t *to, uint32_t x, int n) {
    for (int i = 0; i < n; i++) to[i] = (uint8_t)(x >> 8 * i);
}

void tern_sound_wav_header(int32_t rate, int64_t n_samples, uint8_t *out) {
    bool known = n_samples >= 0; // else the largest size, as other programs write into pipes
    uint32_t n_bytes = known ? 2 * (uint32_t)n_samples : UINT32_MAX;
    if (!out) return;
    memcpy(out, "RIFF....WAVEfmt ....................data....", TERN_WAV_HEADER_BYTES);
    put_little(out + 4, known ? n_bytes + TERN_WAV_HEADER_BYTES - 8 : UINT32_MAX, 4);
    put_little(out + 16, 16, 4); // bytes of this chunk
    put_little(out + 20, 1, 2);  // PCM
    put_little(out + 22, 1, 2);  // channels
    put_little(out + 24, (uint32_t)rate, 4);
    put_little(out + 28, 2 * (uint32_t)rate, 4);
    put_little(out + 32, 2, 2);  // bytes of a sample
    put_little(out + 34, 16, 2); // bits
    put_little(out + 40, n_bytes, 4);
}

void tern_sound_pcm16(const float *samples, size_t n, uint8_t *out) {
    if (!samples || !out) return;
    for (size_t i = 0; i < n; i++) {
        float x = samples[i];
        x = x > 1 ? 1 : x >= -1 ? x : x < -1 ? -1 : 0; // NaN becomes silence
        put_little(out + 2 * i, (uint32_t)(int32_t)lrintf(x * 32767), 2);
    }
}

// The kind of file, by its name.
static const char *kind_of(const char *path) {
    static const char *const kinds[] = {"flac", "mp3", "ogg", "opus"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(dot + 1, kinds[i]) == 0) return kinds[i];
    return "wav";
}

static tern_status check_writable(const tern_sound *sound, tern_error *err) {
    TERN_TRY(check_rate(sound->rate, err));
    if (sound->n < 0 || sound->n > (INT32_MAX - TERN_WAV_HEADER_BYTES) / 2)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%lld samples: a file holds at most %d",
                         (long long)sound->n, (INT32_MAX - TERN_WAV_HEADER_BYTES) / 2);
    return TERN_OK;
}

static tern_status pack_wav(const tern_sound *sound, uint8_t **out, size_t *n, tern_error *err) {
    *n = TERN_WAV_HEADER_BYTES + 2 * (size_t)sound->n;
    *out = tern_alloc(TERN_MEM_MISC, *n);
    if (!*out) return tern_fail_memory(err, *n);
    tern_sound_wav_header(sound->rate, sound->n, *out);
    tern_sound_pcm16(sound->samples, (size_t)sound->n, *out + TERN_WAV_HEADER_BYTES);
    return TERN_OK;
}

tern_status tern_sound_encode(const tern_sound *sound, const char *kind, tern_bytes_fn on_bytes,
                              void *user, tern_error *err) {
    tern_clear(err);
    uint8_t *bytes = NULL;
    size_t n = 0;
    TERN_NEED(sound);
    TERN_NEED(kind);
    TERN_NEED(on_bytes);
    TERN_TRY(check_writable(sound, err));
    TERN_TRY(strcmp(kind, "wav") == 0 ? pack_wav(sound, &bytes, &n, err)
                                      : tern_sound_pack(sound, kind, &bytes, &n, err));
    bool goes_on = on_bytes(user, bytes, n);
    tern_free(bytes);
    return goes_on ? TERN_OK : tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
}

typedef struct writing {
    tern_out_file *file;
    tern_status status;
    tern_error *err;
} writing;

static bool write_bytes(void *user, const void *bytes, size_t n) {
    writing *w = user;
    w->status = tern_out_write(w->file, bytes, n, w->err);
    return w->status == TERN_OK;
}

tern_status tern_sound_write(const tern_sound *sound, const char *path, tern_error *err) {
    tern_clear(err);
    tern_out_set set = {0};
    tern_out_file file = {0};
    writing w = {.file = &file, .err = err};
    tern_error stopped;
    TERN_NEED(sound);
    TERN_NEED(path);
    TERN_TRY(check_writable(sound, err));
    tern_status status = tern_out_open_file(&set, path, err);
    if (status == TERN_OK) status = tern_out_begin(&set, NULL, &file, err);
    if (status == TERN_OK) {
        status = tern_sound_encode(sound, kind_of(path), write_bytes, &w, &stopped);
        if (status != TERN_OK && w.status == TERN_OK && err) *err = stopped;
        if (w.status != TERN_OK) status = w.status;
    }
    if (status == TERN_OK) status = tern_out_end(&file, err);
    if (status == TERN_OK) status = tern_out_commit(&set, NULL, err);
    tern_out_drop(&file);
    tern_out_close(&set);
    return status;
}
