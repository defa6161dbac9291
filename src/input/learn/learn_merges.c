// Which pairs of symbols are merged, in which order.
//
// The obvious algorithm counts all pairs of all words again for each merge. Here a merge touches
// only the words that contain its pair: each pair has a list of them (`links`), and a heap gives
// the most frequent pair. Counts in the heap may be too high, as only counts that rise are entered
// anew: so while the first entry has an outdated count, it is put back with the true one.
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/hash.h"
#include "input/learn/learn.h"

typedef struct pair {
    uint64_t key; // left << 32 | right
    uint64_t count;
    uint32_t first_link; // + 1, 0: none
    bool is_changed;     // its count rose in this merge
    bool is_forbidden;   // its merge would be the text of a special token
} pair;

typedef struct link {
    uint32_t word, next; // next: + 1, 0: none
} link;

typedef struct entry { // of the heap
    uint64_t count, key;
    uint32_t pair;
} entry;

typedef struct symbols { // of a word
    uint64_t count;
    size_t at; // of learner.symbols
    uint32_t n;
} symbols;

typedef struct learner {
    const tern_bpe_desc *desc;
    tern_learned *out;
    symbols *words;
    uint32_t *symbols;
    size_t n_words;
    pair *pairs;
    uint32_t *slots; // position + 1 in pairs
    size_t n_pairs, pairs_capacity, n_slots;
    link *links;
    size_t n_links, links_capacity;
    uint32_t free_link; // + 1
    entry *heap;
    size_t n_heap, heap_capacity;
    uint32_t *changed; // pairs
    size_t n_changed, changed_capacity;
    tern_vocab_slot *names; // text -> token
    size_t n_names;
    tern_error *err;
} learner;

static tern_status no_memory(learner *l) {
    return tern_fail_memory(l->err, l->n_pairs * sizeof *l->pairs + l->n_links * sizeof *l->links);
}

// ---- Pairs --------------------------------------------------------------------------------------

static void put_in_slot(learner *l, uint32_t position) {
    size_t i = tern_mix64(l->pairs[position].key) & (l->n_slots - 1);
    while (l->slots[i]) i = (i + 1) & (l->n_slots - 1);
    l->slots[i] = position + 1;
}

static tern_status grow_slots(learner *l) {
    size_t n = l->n_slots ? l->n_slots * 2 : 4096;
    uint32_t *slots = tern_alloc_array(TERN_MEM_TOKENIZER, n, sizeof *slots);
    if (!slots) return no_memory(l);
    tern_free(l->slots);
    l->slots = slots;
    l->n_slots = n;
    for (size_t i = 0; i < l->n_pairs; i++) put_in_slot(l, (uint32_t)i);
    return TERN_OK;
}

// The pair, created if needed.
static tern_status get_pair(learner *l, uint32_t left, uint32_t right, uint32_t *out) {
    uint64_t key = (uint64_t)left << 32 | right;
    if (2 * l->n_pairs >= l->n_slots) TERN_TRY(grow_slots(l));
    size_t i = tern_mix64(key) & (l->n_slots - 1);
    for (; l->slots[i]; i = (i + 1) & (l->n_slots - 1)) {
        *out = l->slots[i] - 1;
        if (l->pairs[*out].key == key) return TERN_OK;
    }
    if (l->n_pairs >= UINT32_MAX / 4)
        return tern_fail(l->err, TERN_ERR_UNSUPPORTED, "too many different pairs of symbols");
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &l->pairs, &l->pairs_capacity, l->n_pairs, 1) != 0)
        return no_memory(l);
    *out = (uint32_t)l->n_pairs;
    l->pairs[l->n_pairs++] = (pair){.key = key};
    put_in_slot(l, *out);
    return TERN_OK;
}

static tern_status add_link(learner *l, pair *p, uint32_t word) {
    if (p->first_link && l->links[p->first_link - 1].word == word) return TERN_OK;
    uint32_t at = l->free_link;
    if (at) {
        l->free_link = l->links[at - 1].next;
    } else {
        if (l->n_links >= UINT32_MAX - 1)
            return tern_fail(l->err, TERN_ERR_UNSUPPORTED, "too many different words");
        if (tern_array_reserve(TERN_MEM_TOKENIZER, &l->links, &l->links_capacity, l->n_links, 1) !=
            0)
            return no_memory(l);
        at = (uint32_t)++l->n_links;
    }
    l->links[at - 1] = (link){word, p->first_link};
    p->first_link = at;
    return TERN_OK;
}

// Counts the pairs of a word; links and records those that contain `token`; UINT32_MAX: all.
static tern_status count_pairs(learner *l, uint32_t word, uint32_t token) {
    const symbols *w = &l->words[word];
    for (uint32_t i = 0; i + 1 < w->n; i++) {
        uint32_t left = l->symbols[w->at + i], right = l->symbols[w->at + i + 1], at;
        TERN_TRY(get_pair(l, left, right, &at));
        pair *p = &l->pairs[at];
        p->count += w->count;
        if (token != UINT32_MAX && left != token && right != token) continue;
        TERN_TRY(add_link(l, p, word));
        if (p->is_changed) continue;
        if (tern_array_reserve(TERN_MEM_TOKENIZER, &l->changed, &l->changed_capacity, l->n_changed,
                               1) != 0)
            return no_memory(l);
        p->is_changed = true;
        l->changed[l->n_changed++] = at;
    }
    return TERN_OK;
}

