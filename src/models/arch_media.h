// What a family sees, hears or says with: const tables of pure functions over ids and scores, in
// the family's own file. They have no memory and no device; session/ drives them and names no
// family. Included by models.h.
#ifndef TERN_MODELS_ARCH_MEDIA_H
#define TERN_MODELS_ARCH_MEDIA_H

#include "models/models.h"

// ---- Towers: images in texts (vision.c) --------------------------------------------------------

// A kind of tower, and the names of its parts in files. Numbers are int64_t members of tern_vision.
typedef struct tern_tower_size { // ends with one without names
    const char *gguf, *hf;       // a key after "clip.vision."; a member of config.json, NULL: none
    int64_t most, usual;         // usual: the default; 0: required
    size_t offset;
} tern_tower_size;
typedef struct tern_tower_token {    // the first is an image's; ends with one without a text
    const char *hf, *hf_also, *text; // members of config.json, the name in the vocabulary
    size_t offset;
} tern_tower_token;
typedef struct tern_tower {
    const char *projector; // llama.cpp's name for it
    const tern_tower_size *sizes;
    const tern_tower_token *tokens;
    const char *hf_places; // config.json: how many positions the grid has
    int64_t n_frames;      // of a patch
    bool turns;            // RoPE by row and column
    bool apart;            // queries, keys and values have separate matrices
    bool tiles;            // large images are cut into tiles, which include the tokens around them
    bool widens; // if an image has fewer patches than the position grid, a patch gets the mean of
                 // the grid cells it covers
    // For a tower with `tiles`: the text before a tile, into out [size]; before the whole, and
    // before an image that was not cut (NULL: none).
    void (*tile)(size_t row, size_t column, char *out, size_t size);
    const char *whole, *uncut;
    bool joined; // files of llama.cpp keep a patch's frames in separate tensors, and also queries,
                 // keys and values, perhaps: here they are one
    bool one_size; // the tower sees squares of the position grid's size: every image is resized to
                   // one, or, with `tiles`, cut into as many as its longer edge is allowed
    const char *before, *after; // texts around an image's rows, included with it; NULL: none
    bool both_ways;             // in a text, an image's rows attend to all of the image, also ahead
    tern_status (*read)(const tern_config_source *s, const tern_config *c, tern_vision *v,
                        tern_error *err);                            // the rest of the config
    tern_status (*write)(tern_gguf_writer *w, const tern_vision *v); // likewise; NULL: nothing
    // What names of the text's tensors begin with in a folder with the tower; NULL:
    // "model.language_model.".
    const char *hf_text;
    // Members of a folder's config.json, and of its vision_config, each after a comma.
    void (*write_json)(const tern_vision *v, tern_strbuf *top, tern_strbuf *vision);
} tern_tower;

// Names in the folder of an architecture with its tower: model_type and architectures, the types of
// both parts, image_processor_type.
typedef struct tern_seeing_names {
    const char *type, *class_name, *text_type, *vision_type, *processor;
} tern_seeing_names;

// ---- Recognizers: speech to text ---------------------------------------------------------------

// The text of a window so far.
typedef struct tern_recognition {
    const tern_config *config;
    bool with_times, translates;
    int32_t language; // index among the recognizer's; -1: not known yet
    const int32_t *ids;
    int32_t n_ids;
} tern_recognition;

// Ids first .. end - 1 of a window's text, in seconds from its beginning.
typedef struct tern_recognition_segment {
    int32_t first, end;
    double start, stop;
} tern_recognition_segment;

// When a window's text is doubtful, and decoded again with sampled tokens.
typedef struct tern_recognition_doubts {
    double unsure;    // below this mean log-probability of its tokens
    double repeated;  // above this many tokens, relative to those without repetitions
    double no_speech; // above this probability that there is none, if it is unsure, too: silence
    double hotter;    // by this the temperature rises
    int32_t n_more;   // times
} tern_recognition_doubts;

