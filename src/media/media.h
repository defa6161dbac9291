// Decodes media files: images to pixels, and sounds to samples (sound.h). Libraries do the
// decoding; here are the limits, the order of steps, and the computations whose bits must be the
// same everywhere.
#ifndef TERN_MEDIA_MEDIA_H
#define TERN_MEDIA_MEDIA_H

#include "base/status.h"
#include "base/strbuf.h"
#include "tern_image.h"
#include "media/sound.h"

// ---- Decoders (image_jpeg.c and so on) --------------------------------------------------------

typedef struct tern_image_file {
    const uint8_t *bytes;
    size_t n;
    int64_t n_pixels_max;
    int32_t orientation; // output: 1 to 8 as in EXIF, 0: not given
} tern_image_file;

typedef tern_status (*tern_image_decoder)(tern_image_file *file, tern_image *out, tern_error *err);
tern_status tern_image_jpeg(tern_image_file *file, tern_image *out, tern_error *err);
tern_status tern_image_png(tern_image_file *file, tern_image *out, tern_error *err);
tern_status tern_image_webp(tern_image_file *file, tern_image *out, tern_error *err);
tern_status tern_image_gif(tern_image_file *file, tern_image *out, tern_error *err);
// Allocates an image of this size, if the size is valid and not too large.
tern_status tern_image_room(const tern_image_file *file, uint64_t width, uint64_t height,
                            tern_image *out, tern_error *err);

// The orientation in EXIF data (from TIFF's header on); 0: none.
int32_t tern_exif_orientation(const uint8_t *exif, size_t n);
// Turns and mirrors the image by its orientation.
tern_status tern_image_orient(tern_image *image, int32_t orientation, tern_error *err);

#endif
