// Reads one number of an image's EXIF data: the orientation.
//
// EXIF data is a TIFF file: a byte order, the offset of a list, and entries of twelve bytes. The
// orientation is entry 0x0112 of the first list, a 16-bit number; nothing else is read, so no
// library is needed.
#include <string.h>
#include "media/media.h"

typedef struct tiff {
    const uint8_t *at;
    size_t n;
    bool big; // the most significant byte first
} tiff;

static uint32_t number(const tiff *t, size_t at, int n_bytes) {
    uint32_t value = 0;
    if (at > t->n || t->n - at < (size_t)n_bytes) return 0;
    for (int i = 0; i < n_bytes; i++)
        value |= (uint32_t)t->at[at + (size_t)i] << 8 * (t->big ? n_bytes - 1 - i : i);
    return value;
}

int32_t tern_exif_orientation(const uint8_t *exif, size_t n) {
    static const char mark[] = "Exif\0"; // with its terminator: JPEG's header of the data
    if (n >= sizeof mark && memcmp(exif, mark, sizeof mark) == 0) {
        exif += sizeof mark;
        n -= sizeof mark;
    }
    if (n < 8 || (memcmp(exif, "II", 2) != 0 && memcmp(exif, "MM", 2) != 0)) return 0;
    const tiff t = {exif, n, exif[0] == 'M'};
    size_t list = number(&t, 4, 4);
    uint32_t n_entries = number(&t, list, 2);
    for (uint32_t i = 0; i < n_entries; i++) {
        size_t entry = list + 2 + 12 * (size_t)i;
        if (entry >= n) break;
        if (number(&t, entry, 2) != 0x0112 || number(&t, entry + 2, 2) != 3) continue;
        uint32_t value = number(&t, entry + 8, 2);
        return value >= 1 && value <= 8 ? (int32_t)value : 0;
    }
    return 0;
}
