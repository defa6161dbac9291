// Tokens that may not be chosen, whatever their scores: those that are not among the allowed ones,
// ends that come too early, and the last tokens of bad words.
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"

#define WORD_BYTES_MAX 256

static bool has(const uint64_t *bits, int32_t id) { return bits[id / 64] >> (id % 64) & 1; }

typedef struct id_list {
    const char *name;
    const int32_t *ids;
    size_t n;
} id_list;

static tern_status make_set(uint64_t **bits, size_t *capacity, id_list list, int32_t n_vocab,
                            tern_error *err) {
    const int32_t *ids = list.ids;
    const size_t n = list.n;
    const size_t n_words = ((size_t)n_vocab + 63) / 64;
    if (tern_array_reserve(TERN_MEM_SESSION, bits, capacity, 0, n_words) != 0)
        return tern_fail_memory(err, n_words * sizeof **bits);
    memset(*bits, 0, n_words * sizeof **bits);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: token %d is not in 0..%d", list.name,
                             (int)ids[i], (int)n_vocab - 1);
        (*bits)[ids[i] / 64] |= (uint64_t)1 << (ids[i] % 64);
    }
    return TERN_OK;
}

// The tokens that end an answer.
static tern_status find_ends(tern_excluded *x, const tern_model *m, const tern_generate_params *p,
                             tern_error *err) {
    for (int32_t id = 0; id < m->info.n_vocab; id++) {
        const bool ends = !p->ignore_end && tern_token_is_end(m, id);
        if (!ends && !tern_excluded_is_stop(x, id)) continue;
        if (tern_array_reserve(TERN_MEM_SESSION, &x->ends, &x->ends_capacity, x->n_ends, 1) != 0)
            return tern_fail_memory(err, sizeof *x->ends);
        x->ends[x->n_ends++] = id;
    }
    return TERN_OK;
}

static tern_status add_word(tern_excluded *x, const tern_ids *ids, tern_error *err) {
    const size_t n = ids->n + 1;
    if (ids->n == 0) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &x->words, &x->words_capacity, x->n_word_tokens, n) !=
        0)
        return tern_fail_memory(err, n * sizeof *x->words);
    x->words[x->n_word_tokens] = (int32_t)ids->n;
    memcpy(x->words + x->n_word_tokens + 1, ids->ids, ids->n * sizeof *ids->ids);
    x->n_word_tokens += n;
    x->n_words++;
    return TERN_OK;
}

// Tokenized as at the beginning of a text and as within one.
static tern_status spell_word(tern_excluded *x, const tern_model *m, const char *word,
                              tern_error *err) {
    char spaced[WORD_BYTES_MAX + 2] = " ";
    tern_ids ids = {0};
    word += strspn(word, " ");
    const size_t n = strnlen(word, WORD_BYTES_MAX + 1);
    if (n > WORD_BYTES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "bad_words: one has more than %d bytes",
                         WORD_BYTES_MAX);
    if (n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "bad_words: one is empty");
    memcpy(spaced + 1, word, n);
    tern_status status = TERN_OK;
    for (int space = 0; space < 2 && status == TERN_OK; space++) {
        ids.n = 0;
        status = tern_tokenizer_encode(m->tokenizer, spaced + !space, n + (size_t)space,
                                       TERN_TOKENIZE_PLAIN, &ids, err);
        if (status == TERN_OK) status = add_word(x, &ids, err);
    }
    tern_free(ids.ids);
    return status;
}

static tern_status spell_words(tern_excluded *x, const tern_model *m, const tern_generate_params *p,
                               tern_error *err) {
    if (p->n_bad_words > TERN_BAD_WORDS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "bad_words: %zu, more than %d", p->n_bad_words,
                         TERN_BAD_WORDS_MAX);
    if (p->n_bad_words && !m->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
    for (size_t i = 0; i < p->n_bad_words; i++) TERN_TRY(spell_word(x, m, p->bad_words[i], err));
    return TERN_OK;
}

tern_status tern_excluded_begin(tern_excluded *x, const tern_model *m,
                                const tern_generate_params *p, tern_error *err) {
    const int32_t n_vocab = m->info.n_vocab;
    x->has_allowed = p->n_allowed_token_ids > 0;
    x->has_stops = p->n_stop_token_ids > 0;
    x->n_ends = x->n_word_tokens = x->n_words = 0;
    if (p->min_tokens < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "min_tokens %d: expected 0 or more",
                         (int)p->min_tokens);
    x->min_tokens = p->min_tokens;
    if (x->has_allowed)
        TERN_TRY(
            make_set(&x->allowed, &x->allowed_capacity,
                     (id_list){"allowed_token_ids", p->allowed_token_ids, p->n_allowed_token_ids},
                     n_vocab, err));
    if (x->has_stops)
        TERN_TRY(make_set(&x->stops, &x->stops_capacity,
                          (id_list){"stop_token_ids", p->stop_token_ids, p->n_stop_token_ids},
                          n_vocab, err));
    if (x->min_tokens > 0) TERN_TRY(find_ends(x, m, p, err));
    return spell_words(x, m, p, err);
}

void tern_excluded_free(tern_excluded *x) {
    tern_free(x->allowed);
    tern_free(x->stops);
    tern_free(x->ends);
    tern_free(x->words);
}

bool tern_excluded_is_stop(const tern_excluded *x, int32_t id) {
    return x->has_stops && has(x->stops, id);
}

size_t tern_excluded_most(const tern_excluded *x) {
    return x->has_allowed ? SIZE_MAX : x->n_ends + x->n_words;
}

static bool is_end(const tern_excluded *x, int32_t id) {
    size_t first = 0, last = x->n_ends;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (x->ends[middle] < id)
            first = middle + 1;
        else
            last = middle;
    }
    return first < x->n_ends && x->ends[first] == id;
}

// Removes early ends from the candidates, unless no others are left.
static size_t without_ends(const tern_excluded *x, tern_candidate *c, size_t n) {
    size_t n_left = 0, n_others = 0;
    for (size_t i = 0; i < n; i++) n_others += !is_end(x, c[i].id);
    if (n_others == 0 || n_others == n) return n;
    for (size_t i = 0; i < n; i++)
        if (!is_end(x, c[i].id)) c[n_left++] = c[i];
    return n_left;
}

static size_t without(tern_candidate *c, size_t n, int32_t id) {
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].id != id) c[n_left++] = c[i];
    return n_left;
}

size_t tern_excluded_apply(const tern_excluded *x, tern_candidate *c, size_t n,
                           const int32_t *recent, size_t n_recent, size_t n_said) {
    if (x->has_allowed) {
        size_t n_left = 0;
        for (size_t i = 0; i < n; i++)
            if (has(x->allowed, c[i].id)) c[n_left++] = c[i];
        n = n_left;
    }
    if (x->n_ends && n_said < (size_t)x->min_tokens) n = without_ends(x, c, n);
    for (size_t i = 0; i < x->n_word_tokens; i += (size_t)x->words[i] + 1) {
        const int32_t *word = x->words + i + 1;
        const size_t n_before = (size_t)x->words[i] - 1;
        if (n_before <= n_recent &&
            !memcmp(recent + n_recent - n_before, word, n_before * sizeof *word))
            n = without(c, n, word[n_before]);
    }
    return n;
}
