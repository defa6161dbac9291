// Limits that few tokens reach: how far a term without them (term_relax.c) is from its ends, and so
// up to which length both terms allow the same tokens.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

// Limits of a search for ends: terms, and parts of derivatives.
#define CLOSED_MAX 1500
#define EFFORT_MAX 25000
#define UNKNOWN    UINT32_MAX

// ---- How far ends are ---------------------------------------------------------------------------

typedef struct closed {
    tern_automaton *a;
    tern_term terms[CLOSED_MAX];
    uint32_t far[CLOSED_MAX];       // to its nearest end
    uint32_t begin[CLOSED_MAX + 1]; // of its edges
    uint32_t *edges;                // indices of terms
    size_t n, n_edges, capacity;
    uint32_t left; // the greatest distance
} closed;

// During a search, a->left holds the term's index.
#define IS_INDEX ((uint32_t)1 << 31)

static bool add_term(closed *c, tern_term term) {
    tern_automaton *a = c->a;
    if (c->n == CLOSED_MAX ||
        tern_array_reserve(TERN_MEM_SESSION, &a->left, &a->left_capacity, term, 1) != 0)
        return false;
    c->far[c->n] = tern_term_is_nullable(&a->terms, term) ? 0 : UNKNOWN;
    c->terms[c->n++] = term;
    a->left[term] = IS_INDEX | (uint32_t)(c->n - 1);
    return true;
}

// An edge to a term whose greatest distance to an end is known.
static bool add_known(closed *c, size_t from, uint32_t left) {
    if (left == UNKNOWN) return false;
    if (left < c->far[from]) c->far[from] = left; // kept as + 1
    if (left - 1 > c->left) c->left = left - 1;
    return true;
}

static bool add_edge(closed *c, size_t from, tern_term to) {
    tern_automaton *a = c->a;
    const uint32_t known = to < a->left_capacity ? a->left[to] : 0;
    if (known && (known == UNKNOWN || !(known & IS_INDEX))) return add_known(c, from, known);
    if (!known && !add_term(c, to)) return false;
    if (tern_array_reserve(TERN_MEM_SESSION, &c->edges, &c->capacity, c->n_edges, 1) != 0)
        return false;
    c->edges[c->n_edges++] = a->left[to] & ~IS_INDEX;
    return true;
}

static bool add_edges(closed *c, size_t from) {
    tern_automaton *a = c->a;
    tern_term last = TERN_TERM_NOTHING;
    c->begin[from] = (uint32_t)c->n_edges;
    for (unsigned byte = 0; byte < 256; byte++) {
        const tern_term to = tern_term_step(&a->terms, c->terms[from], byte);
        if (!to || to == last) continue;
        last = to;
        if (!add_edge(c, from, to)) return false;
    }
    c->begin[from + 1] = (uint32_t)c->n_edges;
    return true;
}

// The distance from each term to its nearest end. Goes from the last found terms to the first, as
// ends are found late.
static void find_far(closed *c) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = c->n; i-- > 0;)
            for (uint32_t k = c->begin[i]; k < c->begin[i + 1]; k++) {
                const uint32_t next = c->far[c->edges[k]];
                if (next >= UNKNOWN - 1 || next + 1 >= c->far[i]) continue;
                c->far[i] = next + 1;
                changed = true;
            }
    }
}

// The greatest distance to its nearest end, for a term and all that follow it. Kept, + 1, for all
// of these; UNKNOWN: they are too many.
static uint32_t find_left(tern_automaton *a, tern_term term) {
    if (term < a->left_capacity && a->left[term])
        return a->left[term] == UNKNOWN ? UNKNOWN : a->left[term] - 1;
    closed *c = tern_alloc(TERN_MEM_SESSION, sizeof *c);
    if (!c) return UNKNOWN;
    const uint64_t effort_max = a->terms.effort + EFFORT_MAX;
    c->a = a;
    bool holds = add_term(c, term);
    for (size_t i = 0; i < c->n && holds; i++)
        holds = add_edges(c, i) && a->terms.effort < effort_max && !a->terms.failed;
    if (holds) find_far(c);
    for (size_t i = 0; i < c->n && holds; i++)
        if (c->far[i] > c->left) c->left = c->far[i];
    const uint32_t left = holds && c->left < IS_INDEX - 1 ? c->left : UNKNOWN;
    for (size_t i = 0; i < c->n; i++)
        a->left[c->terms[i]] = a->terms.failed ? 0 : left == UNKNOWN ? UNKNOWN : left + 1;
    tern_free(c->edges);
    tern_free(c);
    return left;
}

bool tern_open_relax(tern_automaton *a, tern_term term, tern_open_relaxed *out) {
    const tern_relaxed r = tern_term_relax(&a->terms, term);
    if (r.limit == UINT32_MAX || r.term == term || a->terms.failed) return false;
    const uint32_t left = find_left(a, r.term);
    *out = (tern_open_relaxed){r.term, r.limit, left};
    return left < r.limit && r.limit - left >= TERN_LONG;
}

void tern_open_free_relaxed(tern_automaton *a) {
    tern_free(a->left);
    a->left = NULL;
    a->left_capacity = 0;
}
