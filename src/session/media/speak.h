// Private to src/session: what speaking needs beside a model.
#ifndef TERN_SESSION_SPEAK_H
#define TERN_SESSION_SPEAK_H

#include "tern_audio.h"

// ---- Where a long text is split ----------------------------------------------------------------

// Characters that are spoken in one piece: some fifteen seconds.
#define TERN_SPEAK_CHARACTERS 240

// Bytes of the first piece of a text, of up to n_most characters (at least 1): all of a text that
// has no more, else up to the end of the last sentence in them, or of a clause, a word, a letter.
// 0 only if n is 0.
size_t tern_speak_cut(const char *text, size_t n, size_t n_most);

// ---- tern_codec_decode in steps ----------------------------------------------------------------

// The codes must stay until they are decoded.
tern_status tern_codec_begin(tern_codec_stream *stream, const int32_t *codes, size_t n_frames,
                             tern_error *err);
// Decodes a piece; the samples are there once it is done.
tern_status tern_codec_poll(tern_codec_stream *stream, const float **samples, size_t *n_samples,
                            bool *done, tern_error *err);

#endif
