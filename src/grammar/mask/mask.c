// Masks: the vocabulary's trees walked with a state.
//
// A walk steps terms, not states: along a token only the terms of a state's configurations change,
// until one of the terms may end; only there a new state is made. Terms that take a large part of
// the vocabulary are walked alone (mask_open.c) and shared by all states that they are part of.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

// A term that may begin with more bytes than this is walked alone.
#define OPEN_BYTES 24

tern_status tern_automaton_check(const tern_automaton *a, tern_error *err) {
    return tern_states_check(&a->states, err);
}

static tern_status reserve_slots(tern_automaton *a, size_t n, tern_error *err) {
    if (n <= a->slots_capacity) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &a->slots, &a->slots_capacity, n, 1) != 0)
        return tern_fail_memory(err, n * sizeof *a->slots);
    return TERN_OK;
}

// Adds tokens to a->found, once each.
static tern_status allow(tern_automaton *a, const uint32_t *ids, size_t n, tern_error *err) {
    tern_list *l = &a->found;
    if (l->n + n > l->capacity &&
        tern_array_reserve(TERN_MEM_SESSION, &l->at, &l->capacity, l->n, n) != 0)
        return tern_fail_memory(err, n * sizeof *l->at);
    for (size_t i = 0; i < n; i++) {
        const uint64_t bit = (uint64_t)1 << (ids[i] & 63);
        if (a->bits[ids[i] >> 6] & bit) continue;
        a->bits[ids[i] >> 6] |= bit;
        l->at[l->n++] = ids[i];
    }
    return TERN_OK;
}

// ---- Walks --------------------------------------------------------------------------------------

// The bytes that the terms of a level may take.
static void set_first(const tern_automaton *a, tern_walk_level *level, size_t n) {
    level->first = (tern_byteset){{0}};
    for (size_t i = 0; i < n; i++) {
        const tern_byteset *s = tern_term_first(&a->terms, a->slots[level->terms + i]);
        for (int k = 0; k < 4; k++) level->first.w[k] |= s->w[k];
    }
}

// Steps the terms of a level into the slots after them. Returns whether any is left; *ends: one of
// them may end.
static bool step_terms(tern_automaton *a, const tern_walk_level *level, size_t n, unsigned byte,
                       bool *ends) {
    const tern_term *from = a->slots + level->terms;
    tern_term *to = a->slots + level->terms + n;
    bool alive = false;
    *ends = false;
    for (size_t i = 0; i < n; i++) {
        to[i] = tern_term_step(&a->terms, from[i], byte);
        alive = alive || to[i];
        *ends = *ends || tern_term_is_nullable(&a->terms, to[i]);
    }
    return alive;
}

// The state of the terms after a byte. If the level's terms are the state's own, the step is
// remembered: a number may end at each digit, and such steps are few.
static tern_gstate state_below(tern_states *s, const tern_walk_level *level, unsigned byte,
                               const tern_term *terms) {
    return level->is_state ? tern_state_step(s, level->state, byte)
                           : tern_state_of_terms(s, level->state, terms);
}

// Finds the tokens below a node whose bytes lead on from `state`.
static tern_status walk(tern_automaton *a, const tern_tree *tree, uint32_t node, tern_gstate state,
                        tern_error *err) {
    tern_states *s = &a->states;
    tern_span span = s->infos[state].configs;
    tern_walk_level *level = a->levels;
    if (span.n == 0) return TERN_OK;
    TERN_TRY(reserve_slots(a, 2 * (size_t)span.n, err));
    for (size_t i = 0; i < span.n; i++) a->slots[i] = s->configs[span.at + i].term;
    *level = (tern_walk_level){.child = tree->nodes[node].child,
                               .end = tree->nodes[node + 1].child,
                               .state = state,
                               .is_state = true};
    set_first(a, level, span.n);
    for (;;) {
        if (level->child == level->end) {
            if (level-- == a->levels) return tern_automaton_check(a, err);
            continue;
        }
        const tern_tree_node *child = &tree->nodes[level->child++];
        bool ends;
        if (!tern_byteset_has(&level->first, child->byte)) continue;
        const size_t n = s->infos[level->state].configs.n;
        TERN_TRY(reserve_slots(a, level->terms + 3 * n, err));
        if (!tern_terms_work(&a->terms, n)) return tern_automaton_check(a, err);
        if (!step_terms(a, level, n, child->byte, &ends)) {
            if (a->terms.failed) return tern_automaton_check(a, err);
            continue;
        }
        if (child->n_own) TERN_TRY(allow(a, tree->ids + child->ids, child->n_own, err));
        if (child[0].child == child[1].child) continue;
        tern_walk_level next = {.child = child[0].child,
                                .end = child[1].child,
                                .state = level->state,
                                .terms = level->terms + (uint32_t)n,
                                .is_state = ends};
        size_t n_next = n;
        if (ends) {
            next.state = state_below(s, level, child->byte, a->slots + next.terms);
            if (tern_states_failed(s)) return tern_automaton_check(a, err);
            span = s->infos[next.state].configs;
            n_next = span.n;
            if (n_next == 0) continue;
            TERN_TRY(reserve_slots(a, next.terms + 2 * n_next, err));
            for (size_t i = 0; i < n_next; i++)
                a->slots[next.terms + i] = s->configs[span.at + i].term;
        }
        set_first(a, &next, n_next);
        *++level = next;
    }
}

