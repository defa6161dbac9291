// Masks of terms that take a large part of the vocabulary: the inside of a string, above all.
//
// Where a term is "any characters, then a quote", its plain tokens are those of the vocabulary,
// less the ones that are too long; only the special ones are walked. Where it is that and something
// else (a name that is none of the schema's), only what differs is walked: as soon as both terms
// are the same again, so are the tokens.
#include <string.h>
#include "base/alloc.h"
#include "grammar/automaton.h"

// More changes than this, and a set gets bits of its own.
#define CHANGES_MAX 2048

static tern_status note(tern_list *l, uint32_t x, tern_error *err) {
    if (l->n == l->capacity &&
        tern_array_reserve(TERN_MEM_SESSION, &l->at, &l->capacity, l->n, 1) != 0)
        return tern_fail_memory(err, l->n * sizeof *l->at);
    l->at[l->n++] = x;
    return TERN_OK;
}

// One level: children that are left, the term in front of them, and its row if it has one.
typedef struct level_of_one {
    uint32_t child, end;
    tern_term term;
    const uint32_t *row;
} level_of_one;

// Allows the tokens ids[0..n) in a->more.
static inline void allow(tern_automaton *a, const uint32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) a->more[ids[i] >> 6] |= (uint64_t)1 << (ids[i] & 63);
}

// ---- Loops --------------------------------------------------------------------------------------

// Whether every continuation of a character, of which n bytes are left, leads back to `home`.
static bool leads_home(tern_terms *t, tern_term a, int n, unsigned low, unsigned high,
                       tern_term home) {
    tern_term last = TERN_TERM_NOTHING;
    for (unsigned byte = low; byte <= high; byte++) {
        tern_term to = tern_term_step(t, a, byte);
        if (n == 1 ? to != home : !to) return false;
        if (n == 1 || to == last) continue;
        if (!leads_home(t, to, n - 1, 0x80, 0xBF, home)) return false;
        last = to;
    }
    return true;
}

static bool loops_on(tern_terms *t, tern_term a, unsigned first) {
    tern_term to = tern_term_step(t, a, first);
    if (first < 0x80) return to == a;
    if (!to) return false;
    unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    return leads_home(t, to, first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3, low, high, a);
}

// The classes of characters after all of which the term is what it was.
static uint64_t find_loops(tern_terms *t, tern_term a) {
    uint64_t loops = UINT64_MAX;
    for (unsigned byte = 0x20; byte < 0xF5; byte++) {
        bool is_first = byte < 0x80 ? byte != '"' && byte != '\\' : byte >= 0xC2;
        if (!is_first) continue;
        const uint64_t bit = (uint64_t)1 << tern_char_class_of(byte);
        if (loops & bit && !loops_on(t, a, byte)) loops &= ~bit;
    }
    return loops;
}

// Whether the term takes all tokens below a big node; then they are allowed.
static bool takes_all(tern_automaton *a, const tern_tree *tree, uint32_t node, tern_term term,
                      tern_term *looping, uint64_t *loops) {
    size_t low = 0, high = tree->n_big;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (tree->big[middle].node <= node)
            low = middle;
        else
            high = middle;
    }
    const tern_big_node *b = &tree->big[low];
    if (*looping != term) {
        // Worth the while for a big node only; a letter shows whether there may be a loop at all.
        if (tern_term_step(&a->terms, term, 'a') != term &&
            tern_term_step(&a->terms, term, ' ') != term)
            return false;
        *loops = find_loops(&a->terms, term);
        *looping = term;
    }
    if (b->classes & ~*loops) return false;
    const uint32_t from = tree->nodes[node].ids;
    allow(a, tree->ids + from, b->ids_end - from);
    return true;
}

// ---- Walks of one term --------------------------------------------------------------------------

// Allows the tokens of a tree that the term takes in a->more, and notes its exits.
static tern_status walk_one(tern_automaton *a, int which, tern_term term, tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[which];
    tern_terms *t = &a->terms;
    level_of_one *level = (level_of_one *)a->levels;
    uint64_t loops = 0;
    tern_term looping = TERN_TERM_NOTHING; // whose loops these are
    *level =
        (level_of_one){tree->nodes[0].child, tree->nodes[1].child, term, tern_term_row(t, term)};
    if (tree->nodes[0].is_big && takes_all(a, tree, 0, term, &looping, &loops)) return TERN_OK;
    for (;;) {
        if (level->child == level->end) {
            if (level-- == (level_of_one *)a->levels) return tern_terms_check(t, err);
            continue;
        }
        const uint32_t at = level->child++;
        const tern_tree_node *child = &tree->nodes[at];
        uint32_t to = level->row ? level->row[child->byte] : TERN_STEP_UNKNOWN;
        if (to & TERN_STEP_UNCHECKED) {
            to = tern_term_step(t, level->term, child->byte);
            level->row = tern_term_row(t, level->term);
        }
        if (!to) continue;
        allow(a, tree->ids + child->ids, child->n_own);
        if (child[0].child == child[1].child) continue;
        if (tern_term_is_nullable(t, to))
            TERN_TRY(note(&a->exits, at << 1 | (uint32_t)which, err));
        else if (child->is_big && takes_all(a, tree, at, to, &looping, &loops))
            continue;
        if (!tern_term_goes_on(t, to)) continue;
        *++level = (level_of_one){child[0].child, child[1].child, to, tern_term_row(t, to)};
    }
}

