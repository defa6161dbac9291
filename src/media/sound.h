// Sounds: decodes files into samples, and finds speech in them.
#ifndef TERN_MEDIA_SOUND_H
#define TERN_MEDIA_SOUND_H

#include "base/status.h"
#include "tern_audio.h"

#define TERN_RATE_LEAST  1000
#define TERN_RATE_MOST   768000
#define TERN_SECONDS_MAX (6 * 3600)

// Reads a file's bytes with the libraries (sound_file.c, or sound_none.c).
tern_status tern_sound_decode(tern_sound *out, const void *bytes, size_t n_bytes, int32_t rate,
                              double seconds_max, tern_error *err);
// Encodes into a kind other than WAV; the caller frees the bytes.
tern_status tern_sound_pack(const tern_sound *sound, const char *kind, uint8_t **out, size_t *n,
                            tern_error *err);
// Appends samples; false: out of memory.
bool tern_sound_append(tern_sound *sound, size_t *capacity, const float *samples, size_t n);

// A part of a sound, in samples.
typedef struct tern_voice_span {
    int64_t first, end;
} tern_voice_span;

typedef struct tern_voice_list { // zero-initialise; freed with tern_voice_free
    tern_voice_span *spans;
    size_t n, capacity;
} tern_voice_list;

// How likely each hop of TERN_VOICE_HOP samples at 16 kHz is speech, 0 to 1.
#define TERN_VOICE_RATE 16000
#define TERN_VOICE_HOP  512
// By loudness alone: hops that are louder than the recording's background.
tern_status tern_voice_by_loudness(const float *samples, int64_t n, float **out, size_t *n_hops,
                                   tern_error *err);
// By Silero VAD's network in an ONNX file, which gets the hops of a sound in order. The last hop
// may have fewer samples (n).
typedef struct tern_voice_net tern_voice_net;
tern_status tern_voice_net_open(tern_voice_net **out, const char *path, tern_error *err);
void tern_voice_net_close(tern_voice_net *net); // NULL is allowed
void tern_voice_net_begin(tern_voice_net *net); // another sound
float tern_voice_net_next(tern_voice_net *net, const float *samples, int64_t n);
// Spans of speech of at most n_most samples each, with a margin before and after. A longer one is
// cut at its quietest place near the end.
tern_status tern_voice_spans(const float *samples, int64_t n, const float *voice, size_t n_hops,
                             int64_t n_most, tern_voice_list *out, tern_error *err);
void tern_voice_free(tern_voice_list *speech);

// ---- Spectrograms (mel.c) ----------------------------------------------------------------------
//
// Whisper's: 100 rows per second of log-mel energies, as in transformers, from samples at 16 kHz.
#define TERN_MEL_HOP 160
typedef struct tern_mel tern_mel;
tern_status tern_mel_open(tern_mel **out, int32_t n_bins, tern_error *err);
void tern_mel_close(tern_mel *mel); // NULL is allowed
// Row `first` and those after it, [n_rows, n_bins], of a sound followed by silence. Logarithms
// only: tern_mel_level makes them the model's input once the greatest is known.
void tern_mel_rows(tern_mel *mel, const float *samples, int64_t n, int64_t first, int64_t n_rows,
                   float *out);
// Limits values to at least `most` - 8, then scales all to near 0.
void tern_mel_level(float *x, size_t n, float most);
const float *tern_mel_filters(const tern_mel *mel); // [n_bins, 201], for tests

// Makes a sound in pieces faster or slower (0.25 to 4) at the same pitch. The result of a piece is
// valid until the next call; the results together have the number of input samples divided by the
// speed.
typedef struct tern_stretch tern_stretch;
tern_status tern_stretch_open(tern_stretch **out, int32_t rate, double speed, tern_error *err);
void tern_stretch_close(tern_stretch *s); // NULL is allowed
tern_status tern_stretch_push(tern_stretch *s, const float *samples, size_t n, bool last,
                              const float **out, size_t *n_out, tern_error *err);

#endif