static tern_status walk_both(tern_automaton *a, tern_gstate state, tern_error *err) {
    for (int i = 0; i < TERN_TREES; i++) TERN_TRY(walk(a, &a->vocab->trees[i], 0, state, err));
    return TERN_OK;
}

// ---- Sets of tokens -----------------------------------------------------------------------------

void tern_token_set_write(const tern_token_set *s, uint64_t *bits) {
    const uint32_t *c = s->changes;
    for (uint32_t i = 0; i < s->n_removed; i++) bits[c[i] >> 6] &= ~((uint64_t)1 << (c[i] & 63));
    for (uint32_t i = s->n_removed; i < s->n_removed + s->n_added; i++)
        bits[c[i] >> 6] |= (uint64_t)1 << (c[i] & 63);
}

void tern_token_set_free(tern_token_set *s) {
    tern_free(s->own);
    tern_free(s->changes);
    *s = (tern_token_set){0};
}

// ---- Masks of states ----------------------------------------------------------------------------

static bool is_open(const tern_automaton *a, tern_term term) {
    const tern_byteset *s = tern_term_first(&a->terms, term);
    int n = 0;
    for (int i = 0; i < 4; i++) n += __builtin_popcountll(s->w[i]);
    return n > OPEN_BYTES;
}

// Adds a set with too many tokens for a list: the mask gets bits of its own.
static void add_many(tern_automaton *a, const tern_token_set *s) {
    const size_t n_words = a->vocab->n_words;
    memcpy(a->more, s->base, n_words * sizeof *a->more);
    tern_token_set_write(s, a->more);
    for (size_t i = 0; i < n_words; i++) a->bits[i] |= a->more[i];
    memset(a->more, 0, n_words * sizeof *a->more);
    a->is_dense = true;
}

// The mask of a state, while it is being found.
typedef struct state_mask {
    tern_automaton *a;
    uint32_t open;      // the first open mask, + 1: its tokens are in a->bits only
    tern_config *ended; // scratch: room for all configurations
} state_mask;

// Adds the tokens of an open mask.
static tern_status add_tokens(state_mask *m, uint32_t open, tern_error *err) {
    tern_automaton *a = m->a;
    const tern_token_set *s = &a->opens[open].set;
    if (m->open == 0) {
        if (s->base) memcpy(a->bits, s->base, a->vocab->n_words * sizeof *a->bits);
        tern_token_set_write(s, a->bits);
        m->open = open + 1;
        return TERN_OK;
    }
    if (!s->base) return allow(a, s->changes, s->n_added, err);
    add_many(a, s);
    return TERN_OK;
}

// Adds the tokens of an open term and of what follows it in the n configurations that have it.
static tern_status add_open(state_mask *m, const tern_config *c, size_t n, uint32_t open,
                            tern_error *err) {
    tern_automaton *a = m->a;
    TERN_TRY(add_tokens(m, open, err));
    const tern_open_mask found = a->opens[open];
    if (!found.n_exits) return TERN_OK;
    const tern_gstate after = tern_state_after(&a->states, c, n);
    TERN_TRY(tern_automaton_check(a, err));
    for (size_t i = 0; i < found.n_exits; i++) {
        const uint32_t exit = found.exits[i];
        TERN_TRY(walk(a, &a->vocab->trees[exit & 1], exit >> 1, after, err));
    }
    return TERN_OK;
}

static int by_term(const void *a, const void *b) {
    const tern_config *x = a, *y = b;
    return x->term < y->term ? -1 : x->term > y->term;
}

// How many of n configurations have the same term as the first.
static uint32_t count_same(const tern_config *c, uint32_t n) {
    uint32_t same = 1;
    while (same < n && c[same].term == c[0].term) same++;
    return same;
}

// Adds the tokens that go on after the terms of n configurations. All exits have the same `ends`:
// the terms that end there.
typedef struct exits_at {
    const tern_union_exit *list;
    size_t n;
} exits_at;

