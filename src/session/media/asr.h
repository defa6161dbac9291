// Speech recognition models prepared for one caller: an encoder and a decoder with one sequence
// each. For asr.c (texts, and where speech is), transcribe.c (whole sounds), transcribe_windows.c,
// and transcriber.c (streamed sound).
//
// Everything here is begun and polled: no call computes more than one piece of a batch, or looks
// for speech in more than a second of sound.
#ifndef TERN_SESSION_ASR_H
#define TERN_SESSION_ASR_H

#include "runtime/runner.h"
#include "session/session.h"

typedef struct asr_windows asr_windows; // transcribe_windows.c

// What the batch under way is for.
typedef enum asr_stage {
    ASR_IDLE,     // no text is under way
    ASR_ENCODING, // the sound
    ASR_OPENING,  // windows: the first token, whose scores say what is spoken
    ASR_WRITING,  // the text's next token
} asr_stage;

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
    // The text under way.
    asr_stage stage;
    tern_runner *running;                // NULL: no batch is under way
    int64_t n_rows;                      // of `encoded`
    int32_t n_ids_max;                   // of the text
    int32_t fed[TERN_RECOGNIZER_PROMPT]; // the batch's tokens
    int32_t next;                        // the likeliest after them
    float *logits;                       // all scores instead, if the batch asks for them
    float greatest;                      // the likeliest's score
    // The search for speech under way.
    tern_voice_net *net; // NULL: by loudness
    float *voice;        // [n_hops]
    size_t n_hops, n_hops_known;
    tern_voice_list speech; // the last search's result
} asr_run;

// Checks the parameters and opens; to be closed whether it fails or not.
tern_status tern_asr_open(asr_run *h, tern_model *m, const tern_transcribe_params *params,
                          tern_error *err);
void tern_asr_close(asr_run *h);

// Begins to run the encoder on rows of its input; only the first n numbers count.
tern_status tern_asr_encode(asr_run *h, int64_t rows, int64_t n, tern_error *err);
// Begins to feed n tokens at `position`; with the first ones the encoder's rows are given. logits
// [n_vocab] of the last one, or NULL: `next` gets the likeliest.
tern_status tern_asr_decode(asr_run *h, const int32_t *ids, int32_t n, int32_t position,
                            float *logits, tern_error *err);
// Begins to transcribe n samples, at most a window. The samples are not needed any more.
tern_status tern_asr_begin_text(asr_run *h, const float *samples, int64_t n, tern_error *err);
// Computes a piece of it. *done: the text is in ids and n_ids.
tern_status tern_asr_poll_text(asr_run *h, bool *done, tern_error *err);
void tern_asr_stop(asr_run *h); // forgets the text under way
// Begins to find the speech in a sound, in parts that are short enough for the model.
tern_status tern_asr_begin_search(asr_run *h, const float *samples, int64_t n, tern_error *err);
// Searches a piece of the same samples. *done: `speech` has the parts.
tern_status tern_asr_poll_search(asr_run *h, const float *samples, int64_t n, bool *done,
                                 tern_error *err);
// The text of tokens, without the space before the first word; the caller frees it.
tern_status tern_asr_text(const asr_run *h, const int32_t *ids, int32_t n, char **out,
                          tern_error *err);

// ---- Segments ----------------------------------------------------------------------------------

typedef struct segment_list {
    tern_transcription *out;
    size_t capacity;
} segment_list;
// Appends a segment and passes it to the caller. Does nothing if there are no tokens.
tern_status tern_asr_add(const asr_run *h, segment_list *list, double start, double end,
                         const int32_t *ids, int32_t n, tern_error *err);

// ---- Whole sounds ------------------------------------------------------------------------------

typedef struct asr_sound {
    const float *samples; // [n]
    int64_t n;
    segment_list list;
    bool is_searched; // for speech
    size_t part;      // of the speech: the current one
    // Windows, in rows of the spectrogram.
    int64_t n_leveled; // rows whose maximum is known
    float most;        // that maximum
    int64_t at, size;  // of the current window
} asr_sound;

// Computes a piece. *done: the list has all segments.
tern_status tern_asr_poll_sound(asr_run *h, asr_sound *s, bool *done, tern_error *err);

// ---- Windows (transcribe_windows.c) ------------------------------------------------------------

tern_status tern_windows_open(asr_run *h, tern_error *err);
void tern_windows_close(asr_windows *w);
const char *tern_windows_language(const asr_run *h); // "": not known yet
int64_t tern_windows_rows(const asr_run *h);         // of a window's spectrogram
// Begins the text of one window, without times.
tern_status tern_windows_begin_text(asr_run *h, const float *samples, int64_t n, tern_error *err);
// Goes on with a text after a batch.
tern_status tern_windows_go_on(asr_run *h, tern_error *err);
tern_status tern_windows_poll_sound(asr_run *h, asr_sound *s, bool *done, tern_error *err);

#endif
