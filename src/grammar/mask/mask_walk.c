// Walks of one term through a tree of the vocabulary.
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

tern_status tern_list_add(tern_list *l, uint32_t x, tern_error *err) {
    if (l->n == l->capacity &&
        tern_array_reserve(TERN_MEM_SESSION, &l->at, &l->capacity, l->n, 1) != 0)
        return tern_fail_memory(err, l->n * sizeof *l->at);
    l->at[l->n++] = x;
    return TERN_OK;
}

// ---- Node by node -------------------------------------------------------------------------------

// One level: the children left to visit, and the term before them.
typedef struct level_of_one {
    uint32_t child, end;
    tern_term term;
} level_of_one;

static tern_status walk_nodes(tern_automaton *a, int which, tern_term term, uint64_t effort_max,
                              bool *done, tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[which];
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
        if (!tern_terms_work(t, 1)) return tern_terms_check(t, err);
        const tern_term to = tern_term_step(t, level->term, child->byte);
        if (!to) continue;
        *done = t->effort <= effort_max;
        if (!*done) return tern_terms_check(t, err);
        tern_open_allow(a, tree->ids + child->ids, child->n_own);
        if (child[0].child == child[1].child) continue;
        if (tern_term_is_nullable(t, to))
            TERN_TRY(tern_list_add(&a->exits, at << 1 | (uint32_t)which, err));
        if (!tern_term_goes_on(t, to)) continue;
        *++level = (level_of_one){child[0].child, child[1].child, to};
    }
}

tern_status tern_open_walk(tern_automaton *a, int which, tern_term term, uint64_t effort_max,
                           bool *done, tern_error *err) {
    *done = false;
    if (which == TERN_TREE_PLAIN) TERN_TRY(tern_open_walk_flat(a, term, effort_max, done, err));
    if (*done || a->terms.effort > effort_max) return TERN_OK;
    *done = true;
    return walk_nodes(a, which, term, effort_max, done, err);
}

// ---- Differences --------------------------------------------------------------------------------

static void drop_exit(tern_automaton *a, uint32_t exit) {
    for (size_t i = 0; i < a->exits.n; i++)
        if (a->exits.at[i] == exit) a->exits.at[i--] = a->exits.at[--a->exits.n];
}

tern_status tern_open_walk_difference(tern_automaton *a, int which, tern_term term, tern_term like,
                                      tern_difference_lists *out, tern_error *err) {
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
        if (!tern_terms_work(t, 1)) return tern_terms_check(t, err);
        if (out->n_left-- == 0) return TERN_OK;
        for (uint32_t i = 0; i < child->n_own && !to != !to_like; i++)
            TERN_TRY(tern_list_add(to ? out->more : out->gone, tree->ids[child->ids + i], err));
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