static tern_status add_after(state_mask *m, const tern_config *c, uint32_t n,
                             const tern_term *terms, exits_at at, tern_error *err) {
    const tern_union_exit *exits = at.list;
    const size_t n_exits = at.n;
    tern_automaton *a = m->a;
    uint32_t n_ended = 0;
    for (uint32_t i = 0, k = 0; i < n; i++) {
        while (terms[k] != c[i].term) k++;
        if (exits->ends >> k & 1) m->ended[n_ended++] = c[i];
    }
    const tern_gstate after = tern_state_after(&a->states, m->ended, n_ended);
    TERN_TRY(tern_automaton_check(a, err));
    for (size_t i = 0; i < n_exits; i++) {
        const uint32_t exit = exits[i].exit;
        TERN_TRY(walk(a, &a->vocab->trees[exit & 1], exit >> 1, after, err));
    }
    return TERN_OK;
}

static tern_status add_union(state_mask *m, const tern_config *c, uint32_t n,
                             const tern_term *terms, const tern_open_union *u, tern_error *err) {
    TERN_TRY(add_tokens(m, u->open, err));
    for (size_t i = 0, end; i < u->n_exits; i = end) {
        for (end = i + 1; end < u->n_exits && u->exits[end].ends == u->exits[i].ends;) end++;
        TERN_TRY(add_after(m, c, n, terms, (exits_at){u->exits + i, end - i}, err));
    }
    return TERN_OK;
}

static tern_status add_one_by_one(state_mask *m, const tern_config *c, uint32_t n,
                                  tern_error *err) {
    for (uint32_t i = 0, same; i < n; i += same) {
        uint32_t open;
        same = count_same(c + i, n - i);
        TERN_TRY(tern_automaton_find_open(m->a, c[i].term, TERN_OPEN_WALK, &open, err));
        TERN_TRY(add_open(m, c + i, same, open, err));
    }
    return TERN_OK;
}

// Adds the tokens of configurations whose terms have to be walked, a few terms at a time.
static tern_status add_walked(state_mask *m, const tern_config *c, uint32_t n, tern_error *err) {
    while (n) {
        tern_term terms[TERN_UNION_MAX];
        tern_open_union u;
        uint32_t n_terms = 0, n_these = 0;
        while (n_terms < TERN_UNION_MAX && n_these < n) {
            terms[n_terms++] = c[n_these].term;
            n_these += count_same(c + n_these, n - n_these);
        }
        tern_status status = tern_open_unite(m->a, terms, n_terms, &u, err);
        if (status == TERN_OK)
            status = u.open == TERN_OPEN_NONE ? add_one_by_one(m, c, n_these, err)
                                              : add_union(m, c, n_these, terms, &u, err);
        tern_free(u.exits);
        TERN_TRY(status);
        c += n_these;
        n -= n_these;
    }
    return TERN_OK;
}

// Adds the tokens of n configurations, sorted by term, some of them open. After them is room for n
// more.
static tern_status add_sorted(state_mask *m, tern_config *c, uint32_t n, tern_error *err) {
    tern_automaton *a = m->a;
    tern_config *walked = c + n;
    uint32_t n_walked = 0, n_others = 0;
    for (uint32_t i = 0, same; i < n; i += same) {
        uint32_t open;
        same = count_same(c + i, n - i);
        if (!is_open(a, c[i].term)) {
            memmove(c + n_others, c + i, same * sizeof *c);
            n_others += same;
            continue;
        }
        TERN_TRY(tern_automaton_find_open(a, c[i].term, TERN_OPEN_KNOWN, &open, err));
        if (open != TERN_OPEN_NONE) {
            TERN_TRY(add_open(m, c + i, same, open, err));
            continue;
        }
        memcpy(walked + n_walked, c + i, same * sizeof *c);
        n_walked += same;
    }
    TERN_TRY(add_walked(m, walked, n_walked, err));
    if (!n_others) return TERN_OK;
    const tern_gstate rest = tern_state_of(&a->states, c, n_others);
    TERN_TRY(tern_automaton_check(a, err));
    return walk_both(a, rest, err);
}

static tern_status add_configs(tern_automaton *a, tern_gstate state, uint32_t *open,
                               tern_error *err) {
    const tern_states *s = &a->states;
    const tern_span span = s->infos[state].configs;
    bool has_open = false;
    for (uint32_t i = 0; i < span.n && !has_open; i++)
        has_open = is_open(a, s->configs[span.at + i].term);
    if (!has_open) return walk_both(a, state, err);
    tern_config *all = tern_alloc_array(TERN_MEM_SESSION, 3 * (size_t)span.n, sizeof *all);
    if (!all) return tern_fail_memory(err, span.n * sizeof *all);
    memcpy(all, s->configs + span.at, span.n * sizeof *all);
    qsort(all, span.n, sizeof *all, by_term);
    state_mask m = {.a = a, .ended = all + 2 * (size_t)span.n};
    const tern_status status = add_sorted(&m, all, span.n, err);
    *open = m.open;
    tern_free(all);
    return status;
}

