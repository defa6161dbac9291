// Masks of terms that take a large part of the vocabulary: the inside of a string, above all.
//
// The tokens of a string of some characters and its quote are known (mask_string.c). If a term is
// such a string with a few exceptions (a name that the schema does not list), only the differences
// are walked: as soon as both terms are the same again, so are their tokens. Others are walked
// whole (mask_walk.c).
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

// A set with more changes gets bits of its own.
#define CHANGES_MAX 2048
// Differences of more nodes are not looked for: walking the term alone is faster.
#define DIFFERENCE_MAX 4096
// Parts of derivatives that a short walk may take, some milliseconds' worth: a union that takes
// more leads to many states, while each of its terms leads to few.
#define EFFORT_SHORT 16000

// A mask that is being found: the tokens of `base` (NULL: none) without `gone`, and those of
// a->found. Its exits are in a->exits.
typedef struct open_search {
    tern_automaton *a;
    tern_term term;
    tern_open_way way;
    bool done; // false: not found in this way
    const uint64_t *base;
    tern_list gone;
} open_search;

// Moves the tokens in a->more to a->found or, if they are many, makes them the base.
static tern_status take_more(open_search *s, tern_error *err) {
    tern_automaton *a = s->a;
    const size_t n_words = a->vocab->n_words;
    size_t n = 0;
    for (size_t i = 0; i < n_words; i++) n += (size_t)__builtin_popcountll(a->more[i]);
    if (n > CHANGES_MAX) {
        s->base = a->more;
        return TERN_OK;
    }
    for (size_t i = 0; i < n_words; i++)
        for (uint64_t w = a->more[i]; w; w &= w - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(w);
            TERN_TRY(tern_list_add(&a->found, (uint32_t)(i * 64) + bit, err));
        }
    return TERN_OK;
}

// Makes a set of the found tokens.
static tern_status make_set(const open_search *found, tern_token_set *out, tern_error *err) {
    tern_automaton *a = found->a;
    const tern_vocab_tree *v = a->vocab;
    const tern_list *gone = &found->gone;
    const uint64_t *base = found->base;
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

static tern_status add_open(const open_search *s, uint32_t *out, tern_error *err) {
    tern_automaton *a = s->a;
    tern_open_mask m = {.n_exits = a->exits.n};
    if (tern_array_reserve(TERN_MEM_SESSION, &a->opens, &a->opens_capacity, a->n_opens, 1) != 0)
        return tern_fail_memory(err, a->n_opens * sizeof *a->opens);
    m.exits = tern_alloc_array(TERN_MEM_SESSION, m.n_exits, sizeof *m.exits);
    if (!m.exits) return tern_fail_memory(err, m.n_exits * sizeof *m.exits);
    if (m.n_exits) memcpy(m.exits, a->exits.at, m.n_exits * sizeof *m.exits);
    tern_status status = make_set(s, &m.set, err);
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
    tern_terms_work(&a->terms, 1 + n / 4);
    for (size_t i = 0; i < n && term; i++)
        term = tern_term_step(&a->terms, term, (unsigned char)v->pool[v->text[id] + i]);
    return term;
}

bool tern_open_ends_at(tern_automaton *a, tern_term term, uint32_t exit) {
    const tern_tree *tree = &a->vocab->trees[exit & 1];
    const tern_tree_node *node = &tree->nodes[exit >> 1];
    return tern_term_is_nullable(&a->terms, follow(a, term, tree->ids[node->ids], node->depth));
}

// Notes the tokens that the term without limits, whose mask is m, allows and the term does not:
// those after which it is too late for an end. Tokens of up to n_same bytes are the same.
static tern_status find_less(open_search *s, const tern_open_mask *m, size_t n_same,
                             tern_error *err) {
    tern_automaton *a = s->a;
    const tern_vocab_tree *v = a->vocab;
    const uint64_t *base = s->base = m->set.base;
    const uint32_t *changes = m->set.changes, n_removed = m->set.n_removed;
    if (base) memcpy(a->more, base, v->n_words * sizeof *a->more);
    tern_token_set_write(&m->set, a->more);
    for (uint32_t i = 0; i < n_removed; i++) TERN_TRY(tern_list_add(&s->gone, changes[i], err));
    for (size_t i = 0; i < v->n_long; i++) {
        const uint32_t id = v->by_bytes[i], n = v->text[id + 1] - v->text[id];
        const uint64_t bit = (uint64_t)1 << (id & 63);
        if (n <= n_same) break;
        if (!(a->more[id >> 6] & bit) || follow(a, s->term, id, n)) continue;
        a->more[id >> 6] &= ~bit;
        if (base && base[id >> 6] & bit) TERN_TRY(tern_list_add(&s->gone, id, err));
    }
    for (uint32_t i = n_removed; i < n_removed + m->set.n_added; i++)
        if (a->more[changes[i] >> 6] >> (changes[i] & 63) & 1)
            TERN_TRY(tern_list_add(&a->found, changes[i], err));
    return TERN_OK;
}

// Finds the tokens by way of the term without limits.
static tern_status find_relaxed(open_search *s, const tern_open_relaxed *r, tern_error *err) {
    tern_automaton *a = s->a;
    uint32_t index;
    TERN_TRY(tern_automaton_find_open(a, r->term, s->way, &index, err));
    s->done = index != TERN_OPEN_NONE;
    if (!s->done) return TERN_OK;
    const tern_open_mask m = a->opens[index];
    a->exits.n = 0;
    TERN_TRY(find_less(s, &m, r->limit - r->left, err));
    for (size_t i = 0; i < m.n_exits; i++) {
        const uint32_t exit = m.exits[i];
        if (a->vocab->trees[exit & 1].nodes[exit >> 1].depth <= r->limit ||
            tern_open_ends_at(a, s->term, exit))
            TERN_TRY(tern_list_add(&a->exits, exit, err));
    }
    return tern_automaton_check(a, err);
}

// ---- The ways to a mask -------------------------------------------------------------------------

// Finds the tokens of a string, or of one with a few exceptions. Not done: the term is neither, or
// has too many exceptions.
static tern_status find_string(open_search *s, tern_error *err) {
    tern_automaton *a = s->a;
    tern_counted_string string;
    tern_difference_lists lists = {DIFFERENCE_MAX, &s->gone, &a->found};
    const tern_term like = tern_string_like(a, s->term);
    s->done = tern_string_is_counted(a, like ? like : s->term, &string);
    if (!s->done) return TERN_OK;
    TERN_TRY(tern_string_find(a, &string, &s->base, &s->gone, err));
    for (int i = 0; i < TERN_TREES && like && lists.n_left != SIZE_MAX; i++)
        TERN_TRY(tern_open_walk_difference(a, i, s->term, like, &lists, err));
    s->done = lists.n_left != SIZE_MAX;
    if (s->done) return TERN_OK;
    s->base = NULL;
    s->gone.n = a->found.n = a->exits.n = 0;
    return TERN_OK;
}

static tern_status find_by_walk(open_search *s, tern_error *err) {
    tern_automaton *a = s->a;
    const uint64_t effort_max =
        s->way == TERN_OPEN_WALK ? UINT64_MAX : a->terms.effort + EFFORT_SHORT;
    s->done = true;
    for (int i = 0; i < TERN_TREES && s->done; i++)
        TERN_TRY(tern_open_walk(a, i, s->term, effort_max, &s->done, err));
    return s->done ? take_more(s, err) : TERN_OK;
}

// In open_of: TERN_OPEN_KNOWN does not find the term's mask; nor does TERN_OPEN_SHORT.
#define IS_NO_STRING (UINT32_MAX - 1)
#define IS_LONG      UINT32_MAX

static uint32_t known_of(const tern_automaton *a, tern_term term) {
    return term < a->open_of_capacity ? a->open_of[term] : 0;
}

static tern_status find_tokens(open_search *s, tern_error *err) {
    tern_automaton *a = s->a;
    if (known_of(a, s->term) < IS_NO_STRING) TERN_TRY(find_string(s, err));
    if (s->done || s->way == TERN_OPEN_KNOWN) return tern_automaton_check(a, err);
    tern_open_relaxed r;
    const bool has_limits = a->vocab->depth_max < 255 && tern_open_relax(a, s->term, &r);
    TERN_TRY(tern_automaton_check(a, err));
    return has_limits ? find_relaxed(s, &r, err) : find_by_walk(s, err);
}

static tern_status remember(tern_automaton *a, tern_term term, uint32_t what, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &a->open_of, &a->open_of_capacity, term, 1) != 0)
        return tern_fail_memory(err, term * sizeof *a->open_of);
    a->open_of[term] = what;
    return TERN_OK;
}