static void drop_exit(tern_automaton *a, uint32_t exit) {
    for (size_t i = 0; i < a->exits.n; i++)
        if (a->exits.at[i] == exit) a->exits.at[i--] = a->exits.at[--a->exits.n];
}

// Notes the tokens of a tree that one of two terms takes and the other does not: those that `term`
// lacks in `gone`, others in `more`. a->exits are those of `like`, and become those of `term`.
static tern_status walk_difference(tern_automaton *a, int which, tern_term term, tern_term like,
                                   tern_list *gone, tern_list *more, tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[which];
    tern_terms *t = &a->terms;
    tern_walk_level *level = a->levels;
    *level = (tern_walk_level){.child = tree->nodes[0].child,
                               .end = tree->nodes[1].child,
                               .state = term,
                               .terms = like};
    for (;;) {
        if (level->child == level->end) {
            if (level-- == a->levels) return tern_terms_check(t, err);
            continue;
        }
        const uint32_t at = level->child++;
        const tern_tree_node *child = &tree->nodes[at];
        const tern_term to = level->state ? tern_term_step(t, level->state, child->byte) : 0;
        const tern_term to_like = level->terms ? tern_term_step(t, level->terms, child->byte) : 0;
        if (to == to_like) continue;
        for (uint32_t i = 0; i < child->n_own && !to != !to_like; i++)
            TERN_TRY(note(to ? more : gone, tree->ids[child->ids + i], err));
        if (child[0].child == child[1].child) continue;
        const bool is_exit = tern_term_is_nullable(t, to);
        if (is_exit != tern_term_is_nullable(t, to_like)) {
            if (is_exit)
                TERN_TRY(note(&a->exits, at << 1 | (uint32_t)which, err));
            else
                drop_exit(a, at << 1 | (uint32_t)which);
        }
        level++;
        level->child = child[0].child;
        level->end = child[1].child;
        level->state = to;
        level->terms = to_like;
    }
}

// ---- Strings ------------------------------------------------------------------------------------

// Whether the term is some number of any characters and then a quote; at most *max.
static bool is_string(const tern_automaton *a, tern_term term, uint32_t *max) {
    const tern_terms *t = &a->terms;
    const tern_term_node *n = &t->nodes[term];
    if (!a->any_char || n->kind != TERN_KIND_CAT) return false;
    const tern_term_node *head = &t->nodes[n->a];
    *max = head->c;
    return head->kind == TERN_KIND_REPEAT && head->a == a->any_char &&
           t->nodes[n->b].first == 1 + '"';
}

// The string of which the term leaves a few out: the term is an intersection of it and of what must
// not be. NOTHING: there is none. (Where something else must be, too, most tokens differ.)
static tern_term like_string(tern_automaton *a, tern_term term) {
    tern_terms *t = &a->terms;
    const tern_term_node n = t->nodes[term];
    uint32_t max;
    if (n.kind != TERN_KIND_CAT || t->nodes[n.a].kind != TERN_KIND_BOTH) return TERN_TERM_NOTHING;
    const tern_term_node both = t->nodes[n.a];
    tern_term rest = TERN_TERM_NOTHING;
    for (uint32_t i = 0; i < both.b; i++) {
        tern_term member = t->lists[both.a + i];
        if (t->nodes[member].kind == TERN_KIND_NOT) continue;
        if (rest) return TERN_TERM_NOTHING;
        rest = member;
    }
    tern_term like = tern_term_cat(t, rest, n.b);
    return is_string(a, like, &max) ? like : TERN_TERM_NOTHING;
}

// Whether it is one without limits that a token could come to, and then nothing: what of it the
// vocabulary knows.
static bool is_endless(tern_automaton *a, tern_term string, uint32_t max) {
    const tern_term quote = tern_term_byte(&a->terms, '"'); // may move the nodes
    const tern_term_node *n = &a->terms.nodes[string];
    return a->terms.nodes[n->a].b == 0 && max >= a->vocab->depth_max && n->b == quote;
}

