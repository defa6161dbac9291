// tern: sounds. Files are read into samples; models transcribe speech and speak texts
// (docs/sound.md).
//
//     tern_model *model;
//     tern_sound sound = {0};
//     tern_sound_desc desc = {0};
//     tern_transcription said = {0};
//     tern_error err = {0};
//     desc.rate = 16000; // the model's: tern_media_info.audio_rate
//     if (tern_model_open(&model, "moonshine-tiny", NULL, &err) == TERN_OK &&
//         tern_sound_open(&sound, "speech.wav", &desc, &err) == TERN_OK &&
//         tern_transcribe(model, &sound, NULL, &said, &err) == TERN_OK && said.n > 0)
//         puts(said.segments[0].text);
//     tern_transcription_free(&said);
//     tern_sound_close(&sound);
//
// The rules at the top of tern.h hold here, too.
#ifndef TERN_AUDIO_H
#define TERN_AUDIO_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Sounds ------------------------------------------------------------------------------------

// One channel of samples, -1 to 1.
typedef struct tern_sound {
    int32_t rate; // samples per second
    int64_t n;
    float *samples; // [n]
} tern_sound;

typedef struct tern_sound_desc {
    int32_t rate;       // the rate to resample to; 0: the file's
    double seconds_max; // longer sounds are refused before they fill memory; 0: six hours
} tern_sound_desc;

// Receives a file's bytes, piece by piece. Return false to stop: the call then fails with
// TERN_ERR_CANCELLED.
typedef bool (*tern_bytes_fn)(void *user, const void *bytes, size_t n_bytes);

// Reads a WAV, FLAC, MP3, Ogg (Vorbis, Opus) or AIFF, whatever the file's name; the channels are
// averaged into one, and resampled if desc asks for another rate. desc NULL: the defaults. Several
// threads may call. TERN_ERR_UNSUPPORTED: a build without libsndfile and libsoxr; TERN_ERR_FORMAT:
// another kind of file, or one that is damaged or too long.
TERN_API tern_status tern_sound_open(tern_sound *out, const char *path, const tern_sound_desc *desc,
                                     tern_error *err);
// The same from a file's bytes.
TERN_API tern_status tern_sound_open_bytes(tern_sound *out, const void *bytes, size_t n_bytes,
                                           const tern_sound_desc *desc, tern_error *err);
// n samples of silence, to be filled in. n may be 0.
TERN_API tern_status tern_sound_create(tern_sound *out, int32_t rate, int64_t n, tern_error *err);
TERN_API void tern_sound_close(tern_sound *sound); // NULL or a zeroed struct is allowed
// Writes 16-bit samples, clipped to -1..1. The extension chooses FLAC (.flac), MP3 (.mp3), Ogg
// Vorbis (.ogg) or Opus (.opus); anything else is WAV.
TERN_API tern_status tern_sound_write(const tern_sound *sound, const char *path, tern_error *err);
// The same as the bytes of a "wav", "flac", "mp3", "ogg" or "opus" file, passed to on_bytes in one
// piece; if that returns false, the call fails with TERN_ERR_CANCELLED. TERN_ERR_UNSUPPORTED:
// another kind, or a build without libsndfile and libsoxr (which still writes WAV). Several threads
// may call.
TERN_API tern_status tern_sound_encode(const tern_sound *sound, const char *kind,
                                       tern_bytes_fn on_bytes, void *user, tern_error *err);
// For streaming such a WAV: converts n samples to 2n bytes of 16-bit little-endian PCM; clips to
// -1..1, NaN becomes 0.
TERN_API void tern_sound_pcm16(const float *samples, size_t n, uint8_t *out);
// The WAV's header, out [TERN_WAV_HEADER_BYTES]. n_samples below 0: the length is not known yet.
#define TERN_WAV_HEADER_BYTES 44
TERN_API void tern_sound_wav_header(int32_t rate, int64_t n_samples, uint8_t *out);

// ---- What is said ------------------------------------------------------------------------------

