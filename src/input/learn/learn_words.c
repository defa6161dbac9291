// Counting the words of texts that are larger than memory.
//
// Most of the different words of a large text occur once or twice, and no merge is learnt from
// them. So when the table is full, the rarest are dropped: words that occurred once, then, if that
// is not enough, twice, four times ... until half of the room is free (the idea of lossy counting:
// Manku and Motwani 2002). A frequent word loses at most its count from the time when it was rare.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "input/learn/learn.h"

#define WORD_MAX 1024 // bytes; anything longer is data, not language

static size_t used_bytes(const tern_words *w) {
    return w->n_text + w->n * sizeof *w->list + w->n_slots * sizeof *w->slots;
}

static void put_in_slot(tern_words *w, size_t position) {
    size_t i = w->list[position].hash & (w->n_slots - 1);
    while (w->slots[i]) i = (i + 1) & (w->n_slots - 1);
    w->slots[i] = (uint32_t)position + 1;
}

static tern_status grow_slots(tern_words *w, tern_error *err) {
    size_t n = w->n_slots ? w->n_slots * 2 : 1024;
    uint32_t *slots = tern_alloc_array(TERN_MEM_TOKENIZER, n, sizeof *slots);
    if (!slots) return tern_fail_memory(err, n * sizeof *slots);
    tern_free(w->slots);
    w->slots = slots;
    w->n_slots = n;
    for (size_t i = 0; i < w->n; i++) put_in_slot(w, i);
    return TERN_OK;
}

// Keeps the words more frequent than `floor`, in order.
static void forget(tern_words *w, uint64_t floor) {
    size_t n = 0, n_text = 0;
    for (size_t i = 0; i < w->n; i++) {
        tern_word word = w->list[i];
        if (word.count <= floor) {
            w->n_forgotten += word.count;
            continue;
        }
        memmove(w->text + n_text, w->text + word.at, word.n);
        word.at = n_text;
        n_text += word.n;
        w->list[n++] = word;
    }
    w->n = n;
    w->n_text = n_text;
    memset(w->slots, 0, w->n_slots * sizeof *w->slots);
    for (size_t i = 0; i < n; i++) put_in_slot(w, i);
}

static tern_status make_room(tern_words *w, size_t n, tern_error *err) {
    if (w->n_bytes_max && used_bytes(w) + n > w->n_bytes_max) {
        size_t slots = w->n_slots * sizeof *w->slots;
        size_t goal = w->n_bytes_max > slots ? (w->n_bytes_max - slots) / 2 : 0;
        for (uint64_t floor = 1; w->n && used_bytes(w) - slots + n > goal; floor *= 2)
            forget(w, floor);
    }
    if (w->n >= UINT32_MAX / 2)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "too many different words");
    // Doubles the slots only if the limit has room for them.
    bool may_grow = !w->n_bytes_max || w->n_slots * 2 * sizeof *w->slots < w->n_bytes_max / 4;
    if (2 * w->n >= w->n_slots) {
        if (may_grow || w->n_slots == 0)
            TERN_TRY(grow_slots(w, err));
        else
            for (uint64_t floor = 1; 4 * w->n > w->n_slots; floor *= 2) forget(w, floor);
    }
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &w->list, &w->capacity, w->n, 1) != 0 ||
        tern_array_reserve(TERN_MEM_TOKENIZER, &w->text, &w->text_capacity, w->n_text, n) != 0)
        return tern_fail_memory(err, w->text_capacity * 2 + w->capacity * sizeof *w->list);
    return TERN_OK;
}

static tern_word *find(const tern_words *w, uint64_t hash, const char *word, size_t n) {
    if (!w->n_slots) return NULL;
    for (size_t i = hash & (w->n_slots - 1); w->slots[i]; i = (i + 1) & (w->n_slots - 1)) {
        tern_word *have = &w->list[w->slots[i] - 1];
        if (have->hash == hash && have->n == n && memcmp(w->text + have->at, word, n) == 0)
            return have;
    }
    return NULL;
}

tern_status tern_words_add(tern_words *w, const char *word, size_t n, tern_error *err) {
    w->n_seen++;
    if (n > WORD_MAX) {
        w->n_too_long++;
        return TERN_OK;
    }
    uint64_t hash = tern_hash64(0, word, n);
    tern_word *have = find(w, hash, word, n);
    if (have) {
        have->count++;
        return TERN_OK;
    }
    TERN_TRY(make_room(w, n, err));
    memcpy(w->text + w->n_text, word, n);
    w->list[w->n] = (tern_word){hash, 1, w->n_text, (uint32_t)n};
    w->n_text += n;
    put_in_slot(w, w->n++);
    return TERN_OK;
}

void tern_words_free(tern_words *w) {
    tern_free(w->text);
    tern_free(w->list);
    tern_free(w->slots);
    *w = (tern_words){0};
}
