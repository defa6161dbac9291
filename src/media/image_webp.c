// WebP, by libwebp; for an animation the first frame, on black if it is smaller than the canvas.
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>
#include "base/alloc.h"
#include "base/os/lazy.h"
#include "media/image_pause.h"
#include "media/media.h"

static tern_status damaged(tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "the WebP is damaged");
}

// The decoder gets more and more of the bytes, and takes what it can. A lossless image's head may
// be read anew with each piece, so there are not many.
#define PIECES 32
static tern_status decode_pieces(WebPIDecoder *webp, const WebPData *data, tern_error *err) {
    VP8StatusCode status = VP8_STATUS_SUSPENDED;
    for (size_t i = 1; status == VP8_STATUS_SUSPENDED && i <= PIECES; i++) {
        size_t n = i < PIECES ? data->size / PIECES * i : data->size;
        TERN_TRY(tern_image_pause(err));
        status = WebPIUpdate(webp, data->bytes, n);
        if (status == VP8_STATUS_NOT_ENOUGH_DATA) status = VP8_STATUS_SUSPENDED;
    }
    return status == VP8_STATUS_OK ? TERN_OK : damaged(err);
}

static tern_status decode_frame(const WebPIterator *frame, tern_image *out, tern_error *err) {
    int stride = out->width * 3, x = frame->x_offset, y = frame->y_offset;
    if (x < 0 || y < 0 || frame->width > out->width - x || frame->height > out->height - y)
        return damaged(err);
    size_t at = (size_t)y * (size_t)stride + (size_t)x * 3;
    size_t n = (size_t)out->height * (size_t)stride - at;
    WebPIDecoder *webp = WebPINewRGB(MODE_RGB, out->rgb + at, n, stride);
    if (!webp) return tern_fail_memory(err, n);
    tern_status status = decode_pieces(webp, &frame->fragment, err);
    WebPIDelete(webp);
    return status == TERN_OK && !frame->complete ? damaged(err) : status;
}

tern_status tern_image_webp(tern_image_file *f, tern_image *out, tern_error *err) {
    TERN_TRY(TERN_LAZY_LOAD(images, err));
    const WebPData data = {f->bytes, f->n};
    WebPDemuxer *webp = WebPDemux(&data);
    WebPIterator frame;
    WebPChunkIterator exif;
    if (!webp) return damaged(err);
    tern_status status = tern_image_room(f, WebPDemuxGetI(webp, WEBP_FF_CANVAS_WIDTH),
                                         WebPDemuxGetI(webp, WEBP_FF_CANVAS_HEIGHT), out, err);
    if (status == TERN_OK && WebPDemuxGetFrame(webp, 1, &frame)) {
        status = decode_frame(&frame, out, err);
        WebPDemuxReleaseIterator(&frame);
    } else if (status == TERN_OK) {
        status = damaged(err);
    }
    if (status == TERN_OK && WebPDemuxGetChunk(webp, "EXIF", 1, &exif)) {
        f->orientation = tern_exif_orientation(exif.chunk.bytes, exif.chunk.size);
        WebPDemuxReleaseChunkIterator(&exif);
    }
    WebPDemuxDelete(webp);
    return status;
}
