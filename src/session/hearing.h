// Speech recognition models prepared for one caller: an encoder and a decoder with one sequence
// each. For transcribe.c (Moonshine, and files), hear_whisper.c, and hear.c (sound that arrives bit
// by bit).
#ifndef TERN_SESSION_HEARING_H
#define TERN_SESSION_HEARING_H

#include "kernels/single.h"
#include "session/session.h"

typedef struct whisper_state whisper_state; // hear_whisper.c

typedef struct hearing {
    tern_model *m;
    tern_transcribe_params params; // the caller's
    double seconds_max, tokens_per_second;
    tern_placement *at;
    int encoder_graph;
    tern_single encoder, decoder;
    float *input;   // rows of the encoder's input
    float *encoded; // [n_source, n_embd]
    int32_t *ids;   // [n_context] what was written down
    int32_t n_ids;
    double encoder_s, decoder_s; // computed so far
    int64_t n_read;              // tokens, by the decoder
    whisper_state *whisper;      // NULL: it is Moonshine
} hearing;

// Checks the parameters and opens; to be closed whether it fails or not.
tern_status tern_hearing_open(hearing *h, tern_model *m, const tern_transcribe_params *params,
                              tern_error *err);
void tern_hearing_close(hearing *h);

// Runs the encoder on rows of its input, of which the first n numbers count; *n_rows of `encoded`.
tern_status tern_hearing_encode(hearing *h, int64_t rows, int64_t n, int64_t *n_rows,
                                tern_error *err);
// Feeds n tokens at `position`; with the first ones the encoder's rows are given. logits [n_vocab]
// of the last one, or NULL: *next gets the greatest.
tern_status tern_hearing_decode(hearing *h, const int32_t *ids, int32_t n, int32_t position,
                                int64_t n_rows, int32_t *next, float *logits, tern_error *err);
// What is said in n samples, at most a window: ids and n_ids.
tern_status tern_hearing_write_down(hearing *h, const float *samples, int64_t n, tern_error *err);
// Of tokens, without the space before the first word; the caller's to free.
tern_status tern_hearing_text(const hearing *h, const int32_t *ids, int32_t n, char **out,
                              tern_error *err);
// Where speech is in a sound, in parts that the model can take.
tern_status tern_hearing_find_speech(const hearing *h, const float *samples, int64_t n,
                                     tern_voice_list *out, tern_error *err);

// ---- Segments ----------------------------------------------------------------------------------

typedef struct hearing_list {
    tern_transcript *out;
    size_t capacity;
} hearing_list;
// Appends, and tells the caller. Nothing where there are no tokens.
tern_status tern_hearing_add(const hearing *h, hearing_list *list, double start, double end,
                             const int32_t *ids, int32_t n, tern_error *err);

// ---- Whisper (hear_whisper.c) ------------------------------------------------------------------

tern_status tern_whisper_open(hearing *h, tern_error *err);
void tern_whisper_close(whisper_state *w);
const char *tern_whisper_language(const hearing *h); // "": not known yet
// A window without times, and all of a sound.
tern_status tern_whisper_write_down(hearing *h, const float *samples, int64_t n, tern_error *err);
tern_status tern_whisper_hear(hearing *h, const tern_sound *sound, hearing_list *out,
                              tern_error *err);

#endif
