// Walks of one term through a tree of the vocabulary.
#include "base/alloc.h"
#include "grammar/mask_open.h"

tern_status tern_list_add(tern_list *l, uint32_t x, tern_error *err) {
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

static const tern_big_node *find_big(const tern_tree *tree, uint32_t node) {
    size_t low = 0, high = tree->n_big;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (tree->big[middle].node <= node)
            low = middle;
        else
            high = middle;
    }
    return &tree->big[low];
}

// Whether the term takes all tokens below a big node; then they are allowed.
static bool takes_all(tern_automaton *a, const tern_tree *tree, uint32_t node, tern_term term) {
    const tern_big_node *b = find_big(tree, node);
    if (!tern_open_takes(a, term, b->classes, b->n_chars)) return false;
    const uint32_t from = tree->nodes[node].ids;
    tern_open_allow(a, tree->ids + from, b->ids_end - from);
    return true;
}

tern_status tern_open_walk(tern_automaton *a, int which, tern_term term, tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[which];
    tern_terms *t = &a->terms;
    level_of_one *level = (level_of_one *)a->levels;
    *level =
        (level_of_one){tree->nodes[0].child, tree->nodes[1].child, term, tern_term_row(t, term)};
    if (tree->nodes[0].is_big && takes_all(a, tree, 0, term)) return TERN_OK;
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
        tern_open_allow(a, tree->ids + child->ids, child->n_own);
        if (child[0].child == child[1].child) continue;
        if (tern_term_is_nullable(t, to))
            TERN_TRY(tern_list_add(&a->exits, at << 1 | (uint32_t)which, err));
        else if (child->is_big && takes_all(a, tree, at, to))
            continue;
        if (!tern_term_goes_on(t, to)) continue;
        *++level = (level_of_one){child[0].child, child[1].child, to, tern_term_row(t, to)};
    }
}

// Differences of fewer nodes are soon walked; most are.
#define SHORT 2000

// Whether two terms take all tokens below a big node: then they do not differ there.
static bool take_both(tern_automaton *a, const tern_tree *tree, uint32_t node, tern_term x,
                      tern_term y) {
    const tern_big_node *b = find_big(tree, node);
    return tern_open_takes(a, x, b->classes, b->n_chars) &&
           tern_open_takes(a, y, b->classes, b->n_chars);
}

static void drop_exit(tern_automaton *a, uint32_t exit) {
    for (size_t i = 0; i < a->exits.n; i++)
        if (a->exits.at[i] == exit) a->exits.at[i--] = a->exits.at[--a->exits.n];
}

tern_status tern_open_walk_difference(tern_automaton *a, int which, tern_term term, tern_term like,
                                      tern_list *gone, tern_list *more, tern_error *err) {
    const tern_tree *tree = &a->vocab->trees[which];
    tern_terms *t = &a->terms;
    tern_walk_level *level = a->levels;
    size_t n_nodes = 0;
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
        if (++n_nodes > SHORT && child->is_big && to && to_like && !is_exit &&
            take_both(a, tree, at, to, to_like))
            continue;
        level++;
        level->child = child[0].child;
        level->end = child[1].child;
        level->state = to;
        level->terms = to_like;
    }
}
