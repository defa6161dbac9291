// JPEG, by libjpeg-turbo: its exact inverse transform, so that pixels are those of other programs.
#include <string.h>
#include <turbojpeg.h>
#include "base/alloc.h"
#include "base/lazy.h"
#include "media/media.h"

#define SCANS_MAX 500 // of a progressive one; more only make a reader work

// The EXIF data is one of the segments before the picture: 0xff, a kind, a length.
static int32_t find_orientation(const tern_picture_file *f) {
    for (size_t at = 2; f->n >= 4 && at < f->n - 4 && f->bytes[at] == 0xff;) {
        uint8_t kind = f->bytes[at + 1];
        if (kind == 0xff) { // filled up
            at++;
            continue;
        }
        if (kind == 0xda || kind == 0xd9) return 0; // the picture begins, or ends
        size_t length = (size_t)f->bytes[at + 2] << 8 | f->bytes[at + 3];
        if (length < 2 || length > f->n - at - 2) return 0;
        int32_t found = kind == 0xe1 ? tern_exif_orientation(f->bytes + at + 4, length - 2) : 0;
        if (found) return found;
        at += 2 + length;
    }
    return 0;
}

// Of four inks that Adobe's programs, and so all others, store inverted.
static tern_status from_inks(tjhandle tj, const tern_picture_file *f, tern_picture *out, int flags,
                             int *result, tern_error *err) {
    size_t n = (size_t)out->width * (size_t)out->height;
    uint8_t *inks = tern_alloc_array(TERN_MEM_MISC, n, 4);
    if (!inks) return tern_fail_memory(err, n * 4);
    *result = tjDecompress2(tj, f->bytes, (unsigned long)f->n, inks, out->width, 0, out->height,
                            TJPF_CMYK, flags);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            out->rgb[3 * i + c] = (uint8_t)((inks[4 * i + c] * inks[4 * i + 3] + 127) / 255);
    tern_free(inks);
    return TERN_OK;
}

// What a damaged file lacks is grey; one that only ends early is the same thing, and refused.
static tern_status decode(tjhandle tj, tern_picture_file *f, tern_picture *out, tern_error *err) {
    int width, height, subsampling, colors, result = -1;
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
    if (tjDecompressHeader3(tj, f->bytes, (unsigned long)f->n, &width, &height, &subsampling,
                            &colors) != 0)
        return tern_fail(err, TERN_ERR_FORMAT, "the JPEG is damaged: %s", tjGetErrorStr2(tj));
    TERN_TRY(tern_picture_room(f, (uint64_t)width, (uint64_t)height, out, err));
    if (colors == TJCS_CMYK || colors == TJCS_YCCK)
        TERN_TRY(from_inks(tj, f, out, flags, &result, err));
    else
        result = tjDecompress2(tj, f->bytes, (unsigned long)f->n, out->rgb, width, 0, height,
                               TJPF_RGB, flags);
    if (result == 0) return TERN_OK;
    const char *why = tjGetErrorStr2(tj);
    bool early = strncmp(why, "Premature end", 13) == 0;
    if (tjGetErrorCode(tj) == TJERR_WARNING && !early) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "the JPEG is damaged: %s", why);
}

tern_status tern_picture_jpeg(tern_picture_file *f, tern_picture *out, tern_error *err) {
    TERN_TRY(TERN_LAZY_LOAD(pictures, err));
    tjhandle tj = tjInitDecompress();
    if (!tj) return tern_fail_memory(err, 0);
    tern_status status = decode(tj, f, out, err);
    tjDestroy(tj);
    f->orientation = find_orientation(f);
    return status;
}
