// PNG, by libpng. Colours are as stored: no gamma, no profile, and transparent pixels keep their
// colours.
#include <png.h>
#include <setjmp.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "media/image_pause.h"
#include "media/media.h"

#define SIDE_MAX  1000000
#define CHUNK_MAX (64u << 20) // bytes of a piece of metadata; pixels are not counted

// libpng reports errors by longjmp, so all state needed afterwards is here and not in local
// variables of the function that it leaves.
typedef struct reading {
    tern_image_file *file;
    tern_image *out;
    png_structp png;
    png_infop info, end;
    size_t at;
    tern_status status; // of our own code; TERN_OK: libpng's `why` counts
    tern_error *err;
    char why[128];
    jmp_buf leave;
} reading;

static void on_error(png_structp png, png_const_charp why) {
    reading *r = png_get_error_ptr(png);
    strncpy(r->why, why, sizeof r->why - 1);
    longjmp(r->leave, 1);
}

static void on_warning(png_structp png, png_const_charp why) {
    (void)png, (void)why; // about metadata, which is not read
}

static void read_some(png_structp png, png_bytep to, size_t n) {
    reading *r = png_get_io_ptr(png);
    if (n > r->file->n - r->at) png_error(png, "it ends too early");
    memcpy(to, r->file->bytes + r->at, n);
    r->at += n;
}

// Converts every kind of PNG to three bytes per pixel.
static void ask_for_rgb(reading *r) {
    png_set_expand(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_gray_to_rgb(r->png);
}

static void read_orientation(reading *r) {
    png_uint_32 n = 0;
    png_bytep exif = NULL;
    if (!png_get_eXIf_1(r->png, r->info, &n, &exif)) png_get_eXIf_1(r->png, r->end, &n, &exif);
    if (exif && n) r->file->orientation = tern_exif_orientation(exif, n);
}

static void read_pixels(reading *r) {
    png_set_user_limits(r->png, SIDE_MAX, SIDE_MAX);
    png_set_chunk_malloc_max(r->png, CHUNK_MAX);
    png_set_read_fn(r->png, r, read_some);
    png_read_info(r->png, r->info);
    ask_for_rgb(r);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    png_uint_32 width = png_get_image_width(r->png, r->info);
    png_uint_32 height = png_get_image_height(r->png, r->info);
    r->status = tern_image_room(r->file, width, height, r->out, r->err);
    if (r->status != TERN_OK) return;
    size_t stride = (size_t)width * 3;
    if (png_get_rowbytes(r->png, r->info) != stride)
        png_error(r->png, "its pixels are not colours");
    for (; passes > 0; passes--)
        for (png_uint_32 y = 0; y < height; y++) {
            r->status = tern_image_pause(r->err);
            if (r->status != TERN_OK) return;
            png_read_row(r->png, r->out->rgb + y * stride, NULL);
        }
    png_read_end(r->png, r->end);
    read_orientation(r);
}

static tern_status decode(reading *r) {
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    if (r->png) r->info = png_create_info_struct(r->png);
    if (r->png) r->end = png_create_info_struct(r->png);
    if (!r->info || !r->end) return tern_fail_memory(r->err, 0);
    if (setjmp(r->leave) == 0) {
        read_pixels(r);
        return r->status;
    }
    return tern_fail(r->err, TERN_ERR_FORMAT, "the PNG is damaged: %s", r->why);
}

tern_status tern_image_png(tern_image_file *file, tern_image *out, tern_error *err) {
    TERN_TRY(TERN_LAZY_LOAD(images, err));
    reading *r = tern_alloc(TERN_MEM_MISC, sizeof *r);
    if (!r) return tern_fail_memory(err, sizeof *r);
    r->file = file;
    r->out = out;
    r->err = err;
    tern_status status = decode(r);
    png_destroy_read_struct(&r->png, &r->info, &r->end);
    tern_free(r);
    return status;
}
