// tern: images. Files are read into pixels; models classify images, turn them into vectors, and
// read them within texts (docs/images.md).
//
//     tern_model *model;
//     tern_image image;
//     tern_classify_hit hits[5];
//     tern_classify_params params = {0};
//     tern_error err = {0};
//     params.n_hits = 5;
//     if (tern_model_open(&model, "vit-base-patch16-224", NULL, &err) == TERN_OK &&
//         tern_image_open(&image, "photo.jpg", NULL, &err) == TERN_OK &&
//         tern_classify(model, &image, 1, &params, hits, &err) == TERN_OK)
//         puts(hits[0].label);
//
// The rules at the top of tern.h hold here, too.
#ifndef TERN_IMAGE_H
#define TERN_IMAGE_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Images ------------------------------------------------------------------------------------

// Pixels as a screen shows them: rows from the top, three bytes per pixel: red, green, blue.
typedef struct tern_image {
    int32_t width, height;
    uint8_t *rgb; // [height, width, 3]
} tern_image;

typedef struct tern_image_desc {
    // Larger images are refused before decoding, since a small file can hold a huge one; 0:
    // 89,478,485, a quarter of a gigabyte.
    int64_t n_pixels_max;
    // Cameras store an image in the sensor's orientation; its EXIF data say how to turn it. true:
    // keep the stored orientation.
    bool as_stored;
} tern_image_desc;

// Reads a JPEG, PNG, WebP or GIF, whatever the file's name; the first image of an animation.
// Transparency is dropped: transparent pixels get the colours that the file stores for them. Grey,
// palettes, CMYK and 16 bits become RGB of 8 bits; colour profiles are not applied. desc NULL: the
// defaults. Several threads may call. TERN_ERR_UNSUPPORTED: another kind of file, or a build
// without the libraries for these formats; TERN_ERR_FORMAT: a damaged file, or too large an image.
TERN_API tern_status tern_image_open(tern_image *out, const char *path, const tern_image_desc *desc,
                                     tern_error *err);
// The same from a file's bytes.
TERN_API tern_status tern_image_open_bytes(tern_image *out, const void *bytes, size_t n_bytes,
                                           const tern_image_desc *desc, tern_error *err);
// A black image, to be filled in.
TERN_API tern_status tern_image_create(tern_image *out, int32_t width, int32_t height,
                                       tern_error *err);
TERN_API void tern_image_close(tern_image *image); // NULL or a zeroed struct is allowed

typedef enum tern_image_filter {
    TERN_IMAGE_BICUBIC, // with the parameter -0.5
    TERN_IMAGE_BILINEAR,
} tern_image_filter;

// Resizes, bit-identical to Pillow's resize: when shrinking, the filter covers all pixels that
// become one (antialiasing); first horizontally, then vertically, rounded to 8 bits after each.
TERN_API tern_status tern_image_resize(tern_image *out, const tern_image *image, int32_t width,
                                       int32_t height, tern_image_filter filter, tern_error *err);

// ---- Images in texts ---------------------------------------------------------------------------

// tern_image_tokens (tern.h) is what a vision-language model computes from an image. In a prompt it
// is a run of ids above the vocabulary, so any function that takes ids takes it; equal images get
// equal ids and share cached states, others do not. A message has them as its images.

typedef struct tern_image_tokens_params {
    int64_t n_pixels_max; // larger images are scaled down to this; 0: 1,048,576, or the limit in
                          // the model's files if it is lower, or if the model cuts large images
                          // into squares, which count together
} tern_image_tokens_params;

// Computes an image's tokens, after resizing it as the model's files say; takes 0.1 to a few
// seconds on a CPU. n_images: 1, or 2 for two frames of a video, which become one image. The same
// pixels give the same tokens again, without computing them. Waits for the device. Any number of
// threads may call with one model. The tokens may be closed while sessions use them: these keep
// what they need. TERN_ERR_UNSUPPORTED: the model reads only text.
TERN_API tern_status tern_image_tokens_open(tern_image_tokens **out, tern_model *model,
                                            const tern_image *images, size_t n_images,
                                            const tern_image_tokens_params *params,
                                            tern_error *err);
// The same in steps: opening resizes the images, which may be closed then, and each poll computes a
// piece, or looks whether a GPU has done so, until *out is not NULL. Whoever generates text with
// the model meanwhile waits for one piece at most. Closing cancels. One thread at a time.
typedef struct tern_image_encoder tern_image_encoder;
TERN_API tern_status tern_image_encoder_open(tern_image_encoder **out, tern_model *model,
                                             const tern_image *images, size_t n_images,
                                             const tern_image_tokens_params *params,
                                             tern_error *err);
TERN_API tern_status tern_image_encoder_poll(tern_image_encoder *encoder, tern_image_tokens **out,
                                             tern_error *err);
TERN_API void tern_image_encoder_close(tern_image_encoder *encoder); // NULL is allowed
TERN_API void tern_image_tokens_close(tern_image_tokens *image);     // NULL is allowed
// The image's ids, to be put into a prompt between the tokens that the chat template writes around
// an image; valid until the image is closed. *n_ids: one for each square of (usually) 32 x 32
// pixels, plus the tokens that the model adds to an image (LFM2-VL, Gemma 3).
TERN_API const int32_t *tern_image_tokens_ids(const tern_image_tokens *image, size_t *n_ids);

// Puts the images' tokens at the prompt's placeholders (<|image_pad|> for Qwen, <image> for
// LFM2-VL, <start_of_image> for Gemma 3), in order. TERN_ERR_ARGUMENT: the prompt does not have
// n_images placeholders.
TERN_API tern_status tern_image_tokens_place(const tern_model *model, const tern_ids *prompt,
                                             tern_image_tokens *const *images, size_t n_images,
                                             tern_ids *out, tern_error *err);

// ---- What images show --------------------------------------------------------------------------

typedef struct tern_classify_hit {
    int32_t label_id;
    float score;       // the model's raw score, before softmax
    float probability; // among all labels
    const char *label; // from the model's files, else "label 7"; lives as long as the model
} tern_classify_hit;

typedef struct tern_classify_params {
    int32_t n_hits; // per image, at most the model's number of labels; 0: 5
    float *scores;  // NULL, or [n_images, labels]
    tern_progress_fn on_progress;
    void *user;
} tern_classify_params;

// Classifies images, which are resized, cropped and normalized as the model's files say; hits
// [n_images, n_hits], best first. An image's numbers do not depend on the other images. Any number
// of threads may call with one model. TERN_ERR_UNSUPPORTED: the model does not classify images.
TERN_API tern_status tern_classify(tern_model *model, const tern_image *images, size_t n_images,
                                   const tern_classify_params *params, tern_classify_hit *hits,
                                   tern_error *err);

// The name of a label, as in tern_classify_hit; NULL: there is no such label.
TERN_API const char *tern_model_label(const tern_model *model, int32_t label_id);

// One vector of length 1 for each image, out [n_images, n_dims]: the first row of the model's last
// layer. Like tern_embed for texts.
TERN_API tern_status tern_embed_images(tern_model *model, const tern_image *images, size_t n_images,
                                       float *out, tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
