// Walks of one term through a tree of the vocabulary.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask_open.h"

tern_status tern_list_add(tern_list *l, uint32_t x, tern_error *err) {
    if (l->n == l->capacity &&
        tern_array_reserve(TERN_MEM_SESSION, &l->at, &l->capacity, l->n, 1) != 0)
        return tern_fail_memory(err, l->n * sizeof *l->at);
    l->at[l->n++] = x;
    return TERN_OK;
}

// ---- The plain tree, flat -----------------------------------------------------------------------
//
// One loop over the nodes in their order, with a term for each depth. Tokens of nodes that follow
// each other do so, too: they are allowed together, where a node that is not taken ends them.

typedef struct flat_level {
    tern_term term;
    const uint32_t *row;
} flat_level;

// A home that the walk is below.
typedef struct flat_home {
    uint32_t end, outer_end; // of the nodes below it, and of those below the node that led to it
    uint32_t home;           // in homes: these may move
    flat_level level;
} flat_home;

typedef struct flat_walk {
    tern_automaton *a;
    flat_level *levels; // [depth]
    flat_home *homes;
    uint32_t n_homes;
    uint32_t from;         // the first node whose tokens are allowed and were not noted
    uint32_t unknown[256]; // the row of terms that have none
} flat_walk;

static flat_level level_of(const flat_walk *w, tern_term term) {
    const uint32_t *row = tern_term_row(&w->a->terms, term);
    return (flat_level){term, row ? row : w->unknown};
}

// The first node from `at` on whose byte does not stay.
static uint32_t skip(const uint8_t *bytes, uint32_t at, uint32_t end, const uint8_t *stays) {
    while (at + 4 <= end &&
           (stays[bytes[at]] & stays[bytes[at + 1]] & stays[bytes[at + 2]] & stays[bytes[at + 3]]))
        at += 4;
    while (at < end && stays[bytes[at]]) at++;
    return at;
}

// Notes the tokens of nodes up to `end`; the next ones begin at `next`.
static void flush(flat_walk *w, uint32_t end, uint32_t next) {
    const tern_vocab_tree *v = w->a->vocab;
    const uint32_t ids = v->flat.nodes[w->from].ids;
    tern_open_allow(w->a, v->trees[TERN_TREE_PLAIN].ids + ids, v->flat.nodes[end].ids - ids);
    w->from = next;
}

// Where a large node led to a home, what is below is looked at from there.
static bool go_home(flat_walk *w, uint32_t at, tern_term term, uint32_t *end) {
    tern_automaton *a = w->a;
    if (tern_term_is_nullable(&a->terms, term) || !tern_open_home(a, term)) return false;
    w->homes[w->n_homes++] =
        (flat_home){a->vocab->flat.nodes[at].end, *end, a->home_of[term] - 2, level_of(w, term)};
    *end = at + 1;
    return true;
}

// Goes on to the next node that leads away from a home, or behind its nodes.
static uint32_t leave_home(flat_walk *w, uint32_t at, uint32_t *end) {
    const tern_flat_tree *f = &w->a->vocab->flat;
    const flat_home *h = &w->homes[w->n_homes - 1];
    at = skip(f->bytes, at, h->end, w->a->homes[h->home].stays);
    if (at == h->end) {
        *end = h->outer_end;
        w->n_homes--;
    } else {
        *end = f->nodes[at].end;
        w->levels[f->depths[at] / 2] = h->level;
    }
    return at;
}