typedef struct tern_segment {
    double start, end;  // seconds
    const char *text;   // "" if the model has no tokenizer
    const int32_t *ids; // [n_ids] the tokens, without those that begin and end a text
    int32_t n_ids;
} tern_segment;

typedef struct tern_transcription {
    tern_segment *segments; // [n], in order
    size_t n;
    double seconds;   // of the sound
    char language[8]; // the language, "en" and so on; "": the model does not detect it
    double encoder_seconds, decoder_seconds; // spent computing it
    int64_t n_read;                          // tokens that the decoder read
} tern_transcription;

typedef struct tern_transcribe_params {
    const char *vad;          // Silero VAD, an ONNX file, which finds the speech; NULL: by loudness
    bool whole;               // leave nothing out: the sound is cut only where it is too long
    double seconds_max;       // of a segment; 0: 15, which is also the maximum
    double tokens_per_second; // at most, as silence can make a model repeat itself; 0: 6.5
    // For multilingual models (Whisper). The language, "en" and so on; NULL: the model detects it
    // in the first window. translate: into English. no_fallback: do not transcribe again, with
    // other tokens, the windows that the model is unsure of.
    const char *language;
    bool translate, no_fallback;
    // Receives each segment as soon as it is complete; false stops: TERN_ERR_CANCELLED.
    bool (*on_segment)(void *user, const tern_segment *segment);
    // Only for tern_transcriber: receives a preliminary version of the current segment. NULL: none.
    bool (*on_partial)(void *user, const tern_segment *segment);
    void *user;
} tern_transcribe_params;

// Transcribes a sound. Moonshine: each stretch of speech is decoded greedily. Whisper: 30-second
// windows that the model segments itself; seconds_max and tokens_per_second are ignored, and vad
// only places the windows, unless whole is set. params NULL: the defaults. Free out with
// tern_transcription_free. Any number of threads may call with one model. TERN_ERR_UNSUPPORTED: the
// model does not transcribe; TERN_ERR_ARGUMENT: the rate is not the model's
// (tern_media_info.audio_rate).
TERN_API tern_status tern_transcribe(tern_model *model, const tern_sound *sound,
                                     const tern_transcribe_params *params, tern_transcription *out,
                                     tern_error *err);
TERN_API void tern_transcription_free(tern_transcription *transcription); // NULL is allowed

// The same in steps, for callers with other work in between: each poll computes a piece, or looks
// whether a GPU has done so. Whoever generates text with the model meanwhile waits for one piece at
// most. Closing cancels. One thread at a time.
typedef struct tern_transcriber tern_transcriber;
// For a whole sound, whose samples must stay until it is closed. params as for tern_transcribe;
// they are copied, with their strings.
TERN_API tern_status tern_transcriber_open_sound(tern_transcriber **out, tern_model *model,
                                                 const tern_sound *sound,
                                                 const tern_transcribe_params *params,
                                                 tern_error *err);
// For a sound that is still being recorded, and is fed: a partial text at most once per half second
// of it, and a segment after half a second without speech, or when speech goes on for too long
// without a pause. A segment has the text that tern_transcribe gives for its samples.
TERN_API tern_status tern_transcriber_open(tern_transcriber **out, tern_model *model,
                                           const tern_transcribe_params *params, tern_error *err);
// Adds n samples, at the model's rate; computes nothing.
TERN_API tern_status tern_transcriber_feed(tern_transcriber *transcriber, const float *samples,
                                           int64_t n, tern_error *err);
// Ends the sound that is fed: polls then pass on the last segment. When they are done a new sound
// may be fed; its times continue.
TERN_API tern_status tern_transcriber_end(tern_transcriber *transcriber, tern_error *err);
// *done: nothing more can be said of the samples so far. *out (NULL: not wanted) then has the
// transcription of a whole sound, to be freed with tern_transcription_free; that of a sound that is
// fed goes to the callbacks alone, and *out has nothing.
TERN_API tern_status tern_transcriber_poll(tern_transcriber *transcriber, tern_transcription *out,
                                           bool *done, tern_error *err);
