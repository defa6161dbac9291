// Masks of terms that take a large part of the vocabulary: the inside of a string, above all.
//
// Of a string of some characters and its quote it is known what it takes (mask_string.c). Where a
// term is that and something else (a name that is none of the schema's), only what differs is
// walked: as soon as both terms are the same again, so are the tokens. Others are walked whole
// (mask_walk.c).
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask_open.h"

// More changes than this, and a set gets bits of its own.
#define CHANGES_MAX 2048
// A difference of more nodes is not looked for: a walk of one term goes over so many sooner.
#define DIFFERENCE_MAX 4096

// Moves what is in a->more to a->found, or, if it is a lot and there is no other base, lets it be
// one.
static tern_status take_more(tern_automaton *a, const uint64_t **base, tern_error *err) {
    const size_t n_words = a->vocab->n_words;
    size_t n = 0;
    for (size_t i = 0; i < n_words; i++) n += (size_t)__builtin_popcountll(a->more[i]);
    if (n > CHANGES_MAX && !*base) {
        *base = a->more;
        return TERN_OK;
    }
    for (size_t i = 0; i < n_words; i++)
        for (uint64_t w = a->more[i]; w; w &= w - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(w);
            TERN_TRY(tern_list_add(&a->found, (uint32_t)(i * 64) + bit, err));
        }
    return TERN_OK;
}

// base with what was noted becomes the set's.
static tern_status make_set(tern_automaton *a, const uint64_t *base, const tern_list *gone,
                            tern_token_set *out, tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    const size_t bytes = v->n_words * sizeof(uint64_t), n = gone->n + a->found.n;
    tern_token_set s = {.base = base, .n_removed = (uint32_t)gone->n};
    s.n_added = (uint32_t)a->found.n;
    s.changes = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *s.changes);
    if (!s.changes) return tern_fail_memory(err, n * sizeof *s.changes);
    if (gone->n) memcpy(s.changes, gone->at, gone->n * sizeof *s.changes);
    if (a->found.n) memcpy(s.changes + gone->n, a->found.at, a->found.n * sizeof *s.changes);
    for (size_t i = 0; i < v->n_words && base; i++)
        s.n_allowed += (size_t)__builtin_popcountll(base[i]);
    s.n_allowed += a->found.n - gone->n;
    if (n > CHANGES_MAX || base == a->more) {
        s.own = tern_alloc(TERN_MEM_SESSION, bytes);
        if (!s.own) {
            tern_free(s.changes);
            return tern_fail_memory(err, bytes);
        }
        if (base) memcpy(s.own, base, bytes);
        tern_token_set_write(&s, s.own);
        tern_free(s.changes);
        s.changes = NULL;
        s.n_removed = s.n_added = 0;
        s.base = s.own;
    }
    a->bytes += s.own ? bytes : n * sizeof *s.changes;
    *out = s;
    return TERN_OK;
}

static tern_status add_open(tern_automaton *a, const uint64_t *base, const tern_list *gone,
                            uint32_t *out, tern_error *err) {
    tern_open_mask m = {.n_exits = a->exits.n};
    if (tern_array_reserve(TERN_MEM_SESSION, &a->opens, &a->opens_capacity, a->n_opens, 1) != 0)
        return tern_fail_memory(err, a->n_opens * sizeof *a->opens);
    m.exits = tern_alloc_array(TERN_MEM_SESSION, m.n_exits, sizeof *m.exits);
    if (!m.exits) return tern_fail_memory(err, m.n_exits * sizeof *m.exits);
    if (m.n_exits) memcpy(m.exits, a->exits.at, m.n_exits * sizeof *m.exits);
    tern_status status = make_set(a, base, gone, &m.set, err);
    if (status != TERN_OK) {
        tern_free(m.exits);
        return status;
    }
    a->bytes += m.n_exits * sizeof *m.exits;
    *out = (uint32_t)a->n_opens;
    a->opens[a->n_opens++] = m;
    return TERN_OK;
}

// ---- Without limits -----------------------------------------------------------------------------

static tern_term follow(tern_automaton *a, tern_term term, uint32_t id, size_t n) {
    const tern_vocab_tree *v = a->vocab;
    for (size_t i = 0; i < n && term; i++)
        term = tern_term_step(&a->terms, term, (unsigned char)v->pool[v->text[id] + i]);
    return term;
}

// Whether a text of the term ends at a node.
static bool ends_at(tern_automaton *a, tern_term term, uint32_t exit, uint32_t limit) {
    const tern_tree *tree = &a->vocab->trees[exit & 1];
    const tern_tree_node *node = &tree->nodes[exit >> 1];
    return node->depth <= limit ||
           tern_term_is_nullable(&a->terms, follow(a, term, tree->ids[node->ids], node->depth));
}