static tern_status walk_nodes(flat_walk *w, tern_error *err) {
    const tern_flat_tree *f = &w->a->vocab->flat;
    tern_terms *t = &w->a->terms;
    uint32_t at = 1, end = (uint32_t)f->n;
    go_home(w, 0, w->levels[1].term, &end);
    for (;;) {
        if (at == end) {
            if (w->n_homes == 0) break;
            at = leave_home(w, at, &end);
            continue;
        }
        flat_level *level = &w->levels[f->depths[at] / 2];
        uint32_t to = level->row[f->bytes[at]];
        if (to & TERN_STEP_UNCHECKED) {
            to = tern_term_step(t, level->term, f->bytes[at]);
            level->row = level_of(w, level->term).row;
        }
        if (!to) {
            flush(w, at, f->nodes[at].end);
            at = w->from;
            continue;
        }
        if (tern_term_is_nullable(t, to) && f->nodes[at].end > at + 1)
            TERN_TRY(tern_list_add(&w->a->exits, f->node[at] << 1 | TERN_TREE_PLAIN, err));
        if (!tern_term_goes_on(t, to)) {
            flush(w, at + 1, f->nodes[at].end);
            at = w->from;
            continue;
        }
        level[1] = level_of(w, to);
        if (f->depths[at] & 1) go_home(w, at, to, &end);
        at++;
    }
    flush(w, at, at);
    return tern_terms_check(t, err);
}

static tern_status walk_plain(tern_automaton *a, tern_term term, tern_error *err) {
    const size_t n = a->vocab->depth_max + 2;
    flat_walk w = {.a = a};
    w.levels = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *w.levels);
    w.homes = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *w.homes);
    tern_status status = TERN_OK;
    memset(w.unknown, 0xFF, sizeof w.unknown);
    if (!w.levels || !w.homes) {
        status = tern_fail_memory(err, n * sizeof *w.homes);
    } else {
        w.levels[1] = level_of(&w, term);
        status = walk_nodes(&w, err);
    }
    tern_free(w.levels);
    tern_free(w.homes);
    return status;
}

// ---- The special tree ---------------------------------------------------------------------------

// One level: children that are left, the term in front of them.
typedef struct level_of_one {
    uint32_t child, end;
    tern_term term;
} level_of_one;

static tern_status walk_special(tern_automaton *a, tern_term term, tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[TERN_TREE_SPECIAL];
    tern_terms *t = &a->terms;
    level_of_one *level = (level_of_one *)a->levels;
    *level = (level_of_one){tree->nodes[0].child, tree->nodes[1].child, term};
    for (;;) {
        if (level->child == level->end) {
            if (level-- == (level_of_one *)a->levels) return tern_terms_check(t, err);
            continue;
        }
        const uint32_t at = level->child++;
        const tern_tree_node *child = &tree->nodes[at];
        const tern_term to = tern_term_step(t, level->term, child->byte);
        if (!to) continue;
        tern_open_allow(a, tree->ids + child->ids, child->n_own);
        if (child[0].child == child[1].child) continue;
        if (tern_term_is_nullable(t, to))
            TERN_TRY(tern_list_add(&a->exits, at << 1 | TERN_TREE_SPECIAL, err));
        if (!tern_term_goes_on(t, to)) continue;
        *++level = (level_of_one){child[0].child, child[1].child, to};
    }
}

tern_status tern_open_walk(tern_automaton *a, int which, tern_term term, tern_error *err) {
    return which == TERN_TREE_PLAIN ? walk_plain(a, term, err) : walk_special(a, term, err);
}

// ---- Differences --------------------------------------------------------------------------------

static void drop_exit(tern_automaton *a, uint32_t exit) {
    for (size_t i = 0; i < a->exits.n; i++)
        if (a->exits.at[i] == exit) a->exits.at[i--] = a->exits.at[--a->exits.n];
}

tern_status tern_open_walk_difference(tern_automaton *a, int which, tern_term term, tern_term like,
                                      size_t *n_left, tern_list *gone, tern_list *more,
                                      tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[which];
    tern_terms *t = &a->terms;
    tern_walk_level *level = a->levels;
    *level = (tern_walk_level){
        .child = tree->nodes[0].child, .end = tree->nodes[1].child, .state = term, .terms = like};
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
        if ((*n_left)-- == 0) return TERN_OK;
        for (uint32_t i = 0; i < child->n_own && !to != !to_like; i++)
            TERN_TRY(tern_list_add(to ? more : gone, tree->ids[child->ids + i], err));
        if (child[0].child == child[1].child) continue;
        const bool is_exit = tern_term_is_nullable(t, to);
        if (is_exit != tern_term_is_nullable(t, to_like)) {
            if (is_exit)
                TERN_TRY(tern_list_add(&a->exits, at << 1 | (uint32_t)which, err));
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
