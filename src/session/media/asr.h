// Speech recognition models prepared for one caller: an encoder and a decoder with one sequence
// each. For transcribe.c (stretches of speech, and files), transcribe_windows.c, and transcriber.c
// (streamed sound).
#ifndef TERN_SESSION_ASR_H
#define TERN_SESSION_ASR_H

#include "runtime/runner.h"
#include "session/session.h"

typedef struct asr_windows asr_windows; // transcribe_windows.c

typedef struct asr_run {
    tern_model *m;
    const tern_recognizer *recognizer;
    tern_transcribe_params params; // the caller's
    double seconds_max, tokens_per_second;
    int encoder_graph;
    tern_runner encoder, decoder;
    float *input;   // rows of the encoder's input
    float *encoded; // [n_source, n_embd]
    int32_t *ids;   // [n_context] the transcript
    int32_t n_ids;
    double encoder_seconds, decoder_seconds; // computed so far
    int64_t n_read;                          // tokens, by the decoder
    asr_windows *windows;                    // NULL: it reads stretches of speech
} asr_run;

// Checks the parameters and opens; to be closed whether it fails or not.
tern_status tern_asr_open(asr_run *h, tern_model *m, const tern_transcribe_params *params,
                          tern_error *err);
void tern_asr_close(asr_run *h);

// Runs the encoder on rows of its input; only the first n numbers count. *n_rows: rows of
// `encoded`.
tern_status tern_asr_encode(asr_run *h, int64_t rows, int64_t n, int64_t *n_rows, tern_error *err);
// Feeds n tokens at `position`; with the first ones the encoder's rows are given. logits [n_vocab]
// of the last one, or NULL: *next gets the greatest.
tern_status tern_asr_decode(asr_run *h, const int32_t *ids, int32_t n, int32_t position,
                            int64_t n_rows, int32_t *next, float *logits, tern_error *err);
// Transcribes n samples, at most a window, into ids and n_ids.
tern_status tern_asr_decode_text(asr_run *h, const float *samples, int64_t n, tern_error *err);
// The text of tokens, without the space before the first word; the caller frees it.
tern_status tern_asr_text(const asr_run *h, const int32_t *ids, int32_t n, char **out,
                          tern_error *err);
// Finds the speech in a sound, in parts that are short enough for the model.
tern_status tern_asr_find_speech(const asr_run *h, const float *samples, int64_t n,
                                 tern_voice_list *out, tern_error *err);

// ---- Segments ----------------------------------------------------------------------------------

typedef struct segment_list {
    tern_transcription *out;
    size_t capacity;
} segment_list;
// Appends a segment and passes it to the caller. Does nothing if there are no tokens.
tern_status tern_asr_add(const asr_run *h, segment_list *list, double start, double end,
                         const int32_t *ids, int32_t n, tern_error *err);

// ---- Windows (transcribe_windows.c) ------------------------------------------------------------

tern_status tern_windows_open(asr_run *h, tern_error *err);
void tern_windows_close(asr_windows *w);
const char *tern_windows_language(const asr_run *h); // "": not known yet
int64_t tern_windows_rows(const asr_run *h);         // of a window's spectrogram
// write_down: one window, without times; transcribe: a whole sound.
tern_status tern_windows_write_down(asr_run *h, const float *samples, int64_t n, tern_error *err);
tern_status tern_windows_transcribe(asr_run *h, const tern_sound *sound, segment_list *out,
                                    tern_error *err);

#endif
