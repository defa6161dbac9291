// Counting n-grams; ngrams.h explains how and why.
#include "tasks/mine/ngrams.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/hash.h"

enum { CHUNK = 1 << 15, SLOTS = 4 * TERN_NGRAMS_KEPT, FULL = 2 * TERN_NGRAMS_KEPT };

// One level under construction.
typedef struct level {
    const tern_corpus *corpus;
    const tern_ngrams *known; // shorter ones
    const tern_ngrams_desc *desc;
    int n;
    uint64_t *cells; // [n_cells], a power of two
    size_t n_cells;
    uint64_t least;
    tern_ngram *slots; // [SLOTS], those with a count are taken
    size_t n_taken;
    bool counting; // second pass
} level;

// ---- Sums over processes -----------------------------------------------------------------------

// Floats are exact below 2^24, which leaves 16 bits for as many as 256 processes: three floats.
tern_status tern_ngrams_sum(const tern_comm *comm, uint64_t *values, size_t n, tern_error *err) {
    enum { PIECE = 1 << 16, PARTS = 3 };
    if (!comm || comm->size < 2) return TERN_OK;
    float *parts = tern_alloc_array(TERN_MEM_MISC, PIECE * PARTS, sizeof *parts);
    if (!parts) return tern_fail_memory(err, PIECE * PARTS * sizeof *parts);
    bool ok = true;
    for (size_t at = 0; at < n && ok; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE;
        for (size_t i = 0; i < count; i++)
            for (int k = 0; k < PARTS; k++)
                parts[PARTS * i + (size_t)k] = (float)(values[at + i] >> 16 * k & 0xFFFF);
        ok = comm->sum_begin(comm->self, parts, PARTS * count) && comm->sum_finish(comm->self);
        for (size_t i = 0; i < count; i++) {
            values[at + i] = 0;
            for (int k = 0; k < PARTS; k++)
                values[at + i] += (uint64_t)parts[PARTS * i + (size_t)k] << 16 * k;
        }
    }
    tern_free(parts);
    return ok ? TERN_OK : tern_fail(err, TERN_ERR_IO, "the other processes cannot be reached");
}

// ---- Tables ------------------------------------------------------------------------------------

