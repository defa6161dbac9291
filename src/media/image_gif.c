// The first image of a GIF, by giflib, on the background of the canvas.
#include <gif_lib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "media/image_pause.h"
#include "media/media.h"

typedef struct source {
    const uint8_t *bytes;
    size_t n, at;
} source;

static int read_some(GifFileType *gif, GifByteType *to, int n) {
    source *s = gif->UserData;
    size_t left = s->n - s->at, count = (size_t)n < left ? (size_t)n : left;
    memcpy(to, s->bytes + s->at, count);
    s->at += count;
    return (int)count;
}

static tern_status damaged(const GifFileType *gif, tern_error *err) {
    const char *why = gif ? GifErrorString(gif->Error) : NULL;
    return tern_fail(err, TERN_ERR_FORMAT, "the GIF is damaged%s%s", why ? ": " : "",
                     why ? why : "");
}

static void color(const ColorMapObject *map, int index, uint8_t *to) {
    if (!map || index >= map->ColorCount) return; // black, as the image is
    const GifColorType *c = &map->Colors[index];
    to[0] = c->Red;
    to[1] = c->Green;
    to[2] = c->Blue;
}

static void fill(const GifFileType *gif, tern_image *out) {
    size_t n = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; i < n; i++) color(gif->SColorMap, gif->SBackGroundColor, out->rgb + 3 * i);
}

// Rows of an interlaced image come in four passes.
static tern_status read_rows(GifFileType *gif, tern_image *out, uint8_t *row, tern_error *err) {
    static const int firsts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
    const GifImageDesc *d = &gif->Image;
    const ColorMapObject *map = d->ColorMap ? d->ColorMap : gif->SColorMap;
    for (int pass = 0; pass < (d->Interlace ? 4 : 1); pass++) {
        int step = d->Interlace ? steps[pass] : 1;
        for (int y = d->Interlace ? firsts[pass] : 0; y < d->Height; y += step) {
            TERN_TRY(tern_image_pause(err));
            if (DGifGetLine(gif, row, d->Width) != GIF_OK) return damaged(gif, err);
            if (y >= out->height - d->Top) continue;
            size_t at = ((size_t)(d->Top + y) * (size_t)out->width + (size_t)d->Left) * 3;
            for (int x = 0; x < d->Width && x < out->width - d->Left; x++)
                color(map, row[x], out->rgb + at + 3 * (size_t)x);
        }
    }
    return TERN_OK;
}

static tern_status read_first(GifFileType *gif, const tern_image_file *f, tern_image *out,
                              tern_error *err) {
    const GifImageDesc *d = &gif->Image;
    if (DGifGetImageDesc(gif) != GIF_OK) return damaged(gif, err);
    if (d->Left < 0 || d->Top < 0 || d->Width < 1 || d->Height < 1) return damaged(NULL, err);
    bool sized = gif->SWidth > 0 && gif->SHeight > 0; // a few files have no canvas size
    TERN_TRY(tern_image_room(f, (uint64_t)(sized ? gif->SWidth : d->Left + d->Width),
                             (uint64_t)(sized ? gif->SHeight : d->Top + d->Height), out, err));
    fill(gif, out);
    uint8_t *row = tern_alloc(TERN_MEM_MISC, (size_t)d->Width);
    if (!row) return tern_fail_memory(err, (size_t)d->Width);
    tern_status status = read_rows(gif, out, row, err);
    tern_free(row);
    return status;
}

static tern_status decode(GifFileType *gif, const tern_image_file *f, tern_image *out,
                          tern_error *err) {
    GifRecordType kind;
    GifByteType *block;
    int code;
    for (;;) {
        if (DGifGetRecordType(gif, &kind) != GIF_OK) return damaged(gif, err);
        if (kind == IMAGE_DESC_RECORD_TYPE) return read_first(gif, f, out, err);
        if (kind != EXTENSION_RECORD_TYPE) return damaged(NULL, err);
        int ok = DGifGetExtension(gif, &code, &block);
        while (ok == GIF_OK && block) ok = DGifGetExtensionNext(gif, &block);
        if (ok != GIF_OK) return damaged(gif, err);
    }
}

tern_status tern_image_gif(tern_image_file *f, tern_image *out, tern_error *err) {
    TERN_TRY(TERN_LAZY_LOAD(images, err));
    source s = {.bytes = f->bytes, .n = f->n};
    int code = 0;
    GifFileType *gif = DGifOpen(&s, read_some, &code);
    if (!gif) return tern_fail(err, TERN_ERR_FORMAT, "the GIF is damaged");
    tern_status status = decode(gif, f, out, err);
    DGifCloseFile(gif, &code);
    return status;
}
