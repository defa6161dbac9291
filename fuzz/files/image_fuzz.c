// Fuzzing of images: the decoders' front, which way up they stand, and other sizes. What is read
// has the pixels that it says, and no more than are allowed.
#include "fuzz/support.h"
#include "media/media.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const tern_image_desc desc = {.n_pixels_max = 1 << 16};
    tern_image p, q;
    tern_error err;
    uint32_t sum = 0;
    int32_t orientation = tern_exif_orientation(bytes, n);
    fuzz_require(orientation >= 0 && orientation <= 8);
    if (tern_image_open_bytes(&p, bytes, n, &desc, &err) != TERN_OK) return 0;
    fuzz_require(p.width >= 1 && p.height >= 1);
    fuzz_require((int64_t)p.width * p.height <= desc.n_pixels_max);
    for (int64_t i = 0; i < (int64_t)p.width * p.height * 3; i++) sum += p.rgb[i];
    tern_image_filter filter = sum % 2 ? TERN_IMAGE_BICUBIC : TERN_IMAGE_BILINEAR;
    if (tern_image_resize(&q, &p, 7, 5, filter, &err) == TERN_OK) {
        for (int i = 0; i < 7 * 5 * 3; i++) sum += q.rgb[i];
        tern_image_close(&q);
    }
    tern_image_close(&p);
    return 0;
}
