// Finds documents seen before, exactly or nearly, by the sketches of base/sketch.c.
//
// To find candidates without comparing all pairs, a sketch's minima are cut into bands of r: two
// documents that agree in all of any band meet in a hash table, which happens with
// probability 1 - (1 - s^r)^b for likeness s. r is the largest for which this curve rises, at
// (1/b)^(1/r), no later than 0.9 of the threshold, so that few pairs above it are missed (for 0.8:
// r = 8, 16 bands, 95% of the pairs at the threshold, 99.99% at 0.9); the estimate then decides.
//
// Memory is bounded by two generations: when the younger is full it becomes the older, whose
// documents are forgotten. So at least half of the documents that fit, the latest, are always
// remembered.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "train/data/data.h"

#define SAME_KEY_MAX 64 // documents compared under one key; more are boilerplate

// ---- A generation: documents, and a table from their keys to them -------------------------------

typedef struct slot {
    uint32_t tag, document_1; // bits of the key; document + 1, 0: free
} slot;

typedef struct generation {
    tern_sketch *near; // [capacity] if near duplicates are wanted, else...
    uint64_t *exact;   // ...[capacity]
    slot *slots;       // at most half full
    size_t n, capacity, n_slots;
} generation;

struct tern_dedup {
    tern_dedup_desc desc;
    int n_rows, n_bands; // n_bands: 0 without near duplicates
    size_t n_most;       // documents of a generation, at most
    generation young, old;
    uint64_t n_forgotten;
};

static int n_keys(const tern_dedup *d) { return 1 + d->n_bands; }

// Key 0 is the whole document's, the others are the bands'.
static uint64_t key_of(const tern_dedup *d, const tern_sketch *s, int k) {
    if (k == 0) return tern_mix64(s->exact);
    return tern_hash64((uint64_t)k, s->minima + (k - 1) * d->n_rows,
                       (size_t)d->n_rows * sizeof *s->minima);
}

static void insert(const tern_dedup *d, generation *g, const tern_sketch *s, uint32_t document) {
    for (int k = 0; k < n_keys(d); k++) {
        uint64_t key = key_of(d, s, k);
        size_t i = key & (g->n_slots - 1);
        while (g->slots[i].document_1) i = (i + 1) & (g->n_slots - 1);
        g->slots[i] = (slot){(uint32_t)(key >> 32), document + 1};
    }
}

static tern_status grow(const tern_dedup *d, generation *g, tern_error *err) {
    size_t capacity = g->capacity ? g->capacity * 2 : 1024, n_slots = 16;
    while (n_slots < 2 * capacity * (size_t)n_keys(d)) n_slots *= 2;
    slot *slots = tern_alloc_array(TERN_MEM_MISC, n_slots, sizeof *slots);
    if (!slots) return tern_fail_memory(err, n_slots * sizeof *slots);
    size_t size = d->n_bands ? sizeof *g->near : sizeof *g->exact;
    void *documents = tern_realloc(TERN_MEM_MISC, d->n_bands ? (void *)g->near : (void *)g->exact,
                                   capacity * size);
    if (!documents) {
        tern_free(slots);
        return tern_fail_memory(err, capacity * size);
    }
    if (d->n_bands)
        g->near = documents;
    else
        g->exact = documents;
    tern_free(g->slots);
    g->slots = slots;
    g->n_slots = n_slots;
    g->capacity = capacity;
    for (size_t i = 0; i < g->n; i++) {
        tern_sketch exact_only = {.exact = d->n_bands ? 0 : g->exact[i]};
        insert(d, g, d->n_bands ? &g->near[i] : &exact_only, (uint32_t)i);
    }
    return TERN_OK;
}

static void free_generation(generation *g) {
    tern_free(g->near);
    tern_free(g->exact);
    tern_free(g->slots);
    *g = (generation){0};
}

static tern_verdict look_up(const tern_dedup *d, const generation *g, const tern_sketch *s) {
    for (int k = 0; g->n && k < n_keys(d); k++) {
        uint64_t key = key_of(d, s, k);
        int n_same = 0;
        for (size_t i = key & (g->n_slots - 1); g->slots[i].document_1 && n_same < SAME_KEY_MAX;
             i = (i + 1) & (g->n_slots - 1)) {
            if (g->slots[i].tag != (uint32_t)(key >> 32)) continue;
            size_t document = g->slots[i].document_1 - 1;
            uint64_t exact = d->n_bands ? g->near[document].exact : g->exact[document];
            n_same++;
            if (k == 0 && exact == s->exact) return TERN_SAME;
            if (k > 0 && tern_sketch_likeness(&g->near[document], s) >= d->desc.threshold)
                return TERN_NEAR;
        }
    }
    return TERN_UNIQUE;
}

// ---- Both ---------------------------------------------------------------------------------------

static void choose_bands(tern_dedup *d) {
    for (int r = 1; r <= 32; r++) {
        int b = TERN_SKETCH_HASHES / r;
        if (r > 1 && pow(1.0 / b, 1.0 / r) > 0.9 * d->desc.threshold) break;
        d->n_rows = r;
        d->n_bands = b;
    }
}

tern_status tern_dedup_open(tern_dedup **out, const tern_dedup_desc *desc, tern_error *err) {
    *out = NULL;
    if (desc->near && !(desc->threshold > 0 && desc->threshold <= 1))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "near duplicates: a likeness of %g; expected between 0 and 1",
                         desc->threshold);
    tern_dedup *d = tern_alloc(TERN_MEM_MISC, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    d->desc = *desc;
    if (desc->near) choose_bands(d);
    size_t each = (desc->near ? sizeof(tern_sketch) : 8) + 4 * (size_t)n_keys(d) * sizeof(slot);
    size_t budget = desc->n_bytes_max ? desc->n_bytes_max : (size_t)1 << 30;
    d->n_most = 1024;
    while (d->n_most * 2 * each <= budget / 2 && d->n_most < (size_t)1 << 30) d->n_most *= 2;
    *out = d;
    return TERN_OK;
}

void tern_dedup_close(tern_dedup *d) {
    if (!d) return;
    free_generation(&d->young);
    free_generation(&d->old);
    tern_free(d);
}

tern_status tern_dedup_check(tern_dedup *d, const tern_sketch *sketch, tern_verdict *verdict,
                             tern_error *err) {
    generation *g = &d->young;
    *verdict = TERN_UNIQUE;
    if (!d->desc.exact && !d->desc.near) return TERN_OK;
    *verdict = look_up(d, g, sketch);
    if (*verdict == TERN_UNIQUE) *verdict = look_up(d, &d->old, sketch);
    if (*verdict != TERN_UNIQUE) return TERN_OK;
    if (g->n == d->n_most) {
        d->n_forgotten += d->old.n;
        free_generation(&d->old);
        d->old = *g;
        *g = (generation){0};
    }
    if (g->n == g->capacity) TERN_TRY(grow(d, g, err));
    if (d->n_bands)
        g->near[g->n] = *sketch;
    else
        g->exact[g->n] = sketch->exact;
    insert(d, g, sketch, (uint32_t)g->n++);
    return TERN_OK;
}

uint64_t tern_dedup_n_forgotten(const tern_dedup *d) { return d->n_forgotten; }
