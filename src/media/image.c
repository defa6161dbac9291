// Images: chooses a file's decoder, and applies the orientation.
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/file/blob.h"
#include "media/image_pause.h"
#include "media/media.h"

#define PIXELS_MAX 89478485 // beyond that Pillow, too, suspects a decompression bomb
#define SIDE_MAX   1000000

// ---- Pixels ------------------------------------------------------------------------------------

void tern_image_close(tern_image *image) {
    if (!image) return;
    tern_free(image->rgb);
    *image = (tern_image){0};
}

tern_status tern_image_create(tern_image *out, int32_t width, int32_t height, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = (tern_image){0};
    if (width < 1 || height < 1 || width > SIDE_MAX || height > SIDE_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "an image of %d x %d: expected 1 to %d each",
                         (int)width, (int)height, SIDE_MAX);
    size_t n = (size_t)width * (size_t)height;
    out->rgb = tern_alloc_array(TERN_MEM_MISC, n, 3);
    if (!out->rgb) return tern_fail_memory(err, n * 3);
    out->width = width;
    out->height = height;
    return TERN_OK;
}

tern_status tern_image_room(const tern_image_file *file, uint64_t width, uint64_t height,
                            tern_image *out, tern_error *err) {
    if (width < 1 || height < 1)
        return tern_fail(err, TERN_ERR_FORMAT, "the image is empty: %llu x %llu pixels",
                         (unsigned long long)width, (unsigned long long)height);
    if (width > SIDE_MAX || height > SIDE_MAX || width * height > (uint64_t)file->n_pixels_max)
        return tern_fail(
            err, TERN_ERR_FORMAT, "the image has %llu x %llu pixels, and at most %lld are allowed",
            (unsigned long long)width, (unsigned long long)height, (long long)file->n_pixels_max);
    return tern_image_create(out, (int32_t)width, (int32_t)height, err);
}

static _Thread_local uint64_t n_pauses;

tern_status tern_image_pause(tern_error *err) {
    n_pauses++;
    return tern_check_cancelled("reading the image", err);
}

uint64_t tern_image_n_pauses(void) { return n_pauses; }

// ---- Which way up ------------------------------------------------------------------------------

// EXIF's orientations 5 to 8 exchange rows and columns; after that, some are mirrored from the
// right, some from below.
tern_status tern_image_orient(tern_image *p, int32_t orientation, tern_error *err) {
    tern_image to;
    if (orientation < 2 || orientation > 8) return TERN_OK;
    const unsigned bit = 1u << orientation;
    const unsigned from_right = 1u << 2 | 1u << 3 | 1u << 7 | 1u << 8;
    const unsigned from_below = 1u << 3 | 1u << 4 | 1u << 6 | 1u << 7;
    bool exchanged = orientation >= 5;
    TERN_TRY(tern_image_create(&to, exchanged ? p->height : p->width,
                               exchanged ? p->width : p->height, err));
    uint8_t *pixel = to.rgb;
    tern_status status = TERN_OK;
    for (int32_t y = 0; status == TERN_OK && y < to.height; y++) {
        for (int32_t x = 0; x < to.width; x++, pixel += 3) {
            int32_t u = exchanged ? y : x, v = exchanged ? x : y;
            if (from_right & bit) u = p->width - 1 - u;
            if (from_below & bit) v = p->height - 1 - v;
            memcpy(pixel, p->rgb + ((size_t)v * (size_t)p->width + (size_t)u) * 3, 3);
        }
        status = tern_image_pause(err);
    }
    if (status == TERN_OK) {
        tern_image turned = to;
        to = *p;
        *p = turned;
    }
    tern_image_close(&to);
    return status;
}

// ---- Files -------------------------------------------------------------------------------------

static bool begins(const tern_image_file *f, size_t at, const char *text) {
    size_t n = strlen(text);
    return f->n >= at + n && memcmp(f->bytes + at, text, n) == 0;
}

// Chosen by the first bytes; a file name is not reliable.
static tern_image_decoder decoder_of(const tern_image_file *f) {
    if (begins(f, 0, "\xff\xd8\xff")) return tern_image_jpeg;
    if (begins(f, 0, "\x89PNG\r\n\x1a\n")) return tern_image_png;
    if (begins(f, 0, "RIFF") && begins(f, 8, "WEBP")) return tern_image_webp;
    if (begins(f, 0, "GIF87a") || begins(f, 0, "GIF89a")) return tern_image_gif;
    return NULL;
}

static tern_status unknown(const tern_image_file *f, tern_error *err) {
    bool box = begins(f, 4, "ftyp");
    const char *what = box && begins(f, 8, "avif") ? " (it is an AVIF)"
                       : box && (begins(f, 8, "hei") || begins(f, 8, "mif1"))
                           ? " (it is a HEIC, which cameras can save as JPEG instead)"
                       : f->n == 0 ? " (it is empty)"
                                   : "";
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "this is no JPEG, PNG, WebP or GIF%s", what);
}

tern_status tern_image_open_bytes(tern_image *out, const void *bytes, size_t n_bytes,
                                  const tern_image_desc *desc, tern_error *err) {
    tern_clear(err);
    static const tern_image_desc defaults = {0};
    TERN_NEED(out);
    *out = (tern_image){0};
    TERN_NEED(bytes);
    if (!desc) desc = &defaults;
    if (desc->n_pixels_max < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "n_pixels_max is %lld",
                         (long long)desc->n_pixels_max);
    tern_image_file file = {.bytes = bytes, .n = n_bytes, .n_pixels_max = PIXELS_MAX};
    if (desc->n_pixels_max) file.n_pixels_max = desc->n_pixels_max;
    tern_image_decoder decode = decoder_of(&file);
    if (!decode) return unknown(&file, err);
    tern_status status = decode(&file, out, err);
    if (status == TERN_OK && !desc->as_stored)
        status = tern_image_orient(out, file.orientation, err);
    if (status != TERN_OK) tern_image_close(out);
    return status;
}

tern_status tern_image_open(tern_image *out, const char *path, const tern_image_desc *desc,
                            tern_error *err) {
    tern_clear(err);
    tern_blob_file *file;
    tern_blob all;
    tern_hold hold;
    TERN_NEED(out);
    *out = (tern_image){0};
    TERN_NEED(path);
    TERN_TRY(tern_blob_open(&file, path, false, &all, err));
    tern_status status = tern_blob_hold(&all, &hold, err);
    if (status == TERN_OK) {
        status = tern_image_open_bytes(out, hold.data ? hold.data : "", (size_t)all.n, desc, err);
        if (status != TERN_OK) status = tern_fail_prefix(err, status, path);
        tern_blob_release(&hold);
    }
    tern_blob_close(file);
    return status;
}
