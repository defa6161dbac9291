// Replaces the image decoders if the library is built without them, as for WebAssembly, where the
// browser decodes.
#include "media/media.h"

static tern_status none(const char *kind, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this build reads no %s: it was made without libjpeg, libpng, libwebp "
                     "and giflib",
                     kind);
}

tern_status tern_image_jpeg(tern_image_file *f, tern_image *out, tern_error *err) {
    (void)f, (void)out;
    return none("JPEG", err);
}

tern_status tern_image_png(tern_image_file *f, tern_image *out, tern_error *err) {
    (void)f, (void)out;
    return none("PNG", err);
}

tern_status tern_image_webp(tern_image_file *f, tern_image *out, tern_error *err) {
    (void)f, (void)out;
    return none("WebP", err);
}

tern_status tern_image_gif(tern_image_file *f, tern_image *out, tern_error *err) {
    (void)f, (void)out;
    return none("GIF", err);
}