// Notes what the term allows less than the one without limits, whose mask is known: nothing but
// tokens after which it is too late for an end.
static tern_status find_less(tern_automaton *a, tern_term term, const tern_open_mask *m,
                             uint32_t limit, uint32_t left, tern_list *gone, tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    const tern_token_set *s = &m->set;
    if (s->base) memcpy(a->more, s->base, v->n_words * sizeof *a->more);
    tern_token_set_write(s, a->more);
    for (uint32_t i = 0; i < s->n_removed; i++) TERN_TRY(tern_list_add(gone, s->changes[i], err));
    for (size_t i = 0; i < v->n_long; i++) {
        const uint32_t id = v->by_bytes[i], n = v->text[id + 1] - v->text[id];
        const uint64_t bit = (uint64_t)1 << (id & 63);
        if (n <= limit - left) break;
        if (!(a->more[id >> 6] & bit) || follow(a, term, id, n)) continue;
        a->more[id >> 6] &= ~bit;
        if (s->base && s->base[id >> 6] & bit) TERN_TRY(tern_list_add(gone, id, err));
    }
    for (uint32_t i = s->n_removed; i < s->n_removed + s->n_added; i++)
        if (a->more[s->changes[i] >> 6] >> (s->changes[i] & 63) & 1)
            TERN_TRY(tern_list_add(&a->found, s->changes[i], err));
    for (size_t i = 0; i < m->n_exits; i++)
        if (ends_at(a, term, m->exits[i], limit))
            TERN_TRY(tern_list_add(&a->exits, m->exits[i], err));
    return tern_automaton_check(a, err);
}

// Finds the tokens by way of the term without limits, if it has some.
static tern_status find_relaxed(tern_automaton *a, tern_term term, bool *done,
                                const uint64_t **base, tern_list *gone, tern_error *err) {
    uint32_t limit, left, index;
    const tern_term relaxed = tern_open_relax(a, term, &limit, &left);
    *done = relaxed != TERN_TERM_NOTHING;
    if (!*done) return tern_automaton_check(a, err);
    TERN_TRY(tern_automaton_find_open(a, relaxed, &index, err));
    const tern_open_mask m = a->opens[index];
    a->exits.n = 0;
    *base = m.set.base;
    return find_less(a, term, &m, limit, left, gone, err);
}

static tern_status find_tokens(tern_automaton *a, tern_term term, const uint64_t **base,
                               tern_list *gone, tern_error *err) {
    tern_counted_string s;
    const tern_term like = tern_string_like(a, term);
    if (tern_string_is_counted(a, like ? like : term, &s)) {
        size_t n_left = DIFFERENCE_MAX;
        TERN_TRY(tern_string_find(a, &s, base, gone, err));
        for (int i = 0; i < TERN_TREES && like && n_left != SIZE_MAX; i++)
            TERN_TRY(tern_open_walk_difference(a, i, term, like, &n_left, gone, &a->found, err));
        if (n_left != SIZE_MAX) return TERN_OK;
        *base = NULL;
        gone->n = a->found.n = a->exits.n = 0;
    }
    bool done = false;
    if (a->vocab->depth_max < 255) TERN_TRY(find_relaxed(a, term, &done, base, gone, err));
    if (done) return TERN_OK;
    for (int i = 0; i < TERN_TREES; i++) TERN_TRY(tern_open_walk(a, i, term, err));
    return take_more(a, base, err);
}

static tern_status remember(tern_automaton *a, tern_term term, uint32_t index, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &a->open_of, &a->open_of_capacity, term, 1) != 0)
        return tern_fail_memory(err, term * sizeof *a->open_of);
    a->open_of[term] = index + 1;
    return TERN_OK;
}

tern_status tern_automaton_find_open(tern_automaton *a, tern_term term, uint32_t *out,
                                     tern_error *err) {
    if (term < a->open_of_capacity && a->open_of[term]) {
        *out = a->open_of[term] - 1;
        return TERN_OK;
    }
    const tern_term uncounted = tern_string_uncounted(a, term);
    if (uncounted) {
        TERN_TRY(tern_automaton_find_open(a, uncounted, out, err));
        return remember(a, term, *out, err);
    }
    // Tokens that the caller found already are put aside.
    tern_list kept = a->found, gone = {0};
    const uint64_t *base = NULL;
    a->found = (tern_list){0};
    a->exits.n = 0;
    tern_status status = find_tokens(a, term, &base, &gone, err);
    if (status == TERN_OK) status = add_open(a, base, &gone, out, err);
    if (status == TERN_OK) status = remember(a, term, *out, err);
    memset(a->more, 0, a->vocab->n_words * sizeof *a->more);
    tern_free(gone.at);
    tern_free(a->found.at);
    a->found = kept;
    return status;
}
