// JPEG, by libjpeg-turbo: its exact inverse transform, so that pixels equal other programs'.
#include <string.h>
#include <turbojpeg.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "media/media.h"

// Limits for scans of a progressive JPEG, and for all their pixels together: ten scans are usual.
// More only cost time, and decoding cannot be stopped midway.
#define SCANS_MAX   500
#define SCANNED_MAX ((uint64_t)1 << 30)

// The EXIF data is one of the segments before the image: 0xff, a kind, a length.
static int32_t find_orientation(const tern_image_file *f) {
    for (size_t at = 2; f->n >= 4 && at < f->n - 4 && f->bytes[at] == 0xff;) {
        uint8_t kind = f->bytes[at + 1];
        if (kind == 0xff) { // padding
            at++;
            continue;
        }
        if (kind == 0xda || kind == 0xd9) return 0; // the image begins, or ends
        size_t length = (size_t)f->bytes[at + 2] << 8 | f->bytes[at + 3];
        if (length < 2 || length > f->n - at - 2) return 0;
        int32_t found = kind == 0xe1 ? tern_exif_orientation(f->bytes + at + 4, length - 2) : 0;
        if (found) return found;
        at += 2 + length;
    }
    return 0;
}

// Scan markers stand between segments, which give their length, and scan data, in which 0xff is
// followed by 0 or is a restart marker.
static uint64_t count_scans(const tern_image_file *f) {
    uint64_t n = 0;
    size_t at = 2;
    while (at + 4 <= f->n) {
        const uint8_t *mark = memchr(f->bytes + at, 0xff, f->n - at - 3);
        if (!mark) break;
        const uint8_t kind = mark[1];
        at = (size_t)(mark - f->bytes) + 1;
        if (kind == 0xd9) break;
        if (kind == 0 || kind == 0xff || kind == 1 || (kind >= 0xd0 && kind <= 0xd8)) continue;
        n += kind == 0xda;
        at += 1 + ((size_t)mark[2] << 8 | mark[3]);
    }
    return n;
}

// From CMYK, which Adobe's programs, and so all others, store inverted.
static tern_status from_inks(tjhandle tj, const tern_image_file *f, tern_image *out, int flags,
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

// Missing parts of a damaged file become grey. A file that ends early is the same to libjpeg, but
// is refused.
static tern_status decode(tjhandle tj, tern_image_file *f, tern_image *out, tern_error *err) {
    int width, height, subsampling, colors, result = -1;
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
    if (tjDecompressHeader3(tj, f->bytes, (unsigned long)f->n, &width, &height, &subsampling,
                            &colors) != 0)
        return tern_fail(err, TERN_ERR_FORMAT, "the JPEG is damaged: %s", tjGetErrorStr2(tj));
    const uint64_t n_scans = count_scans(f), n_pixels = (uint64_t)width * (uint64_t)height;
    if (n_scans > SCANS_MAX || (n_scans > 1 && n_scans * n_pixels > SCANNED_MAX))
        return tern_fail(err, TERN_ERR_FORMAT, "the JPEG has %llu scans of %d x %d pixels",
                         (unsigned long long)n_scans, width, height);
    TERN_TRY(tern_image_room(f, (uint64_t)width, (uint64_t)height, out, err));
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

tern_status tern_image_jpeg(tern_image_file *f, tern_image *out, tern_error *err) {
    TERN_TRY(TERN_LAZY_LOAD(images, err));
    tjhandle tj = tjInitDecompress();
    if (!tj) return tern_fail_memory(err, 0);
    tern_status status = decode(tj, f, out, err);
    tjDestroy(tj);
    f->orientation = find_orientation(f);
    return status;
}
