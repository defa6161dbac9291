// How similar two texts are, estimated from sketches (explained in sketch.c).
#ifndef TERN_BASE_SKETCH_H
#define TERN_BASE_SKETCH_H

#include <stdint.h>
#include "base/status.h"
#include "base/strbuf.h"

#define TERN_SKETCH_HASHES 128

typedef struct tern_sketch {
    uint64_t exact;                      // hash of all words
    uint16_t minima[TERN_SKETCH_HASHES]; // MinHash, if near duplicates are wanted
} tern_sketch;

// Ignores the case of words. words: reusable scratch, free with tern_free.
typedef struct tern_sketcher {
    uint64_t *words;
    size_t capacity;
} tern_sketcher;
tern_status tern_sketch_text(tern_sketcher *s, tern_str text, bool near, tern_sketch *out,
                             tern_error *err);
double tern_sketch_likeness(const tern_sketch *a, const tern_sketch *b); // Jaccard, estimated

#endif