TERN_API void tern_transcriber_close(tern_transcriber *transcriber); // NULL is allowed

// ---- Text to speech ----------------------------------------------------------------------------

typedef struct tern_speak_params {
    // The text's tokens, without the marks around it, in place of a text, which is then NULL.
    const int32_t *ids;
    size_t n_ids;
    // Written before the text with ": ": a voice for a model with named voices ("andrew"), or a
    // language for a multilingual one ("en_us"). NULL: nothing.
    const char *voice;
    // A vector that describes a voice; NULL: any voice.
    const float *speaker;
    size_t n_speaker;
    float temperature;    // 0: the makers' (1; first version: 0.6); below 0: greedy
    float top_p;          // 0: 0.95
    float repeat_penalty; // over all codes so far; 0: 1.1
    uint64_t seed;        // 0: a new one each time
    double speed;         // 0: 1; 0.25 to 4 times as fast at the same pitch
    // For the whole sound. 0: 60 for each piece of the text (first version: 24), or fewer if the
    // model's context holds fewer.
    double seconds_max;
    // Receives samples as soon as they are computed, valid during the call; false:
    // TERN_ERR_CANCELLED.
    bool (*on_samples)(void *user, const float *samples, size_t n_samples);
    // Receives the codes of each frame, before its samples. NULL: none.
    bool (*on_codes)(void *user, const int32_t *codes, size_t n_codes);
    void *user;
} tern_speak_params;

typedef struct tern_speak_stats {
    int32_t rate; // samples per second
    int64_t n_frames;
    double seconds;                      // of sound
    double model_seconds, codec_seconds; // spent computing it
    double first_seconds;                // until the first samples
    bool is_cut;                         // a limit ended it, not the model
} tern_speak_stats;

// Speaks a text: `model` (Kani-TTS) turns it into codes, and `codec` (NanoCodec) turns these into
// sound, in pieces while more are generated. A text of more than 240 characters is split after
// sentences. Any number of threads may call with one pair. stats may be NULL. TERN_ERR_UNSUPPORTED:
// `model` is not a TTS model, or `codec` cannot decode its codes.
TERN_API tern_status tern_speak(tern_model *model, tern_model *codec, const char *text,
                                const tern_speak_params *params, tern_speak_stats *stats,
                                tern_error *err);

// The same in steps, for callers with other work in between, as with tern_transcriber.
typedef struct tern_speech tern_speech;
// params as for tern_speak, with on_samples ignored. ids, voice and speaker are read only during
// this call.
TERN_API tern_status tern_speech_open(tern_speech **out, tern_model *model, tern_model *codec,
                                      const char *text, const tern_speak_params *params,
                                      tern_error *err);
// Computes a piece of the prompt, of a frame's next code or of the sound of pending frames, or
// looks whether a GPU has done so. Most polls give no samples (*n_samples is 0). Samples are valid
// until the next call. *done: nothing follows. One thread at a time.
TERN_API tern_status tern_speech_poll(tern_speech *speech, const float **samples, size_t *n_samples,
                                      bool *done, tern_error *err);
// As of the last poll.
TERN_API void tern_speech_get_stats(const tern_speech *speech, tern_speak_stats *stats);
TERN_API void tern_speech_close(tern_speech *speech); // NULL is allowed

// ---- Codes to sound ----------------------------------------------------------------------------

// A codec's decoder (NanoCodec): frames of a few codes each become samples.
//
// A sound decoded piece by piece. One thread at a time.
typedef struct tern_codec_stream tern_codec_stream;
TERN_API tern_status tern_codec_open(tern_codec_stream **out, tern_model *codec, tern_error *err);
TERN_API void tern_codec_close(tern_codec_stream *stream); // NULL is allowed
// Decodes the next frames, codes [n_frames, n_codes], into samples between -1 and 1, valid until
// the next call. However the frames are split into calls, the samples are the same to the bit.
TERN_API tern_status tern_codec_decode(tern_codec_stream *stream, const int32_t *codes,
                                       size_t n_frames, const float **samples, size_t *n_samples,
                                       tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