static tern_status add_ends(tern_automaton *a, tern_gstate state, tern_error *err) {
    const tern_vocab_tree *v = a->vocab;
    for (size_t i = 0; i < v->n_ends && a->states.infos[state].accepts; i++) {
        const uint32_t id = (uint32_t)v->ends[i];
        TERN_TRY(allow(a, &id, 1, err));
    }
    return TERN_OK;
}

// Keeps the found tokens in the mask: as a list, or as bits if a list would be longer.
static tern_status keep(tern_automaton *a, tern_mask *m, tern_error *err) {
    const size_t n_words = a->vocab->n_words, bytes = n_words * sizeof(uint64_t);
    tern_token_set *s = &m->set;
    s->n_allowed = a->found.n + (m->open ? a->opens[m->open - 1].set.n_allowed : 0);
    if (a->is_dense) {
        s->n_allowed = 0;
        for (size_t i = 0; i < n_words; i++)
            s->n_allowed += (size_t)__builtin_popcountll(a->bits[i]);
    }
    if (!a->is_dense && a->found.n * sizeof(uint32_t) < bytes) {
        s->n_added = (uint32_t)a->found.n;
        s->changes = tern_alloc_array(TERN_MEM_SESSION, s->n_added, sizeof *s->changes);
        if (!s->changes) return tern_fail_memory(err, bytes);
        if (s->n_added) memcpy(s->changes, a->found.at, s->n_added * sizeof *s->changes);
    } else {
        s->own = tern_alloc(TERN_MEM_SESSION, bytes);
        if (!s->own) return tern_fail_memory(err, bytes);
        memcpy(s->own, a->bits, bytes);
        s->base = s->own;
        m->open = 0;
    }
    a->bytes += s->own ? bytes : s->n_added * sizeof *s->changes;
    return TERN_OK;
}

// Room for the mask of a state.
static tern_status reserve_mask(tern_automaton *a, tern_gstate state, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &a->masks, &a->masks_capacity, a->n_masks, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &a->mask_of, &a->mask_of_capacity, state, 1) != 0)
        return tern_fail_memory(err, (size_t)state * sizeof *a->mask_of);
    return TERN_OK;
}

tern_status tern_automaton_find_mask(tern_automaton *a, tern_gstate state, const tern_mask **out,
                                     tern_error *err) {
    if (state >= a->mask_of_capacity || !a->mask_of[state]) {
        tern_mask m = {0};
        if (a->bytes > a->bytes_max / 4) tern_automaton_free_masks(a);
        TERN_TRY(reserve_mask(a, state, err));
        a->found.n = 0;
        a->is_dense = false;
        tern_status status = add_configs(a, state, &m.open, err);
        if (status == TERN_OK) status = add_ends(a, state, err);
        if (status == TERN_OK) status = tern_automaton_check(a, err);
        if (status == TERN_OK) status = keep(a, &m, err);
        // Clears the scratch.
        if (m.open || m.set.own || status != TERN_OK)
            memset(a->bits, 0, a->vocab->n_words * sizeof *a->bits);
        for (size_t i = 0; i < a->found.n; i++) a->bits[a->found.at[i] >> 6] = 0;
        TERN_TRY(status);
        a->masks[a->n_masks] = m;
        a->mask_of[state] = (uint32_t)++a->n_masks;
    }
    *out = &a->masks[a->mask_of[state] - 1];
    return TERN_OK;
}

void tern_automaton_free_masks(tern_automaton *a) {
    for (size_t i = 0; i < a->n_masks; i++) tern_token_set_free(&a->masks[i].set);
    for (size_t i = 0; i < a->n_opens; i++) {
        tern_token_set_free(&a->opens[i].set);
        tern_free(a->opens[i].exits);
    }
    tern_free(a->masks);
    tern_free(a->mask_of);
    tern_free(a->opens);
    tern_free(a->open_of);
    tern_open_free_homes(a);
    tern_open_free_relaxed(a);
    tern_open_free_flat(a);
    tern_string_free_kinds(a);
    a->masks = NULL;
    a->mask_of = NULL;
    a->opens = NULL;
    a->open_of = NULL;
    a->n_masks = a->masks_capacity = a->mask_of_capacity = 0;
    a->n_opens = a->opens_capacity = a->open_of_capacity = a->bytes = 0;
}