static tern_status uncount_pairs(learner *l, uint32_t word) {
    const symbols *w = &l->words[word];
    for (uint32_t i = 0; i + 1 < w->n; i++) {
        uint32_t at;
        TERN_TRY(get_pair(l, l->symbols[w->at + i], l->symbols[w->at + i + 1], &at));
        l->pairs[at].count -= w->count;
    }
    return TERN_OK;
}

// ---- The heap -----------------------------------------------------------------------------------

static bool comes_first(const entry *a, const entry *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void sift_down(learner *l, size_t i) {
    entry moving = l->heap[i];
    for (size_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && comes_first(&l->heap[child + 1], &l->heap[child])) child++;
        if (!comes_first(&l->heap[child], &moving)) break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = moving;
}

static tern_status push(learner *l, uint32_t at) {
    entry e = {l->pairs[at].count, l->pairs[at].key, at};
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &l->heap, &l->heap_capacity, l->n_heap, 1) != 0)
        return no_memory(l);
    size_t i = l->n_heap++;
    for (; i > 0 && comes_first(&e, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = e;
    return TERN_OK;
}

static void pop(learner *l) {
    l->heap[0] = l->heap[--l->n_heap];
    if (l->n_heap) sift_down(l, 0);
}

static tern_status push_changed(learner *l) {
    for (size_t i = 0; i < l->n_changed; i++) {
        pair *p = &l->pairs[l->changed[i]];
        p->is_changed = false;
        if (p->count >= l->desc->min_count && !p->is_forbidden) TERN_TRY(push(l, l->changed[i]));
    }
    l->n_changed = 0;
    return TERN_OK;
}

// The most frequent pair; false: none is frequent enough.
static bool best_pair(learner *l, uint32_t *at) {
    while (l->n_heap) {
        entry *top = &l->heap[0];
        uint64_t count = l->pairs[top->pair].count;
        *at = top->pair;
        if (count < l->desc->min_count || l->pairs[*at].is_forbidden) {
            pop(l);
        } else if (top->count == count) {
            return true;
        } else {
            top->count = count;
            sift_down(l, 0);
        }
    }
    return false;
}

// ---- Tokens -------------------------------------------------------------------------------------

static tern_status grow_names(learner *l) {
    size_t n = l->n_names ? l->n_names * 2 : 1024;
    tern_vocab_slot *names = tern_alloc_array(TERN_MEM_TOKENIZER, n, sizeof *names);
    if (!names) return no_memory(l);
    for (size_t i = 0; i < l->n_names; i++) {
        if (!l->names[i].id_1) continue;
        size_t k = l->names[i].hash & (n - 1);
        while (names[k].id_1) k = (k + 1) & (n - 1);
        names[k] = l->names[i];
    }
    tern_free(l->names);
    l->names = names;
    l->n_names = n;
    return TERN_OK;
}

// The token of this text, created if needed; text is not in out->text.
static tern_status get_token(learner *l, tern_str text, uint32_t *id) {
    tern_learned *out = l->out;
    if (2 * out->n_tokens >= l->n_names) TERN_TRY(grow_names(l));
    uint32_t hash = tern_vocab_hash(text.ptr, text.len);
    size_t i = hash & (l->n_names - 1);
    for (; l->names[i].id_1; i = (i + 1) & (l->n_names - 1)) {
        *id = l->names[i].id_1 - 1;
        if (l->names[i].hash == hash && tern_str_eq(tern_learned_text(out, *id), text))
            return TERN_OK;
    }
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &out->offsets, &out->offsets_capacity, out->n_tokens,
                           2) != 0)
        return no_memory(l);
    tern_strbuf_append(&out->text, text.ptr, text.len);
    if (out->text.failed) return no_memory(l);
    *id = (uint32_t)out->n_tokens++;
    out->offsets[out->n_tokens] = out->text.len;
    l->names[i] = (tern_vocab_slot){hash, *id + 1};
    return TERN_OK;
}

static tern_status make_first_tokens(learner *l, uint32_t byte_ids[256]) {
    const tern_bpe_desc *d = l->desc;
    uint32_t id;
    for (size_t i = 0; i < d->n_specials; i++) {
        tern_str text = {d->specials[i], strlen(d->specials[i])};
        TERN_TRY(get_token(l, text, &id));
        if (text.len < 2 || id != i || !tern_unicode_is_valid(text.ptr, text.len))
            return tern_fail(
                l->err, TERN_ERR_ARGUMENT,
                "special token '%s': it is there twice, has less than two bytes or is not UTF-8",
                d->specials[i]);
    }
    l->out->n_specials = d->n_specials;
    for (uint32_t code = 0; code < 0x180; code++) { // the alphabet ends before U+0144
        int byte = tern_alphabet_byte(code);
        char c = (char)byte;
        if (byte >= 0) TERN_TRY(get_token(l, (tern_str){&c, 1}, &byte_ids[byte]));
    }
    return TERN_OK;
}