static tern_status find_new(tern_automaton *a, tern_term term, tern_open_way way, uint32_t *out,
                            tern_error *err) {
    // Puts the tokens aside that the caller found already.
    const tern_list kept = a->found;
    open_search s = {.a = a, .term = term, .way = way};
    uint32_t found = way == TERN_OPEN_KNOWN ? IS_NO_STRING : IS_LONG;
    a->found = (tern_list){0};
    a->exits.n = 0;
    tern_status status = find_tokens(&s, err);
    if (status == TERN_OK && s.done) status = add_open(&s, out, err);
    if (status == TERN_OK && s.done) found = *out + 1;
    if (status == TERN_OK) status = tern_automaton_check(a, err);
    if (status == TERN_OK) status = remember(a, term, found, err);
    memset(a->more, 0, a->vocab->n_words * sizeof *a->more);
    tern_free(s.gone.at);
    tern_free(a->found.at);
    a->found = kept;
    return status;
}

tern_status tern_automaton_find_open(tern_automaton *a, tern_term term, tern_open_way way,
                                     uint32_t *out, tern_error *err) {
    const uint32_t known = known_of(a, term);
    *out = TERN_OPEN_NONE;
    if ((known == IS_NO_STRING && way == TERN_OPEN_KNOWN) ||
        (known == IS_LONG && way != TERN_OPEN_WALK))
        return TERN_OK;
    if (known && known < IS_NO_STRING) {
        *out = known - 1;
        return TERN_OK;
    }
    const tern_term uncounted = tern_string_uncounted(a, term);
    if (!uncounted) return find_new(a, term, way, out, err);
    TERN_TRY(tern_automaton_find_open(a, uncounted, way, out, err));
    return *out == TERN_OPEN_NONE ? TERN_OK : remember(a, term, *out + 1, err);
}