// What the special tree has of an endless string, or of one that is like it but for some texts.
static tern_status add_known(tern_automaton *a, tern_term term, tern_term like, tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    tern_list gone = {0}, more = {0};
    tern_status status = TERN_OK;
    for (size_t i = 0; i < v->n_exits && status == TERN_OK; i++)
        status = note(&a->exits, v->exits[i], err);
    allow(a, v->in_string, v->n_in_string);
    if (status == TERN_OK && like)
        status = walk_difference(a, TERN_TREE_SPECIAL, term, like, &gone, &more, err);
    for (size_t i = 0; i < gone.n; i++)
        a->more[gone.at[i] >> 6] &= ~((uint64_t)1 << (gone.at[i] & 63));
    allow(a, more.at, more.n);
    tern_free(gone.at);
    tern_free(more.at);
    return status;
}

// ---- Making sets --------------------------------------------------------------------------------

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
            TERN_TRY(note(&a->found, (uint32_t)(i * 64) + bit, err));
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

static tern_status add_open(tern_automaton *a, tern_term term, const uint64_t *base,
                            const tern_list *gone, uint32_t *out, tern_error *err) {
    tern_open_mask m = {.n_exits = a->exits.n};
    if (tern_array_reserve(TERN_MEM_SESSION, &a->opens, &a->opens_capacity, a->n_opens, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &a->open_of, &a->open_of_capacity, term, 1) != 0)
        return tern_fail_memory(err, term * sizeof *a->open_of);
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
    a->open_of[term] = *out + 1;
    return TERN_OK;
}

tern_status tern_automaton_find_open(tern_automaton *a, tern_term term, uint32_t *out,
                                     tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    if (term < a->open_of_capacity && a->open_of[term]) {
        *out = a->open_of[term] - 1;
        return TERN_OK;
    }
    // Tokens that the caller found already are put aside.
    tern_list kept = a->found, gone = {0};
    tern_term like = like_string(a, term);
    uint32_t max = 0;
    const uint64_t *base = NULL;
    tern_status status = TERN_OK;
    a->found = (tern_list){0};
    a->exits.n = 0;
    if (is_string(a, like ? like : term, &max)) {
        base = v->plain;
        size_t n_over = max < v->depth_max ? v->n_over[max] : 0;
        for (size_t i = 0; i < n_over && status == TERN_OK; i++)
            status = note(&gone, v->by_chars[i], err);
        if (like && n_over) { // the two would have to be told apart by tokens that are too long
            like = TERN_TERM_NOTHING;
            base = NULL;
            gone.n = 0;
        }
    }
    const bool is_known = base && is_endless(a, like ? like : term, max);
    if (status == TERN_OK && is_known) status = add_known(a, term, like, err);
    if (status == TERN_OK && base && like)
        status = walk_difference(a, TERN_TREE_PLAIN, term, like, &gone, &a->found, err);
    if (status == TERN_OK && !base) status = walk_one(a, TERN_TREE_PLAIN, term, err);
    if (status == TERN_OK && !is_known) status = walk_one(a, TERN_TREE_SPECIAL, term, err);
    if (status == TERN_OK) status = take_more(a, &base, err);
    if (status == TERN_OK) status = add_open(a, term, base, &gone, out, err);
    memset(a->more, 0, v->n_words * sizeof *a->more);
    tern_free(gone.at);
    tern_free(a->found.at);
    a->found = kept;
    return status;
}

// The same walk as for any other term, by an automaton that is nothing but the string.
tern_status tern_vocab_tree_find_in_string(tern_vocab_tree *v, tern_error *err) {
    tern_automaton *a = NULL;
    TERN_TRY(tern_automaton_begin(&a, 0, v, err));
    tern_terms *t = &a->terms;
    const tern_term one = tern_term_any_code(t, TERN_SPELL_JSON);
    const tern_term rest = tern_term_cat(t, tern_term_repeat(t, one, 0, TERN_NO_LIMIT),
                                         tern_term_byte(t, '"'));
    tern_status status = tern_terms_check(t, err);
    if (status == TERN_OK) status = walk_one(a, TERN_TREE_SPECIAL, rest, err);
    const uint64_t *base = v->plain; // so that what the walk allowed is listed
    if (status == TERN_OK) status = take_more(a, &base, err);
    if (status == TERN_OK) {
        v->in_string = a->found.at;
        v->exits = a->exits.at;
        v->n_in_string = a->found.n;
        v->n_exits = a->exits.n;
        v->bytes += (a->found.capacity + a->exits.capacity) * sizeof *v->exits;
        a->found.at = a->exits.at = NULL;
    }
    tern_automaton_close(a);
    return status;
}
