// JPEG, by libjpeg-turbo: its exact inverse transform, so that pixels equal other programs'.
#include <stdio.h> // jpeglib.h needs it

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "media/image_pause.h"
#include "media/media.h"

// Limits for scans of a progressive JPEG, and for all their pixels together: ten scans are usual.
#define SCANS_MAX   500
#define SCANNED_MAX ((uint64_t)1 << 30)

// libjpeg reports errors by longjmp, so all state needed afterwards is here and not in local
// variables of the function that it leaves.
typedef struct reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    tern_image_file *file;
    tern_image *out;
    uint8_t *inks; // a row of CMYK; NULL: the file has colours
    bool ends_early;
    tern_status status; // of our own code; TERN_OK: libjpeg's `why` counts
    tern_error *err;
    char why[JMSG_LENGTH_MAX];
    jmp_buf leave;
} reading;

static void on_error(j_common_ptr jpeg) {
    reading *r = jpeg->client_data;
    jpeg->err->format_message(jpeg, r->why);
    longjmp(r->leave, 1);
}

// Missing parts of a damaged file become grey, and a warning says so. A file that ends early is the
// same to libjpeg, but is refused.
static void on_message(j_common_ptr jpeg, int level) {
    reading *r = jpeg->client_data;
    if (level >= 0 || jpeg->err->msg_code != JWRN_JPEG_EOF || r->ends_early) return;
    r->ends_early = true;
    jpeg->err->format_message(jpeg, r->why);
}

static void print_nothing(j_common_ptr jpeg) { (void)jpeg; }

// Called for each row of blocks of each scan, and for each row of pixels.
static void on_progress(j_common_ptr jpeg) {
    reading *r = jpeg->client_data;
    r->status = tern_image_pause(r->err);
    if (r->status != TERN_OK) longjmp(r->leave, 1);
}

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

static tern_status check_scans(const reading *r) {
    const uint64_t width = r->jpeg.image_width, height = r->jpeg.image_height;
    const uint64_t n = count_scans(r->file);
    if (n <= SCANS_MAX && (n <= 1 || n * width * height <= SCANNED_MAX)) return TERN_OK;
    return tern_fail(r->err, TERN_ERR_FORMAT, "the JPEG has %llu scans of %llu x %llu pixels",
                     (unsigned long long)n, (unsigned long long)width, (unsigned long long)height);
}

// From CMYK, which Adobe's programs, and so all others, store inverted.
static void from_inks(const uint8_t *inks, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            rgb[3 * i + c] = (uint8_t)((inks[4 * i + c] * inks[4 * i + 3] + 127) / 255);
}

static tern_status make_room(reading *r) {
    const struct jpeg_decompress_struct *jpeg = &r->jpeg;
    TERN_TRY(check_scans(r));
    TERN_TRY(tern_image_room(r->file, jpeg->image_width, jpeg->image_height, r->out, r->err));
    if (jpeg->jpeg_color_space != JCS_CMYK && jpeg->jpeg_color_space != JCS_YCCK) return TERN_OK;
    r->inks = tern_alloc_array(TERN_MEM_MISC, jpeg->image_width, 4);
    return r->inks ? TERN_OK : tern_fail_memory(r->err, (size_t)jpeg->image_width * 4);
}

static void read_pixels(reading *r) {
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &r->progress;
    jpeg_mem_src(jpeg, r->file->bytes, (unsigned long)r->file->n);
    jpeg_read_header(jpeg, TRUE);
    r->status = make_room(r);
    if (r->status != TERN_OK) return;
    jpeg->out_color_space = r->inks ? JCS_CMYK : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        size_t width = jpeg->output_width;
        uint8_t *rgb = r->out->rgb + 3 * width * jpeg->output_scanline;
        uint8_t *row = r->inks ? r->inks : rgb;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (r->inks) from_inks(row, width, rgb);
    }
    jpeg_finish_decompress(jpeg);
}

static tern_status decode(reading *r) {
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->jpeg.client_data = r;
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = print_nothing;
    r->progress.progress_monitor = on_progress;
    if (setjmp(r->leave) == 0) {
        read_pixels(r);
        if (r->status == TERN_OK && !r->ends_early) return TERN_OK;
    }
    if (r->status != TERN_OK) return r->status;
    return tern_fail(r->err, TERN_ERR_FORMAT, "the JPEG is damaged: %s", r->why);
}

tern_status tern_image_jpeg(tern_image_file *f, tern_image *out, tern_error *err) {
    TERN_TRY(TERN_LAZY_LOAD(images, err));
    reading *r = tern_alloc(TERN_MEM_MISC, sizeof *r);
    if (!r) return tern_fail_memory(err, sizeof *r);
    r->file = f;
    r->out = out;
    r->err = err;
    tern_status status = decode(r);
    jpeg_destroy_decompress(&r->jpeg);
    tern_free(r->inks);
    tern_free(r);
    f->orientation = find_orientation(f);
    return status;
}