// ---- Learning -----------------------------------------------------------------------------------

static tern_status take_words(learner *l, tern_words *w, const uint32_t byte_ids[256]) {
    l->words = tern_alloc_array(TERN_MEM_TOKENIZER, w->n + 1, sizeof *l->words);
    l->symbols = tern_alloc_array(TERN_MEM_TOKENIZER, w->n_text + 1, sizeof *l->symbols);
    if (!l->words || !l->symbols)
        return tern_fail_memory(l->err, w->n * sizeof *l->words + w->n_text * sizeof *l->symbols);
    for (size_t i = 0; i < w->n; i++)
        l->words[i] = (symbols){w->list[i].count, w->list[i].at, w->list[i].n};
    for (size_t i = 0; i < w->n_text; i++) l->symbols[i] = byte_ids[(unsigned char)w->text[i]];
    l->n_words = w->n;
    tern_words_free(w);
    for (size_t i = 0; i < l->n_words; i++) TERN_TRY(count_pairs(l, (uint32_t)i, UINT32_MAX));
    return push_changed(l);
}

static void replace(learner *l, symbols *w, uint32_t left, uint32_t right, uint32_t token) {
    uint32_t *s = l->symbols + w->at, n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        bool both = s[i] == left && i + 1 < w->n && s[i + 1] == right;
        s[n++] = both ? token : s[i];
        i += both;
    }
    w->n = n;
}

static tern_status merge(learner *l, uint32_t at, uint32_t token) {
    uint32_t left = (uint32_t)(l->pairs[at].key >> 32), right = (uint32_t)l->pairs[at].key;
    uint32_t next = l->pairs[at].first_link;
    l->pairs[at].first_link = 0;
    while (next) {
        uint32_t i = next - 1, word = l->links[i].word;
        next = l->links[i].next;
        l->links[i].next = l->free_link;
        l->free_link = i + 1;
        TERN_TRY(uncount_pairs(l, word));
        replace(l, &l->words[word], left, right, token);
        TERN_TRY(count_pairs(l, word, token));
    }
    return push_changed(l);
}

static tern_status learn_one(learner *l, uint32_t at, tern_strbuf *both) {
    tern_learned *out = l->out;
    uint32_t sides[2] = {(uint32_t)(l->pairs[at].key >> 32), (uint32_t)l->pairs[at].key}, token;
    tern_strbuf_clear(both);
    for (int i = 0; i < 2; i++) {
        tern_str text = tern_learned_text(out, sides[i]);
        tern_strbuf_append(both, text.ptr, text.len);
    }
    if (both->failed) return no_memory(l);
    TERN_TRY(get_token(l, (tern_str){both->ptr, both->len}, &token));
    if (token < out->n_specials) { // a text never becomes a special token by itself
        l->pairs[at].is_forbidden = true;
        return TERN_OK;
    }
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &out->merges, &out->merges_capacity,
                           2 * out->n_merges, 2) != 0)
        return no_memory(l);
    memcpy(out->merges + 2 * out->n_merges++, sides, sizeof sides);
    return merge(l, at, token);
}

static tern_status learn(learner *l, tern_words *words, tern_strbuf *both) {
    const tern_bpe_desc *d = l->desc;
    uint32_t byte_ids[256], at;
    TERN_TRY(make_first_tokens(l, byte_ids));
    TERN_TRY(take_words(l, words, byte_ids));
    while (l->out->n_tokens < (size_t)d->n_vocab && best_pair(l, &at)) {
        TERN_TRY(learn_one(l, at, both));
        if (l->out->n_tokens % 64 == 0 &&
            !tern_progress(d->on_progress, d->user, "merge", (double)l->out->n_tokens / d->n_vocab))
            return tern_fail(l->err, TERN_ERR_CANCELLED, "the learning was cancelled");
    }
    return TERN_OK;
}

tern_status tern_learn_merges(tern_learned *out, tern_words *words, const tern_bpe_desc *desc,
                              tern_error *err) {
    learner l = {.desc = desc, .out = out, .err = err};
    tern_strbuf both = {0};
    tern_status status = learn(&l, words, &both);
    tern_strbuf_free(&both);
    tern_free(l.words);
    tern_free(l.symbols);
    tern_free(l.pairs);
    tern_free(l.slots);
    tern_free(l.links);
    tern_free(l.heap);
    tern_free(l.changed);
    tern_free(l.names);
    return status;
}

void tern_learned_free(tern_learned *l) {
    tern_strbuf_free(&l->text);
    tern_free(l->offsets);
    tern_free(l->merges);
    *l = (tern_learned){0};
}
