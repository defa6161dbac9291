// Sketches, by which texts are compared without reading them again.
//
// The likeness of two texts is that of their sets of shingles (all runs of five words): the size of
// the intersection over that of the union, Jaccard's index. Broder (1997): under a random order of
// all shingles, the first of A and the first of B are the same with just that probability. So 128
// orders (hash functions) give 128 minima, and the share of equal ones estimates the likeness
// within about 0.04. 16 bits of each minimum are kept, which moves the estimate by less than
// 1/65536 (Li and König 2010).
//
// The words of a text are its runs of ASCII letters (in lower case), digits and bytes from 128
// on; everything else only ends them.
#include "base/sketch.h"

#include "base/alloc.h"
#include "base/hash.h"

#define SHINGLE_WORDS 5

static int word_byte(unsigned char c) { // 0: ends a word
    if (c >= 'A' && c <= 'Z') return c | 0x20;
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c >= 0x80 ? c : 0;
}

static tern_status hash_words(tern_sketcher *s, tern_str text, size_t *n_words, tern_error *err) {
    uint64_t hash = 0;
    size_t n = 0, length = 0;
    for (size_t i = 0; i <= text.len; i++) {
        int c = i < text.len ? word_byte((unsigned char)text.ptr[i]) : 0;
        if (c) {
            hash = (hash ^ (uint64_t)c) * 0x100000001B3u; // FNV-1a
            length++;
        } else if (length) {
            if (tern_array_reserve(TERN_MEM_MISC, &s->words, &s->capacity, n, 1) != 0)
                return tern_fail_memory(err, n * sizeof *s->words);
            s->words[n++] = tern_mix64(hash + length);
            hash = length = 0;
        }
    }
    *n_words = n;
    return TERN_OK;
}

// Hash function k of a shingle's 32-bit hash x is (x ^ a[k]) * b[k] modulo 2^32, b[k] odd: a
// bijection, so it is an order.
static void take_minima(const uint64_t *words, size_t n_words, uint16_t *out) {
    uint32_t a[TERN_SKETCH_HASHES], b[TERN_SKETCH_HASHES], minima[TERN_SKETCH_HASHES];
    for (int k = 0; k < TERN_SKETCH_HASHES; k++) {
        uint64_t r = tern_mix64(0x9E3779B97F4A7C15u * (uint64_t)(k + 1));
        a[k] = (uint32_t)r;
        b[k] = (uint32_t)(r >> 32) | 1;
        minima[k] = UINT32_MAX;
    }
    size_t n_shingles = n_words > SHINGLE_WORDS ? n_words - SHINGLE_WORDS + 1 : n_words > 0;
    for (size_t i = 0; i < n_shingles; i++) {
        uint64_t shingle = 0;
        for (size_t k = i; k < i + SHINGLE_WORDS && k < n_words; k++)
            shingle = tern_mix64(shingle + words[k]);
        uint32_t x = (uint32_t)shingle;
        for (int k = 0; k < TERN_SKETCH_HASHES; k++) {
            uint32_t h = (x ^ a[k]) * b[k];
            minima[k] = h < minima[k] ? h : minima[k];
        }
    }
    for (int k = 0; k < TERN_SKETCH_HASHES; k++) out[k] = (uint16_t)tern_mix64(minima[k]);
}

tern_status tern_sketch_text(tern_sketcher *s, tern_str text, bool near, tern_sketch *out,
                             tern_error *err) {
    size_t n = 0;
    TERN_TRY(hash_words(s, text, &n, err));
    if (n == 0)
        out->exact = tern_hash64(1, text.ptr, text.len); // only punctuation: hash the text
    else
        out->exact = tern_hash64(0, s->words, n * sizeof *s->words);
    if (near) take_minima(s->words, n, out->minima);
    return TERN_OK;
}

double tern_sketch_likeness(const tern_sketch *a, const tern_sketch *b) {
    int n = 0;
    for (int k = 0; k < TERN_SKETCH_HASHES; k++) n += a->minima[k] == b->minima[k];
    return (double)n / TERN_SKETCH_HASHES;
}