// The simplest reads stretches of speech, each alone, and says the likeliest tokens. One with
// `allow` reads windows of the same length, and segments them itself.
typedef struct tern_recognizer {
    double (*window)(const tern_config *c); // seconds that it reads at most, or always
    int64_t (*bins)(const tern_config *c);  // of a spectrogram's row; NULL: it reads samples
    bool whole_frames;                      // of samples: an incomplete one counts as silence

    // The rest only with `allow`, which gives minus infinity to the tokens that may not follow.
    void (*allow)(const tern_recognition *r, float *logits);
    // The tokens after the first one. Returns how many, at most TERN_RECOGNIZER_PROMPT.
    int32_t (*prompt)(const tern_recognition *r, int32_t *out);
    // The language of an index, NULL: no more; the token of the first, whose others follow; that
    // for no speech.
    const char *(*language)(const tern_config *c, int32_t index);
    int32_t (*first_language)(const tern_config *c);
    int32_t (*silence)(const tern_config *c);
    bool (*translates)(const tern_config *c);
    bool (*is_text)(const tern_config *c, int32_t id); // else it is a mark
    // The segments of a window's text, of `rows` rows of its spectrogram. Returns how many, at most
    // n_ids; *next_window: rows before the next window.
    int32_t (*segments)(const tern_recognition *r, int64_t rows, tern_recognition_segment *out,
                        int64_t *next_window);
    tern_recognition_doubts doubts;
} tern_recognizer;
#define TERN_RECOGNIZER_PROMPT 4
#define TERN_RECOGNIZER_ROW    0.01 // seconds of a spectrogram's row

// ---- Speakers: text to codes -------------------------------------------------------------------

// A text-to-speech language model: after the text tokens, the vocabulary has marks and then codes
// of a codec's frames.
typedef struct tern_speaking {
    int64_t n_text;               // tokens of text; the marks follow
    int64_t n_codes;              // of a frame
    int64_t n_values;             // of a code
    int64_t n_speaker;            // size of a voice's vector; 0: it takes none
    bool frames_are_places;       // the tokens of a frame share a RoPE position
    double rate_least, rate_most; // bounds of the layers' learned RoPE rates; 0: none learned
} tern_speaking;

#define TERN_SPEAKER_MARKS 8
#define TERN_SPEAKER_ENDS  2
typedef struct tern_speaker {
    // What the config says of it; NULL: this model does not speak.
    const tern_speaking *(*of)(const tern_config *c);
    // Tokens before a text (the voice's row comes after the first), and those after it.
    // Each returns how many, at most TERN_SPEAKER_MARKS.
    int32_t (*before)(const tern_speaking *v, int32_t *out);
    int32_t (*after)(const tern_speaking *v, int32_t *out);
    int32_t (*frame)(const tern_speaking *v, int32_t code); // the first of its n_values ids
    // Tokens that may come instead of a frame. Returns how many, at most TERN_SPEAKER_ENDS.
    int32_t (*ends)(const tern_speaking *v, int32_t *out);
    // What is usual: seconds of a piece at most, and how codes are sampled.
    double (*seconds)(const tern_speaking *v);
    float (*temperature)(const tern_speaking *v);
    float top_p, repeat_penalty;
} tern_speaker;

// ---- Codecs: codes to sound --------------------------------------------------------------------

typedef struct tern_codec {
    int32_t n_codes; // of a frame
    int64_t rate;    // samples a second
    int64_t n_frame; // samples of a frame
} tern_codec;

// ---- All ---------------------------------------------------------------------------------------

typedef struct tern_arch_media {
    const tern_tower *tower;                   // NULL: it sees nothing
    const tern_recognizer *recognizer;         // NULL: it recognizes no speech
    const tern_speaker *speaker;               // NULL: it does not speak
    tern_codec (*codec)(const tern_config *c); // NULL: it is none
} tern_arch_media;

#endif