static int compare(const int32_t *a, const int32_t *b, int n) {
    for (int i = 0; i < n; i++)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int by_tokens(const void *a, const void *b) { // unused places are 0 in both
    return compare(((const tern_ngram *)a)->tokens, ((const tern_ngram *)b)->tokens,
                   TERN_NGRAM_MAX);
}

size_t tern_ngrams_lower(const tern_ngrams *g, int n, const int32_t *tokens, int n_tokens) {
    size_t low = 0, high = g->n[n];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(g->at[n][middle].tokens, tokens, n_tokens) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_known(const tern_ngrams *g, int n, const int32_t *tokens) {
    size_t at = tern_ngrams_lower(g, n, tokens, n);
    return at < g->n[n] && compare(g->at[n][at].tokens, tokens, n) == 0;
}

// Adds to the exact count; false: the table is full.
static bool count_exactly(level *l, const int32_t *tokens, uint64_t hash, uint64_t count) {
    size_t at = hash % SLOTS;
    while (l->slots[at].count && compare(l->slots[at].tokens, tokens, l->n) != 0)
        at = (at + 1) % SLOTS;
    tern_ngram *slot = &l->slots[at];
    if (!slot->count) {
        if (l->n_taken == FULL) return false;
        l->n_taken++;
        memcpy(slot->tokens, tokens, (size_t)l->n * sizeof *tokens);
    }
    slot->count += count;
    return true;
}

// ---- Passes ------------------------------------------------------------------------------------

// ids[0..n) of one document; runs begin in the first n_starts. Sets *full when the table is.
static void look_at(level *l, const int32_t *ids, size_t n_starts, size_t n, bool *full) {
    size_t length = (size_t)l->n, clean = 0; // tokens without an end token before i + length
    for (size_t i = 0; i < length - 1 && i < n; i++)
        clean = ids[i] == l->corpus->end_id ? 0 : clean + 1;
    for (size_t i = 0; i < n_starts && i + length <= n && !*full; i++) {
        clean = ids[i + length - 1] == l->corpus->end_id ? 0 : clean + 1;
        if (clean < length) continue;
        uint64_t hash = tern_hash64((uint64_t)l->n, ids + i, length * sizeof *ids);
        uint64_t *cell = &l->cells[(hash >> 20) & (l->n_cells - 1)];
        if (l->counting && *cell < l->least) continue;
        if (l->n > TERN_NGRAM_MIN &&
            (!is_known(l->known, l->n - 1, ids + i) || !is_known(l->known, l->n - 1, ids + i + 1)))
            continue;
        if (l->counting)
            *full = !count_exactly(l, ids + i, hash, 1);
        else
            ++*cell;
    }
}

static tern_status walk(level *l, double begin, double share, bool *full, tern_error *err) {
    const tern_corpus *c = l->corpus;
    int32_t *ids = tern_alloc_array(TERN_MEM_MISC, CHUNK + TERN_NGRAM_MAX, sizeof *ids);
    if (!ids) return tern_fail_memory(err, CHUNK * sizeof *ids);
    tern_status status = TERN_OK;
    const tern_comm *comm = l->desc->comm;
    int rank = comm ? comm->rank : 0, size = comm ? comm->size : 1;
    uint64_t done = 0, next_report = 0;
    for (uint64_t d = (uint64_t)rank; d < c->n_documents && !*full; d += (uint64_t)size) {
        uint64_t n = c->document_tokens(c->self, d);
        for (uint64_t at = 0; at < n && !*full; at += CHUNK) {
            uint64_t left = n - at, take = CHUNK + TERN_NGRAM_MAX - 1;
            if (take > left) take = left;
            TERN_TRY_GOTO(c->read(c->self, d, at, take, ids, err));
            look_at(l, ids, CHUNK, (size_t)take, full);
        }
        done += n * (uint64_t)size;
        if (done < next_report) continue;
        next_report = done + (1 << 20);
        double part = (double)done / (double)(c->n_tokens ? c->n_tokens : 1);
        if (!tern_progress(l->desc->on_progress, l->desc->user, "count",
                           begin + share * (part < 1 ? part : 1)))
            TERN_TRY_GOTO(tern_fail(err, TERN_ERR_CANCELLED, "mining was cancelled"));
    }
fail:
    tern_free(ids);
    return status;
}

// The least t, at least the previous level's, that at most the kept number of cells reach; by
// bisection.
static uint64_t threshold(const level *l, uint64_t least) {
    uint64_t low = least, high = least;
    for (size_t i = 0; i < l->n_cells; i++)
        if (l->cells[i] >= high) high = l->cells[i] + 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        size_t n = 0;
        for (size_t i = 0; i < l->n_cells && n <= TERN_NGRAMS_KEPT; i++) n += l->cells[i] >= middle;
        if (n > TERN_NGRAMS_KEPT)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// ---- What the processes found, put together ----------------------------------------------------

// Each process writes its counts into its own stretch of an array of zeros: the sum of all arrays
// holds all of them.
static tern_status merge(level *l, bool *full, tern_error *err) {
    const tern_comm *comm = l->desc->comm;
    enum { WIDTH = TERN_NGRAM_MAX + 1 };
    if (!comm || comm->size < 2) return TERN_OK;
    uint64_t sizes[256] = {0};
    if (comm->size > 256)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d processes: at most 256 can mine", comm->size);
    sizes[comm->rank] = l->n_taken + (*full ? FULL + 1 : 0);
    TERN_TRY(tern_ngrams_sum(comm, sizes, (size_t)comm->size, err));
    size_t total = 0, first = 0;
    for (int i = 0; i < comm->size; i++) {
        if (sizes[i] > FULL) *full = true;
        if (i < comm->rank) first += sizes[i];
        total += sizes[i];
    }
    if (*full) return TERN_OK; // everywhere: repeat the pass with a higher threshold
    uint64_t *all = tern_alloc_array(TERN_MEM_MISC, total * WIDTH, sizeof *all), *to;
    if (!all) return tern_fail_memory(err, total * WIDTH * sizeof *all);
    to = all + first * WIDTH;
    for (size_t i = 0; i < SLOTS; i++) {
        const tern_ngram *s = &l->slots[i];
        if (!s->count) continue;
        for (int k = 0; k < l->n; k++) to[k] = (uint64_t)s->tokens[k];
        to[WIDTH - 1] = s->count;
        to += WIDTH;
    }
    tern_status status = tern_ngrams_sum(comm, all, total * WIDTH, err);
    memset(l->slots, 0, SLOTS * sizeof *l->slots);
    l->n_taken = 0;
    for (size_t i = 0; i < total && status == TERN_OK && !*full; i++) {
        int32_t tokens[TERN_NGRAM_MAX];
        for (int k = 0; k < l->n; k++) tokens[k] = (int32_t)all[i * WIDTH + (size_t)k];
        uint64_t hash = tern_hash64((uint64_t)l->n, tokens, (size_t)l->n * sizeof *tokens);
        *full = !count_exactly(l, tokens, hash, all[i * WIDTH + WIDTH - 1]);
    }
    tern_free(all);
    return status;
}

// ---- Levels ------------------------------------------------------------------------------------

static tern_status keep_level(level *l, tern_ngrams *out, tern_error *err) {
    tern_ngram *kept = tern_alloc_array(TERN_MEM_MISC, l->n_taken, sizeof *kept);
    if (!kept) return tern_fail_memory(err, l->n_taken * sizeof *kept);
    size_t n = 0;
    for (size_t i = 0; i < SLOTS; i++)
        if (l->slots[i].count >= l->least) kept[n++] = l->slots[i];
    qsort(kept, n, sizeof *kept, by_tokens);
    out->at[l->n] = kept;
    out->n[l->n] = n;
    out->least[l->n] = l->least;
    return TERN_OK;
}

static tern_status count_level(level *l, tern_ngrams *out, tern_error *err) {
    const double share = 1.0 / (TERN_NGRAM_MAX - TERN_NGRAM_MIN + 1);
    double begin = (l->n - TERN_NGRAM_MIN) * share;
    bool full = false;
    memset(l->cells, 0, l->n_cells * sizeof *l->cells);
    l->counting = false;
    TERN_TRY(walk(l, begin, share / 2, &full, err));
    TERN_TRY(tern_ngrams_sum(l->desc->comm, l->cells, l->n_cells, err));
    l->least = threshold(l, l->least);
    l->counting = true;
    for (bool again = true; again;) {
        memset(l->slots, 0, SLOTS * sizeof *l->slots);
        l->n_taken = 0;
        full = false;
        TERN_TRY(walk(l, begin + share / 2, share / 2, &full, err));
        TERN_TRY(merge(l, &full, err));
        again = full; // too many share their cells with frequent ones
        if (full) l->least += l->least / 2 + 1;
    }
    return keep_level(l, out, err);
}

tern_status tern_ngrams_count(tern_ngrams *out, const tern_corpus *corpus,
                              const tern_ngrams_desc *desc, tern_error *err) {
    *out = (tern_ngrams){0};
    level l = {.corpus = corpus, .known = out, .desc = desc, .n_cells = 1 << 12, .least = 2};
    tern_status status = TERN_OK;
    while (l.n_cells * 2 * sizeof *l.cells <= desc->memory) l.n_cells *= 2;
    l.cells = tern_alloc_array(TERN_MEM_MISC, l.n_cells, sizeof *l.cells);
    l.slots = tern_alloc_array(TERN_MEM_MISC, SLOTS, sizeof *l.slots);
    if (!l.cells || !l.slots)
        TERN_TRY_GOTO(tern_fail_memory(err, l.n_cells * sizeof *l.cells + SLOTS * sizeof *l.slots));
    for (l.n = TERN_NGRAM_MIN; l.n <= TERN_NGRAM_MAX; l.n++)
        TERN_TRY_GOTO(count_level(&l, out, err));
fail:
    tern_free(l.cells);
    tern_free(l.slots);
    if (status != TERN_OK) tern_ngrams_free(out);
    return status;
}

void tern_ngrams_free(tern_ngrams *g) {
    for (int n = 0; n <= TERN_NGRAM_MAX; n++) tern_free(g->at[n]);
    *g = (tern_ngrams){0};
}
