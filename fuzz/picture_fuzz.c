// Fuzzing of pictures: the decoders' front, which way up they stand, and other sizes. What is read
// has the pixels that it says, and no more than are allowed.
#include "fuzz/support.h"
#include "media/media.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const tern_picture_desc desc = {.n_pixels_max = 1 << 16};
    tern_picture p, q;
    tern_error err;
    uint32_t sum = 0;
    int32_t orientation = tern_exif_orientation(bytes, n);
    fuzz_require(orientation >= 0 && orientation <= 8);
    if (tern_picture_read(&p, bytes, n, &desc, &err) != TERN_OK) return 0;
    fuzz_require(p.width >= 1 && p.height >= 1);
    fuzz_require((int64_t)p.width * p.height <= desc.n_pixels_max);
    for (int64_t i = 0; i < (int64_t)p.width * p.height * 3; i++) sum += p.rgb[i];
    tern_picture_filter filter = sum % 2 ? TERN_PICTURE_BICUBIC : TERN_PICTURE_BILINEAR;
    if (tern_picture_resize(&q, &p, 7, 5, filter, &err) == TERN_OK) {
        for (int i = 0; i < 7 * 5 * 3; i++) sum += q.rgb[i];
        tern_picture_free(&q);
    }
    tern_picture_free(&p);
    return 0;
}
